package server_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/internal/testkit/pgtest"
	"github.com/junctor-run/junctor/secret"
)

// gateway starts a server on a fresh home whose store is the database of the URL.
func gateway(t *testing.T, url string, env ...string) *node {
	t.Helper()
	home := t.TempDir()
	secrets, err := secretstore.Open(filepath.Join(home, "secrets"), secretstore.Further{})
	if err != nil {
		t.Fatal(err)
	}
	if err := secrets.Set("pg", secret.New(pgtest.Password)); err != nil {
		t.Fatal(err)
	}
	secrets.Close()
	n := serve(t, home, append([]string{"JUNCTOR_STORE_URL=" + url, "JUNCTOR_STORE_PASSWORD_SECRET=pg"}, env...)...)
	t.Cleanup(func() {
		n.kill()
		if strings.Contains(n.stderr.String(), pgtest.Password) {
			t.Error("the password is in the log")
		}
	})
	return n
}

// within waits until ok holds and reports how long that took: how long another gateway did not know of a change.
func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	began := time.Now()
	eventually(t, what, ok)
	t.Logf("%s after %s", what, time.Since(began).Round(time.Millisecond))
}

func (n *node) must(t *testing.T, method, path string, body, out any) {
	t.Helper()
	if err := n.admin.Do(t.Context(), method, path, body, out); err != nil {
		t.Fatal(err)
	}
}

type made struct {
	ID    string
	Token string
}

// write asks for a file as the caller of c; its error is what became of it.
func write(t *testing.T, c *client.Client, name, key string) (client.Invoked, error) {
	t.Helper()
	var out client.Invoked
	err := c.Invoke(t.Context(), client.Invocation{
		Target: "fs.writeText", Input: json.RawMessage(`{"path":"` + name + `","text":"x"}`),
		IdempotencyKey: key,
	}, &out)
	return out, err
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return capability.AsError(err).Reason
}

