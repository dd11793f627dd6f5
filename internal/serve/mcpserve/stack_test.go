package mcpserve

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
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
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
	"github.com/junctor-run/junctor/internal/store/tasksql"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stack is a whole server behind the surface, with a provider of the test's own.
type stack struct {
	t       testing.TB
	url     string
	surface *Surface
	catalog *catalog.Catalog
	policy  *policy.Policy
	agent   string
	agent2  string
	admin   capability.Principal
	fake    *fake
}

type stackOptions struct {
	pageSize int
	maxBody  int64
	rules    string // added to the default ones
	only     string // in place of what the default ones say of writes
	views    map[string]View
	updates  Updates
	oauth    httpapi.OAuth
	own      Own
	texts    []Text
	// taskAfter gives the surface tasks.
	taskAfter time.Duration
	// approvalWait holds calls that need an approval, waitFor those of a principal if it is not nil.
	approvalWait time.Duration
	waitFor      func(principal string) time.Duration
}

func newStack(t testing.TB, opts stackOptions) *stack {
	t.Helper()
	ctx := t.Context()
	dir := t.TempDir()
	db, err := store.Open(ctx, filepath.Join(dir, "state", "junctor.db"))
	ok(t, err)
	segments, err := segment.Open(filepath.Join(dir, "audit"), segment.Config{})
	ok(t, err)
	log, err := audit.Open(ctx, audit.Config{Segments: segments, Key: make([]byte, 32)})
	ok(t, err)
	rules := policy.DefaultRules() + opts.rules
	if opts.only != "" {
		rules = `@id("reads") permit (principal in Role::"agent", action in Action::"read", resource);` + opts.only
	}
	pol, err := policy.New(ctx, policy.Config{
		Documents: []policy.Document{{Name: "default.cedar", Text: []byte(rules)}}, Store: db, Log: log,
	})
	ok(t, err)
	st := &stack{
		t: t, policy: pol, catalog: catalogtest.New(t), fake: newFake(),
		admin: capability.Principal{ID: "admin:root", Role: capability.RoleAdmin},
	}
	for name, to := range map[string]*string{"one": &st.agent, "two": &st.agent2} {
		_, value, err := pol.CreateToken(ctx, st.admin, policy.TokenRequest{Role: capability.RoleAgent, Name: name})
		ok(t, err)
		*to = value.Reveal()
	}
	engine := invoke.New(invoke.Config{Catalog: st.catalog, Policy: pol, Log: log, Outcomes: db})
	entrance := httpapi.New(pol, log, nil)
	if opts.oauth != nil {
		entrance.UseOAuth(opts.oauth, "https://public.example/")
	}
	var manager Tasks
	var running *tasks.Manager
	if opts.taskAfter > 0 {
		kept, err := tasksql.Open(ctx, db)
		ok(t, err)
		m := tasks.New(tasks.Config{
			Store: kept, Engine: engine, Log: log, Standing: pol.Standing, Approval: db.Approval, Poll: 5 * time.Millisecond,
			Decide: func(ctx context.Context, by capability.Principal, id string, d policy.Decision) error {
				_, _, err := pol.Answer(ctx, by, id, d)
				return err
			},
		})
		ok(t, m.Open(ctx))
		running = m
		manager = m
	}
	if opts.waitFor == nil {
		opts.waitFor = func(string) time.Duration { return opts.approvalWait }
	}
	st.surface = New(Config{
		Door: entrance, Engine: engine, Catalog: st.catalog, Policy: pol, Version: "test", Views: opts.views, Updates: opts.updates,
		Own: opts.own, Texts: opts.texts, Tasks: manager, TaskAfter: opts.taskAfter, ApprovalWait: opts.waitFor,
		PageSize: opts.pageSize, MaxBody: opts.maxBody, CursorKey: []byte("a key of the test"),
	})
	st.offer(st.fake.batch())
	runCtx, stop := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { ok(t, st.surface.Run(runCtx)) })
	parts.Go(func() { _ = log.Run(runCtx) })
	if running != nil {
		parts.Go(func() { _ = running.Run(runCtx) })
	}
	mux := http.NewServeMux()
	st.surface.Routes(mux)
	server := httptest.NewServer(mux)
	st.url = server.URL + "/mcp"
	t.Cleanup(func() {
		stop()
		parts.Wait()
		server.CloseClientConnections()
		server.Close()
		_ = log.Close()
		ok(t, db.Close())
		http.DefaultClient.CloseIdleConnections()
	})
	return st
}

