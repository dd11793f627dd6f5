package server_test

import (
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
)

// browser is a browser that is signed in to the console.
type browser struct {
	t      *testing.T
	url    string
	client *http.Client
	secret string
}

// newBrowser returns a browser without a session. It follows no redirects.
func newBrowser(t *testing.T, url string, jar http.CookieJar) *browser {
	b := &browser{t: t, url: url, client: &http.Client{
		Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	t.Cleanup(b.client.CloseIdleConnections)
	return b
}

// signIn opens the link of "junctor console".
func (n *node) signIn(t *testing.T) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatalf("cookiejar.New: got %v, want a jar", err)
	}
	return n.signInWith(t, jar)
}

// signInWith is signIn in a browser that has cookies already.
func (n *node) signInWith(t *testing.T, jar http.CookieJar) *browser {
	t.Helper()
	var link struct{ URL string }
	if err := n.admin.Do(t.Context(), http.MethodPost, "/api/v1/console/codes", nil, &link); err != nil {
		t.Fatalf("asking for a link: %v", err)
	}
	_, code, ok := strings.Cut(link.URL, "/console/#c=")
	if !ok {
		t.Fatalf("link %q, want a code after /console/#c=", link.URL)
	}
	b := newBrowser(t, n.url, jar)
	var got struct{ Secret, Principal, Role string }
	if status := b.send(http.MethodPost, "/console/session", `{"code":"`+code+`"}`, &got); status != http.StatusCreated ||
		got.Principal != "admin:local-admin" || got.Role != "admin" {
		t.Fatalf("status %d, %+v, want 201 and admin:local-admin", status, got)
	}
	b.secret = got.Secret
	return b
}

