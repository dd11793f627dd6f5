package mcpserve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/serve/mcpserve/exchange"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

func (st *stack) principal() capability.Principal {
	p, err := st.policy.Authenticate(st.agent)
	ok(st.t, err)
	return p
}

// stream sends a request whose answer stays open, and returns its lines.
func (st *stack) stream(ctx context.Context, method, body string, headers ...string) (<-chan string, *http.Response) {
	st.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, st.url, strings.NewReader(body))
	ok(st.t, err)
	req.Header.Set("Authorization", "Bearer "+st.agent)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	ok(st.t, err)
	lines := make(chan string, 1024)
	go func() {
		defer close(lines)
		defer resp.Body.Close()
		in := bufio.NewScanner(resp.Body)
		for in.Scan() {
			lines <- in.Text()
		}
	}()
	return lines, resp
}

func TestProgress(t *testing.T) {
	st := newStack(t, stackOptions{})
	body := strings.Replace(modernBody("tools/call", `"name":"steps",`), `"_meta":{`, `"_meta":{"progressToken":9007199254740993,`, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-st.fake.started
		// The first notices are out or waiting; the last comes with the answer.
		close(st.fake.release)
	}()
	lines, resp := st.stream(t.Context(), "POST", body, mcpwire.HeaderVersion, mcpwire.Version20260728, mcpwire.HeaderMethod, "tools/call",
		mcpwire.HeaderName, "steps")
	if resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("X-Accel-Buffering") != "no" {
		t.Errorf(`%v; want resp.Header.Get("Content-Type") = "text/event-stream", resp.Header.Get("X-Accel-Buffering") = "no"`,
			resp.Header)
	}
	last, notices, answered := 0.0, 0, false
	for line := range lines {
		data, isData := strings.CutPrefix(line, "data: ")
		if !isData {
			continue
		}
		if answered {
			t.Fatalf("after the answer: %s; want answered = false", line)
		}
		if !strings.Contains(data, "notifications/progress") {
			answered = strings.Contains(data, `{"done":true}`)
			continue
		}
		if !strings.Contains(data, `"progressToken":9007199254740993`) {
			t.Errorf(`the token is not the caller's: %s; want data with "\"progressToken\":9007199254740993"`, data)
		}
		var n struct{ Params struct{ Progress float64 } }
		ok(t, json.Unmarshal([]byte(data), &n))
		if n.Params.Progress <= last {
			t.Errorf("%v after %v; want n.Params.Progress more than %v", n.Params.Progress, last, last)
		}
		last = n.Params.Progress
		notices++
	}
	if !answered || notices > exchange.MaxProgress+2 {
		t.Errorf("answered %v after %d notices; want answered = true, notices at most exchange.MaxProgress + 2", answered, notices)
	}
	<-done
}

