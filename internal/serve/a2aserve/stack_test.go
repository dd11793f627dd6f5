package a2aserve

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/protocol/a2awire"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/serve/a2aserve/push"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
	"github.com/junctor-run/junctor/internal/store/tasksql"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// stack is a whole server behind the surface, with a provider of the test's own.
type stack struct {
	t              testing.TB
	url            string
	surface        *Surface
	tasks          *tasks.Manager
	policy         *policy.Policy
	admin          capability.Principal
	one, two, root string // tokens
	fake           *fake
}

func newStack(t testing.TB) *stack { return stackIn(t, t.TempDir()) }

// stackIn is a server over the files of dir, as a restart would find them.
func stackIn(t testing.TB, dir string) *stack {
	t.Helper()
	return stackWith(t, dir, dir)
}

// requestOf is an open question with these parameters.
func requestOf(params string) []tasks.Request {
	return []tasks.Request{{Key: "q1", Method: methodElicit, Params: json.RawMessage(params)}}
}

func stackWith(t testing.TB, dir, audits string) *stack {
	t.Helper()
	ctx := t.Context()
	db, err := store.Open(ctx, filepath.Join(dir, "junctor.db"))
	ok(t, err)
	segments, err := segment.Open(filepath.Join(audits, "audit"), segment.Config{})
	ok(t, err)
	log, err := audit.Open(ctx, audit.Config{Segments: segments, Key: make([]byte, 32)})
	ok(t, err)
	pol, err := policy.New(ctx, policy.Config{
		Documents: []policy.Document{{Name: "default.cedar", Text: []byte(policy.DefaultRules())}},
		Store:     db, Log: log,
	})
	ok(t, err)
	st := &stack{
		t: t, policy: pol, admin: capability.Principal{ID: "admin:root", Role: capability.RoleAdmin},
		fake: &fake{release: make(chan struct{})},
	}
	for _, tok := range []struct {
		name string
		role capability.Role
		to   *string
	}{{"one", capability.RoleAgent, &st.one}, {"two", capability.RoleAgent, &st.two}, {"boss", capability.RoleAdmin, &st.root}} {
		_, _ = pol.RevokeToken(ctx, st.admin, tok.name)
		_, value, err := pol.CreateToken(ctx, st.admin, policy.TokenRequest{Role: tok.role, Name: tok.name})
		ok(t, err)
		*tok.to = value.Reveal()
	}
	cat := catalogtest.New(t)
	_, _, err = cat.Replace(st.fake.batch())
	ok(t, err)
	pol.CatalogChanged()
	engine := invoke.New(invoke.Config{Catalog: cat, Policy: pol, Log: log, Outcomes: db})
	kept, err := tasksql.Open(ctx, db)
	ok(t, err)
	sender, err := push.Open(ctx, push.Options{
		Database: db, Bodies: Bodies, Task: kept.Task, Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Pause: func(context.Context, int) error { return nil },
	})
	ok(t, err)
	st.tasks = tasks.New(tasks.Config{
		Store: kept, Engine: engine, Standing: pol.Standing, Approval: db.Approval, Changed: sender.Changed, Log: log, Poll: 5 * time.Millisecond,
		Decide: func(ctx context.Context, by capability.Principal, id string, d policy.Decision) error {
			_, _, err := pol.Decide(ctx, by, id, d)
			return err
		},
	})
	ok(t, st.tasks.Open(ctx))
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	st.surface = New(Config{
		Door: httpapi.New(pol, log, nil), Engine: engine, Tasks: st.tasks, Push: sender, Key: key, URL: server.URL, Version: "test",
		Beat: 20 * time.Millisecond,
	})
	st.surface.Routes(mux)
	st.url = server.URL
	runCtx, stop := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { _ = st.tasks.Run(runCtx) })
	parts.Go(func() { _ = sender.Run(runCtx) })
	parts.Go(func() { _ = log.Run(runCtx) })
	t.Cleanup(func() {
		st.surface.Drain()
		server.CloseClientConnections()
		server.Close()
		now, cancel := context.WithCancel(runCtx)
		cancel()
		st.tasks.Close(now)
		stop()
		parts.Wait()
		_ = log.Close()
		ok(t, db.Close())
		http.DefaultClient.CloseIdleConnections()
	})
	return st
}

// fake is a provider whose tools do what the tests need.
type fake struct{ release chan struct{} }

func (*fake) Key() capability.ProviderKey { return capability.NewProviderKey("tool", "test", "one") }

func (f *fake) Invoke(ctx context.Context, c capability.Call) (capability.Result, error) {
	_, id, _ := strings.Cut(string(c.Capability), "/")
	id, _, _ = strings.Cut(id, "#")
	switch id {
	case "fails":
		return capability.Result{}, capability.Errorf(capability.CodeFailed, "fake", "the disk is full").With("execution_failed", "make room")
	case "slow":
		c.Progress(capability.Chunk{Progress: 1, Total: 2, Message: "half way"})
		select {
		case <-ctx.Done():
			return capability.Result{}, ctx.Err()
		case <-f.release:
			return capability.Result{Value: json.RawMessage(`"done"`)}, nil
		}
	case "asks":
		a, err := c.Ask(ctx, capability.Question{
			Method: methodElicit,
			Params: json.RawMessage(`{"message":"which colour?","requestedSchema":{"type":"object","properties":{"colour":{"type":"string"}}}}`),
		})
		return capability.Result{Value: a}, err
	}
	return capability.Result{Value: append(json.RawMessage(nil), c.Input...)}, nil
}