func TestTwoGatewaysShareOneStore(t *testing.T) {
	t.Parallel()
	postgres := pgtest.Start(t)
	url := postgres.Database(t)
	a, b := gateway(t, url), gateway(t, url)

	// The tokens of each home are its own, and good everywhere.
	if a.token(t, "admin") == b.token(t, "admin") || b.client(t, a.token(t, "agent")).Do(t.Context(), http.MethodGet, "/api/v1/status", nil,
		nil) != nil {
		t.Error("the two homes are in each other's way")
	}

	// A token made on A works on B; revoked on A it is refused on B.
	var agent made
	a.must(t, http.MethodPost, "/api/v1/tokens", map[string]any{"role": "agent", "name": "ann"}, &agent)
	annA, annB := a.client(t, agent.Token), b.client(t, agent.Token)
	in := func() error { return annB.Do(t.Context(), http.MethodGet, "/api/v1/status", nil, nil) }
	within(t, "a token made on A is good on B", func() bool { return in() == nil })

	// An approval asked for on A and decided on B lets the caller on A go on.
	_, err := write(t, annA, "approved.txt", "")
	e := capability.AsError(err)
	if capability.CodeOf(err) != capability.CodeApprovalRequired {
		t.Fatalf("%v; want capability.CodeOf(err) = capability.CodeApprovalRequired", err)
	}
	id, _ := e.Details["approval"].(string)
	b.must(t, http.MethodPost, "/api/v1/confirmations/"+id, map[string]string{"decision": "once"}, nil)
	if _, err := write(t, annA, "approved.txt", ""); err != nil {
		t.Fatal(err)
	}
	if !exists(filepath.Join(a.home, "files", "approved.txt")) || exists(filepath.Join(b.home, "files", "approved.txt")) {
		t.Error("the file is not where it was asked for")
	}
	if _, err := write(t, annA, "approved.txt", ""); capability.CodeOf(err) != capability.CodeApprovalRequired {
		t.Errorf("an approval for once was used twice: %v; want capability.CodeOf(err) = capability.CodeApprovalRequired", err)
	}

	// A grant for one use made on A counts on both: one of two calls goes by it.
	var grant made
	a.must(t, http.MethodPost, "/api/v1/grants", map[string]any{"principal": "agent:ann", "action": "fs.writeText", "max_uses": 1}, &grant)
	within(t, "a grant made on A counts on B", func() bool {
		_, err := write(t, annB, "granted.txt", "")
		return err == nil
	})
	if _, err := write(t, annA, "granted.txt", ""); capability.CodeOf(err) != capability.CodeApprovalRequired {
		t.Errorf("a grant for one use was used twice: %v; want capability.CodeOf(err) = capability.CodeApprovalRequired", err)
	}
	a.must(t, http.MethodPost, "/api/v1/grants", map[string]any{"principal": "agent:ann", "action": "fs.writeText"}, &grant)

	// One key is one call, wherever it comes in.
	var first, second struct{ Invocation struct{ ID string } }
	within(t, "the next grant counts on B", func() bool { _, err := write(t, annB, "k0.txt", ""); return err == nil })
	for c, out := range map[*client.Client]any{annB: &first, annA: &second} {
		if err := c.Invoke(t.Context(), client.Invocation{
			Target: "fs.writeText", Input: json.RawMessage(`{"path":"k.txt","text":"x"}`),
			IdempotencyKey: "k",
		}, out); err != nil {
			t.Fatal(err)
		}
	}
	if first.Invocation.ID == "" || first.Invocation.ID != second.Invocation.ID ||
		exists(filepath.Join(a.home, "files", "k.txt")) == exists(filepath.Join(b.home, "files", "k.txt")) {
		t.Errorf(`one key ran twice: %+v %+v; want first.Invocation.ID other than "", first.Invocation.ID = %v, `+
			`exists(filepath.Join(a.home, "files", "k.txt")) other than exists(filepath.Join(b.home, "files", "k.txt"))`, first, second,
			second.Invocation.ID)
	}

	a.must(t, http.MethodDelete, "/api/v1/grants/"+grant.ID, nil, nil)
	within(t, "a grant revoked on A is over on B", func() bool {
		_, err := write(t, annB, "late.txt", "")
		return capability.CodeOf(err) == capability.CodeApprovalRequired
	})
	a.must(t, http.MethodDelete, "/api/v1/tokens/ann", nil, nil)
	within(t, "a token revoked on A is refused on B", func() bool { return capability.CodeOf(in()) == capability.CodeUnauthenticated })

	// What was recorded on either is in the joined index under its name.
	for _, n := range []*node{a, b} {
		if len(n.records(t, "limit=100")) == 0 {
			t.Error(`a gateway does not find its own records; want len(n.records(t, "limit=100")) other than 0`)
		}
		n.verify(t)
	}
	if got := postgres.Query(t, url, `SELECT count(DISTINCT gateway) FROM audit_index WHERE event = 'server_started'`); got != "2" {
		t.Errorf(`%s gateways in the index; want got = "2"; the index holds %s, up to %s`, got,
			postgres.Query(t, url, `SELECT string_agg(DISTINCT gateway || ' ' || event, ', ') FROM audit_index`),
			postgres.Query(t, url, `SELECT string_agg(gateway || ' ' || seq, ', ') FROM audit_position`))
	}
	for _, n := range []*node{a, b} {
		if ans := n.request(t, http.MethodGet, "/api/v1/doctor", n.token(t, "admin"), ""); !strings.Contains(ans.body,
			"2 gateways have written to it") || strings.Contains(ans.body, pgtest.Password) {
			t.Errorf("doctor = %s, want two gateways and no password", ans.body)
		}
	}
}

