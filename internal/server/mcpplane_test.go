package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/serve/stdiobridge"
	"github.com/junctor-run/junctor/secret"
)

// agentDoor is one way in which an agent uses MCP to the server. send returns all
// messages that answer one request, the response last; reply is given each request of
// the server and returns the members of the response to it.
type agentDoor struct {
	modern bool
	send   func(t *testing.T, method, name, params string, reply func(question string) string) []string
}

const modernMeta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}`

// body is a request of the era; params are its members, meta those of _meta.
func (d *agentDoor) body(id, method, params, meta string) string {
	if d.modern {
		meta = strings.TrimSuffix(modernMeta+","+meta, ",")
	}
	if meta != "" {
		meta = `"_meta":{` + meta + `}`
	}
	if params != "" && meta != "" {
		params += ","
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + meta + `}}`
}

const foreignMeta = `"a/b":{"n":9007199254740993,"z":1.10},"progressToken":"p"`

func (n *node) httpDoor(t *testing.T, modern bool) *agentDoor {
	t.Helper()
	d := &agentDoor{modern: modern}
	session := ""
	post := func(t *testing.T, ctx context.Context, body, method, name string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url+"/mcp", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range map[string]string{
			"Authorization": "Bearer " + n.token(t, "agent"), "Content-Type": "application/json",
			"Accept": "application/json, text/event-stream", "Mcp-Session-Id": session,
		} {
			if v != "" {
				req.Header.Set(k, v)
			}
		}
		if modern {
			req.Header.Set("Mcp-Protocol-Version", "2026-07-28")
			req.Header.Set("Mcp-Method", method)
			if name != "" {
				req.Header.Set("Mcp-Name", name)
			}
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	if !modern {
		resp := post(t, t.Context(), `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}}}`, "", "")
		resp.Body.Close()
		session = resp.Header.Get("Mcp-Session-Id")
	}
	d.send = func(t *testing.T, method, name, params string, reply func(string) string) (out []string) {
		t.Helper()
		resp := post(t, t.Context(), d.body("7", method, params, foreignMeta), method, name)
		defer resp.Body.Close()
		in := bufio.NewScanner(resp.Body)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			line := strings.TrimPrefix(in.Text(), "data: ")
			if !strings.HasPrefix(line, "{") {
				continue
			}
			out = append(out, line)
			var m struct{ ID, Method json.RawMessage }
			if json.Unmarshal([]byte(line), &m) == nil && m.ID != nil && m.Method != nil {
				post(t, t.Context(), `{"jsonrpc":"2.0","id":`+string(m.ID)+`,`+reply(line)+`}`, "", "").Body.Close()
			}
		}
		return out
	}
	return d
}

// stdioDoor is junctor mcp.
func (n *node) stdioDoor(t *testing.T, modern bool) *agentDoor {
	t.Helper()
	d := &agentDoor{modern: modern}
	inRead, in := io.Pipe()
	out, outWrite := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- stdiobridge.Run(context.WithoutCancel(t.Context()),
			stdiobridge.Config{In: inRead, Out: outWrite, URL: n.url, Token: secret.New(n.token(t, "agent"))})
		outWrite.Close()
	}()
	t.Cleanup(func() {
		in.Close()
		heardOf(t, "the end of the bridge", ended)
	})
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	write := func(t *testing.T, line string) {
		t.Helper()
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	if !modern {
		write(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}}}`)
		lines.Scan()
		write(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	d.send = func(t *testing.T, method, _, params string, reply func(string) string) (got []string) {
		t.Helper()
		write(t, d.body("7", method, params, foreignMeta))
		for lines.Scan() {
			line := lines.Text()
			var m struct{ ID, Method json.RawMessage }
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			switch {
			case m.Method == nil:
				return append(got, line)
			case m.ID != nil:
				got = append(got, line)
				write(t, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,`+reply(line)+`}`)
			case string(m.Method) == `"notifications/progress"`:
				got = append(got, line)
			}
		}
		t.Fatal("the bridge ended")
		return nil
	}
	return d
}

// plane is a server with the three kinds of raw upstreams and every way in.
func plane(t *testing.T) (n *node, ups map[string]*rawUpstream, doors map[string]*agentDoor) {
	t.Helper()
	ups = map[string]*rawUpstream{"old": newRawUpstream(false), "new": newRawUpstream(true)}
	urls := map[string]string{"old": ups["old"].start(t), "new": ups["new"].start(t)}
	n = serve(t, t.TempDir())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	records := map[string]map[string]any{
		"old": {"url": urls["old"], "private_network": true}, "new": {"url": urls["new"], "private_network": true},
		"pipe": {"command": []string{self}, "env": map[string]string{roleVariable: "rawstdio"}},
	}
	for name, record := range records {
		record["name"], record["hints_trusted"] = name, true
		if err := n.admin.Do(t.Context(), http.MethodPost, "/api/v1/upstreams", record, nil); err != nil {
			t.Fatalf("adding the upstream %s: %v", name, err)
		}
	}
	doors = map[string]*agentDoor{
		"legacy over HTTP": n.httpDoor(t, false), "modern over HTTP": n.httpDoor(t, true),
		"legacy over stdio": n.stdioDoor(t, false), "modern over stdio": n.stdioDoor(t, true),
	}
	return n, ups, doors
}

// TestBytesPassThePlane requires definitions, arguments and results to pass unchanged.
func TestBytesPassThePlane(t *testing.T) {
	t.Parallel()
	n, ups, doors := plane(t)
	for way, d := range doors {
		t.Run(way, func(t *testing.T) {
			list := strings.Join(d.send(t, "tools/list", "", "", nil), "")
			for _, up := range []string{"old", "new", "pipe"} {
				name := up + "__raw"
				if !strings.Contains(list, `"`+name+`"`) {
					t.Fatalf("%s is not in %s; want list with `\"` + name + `\"`", name, list)
				}
				for _, member := range rawMembers {
					if !strings.Contains(list, member) {
						t.Errorf("%s: %s did not arrive in %s; want list with %v", up, member, list, member)
					}
				}
				got := strings.Join(d.send(t, "tools/call", name, `"name":"`+name+`","arguments":`+rawArguments, nil), "")
				for _, part := range []string{rawResult, rawMeta} {
					if !strings.Contains(got, part) {
						t.Errorf("%s: %s did not come back in %s; want got with %v", up, part, got, part)
					}
				}
				if u := ups[up]; u != nil {
					sent := heardOf(t, "the call", u.calls)
					if !strings.Contains(sent, `"arguments":`+rawArguments) || !strings.Contains(sent, `"a/b":{"n":9007199254740993,"z":1.10}`) {
						t.Errorf("%s got %s; want sent with `\"arguments\":` + rawArguments, sent with "+
							`"\"a/b\":{\"n\":9007199254740993,\"z\":1.10}"`, up, sent)
					}
				}
			}
			if strings.Count(list, rawMeta) < 3 {
				t.Errorf("_meta of definitions: %s; want strings.Count(list, rawMeta) at least 3", list)
			}
		})
	}
	n.verify(t)
}

