package mcpserve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/protocol/mcpwire"
	"github.com/junctor-run/junctor/secret"
)

func TestDoor(t *testing.T) {
	st := newStack(t, stackOptions{maxBody: 1 << 20})
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	wrong := secret.NewToken('a') // well formed, never created
	for name, c := range map[string]struct {
		r      reply
		status int
		text   string
	}{
		"no token":     {st.do("POST", "", list), 401, "unauthenticated"},
		"wrong token":  {st.do("POST", wrong, list), 401, "unauthenticated"},
		"unknown view": {st.doTo(st.url+"/other", "POST", st.agent, list), 404, "no view"},
		"too large":    {st.do("POST", st.agent, `{"a":"`+strings.Repeat("x", 5<<20)+`"}`), 413, "larger than"},
		"broken":       {st.do("POST", st.agent, `{"jsonrpc":"2.0",}`), 400, "byte 16"},
		"ends early":   {st.do("POST", st.agent, `{"jsonrpc":"2.0"`), 400, "-32700"},
		"duplicate":    {st.do("POST", st.agent, `{"id":1,"id":2}`), 400, "duplicate"},
		"nested duplicate": {
			st.do("POST", st.agent, `{"jsonrpc":"2.0","id":1,"method":"x","params":{"arguments":{"a":{"b":1,"b":2}}}}`), 400,
			"duplicate",
		},
		"not utf-8":       {st.do("POST", st.agent, "{\"a\":\"\xff\"}"), 400, "byte 6"},
		"trailing":        {st.do("POST", st.agent, list+" {}"), 400, "-32700"},
		"empty":           {st.do("POST", st.agent, ""), 400, "-32700"},
		"number":          {st.do("POST", st.agent, "1"), 400, "must be a JSON object"},
		"null id":         {st.do("POST", st.agent, `{"jsonrpc":"2.0","id":null,"method":"x"}`), 400, "id must be"},
		"version 1":       {st.do("POST", st.agent, `{"jsonrpc":"1.0","id":3,"method":"x"}`), 400, `"id":3`},
		"params array":    {st.do("POST", st.agent, `{"jsonrpc":"2.0","id":1,"method":"x","params":[1]}`), 400, "-32602"},
		"batch outside":   {st.do("POST", st.agent, "["+list+"]"), 400, "session"},
		"no session":      {st.do("POST", st.agent, list), 400, "initialize"},
		"get outside":     {st.do("GET", st.agent, ""), 405, "session"},
		"content type":    {st.do("POST", st.agent, list, "Content-Type", "text/plain"), 415, "application/json"},
		"unknown session": {st.do("POST", st.agent, list, mcpwire.HeaderSession, "none"), 404, "session not found"},
		"default view named": {
			st.doTo(st.url+"/default", "POST", st.agent, strings.Replace(initialize, "VERSION", mcpwire.Version20251125, 1)),
			200, "serverInfo",
		},
	} {
		if c.r.status != c.status || !strings.Contains(c.r.body, c.text) {
			t.Errorf("%s: %d %s; want %d %q", name, c.r.status, c.r.body, c.status, c.text)
		}
		if c.status == 401 && c.r.header.Get("WWW-Authenticate") == "" {
			t.Errorf(`%s: no WWW-Authenticate; want not (c.status == 401 && c.r.header.Get("WWW-Authenticate") == "")`, name)
		}
	}
}

func TestNegotiation(t *testing.T) {
	st := newStack(t, stackOptions{})
	for asked, got := range map[string]string{
		mcpwire.Version20251125: mcpwire.Version20251125, mcpwire.Version20250618: mcpwire.Version20250618,
		mcpwire.Version20250326: mcpwire.Version20250326,
		"2024-11-05":            mcpwire.Version20251125, "garbage": mcpwire.Version20251125, mcpwire.Version20260728: mcpwire.Version20251125,
	} {
		r := st.do("POST", st.agent, strings.Replace(initialize, "VERSION", asked, 1))
		// this surface does not have updates
		if r.status != 200 || !strings.Contains(r.body, `"protocolVersion":"`+got+`"`) || strings.Contains(r.body, "subscribe") {
			t.Errorf("%s: %d %s; want r.status = 200, r.body with `\"protocolVersion\":\"` + got + `\"`, r.body without \"subscribe\"",
				asked, r.status, r.body)
		}
	}
	r := st.do("POST", st.agent, strings.Replace(initialize, "VERSION", "2024-11-05", 1), mcpwire.HeaderVersion, "2024-11-05")
	if r.status != 200 {
		t.Errorf("old header: %d %s; want r.status = 200", r.status, r.body)
	}
}