func (b *browser) send(method, path, body string, out any, headers ...string) int {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if b.secret != "" {
		req.Header.Set("Junctor-Console", b.secret)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if out != nil {
		if err := json.Unmarshal(data, out); err != nil {
			b.t.Fatalf("%s %s: %v in %q", method, path, err, data)
		}
	}
	return resp.StatusCode
}

type failed struct {
	Error struct {
		Code, Reason string
		Details      struct{ Verification, What string }
	}
}

func TestASessionIsGoodForTheAPIOfPeopleAlone(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	b := n.signIn(t)
	for _, path := range []string{"/api/v1/status", "/api/v1/tokens", "/api/capability-router/endpoints", "/api/coding-agents"} {
		if status := b.send(http.MethodGet, path, "", nil); status != http.StatusOK {
			t.Errorf("%s: status %d, want 200", path, status)
		}
	}
	for _, path := range []string{"/mcp", "/v1/capabilities", "/api/cmp/mcp"} {
		if status := b.send(http.MethodPost, path, "{}", nil); status != http.StatusForbidden && status != http.StatusUnauthorized {
			t.Errorf("%s: status %d, want 401 or 403", path, status)
		}
	}
	// What proves that a person is at a terminal takes a token.
	for _, r := range [][2]string{{http.MethodPost, "/api/v1/console/codes"}, {http.MethodGet, "/api/v1/console/verifications"}} {
		var f failed
		if status := b.send(r[0], r[1], "", &f); status != http.StatusForbidden || f.Error.Reason != "console_token_required" {
			t.Errorf("%s %s: status %d, %+v, want 403, console_token_required", r[0], r[1], status, f)
		}
	}
	// The cookie alone reaches every port of the host, and the secret alone may be read by a script.
	var f failed
	secret := b.secret
	b.secret = ""
	if status := b.send(http.MethodGet, "/api/v1/status", "", &f); status != http.StatusUnauthorized {
		t.Errorf("with the cookie alone: status %d, want 401", status)
	}
	bare := newBrowser(t, n.url, nil)
	bare.secret = secret
	if status := bare.send(http.MethodGet, "/api/v1/status", "", &f); status != http.StatusUnauthorized ||
		f.Error.Reason != "console_session_ended" {
		t.Errorf("with the secret alone: status %d, %+v, want 401, console_session_ended", status, f)
	}
	b.secret = secret
	if got := n.records(t, "event=login"); len(got) != 1 {
		t.Errorf("got %d records of sign-ins, want 1", len(got))
	}
}

func TestDangerousDecisionsOfABrowserNeedTheCode(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	b := n.signIn(t)
	call := map[string]any{"target": "fs.writeText", "input": map[string]any{"path": "a.txt", "text": "x"}}
	err := n.agent.Do(t.Context(), http.MethodPost, "/api/v1/invocations", call, nil)
	id, _ := capability.AsError(err).Details["approval"].(string)
	if id == "" {
		t.Fatalf("got %v, want an approval", err)
	}
	path := "/api/v1/approvals/" + id
	var f failed
	if status := b.send(http.MethodPost, path, `{"decision":"always"}`, &f); status != http.StatusForbidden ||
		f.Error.Reason != "console_code_required" || !strings.Contains(f.Error.Details.What, "fs.writeText") {
		t.Fatalf("always: status %d, %+v, want 403, console_code_required for fs.writeText", status, f)
	}
	var open struct {
		Verifications []struct{ ID, Code string }
	}
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/console/verifications", nil, &open); err != nil ||
		len(open.Verifications) != 1 {
		t.Fatalf("got %+v, %v, want one verification", open, err)
	}
	v := open.Verifications[0]
	wrong := "000000"
	if v.Code == wrong {
		wrong = "000001"
	}
	for _, tt := range []struct{ name, digits, body string }{
		{"a wrong code", wrong, `{"decision":"always"}`},
		{"the code for another decision", v.Code, `{"decision":"timed","for":"1h"}`},
	} {
		if status := b.send(http.MethodPost, path, tt.body, &f, "Junctor-Verification", v.ID+":"+tt.digits); status == http.StatusOK {
			t.Errorf("%s: status 200, want a refusal", tt.name)
		}
	}
	if status := b.send(http.MethodPost, path, `{"decision":"always"}`, nil, "Junctor-Verification", v.ID+":"+v.Code); status != http.StatusOK {
		t.Errorf("with the code: status %d, want 200", status)
	}
	if err := n.agent.Do(t.Context(), http.MethodPost, "/api/v1/invocations", call, nil); err != nil {
		t.Errorf("after the approval: got %v, want the call to run", err)
	}
	var listed struct {
		Tools []struct{ Tool, Effect, Decision string }
	}
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/tools", nil, &listed); err != nil {
		t.Fatal(err)
	}
	external := ""
	for _, tool := range listed.Tools {
		if tool.Effect == "external" && !strings.HasPrefix(tool.Tool, "catalog.") {
			external = tool.Tool
		}
	}
	for name, body := range map[string]string{
		"a read": `{"target":"fs.list","input":{"path":"."}}`, "a dry run": `{"target":"catalog.call","input":{"name":"fs.list"},"dry_run":true}`,
	} {
		if status := b.send(http.MethodPost, "/api/v1/invocations", body, nil); status != http.StatusOK {
			t.Errorf("%s: status %d, want 200 without a code", name, status)
		}
	}
	for _, r := range []struct{ method, path, body string }{
		{http.MethodPost, "/api/v1/tokens", `{"role":"agent","name":"x"}`},
		{http.MethodPut, "/api/v1/secrets/x", "x"},
		{http.MethodPost, "/api/v1/grants", `{"principal":"agent:local-agent","action":"*"}`},
		{http.MethodPost, "/api/v1/policy/changes", `{}`},
		{http.MethodPost, "/api/v1/upstreams", `{"name":"x","command":["/bin/true"]}`},
		{http.MethodPost, "/api/v1/channels", `{"kind":"telegram","secret":"x"}`},
		{http.MethodPost, "/api/v1/invocations", `{"target":"` + external + `","input":{}}`},
		{http.MethodPost, "/api/coding-agents/pty-1/choose", `{"option":1}`},
		{http.MethodPost, "/api/coding-agents/spawn", `{"agentType":"shell"}`},
		{http.MethodPost, "/api/task-agents/pty-1/send", `{"text":"id"}`},
		{http.MethodPost, "/api/coding-agents/coordinator/threads", `{"task":"id"}`},
		{http.MethodPost, "/api/coding-agents/coordinator/threads/t/resume", `{}`},
		{http.MethodPost, "/api/coding-agents/coordinator/threads/t/comment", `{"text":"x"}`},
		{http.MethodPatch, "/api/coding-agents/settings", `{"defaultApprovalPreset":"autonomous"}`},
		{http.MethodPost, "/api/coding-agents/coordinator/supervision", `{"level":"autonomous"}`},
		{http.MethodPost, "/api/v1/invocations", `{"target":"task-agent.spawn","input":{"agentType":"shell"}}`},
		{http.MethodPost, "/api/v1/invocations", `{"target":"pty.command.run","input":{"command":"id"}}`},
		{http.MethodPost, "/api/capability-router/connect", `{"endpoint":{"baseUrl":"http://127.0.0.1:1"}}`},
		{http.MethodDelete, "/api/v1/audit/arguments/run_1", ``},
		{http.MethodPost, "/api/task-agents/coordinator/confirm/pty-1", `{"approved":true}`},
		{http.MethodPost, "/api/coding-agents/coordinator/threads/t/pr", `{}`},
		{http.MethodPost, "/api/coding-agents/coordinator/threads/t/merge", `{"commit":"x"}`},
		{http.MethodPost, "/api/coding-agents/coordinator/threads/t/discard", `{}`},
		{http.MethodPost, "/api/workspace/x/push", `{}`},
		{http.MethodPost, "/api/issues", `{"repo":"a/b","title":"x"}`},
		{http.MethodPost, "/api/v1/nodes/desk/calls", `{"function":"f","input":{}}`},
	} {
		if status := b.send(r.method, r.path, r.body, &f); status != http.StatusForbidden || f.Error.Reason != "console_code_required" {
			t.Errorf("%s %s: status %d, %+v, want 403, console_code_required", r.method, r.path, status, f)
		}
	}
}

