package nodeserve

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/gateway"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stack is the surface over a real fleet, engine and door.
type stack struct {
	testing.TB
	surface *Surface
	fleet   *fleet.Table
	url     string
	tokens  map[capability.Role]string

	mu      sync.Mutex
	removed []string
	known   bool // whether admission knows the node
}

func (s *stack) Fleet() *fleet.Table { return s.fleet }

func (s *stack) Drain(_ context.Context, node string) error {
	if _, ok := s.fleet.Get(node); !ok {
		return cmp.Errorf(cmp.ReasonNodeNotFound, "there is no node %q", node)
	}
	return nil
}

// ends is the gateway's and the admission's part of removing a node.
type ends struct {
	*stack
	what string
}

func (e ends) Remove(_ context.Context, node string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.removed = append(e.removed, e.what)
	n, here := e.fleet.Get(node)
	if e.what == "credential" {
		here = e.known
		e.known = false
	} else if here {
		e.fleet.Drop(node, n.Epoch, "removed", true)
	}
	if !here {
		return cmp.Errorf(cmp.ReasonNodeNotFound, "there is no node %q", node)
	}
	return nil
}

func (ends) Enrol(_ context.Context, token string, e wire.Enrol) (wire.EnrolReply, error) {
	if token != "good" {
		return wire.EnrolReply{}, capability.Errorf(capability.CodeUnauthenticated, "enrol", "no")
	}
	return wire.EnrolReply{NodeID: e.NodeID, Labels: []string{}}, nil
}

func (ends) Key(context.Context, string) (ed25519.PublicKey, error) {
	return testKey().Public().(ed25519.PublicKey), nil
}

func (ends) TokenNode(_ context.Context, token, node string) error {
	if token != "good" || node != "a" {
		return capability.Errorf(capability.CodeDenied, "nodes", "no")
	}
	return nil
}

func (ends) Principal(_ context.Context, node string) (capability.Principal, error) {
	if node != "a" && node != "b" {
		return capability.Principal{}, capability.Errorf(capability.CodeUnauthenticated, "nodes", "no")
	}
	return capability.Principal{ID: "admin:" + node, Role: capability.RoleAdmin}, nil
}

func testKey() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) }

// kept are assets in memory.
type kept struct{ m, owners sync.Map }

type file struct{ *bytes.Reader }

func (file) Close() error { return nil }

func (k *kept) Put(_ context.Context, owner, digest, mediaType string, body io.Reader) (cmp.Asset, error) {
	data, err := io.ReadAll(body)
	k.owners.Store(digest, owner)
	k.m.Store(digest, data)
	return cmp.Asset{Digest: "sha256:" + digest, Size: int64(len(data)), MediaType: mediaType}, err
}

func (k *kept) Get(_ context.Context, digest string) (io.ReadSeekCloser, string, error) {
	data, ok := k.m.Load(digest)
	if !ok {
		return nil, "", capability.Errorf(capability.CodeNotFound, "assets", "none")
	}
	return file{bytes.NewReader(data.([]byte))}, "text/html", nil
}

type provider struct{ *stack }

func (provider) Key() capability.ProviderKey { return "fs:node:local" }

func (provider) Invoke(_ context.Context, c capability.Call) (capability.Result, error) {
	return capability.Result{Value: c.Input}, nil
}