func TestAnEndpointConnectedOnOneGatewayIsOnTheOther(t *testing.T) {
	t.Parallel()
	url := pgtest.Start(t).Database(t)
	a, b := gateway(t, url), gateway(t, url)
	far := spawn(t, "endpoint", nil, "127.0.0.1:0", "trial")
	a.connect(t, "far", far.first, true)
	within(t, "an endpoint connected on A is ready on B", func() bool { return b.endpoints(t)["far"].State == capability.StateReady })
	if err := b.call(t, "trial:action:PING"); err != nil {
		t.Error(err)
	}
	b.must(t, http.MethodDelete, "/api/capability-router/endpoints/far", nil, nil)
	within(t, "an endpoint disconnected on B is gone on A", func() bool { return len(a.endpoints(t)) == 0 })
	if err := a.call(t, "trial:action:PING"); capability.CodeOf(err) != capability.CodeUnknownCapability {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeUnknownCapability", err)
	}

	// Its token stays on the machine it was given to: the other states what is missing.
	body := map[string]any{"endpoint": map[string]any{"id": "far", "baseUrl": far.first, "token": "given-in-confidence"}, "persist": true}
	a.must(t, http.MethodPost, "/api/capability-router/connect", body, nil)
	var there endpointStatus
	within(t, "an endpoint without its token is on B", func() bool {
		there = b.endpoints(t)["far"]
		return there.State == capability.StateUnauthorized
	})
	_, name, ok := strings.Cut(there.Reason, "junctor secrets set ")
	if !ok {
		t.Fatalf("%+v; want ok = true", there)
	}
	if err := b.call(t, "trial:action:PING"); err == nil {
		t.Error("an endpoint was called without its token; want an error")
	}
	if ans := b.request(t, http.MethodPut, "/api/v1/secrets/"+name, b.token(t, "admin"), "given-in-confidence", func(r *http.Request) {
		r.Header.Set("Content-Type", "application/octet-stream")
	}); ans.status >= 300 {
		t.Fatalf("storing the secret: status %d, body %s, want success", ans.status, ans.body)
	}
	_ = b.admin.Do(t.Context(), http.MethodPost, "/api/capability-router/sync", map[string]any{}, nil)
	eventually(t, "the endpoint is ready on B", func() bool { return b.endpoints(t)["far"].State == capability.StateReady })
	if err := b.call(t, "trial:action:PING"); err != nil {
		t.Error(err)
	}
}

func TestTheSharedStoreGoesAwayAndComesBack(t *testing.T) {
	postgres := pgtest.Start(t)
	url := postgres.Database(t)
	n := gateway(t, url)
	newToken := func() error {
		return n.admin.Do(t.Context(), http.MethodPost, "/api/v1/tokens", map[string]any{"role": "agent"}, nil)
	}
	if err := newToken(); err != nil {
		t.Fatal(err)
	}
	postgres.Stop(t)
	within(t, "readyz says that the store is away", func() bool {
		ans := n.request(t, http.MethodGet, "/readyz", "", "")
		return ans.status == http.StatusServiceUnavailable && strings.Contains(ans.body, "the shared store ")
	})
	var out client.Invoked
	if err := n.agent.Invoke(t.Context(), client.Invocation{Target: "fs.list", Input: json.RawMessage(`{"path":"."}`)}, &out); err != nil {
		t.Errorf("a read while the store is away: %v", err)
	}
	if len(n.records(t, "event=capability_executed")) == 0 {
		t.Error(`the audit cannot be asked while the store is away; want len(n.records(t, "event=capability_executed")) other than 0`)
	}
	for what, err := range map[string]error{
		"a token": newToken(),
		"a write that needs a yes": func() error {
			_, err := write(t, n.agent, "asked.txt", "")
			return err
		}(),
		"a write with a key": func() error {
			_, err := write(t, n.admin, "keyed.txt", "k")
			return err
		}(),
		"an answer": n.admin.Do(t.Context(), http.MethodPost, "/api/v1/confirmations/apr_000000000000000000000000",
			map[string]string{"decision": "once"}, nil),
	} {
		if capability.CodeOf(err) != capability.CodeUnavailable || reason(err) != "store_unavailable" ||
			!strings.Contains(err.Error(), "the shared store") {
			t.Errorf("%s while the store is away: %v; want capability.CodeOf(err) = capability.CodeUnavailable, reason(err) = "+
				`"store_unavailable", err.Error() with "the shared store"`, what, err)
		}
	}
	if exists(filepath.Join(n.home, "files", "keyed.txt")) || exists(filepath.Join(n.home, "files", "asked.txt")) {
		t.Error("something was written")
	}
	if ans := n.request(t, http.MethodGet, "/api/v1/doctor", n.token(t, "admin"), ""); !strings.Contains(ans.body, "does not answer") &&
		!strings.Contains(ans.body, "takes no connection") {
		t.Errorf("doctor = %s, want the finding that the database cannot be reached", ans.body)
	}
	postgres.Run(t)
	eventually(t, "readyz is content again", func() bool { return n.request(t, http.MethodGet, "/readyz", "", "").status == http.StatusOK })
	if err := newToken(); err != nil {
		t.Error(err)
	}
	if _, err := write(t, n.admin, "keyed.txt", "k"); err != nil {
		t.Error(err)
	}
	n.terminate(t)
}
