package idp

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestEachPrincipalCallsAnUpstreamWithItsOwnLogin(t *testing.T) {
	r := newRig(t)
	n := newUpstream(r, "--client-id", Native)
	ann, cleo, agent := r.signIn("ann"), r.signIn("cleo"), r.localAgent()
	const hers, operators = "runs: junctor mcp login notes", "an operator runs: junctor mcp login notes --for agent:local-agent"

	// The login of ann lists the tools for all, and is used for nothing else.
	ann.logsIn(ann.principal, "ann")
	cleo.needsLogin(cleo.principal + " " + hers)
	agent.needsLogin(operators)
	if got := n.Calls(); len(got) != 0 {
		t.Errorf("calls that reached the MCP server: got %v, want none without a login", got)
	}
	ann.calls("id-ann")
	cleo.logsIn(cleo.principal, "cleo")
	agent.needsLogin(operators)
	r.logsIn(agent.principal, "bob", "--for", agent.principal)
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() { ann.calls("id-ann") })
		group.Go(func() { cleo.calls("id-cleo") })
		group.Go(func() { agent.calls("id-bob") })
	}
	group.Wait()
	seen := make(map[string]string)
	for _, call := range n.Calls() {
		if subject, ok := seen[call.Token]; ok && subject != call.Subject {
			t.Errorf("a token: got the subjects %s and %s, want one", subject, call.Subject)
		}
		seen[call.Token] = call.Subject
	}
	if got := len(n.Calls()); got != 10 || len(seen) != 3 {
		t.Errorf("calls that reached the MCP server: got %d with %d tokens, want 10 with 3", got, len(seen))
	}
	for _, form := range r.idp.Forms(Native) {
		if form.Get("resource") != n.URL+"/mcp" {
			t.Errorf("a request to %s: got the resource %q, want the MCP server (RFC 8707)", form.Path, form.Get("resource"))
		}
		if form.Path == "/auth" && (form.Get("code_challenge_method") != "S256" || len(form.Get("code_challenge")) != 43) {
			t.Errorf("the request of a login: got %v, want PKCE with S256", form.Values)
		}
	}

	// What operators and auditors see.
	out, errs, status := r.run("mcp", "show", "notes")
	for _, c := range []*caller{ann, cleo, agent} {
		if status != 0 || !strings.Contains(out, c.principal) {
			t.Errorf("junctor mcp show: status %d, got %s%s, want the login of %s", status, out, errs, c.principal)
		}
		want := fmt.Sprintf(`"login":%q`, c.principal)
		for _, event := range []string{"upstream_logged_in", "capability_executed"} {
			got, _, _ := r.run("audit", "query", "--event", event, "--json")
			if !strings.Contains(strings.NewReplacer(" ", "", "\n", "").Replace(got), want) {
				t.Errorf("the records %s: got %s, want one with %s", event, got, want)
			}
		}
	}
	if out, errs, status = r.run("mcp", "login", "notes", "--for", cleo.principal); status != 3 ||
		!strings.Contains(errs, "people log in for themselves") {
		t.Errorf("a login for a person: status %d, got %q %q, want 3 and the reason", status, out, errs)
	}

	// A logout ends one login.
	if out, errs, status = r.run("mcp", "logout", "notes", "--for", agent.principal); status != 0 {
		t.Errorf("junctor mcp logout --for: status %d, got %q %q, want 0", status, out, errs)
	}
	agent.needsLogin(operators)
	cleo.calls("id-cleo")
	if out, errs, status = ann.run("mcp", "logout", "notes"); status != 0 {
		t.Errorf("junctor mcp logout of ann: status %d, got %q %q, want 0", status, out, errs)
	}
	ann.needsLogin(ann.principal + " " + hers)
	cleo.calls("id-cleo")
	if out, errs, status = ann.run("mcp", "logout", "notes"); status == 0 || !strings.Contains(errs, "is not logged in to notes") {
		t.Errorf("a second logout: status %d, got %q %q, want a failure with the reason", status, out, errs)
	}
	agent.needsLogin(operators)
	r.logsIn(agent.principal, "bob", "--for", agent.principal)
	agent.calls("id-bob")
	// After the last one the tools are still listed, and a call names the command.
	if out, errs, status = r.run("mcp", "logout", "notes", "--for", agent.principal); status != 0 {
		t.Errorf("junctor mcp logout --for: status %d, got %q %q, want 0", status, out, errs)
	}
	if out, errs, status = cleo.run("mcp", "logout", "notes"); status != 0 {
		t.Errorf("junctor mcp logout of cleo: status %d, got %q %q, want 0", status, out, errs)
	}
	agent.needsLogin("each principal logs in: junctor mcp login notes")
	cleo.needsLogin("each principal logs in: junctor mcp login notes")
	if got := len(n.Calls()); got != 13 {
		t.Errorf("calls that reached the MCP server: got %d, want 13", got)
	}
}