// TestQuestionsPassThePlane covers each era of caller with each era of provider.
func TestQuestionsPassThePlane(t *testing.T) {
	t.Parallel()
	n, _, doors := plane(t)
	const accepted = `{"action":"accept","content":{"n":9007199254740993}}`
	for way, d := range doors {
		for _, up := range []string{"old", "new"} {
			t.Run(way+" to "+up, func(t *testing.T) {
				name := up + "__ask"
				call := `"name":"` + name + `","arguments":{"p":1}`
				asked := 0
				out := d.send(t, "tools/call", name, call, func(question string) string {
					asked++
					if !strings.Contains(question, `[`+up+`] Which?`) {
						t.Errorf("the question does not say whose it is: %s; want question with `[` + up + `] Which?`", question)
					}
					return `"result":` + accepted
				})
				last := out[len(out)-1]
				if d.modern {
					var a struct {
						Result struct {
							InputRequests map[string]json.RawMessage
							RequestState  string
						}
					}
					if err := json.Unmarshal([]byte(last), &a); err != nil || len(a.Result.InputRequests) != 1 || a.Result.RequestState == "" {
						t.Fatalf(`%v %s; want no error, len(a.Result.InputRequests) = 1, a.Result.RequestState other than ""`,
							err, last)
					}
					for key, q := range a.Result.InputRequests {
						if !strings.Contains(string(q), `[`+up+`] Which?`) {
							t.Errorf("the question does not say whose it is: %s; want string(q) with `[` + up + `] Which?`", q)
						}
						out = d.send(t, "tools/call", name, call+`,"inputResponses":{"`+key+`":`+accepted+`},"requestState":"`+a.Result.RequestState+`"`, nil)
						last = out[len(out)-1]
					}
				} else if asked != 1 {
					t.Errorf("asked %d times; want asked = 1", asked)
				}
				if !strings.Contains(last, accepted) {
					t.Errorf("%s; want last with %v", last, accepted)
				}
			})
		}
	}
	n.verify(t)
}