func (st *stack) offer(b capability.Batch) {
	st.t.Helper()
	_, _, err := st.catalog.Replace(b)
	ok(st.t, err)
	st.policy.CatalogChanged()
	st.surface.CatalogChanged()
}

// fake is a provider whose tools do what the tests need.
type fake struct {
	extra   []capability.Contribution
	started chan string   // the input of slow calls
	ended   chan error    // how their context ended
	release chan struct{} // lets slow calls finish
}

func newFake() *fake {
	return &fake{started: make(chan string, 16), ended: make(chan error, 16), release: make(chan struct{})}
}

type provider struct {
	*fake
	key capability.ProviderKey
}

func (p provider) Key() capability.ProviderKey { return p.key }

func (p provider) Invoke(ctx context.Context, c capability.Call) (capability.Result, error) {
	value := func(s string) (capability.Result, error) { return capability.Result{Value: json.RawMessage(s)}, nil }
	_, id, _ := strings.Cut(string(c.Capability), "/")
	id, _, _ = strings.Cut(id, "#")
	switch id {
	case "scalar":
		return value("9007199254740993")
	case "pretty":
		return value("{\n  \"a\": 1\r\n}")
	case "big":
		return value(`{"text":"` + strings.Repeat("x", maxResult) + `"}`)
	case "broken":
		panic("broken on purpose")
	case "fails":
		return capability.Result{}, capability.Errorf(capability.CodeFailed, "fake", "the disk is full").With("execution_failed", "make room")
	case "slow":
		p.started <- string(c.Input)
		select {
		case <-ctx.Done():
			p.ended <- ctx.Err()
			return capability.Result{}, ctx.Err()
		case <-p.release:
			p.ended <- nil
			return value(`{"done":true}`)
		}
	case "steps":
		for i := range 200 {
			c.Progress(capability.Chunk{Progress: float64(i + 1), Total: 200, Message: "step"})
		}
		p.started <- "steps"
		<-p.release
		c.Progress(capability.Chunk{Progress: 201})
		return value(`{"done":true}`)
	case "read", "list", "write":
		return value(`{"provider":"` + string(p.key) + `","input":` + string(c.Input) + `}`)
	}
	return capability.Result{Value: append(json.RawMessage(nil), c.Input...)}, nil
}