func TestAnAccessTokenIsRenewedForItsPrincipalOnly(t *testing.T) {
	r := newRig(t)
	n := newUpstream(r, "--client-id", Native)
	ann, agent := r.signIn("ann"), r.localAgent()
	ann.logsIn(ann.principal, "ann")
	r.logsIn(agent.principal, "bob", "--for", agent.principal)
	ann.calls("id-ann")
	agent.calls("id-bob")
	renewals := func() (got int) {
		for _, form := range r.idp.Forms(Native) {
			if form.Get("grant_type") == "refresh_token" {
				got++
			}
		}
		return got
	}
	if got := renewals(); got != 0 {
		t.Errorf("renewals before a token has expired: got %d, want 0", got)
	}

	// The MCP server refuses the token, because the provider has ended it early.
	r.idp.ExpireTokens("ann")
	ann.calls("id-ann")
	agent.calls("id-bob")
	if got := renewals(); got != 1 {
		t.Errorf("renewals after the token of ann was refused: got %d, want 1", got)
	}
	calls := n.Calls()
	if len(calls) != 4 || calls[0].Token == calls[2].Token || calls[1].Token != calls[3].Token {
		t.Errorf("calls: got %d %v, want another token of ann and the same of the agent", len(calls), calls)
	}

	// The provider reports when tokens end, and this one ends soon.
	r.idp.SetLifetime(5 * time.Second)
	r.idp.ExpireTokens("ann")
	ann.calls("id-ann")
	r.idp.SetLifetime(0)
	before := renewals()
	ann.calls("id-ann")
	ann.calls("id-ann")
	if got := renewals() - before; got != 1 {
		t.Errorf("renewals of a token that ends within 5 s: got %d, want 1", got)
	}

	// A refresh token that the provider no longer accepts ends the login of ann, and not the other one.
	if err := r.idp.TerminateSession(t.Context(), "id-ann", Native); err != nil {
		t.Fatalf("ending the session of ann: %v", err)
	}
	ann.needsLogin(ann.principal + " runs: junctor mcp login notes")
	agent.calls("id-bob")
	ann.logsIn(ann.principal, "ann")
	ann.calls("id-ann")
}

