package server_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
)

// TestFullDisk lets every write of the server fail, as a full disk does: what
// changes something is refused before it is done, reads go on, /readyz and the
// doctor say why, and it repairs by itself when there is room again.
func TestFullDisk(t *testing.T) {
	n := serve(t, t.TempDir())
	write := func(name string) error {
		var out client.Invoked
		return n.admin.Invoke(t.Context(), client.Invocation{
			Target: "fs.writeText",
			Input:  json.RawMessage(`{"path":"` + name + `","text":"x"}`),
		}, &out)
	}
	if err := write("before.txt"); err != nil {
		t.Fatal(err)
	}
	segment, err := os.Stat(filepath.Join(n.home, "audit", "audit-00000001.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	limit := func(size uint64) {
		t.Helper()
		if err := unix.Prlimit(n.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: unix.RLIM_INFINITY}, nil); err != nil {
			t.Skipf("limits cannot be set here: %v", err)
		}
	}
	limit(uint64(segment.Size()))

	// The first write after the disk is full may find it out itself.
	eventually(t, "writes are refused", func() bool { return capability.CodeOf(write("refused.txt")) == capability.CodeUnavailable })
	_ = os.Remove(filepath.Join(n.home, "files", "refused.txt"))
	err = write("refused.txt")
	if e := capability.AsError(err); e.Code != capability.CodeUnavailable || e.Reason != "audit_unavailable" || e.Hint == "" {
		t.Errorf("a write without a log: %v, reason %q, hint %q; want e.Code = capability.CodeUnavailable, e.Reason = "+
			`"audit_unavailable", e.Hint other than ""`, err, e.Reason, e.Hint)
	}
	if exists(filepath.Join(n.home, "files", "refused.txt")) {
		t.Error("the refused write was done")
	}
	var out client.Invoked
	if err := n.admin.Invoke(t.Context(), client.Invocation{Target: "fs.list"}, &out); err != nil {
		t.Errorf("a read without a log: %v", err)
	}
	if a := n.request(t, "GET", "/readyz", "", ""); a.status != 503 || !strings.Contains(a.body, "the audit log cannot be written") {
		t.Errorf(`/readyz: %d %s; want a.status = 503, a.body with "the audit log cannot be written"`, a.status, a.body)
	}
	if a := n.request(t, "GET", "/healthz", "", ""); a.status != 200 {
		t.Errorf("/healthz: %d; want a.status = 200", a.status)
	}
	if a := n.request(t, "GET", "/api/v1/doctor", n.token(t, "admin"), ""); !strings.Contains(a.body, "cannot be written") {
		t.Errorf(`the doctor does not say it: %s; want a.body with "cannot be written"`, a.body)
	}

	limit(unix.RLIM_INFINITY)
	eventually(t, "writes pass again", func() bool { return write("after.txt") == nil })
	eventually(t, "/readyz is content", func() bool { return n.request(t, "GET", "/readyz", "", "").status == 200 })
	n.verify(t)
	n.terminate(t)
}