func TestSessionsBelongToTheirPrincipal(t *testing.T) {
	st := newStack(t, stackOptions{})
	id := st.open(st.agent, mcpwire.Version20250618)
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	ping := `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	for _, body := range []string{list, ping} {
		if r := st.do("POST", st.agent, body, mcpwire.HeaderSession, id); r.status != 200 || r.decode(t).Error != nil {
			t.Errorf("own: %d %s; want r.status = 200, r.decode(t).Error = nil", r.status, r.body)
		}
	}
	unknown := st.do("POST", st.agent2, list, mcpwire.HeaderSession, "unknown")
	for _, method := range []string{"POST", "GET", "DELETE"} {
		if r := st.do(method, st.agent2, list, mcpwire.HeaderSession, id); r.status != 404 || r.body != unknown.body {
			t.Errorf("foreign %s: %d %s; want r.status = 404, r.body = %v", method, r.status, r.body, unknown.body)
		}
	}
	if r := st.do("DELETE", st.agent, "", mcpwire.HeaderSession, id); r.status != 204 {
		t.Errorf("delete: %d %s; want r.status = 204", r.status, r.body)
	}
	for _, body := range []string{list, ping} {
		if r := st.do("POST", st.agent, body, mcpwire.HeaderSession, id); r.status != 404 {
			t.Errorf("after delete: %d %s; want r.status = 404", r.status, r.body)
		}
	}
	if len(st.surface.sessions) != 0 {
		t.Errorf("the table still holds the session; got len(st.surface.sessions) = %v; want len(st.surface.sessions) = 0",
			len(st.surface.sessions))
	}
}

func TestIdleSessionsExpire(t *testing.T) {
	st := newStack(t, stackOptions{})
	id := st.open(st.agent, mcpwire.Version20250618)
	later := time.Now().Add(2 * sessionIdleTimeout)
	st.surface.mu.Lock()
	st.surface.now = func() time.Time { return later }
	st.surface.mu.Unlock()
	st.surface.expire()
	if r := st.do("POST", st.agent, `{"jsonrpc":"2.0","id":2,"method":"ping"}`, mcpwire.HeaderSession, id); r.status != 404 {
		t.Errorf("%d %s; want r.status = 404", r.status, r.body)
	}
	if len(st.surface.viewers) != 0 {
		t.Errorf("a viewer without use is kept; got len(st.surface.viewers) = %v; want len(st.surface.viewers) = 0",
			len(st.surface.viewers))
	}
}

// call makes a tools/call in both eras and hands each answer to check.
func (st *stack) call(name, arguments string, check func(t *testing.T, r reply, a answer, modern bool)) {
	t := st.t.(*testing.T)
	t.Helper()
	rest := fmt.Sprintf(`"name":%q,`, name)
	if arguments != "" {
		rest += `"arguments":` + arguments + `,`
	}
	id := st.open(st.agent, mcpwire.Version20250618)
	t.Run(name+" legacy", func(t *testing.T) {
		r := st.do("POST", st.agent, `{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{`+strings.TrimSuffix(rest, ",")+`}}`,
			mcpwire.HeaderSession, id)
		check(t, r, r.decode(t), false)
	})
	t.Run(name+" modern", func(t *testing.T) {
		r := st.modern(st.agent, "tools/call", name, rest)
		check(t, r, r.decode(t), true)
	})
}

func TestBytesSurvive(t *testing.T) {
	st := newStack(t, stackOptions{})
	arguments := `{"z":9007199254740993,"a":1.10,"e":1e400,"n":"\u0000","s":"\ud800","w": [ 1 ],"o":{"b":1,"a":2},"u":"ü\/"}`
	st.call("echo", arguments, func(t *testing.T, r reply, a answer, modern bool) {
		if string(a.Result.StructuredContent) != arguments || a.Result.Content[0].Text != arguments {
			t.Errorf("changed: %s; want string(a.Result.StructuredContent) = %v, a.Result.Content[0].Text = %v",
				r.body, arguments, arguments)
		}
		if !strings.Contains(r.body, `"structuredContent":`+arguments) {
			t.Errorf("not the same bytes: %s; want r.body with `\"structuredContent\":` + arguments", r.body)
		}
		if modern != (a.Result.ResultType == "complete") || modern != strings.Contains(
			string(a.Result.Meta["io.modelcontextprotocol/serverInfo"]), `"junctor"`) {
			t.Errorf("wrong era: %s", r.body)
		}
	})
	st.call("plainscalar", `{"a":1}`, func(t *testing.T, r reply, a answer, _ bool) {
		if a.Result.Content[0].Text != `{"a":1}` {
			t.Errorf("r.body = %v, want a.Result.Content[0].Text == `{\"a\":1}`", r.body)
		}
	})
	st.call("echo", "", func(t *testing.T, r reply, a answer, _ bool) {
		if a.Result.Content[0].Text != `{}` {
			t.Errorf("r.body = %v, want a.Result.Content[0].Text == `{}`", r.body)
		}
	})
}

