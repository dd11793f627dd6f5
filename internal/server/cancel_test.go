package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
)

// hang starts a call that does not end by itself and returns when it runs.
func (n *node) hang(ctx context.Context, t *testing.T) (done chan error) {
	t.Helper()
	mark := filepath.Join(t.TempDir(), "called")
	done = make(chan error, 1)
	go func() {
		var out client.Invoked
		done <- n.admin.Invoke(ctx, client.Invocation{Target: "trial:action:HANG", Input: json.RawMessage(fmt.Sprintf(`{"file":%q}`, mark))},
			&out)
	}()
	eventually(t, "the call runs", func() bool { return exists(mark) })
	return done
}

// TestCancel: an operator ends a running call by its id; its caller is told.
func TestCancel(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	n.connect(t, "far", spawn(t, "endpoint", nil, "127.0.0.1:0", "trial").first, false)
	done := n.hang(t.Context(), t)
	begins := n.records(t, "event=capability_started")
	if len(begins) != 1 {
		t.Fatalf("%d begins; want len(begins) = 1", len(begins))
	}
	path := "/api/v1/invocations/" + begins[0].Metadata.RunID
	if a := n.request(t, "DELETE", path, n.token(t, "agent"), ""); a.status != http.StatusForbidden {
		t.Errorf("an agent's cancel: %d %s; want a.status = http.StatusForbidden", a.status, a.body)
	}
	if a := n.request(t, "DELETE", path, n.token(t, "admin"), ""); a.status != http.StatusOK {
		t.Errorf("cancel: %d %s; want a.status = http.StatusOK", a.status, a.body)
	}
	if err := <-done; capability.CodeOf(err) != capability.CodeCancelled {
		t.Errorf("the call: %v; want capability.CodeOf(err) = capability.CodeCancelled", err)
	}
	if a := n.request(t, "DELETE", path, n.token(t, "admin"), ""); a.status != http.StatusNotFound {
		t.Errorf("a second cancel: %d %s; want a.status = http.StatusNotFound", a.status, a.body)
	}
	if ends := n.records(t, "event=capability_cancelled"); len(ends) != 1 || ends[0].Metadata.RunID != begins[0].Metadata.RunID {
		t.Errorf("ends: %+v; want len(ends) = 1, ends[0].Metadata.RunID = begins[0].Metadata.RunID", ends)
	}
}

// TestCallerHangsUp: a call whose caller is gone is cancelled and recorded.
func TestCallerHangsUp(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	n.connect(t, "far", spawn(t, "endpoint", nil, "127.0.0.1:0", "trial").first, false)
	ctx, cancel := context.WithCancel(t.Context())
	done := n.hang(ctx, t)
	cancel()
	<-done
	eventually(t, "the cancelled call is on record", func() bool { return len(n.records(t, "event=capability_cancelled")) == 1 })
}