func (f *fake) batch() capability.Batch {
	tool := func(id string, effect capability.Effect) capability.Contribution {
		return capability.Contribution{
			ID: id, Kind: "capability.agent-tool", Tool: id, Description: "does " + id, Provider: f.Key(),
			Effect: effect,
		}
	}
	read := capability.EffectRead
	return capability.Batch{Source: "fake", Modules: []capability.Module{{
		Extension: "test.one", ID: "one", Name: "One", Origin: "local",
		Contributions: []capability.Contribution{
			tool("echo", read), tool("fails", read), tool("slow", read), tool("asks", read),
			tool("writes", capability.EffectWrite), tool("hidden", capability.EffectAdmin),
		},
	}}, Providers: []capability.Provider{f}}
}

// do sends a request and reads the answer.
func (st *stack) do(method, path, token, body string, headers ...string) (int, http.Header, string) {
	st.t.Helper()
	req, err := http.NewRequestWithContext(st.t.Context(), method, st.url+path, strings.NewReader(body))
	ok(st.t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	ok(st.t, err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	ok(st.t, err)
	return res.StatusCode, res.Header, string(data)
}

type answer struct {
	ID     json.RawMessage
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
		Data    []map[string]any
	}
}

// rpc calls a method; version "" sends no header.
func (st *stack) rpc(token, version, method, params string) answer {
	st.t.Helper()
	var headers []string
	if version != "" {
		headers = []string{"A2A-Version", version}
	}
	code, h, body := st.do("POST", "/a2a", token, `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":`+params+`}`, headers...)
	var a answer
	if err := json.Unmarshal([]byte(body), &a); err != nil || code != 200 || h.Get("Content-Type") != "application/json" ||
		string(a.ID) != "7" {
		st.t.Fatalf(`%s: %d %s %v; want no error, code = 200, h.Get("Content-Type") = "application/json", string(a.ID) = "7"`,
			method, code, body, err)
	}
	return a
}

// send sends a message of v1.0 and returns the task.
func (st *stack) send(token, message, more string) a2awire.Task {
	st.t.Helper()
	a := st.rpc(token, "1.0", "SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER",`+message+`}`+more+`}`)
	if a.Error != nil {
		st.t.Fatalf("%+v; want a.Error = nil", a.Error)
	}
	var e a2awire.Event
	ok(st.t, read(a.Result, &e))
	return *e.Task
}

func call(capability, arguments string) string {
	return `"parts":[{"data":{"capability":"` + capability + `","arguments":` + arguments + `}}]`
}

// skill finds the id of a tool in the extended card.
func (st *stack) skill(token, tool string) string {
	st.t.Helper()
	a := st.rpc(token, "1.0", "GetExtendedAgentCard", `{}`)
	var card a2a.AgentCard
	ok(st.t, json.Unmarshal(a.Result, &card))
	for _, s := range card.Skills {
		if strings.Contains(s.ID, tool) {
			return s.ID
		}
	}
	st.t.Fatalf("no skill %s in %s", tool, a.Result)
	return ""
}

// client is the official client, for one binding.
func (st *stack) client(token string, binding a2a.TransportProtocol) *a2aclient.Client {
	st.t.Helper()
	h := &http.Client{Transport: bearer(token)}
	opt := a2aclient.WithJSONRPCTransport(h)
	if binding == a2a.TransportProtocolHTTPJSON {
		opt = a2aclient.WithRESTTransport(h)
	}
	c, err := a2aclient.NewFromEndpoints(st.t.Context(), []*a2a.AgentInterface{{
		URL: st.url + "/a2a", ProtocolBinding: binding,
		ProtocolVersion: "1.0",
	}}, a2aclient.WithDefaultsDisabled(), opt)
	ok(st.t, err)
	st.t.Cleanup(func() { _ = c.Destroy() })
	return c
}

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// stream opens a stream and calls each with every event, until it is false or the end.
func (st *stack) stream(token, path, version, body string, each func(data string) bool) (beats int) {
	st.t.Helper()
	ctx, cancel := context.WithTimeout(st.t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", st.url+path, strings.NewReader(body))
	ok(st.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("A2A-Version", version)
	res, err := http.DefaultClient.Do(req)
	ok(st.t, err)
	defer res.Body.Close()
	if ct := res.Header.Get("Content-Type"); ct != "text/event-stream" {
		data, _ := io.ReadAll(res.Body)
		st.t.Fatalf(`%s %s; want ct = "text/event-stream"`, ct, data)
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		data, found := strings.CutPrefix(lines.Text(), "data: ")
		if strings.HasPrefix(lines.Text(), ":") {
			beats++
		}
		if found && !each(data) {
			return beats
		}
	}
	return beats
}
