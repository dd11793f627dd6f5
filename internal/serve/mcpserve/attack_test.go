package mcpserve

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/serve/mcpserve/exchange"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

func matcher(text string) func(string) bool {
	return templateOf(&catalog.Entry{Contribution: &capability.Contribution{Member: capability.Member{Name: text}}}).matches
}

func TestATemplateOfAnUpstreamCannotStopTheServer(t *testing.T) {
	for name, text := range map[string]string{
		"a length that no expression can have": "x:" + strings.Repeat("{a:9999}", 900),
		"more variables than can be repeated":  "x:{a" + strings.Repeat(",a", 2000) + "}",
		"open":                                 "x:{a:",
		"length of nothing":                    "x:{:5}",
	} {
		if m := matcher(text); m != nil && m("x:"+strings.Repeat("b", maxMatched-2)) {
			t.Errorf("%s: it matches an address of %d bytes, want that it does not", name, maxMatched)
		}
	}
	for text, uri := range map[string]string{"file:///{name:3}/x": "file:///abc/x", "x:{?a:1,b*}": "x:?a=1"} {
		if m := matcher(text); m == nil || !m(uri) {
			t.Errorf("%s does not match %s, want that it does", text, uri)
		}
	}
	for _, text := range []string{"{+all}", "{scheme}://x", "x{+all}"} {
		if matcher(text) != nil {
			t.Errorf("%s, which begins like no address, has a matcher, want none", text)
		}
	}
	st, u := newUpstreamStack(t, stackOptions{})
	var bad []capability.Contribution
	for i, text := range []string{"x:{a" + strings.Repeat(",a", 2000) + "}", "x:" + strings.Repeat("{a:9999}", 900)} {
		one := thing(kindTemplate, "capability.context-augmenter", text, `{"uriTemplate":"`+text+`","name":"any"}`)
		one.ID = "template.t" + strconv.Itoa(i)
		bad = append(bad, one)
	}
	st.offer(u.batch("mcp.bad", bad...))
	if r := st.asModern(st.agent, "resources/read", "x:y", `"uri":"x:y",`, canElicit); r.status != 400 ||
		!strings.Contains(r.body, "unknown resource") {
		t.Errorf(`%d %s; want r.status = 400, r.body with "unknown resource"`, r.status, r.body)
	}
}

func TestAForbiddenResourceIsNotReadByATemplate(t *testing.T) {
	st, u := newUpstreamStack(t, stackOptions{rules: `@id("no-a") forbid (principal, action, resource == Capability::"mcp.up/resource.filea#context.augment@up");`})
	if r := st.modern(st.agent, "resources/list", "", ""); strings.Contains(r.body, `"uri":"file:///a"`) {
		t.Fatalf(`the rule does not hold: %s; want r.body without "\"uri\":\"file:///a\""`, r.body)
	}
	if r := st.modern(st.agent, "resources/read", "file:///b", `"uri":"file:///b",`); r.status != 200 {
		t.Errorf("what the template is for: %d %s; want r.status = 200", r.status, r.body)
	}
	if r := st.modern(st.agent, "resources/read", "file:///a", `"uri":"file:///a",`); r.status != 400 || len(u.inputs) != 1 {
		t.Errorf("%d %s; want r.status = 400, len(u.inputs) = 1", r.status, r.body)
	}
}

func TestASessionKeepsLittleOfItsClient(t *testing.T) {
	st := newStack(t, stackOptions{})
	body := strings.Replace(strings.Replace(initialize, "VERSION", mcpwire.Version20251125, 1), `"capabilities":{}`,
		`"capabilities":{"experimental":{"x":{"y":"`+strings.Repeat("z", maxInitialize)+`"}}}`, 1)
	if r := st.do("POST", st.agent, body); r.status != 413 || r.header.Get(mcpwire.HeaderSession) != "" {
		t.Errorf(`%d %s; want r.status = 413, r.header.Get(mcpwire.HeaderSession) = ""`, r.status, r.body)
	}
}

func TestARefusedSessionLeavesNothing(t *testing.T) {
	st := newStack(t, stackOptions{})
	id := st.open(st.agent, mcpwire.Version20251125)
	s := st.surface
	s.mu.Lock()
	v := s.sessions[id].viewer
	for i := range maxSessions {
		s.sessions["full"+strconv.Itoa(i)] = &session{active: 1, viewer: &viewer{}}
	}
	s.sessions[id].active = 1
	s.mu.Unlock()
	for range 3 {
		if r := st.do("POST", st.agent, strings.Replace(initialize, "VERSION", mcpwire.Version20251125, 1)); r.status != 503 {
			t.Errorf("%d %s; want r.status = 503", r.status, r.body)
		}
	}
	s.mu.Lock()
	for i := range maxSessions {
		delete(s.sessions, "full"+strconv.Itoa(i))
	}
	s.sessions[id].active = 0
	s.mu.Unlock()
	n := 0
	for range v.server.Sessions() {
		n++
	}
	if n != 1 {
		t.Errorf("%d sessions are left; want n = 1", n)
	}
}