func TestFailures(t *testing.T) {
	st := newStack(t, stackOptions{})
	var unknown string
	protocolError := func(code, status int, text string) func(*testing.T, reply, answer, bool) {
		return func(t *testing.T, r reply, a answer, modern bool) {
			want := status
			if !modern {
				want = 200
			}
			if a.Error == nil || a.Error.Code != code || r.status != want || !strings.Contains(a.Error.Message, text) {
				t.Errorf("%d %s; want a.Error not nil, a.Error.Code = %v, r.status = %v, a.Error.Message with %v",
					r.status, r.body, code, want, text)
			}
			unknown = r.body
		}
	}
	toolError := func(code, text string) func(*testing.T, reply, answer, bool) {
		return func(t *testing.T, r reply, a answer, _ bool) {
			if !a.Result.IsError || r.status != 200 || !strings.Contains(string(a.Result.Meta["junctor/error"]), `"code":"`+code+`"`) ||
				!strings.Contains(a.Result.Content[0].Text, text) {
				t.Errorf(`%d %s; want a.Result.IsError = true, r.status = 200, string(a.Result.Meta["junctor/error"]) with `+
					"`\"code\":\"` + code + `\"`, a.Result.Content[0].Text with %v", r.status, r.body, text)
			}
		}
	}
	st.call("nothing", `{}`, protocolError(-32602, 400, `unknown tool "nothing"`))
	absent := unknown
	st.call("hidden", `{}`, protocolError(-32602, 400, `unknown tool "hidden"`))
	if strings.ReplaceAll(unknown, "hidden", "nothing") != absent || absent == "" {
		t.Errorf(`%s and %s tell them apart; want strings.ReplaceAll(unknown, "hidden", "nothing") = %v, absent other than ""`,
			unknown, absent, absent)
	}
	st.call("echo", `[1]`, protocolError(-32602, 400, "object"))
	st.call("broken", `{}`, func(t *testing.T, r reply, a answer, _ bool) {
		if a.Error == nil || a.Error.Code != -32603 || !strings.Contains(a.Error.Message, "run_") || strings.Contains(r.body, "on purpose") {
			t.Errorf(`r.body = %v, want a.Error != nil && a.Error.Code == -32603 && strings.Contains(a.Error.Message, "run_") && !strings.Contains(r.body, "on purpose")`, r.body)
		}
	})
	st.call("checked", `{"n":"x"}`, toolError("invalid_input", "n: is string"))
	st.call("fails", `{}`, toolError("failed", "the disk is full\nmake room"))
	st.call("big", `{}`, toolError("too_large", "1048576"))
	st.call("down", `{}`, toolError("unavailable", "asleep"))
	st.call("scalar", `{}`, toolError("failed", "9007199254740993"))
	st.call("fs_writeText", `{"path":"x","text":"y","selector":{"endpoint":"a"}}`,
		toolError("approval_required", "junctor approvals approve apr_"))
	st.call("fs_readText", `{"path":"x","selector":{"endpoint":"zzz"}}`, toolError("not_found", "selector.endpoint to one of: a, b"))
	st.call("fs_readText", `{"path":"x","selector":"a"}`, toolError("invalid_input", "selector"))
	st.call("fs_readText", `{"path":"x","selector":{"endpoint":"b"}}`, func(t *testing.T, r reply, a answer, _ bool) {
		if string(a.Result.StructuredContent) != `{"provider":"fs:endpoint:b","input":{"path":"x"}}` {
			t.Errorf("r.body = %v, want string(a.Result.StructuredContent) == `{\"provider\":\"fs:endpoint:b\",\"input\":{\"path\":\"x\"}}`", r.body)
		}
	})
}