func TestAHeaderWithoutAProofConfirmsNothing(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	b := n.signIn(t)
	for _, path := range []string{"/api/v1/tokens", "/console/frames/none/call", "/console/apps"} {
		var f failed
		if status := b.send(http.MethodPost, path, `{}`, &f, "Junctor-Verification", "x"); status != http.StatusBadRequest ||
			f.Error.Code != string(capability.CodeInvalidInput) {
			t.Errorf("%s: status %d, %+v, want 400, invalid_input", path, status, f)
		}
		if status := b.send(http.MethodPost, path, `{}`, &f, "Junctor-Verification", "ver_0:123456"); status != http.StatusForbidden ||
			f.Error.Reason != "console_code_wrong" {
			t.Errorf("%s with another id: status %d, %+v, want 403, console_code_wrong", path, status, f)
		}
	}
}

func TestASessionSurvivesARestartAndEndsWithItsToken(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	n := serve(t, home)
	var made struct{ ID, Token string }
	if err := n.admin.Do(t.Context(), http.MethodPost, "/api/v1/tokens", map[string]any{"role": "operator", "name": "ann"}, &made); err != nil {
		t.Fatal(err)
	}
	own := *n
	own.admin = n.client(t, made.Token)
	var link struct{ URL string }
	if err := own.admin.Do(t.Context(), http.MethodPost, "/api/v1/console/codes", nil, &link); err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(link.URL, "#c=")
	jar, _ := cookiejar.New(nil)
	b := newBrowser(t, n.url, jar)
	var got struct{ Secret string }
	b.send(http.MethodPost, "/console/session", `{"code":"`+code+`"}`, &got)
	b.secret = got.Secret
	n.kill()
	n = serve(t, home)
	old := b.url
	b.url = n.url // cookies are sent to every port
	if status := b.send(http.MethodGet, "/api/v1/status", "", nil); status != http.StatusOK {
		t.Errorf("after kill -9 of %s: status %d, want 200", old, status)
	}
	if status := b.send(http.MethodGet, "/api/v1/tokens", "", nil); status != http.StatusForbidden {
		t.Errorf("what an operator may not: status %d, want 403", status)
	}
	if err := n.admin.Do(t.Context(), http.MethodDelete, "/api/v1/tokens/"+made.ID, nil, nil); err != nil {
		t.Fatal(err)
	}
	if status := b.send(http.MethodGet, "/api/v1/status", "", nil); status != http.StatusUnauthorized {
		t.Errorf("after its token was revoked: status %d, want 401", status)
	}
}