func TestCancelLegacy(t *testing.T) {
	st := newStack(t, stackOptions{})
	id := st.open(st.agent, mcpwire.Version20250618)
	call := `{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"slow","_meta":{"progressToken":"p"}}}`
	answers := make(chan reply, 1)
	go func() { answers <- st.do("POST", st.agent, call, mcpwire.HeaderSession, id) }()
	receive(t, st.fake.started)
	if r := st.do("POST", st.agent, call, mcpwire.HeaderSession, id); !strings.Contains(r.body, "running already") {
		t.Errorf(`the same id again: %s; want r.body with "running already"`, r.body)
	}
	other := st.open(st.agent2, mcpwire.Version20250618)
	cancelled := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}`
	if r := st.do("POST", st.agent2, cancelled, mcpwire.HeaderSession, other); r.status != 202 {
		t.Errorf("%d %s; want r.status = 202", r.status, r.body)
	}
	select {
	case <-st.fake.ended:
		t.Fatal("somebody else's notice cancelled the call")
	default:
	}
	if r := st.do("POST", st.agent, cancelled, mcpwire.HeaderSession, id); r.status != 202 {
		t.Errorf("%d %s; want r.status = 202", r.status, r.body)
	}
	if err := receive(t, st.fake.ended); !errors.Is(err, context.Canceled) {
		t.Errorf("%v; want err is context.Canceled", err)
	}
	if r := receive(t, answers); r.body != "" {
		t.Errorf(`sent after cancelling: %s; want r.body = ""`, r.body)
	}
}

func TestLegacyDisconnectIsNoCancel(t *testing.T) {
	st := newStack(t, stackOptions{})
	id := st.open(st.agent, mcpwire.Version20250618)
	ctx, hangUp := context.WithCancel(t.Context())
	call := `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"slow"}}`
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		req, err := http.NewRequestWithContext(ctx, "POST", st.url, strings.NewReader(call))
		ok(t, err)
		req.Header.Set("Authorization", "Bearer "+st.agent)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set(mcpwire.HeaderSession, id)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	receive(t, st.fake.started)
	hangUp()
	receive(t, gone)
	close(st.fake.release)
	if err := receive(t, st.fake.ended); err != nil {
		t.Errorf("the call was cancelled: %v", err)
	}
}

func TestDeleteCancels(t *testing.T) {
	st := newStack(t, stackOptions{})
	id := st.open(st.agent, mcpwire.Version20250618)
	answers := make(chan reply, 1)
	go func() {
		answers <- st.do("POST", st.agent, `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"slow"}}`, mcpwire.HeaderSession, id)
	}()
	receive(t, st.fake.started)
	if r := st.do("DELETE", st.agent, "", mcpwire.HeaderSession, id); r.status != 204 {
		t.Errorf("%d %s; want r.status = 204", r.status, r.body)
	}
	if err := receive(t, st.fake.ended); err == nil {
		t.Error("the call went on; want an error")
	}
	receive(t, answers)
}

func TestCancelModern(t *testing.T) {
	st := newStack(t, stackOptions{})
	ctx, hangUp := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		req, err := http.NewRequestWithContext(ctx, "POST", st.url, strings.NewReader(modernBody("tools/call", `"name":"slow",`)))
		ok(t, err)
		for k, v := range map[string]string{
			"Authorization": "Bearer " + st.agent, "Content-Type": "application/json",
			mcpwire.HeaderVersion: mcpwire.Version20260728, mcpwire.HeaderMethod: "tools/call", mcpwire.HeaderName: "slow",
		} {
			req.Header.Set(k, v)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	receive(t, st.fake.started)
	hangUp()
	if err := receive(t, st.fake.ended); err == nil {
		t.Error("the call ended without an error; want that of its context")
	}
	receive(t, gone)
}

func (st *stack) client(token string, legacy bool, options *mcp.ClientOptions) *mcp.ClientSession {
	st.t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "go", Version: "1"}, options)
	transport := &mcp.StreamableClientTransport{Endpoint: st.url, HTTPClient: &http.Client{Transport: bearer{token, legacy}}}
	session, err := client.Connect(st.t.Context(), transport, nil)
	ok(st.t, err)
	st.t.Cleanup(func() { _ = session.Close() })
	return session
}

type bearer struct {
	token  string
	legacy bool // hide the server's modern half
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.legacy && r.Header.Get(mcpwire.HeaderVersion) == mcpwire.Version20260728 {
		return &http.Response{StatusCode: 404, Status: "404 Not Found", Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

func TestOfficialClientAndListChanged(t *testing.T) {
	for _, legacy := range []bool{true, false} {
		name := map[bool]string{true: "legacy", false: "modern"}[legacy]
		t.Run(name, func(t *testing.T) {
			st := newStack(t, stackOptions{})
			changed := make(chan struct{}, 64)
			session := st.client(st.agent, legacy, &mcp.ClientOptions{
				ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
			})
			want := mcpwire.Version20260728
			if legacy {
				want = mcpwire.Version20251125
			}
			if got := session.InitializeResult(); got != nil && got.ProtocolVersion != want {
				t.Fatalf("speaks %s; want not (got != nil && got.ProtocolVersion != want)", got.ProtocolVersion)
			}
			tools, err := session.ListTools(t.Context(), nil)
			ok(t, err)
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"a": "b"}})
			ok(t, err)
			if len(tools.Tools) == 0 || result.IsError || result.Content[0].(*mcp.TextContent).Text != `{"a":"b"}` {
				t.Errorf("%v %v; want len(tools.Tools) other than 0, result.IsError = false, "+
					`result.Content[0].(*mcp.TextContent).Text = "{\"a\":\"b\"}"`, tools, result)
			}
			result, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "fails"})
			if err != nil || !result.IsError {
				t.Errorf("%v %v; want no error, result.IsError = true", result, err)
			}
			if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "nothing"}); err == nil {
				t.Error("an unknown tool was called; want an error")
			}
			st.fake.extra = []capability.Contribution{extraTool("fresh", capability.EffectRead)}
			st.offer(st.fake.batch())
			receive(t, changed)
			tools, err = session.ListTools(t.Context(), nil)
			ok(t, err)
			found := false
			for _, tool := range tools.Tools {
				found = found || tool.Name == "fresh"
			}
			if !found || len(changed) != 0 {
				t.Errorf("found %v, %d more notices; want found = true, len(changed) = 0", found, len(changed))
			}
		})
	}
}

func TestListen(t *testing.T) {
	st := newStack(t, stackOptions{})
	lines, resp := st.stream(t.Context(), "POST", modernBody("subscriptions/listen",
		`"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a://b"]},`),
		mcpwire.HeaderVersion, mcpwire.Version20260728, mcpwire.HeaderMethod, "subscriptions/listen")
	if resp.StatusCode != 200 || resp.Header.Get("X-Accel-Buffering") != "no" {
		t.Fatalf(`resp.Status = %v, want resp.StatusCode == 200 && resp.Header.Get("X-Accel-Buffering") == "no"`, resp.Status)
	}
	next := func() string {
		for {
			line := receive(t, lines)
			if line == "" {
				var more bool
				if line, more = <-lines; !more {
					return "the end"
				}
			}
			if data, isData := strings.CutPrefix(line, "data: "); isData {
				return data
			}
		}
	}
	if first := next(); !strings.Contains(first, "acknowledged") || strings.Contains(first, "a://b") {
		t.Errorf(`first: %s; want first with "acknowledged", first without "a://b"`, first)
	}
	for i, id := range []string{"x1", "x2"} {
		st.fake.extra = append(st.fake.extra, extraTool(id, capability.EffectRead))
		st.offer(st.fake.batch())
		if got := next(); !strings.Contains(got, "tools/list_changed") || !strings.Contains(got, `"io.modelcontextprotocol/subscriptionId":7`) {
			t.Errorf(`%d: %s; want got with "tools/list_changed", got with "\"io.modelcontextprotocol/subscriptionId\":7"`, i, got)
		}
	}
	st.surface.Drain()
	if got := next(); !strings.Contains(got, `"id":7`) || !strings.Contains(got, "result") {
		t.Errorf(`no completion: %s; want got with "\"id\":7", got with "result"`, got)
	}
}

func extraTool(id string, effect capability.Effect) capability.Contribution {
	return capability.Contribution{ID: id, Kind: "capability.agent-tool", Tool: id, Provider: "tool:test:one", Effect: effect}
}

func TestOnlyThoseConcernedAreTold(t *testing.T) {
	st := newStack(t, stackOptions{})
	v, done := st.surface.viewer(caller{
		who: st.principal(), key: viewerKey(st.principal(), st.surface.views[defaultView]),
		view: st.surface.views[defaultView],
	})
	defer done()
	announced := func() [3][32]byte { // the stack announces by itself too, a moment after each change
		st.surface.mu.Lock()
		defer st.surface.mu.Unlock()
		return v.announced
	}
	offer := func(tools ...capability.Contribution) bool {
		before := announced()
		st.fake.extra = tools
		_, _, err := st.catalog.Replace(st.fake.batch())
		ok(t, err)
		st.policy.CatalogChanged()
		st.surface.announce()
		return announced() != before
	}
	secret, fresh := extraTool("secret", capability.EffectAdmin), extraTool("fresh", capability.EffectRead)
	if offer(secret) {
		t.Error("told of a tool that it must not know")
	}
	if !offer(secret, fresh) || !offer() {
		t.Error("not told of a tool that came or went")
	}
}

func TestTheLongestIdleSessionMakesRoom(t *testing.T) {
	st := newStack(t, stackOptions{})
	c := caller{who: st.principal(), key: viewerKey(st.principal(), st.surface.views[defaultView]), view: st.surface.views[defaultView]}
	clock := time.Now()
	st.surface.mu.Lock()
	st.surface.now = func() time.Time { clock = clock.Add(time.Millisecond); return clock }
	st.surface.mu.Unlock()
	name := func(i int) string { return fmt.Sprintf("s%d", i) }
	for i := range maxSessionsPerViewer {
		st.surface.bind(c, name(i), mcpwire.Version20250618)
	}
	_, leave := st.surface.enter(c, name(0)) // in use: it stays
	defer leave()
	if !st.surface.bind(c, "new", mcpwire.Version20250618) || st.surface.sessionOf(name(1)) != nil || st.surface.sessionOf(name(0)) == nil {
		t.Error(`the wrong session made room; want st.surface.bind(c, "new", mcpwire.Version20250618), ` +
			"st.surface.sessionOf(name(1)) = nil, st.surface.sessionOf(name(0)) not nil")
	}
}
