package agentserve_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/junctor-run/junctor/internal/surface/agentserve"
	"github.com/junctor-run/junctor/internal/surface/door"
)

// TestTheBridgeIsForThisMachine: whoever asks from elsewhere is told nothing, whatever
// headers say of where they are.
func TestTheBridgeIsForThisMachine(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	agentserve.New(agentserve.Config{Door: &door.Door{}, Agents: known{}, Workspaces: struct{ agentserve.Workspaces }{}}).Routes(mux)
	const id = "/api/coding-agents/pty-1-00000000"
	for name, tt := range map[string]struct {
		method, path, from string
		status             int
		code               string
	}{
		"another machine":         {"GET", id + "/parent-context", "203.0.113.7:1", 403, "loopback_only"},
		"its memory":              {"GET", id + "/memory?q=x&token=t", "203.0.113.7:1", 403, "loopback_only"},
		"its peers":               {"GET", id + "/active-workspaces", "[2001:db8::1]:1", 403, "loopback_only"},
		"one that is nowhere":     {"GET", id + "/parent-context", "", 403, "loopback_only"},
		"something to be changed": {"POST", id + "/memory", "127.0.0.1:1", 405, "method_not_allowed"},
		"no session's id":         {"GET", "/api/coding-agents/pty-1-x/memory", "127.0.0.1:1", 400, "invalid_agent_id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, http.NoBody)
			r.RemoteAddr = tt.from
			for _, header := range []string{"X-Forwarded-For", "X-Real-IP", "Forwarded"} {
				r.Header.Set(header, "127.0.0.1")
			}
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, r)
			var said struct{ Code string }
			if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || w.Code != tt.status || said.Code != tt.code {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}

// known is asked for a session that is there.
type known struct{ agentserve.Agents }

func (known) Get(string) (any, error) { return nil, nil }
