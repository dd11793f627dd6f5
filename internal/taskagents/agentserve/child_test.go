package agentserve_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/agentserve"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

const (
	mine  = "pty-1700000000000-0a1b2c3d"
	other = "pty-1700000000001-0a1b2c3d"
	ended = "pty-1700000000002-0a1b2c3d"
)

// people are sessions, of which one has ended.
type people struct {
	agentserve.Agents

	hooked []string // whose hooks were taken
}

func (p *people) Get(id string) (i agents.Info, live sessions.Live, err error) {
	if id != mine && id != other && id != ended {
		return i, nil, capability.Errorf(capability.CodeNotFound, "test", "none")
	}
	i.ID = id
	return i, nil, nil
}

func (p *people) ParentContext(_ context.Context, id string) (agents.ParentContext, bool) {
	return agents.ParentContext{SessionID: id}, id == mine || id == other
}

func (p *people) Memory(_ context.Context, id, _ string, _ int) (agentserve.Memory, bool, error) {
	return agentserve.Memory{}, id == mine || id == other, nil
}

func (p *people) Alive(id string) bool { return id == mine || id == other }

func (p *people) Peers(id string) ([]agents.Peer, bool) { return nil, id == mine || id == other }

func (p *people) Hook(_ context.Context, session string, _ []byte) (json.RawMessage, error) {
	p.hooked = append(p.hooked, session)
	return json.RawMessage("{}"), nil
}

