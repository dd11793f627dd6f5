package mcpclient_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/upstreams/mcpclient"
)

func TestHandshakeAndLists(t *testing.T) {
	versions := map[string]string{
		"stateful": "2025-11-25", "stateful 2025-03-26": "2025-03-26", "stateful JSON": "2025-06-18", "modern": "2026-07-28",
		"modern JSON": "2026-07-28", "SSE": "2025-11-25", "stdio modern": "2026-07-28", "stdio legacy": "2025-06-18",
	}
	onAll(t, func(t *testing.T, g *rig) {
		_, name, _ := strings.Cut(t.Name(), "/")
		if want := versions[strings.ReplaceAll(name, "_", " ")]; g.server.Version != want || g.server.Modern() != (want == "2026-07-28") {
			t.Errorf("version %s, want %s", g.server.Version, want)
		}
		if g.server.Name != "peer" || g.server.Title != "The Peer" || g.server.Release != "v9" || g.server.Instructions != "be kind" {
			t.Errorf(`%+v; want g.server.Name = "peer", g.server.Title = "The Peer", g.server.Release = "v9", `+
				`g.server.Instructions = "be kind"`, g.server)
		}
		for feature, want := range map[string]bool{
			"tools": true, "tools.listChanged": true, "resources.subscribe": true, "completions": false,
			"tools.nothing": false,
		} {
			if g.server.Has(feature) != want {
				t.Errorf("%s: %v in %s; want g.server.Has(feature) = %v", feature, !want, g.server.Capabilities, want)
			}
		}
		var names []string
		page, err := g.List(t.Context(), mcpclient.Tools, func(raw json.RawMessage) error {
			var d struct{ Name string }
			names = append(names, d.Name)
			return json.Unmarshal(raw, &d)
		})
		if err != nil || len(names) < 7 || page.Truncated != "" {
			t.Errorf(`%v %v %v; want no error, len(names) at least 7, page.Truncated = ""`, names, page, err)
		}
		count := 0
		if _, err := g.List(t.Context(), mcpclient.Resources, func(json.RawMessage) error { count++; return nil }); err != nil || count != 1 {
			t.Errorf("%d resources, %v; want no error, count = 1", count, err)
		}
		if _, err := g.List(t.Context(), mcpclient.Templates, func(json.RawMessage) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

func TestCalls(t *testing.T) {
	onAll(t, func(t *testing.T, g *rig) {
		out, err := g.Call(t.Context(), tool("echo", `{"n":9007199254740993,"d":1.10}`))
		if err != nil {
			t.Fatal(err)
		}
		mustContain(t, out, `{\"n\":9007199254740993,\"d\":1.10}`)
		if out, err = g.Call(t.Context(), tool("fail", `{}`)); err != nil {
			t.Errorf("a tool's own error is a result: %v", err)
		}
		mustContain(t, out, `"isError":true`)
		_, err = g.Call(t.Context(), tool("nothing", `{}`))
		wantCode(t, err, capability.CodeInvalidInput, "upstream_invalid_params")
		_, err = g.Call(t.Context(), mcpclient.Request{Method: "no/such"})
		if code := capability.CodeOf(err); code != capability.CodeFailed {
			t.Errorf("%v; want code = capability.CodeFailed", err)
		}
		out, err = g.Call(t.Context(), mcpclient.Request{
			Method: "resources/read", Name: "test://a",
			Params: json.RawMessage(`{"uri":"test://a"}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		mustContain(t, out, `"text":"A"`)
	})
}

func TestManyCallsAtOnce(t *testing.T) {
	onAll(t, func(t *testing.T, g *rig) {
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				want := strings.Repeat(string(rune('a'+i%26)), 10+i)
				out, err := g.Call(t.Context(), tool("echo", `{"v":"`+want+`"}`))
				if err != nil || !strings.Contains(string(out), `\"`+want+`\"`) {
					t.Errorf("%s: %s %v; want no error, string(out) with `\\\"` + want + `\\\"`", want, out, err)
				}
			})
		}
		all.Wait()
	})
}

func TestProgressComesInOrderAndBeforeTheAnswer(t *testing.T) {
	onAll(t, func(t *testing.T, g *rig) {
		var got []capability.Chunk
		r := tool("steps", `{}`)
		r.Progress = func(c capability.Chunk) { got = append(got, c) }
		if _, err := g.Call(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if len(got) != 5 {
			t.Fatalf("%d chunks: %v; want len(got) = 5", len(got), got)
		}
		for i, c := range got {
			if c.Progress != float64(i+1) || c.Total != 5 || c.Stage != "" || !strings.HasPrefix(c.Message, "step ") {
				t.Errorf(`%d: %+v; want c.Progress = float64(i + 1), c.Total = 5, c.Stage = "", c.Message beginning with "step "`, i, c)
			}
		}
	}, "stateful JSON", "modern JSON") // which have no stream for it
}

func TestCancellationReachesTheServer(t *testing.T) {
	onAll(t, func(t *testing.T, g *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := g.Call(ctx, tool("wait", `{}`))
			done <- err
		}()
		if g.mark == "" {
			await(t, "start", g.marks.started)
		} else {
			until(t, "the mark of the call", func() bool { _, err := os.Stat(g.mark + ".begun"); return err == nil })
		}
		cancel()
		wantCode(t, await(t, "end of the call", done), capability.CodeCancelled, "")
		if g.mark == "" {
			await(t, "cancellation at the server", g.marks.cancelled)
			return
		}
		until(t, "the mark of the cancelled process", func() bool { _, err := os.Stat(g.mark); return err == nil })
	})
}

func TestElicitation(t *testing.T) {
	onAll(t, func(t *testing.T, g *rig) {
		ask := func(_ context.Context, q capability.Question) (json.RawMessage, error) {
			if q.Method != "elicitation/create" || !strings.Contains(string(q.Params), "your name?") {
				t.Errorf(`%s %s; want q.Method = "elicitation/create", string(q.Params) with "your name?"`, q.Method, q.Params)
			}
			return json.RawMessage(`{"action":"accept","content":{"name":"Ada"}}`), nil
		}
		r := tool("ask", `{}`)
		r.Ask = ask
		out, err := g.Call(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		mustContain(t, out, "accept Ada")

		r = tool("ask", `{}`)
		out, err = g.Call(t.Context(), r)
		if !g.server.Modern() {
			if err != nil {
				t.Fatal(err)
			}
			mustContain(t, out, "cancel") // no user to ask
			return
		}
		wantCode(t, err, capability.CodeApprovalRequired, capability.ReasonInputRequired)

		r.Relay = &capability.Relay{Capabilities: json.RawMessage(`{"elicitation":{"form":{}},"roots":{}}`)}
		out, err = g.Call(t.Context(), r)
		wantCode(t, err, capability.CodeApprovalRequired, capability.ReasonInputRequired)
		mustContain(t, out, `"requestState":"state-1"`)
		r.Relay.Responses = json.RawMessage(`{"name":{"action":"decline"}}`)
		r.Relay.State = json.RawMessage(`"state-1"`)
		if out, err = g.Call(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		mustContain(t, out, "decline")
	}, "stateful JSON")
}

func TestListChangesAreHeard(t *testing.T) {
	onAll(t, func(t *testing.T, g *rig) {
		// The stream of notices opens beside the calls: grow until a notification arrives.
		until(t, "a change of the tools", func() bool {
			if _, err := g.Call(t.Context(), tool("grow", `{}`)); err != nil {
				t.Fatal(err)
			}
			select {
			case l := <-g.changed:
				return l == mcpclient.Tools
			case <-time.After(200 * time.Millisecond): // the server waits for quiet before it tells
				return false
			}
		})
	})
}

func TestResourceSubscriptions(t *testing.T) {
	onAll(t, func(t *testing.T, g *rig) {
		uri := json.RawMessage(`{"uri":"test://a"}`)
		if _, err := g.Call(t.Context(), mcpclient.Request{Method: "resources/subscribe", Name: "test://a", Params: uri}); err != nil {
			t.Fatal(err)
		}
		until(t, "an update", func() bool {
			if _, err := g.Call(t.Context(), tool("touch", `{}`)); err != nil {
				t.Fatal(err)
			}
			select {
			case got := <-g.updated:
				return got == "test://a"
			default:
				return false
			}
		})
		if _, err := g.Call(t.Context(), mcpclient.Request{Method: "resources/unsubscribe", Name: "test://a", Params: uri}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAForgottenSessionIsRenewedWithinTheCall(t *testing.T) {
	for _, name := range []string{"stateful", "stateful 2025-03-26", "stateful JSON"} {
		t.Run(name, func(t *testing.T) {
			g := peers()[name](t)
			if _, err := g.Call(t.Context(), tool("echo", `{}`)); err != nil {
				t.Fatal(err)
			}
			g.forget()
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					if _, err := g.Call(t.Context(), tool("echo", `{}`)); err != nil {
						t.Errorf("%v", err)
					}
				})
			}
			all.Wait()
			seen := make(map[mcpclient.List]bool)
			for len(seen) < 4 {
				seen[await(t, "word that all may have changed", g.changed)] = true
			}
			g.forget()
			if _, err := g.List(t.Context(), mcpclient.Tools, func(json.RawMessage) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAProcessThatEnds(t *testing.T) {
	for _, name := range []string{"stdio modern", "stdio legacy"} {
		t.Run(name, func(t *testing.T) {
			g := peers()[name](t)
			waiting := make(chan error, 1)
			go func() {
				_, err := g.Call(t.Context(), tool("wait", `{}`))
				waiting <- err
			}()
			if _, err := g.Call(t.Context(), tool("echo", `{}`)); err != nil {
				t.Fatal(err)
			}
			_, err := g.Call(t.Context(), tool("exit", `{}`))
			wantCode(t, err, capability.CodeFailed, "connection_failed")
			wantCode(t, await(t, "end of the other call", waiting), capability.CodeFailed, "connection_failed")
			await(t, "word of the loss", g.down)
			_, err = g.Call(t.Context(), tool("echo", `{}`))
			wantCode(t, err, capability.CodeUnavailable, "connection_failed")
			g.connect(t)
			if _, err := g.Call(t.Context(), tool("echo", `{}`)); err != nil {
				t.Error(err)
			}
			mustContain(t, []byte(g.Stderr()), "with 2 variables")
		})
	}
}

// A call that was sent may have been carried out: a client that closes the connection as soon
// as it is lost does not turn that into something that may be sent again.
func TestAProcessThatEndsAndIsClosedAtOnce(t *testing.T) {
	for range 5 {
		g := peers()["stdio legacy"](t)
		waiting, begun := make(chan error, 50), make(chan capability.Chunk, 50)
		for range cap(waiting) {
			go func() {
				r := tool("wait", `{}`)
				r.Progress = func(c capability.Chunk) { begun <- c }
				_, err := g.Call(t.Context(), r)
				waiting <- err
			}()
		}
		for range cap(begun) {
			await(t, "begin of a call", begun)
		}
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			<-g.down
			g.Close()
		}()
		_, _ = g.Call(t.Context(), tool("exit", `{}`))
		for range cap(waiting) {
			if err := await(t, "end of a call", waiting); capability.CodeOf(err) != capability.CodeFailed {
				t.Fatalf("a call that was sent ends with %v; want capability.CodeOf(err) = capability.CodeFailed", err)
			}
		}
		await(t, "end", closed)
	}
}

func TestSubscriptionsOutliveTheirSession(t *testing.T) {
	g := peers()["stateful"](t)
	if _, err := g.Call(t.Context(), mcpclient.Request{
		Method: "resources/subscribe",
		Params: json.RawMessage(`{"uri":"test://a"}`),
	}); err != nil {
		t.Fatal(err)
	}
	g.forget()
	until(t, "an update in the new session", func() bool {
		if _, err := g.Call(t.Context(), tool("touch", `{}`)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-g.updated:
			return true
		case <-time.After(50 * time.Millisecond):
			return false
		}
	})
}
