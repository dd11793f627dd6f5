package mcpclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/upstreams/mcpclient"
)

func TestListsHaveBounds(t *testing.T) {
	item := `{"name":"t"}`
	for name, tt := range map[string]struct {
		page      func(n int) string
		truncated string
		items     int
		fails     bool
	}{
		"whole":           {func(int) string { return `{"tools":[` + item + `,{"b":1.10,"a":"\ud800"}],"ttlMs":5000}` }, "", 2, false},
		"empty cursor":    {func(n int) string { return `{"tools":[` + item + `],"nextCursor":""}` }, "cursor", 2, false},
		"endless cursors": {func(n int) string { return fmt.Sprintf(`{"tools":[%s],"nextCursor":"%d"}`, item, n) }, "pages", 200, false},
		"the same cursor": {func(n int) string { return `{"tools":[` + item + `],"nextCursor":"x"}` }, "cursor", 2, false},
		"too many": {func(n int) string {
			return fmt.Sprintf(`{"tools":[%s1],"nextCursor":"%d"}`, strings.Repeat(`1,`, 2999), n)
		}, "items", 5000, false},
		"too much": {func(n int) string {
			return fmt.Sprintf(`{"tools":["%s"],"nextCursor":"%d"}`, strings.Repeat("x", 6<<20), n)
		}, "bytes", 2, false},
		"no list":          {func(int) string { return `{"tools":{}}` }, "", 0, true},
		"fails at the end": {func(n int) string { return map[int]string{1: `{"tools":[1],"nextCursor":"x"}`}[n] }, "", 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			s := newRaw(t, "modern", func(x call) bool {
				if x.method != "tools/list" {
					return false
				}
				n++
				if page := tt.page(n); page != "" {
					x.result(page)
				} else {
					x.fault(200, `{"code":1,"message":"no"}`)
				}
				return true
			})
			g := s.client(t)
			var got []string
			page, err := g.List(t.Context(), mcpclient.Tools, func(raw json.RawMessage) error { got = append(got, string(raw)); return nil })
			if page.Truncated != tt.truncated || len(got) != tt.items || (err != nil) != tt.fails {
				t.Errorf("%+v, %d items, %v; want page.Truncated = %v, len(got) = %v, (err != nil) = %v",
					page, len(got), err, tt.truncated, tt.items, tt.fails)
			}
			if name == "whole" && (got[1] != `{"b":1.10,"a":"\ud800"}` || page.TTL != 5*time.Second) {
				t.Errorf("%s %v; want not (name == \"whole\" && (got[1] != `{\"b\":1.10,\"a\":\"\\ud800\"}` || page.TTL != 5*time.Second))",
					got, page)
			}
			stop := errors.New("stop")
			n = 0
			if _, err := g.List(t.Context(), mcpclient.Tools, func(json.RawMessage) error { return stop }); !tt.fails && !errors.Is(err, stop) {
				t.Errorf("%v; want not (!tt.fails && !errors.Is(err, stop))", err)
			}
		})
	}
}

func TestSilenceAndFloodsEndAtTheIdleTime(t *testing.T) {
	for name, flood := range map[string]string{
		"silence":  "",
		"comments": ": still here\n\n",
		"others' progress": `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":99999,"progress":%d}}` +
			"\n\n",
		"progress that stays": `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":ID,"progress":1}}` + "\n\n",
		"logs":                `data: {"jsonrpc":"2.0","method":"notifications/message","params":{"data":%d}}` + "\n\n",
		"no messages":         "data: hello\n\n",
		"others' answers":     `data: {"jsonrpc":"2.0","id":99999,"result":{}}` + "\n\n",
		"questions":           `data: {"jsonrpc":"2.0","id":"%d","method":"no/such"}` + "\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			gone := make(chan struct{})
			s := newRaw(t, "legacy", func(x call) bool {
				if x.method != "tools/call" {
					return false
				}
				defer close(gone)
				say := x.events()
				line := strings.ReplaceAll(flood, "ID", x.id)
				for i := 0; x.r.Context().Err() == nil; i++ {
					switch {
					case line == "":
						say(": once\n\n")
						<-x.r.Context().Done()
					case strings.Contains(line, "%d"):
						say(line, i)
					default:
						say("%s", line)
					}
				}
				return true
			})
			g := s.client(t)
			r := tool("x", "{}")
			r.Idle = 100 * time.Millisecond
			r.Progress = func(capability.Chunk) {}
			_, err := g.Call(t.Context(), r)
			wantCode(t, err, capability.CodeTimeout, "idle_timeout")
			await(t, "end at the server", gone)
		})
	}
}