func TestBrowsersAreSentToTheConsole(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	b := newBrowser(t, n.url, nil)
	if status := b.send(http.MethodGet, "/", "", nil, "Accept", "text/html,*/*"); status != http.StatusFound {
		t.Errorf("a browser at /: status %d, want 302", status)
	}
	var f failed
	if status := b.send(http.MethodGet, "/", "", &f); status != http.StatusNotFound || f.Error.Code != "not_found" {
		t.Errorf("a program at /: status %d, %+v, want 404, not_found", status, f)
	}
	for _, path := range []string{"/console/", "/console/approvals/apr_1"} {
		resp, err := b.client.Get(n.url + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		csp := resp.Header.Get("Content-Security-Policy")
		if resp.StatusCode != http.StatusOK || !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("%s: status %d, policy %q, want the page with its policy", path, resp.StatusCode, csp)
		}
	}
	if status := b.send(http.MethodGet, "/console/assets/gone-ABC.js", "", &f); status != http.StatusNotFound {
		t.Errorf("an asset of another version: status %d, want 404", status)
	}
}

func TestToolsAreFilteredAndPaged(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	type page struct {
		Tools []struct{ Tool, Provider, Effect, Decision string }
		Total int
		Next  string
	}
	get := func(query string) (p page) {
		t.Helper()
		if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/tools?as=agent:local-agent"+query, nil, &p); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		return p
	}
	all := get("")
	var paged page
	for after := ""; ; {
		p := get("&limit=7&after=" + url.QueryEscape(after))
		if len(p.Tools) > 7 || p.Total != len(all.Tools) {
			t.Fatalf("got a page of %d tools of %d, want at most 7 of %d", len(p.Tools), p.Total, len(all.Tools))
		}
		paged.Tools = append(paged.Tools, p.Tools...)
		if after = p.Next; after == "" {
			break
		}
	}
	if d := cmp.Diff(all.Tools, paged.Tools); d != "" {
		t.Errorf("the pages differ from the whole (-want +got):\n%s", d)
	}
	for _, tool := range get("&q=FS+local&effect=read").Tools {
		if !strings.HasPrefix(tool.Tool, "fs.") || tool.Effect != "read" {
			t.Errorf("q=FS local, effect=read: got %+v, want reads of fs", tool)
		}
	}
	if got := get("&q=fs&decision=ask"); got.Total == 0 || got.Tools[0].Tool != "fs.writeText" {
		t.Errorf("q=fs, decision=ask: got %+v, want fs.writeText", got)
	}
	if got := get("&q=nothing-has-this-name"); got.Total != 0 || len(got.Tools) != 0 {
		t.Errorf("a word that no tool has: got %+v, want none", got)
	}
	for _, limit := range []string{"0", "1001", "x"} {
		err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/tools?limit="+limit, nil, nil)
		if got := capability.CodeOf(err); got != capability.CodeInvalidInput {
			t.Errorf("limit=%s: got %v, want invalid_input", limit, err)
		}
	}
}

func TestPeopleUseTokensUnlessAProviderIsConfigured(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	b := newBrowser(t, n.url, nil)
	var how struct{ Provider string }
	if status := b.send(http.MethodGet, "/console/login", "", &how); status != http.StatusOK || how.Provider != "" {
		t.Errorf("how to sign in: status %d, %+v, want 200 and no provider", status, how)
	}
	for _, r := range [][3]string{
		{http.MethodPost, "/console/login", ""},
		{http.MethodPost, "/console/session", `{"login":"x","code":"y","state":"z"}`},
		{http.MethodPost, "/api/v1/login", ""},
		{http.MethodPost, "/api/v1/login/wait", `{"login":"x"}`},
	} {
		var f failed
		if status := b.send(r[0], r[1], r[2], &f); status != http.StatusNotFound || f.Error.Reason != "sign_in_off" {
			t.Errorf("%s %s: status %d, %+v, want 404, sign_in_off", r[0], r[1], status, f)
		}
	}
	var f failed
	if status := b.send(http.MethodDelete, "/api/v1/login", "", &f); status != http.StatusUnauthorized {
		t.Errorf("signing out without a token: status %d, %+v, want 401", status, f)
	}
	if err := n.admin.Do(t.Context(), http.MethodDelete, "/api/v1/login", nil, nil); capability.AsError(err).Reason != "not_signed_in" {
		t.Errorf("signing the admin token out: got %v, want not_signed_in", err)
	}
}

