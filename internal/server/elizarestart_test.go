package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/server"
	"github.com/junctor-run/junctor/internal/testkit/built"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// device is an endpoint of the test that goes and comes back on one port, and
// whose manifests and token change.
type device struct {
	t       *testing.T
	addr    string
	srv     *http.Server
	mu      sync.Mutex
	modules string
	token   string
	refused int // requests with another token
}

func newDevice(t *testing.T, token string, modules ...string) *device {
	t.Helper()
	d := &device{t: t, addr: "127.0.0.1:0", token: token}
	d.offer(modules...)
	d.start()
	t.Cleanup(d.stop)
	return d
}

func (d *device) start() {
	d.t.Helper()
	listener, err := net.Listen("tcp", d.addr)
	if err != nil {
		d.t.Fatal(err)
	}
	d.addr = listener.Addr().String()
	resolve := func(r *http.Request) (router.Backend, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		backend, err := router.RequireToken(secret.New(d.token), d)(r)
		if err != nil {
			d.refused++
		}
		return backend, err
	}
	srv := &http.Server{Handler: router.Handler(resolve, router.HandlerOptions{}), ReadHeaderTimeout: 10 * time.Second}
	d.srv = srv
	go func() { _ = srv.Serve(listener) }() // ends with stop
}

func (d *device) stop() { _ = d.srv.Close() }

func (d *device) url() string { return "http://" + d.addr }

func (d *device) offer(modules ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.modules = strings.Join(modules, ",")
}

// rotate changes the token that is demanded; it returns how many requests came
// with another one until now, and starts counting again.
func (d *device) rotate(token string) (refused int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	refused, d.refused, d.token = d.refused, 0, token
	return refused
}

func (d *device) Availability(ctx context.Context) (router.Availability, error) {
	return trial{}.Availability(ctx)
}

func (d *device) Invoke(_ context.Context, method string, _ json.RawMessage) (json.RawMessage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if method == "plugin.modules.list" {
		return json.RawMessage(`{"modules":[` + d.modules + `]}`), nil
	}
	return json.RawMessage(`{"text":"pong"}`), nil
}

// manifest declares an action PING and what else is said.
func manifest(id, members string) string {
	return fmt.Sprintf(`{"id":%[1]q,"name":%[1]q,"version":"1.0.0","actions":[{"name":"PING","description":"Answers at once."}]%[2]s}`, id,
		members)
}

// signed is a manifest with the provenance of issuer "builder"; tamper is added
// after it was signed.
func signed(t *testing.T, key ed25519.PrivateKey, id, tamper string) string {
	t.Helper()
	m, err := router.ParseModule(json.RawMessage(manifest(id, "")))
	if err != nil {
		t.Fatal(err)
	}
	_, digest, err := m.Digests()
	if err != nil {
		t.Fatal(err)
	}
	p := router.Provenance{Issuer: "builder", Subject: id, DigestSHA256: digest, SignatureAlgorithm: "ed25519"}
	p.Signature = base64.StdEncoding.EncodeToString(ed25519.Sign(key, p.SignedBytes()))
	doc, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return manifest(id, tamper+`,"provenance":`+string(doc))
}

// run starts the binary on home and waits for its ready line.
func run(t *testing.T, binary, home string) *node {
	t.Helper()
	p := &process{
		Cmd: exec.Command(binary, "--home", home, "serve", "--listen", "127.0.0.1:0"), stderr: &bytes.Buffer{},
		done: make(chan error, 1),
	}
	p.Stderr = p.stderr
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	lines := bufio.NewReader(out)
	first := make(chan string, 1)
	go func() {
		line, _ := lines.ReadString('\n') // a process that ends early says nothing
		first <- line
		_, _ = io.Copy(io.Discard, lines)
		p.done <- p.Wait()
	}()
	var ready server.ReadyLine
	select {
	case p.first = <-first:
	case <-time.After(time.Minute):
	}
	if err := json.Unmarshal([]byte(p.first), &ready); err != nil {
		p.kill()
		t.Fatalf("ready line %q: %v: %s", p.first, err, p.stderr)
	}
	n := &node{home: home, process: p, url: ready.URL}
	n.admin, n.agent = n.client(t, n.token(t, "admin")), n.client(t, n.token(t, "agent"))
	return n
}

// endpointStatus is what must be the same after a restart, and the state.
type endpointStatus struct {
	ID               string
	BaseURL          string `json:"baseUrl"`
	HasToken         bool   `json:"hasToken"`
	Persisted        bool
	State            capability.State
	Reason           string
	Modules          []string
	Families         []string
	AllowedModuleIDs []string `json:"allowedModuleIds"`
	TrustPolicy      json.RawMessage
	TrustDecisions   []router.TrustDecision
}