func TestList(t *testing.T) {
	st := newStack(t, stackOptions{})
	a := st.modern(st.agent, "tools/list", "", "").decode(t)
	var names []string
	for _, tool := range a.Result.Tools {
		names = append(names, tool.Name)
		schema := string(tool.InputSchema)
		switch tool.Name {
		case "fs_readText", "fs_writeText":
			var s struct {
				Properties map[string]struct {
					Properties map[string]struct{ Enum []string }
				}
				Required []string
			}
			ok(t, json.Unmarshal(tool.InputSchema, &s))
			if got := s.Properties["selector"].Properties["endpoint"].Enum; !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf(`%s: %s; want got = []string{"a", "b"}`, tool.Name, schema)
			}
			if s.Properties["path"].Properties == nil && !strings.Contains(schema, `"path"`) {
				t.Errorf(`%s lost its own properties: %s; want not (s.Properties["path"].Properties == nil && `+
					"!strings.Contains(schema, `\"path\"`))", tool.Name, schema)
			}
		case "fs_list":
			if strings.Contains(schema, "selector") || tool.Meta["junctor/provider"] != "fs:endpoint:a" || tool.Meta["junctor/action"] != "fs.list" {
				t.Errorf(`fs_list: %s %v; want schema without "selector", tool.Meta["junctor/provider"] = "fs:endpoint:a", `+
					`tool.Meta["junctor/action"] = "fs.list"`, schema, tool.Meta)
			}
		case "echo":
			if schema != `{"type":"object"}` || tool.Annotations["readOnlyHint"] != true {
				t.Errorf(`echo: %s %v; want schema = "{\"type\":\"object\"}", tool.Annotations["readOnlyHint"] = true`,
					schema, tool.Annotations)
			}
		}
	}
	if !slices.IsSorted(names) || slices.Contains(names, "hidden") || slices.Contains(names, "down") || slices.Contains(names, "listless") ||
		!slices.Contains(names, "echo") {
		t.Errorf(`names = %v, want slices.IsSorted(names) && !slices.Contains(names, "hidden") && !slices.Contains(names, "down") && !slices.Contains(names, "listless") && slices.Contains(names, "echo")`, names)
	}
	if a.Result.TTLMs == nil || *a.Result.TTLMs != 5000 || a.Result.CacheScope != "private" || a.Result.ResultType != "complete" ||
		a.Result.NextCursor != nil {
		t.Errorf(`%+v; want a.Result.TTLMs not nil, *a.Result.TTLMs = 5000, a.Result.CacheScope = "private", `+
			`a.Result.ResultType = "complete", a.Result.NextCursor = nil`, a.Result)
	}
	id := st.open(st.agent, mcpwire.Version20251125)
	r := st.do("POST", st.agent, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, mcpwire.HeaderSession, id)
	if strings.Contains(r.body, "ttlMs") || strings.Contains(r.body, "resultType") || len(r.decode(t).Result.Tools) != len(names) {
		t.Errorf(`r.body = %v, want !strings.Contains(r.body, "ttlMs") && !strings.Contains(r.body, "resultType") && len(r.decode(t).Result.Tools) == len(names)`, r.body)
	}
}