func TestQuestionsStopTheClock(t *testing.T) {
	answered := make(chan struct{})
	s := newRaw(t, "legacy", func(x call) bool {
		switch {
		case strings.Contains(string(x.body), `"id":"q"`):
			close(answered)
			x.w.WriteHeader(http.StatusAccepted)
			return true
		case x.method != "tools/call":
			return false
		}
		say := x.events()
		say("data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"elicitation/create\",\"params\":{}}\n\n")
		<-answered
		say("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"ok\":1}}\n\n", x.id)
		return true
	})
	g := s.client(t)
	r := tool("x", "{}")
	r.Idle = 30 * time.Millisecond
	r.Ask = func(ctx context.Context, _ capability.Question) (json.RawMessage, error) {
		select { // longer than the idle time, several times
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			t.Error("the question was withdrawn")
		}
		return json.RawMessage(`{"action":"accept"}`), nil
	}
	if out, err := g.Call(t.Context(), r); err != nil || string(out) != `{"ok":1}` {
		t.Errorf(`%s %v; want no error, string(out) = "{\"ok\":1}"`, out, err)
	}
}

func TestAQuestionEndsWithItsCall(t *testing.T) {
	s := newRaw(t, "legacy", func(x call) bool {
		if x.method != "tools/call" {
			return false
		}
		say := x.events()
		say("data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"elicitation/create\",\"params\":{}}\n\n")
		if strings.Contains(x.params, "withdraw") {
			say("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":\"q\"}}\n\n")
		}
		<-x.r.Context().Done()
		return true
	})
	g := s.client(t)
	for _, how := range []string{"withdraw", "cancel"} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		r := tool(how, "{}")
		r.Ask = func(asked context.Context, _ capability.Question) (json.RawMessage, error) {
			if how == "cancel" {
				cancel()
			}
			<-asked.Done()
			close(ended)
			return nil, asked.Err()
		}
		done := make(chan error, 1)
		go func() { _, err := g.Call(ctx, r); done <- err }()
		await(t, "end of the question", ended)
		cancel()
		wantCode(t, await(t, "end of the call", done), capability.CodeCancelled, "")
	}
}

func TestABrokenStreamIsTakenUpAgain(t *testing.T) {
	var began time.Time
	resumed := make(chan string, 4)
	s := newRaw(t, "legacy", nil)
	id := ""
	s.serve = func(x call) bool {
		switch {
		case x.method == "tools/call":
			id = x.id
			say := x.events()
			// The second event breaks off: it must come again.
			say("id: e1\nretry: 120\ndata:\n\nid: e2\ndata: {\"jsonrpc\"")
			began = time.Now()
			return true
		case x.method == "GET" && x.r.Header.Get("Last-Event-Id") != "":
			resumed <- x.r.Header.Get("Last-Event-Id") + " " + x.r.Header.Get("Mcp-Session-Id")
			say := x.events()
			if len(resumed) == 1 {
				say("id: e2\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":1}}\n\n",
					id)
				return true
			}
			say("id: e3\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"late\":1}}\n\n", id)
			return true
		}
		return false
	}
	g := s.client(t)
	r := tool("x", "{}")
	steps := 0
	r.Progress = func(capability.Chunk) { steps++ }
	out, err := g.Call(t.Context(), r)
	if err != nil || string(out) != `{"late":1}` || steps != 1 {
		t.Fatalf(`%s %v, %d steps; want no error, string(out) = "{\"late\":1}", steps = 1`, out, err, steps)
	}
	if d := time.Since(began); d < 240*time.Millisecond {
		t.Errorf("the server wanted 120 ms waited each time, and all was over after %s", d)
	}
	if a, b := <-resumed, <-resumed; a != "e1 session-1" || b != "e2 session-1" {
		t.Errorf(`resumed after %s, %s; want a = "e1 session-1", b = "e2 session-1"`, a, b)
	}
}