// TestProgressPassesThePlane requires a provider's progress to reach the caller.
func TestProgressPassesThePlane(t *testing.T) {
	t.Parallel()
	_, _, doors := plane(t)
	for way, d := range doors {
		for _, up := range slices.Repeat([]string{"old", "new"}, 10) { // a provider as quick as these can be too early
			out := d.send(t, "tools/call", up+"__steps", `"name":"`+up+`__steps"`, nil)
			if len(out) != 4 {
				t.Errorf("%s to %s: %v; want len(out) = 4", way, up, out)
				continue
			}
			for i, notice := range out[:3] {
				if want := `"progressToken":"p","progress":` + string(rune('1'+i)); !strings.Contains(notice, want) {
					t.Errorf("%s to %s: %s has no %s; want notice with %v", way, up, notice, want, want)
				}
			}
		}
	}
}

// TestCancellingPassesThePlane covers cancellation by notification and by disconnecting.
func TestCancellingPassesThePlane(t *testing.T) {
	t.Parallel()
	n, ups, _ := plane(t)
	for _, modern := range []bool{false, true} {
		for _, up := range []string{"old", "new"} {
			ctx, leave := context.WithCancel(t.Context())
			d := &agentDoor{modern: modern}
			head := map[string]string{
				"Authorization": "Bearer " + n.token(t, "agent"), "Content-Type": "application/json",
				"Accept": "application/json, text/event-stream",
			}
			send := func(ctx context.Context, body string) (*http.Response, error) {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url+"/mcp", strings.NewReader(body))
				if err != nil {
					return nil, err
				}
				for k, v := range head {
					req.Header.Set(k, v)
				}
				return http.DefaultClient.Do(req)
			}
			if modern {
				head["Mcp-Protocol-Version"], head["Mcp-Method"], head["Mcp-Name"] = "2026-07-28", "tools/call", up+"__slow"
			} else {
				resp, err := send(t.Context(), `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				head["Mcp-Session-Id"] = resp.Header.Get("Mcp-Session-Id")
			}
			answered := make(chan string, 1)
			go func() {
				text := ""
				if resp, err := send(ctx, d.body("7", "tools/call", `"name":"`+up+`__slow"`, "")); err == nil {
					data, _ := io.ReadAll(resp.Body)
					resp.Body.Close()
					text = string(data)
				}
				answered <- text
			}()
			heardOf(t, "the call", ups[up].calls)
			began := time.Now()
			if modern {
				leave()
			} else if resp, err := send(t.Context(), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`); err == nil {
				resp.Body.Close()
			}
			heardOf(t, "the cancellation at "+up, ups[up].ends)
			t.Logf("modern %v to %s: %s", modern, up, time.Since(began).Round(time.Millisecond))
			if text := heardOf(t, "the end of the request", answered); strings.Contains(text, "result") || strings.Contains(text, "error") {
				t.Errorf(`sent after cancelling: %s; want text without "result", text without "error"`, text)
			}
			leave()
		}
	}
	n.verify(t)
}