func (f *fake) batch() capability.Batch {
	single := capability.NewProviderKey("tool", "test", "one")
	tool := func(id string, effect capability.Effect) capability.Contribution {
		return capability.Contribution{
			ID: id, Kind: "capability.agent-tool", Tool: id, Description: "does " + id, Provider: single,
			Effect: effect,
		}
	}
	read := capability.EffectRead
	echo := tool("echo", read)
	checked := tool("checked", read)
	checked.InputSchema = json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
	promised := tool("scalar", read)
	promised.OutputSchema = json.RawMessage(`{"type":"object"}`)
	listless := tool("listless", read)
	listless.InputSchema = json.RawMessage(`{"type":"array"}`)
	down := tool("down", read)
	down.Availability = capability.Availability{State: capability.StateUnavailable, Reason: "asleep"}
	b := capability.Batch{Source: "fake", Modules: []capability.Module{{
		Extension: "test.one", ID: "one", Name: "One", Origin: "local",
		Contributions: append([]capability.Contribution{
			echo, checked, promised, listless, down, tool("plainscalar", read), tool("pretty", read), tool("big", read), tool("broken", read),
			tool("fails", read), tool("slow", read), tool("steps", read), tool("hidden", capability.EffectAdmin),
		}, f.extra...),
	}}, Providers: []capability.Provider{provider{f, single}}}
	for _, name := range []string{"a", "b"} {
		key := capability.NewProviderKey("fs", "endpoint", name)
		m := capability.Module{Extension: "endpoint." + name, ID: name, Name: name, Origin: "endpoint", Endpoint: name}
		for id, action := range map[string]capability.Action{"read": "fs.readText", "write": "fs.writeText", "list": "fs.list"} {
			if id == "list" && name == "b" {
				continue
			}
			m.Contributions = append(m.Contributions, capability.Contribution{
				ID: id, Kind: "capability.agent-tool", Action: action, Provider: key,
			})
		}
		b.Modules = append(b.Modules, m)
		b.Providers = append(b.Providers, provider{f, key})
	}
	return b
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reply is an HTTP answer, read.
type reply struct {
	status int
	header http.Header
	body   string
}

func (st *stack) do(method, token, body string, headers ...string) reply {
	st.t.Helper()
	return st.doTo(st.url, method, token, body, headers...)
}

func (st *stack) doTo(url, method, token, body string, headers ...string) reply {
	st.t.Helper()
	req, err := http.NewRequestWithContext(st.t.Context(), method, url, strings.NewReader(body))
	ok(st.t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	ok(st.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	ok(st.t, err)
	return reply{resp.StatusCode, resp.Header, string(data)}
}

const initialize = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"VERSION","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`

// open opens a session and returns its id.
func (st *stack) open(token, version string) string {
	st.t.Helper()
	r := st.do("POST", token, strings.Replace(initialize, "VERSION", version, 1))
	id := r.header.Get(mcpwire.HeaderSession)
	if r.status != 200 || id == "" {
		st.t.Fatalf(`initialize: %d %s; want r.status = 200, id other than ""`, r.status, r.body)
	}
	if r := st.do("POST", token, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, mcpwire.HeaderSession, id); r.status != 202 {
		st.t.Fatalf("initialized: %d %s; want r.status = 202", r.status, r.body)
	}
	return id
}

// modern sends a modern request with the headers that fit it.
func (st *stack) modern(token, method, name, rest string, headers ...string) reply {
	st.t.Helper()
	h := []string{mcpwire.HeaderVersion, mcpwire.Version20260728, mcpwire.HeaderMethod, method}
	if name != "" {
		h = append(h, mcpwire.HeaderName, name)
	}
	return st.do("POST", token, modernBody(method, rest), append(h, headers...)...)
}

func modernBody(method, rest string) string {
	return `{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":{` + rest +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"m","version":"1"}}}}`
}

// answer is a decoded JSON-RPC response.
type answer struct {
	ID     json.RawMessage
	Result struct {
		Content           []struct{ Text string }
		StructuredContent json.RawMessage
		IsError           bool
		ResultType        string
		Tools             []struct {
			Name         string
			InputSchema  json.RawMessage
			OutputSchema json.RawMessage
			Annotations  map[string]any
			Meta         map[string]any `json:"_meta"`
		}
		NextCursor *string
		TTLMs      *int
		CacheScope string
		Meta       map[string]json.RawMessage `json:"_meta"`
	}
	Error *struct {
		Code    int
		Message string
		Data    json.RawMessage
	}
}

func (r reply) decode(t testing.TB) answer {
	t.Helper()
	var a answer
	if err := json.NewDecoder(bytes.NewBufferString(r.body)).Decode(&a); err != nil {
		t.Fatalf("%v in %d %q", err, r.status, r.body)
	}
	return a
}

func receive[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came within a minute")
		panic("unreachable")
	}
}