func newStack(t testing.TB) *stack {
	t.Helper()
	ctx, dir := t.Context(), t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	db, err := store.Open(ctx, filepath.Join(dir, "state", "junctor.db"))
	must(err)
	segments, err := segment.Open(filepath.Join(dir, "audit"), segment.Config{})
	must(err)
	log, err := audit.Open(ctx, audit.Config{Segments: segments, Key: make([]byte, 32)})
	must(err)
	pol, err := policy.New(ctx, policy.Config{
		Documents: []policy.Document{{Name: "default.cedar", Text: []byte(policy.DefaultRules())}},
		Store:     db, Log: log,
	})
	must(err)
	s := &stack{TB: t, fleet: fleet.New(fleet.Config{Gateway: "g"}), tokens: make(map[capability.Role]string)}
	for _, role := range []capability.Role{capability.RoleOperator, capability.RoleAgent, capability.RoleNode} {
		_, value, err := pol.CreateToken(ctx, capability.Principal{ID: "admin:root", Role: capability.RoleAdmin},
			policy.TokenRequest{Role: role, Name: string(role) + "1"})
		must(err)
		s.tokens[role] = value.Reveal()
	}
	c := catalogtest.New(t)
	p := provider{s}
	_, _, err = c.Replace(capability.Batch{Source: "local", Providers: []capability.Provider{p}, Modules: []capability.Module{{
		Extension: "local", ID: "local", Origin: "local", Contributions: []capability.Contribution{{
			ID: "stat", Kind: "capability.agent-tool", Action: "fs.list", Effect: capability.EffectRead, Provider: p.Key(),
			Member: capability.Member{Module: "local", Kind: "tool", Name: "stat"},
		}},
	}}})
	must(err)
	s.surface = New(Config{
		Door: httpapi.New(pol, log, nil), Engine: invoke.New(invoke.Config{Catalog: c, Policy: pol, Log: log, Outcomes: db}),
		Admission: ends{s, "credential"}, Gateway: struct {
			*stack
			remover
		}{s, ends{s, "session"}}, Assets: new(kept),
		Connect: func(admit func(*http.Request) error) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := admit(r); err != nil {
					httpapi.WriteError(w, err)
				}
			})
		},
		May: func(who capability.Principal, n *fleet.Node) bool {
			return pol.Serves(who, usersOf(n), "node."+n.ID)
		},
		Watch: func(context.Context) iter.Seq2[gateway.Sight, error] {
			return func(yield func(gateway.Sight, error) bool) {
				for _, n := range s.fleet.List(fleet.Filter{Suspect: true}) {
					if !yield(gateway.Sight{Kind: fleet.NodeJoined, Event: fleet.Event{Kind: fleet.NodeJoined, Node: n.ID}, Node: n}, nil) {
						return
					}
				}
				for _, id := range []string{"a", "anns"} {
					if !yield(gateway.Sight{Kind: fleet.NodeLeft, Event: fleet.Event{Kind: fleet.NodeLeft, Node: id, Reason: "left"}}, nil) {
						return
					}
				}
			}
		},
	})
	mux := http.NewServeMux()
	s.surface.Routes(mux)
	web := httptest.NewServer(mux)
	s.url = web.URL
	t.Cleanup(func() { http.DefaultClient.CloseIdleConnections(); web.Close(); _ = log.Close(); _ = db.Close() })
	return s
}

type remover interface {
	Remove(ctx context.Context, node string) error
}

func usersOf(n *fleet.Node) (users []string) {
	for _, l := range n.Granted {
		if u, is := strings.CutPrefix(l, "user:"); is {
			users = append(users, u)
		}
	}
	return users
}

func (s *stack) join(m fleet.Member) {
	s.Helper()
	m.Session, m.Instance = "s-"+m.ID, "i"
	rec, err := s.fleet.Propose(m)
	if err != nil {
		s.Fatal(err)
	}
	s.fleet.Take(rec)
}

func (s *stack) do(authorization, method, path, body string) (status int, answer string, h http.Header) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	r.Header.Set("Junctor-Node", "a")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return resp.StatusCode, string(data), resp.Header
}

func (s *stack) as(role capability.Role, method, path string) (int, string) {
	s.Helper()
	status, body, _ := s.do("Bearer "+s.tokens[role], method, path, "")
	return status, body
}

// ids are the nodes of a list.
func ids(t testing.TB, body string) (out []string, next string) {
	t.Helper()
	var list struct {
		Nodes []struct {
			ID string `json:"node_id"`
		}
		Next string
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatalf("json.Unmarshal([]byte(body), &list) = %v, want nil; body = %q", err, body)
	}
	for _, n := range list.Nodes {
		out = append(out, n.ID)
	}
	return out, list.Next
}