func TestTheStreamOfNoticesComesBack(t *testing.T) {
	opened := make(chan string, 16)
	hang := make(chan struct{})
	s := newRaw(t, "legacy", func(x call) bool {
		if x.method != "GET" {
			return false
		}
		say := x.events()
		if len(opened) == 0 {
			say("id: n1\nretry: 10\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/prompts/list_changed\"}\n\n")
			opened <- x.r.Header.Get("Last-Event-Id")
			return true
		}
		opened <- x.r.Header.Get("Last-Event-Id")
		say("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"elicitation/create\",\"params\":{}}\n\n")
		select {
		case <-hang:
		case <-x.r.Context().Done():
		}
		return true
	})
	g := s.client(t)
	if l := await(t, "first change", g.changed); l != mcpclient.Prompts {
		t.Errorf("%s; want l = mcpclient.Prompts", l)
	}
	for _, want := range mcpclient.Lists() {
		if l := await(t, "change after the gap", g.changed); l != want {
			t.Errorf("%s, want %s", l, want)
		}
	}
	if first, second := <-opened, <-opened; first != "" || second != "n1" {
		t.Errorf(`%q %q; want first = "", second = "n1"`, first, second)
	}
	close(hang)
}

// TestAQuestionRightAfterTheHandshake: a server that asks on the stream of notices must
// find it there when the first call comes.
func TestAQuestionRightAfterTheHandshake(t *testing.T) {
	for name, tc := range map[string]struct{ shy, want bool }{
		"with the stream open": {false, true}, "of a server that opens none at first": {true, false}, // which no caller waits for
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			open := false
			s := newRaw(t, "legacy", func(x call) bool {
				switch x.method {
				case "GET":
					mu.Lock()
					open = true
					mu.Unlock()
					if !tc.shy {
						x.events()(": here\n\n")
					}
					<-x.r.Context().Done()
				case "tools/call":
					mu.Lock()
					defer mu.Unlock()
					x.result(`{"open":` + strconv.FormatBool(open) + `}`)
				default:
					return false
				}
				return true
			})
			g := s.client(t)
			out, err := g.Call(t.Context(), mcpclient.Request{Method: "tools/call", Params: json.RawMessage(`{"name":"t"}`)})
			if err != nil || tc.want && string(out) != `{"open":true}` {
				t.Errorf("%s %v; want no error, not (tc.want && string(out) != `{\"open\":true}`)", out, err)
			}
		})
	}
}

func TestASessionThatIsForgottenBetweenCalls(t *testing.T) {
	// The stream of notices learns it first, without a call.
	s := newRaw(t, "legacy", nil)
	broken := make(chan struct{})
	s.serve = func(x call) bool {
		if x.method == "GET" && x.r.Header.Get("Mcp-Session-Id") == "session-1" {
			select {
			case <-broken:
				return false
			default:
			}
			x.events()(": open\n\nretry: 1\n\n")
			s.session.Store("none")
			close(broken)
			return true
		}
		if x.method == "GET" && x.r.Header.Get("Mcp-Session-Id") != s.session.Load().(string) {
			x.w.WriteHeader(http.StatusNotFound)
			return true
		}
		return false
	}
	// The hand-written server answers 405 before it looks at sessions: say 404 instead.
	inner := s.serve
	s.serve = func(x call) bool {
		if inner(x) {
			return true
		}
		if x.method == "GET" && x.r.Header.Get("Mcp-Session-Id") == "session-1" {
			x.w.WriteHeader(http.StatusNotFound)
			return true
		}
		return false
	}
	g := s.client(t)
	await(t, "word that lists may have changed", g.changed)
	if s.greeted.Load() != 2 {
		t.Errorf("%d sessions; want s.greeted.Load() = 2", s.greeted.Load())
	}
	if len(g.down) > 0 {
		t.Errorf("len(g.down) = %v, want at most 0; <-g.down = %v", len(g.down), <-g.down)
	}
}

