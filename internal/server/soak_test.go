//go:build soak

package server_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/junctor-run/junctor/client"
)

// TestSoakKills is the kill test at length: one home that outlives a hundred
// servers, with every answer still in its log.
func TestSoakKills(t *testing.T) { killAgainAndAgain(t, 100, 1000) }

// TestSoakFlappingEndpoint kills and restarts an endpoint for three minutes under
// calls. Calls may fail while it is away, and must work within a second of its
// return; the other provider never notices.
func TestSoakFlappingEndpoint(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	ep := spawn(t, "endpoint", nil, "127.0.0.1:0", "trial")
	n := serve(t, t.TempDir())
	n.connect(t, "far", ep.first, false)
	address := ep.first[len("http://"):]
	flaps := 0
	for ctx.Err() == nil {
		ep.kill()
		var out client.Invoked
		if err := n.admin.Invoke(ctx, client.Invocation{Target: "fs.list", Input: json.RawMessage(`{"path":"."}`)}, &out); err != nil &&
			ctx.Err() == nil {
			t.Fatalf("the local provider, after %d flaps: %v; want not (err != nil && ctx.Err() == nil)", flaps, err)
		}
		ep = spawn(t, "endpoint", nil, address, "trial")
		eventually(t, "a call reaches the endpoint again", func() bool { return n.ping(t, "1s") == nil || ctx.Err() != nil })
		flaps++
	}
	n.verify(t)
	t.Logf("%d flaps", flaps)
}