func TestAProviderThatIsAwayIsAnErrorOfTheSignInOnly(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir(), "JUNCTOR_OIDC_ISSUER=http://127.0.0.1:1", "JUNCTOR_OIDC_CLIENT_ID=junctor",
		"JUNCTOR_OIDC_ROLES=group:ops=operator")
	b := newBrowser(t, n.url, nil)
	var how struct{ Provider string }
	if status := b.send(http.MethodGet, "/console/login", "", &how); status != http.StatusOK || how.Provider != "127.0.0.1:1" {
		t.Errorf("how to sign in: status %d, %+v, want 200 and the provider", status, how)
	}
	for _, path := range []string{"/console/login", "/api/v1/login"} {
		var f failed
		if status := b.send(http.MethodPost, path, "", &f); status != http.StatusServiceUnavailable || f.Error.Reason != "issuer_unavailable" {
			t.Errorf("%s: status %d, %+v, want 503, issuer_unavailable", path, status, f)
		}
	}
	var f failed
	if status := b.send(http.MethodPost, "/console/session", `{"login":"x","code":"y","state":"z"}`, &f); status != http.StatusUnauthorized ||
		f.Error.Reason != "sign_in_state" {
		t.Errorf("an answer that was not asked for: status %d, %+v, want 401, sign_in_state", status, f)
	}
	if got := n.records(t, "event=login_failed"); len(got) != 3 {
		t.Errorf("got %d records of failures, want 3", len(got))
	}
	n.signIn(t)
}

func TestPeopleWithoutAPasskeyCanBeKeptFromDecisions(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir(), "JUNCTOR_CONSOLE_VERIFY=passkey")
	b := n.signIn(t)
	for _, r := range [][4]string{
		{http.MethodPost, "/api/v1/tokens", `{"role":"agent","name":"x"}`, "console_passkey_missing"},
		{http.MethodPost, "/api/v1/console/passkeys", `{"id":"psk_0","response":{}}`, "console_code_required"},
		{http.MethodDelete, "/api/v1/console/passkeys/psk_0", "", "console_passkey_missing"},
	} {
		var f failed
		if status := b.send(r[0], r[1], r[2], &f); status != http.StatusForbidden || f.Error.Reason != r[3] {
			t.Errorf("%s %s: status %d, %+v, want 403, %s", r[0], r[1], status, f, r[3])
		}
	}
	var options struct {
		ID      string
		Options struct{ Challenge string }
	}
	status := b.send(http.MethodPost, "/api/v1/console/passkeys/options", "", &options)
	if status != http.StatusOK || options.Options.Challenge == "" {
		t.Errorf("the options: status %d, %+v, want 200 and a challenge", status, options)
	}
	var open struct {
		Verifications []struct{ ID, Code string }
	}
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/console/verifications", nil, &open); err != nil ||
		len(open.Verifications) != 1 {
		t.Fatalf("got %+v, %v, want one verification", open, err)
	}
	var f failed
	v := open.Verifications[0]
	status = b.send(http.MethodPost, "/api/v1/console/passkeys", `{"id":"psk_0","response":{}}`, &f, "Junctor-Verification", v.ID+":"+v.Code)
	if status != http.StatusForbidden || f.Error.Reason != "passkey_refused" {
		t.Errorf("a passkey that was not begun: status %d, %+v, want 403, passkey_refused", status, f)
	}
	if err := n.agent.Do(t.Context(), http.MethodGet, "/api/v1/console/passkeys", nil, nil); capability.CodeOf(err) != capability.CodeDenied {
		t.Errorf("an agent lists passkeys: got %v, want denied", err)
	}
}