func TestWhoSeesWhichNodes(t *testing.T) {
	s := newStack(t)
	f := []fleet.Function{{Name: "f", Description: "does it", Timeout: 1500 * time.Millisecond}}
	s.join(fleet.Member{ID: "a", Labels: []string{"gpu"}, Functions: f})
	s.join(fleet.Member{ID: "anns", Granted: []string{"user:ann"}, Functions: f})
	s.join(fleet.Member{ID: "away", Functions: f})
	s.fleet.Gone("s-away")
	for _, c := range []struct {
		role  capability.Role
		query string
		want  string
	}{
		{capability.RoleOperator, "", "[a anns away]"},
		{capability.RoleAgent, "", "[a]"},
		{capability.RoleNode, "", "[a]"},
		{capability.RoleOperator, "?label=gpu&label=%20", "[a]"},
		{capability.RoleOperator, "?function=g", "[]"},
		{capability.RoleOperator, "?status=disconnected", "[away]"},
		{capability.RoleAgent, "?status=disconnected", "[]"},
		{capability.RoleOperator, "?cursor=a", "[anns away]"},
		{capability.RoleOperator, "?q=nn", "[anns]"},
		{capability.RoleOperator, "?limit=1", "[a]"},
		{capability.RoleOperator, "?limit=1&cursor=a", "[anns]"},
	} {
		status, body := s.as(c.role, http.MethodGet, "/api/v1/nodes"+c.query)
		if got, next := ids(t, body); status != http.StatusOK || fmt.Sprint(got) != c.want || (next != "") != strings.Contains(c.query, "limit") {
			t.Errorf(`%s %s: %d %v %q; want status = http.StatusOK, fmt.Sprint(got) = %v, (next != "") = `+
				`strings.Contains(c.query, "limit")`, c.role, c.query, status, got, next, c.want)
		}
	}
	for query, reason := range map[string]string{
		"?limit=0": "limit", "?limit=1001": "limit", "?limit=x": "limit",
		"?status=tired": "not a state",
	} {
		if status, body := s.as(capability.RoleAgent, http.MethodGet, "/api/v1/nodes"+query); status != http.StatusBadRequest ||
			!strings.Contains(body, reason) {
			t.Errorf("%s: %d %s; want status = http.StatusBadRequest, body with %v", query, status, body, reason)
		}
	}
	if _, body := s.as(capability.RoleAgent, http.MethodGet, "/api/v1/nodes?functions=full"); !strings.Contains(body,
		`"timeout_seconds":1.5`) || !strings.Contains(body, `"tags":[]`) {
		t.Errorf("s.as: body = %q, want it to contain \"\\\"timeout_seconds\\\":1.5\" and it to contain \"\\\"tags\\\":[]\"", body)
	}
	if _, body := s.as(capability.RoleOperator, http.MethodGet, "/api/v1/nodes?limit=1"); !strings.Contains(body, `"total":3`) {
		t.Errorf("the first of three nodes: got %s, want the total 3", body)
	}
	var nowhere string
	for _, id := range []string{"nowhere", "anns", "away"} { // the same answer for each
		status, body := s.as(capability.RoleAgent, http.MethodGet, "/api/v1/nodes/"+id)
		body = strings.ReplaceAll(body, id, "ID")
		if nowhere == "" {
			nowhere = body
		}
		if status != http.StatusServiceUnavailable && status != http.StatusNotFound || body != nowhere {
			t.Errorf("%s: %d %s; want not (status != http.StatusServiceUnavailable && status != http.StatusNotFound), body = %v",
				id, status, body, nowhere)
		}
	}
	if status, body := s.as(capability.RoleOperator, http.MethodGet, "/api/v1/nodes/away"); status != http.StatusOK ||
		!strings.Contains(body, `"health_score":0`) || strings.Contains(body, `"Load"`) {
		t.Errorf(`%d %s; want status = http.StatusOK, body with "\"health_score\":0", body without "\"Load\""`, status, body)
	}
	_, watched := s.as(capability.RoleAgent, http.MethodGet, "/api/v1/nodes/watch")
	if strings.Contains(watched, "anns") || strings.Contains(watched, "away") || strings.Count(watched, `"node_id":"a"`) < 2 ||
		!strings.Contains(watched, fleet.NodeLeft) {
		t.Errorf("watched = %q, want node a joining and leaving, and no other node", watched)
	}
	if _, watched := s.as(capability.RoleOperator, http.MethodGet, "/api/v1/nodes/watch"); !strings.Contains(watched, "anns") ||
		!strings.Contains(watched, "away") {
		t.Errorf(`s.as: watched = %q, want it to contain "anns" and it to contain "away"`, watched)
	}
}

