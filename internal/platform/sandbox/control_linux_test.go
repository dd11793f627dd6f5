package sandbox

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/junctor-run/junctor/internal/platform/sandbox/canary"
)

// Without the sandbox the same acts succeed, which proves that the sandbox causes the "held"
// of the other tests. It runs as a user without rights and without other processes, which would
// receive its signals.
func TestTheCanaryGetsOutWhereThereIsNoWall(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root can run the unconfined canary as somebody without rights")
	}
	const user = DefaultUID - 7 // extensions have those from DefaultUID on
	base := t.TempDir()
	v, _, release, err := makeVictims(t.Context(), base, user)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for dir := base; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	v.Spare = filepath.Join(base, "work")
	if err := os.Chown(v.Spare, user, user); err != nil {
		t.Fatal(err)
	}
	input, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", canaryName, "all")
	cmd.Env, cmd.Dir, cmd.Stdin = os.Environ(), v.Spare, bytes.NewReader(input)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{Uid: user, Gid: user}}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var results []canary.Result
	if err := json.Unmarshal(out, &results); err != nil {
		t.Fatal(err)
	}
	broken := map[string]bool{}
	for _, r := range results {
		broken[r.Act] = r.Outcome == canary.Broken
	}
	for _, act := range []string{
		"read an outside file", "read it by a relative path", "write an outside file", "make a file outside", "list an outside directory",
		"read through a symbolic link", "read through a chain of links", "truncate through a link", "move a file out",
		"set an attribute of an outside file", canary.ActHide,
		"connect to the machine's loopback", "send a datagram out", "connect to an outside unix socket", "connect to an abstract unix socket",
		"open a netlink socket", "signal a foreign process", "set a foreign process's priority", "set a foreign process's affinity",
		"set a foreign process's limits",
		"read another process's environment", "list /sys", "read the server's environment variables", "switch off address randomisation",
		"attach outside shared memory", "read an outside semaphore", "send an outside message", "receive an outside message",
	} {
		if !broken[act] {
			t.Errorf("%s did not succeed even without walls: the other tests say nothing about it", act)
		}
	}
}