func (n *node) endpoints(t *testing.T) map[string]endpointStatus {
	t.Helper()
	var out struct{ Endpoints []endpointStatus }
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/capability-router/endpoints", nil, &out); err != nil {
		t.Fatal(err)
	}
	byID := make(map[string]endpointStatus)
	for _, e := range out.Endpoints {
		byID[e.ID] = e
	}
	return byID
}

// settled waits until every endpoint was asked and returns them.
func (n *node) settled(t *testing.T, down ...string) map[string]endpointStatus {
	t.Helper()
	var got map[string]endpointStatus
	eventually(t, "every endpoint is found up or down", func() bool {
		got = n.endpoints(t)
		for id, e := range got {
			if up := e.State == capability.StateReady; up == slices.Contains(down, id) || e.State == capability.StateStarting {
				return false
			}
		}
		return true
	})
	return got
}

// members are the addressable entries of the five and their states.
func (n *node) members(t *testing.T) map[string]capability.State {
	t.Helper()
	var out struct {
		Entries []struct {
			Member       string
			Availability struct{ State capability.State }
		}
	}
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/catalog/internal", nil, &out); err != nil {
		t.Fatal(err)
	}
	found := make(map[string]capability.State)
	for _, e := range out.Entries {
		if e.Member != "" {
			found[e.Member] = e.Availability.State
		}
	}
	return found
}

// call invokes PING of a module, or what else is named.
func (n *node) call(t *testing.T, target string) error {
	t.Helper()
	var out client.Invoked
	return n.admin.Invoke(t.Context(), client.Invocation{Target: target}, &out)
}