func TestARefusedLoginAtAnUpstreamsProviderNamesTheReason(t *testing.T) {
	r := newRig(t)
	n := newUpstream(r, "--client-id", Native)
	ann, agent := r.signIn("ann"), r.localAgent()
	ann.logsIn(ann.principal, "ann")
	const hint = "an operator runs: junctor mcp login notes --for agent:local-agent"
	forAgent := []string{"--for", agent.principal}

	r.idp.SetDenied("bob", true)
	if out, errs, status := r.logIn("bob", forAgent...); status != 5 ||
		!strings.Contains(errs, "the login to notes was answered with access_denied") {
		t.Errorf("a login that is denied: status %d, got %q %q, want 5 and access_denied", status, out, errs)
	}
	agent.needsLogin(hint)
	r.idp.SetDenied("bob", false)

	// The person comes back from the provider without having signed in.
	s := r.start(append([]string{"mcp", "login", "notes"}, forAgent...)...)
	b := newBrowser(t)
	b.open(s.address)
	b.open(r.idp.Issuer + "/auth/callback?id=" + b.at.Query().Get("authRequestID"))
	if out, errs, status := s.wait(); status != 5 || !strings.Contains(errs, "the login to notes was answered with interaction_required") {
		t.Errorf("a login that was not finished: status %d, got %q %q, want 5 and interaction_required", status, out, errs)
	}
	agent.needsLogin(hint)

	// The redirect address is not registered at the provider, which sends the browser nowhere.
	r.idp.SetRedirect(Native, "http://127.0.0.1/elsewhere")
	s = r.start(append([]string{"mcp", "login", "notes"}, forAgent...)...)
	if b.open(s.address); b.status != http.StatusBadRequest ||
		!strings.Contains(b.page, "redirect_uri is missing in the client configuration") {
		t.Errorf("the provider's page: got %d %q, want its refusal of the redirect address", b.status, b.page)
	}
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatalf("interrupting junctor mcp login: %v", err)
	}
	if out, errs, status := s.wait(); status != 130 || !strings.Contains(errs, "the login was interrupted") {
		t.Errorf("a login that is interrupted: status %d, got %q %q, want 130 and that it was interrupted", status, out, errs)
	}
	agent.needsLogin(hint)
	r.idp.SetRedirect(Native, "http://127.0.0.1/callback")
	r.logsIn(agent.principal, "bob", forAgent...)
	agent.calls("id-bob")
	if got := n.Calls(); len(got) != 1 {
		t.Errorf("calls that reached the MCP server: got %v, want one", got)
	}
}

func TestAnAnswerOfOneLoginDoesNotFinishAnother(t *testing.T) {
	r := newRig(t)
	newUpstream(r, "--client-id", Native)
	ann, cleo := r.signIn("ann"), r.signIn("cleo")
	begin := func(c *caller, user string) (*started, *browser, *url.URL) {
		t.Helper()
		s, b := c.start("mcp", "login", "notes"), newBrowser(t)
		b.stop = true
		b.open(s.address)
		b.submit(user)
		listens, err := url.Parse(s.address)
		if err == nil {
			listens, err = url.Parse(listens.Query().Get("redirect_uri"))
		}
		if err != nil || b.back == nil || b.back.Query().Get("code") == "" {
			t.Fatalf("the login of %s: got %s, %v, want a redirect with a code", user, b.back, err)
		}
		return s, b, listens
	}
	hers, annsBrowser, annListens := begin(ann, "ann")
	others, cleosBrowser, cleoListens := begin(cleo, "cleo")

	// The answer of cleo at the address of ann, in the name of ann, and her code with the state of ann.
	annListens.RawQuery = cleosBrowser.back.RawQuery
	if annsBrowser.open(annListens.String()); annsBrowser.status != http.StatusNotFound {
		t.Errorf("the answer of cleo where that of ann is waited for: got %d %q, want 404", annsBrowser.status, annsBrowser.page)
	}
	if status, body := ann.answer(cleosBrowser.back.RawQuery); status != http.StatusBadRequest || !strings.Contains(body, "unknown_login") {
		t.Errorf("the answer of cleo in the name of ann: got %d %s, want 400 and unknown_login", status, body)
	}
	mixed := annsBrowser.back.Query()
	mixed.Set("code", cleosBrowser.back.Query().Get("code"))
	annListens.RawQuery = mixed.Encode()
	annsBrowser.open(annListens.String())
	if out, errs, status := hers.wait(); status != 5 || !strings.Contains(errs, "refused a token for notes: invalid_grant") {
		t.Errorf("the code of cleo with the state of ann: status %d, got %q %q, want 5 and invalid_grant", status, out, errs)
	}

	// The login of cleo goes on, and each answer counts once.
	cleosBrowser.open(cleoListens.String() + "?" + cleosBrowser.back.RawQuery)
	if out, errs, status := others.wait(); status != 0 {
		t.Fatalf("the login of cleo: status %d, got %q %q, want 0", status, out, errs)
	}
	if status, body := cleo.answer(cleosBrowser.back.RawQuery); status != http.StatusBadRequest || !strings.Contains(body, "unknown_login") {
		t.Errorf("an answer a second time: got %d %s, want 400 and unknown_login", status, body)
	}
	cleo.calls("id-cleo")
	ann.needsLogin(ann.principal + " runs: junctor mcp login notes")
}