func TestARenewalThatFailsIsALoss(t *testing.T) {
	var gone atomic.Bool
	s := newRaw(t, "legacy", func(x call) bool {
		if gone.Load() {
			x.w.WriteHeader(http.StatusNotFound)
		}
		return gone.Load()
	})
	g := s.client(t)
	gone.Store(true)
	_, err := g.Call(t.Context(), tool("x", "{}"))
	if capability.CodeOf(err) != capability.CodeUnavailable {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeUnavailable", err)
	}
	await(t, "word of the loss", g.down)
}

func TestSSEStaysAtItsOrigin(t *testing.T) {
	for _, endpoint := range []string{"http://elsewhere.test/m", "//elsewhere.test/m", "https:/m"} {
		s := newRaw(t, "", func(x call) bool {
			if x.method == "GET" {
				x.events()("event: endpoint\ndata: %s\n\n", endpoint)
			}
			return true
		})
		g := s.idle(t, func(c *mcpclient.Config) { c.SSE = true })
		_, err := g.Connect(t.Context())
		wantCode(t, err, capability.CodeUnavailable, "upstream_error")
	}
}

func TestAnSSEStreamThatEnds(t *testing.T) {
	g := peers()["SSE"](t)
	waiting := make(chan error, 1)
	go func() {
		_, err := g.Call(t.Context(), tool("wait", "{}"))
		waiting <- err
	}()
	await(t, "start", g.marks.started)
	g.cut()
	wantCode(t, await(t, "end of the call", waiting), capability.CodeFailed, "connection_failed")
	await(t, "word of the loss", g.down)
	g.connect(t)
	if _, err := g.Call(t.Context(), tool("echo", "{}")); err != nil {
		t.Error(err)
	}
}

func TestCloseEndsCalls(t *testing.T) {
	onAll(t, func(t *testing.T, g *rig) {
		waiting, begun := make(chan error, 1), make(chan string, 1)
		r := tool("wait", "{}")
		if g.marks != nil {
			begun = g.marks.started
		} else { // a process reports progress as soon as it has the call
			r.Progress = func(capability.Chunk) { begun <- "wait" }
		}
		go func() {
			_, err := g.Call(t.Context(), r)
			waiting <- err
		}()
		await(t, "start", begun)
		g.Close()
		// Not unavailable: no client may send it again unasked.
		wantCode(t, await(t, "end of the call", waiting), capability.CodeFailed, "connection_failed")
		if len(g.down) > 0 {
			t.Errorf("closing is not a loss: %v; want len(g.down) at most 0", <-g.down)
		}
	})
}

func TestAServerCannotHaveUsSpin(t *testing.T) {
	var asked atomic.Int64
	s := newRaw(t, "legacy", nil)
	s.serve = func(x call) bool {
		if x.method == "tools/call" || x.method == "GET" && x.r.Header.Get("Last-Event-Id") != "" {
			x.events()("id: e%d\nretry: 0\ndata:\n\n", asked.Add(1))
			return true
		}
		return false
	}
	r := tool("x", "{}")
	r.Idle = 2 * time.Second
	_, err := s.client(t).Call(t.Context(), r)
	wantCode(t, err, capability.CodeTimeout, "idle_timeout")
	if n := asked.Load(); n < 2 || n > 50 {
		t.Errorf("%d streams were asked for; want n at least 2, n at most 50", n)
	}
}

func TestHugeNoticesAreDropped(t *testing.T) {
	s := newRaw(t, "legacy", func(x call) bool {
		if x.method != "tools/call" {
			return false
		}
		say := x.events()
		for _, size := range []int{1, 300 << 10, 2} {
			say("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"%s\"}}\n\n",
				strings.Repeat("x", size))
		}
		say("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", x.id)
		return true
	})
	r := tool("x", "{}")
	var got []int
	r.Progress = func(c capability.Chunk) { got = append(got, len(c.Data)) }
	if _, err := s.client(t).Call(t.Context(), r); err != nil || len(got) != 2 || got[1] != got[0]+1 {
		t.Errorf("%v %v; want no error, len(got) = 2, got[1] = got[0] + 1", got, err)
	}
}