// surface is the surface with tokens of two sessions, of one whose session has ended, and
// of an administrator.
func surface(t *testing.T) (http.Handler, *people, map[string]string) {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "junctor.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	segments, err := segment.Open(filepath.Join(t.TempDir(), "audit"), segment.Config{})
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(t.Context(), audit.Config{Segments: segments})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	p, err := policy.New(t.Context(), policy.Config{Store: db, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[string]string{}
	for name, role := range map[string]capability.Role{
		mine: capability.RoleTask, other: capability.RoleTask, ended: capability.RoleTask,
		"admin": capability.RoleAdmin,
	} {
		_, v, err := p.CreateToken(t.Context(), capability.Principal{ID: "test"}, policy.TokenRequest{Role: role, Name: name})
		if err != nil {
			t.Fatal(err)
		}
		tokens[name] = v.Reveal()
	}
	if _, err := p.RevokeToken(t.Context(), capability.Principal{ID: "test"}, ended); err != nil {
		t.Fatal(err)
	}
	mux, sessions := http.NewServeMux(), &people{}
	agentserve.New(agentserve.Config{
		Door: httpapi.New(p, log, nil), Agents: sessions,
		Unrouted: func(_ *http.ServeMux, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
	}).Routes(mux)
	return mux, sessions, tokens
}

// TestTheBridgeIsForTheSessionItself requires the token of the session, from this machine.
func TestTheBridgeIsForTheSessionItself(t *testing.T) {
	t.Parallel()
	h, _, tokens := surface(t)
	for name, c := range map[string]struct {
		method, id, from string
		token, in        string // whose, and in which place
		status           int
		code             string
	}{
		"its own":                        {"GET", mine, "127.0.0.1:1", mine, "X-Parallax-Hook-Token", 200, ""},
		"by IPv6":                        {"GET", mine, "[::1]:1", mine, "X-Parallax-Hook-Token", 200, ""},
		"as a bearer":                    {"GET", mine, "127.9.9.9:1", mine, "Authorization", 200, ""},
		"in the query":                   {"GET", mine, "127.0.0.1:1", mine, "query", 200, ""},
		"from elsewhere":                 {"GET", mine, "192.0.2.1:1", mine, "X-Parallax-Hook-Token", 403, "loopback_only"},
		"from elsewhere, by the query":   {"GET", mine, "192.0.2.1:1", mine, "query", 403, "loopback_only"},
		"from a mapped address":          {"GET", mine, "[::ffff:192.0.2.1]:1", mine, "query", 403, "loopback_only"},
		"from nowhere":                   {"GET", mine, "@", mine, "query", 403, "loopback_only"},
		"by another method":              {"POST", mine, "127.0.0.1:1", mine, "X-Parallax-Hook-Token", 405, "method_not_allowed"},
		"and to be removed":              {"DELETE", mine, "127.0.0.1:1", mine, "X-Parallax-Hook-Token", 405, "method_not_allowed"},
		"an id that is none":             {"GET", "pty-1-XY", "127.0.0.1:1", mine, "X-Parallax-Hook-Token", 400, "invalid_agent_id"},
		"a path for an id":               {"GET", "..%2f..", "127.0.0.1:1", mine, "X-Parallax-Hook-Token", 400, "invalid_agent_id"},
		"without a token":                {"GET", mine, "127.0.0.1:1", "", "", 401, "unauthenticated"},
		"another session's":              {"GET", other, "127.0.0.1:1", mine, "X-Parallax-Hook-Token", 403, "other_session"},
		"another session's, by query":    {"GET", other, "127.0.0.1:1", mine, "query", 403, "other_session"},
		"one that is none":               {"GET", "pty-1-ab", "127.0.0.1:1", mine, "X-Parallax-Hook-Token", 404, "not_found"},
		"an administrator's token":       {"GET", mine, "127.0.0.1:1", "admin", "Authorization", 401, "not_a_task"},
		"an administrator's, as a hook":  {"GET", mine, "127.0.0.1:1", "admin", "X-Parallax-Hook-Token", 401, "not_a_task"},
		"after the end":                  {"GET", ended, "127.0.0.1:1", ended, "X-Parallax-Hook-Token", 410, "task_no_longer_active"},
		"another's after the end":        {"GET", ended, "127.0.0.1:1", mine, "X-Parallax-Hook-Token", 403, "other_session"},
		"with a token that has ended":    {"GET", mine, "127.0.0.1:1", ended, "X-Parallax-Hook-Token", 401, "invalid_token"},
		"from elsewhere, after the end":  {"GET", ended, "192.0.2.1:1", ended, "X-Parallax-Hook-Token", 403, "loopback_only"},
		"from elsewhere, without a word": {"GET", ended, "192.0.2.1:1", "", "", 403, "loopback_only"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, base := range []string{"/api/coding-agents/", "/api/task-agents/"} {
				for _, what := range []string{"parent-context", "active-workspaces", "memory"} {
					r := httptest.NewRequest(c.method, base+c.id+"/"+what+"?q=x", nil)
					r.RemoteAddr = c.from
					r.Header.Set("X-Forwarded-For", "127.0.0.1") // no claim is believed
					r.Header.Set("X-Real-Ip", "127.0.0.1")
					r.Header.Set("Forwarded", "for=127.0.0.1")
					switch c.in {
					case "query":
						r.URL.RawQuery += "&token=" + tokens[c.token]
					case "Authorization":
						r.Header.Set(c.in, "Bearer "+tokens[c.token])
					case "X-Parallax-Hook-Token":
						r.Header.Set(c.in, tokens[c.token])
					}
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					if w.Code != c.status || c.code != "" && !strings.Contains(w.Body.String(), `"code":"`+c.code+`"`) {
						t.Errorf(`%s: %d %s; want w.Code = %v, not (c.code != "" && !strings.Contains(w.Body.String(), `+
							"`\"code\":\"`+c.code+`\"`))", what, w.Code, w.Body, c.status)
					}
				}
			}
		})
	}
}

// TestAHookIsThatOfItsToken: whatever the request names, and wherever else the token
// stands.
func TestAHookIsThatOfItsToken(t *testing.T) {
	t.Parallel()
	const hook = `{"hook_event_name":"Stop","sessionId":"` + other + `"}`
	for name, c := range map[string]struct {
		from, token, in, named string
		status                 int
		taken                  bool
	}{
		"its own":                          {"127.0.0.1:1", mine, "X-Parallax-Hook-Token", mine, 200, true},
		"as a bearer, without a name":      {"127.0.0.1:1", mine, "Authorization", "", 200, true},
		"another session is named":         {"127.0.0.1:1", mine, "X-Parallax-Hook-Token", other, 401, false},
		"from elsewhere":                   {"192.0.2.1:1", mine, "X-Parallax-Hook-Token", mine, 403, false},
		"in the query":                     {"127.0.0.1:1", mine, "query", mine, 401, false},
		"without a token":                  {"127.0.0.1:1", "", "", mine, 401, false},
		"an administrator's":               {"127.0.0.1:1", "admin", "Authorization", mine, 401, false},
		"of a session that has ended":      {"127.0.0.1:1", ended, "X-Parallax-Hook-Token", ended, 401, false},
		"two tokens, of which one is good": {"127.0.0.1:1", ended, "X-Parallax-Hook-Token", "", 401, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, agents, tokens := surface(t)
			r := httptest.NewRequest(http.MethodPost, "/api/coding-agents/hooks", strings.NewReader(hook))
			r.RemoteAddr = c.from
			if strings.HasPrefix(name, "two") {
				r.Header.Set("Authorization", "Bearer "+tokens[mine])
			}
			switch c.in {
			case "query":
				r.URL.RawQuery = "token=" + tokens[c.token]
			case "Authorization":
				r.Header.Set(c.in, "Bearer "+tokens[c.token])
			case "X-Parallax-Hook-Token":
				r.Header.Set(c.in, tokens[c.token])
			}
			if c.named != "" {
				r.Header.Set("X-Parallax-Session-Id", c.named)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != c.status || c.taken != (len(agents.hooked) == 1 && agents.hooked[0] == mine) {
				t.Errorf("%d %s %v; want w.Code = %v, c.taken = (len(agents.hooked) == 1 && agents.hooked[0] == mine)",
					w.Code, w.Body, agents.hooked, c.status)
			}
		})
	}
}