func TestPages(t *testing.T) {
	st := newStack(t, stackOptions{pageSize: 4})
	all := len(st.surface.listOf(caller{who: st.principal(), key: "x", view: newView(defaultView, View{})}).names)
	var names []string
	rest := ""
	var cursor string
	for {
		a := st.modern(st.agent, "tools/list", "", rest).decode(t)
		for _, tool := range a.Result.Tools {
			names = append(names, tool.Name)
		}
		if a.Result.NextCursor == nil {
			break
		}
		if len(a.Result.Tools) != 4 {
			t.Fatalf("a page of %d; want len(a.Result.Tools) = 4", len(a.Result.Tools))
		}
		cursor = *a.Result.NextCursor
		rest = fmt.Sprintf(`"cursor":%q,`, cursor)
	}
	if len(names) != all || !slices.IsSorted(names) {
		t.Errorf("%d of %d: %v; want len(names) = %v, slices.IsSorted(names)", len(names), all, names, all)
	}
	flipped := []byte(cursor)
	flipped[len(flipped)-3] ^= 1
	for _, bad := range []string{`"x"`, `""`, `7`, fmt.Sprintf("%q", flipped), fmt.Sprintf("%q", cursor[:10])} {
		if r := st.modern(st.agent, "tools/list", "", `"cursor":`+bad+`,`); r.status != 400 || r.decode(t).Error.Code != -32602 {
			t.Errorf("%s: %d %s; want r.status = 400, r.decode(t).Error.Code = -32602", bad, r.status, r.body)
		}
	}
	if r := st.modern(st.agent2, "tools/list", "", fmt.Sprintf(`"cursor":%q,`, cursor)); r.status != 400 {
		t.Errorf("another's cursor: %d %s; want r.status = 400", r.status, r.body)
	}
}

func TestModernRules(t *testing.T) {
	st := newStack(t, stackOptions{})
	list := modernBody("tools/list", "")
	version := func(v string) string { return strings.Replace(list, mcpwire.Version20260728, v, 1) }
	h := func(v, m string) []string { return []string{mcpwire.HeaderVersion, v, mcpwire.HeaderMethod, m} }
	for name, c := range map[string]struct {
		body    string
		headers []string
		status  int
		code    int
	}{
		"no version header": {list, []string{mcpwire.HeaderMethod, "tools/list"}, 400, -32020},
		"no method header":  {list, []string{mcpwire.HeaderVersion, mcpwire.Version20260728}, 400, -32020},
		"other method":      {list, h(mcpwire.Version20260728, "tools/call"), 400, -32020},
		"other version":     {version("2026-07-29"), h(mcpwire.Version20260728, "tools/list"), 400, -32020},
		"unknown version":   {version("2099-01-01"), h("2099-01-01", "tools/list"), 400, -32022},
		"legacy version":    {version(mcpwire.Version20251125), h(mcpwire.Version20251125, "tools/list"), 400, -32022},
		"no meta":           {`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, h(mcpwire.Version20260728, "tools/list"), 400, -32602},
		"no capabilities":   {strings.Replace(list, "clientCapabilities", "other", 1), h(mcpwire.Version20260728, "tools/list"), 400, -32602},
		"no name header":    {modernBody("tools/call", `"name":"echo",`), h(mcpwire.Version20260728, "tools/call"), 400, -32020},
		"other name": {
			modernBody("tools/call", `"name":"echo",`),
			append(h(mcpwire.Version20260728, "tools/call"), mcpwire.HeaderName, "slow"), 400, -32020,
		},
		"bad base64": {
			modernBody("tools/call", `"name":"echo",`),
			append(h(mcpwire.Version20260728, "tools/call"), mcpwire.HeaderName, "=?base64?!?="), 400, -32020,
		},
		"wrapped name": {
			modernBody("tools/call", `"name":"echo",`),
			append(h(mcpwire.Version20260728, "tools/call"), mcpwire.HeaderName, "=?base64?ZWNobw==?="), 200, 0,
		},
		"initialize":          {modernBody("initialize", ""), h(mcpwire.Version20260728, "initialize"), 404, -32601},
		"ping":                {modernBody("ping", ""), h(mcpwire.Version20260728, "ping"), 404, -32601},
		"unknown method":      {modernBody("tools/none", ""), h(mcpwire.Version20260728, "tools/none"), 404, -32601},
		"discover":            {modernBody("server/discover", ""), h(mcpwire.Version20260728, "server/discover"), 200, 0},
		"good":                {list, h(mcpwire.Version20260728, "tools/list"), 200, 0},
		"unknown, no meta":    {`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, h("2099-01-01", "tools/list"), 400, -32022},
		"response is nothing": {`{"jsonrpc":"2.0","id":1,"result":{}}`, h(mcpwire.Version20260728, "x"), 400, -32600},
	} {
		r := st.do("POST", st.agent, c.body, c.headers...)
		a := r.decode(t)
		code := 0
		if a.Error != nil {
			code = a.Error.Code
		}
		if r.status != c.status || code != c.code || len(a.ID) == 0 || string(a.ID) == "null" {
			t.Errorf("%s: %d %s; want %d %d", name, r.status, r.body, c.status, c.code)
		}
		if code == -32022 && (!strings.Contains(string(a.Error.Data), `"supported":["2026-07-28"`) ||
			!strings.Contains(string(a.Error.Data), `"requested":"20`)) {
			t.Errorf("%s: %s", name, a.Error.Data)
		}
		if name == "discover" && (!strings.Contains(r.body, `"cacheScope":"private"`) || !strings.Contains(r.body, mcpwire.Version20250326) ||
			strings.Contains(r.body, "2024")) {
			t.Errorf("discover: %s", r.body)
		}
	}
	if r := st.do("POST", st.agent, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, mcpwire.HeaderVersion,
		mcpwire.Version20260728); r.status != http.StatusAccepted {
		t.Errorf("notification: %d %s; want r.status = http.StatusAccepted", r.status, r.body)
	}
}