func TestALoginEndsWithTheTokenOfItsPrincipal(t *testing.T) {
	r := newRig(t)
	n := newUpstream(r, "--client-id", Native)
	cleo, agent := r.signIn("cleo"), r.localAgent()
	cleo.logsIn(cleo.principal, "cleo")
	r.logsIn(agent.principal, "bob", "--for", agent.principal)

	// Another sign-in of the same person keeps the login.
	if out, errs, status := cleo.login("cleo", "allowed"); status != 0 {
		t.Fatalf("signing in again: status %d, got %q %q, want 0", status, out, errs)
	}
	cleo.calls("id-cleo")

	// A person who may no longer use the server loses it, and does not get it back with the next token.
	r.idp.SetGroups("cleo")
	if out, errs, status := cleo.login("cleo", "allowed"); status != 3 {
		t.Errorf("cleo without groups: status %d, got %q %q, want 3", status, out, errs)
	}
	r.idp.SetGroups("cleo", "staff")
	if out, errs, status := cleo.login("cleo", "allowed"); status != 0 || !strings.Contains(out, cleo.principal) {
		t.Fatalf("signing in with groups: status %d, got %q %q, want %s", status, out, errs, cleo.principal)
	}
	cleo.needsLogin(cleo.principal + " runs: junctor mcp login notes")
	if got := n.Calls(); len(got) != 1 {
		t.Errorf("calls that reached the MCP server: got %v, want one", got)
	}
	cleo.logsIn(cleo.principal, "cleo")
	cleo.calls("id-cleo")
}

func TestAClientWithASecretLogsInAtItsRegisteredPort(t *testing.T) {
	r := newRig(t)
	newUpstream(r, "--client-id", Web, "--client-secret", "idp", "--issuer", r.idp.Issuer)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("finding a free port: %v", err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	if err := listener.Close(); err != nil {
		t.Fatalf("releasing the port: %v", err)
	}
	r.idp.SetRedirect(Web, "http://127.0.0.1:"+port+"/callback")
	agent := r.localAgent()
	r.logsIn(agent.principal, "bob", "--for", agent.principal, "--port", port)
	agent.calls("id-bob")
	r.idp.ExpireTokens("bob")
	agent.calls("id-bob")
	var grants []string
	for _, form := range r.idp.Forms(Web) {
		if form.Path != "/auth" {
			grants = append(grants, form.Get("grant_type"))
		}
	}
	if want := []string{"authorization_code", "refresh_token"}; !slices.Equal(grants, want) {
		t.Errorf("tokens of the client: got the grants %q, want %q", grants, want)
	}
}

func TestAProviderThatRegistersNoClientsNeedsAClientID(t *testing.T) {
	r := newRig(t)
	newUpstream(r)
	if out, errs, status := r.run("mcp", "login", "notes"); status != 5 ||
		!strings.Contains(errs, "registers no clients by itself: notes needs a client id") {
		t.Errorf("junctor mcp login: status %d, got %q %q, want 5 and that a client id is needed", status, out, errs)
	}
}
