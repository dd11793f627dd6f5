package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/secret"
)

// answer is what a raw request got.
type answer struct {
	status int
	header http.Header
	body   string
}

// code is the error's code in any of the forms our doors have.
func (a answer) code() string {
	var form struct {
		Error json.RawMessage
		Code  string
	}
	_ = json.Unmarshal([]byte(a.body), &form)
	var inner struct {
		Code    string
		Details struct{ Code string }
	}
	_ = json.Unmarshal(form.Error, &inner)
	switch {
	case inner.Details.Code != "":
		return inner.Details.Code
	case inner.Code != "":
		return inner.Code
	}
	return form.Code
}

// request sends raw bytes with a token; edit may change the request.
func (n *node) request(t testing.TB, method, path, token, body string, edit ...func(*http.Request)) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, n.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for _, f := range edit {
		f(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{resp.StatusCode, resp.Header, string(data)}
}

// doors are one request per door and kind of route, each good with the admin's
// token.
func doors() [][3]string {
	return [][3]string{
		{"POST", "/api/v1/invocations", `{"target":"fs.list"}`},
		{"GET", "/api/v1/catalog/agent", ""},
		{"GET", "/api/v1/catalog/internal", ""},
		{"GET", "/api/v1/status", ""},
		{"GET", "/api/v1/tokens", ""},
		{"GET", "/api/v1/secrets", ""},
		{"GET", "/api/v1/grants", ""},
		{"GET", "/api/v1/confirmations", ""},
		{"GET", "/api/v1/audit", ""},
		{"GET", "/api/v1/audit/verify", ""},
		{"GET", "/api/v1/doctor", ""},
		{"GET", "/api/v1/modules", ""},
		{"GET", "/api/v1/extensions", ""},
		{"GET", "/api/v1/extensions/doctor", ""},
		{"GET", "/api/v1/chat/slash-commands", ""},
		{"GET", "/v1/capabilities", ""},
		{"POST", "/v1/capabilities/invoke", `{"method":"fs.list","params":{}}`},
		{"GET", "/api/capability-router/endpoints", ""},
		{"POST", "/api/capability-router/sync", ""},
		{"POST", "/a2a", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"x"}}`},
		{"POST", "/a2a/message:send", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}`},
		{"GET", "/a2a/tasks", ""},
		{"GET", "/api/v1/tasks", ""},
		{"GET", "/api/v1/upstreams", ""},
	}
}

func TestDoorsWantAToken(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	admin := n.token(t, "admin")
	var made struct{ ID, Token string }
	if err := n.admin.Do(t.Context(), "POST", "/api/v1/tokens", map[string]any{"role": "admin", "name": "gone"}, &made); err != nil {
		t.Fatal(err)
	}
	if err := n.admin.Do(t.Context(), "DELETE", "/api/v1/tokens/gone", nil, nil); err != nil {
		t.Fatal(err)
	}
	foreign := secret.NewToken('a')
	for _, d := range append(doors(), [3]string{"GET", "/api/v1/no/such/path", ""}, [3]string{"GET", "/v1/capabilities/assets/x/y", ""},
		[3]string{"POST", "/api/capability-router/connect", "{}"}) {
		var texts []string
		for name, token := range map[string]string{
			"none": "", "misspelt": admin + "x", "of another server": foreign, "revoked": made.Token,
			"nonsense": "\"' OR 1=1",
		} {
			a := n.request(t, d[0], d[1], token, d[2])
			if a.status != http.StatusUnauthorized || a.code() != "unauthenticated" ||
				!strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf(`%s %s, token %s: %d %s; want a.status = http.StatusUnauthorized, a.code() = "unauthenticated", `+
					`a.header.Get("WWW-Authenticate") beginning with "Bearer"`, d[0], d[1], name, a.status, a.body)
			}
			if name == "of another server" || name == "revoked" {
				texts = append(texts, a.body)
			}
		}
		if texts[0] != texts[1] {
			t.Errorf("%s %s tells a revoked token from an unknown one:\n%s\n%s\nwant texts[0] = texts[1]",
				d[0], d[1], texts[0], texts[1])
		}
		// Tokens in the query are not read: they would end up in logs.
		if a := n.request(t, d[0], d[1]+"?token="+admin, "", d[2]); a.status != http.StatusUnauthorized {
			t.Errorf("%s %s takes a token from the query; want a.status = http.StatusUnauthorized", d[0], d[1])
		}
	}
	for _, d := range doors() {
		if a := n.request(t, d[0], d[1], admin, d[2]); a.status != http.StatusOK {
			t.Errorf("%s %s with the admin's token: %d %s; want a.status = http.StatusOK", d[0], d[1], a.status, a.body)
		}
	}
}