// TestFiveEndpointsSurviveAKill: the binary is killed with five endpoints saved,
// and knows all of each when it is back.
func TestFiveEndpointsSurviveAKill(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	key := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	const provider = `,"providers":[{"name":%q}]`
	down := newDevice(t, "", manifest("down", fmt.Sprintf(provider, "P")))
	fewer := newDevice(t, "", manifest("fewer", ""), manifest("left-out", ""))
	origin := newDevice(t, "", signed(t, private, "signed", ""))
	changed := newDevice(t, "token-one", manifest("changed", fmt.Sprintf(provider, "OLD")))
	unchanged := newDevice(t, "", manifest("unchanged", ""))

	binary, home := built.Junctor(t), t.TempDir()
	n := run(t, binary, home)
	connect := func(id string, d *device, endpoint, top map[string]any) {
		t.Helper()
		body := map[string]any{"endpoint": map[string]any{"id": id, "baseUrl": d.url()}}
		for k, v := range endpoint {
			body["endpoint"].(map[string]any)[k] = v
		}
		for k, v := range top {
			body[k] = v
		}
		if err := n.admin.Do(t.Context(), http.MethodPost, "/api/capability-router/connect", body, nil); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
	}
	connect("down", down, nil, nil)
	connect("fewer", fewer, nil, map[string]any{"allowedModuleIds": []string{"fewer"}})
	connect("signed", origin, nil, map[string]any{"trustPolicy": map[string]any{
		"requireVerifiedProvenance": true, "trustedProvenancePublicKeys": map[string]string{"builder": key},
	}})
	connect("changed", changed, map[string]any{"token": "token-one"}, nil)
	connect("unchanged", unchanged, nil, nil)
	changed.rotate("token-two")
	connect("changed", changed, map[string]any{"token": "token-two"}, nil)
	before, entries := n.settled(t), n.members(t)
	if len(before) != 5 || before["changed"].BaseURL != changed.url() || len(before["signed"].TrustPolicy) == 0 {
		t.Fatalf(`%+v; want len(before) = 5, before["changed"].BaseURL = changed.url(), len(before["signed"].TrustPolicy) other than 0`,
			before)
	}
	agentToken := n.token(t, "agent")
	n.kill()

	down.stop()
	fewer.offer(manifest("fewer", ""), manifest("left-out", ""), manifest("late", ""))
	changed.offer(manifest("changed", fmt.Sprintf(provider, "NEW")))
	changed.rotate("token-two")
	n = run(t, binary, home)
	n.sameEndpoints(t, before, n.settled(t, "down"))
	delete(entries, "changed:provider:OLD")
	entries["changed:provider:NEW"] = capability.StateReady
	entries["down:action:PING"], entries["down:provider:P"] = capability.StateUnavailable, capability.StateUnavailable
	if d := cmp.Diff(entries, n.members(t)); d != "" || len(entries) < 7 {
		t.Errorf(`the catalog is another: %s; want d = "", len(entries) at least 7`, d)
	}
	for _, up := range []string{
		"fewer:action:PING", "signed:action:PING", "changed:action:PING", "changed:provider:NEW",
		"unchanged:action:PING",
	} {
		if err := n.call(t, up); err != nil {
			t.Errorf("%s: %v", up, err)
		}
	}
	for _, gone := range []string{"left-out:action:PING", "late:action:PING", "changed:provider:OLD"} {
		if err := n.call(t, gone); capability.CodeOf(err) != capability.CodeUnknownCapability {
			t.Errorf("%s: %v; want capability.CodeOf(err) = capability.CodeUnknownCapability", gone, err)
		}
	}
	if err := n.call(t, "down:action:PING"); capability.CodeOf(err) != capability.CodeUnavailable {
		t.Errorf("what is down: %v; want capability.CodeOf(err) = capability.CodeUnavailable", err)
	}
	if refused := changed.rotate("token-three"); refused != 0 {
		t.Errorf("%d requests came with another token than the rotated one; want refused = 0", refused)
	}
	if n.token(t, "agent") != agentToken {
		t.Errorf(`the agent's token is another; want n.token(t, "agent") = %v`, agentToken)
	}

	// It comes back by itself; and the token is rotated in place once more.
	down.start()
	_ = n.admin.Do(t.Context(), http.MethodPost, "/api/capability-router/endpoints/changed/sync", nil, nil) // asks, and so is refused
	if got := n.settled(t, "changed")["changed"]; !strings.Contains(got.Reason, "token") {
		t.Errorf(`with a token that is not right any more it is %s, reason %q; want got.Reason with "token"`, got.State, got.Reason)
	}
	connect("changed", changed, map[string]any{"token": "token-three"}, nil)
	n.settled(t)
	for _, id := range []string{"down", "changed"} {
		if err := n.call(t, id+":action:PING"); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	n.verify(t)
	n.kill()

	// What was signed is not what is offered now: the saved policy still decides.
	origin.offer(signed(t, private, "signed", `,"description":"tampered"`))
	n = run(t, binary, home)
	n.settled(t)
	eventually(t, "the tampered module is unloaded", func() bool {
		return capability.CodeOf(n.call(t, "signed:action:PING")) == capability.CodeUnknownCapability
	})
	decisions := n.endpoints(t)["signed"].TrustDecisions
	if len(decisions) != 1 || decisions[0].Trusted || decisions[0].Reason != router.TrustInvalidDigest {
		t.Errorf("%+v; want len(decisions) = 1, decisions[0].Trusted = false, decisions[0].Reason = router.TrustInvalidDigest",
			decisions)
	}
	if err := n.call(t, "changed:action:PING"); err != nil {
		t.Errorf("the token of the second rotation: %v", err)
	}
	n.verify(t)
	n.terminate(t)
	var kept []string
	files, err := filepath.Glob(filepath.Join(home, "secrets", "*"))
	for _, name := range files {
		data, readErr := os.ReadFile(name)
		if err = errors.Join(err, readErr); bytes.HasPrefix(data, []byte("token-")) {
			kept = append(kept, string(data))
		}
	}
	if err != nil || !slices.Equal(kept, []string{"token-three"}) {
		t.Errorf(`kept of the tokens: %q, %v; want no error, kept = []string{"token-three"}`, kept, err)
	}
}

// sameEndpoints compares all but the states, and the decisions, which follow the
// manifests.
func (n *node) sameEndpoints(t *testing.T, before, after map[string]endpointStatus) {
	t.Helper()
	if len(after) != len(before) {
		t.Errorf("%d endpoints, not %d; want len(after) = %v", len(after), len(before), len(before))
	}
	for id, was := range before {
		is := after[id]
		for _, d := range is.TrustDecisions {
			if allowed := was.AllowedModuleIDs; d.Trusted != (allowed == nil || slices.Contains(allowed, d.ModuleID)) {
				t.Errorf("%s: %+v; want d.Trusted = (allowed == nil || slices.Contains(allowed, d.ModuleID))", id, d)
			}
		}
		is.State, is.Reason, is.TrustDecisions, was.TrustDecisions = was.State, was.Reason, nil, nil
		if d := cmp.Diff(was, is); d != "" {
			t.Errorf(`%s: %s; want d = ""`, id, d)
		}
	}
}