// scoped knows tokens of one subject that may do more and less.
type scoped struct{}

func (scoped) Principal(_ context.Context, token string) (capability.Principal, error) {
	return capability.Principal{ID: "agent:oidc/ann", Role: capability.RoleAgent, Scoped: true, Most: capability.Effect(token)}, nil
}

func (scoped) ScopesFor(e capability.Effect) []string { return []string{string(e)} }

func TestABatchMayDoNoMoreThanItsToken(t *testing.T) {
	st, u := newUpstreamStack(t, stackOptions{oauth: scoped{}, only: `@id("writes") permit (principal, action in Action::"write", resource);`})
	st.open("write", mcpwire.Version20250326) // the viewer begins with the wider token
	batch := `[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","arguments":{}}}]`
	id := st.open("read", mcpwire.Version20250326)
	if r := st.do("POST", "read", batch, mcpwire.HeaderSession, id); r.status != 403 || len(u.inputs) != 0 {
		t.Errorf("%d %s; the upstream got %v; want r.status = 403, len(u.inputs) = 0", r.status, r.body, u.inputs)
	}
	if r := st.do("POST", "write", batch, mcpwire.HeaderSession, id); r.status != 200 || len(u.inputs) != 1 {
		t.Errorf("the wider token: %d %s; want r.status = 200, len(u.inputs) = 1", r.status, r.body)
	}
}

func TestListsOfThoseWhoHaveGoneAreForgotten(t *testing.T) {
	st := newStack(t, stackOptions{})
	st.modern(st.agent, "tools/list", "", "")
	count := func() (n int) {
		st.surface.lists.Range(func(any, any) bool { n++; return true })
		return n
	}
	if n := count(); n != 1 {
		t.Fatalf("%d lists; want n = 1", n)
	}
	st.surface.expire()
	if n := count(); n != 1 {
		t.Errorf("a list in use is gone; got n = %v; want n = 1", n)
	}
	st.surface.expire()
	if n := count(); n != 0 {
		t.Errorf("%d lists are left; want n = 0", n)
	}
}

// updates takes subscriptions when it is let go.
type updates struct {
	mu          sync.Mutex
	asked, open int
	begun, let  chan struct{}

	instructions map[string]string // by module
}

func (u *updates) Offering(context.Context, capability.Principal, string, string) []string {
	return nil
}

func (u *updates) Instructions(module string) string { return u.instructions[module] }

func (u *updates) Subscribe(context.Context, capability.Principal, string, string, string, func()) (func(), error) {
	u.mu.Lock()
	u.asked++
	u.open++
	u.mu.Unlock()
	u.begun <- struct{}{}
	<-u.let
	return func() { u.mu.Lock(); u.open--; u.mu.Unlock() }, nil
}