func TestDoorsWantTheRole(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	open := map[string]bool{
		"/api/v1/invocations": true, "/api/v1/catalog/agent": true, "/api/v1/status": true, "/api/v1/extensions": true,
		"/api/v1/chat/slash-commands": true, "/v1/capabilities": true, "/v1/capabilities/invoke": true,
	}
	for _, own := range []string{"/a2a", "/a2a/message:send", "/a2a/tasks", "/api/v1/tasks"} { // everybody has tasks of their own
		open[own] = true
	}
	for _, d := range doors() {
		want := http.StatusForbidden
		if open[d[1]] {
			want = http.StatusOK
		}
		if a := n.request(t, d[0], d[1], n.token(t, "agent"), d[2]); a.status != want {
			t.Errorf("%s %s as an agent: %d, want %d: %s", d[0], d[1], a.status, want, a.body)
		}
	}
	// The principal is that of the token, whatever the payload claims.
	for _, claim := range []string{`"principal":"admin:local-admin"`, `"role":"admin"`} {
		if a := n.request(t, "POST", "/api/v1/invocations", n.token(t, "agent"), `{"target":"fs.list",`+claim+
			`}`); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s; want a.status = http.StatusBadRequest", claim, a.status, a.body)
		}
	}
}

func TestBadBodies(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	big := `{"target":"` + strings.Repeat("x", 5<<20) + `"}`
	const invocations, connect, wire = "/api/v1/invocations", "/api/capability-router/connect", "/v1/capabilities/invoke"
	for _, c := range []struct {
		name, path, body string
		status           int
		code             string
		holds            string
	}{
		{"large", invocations, big, 413, "too_large", ""},
		{"large", connect, big, 413, "too_large", ""},
		{"large", wire, big, 413, "too_large", ""},
		{"large", "/api/v1/tokens", big, 413, "too_large", ""},
		{"broken", invocations, `{"target": xs}`, 400, "invalid_input", `"offset":11`},
		{"broken", connect, `{"endpoint": }`, 400, "invalid_input", `"offset":13`},
		{"broken", "/api/v1/tokens", `{"role"`, 400, "invalid_input", `"offset":7`},
		{"broken", "/api/v1/grants", `nope`, 400, "invalid_input", `"offset":`},
		{"broken", wire, `{"method": fs}`, 0, "invalid_input", "11"},
		{"empty", invocations, ``, 400, "invalid_input", ""},
		{"empty", connect, ``, 400, "invalid_input", ""},
		{"empty", wire, ``, 0, "invalid_input", ""},
		{"array", invocations, `[]`, 400, "invalid_input", ""},
		{"array", invocations, `{"target":["fs.list"]}`, 400, "invalid_input", "/target"},
		{"array", connect, `{"endpoint":[]}`, 400, "invalid_input", "/endpoint"},
		{"array", connect, `{"endpoint":{"baseUrl":[]}}`, 400, "invalid_input", "/endpoint/baseUrl"},
		{"array", wire, `[]`, 0, "invalid_input", ""},
		{"array", wire, `{"method":"fs.list","params":[]}`, 200, "", `"entries"`}, // an array counts as {}
		{"twice", invocations, `{"target":"fs.list","target":"fs.list"}`, 400, "invalid_input", `"offset":20`},
		{"more than one", invocations, `{"target":"fs.list"}{}`, 400, "invalid_input", "offset"},
		{"unknown field", invocations, `{"target":"fs.list","bogus":1}`, 400, "invalid_input", "bogus"},
		{"unknown field", "/api/v1/tokens", `{"role":"agent","bogus":1}`, 400, "invalid_input", "bogus"},
		{"unknown field", wire, `{"method":"fs.list","params":{},"bogus":1}`, 200, "", `"entries"`},
		{
			"deep", invocations, `{"target":"fs.list","input":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, 400,
			"invalid_input", "",
		},
		{"not UTF-8", invocations, "{\"target\":\"\xff\"}", 400, "invalid_input", ""},
	} {
		t.Run(c.name+" "+c.path, func(t *testing.T) {
			a := n.request(t, "POST", c.path, n.token(t, "admin"), c.body)
			if (c.status != 0 && a.status != c.status) || a.code() != c.code || !strings.Contains(a.body, c.holds) {
				t.Errorf("%d %s, want %d %s with %q", a.status, a.body, c.status, c.code, c.holds)
			}
			if c.status == 0 && a.status != 200 && a.status != 400 {
				t.Errorf("status %d; want not (c.status == 0 && a.status != 200 && a.status != 400)", a.status)
			}
		})
	}
}

// TestWrongVerb: the path exists, so the answer states which methods it takes.
func TestWrongVerb(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	for path, allow := range map[string]string{
		"/api/v1/invocations":               "GET, HEAD, POST",
		"/api/v1/tokens":                    "GET, HEAD, POST",
		"/api/v1/tokens/x":                  "DELETE",
		"/api/capability-router/connect":    "POST",
		"/api/capability-router/endpoints":  "GET, HEAD",
		"/healthz":                          "GET, HEAD",
		"/api/capability-router/endpoints/": "",
		"/api/v1/nothing":                   "",
		"/nothing":                          "",
	} {
		a := n.request(t, "PATCH", path, n.token(t, "admin"), "{}")
		want := http.StatusMethodNotAllowed
		if allow == "" {
			want = http.StatusNotFound
		}
		if a.status != want || a.header.Get("Allow") != allow || a.code() != "not_found" {
			t.Errorf(`PATCH %s: %d, Allow %q: %s; want a.status = %v, a.header.Get("Allow") = %v, a.code() = "not_found"`,
				path, a.status, a.header.Get("Allow"), a.body, want, allow)
		}
	}
	if a := n.request(t, "PATCH", "/api/v1/invocations", "", ""); a.status != http.StatusUnauthorized {
		t.Errorf("PATCH without a token: %d; want a.status = http.StatusUnauthorized", a.status)
	}
}

// TestInvisibleIsUnknown compares, byte for byte, what an agent is told about
// something it may not see and about something that is not there.
func TestInvisibleIsUnknown(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	dir := filepath.Join(home, "policy")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	hide := `@id("hide") forbid (principal in Role::"agent", action == Action::"ext.remote.trial.action.PING", resource);`
	if err := os.WriteFile(filepath.Join(dir, "all.cedar"), []byte(policy.DefaultRules()+hide), 0o600); err != nil {
		t.Fatal(err)
	}
	n := serve(t, home)
	n.connect(t, "far", spawn(t, "endpoint", nil, "127.0.0.1:0", "trial").first, false)
	token := n.token(t, "agent")
	if a := n.request(t, "POST", "/api/v1/invocations", n.token(t, "admin"), `{"target":"trial:action:PING"}`); a.status != 200 {
		t.Fatalf("the admin does not reach it: %d %s; want a.status = 200", a.status, a.body)
	}
	own := regexp.MustCompile(`run_[0-9a-f]{24}|"at":"[^"]*"|"duration_ms":[0-9.e-]+`)
	for _, c := range [][3]string{
		{"POST", "/api/v1/invocations", `{"target":"trial:action:%s"}`},
		{"POST", "/api/v1/invocations", `{"target":"ext.remote.trial.action.%s"}`},
		{"POST", "/api/v1/invocations", `{"target":"trial:action:%s","dry_run":true}`},
		{"GET", "/api/v1/catalog/explain?action=trial:action:%s", ""},
		{"POST", "/v1/capabilities/invoke", `{"method":"plugin.action.invoke","params":{"moduleId":"trial","action":"%s","content":{}}}`},
	} {
		var got [2]answer
		for i, name := range []string{"PING", "NOPE"} {
			fill := func(s string) string { return strings.ReplaceAll(s, "%s", name) }
			got[i] = n.request(t, c[0], fill(c[1]), token, fill(c[2]))
			got[i].body = own.ReplaceAllString(strings.ReplaceAll(got[i].body, name, "NAME"), "")
		}
		if got[0].body != got[1].body || got[0].status != got[1].status {
			t.Errorf("%s %s tells them apart:\n%d %s\n%d %s\nwant got[0].body = got[1].body, got[0].status = got[1].status",
				c[1], c[2], got[0].status, got[0].body, got[1].status, got[1].body)
		}
		if strings.Contains(got[0].body, "pong") {
			t.Errorf(`%s reaches what is hidden; want got[0].body without "pong"`, c[1])
		}
	}
}

// TestFilesStayInTheirRoot tries to leave the root through every door.
func TestFilesStayInTheirRoot(t *testing.T) {
	t.Parallel()
	home, outside := t.TempDir(), t.TempDir()
	n := serve(t, home)
	root := filepath.Join(home, "files")
	target := filepath.Join(outside, "secret.txt")
	for path, text := range map[string]string{target: "outside", filepath.Join(root, "inside.txt"): "inside"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"dir": outside, "file": target, "up": "..", "new": filepath.Join(outside, "new.txt")} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	token := n.token(t, "admin")
	call := func(door, action, input string) answer {
		if door == "wire" {
			return n.request(t, "POST", "/v1/capabilities/invoke", token, fmt.Sprintf(`{"method":%q,"params":%s}`, action, input))
		}
		return n.request(t, "POST", "/api/v1/invocations", token, fmt.Sprintf(`{"target":%q,"input":%s}`, action, input))
	}
	for _, door := range []string{"api", "wire"} {
		if a := call(door, "fs.readText", `{"path":"inside.txt"}`); a.status != 200 || !strings.Contains(a.body, `"inside"`) {
			t.Fatalf(`%s: %d %s; want a.status = 200, a.body with "\"inside\""`, door, a.status, a.body)
		}
		for _, path := range []string{
			"../files/../run/admin.token", "..", "dir/secret.txt", "file", "up/run/admin.token", target, "./dir/../dir/secret.txt",
			"dir", "up", "new", "dir/made.txt", "inside.txt/../../run/admin.token", "\u0000", "a\u0000b", "../run/\u202e", `..\run`,
			strings.Repeat("../", 50) + "etc/passwd",
		} {
			quoted, err := json.Marshal(path)
			if err != nil {
				t.Fatal(err)
			}
			for action, input := range map[string]string{
				"fs.readText":  fmt.Sprintf(`{"path":%s}`, quoted),
				"fs.list":      fmt.Sprintf(`{"path":%s}`, quoted),
				"fs.writeText": fmt.Sprintf(`{"path":%s,"text":"owned"}`, quoted),
			} {
				if action == "fs.writeText" && (path == `..\run` || path == "file" || path == "new") {
					continue // a plain name, or a link that a write replaces and does not follow: see below
				}
				a := call(door, action, input)
				if a.code() == "" {
					t.Errorf(`%s: %s %q passed: %s; want a.code() other than ""`, door, action, path, a.body)
				}
				if strings.Contains(a.body, "outside") || strings.Contains(a.body, "jct_") || strings.Contains(a.body, outside) && path != target {
					t.Errorf(`%s: %s %q tells of the outside: %s; want a.body without "outside", a.body without "jct_", not `+
						"(strings.Contains(a.body, outside) && path != target)", door, action, path, a.body)
				}
			}
		}
		for _, path := range []string{"file", "new"} {
			call(door, "fs.writeText", fmt.Sprintf(`{"path":%q,"text":"owned"}`, path))
		}
	}
	data, err := os.ReadFile(target)
	entries, _ := os.ReadDir(outside)
	if err != nil || string(data) != "outside" || len(entries) != 1 {
		t.Errorf(`the outside was written: %q, %d entries (%v); want no error, string(data) = "outside", len(entries) = 1`,
			data, len(entries), err)
	}
}

// TestWebPagesAreKeptOut: neither a rebound name nor another origin gets in, on
// any door, with a good token.
func TestWebPagesAreKeptOut(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	port := n.url[strings.LastIndexByte(n.url, ':'):]
	for _, d := range append(doors(), [3]string{"GET", "/healthz", ""}, [3]string{"GET", "/metrics", ""}) {
		for _, host := range []string{
			"evil.example", "evil.example" + port, "127.0.0.1.evil.example", "localhost.evil.example",
			"0.0.0.0" + port, "192.0.2.1", "[::ffff:192.0.2.1]",
		} {
			a := n.request(t, d[0], d[1], n.token(t, "admin"), d[2], func(r *http.Request) { r.Host = host })
			if a.status != http.StatusForbidden {
				t.Errorf("%s %s, Host %s: %d; want a.status = http.StatusForbidden", d[0], d[1], host, a.status)
			}
		}
		for _, host := range []string{"localhost", "LOCALHOST" + port, "127.0.0.1", "[::1]" + port} {
			a := n.request(t, d[0], d[1], n.token(t, "admin"), d[2], func(r *http.Request) { r.Host = host })
			if a.status != http.StatusOK {
				t.Errorf("%s %s, Host %s: %d %s; want a.status = http.StatusOK", d[0], d[1], host, a.status, a.body)
			}
		}
		if d[0] == "GET" {
			continue // reading answers nothing to a page of another origin: no CORS header is ever sent
		}
		for _, header := range [][2]string{
			{"Origin", "https://evil.example"},
			{"Origin", "null"},
			{"Sec-Fetch-Site", "cross-site"},
			{"Sec-Fetch-Site", "same-site"},
		} {
			a := n.request(t, d[0], d[1], n.token(t, "admin"), d[2], func(r *http.Request) { r.Header.Set(header[0], header[1]) })
			if a.status != http.StatusForbidden || !bytes.Contains([]byte(a.body), []byte("mcp.allowed_origins")) {
				t.Errorf(`%s %s, %s: %d %s; want a.status = http.StatusForbidden, []byte(a.body) with []byte("mcp.allowed_origins")`,
					d[0], d[1], header, a.status, a.body)
			}
		}
	}
}