func TestBatch(t *testing.T) {
	st := newStack(t, stackOptions{})
	batch := `[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"n":9007199254740993}}},{"jsonrpc":"2.0","id":2,"method":"tools/list"},{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"hidden"}}]`
	id := st.open(st.agent, mcpwire.Version20250326)
	r := st.do("POST", st.agent, batch, mcpwire.HeaderSession, id)
	if r.status != 200 || !strings.Contains(r.body, `"n":9007199254740993`) || !strings.Contains(r.body, `"name":"fs_list"`) ||
		!strings.Contains(r.body, `unknown tool`) || strings.Contains(r.body, hidden) {
		t.Errorf(`%d %s; want r.status = 200, r.body with "\"n\":9007199254740993", r.body with "\"name\":\"fs_list\"", r.body `+
			`with "unknown tool", r.body without %v`, r.status, r.body, hidden)
	}
	id = st.open(st.agent, mcpwire.Version20250618)
	if r := st.do("POST", st.agent, batch, mcpwire.HeaderSession, id); r.status != 400 {
		t.Errorf("%d %s; want r.status = 400", r.status, r.body)
	}
}

// TestUnknownMethodsOfASession holds that a session answers an unknown request with the code
// that JSON-RPC has for it, as a server that is asked directly does, and ignores an unknown
// notification.
func TestUnknownMethodsOfASession(t *testing.T) {
	st := newStack(t, stackOptions{})
	for _, version := range mcpwire.Versions()[1:] {
		session := st.open(st.agent, version)
		h := []string{mcpwire.HeaderSession, session, mcpwire.HeaderVersion, version}
		for _, method := range []string{
			"tools/none", "x", "tasks/list", "sampling/createMessage", "server/discover", "subscriptions/listen", "notifications/initialized",
		} {
			r := st.do("POST", st.agent, fmt.Sprintf(`{"jsonrpc":"2.0","id":"u","method":%q,"params":{}}`, method), h...)
			if a := r.decode(t); r.status != 200 || a.Error == nil || a.Error.Code != -32601 || string(a.ID) != `"u"` {
				t.Errorf("%s %s = %d %s, want 200 and -32601", version, method, r.status, r.body)
			}
		}
		if r := st.do("POST", st.agent, `{"jsonrpc":"2.0","method":"notifications/none"}`, h...); r.status != 202 || r.body != "" {
			t.Errorf("%s unknown notification = %d %q, want 202 and no body", version, r.status, r.body)
		}
		for _, known := range []string{
			`"method":"ping"`, `"method":"logging/setLevel","params":{"level":"error"}`,
		} {
			if r := st.do("POST", st.agent, `{"jsonrpc":"2.0","id":1,`+known+`}`, h...); r.status != 200 || r.decode(t).Error != nil {
				t.Errorf("%s %s = %d %s, want a result", version, known, r.status, r.body)
			}
		}
	}
}