func TestSubscriptionsAtOneTimeCountToo(t *testing.T) {
	u := &updates{begun: make(chan struct{}, 1000), let: make(chan struct{})}
	st, _ := newUpstreamStack(t, stackOptions{updates: u})
	st.client(st.agent, true, nil)
	st.surface.mu.Lock()
	var v *viewer
	for _, v = range st.surface.viewers {
	}
	st.surface.mu.Unlock()
	var live *mcp.ServerSession
	for live = range v.server.Sessions() {
	}
	follow := st.surface.follow(v)
	results := make(chan error, 2*maxFollowing)
	for i := range 2 * maxFollowing {
		go func() {
			results <- follow(t.Context(), &mcp.SubscribeRequest{Session: live, Params: &mcp.SubscribeParams{URI: "file:///" + strconv.Itoa(i)}})
		}()
	}
	for range maxFollowing {
		receive(t, u.begun)
		if err := receive(t, results); err == nil {
			t.Error("more than the limit were taken before any was there; want an error")
		}
	}
	st.surface.unfollowAll(v, live) // what is still being made ends too
	close(u.let)
	for range maxFollowing {
		if err := receive(t, results); err != nil {
			t.Error(err)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.asked != maxFollowing || u.open != 0 {
		t.Errorf("%d were asked for, %d are left; want u.asked = %v, u.open = 0", u.asked, u.open, maxFollowing)
	}
}

// stuck is a client that takes nothing in.
type stuck struct {
	http.ResponseWriter
	let chan struct{}
}

func (s stuck) Write(p []byte) (int, error) {
	<-s.let
	return len(p), nil
}

func TestAClientThatDoesNotReadCostsLittleMemory(t *testing.T) {
	r := httptest.NewRequest("POST", "/mcp", nil)
	r.Header.Set("Accept", "text/event-stream")
	w := stuck{httptest.NewRecorder(), make(chan struct{})}
	x := exchange.New(w, r, &mcpwire.Message{ID: json.RawMessage("1")}, mcpwire.Era{})
	line := []byte(`{"data":"` + strings.Repeat("x", 1<<20) + `"}`)
	taken := 0
	for range 20 {
		if x.Event(line) {
			taken++
		}
	}
	if taken == 0 || taken > exchange.MaxUnreadBytes>>20 {
		t.Errorf("%d MiB wait; want taken other than 0, taken at most exchange.MaxUnreadBytes >> 20", taken)
	}
	close(w.let)
	for end := time.Now().Add(10 * time.Second); !x.Event(line); {
		if time.Now().After(end) {
			t.Fatal("nothing is taken any more")
		}
	}
	x.End(exchange.Outcome{Result: []byte("{}")})
}

func TestCallsThatNobodyWaitsForAreCounted(t *testing.T) {
	st := newStack(t, stackOptions{})
	id := st.open(st.agent, mcpwire.Version20251125)
	v := st.surface.sessionOf(id).viewer
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`
	for range maxCalls {
		if !st.surface.begin(v) {
			t.Fatal("fewer are taken")
		}
	}
	if r := st.do("POST", st.agent, call, mcpwire.HeaderSession, id); r.status != 200 || !strings.Contains(r.body, "-31000") {
		t.Errorf(`%d %s; want r.status = 200, r.body with "-31000"`, r.status, r.body)
	}
	other := st.open(st.agent2, mcpwire.Version20251125)
	if r := st.do("POST", st.agent2, call, mcpwire.HeaderSession, other); !strings.Contains(r.body, `"content"`) {
		t.Errorf(`another principal: %s; want r.body with "\"content\""`, r.body)
	}
	for range maxCalls {
		st.surface.done(v)
	}
	for range 2 {
		if r := st.do("POST", st.agent, call, mcpwire.HeaderSession, id); !strings.Contains(r.body, `"content"`) {
			t.Errorf(`afterwards: %s; want r.body with "\"content\""`, r.body)
		}
	}
	running := func() int {
		st.surface.mu.Lock()
		defer st.surface.mu.Unlock()
		return v.calls
	}
	for end := time.Now().Add(10 * time.Second); running() != 0; {
		if time.Now().After(end) {
			t.Fatalf("%d calls count for ever; want not time.Now().After(end)", v.calls)
		}
	}
}

func TestBatchesHaveABound(t *testing.T) {
	st := newStack(t, stackOptions{})
	id := st.open(st.agent, mcpwire.Version20250326)
	ping := func(n int) string {
		return "[" + strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"},`, n-1) + `{"jsonrpc":"2.0","id":2,"method":"ping"}]`
	}
	if r := st.do("POST", st.agent, ping(maxBatch+1), mcpwire.HeaderSession, id); r.status != 400 ||
		!strings.Contains(r.body, "100 messages") {
		t.Errorf(`%d %s; want r.status = 400, r.body with "100 messages"`, r.status, r.body)
	}
	if longBatch([]byte(ping(maxBatch))) || longBatch([]byte(`[`)) || longBatch([]byte(`[{]`)) {
		t.Error("too strict")
	}
}

func TestWhoTakesNothingInKeepsNobodyElseUninformed(t *testing.T) {
	st, _ := newUpstreamStack(t, stackOptions{})
	for _, token := range []string{st.agent, st.agent2} {
		st.open(token, mcpwire.Version20251125)
	}
	s := st.surface
	var group sync.WaitGroup
	s.mu.Lock()
	var slow *viewer
	for _, v := range s.viewers {
		s.fresh[freshness{v, "file:///a"}] = true
		slow = v
	}
	slow.telling = true // as it is while the SDK waits for one of its sessions
	s.mu.Unlock()
	s.tellUpdates(t.Context(), &group)
	group.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.fresh) != 1 || !s.fresh[freshness{slow, "file:///a"}] {
		t.Errorf("%d wait", len(s.fresh))
	}
	slow.telling = false
}

// breaking is an [Own] with a mistake in it.
type breaking struct{ Own }

func (breaking) Calls(context.Context, string) ([]byte, error) { panic("on purpose") }

func TestAPanicIsTheEndOfItsCallOnly(t *testing.T) {
	st, _ := newUpstreamStack(t, stackOptions{own: breaking{}})
	r := st.asModern(st.agent, "resources/read", uriMine, `"uri":"`+uriMine+`",`, canElicit)
	if r.status != 500 || !strings.Contains(r.body, "-32603") || strings.Contains(r.body, "purpose") {
		t.Errorf(`%d %s; want r.status = 500, r.body with "-32603", r.body without "purpose"`, r.status, r.body)
	}
}
