package server_test

import (
	"net/http"
	"testing"
)

// TestFeedReportsTokensAndGrants opens the feed before the changes, so that both must arrive on it.
func TestFeedReportsTokensAndGrants(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	live := n.feed(t, "")
	for _, change := range []struct{ path, body, event string }{
		{"/api/v1/tokens", `{"role":"agent","name":"fed"}`, "token.created"},
		{"/api/v1/grants", `{"principal":"agent:fed","action":"fs.readText"}`, "grant.created"},
	} {
		if a := n.request(t, http.MethodPost, change.path, n.token(t, "admin"), change.body); a.status/100 != 2 {
			t.Fatalf("POST %s = %d %s, want 2xx", change.path, a.status, a.body)
		}
		for {
			_, event, _ := next(live)
			if event == "" {
				t.Fatalf(`the feed ended before %s; want event other than ""`, change.event)
			}
			if event == change.event {
				break
			}
		}
	}
}