func TestOnlyPeopleEndNodes(t *testing.T) {
	s := newStack(t)
	s.join(fleet.Member{ID: "a"})
	s.known = true
	for _, role := range []capability.Role{capability.RoleAgent, capability.RoleNode} {
		for _, c := range [][2]string{{http.MethodDelete, "/api/v1/nodes/a"}, {http.MethodPost, "/api/v1/nodes/a/drain"}} {
			if status, body := s.as(role, c[0], c[1]); status != http.StatusForbidden {
				t.Errorf("%s %v: %d %s; want status = http.StatusForbidden", role, c, status, body)
			}
		}
	}
	if status, body := s.as(capability.RoleOperator, http.MethodPost, "/api/v1/nodes/a/drain"); status != http.StatusOK {
		t.Errorf("s.as: status = %v, want http.StatusOK; body = %q", status, body)
	}
	if status, body := s.as(capability.RoleOperator, http.MethodDelete, "/api/v1/nodes/a?forget=true"); status != http.StatusOK ||
		fmt.Sprint(s.removed) != "[session credential session]" {
		t.Errorf(`s.as: status = %v, want http.StatusOK; fmt.Sprint(s.removed) = %q, want "[session credential session]"; body = %q`,
			status, fmt.Sprint(s.removed), body)
	}
	for _, path := range []string{"/api/v1/nodes/a", "/api/v1/nodes/a?forget=true"} {
		if status, body := s.as(capability.RoleOperator, http.MethodDelete, path); status == http.StatusOK ||
			!strings.Contains(body, "node_not_found") {
			t.Errorf(`s.as: status = %v, want other than http.StatusOK; body = %q, want it to contain "node_not_found"; path = %q`,
				status, body, path)
		}
	}
	s.known = true // it has a credential and no session
	if status, body := s.as(capability.RoleOperator, http.MethodDelete, "/api/v1/nodes/a?forget=true"); status != http.StatusOK {
		t.Errorf("s.as: status = %v, want http.StatusOK; body = %q", status, body)
	}
}

func TestWhoComesIn(t *testing.T) {
	s := newStack(t)
	for _, c := range []struct {
		name, authorization string
		want                int
	}{
		{"a key, inside", "", http.StatusOK},
		{"a node token", "Bearer " + s.tokens[capability.RoleNode], http.StatusOK},
		{"another role", "Bearer " + s.tokens[capability.RoleAgent], http.StatusForbidden},
		{"nonsense", "Bearer nonsense", http.StatusUnauthorized},
		{"another scheme", "Basic eDp5", http.StatusUnauthorized},
	} {
		if status, body, _ := s.do(c.authorization, http.MethodGet, "/nodes/connect", ""); status != c.want {
			t.Errorf("%s: %d %s; want status = %v", c.name, status, body, c.want)
		}
	}
	enrol := `{"node_id":"a","public_key":"` + "x" + `"}`
	for _, c := range []struct {
		name, authorization, body string
	}{
		{"too large", "Bearer good", `{"node_id":"` + strings.Repeat("x", 5000) + `"}`},
		{"nonsense", "Bearer good", `{`},
		{"a key that is none", "Bearer good", enrol},
	} {
		if status, body, _ := s.do(c.authorization, http.MethodPost, wire.EnrolPath, c.body); status < 400 || status >= 500 {
			t.Errorf("%s: %d %s; want status at least 400, status less than 500", c.name, status, body)
		}
	}
}