func TestAttentionCountsWhatWaits(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	b := n.signIn(t)
	type counts struct{ Approvals, Questions, Definitions, Total int }
	var got counts
	if status := b.send(http.MethodGet, "/api/v1/attention", "", &got); status != http.StatusOK || got != (counts{}) {
		t.Errorf("at first: status %d, %+v, want 200 and nothing", status, got)
	}
	call := map[string]any{"target": "fs.writeText", "input": map[string]any{"path": "a.txt", "text": "x"}}
	err := n.agent.Do(t.Context(), http.MethodPost, "/api/v1/invocations", call, nil)
	if capability.CodeOf(err) != capability.CodeApprovalRequired {
		t.Fatalf("a call that waits: got %v, want %s", err, capability.CodeApprovalRequired)
	}
	if status := b.send(http.MethodGet, "/api/v1/attention", "", &got); status != http.StatusOK || got != (counts{Approvals: 1, Total: 1}) {
		t.Errorf("with an approval: status %d, %+v, want 200 and one approval", status, got)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+"/api/v1/attention", nil)
	if err != nil {
		t.Fatalf("making the request: %v", err)
	}
	req.Header.Set("Junctor-Console", b.secret)
	for _, want := range []int{http.StatusOK, http.StatusNotModified} {
		resp, err := b.client.Do(req)
		if err != nil {
			t.Fatalf("sending the request: %v", err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("with If-None-Match %s: status %d, want %d", req.Header.Get("If-None-Match"), resp.StatusCode, want)
		}
		req.Header.Set("If-None-Match", resp.Header.Get("ETag"))
	}
	if err := n.agent.Do(t.Context(), http.MethodGet, "/api/v1/attention", nil, nil); capability.CodeOf(err) != capability.CodeDenied {
		t.Errorf("as an agent: got %v, want %s", err, capability.CodeDenied)
	}
}

// needsCode sends a request from a browser, which is refused without the code from the terminal.
func (n *node) needsCode(t *testing.T, path, body string) {
	t.Helper()
	var f failed
	status := n.signIn(t).send(http.MethodPost, path, body, &f)
	if status != http.StatusForbidden || f.Error.Reason != "console_code_required" {
		t.Errorf("%s from a browser: status %d, %+v, want 403, console_code_required", path, status, f)
	}
}

// Cookies are not separated by port, so a browser sends those of one server to the other.
func TestTwoServersOnOneHostKeepTheirSessions(t *testing.T) {
	t.Parallel()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatalf("making a jar: %v", err)
	}
	first := serve(t, t.TempDir()).signInWith(t, jar)
	second := serve(t, t.TempDir()).signInWith(t, jar)
	for _, b := range []*browser{first, second, first} {
		if status := b.send(http.MethodGet, "/console/session", "", nil); status != http.StatusOK {
			t.Errorf("the session at %s: got status %d, want 200", b.url, status)
		}
	}
	first.secret, second.secret = second.secret, first.secret
	for _, b := range []*browser{first, second} {
		if status := b.send(http.MethodGet, "/api/v1/status", "", nil); status != http.StatusUnauthorized {
			t.Errorf("the secret of the other server at %s: got status %d, want 401", b.url, status)
		}
	}
}

// The page has the routes of the API, and few of its own: signing in, and tickets for frames and terminals.
func TestThePageCallsRoutesOfTheServerOnly(t *testing.T) {
	t.Parallel()
	own := regexp.MustCompile(`^/console/(|session|login|tickets|frames|frames/x/call|apps|assets/\S+|push\.js)$`)
	literal := regexp.MustCompile("[`\"](/(?:api|console)/[^`\"]*)[`\"]")
	value := regexp.MustCompile(`\$\{[^}]*\}+`)
	called := map[string]bool{}
	err := filepath.WalkDir("../console/web/src", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range literal.FindAllSubmatch(source, -1) {
			at, _, _ := strings.Cut(value.ReplaceAllString(string(m[1]), "x"), "?")
			called[at] = true
		}
		return err
	})
	if err != nil || len(called) < 40 {
		t.Fatalf("reading the sources of the page: got %d routes, %v, want 40 at least", len(called), err)
	}
	n := serve(t, t.TempDir())
	for at := range called {
		if strings.HasPrefix(at, "/console/") && !own.MatchString(at) {
			t.Errorf("the page has the route %s of its own, want none but %s", at, own)
		}
		send := http.Get
		if strings.HasSuffix(at, "/call") { // reading below a ticket is reading its files
			send = func(url string) (*http.Response, error) { return http.Post(url, "application/json", nil) }
		}
		resp, err := send(n.url + at)
		if err != nil {
			t.Fatalf("calling %s: %v", at, err)
		}
		_ = resp.Body.Close()
		// Without a token a route refuses, and one that does not exist is not found.
		if resp.StatusCode == http.StatusNotFound && !strings.HasPrefix(at, "/console/assets/") {
			t.Errorf("the page calls %s: got status %d, want a route of the server", at, resp.StatusCode)
		}
	}
}