func TestAssets(t *testing.T) {
	s := newStack(t)
	digest := strings.Repeat("a", 64)
	path := wire.AssetsPath + digest
	for _, c := range []struct {
		name, authorization, path string
		want                      int
	}{
		{"nobody", "", path, http.StatusUnauthorized},
		{"another token", "Bearer bad", path, http.StatusForbidden},
		{"a proof that is none", wire.ProofScheme + " x.y", path, http.StatusUnauthorized},
		{"no digest", "Bearer good", wire.AssetsPath + "AA", http.StatusBadRequest},
		{"upper case", "Bearer good", wire.AssetsPath + strings.ToUpper(digest), http.StatusBadRequest},
		{"the node", "Bearer good", path, http.StatusCreated},
	} {
		if status, body, _ := s.do(c.authorization, http.MethodPut, c.path, "<script>"); status != c.want {
			t.Errorf("put, %s: %d %s; want status = %v", c.name, status, body, c.want)
		}
	}
	// One token may have any number of nodes, so their values count for its principal.
	if owner, _ := s.surface.Assets.(*kept).owners.Load(digest); owner != "admin:a" {
		t.Errorf("the owner of a node's value = %v, want the principal of its token, admin:a", owner)
	}
	for _, c := range []struct {
		name, authorization string
		want                int
	}{
		{"nobody", "", http.StatusUnauthorized},
		{"an agent", "Bearer " + s.tokens[capability.RoleAgent], http.StatusOK},
		{"a proof that is none", wire.ProofScheme + " x.y", http.StatusUnauthorized},
	} {
		status, body, h := s.do(c.authorization, http.MethodGet, path, "")
		if status != c.want || status == http.StatusOK && (body != "<script>" || h.Get("Content-Disposition") != "attachment" ||
			h.Get("X-Content-Type-Options") != "nosniff") {
			t.Errorf("get, %s: %d %s %v", c.name, status, body, h)
		}
	}
}

// TestUpward: what nodes call is an invocation of their credential, within bounds.
func TestUpward(t *testing.T) {
	s := newStack(t)
	ask := func(node, body string) wire.UpwardReply {
		return s.surface.invoke(t.Context(), messaging.Message{Subject: wire.SubjectUpward(node), Data: []byte(body)})
	}
	call := func(extra string) string {
		return `{"call_id":"0123456789abcdef0123456789abcdef","action":"fs.list","input":{"path":"x"}` + extra + `}`
	}
	if r := ask("a", call("")); !r.OK || string(r.Result) != `{"path":"x"}` || r.Invocation == "" {
		t.Fatalf(`%+v %+v; want r.OK = true, string(r.Result) = "{\"path\":\"x\"}", r.Invocation other than ""`, r, r.Error)
	}
	for what, body := range map[string]string{
		"nonsense": `{`, "no action": `{"call_id":"0123456789abcdef0123456789abcdef"}`,
		"a deadline beyond all": call(`,"deadline_ms":9223372036854775807`), "a deadline in the past": call(`,"deadline_ms":-1`),
		"nobody's": call(`,"select":"node=z"`),
	} {
		if r := ask("a", body); r.OK || r.Error == nil {
			t.Errorf("%s: %+v; want r.OK = false, r.Error not nil", what, r)
		}
	}
	if r := ask("stranger", call("")); r.OK {
		t.Error("a node that is not admitted is answered")
	}
	for range maxUpwardEach {
		if err := s.surface.upwards.enter("a"); err != nil {
			t.Fatal(err)
		}
	}
	if r := ask("a", call("")); r.Error == nil || r.Error.Code != cmp.ReasonOverloaded || !r.Error.Retryable {
		t.Errorf("one call more: %+v; want r.Error not nil, r.Error.Code = cmp.ReasonOverloaded, r.Error.Retryable = true", r)
	}
	if r := ask("b", call("")); !r.OK {
		t.Errorf("another node's calls wait for those of the first: %+v; want r.OK = true", r)
	}
	for range maxUpwardEach {
		s.surface.upwards.leave("a")
	}
	if r := ask("a", call("")); !r.OK || len(s.surface.upwards.by) != 0 {
		t.Errorf("%+v, %v; want r.OK = true, len(s.surface.upwards.by) = 0", r, s.surface.upwards.by)
	}
}
