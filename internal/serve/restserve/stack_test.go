package restserve_test

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/serve/restserve"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stack is the surface with the engine behind it and modules of the test's own.
type stack struct {
	*testing.T
	url     string
	catalog *catalog.Catalog
	policy  *policy.Policy
	log     *audit.Log
	tokens  map[capability.Role]string

	mu   sync.Mutex
	told map[string]string // input by module, of the calls that came
}

func newStack(t *testing.T, rules string) *stack {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(t.Context(), filepath.Join(dir, "junctor.db"))
	ok(t, err)
	files, err := segment.Open(filepath.Join(dir, "audit"), segment.Config{})
	ok(t, err)
	log, err := audit.Open(t.Context(), audit.Config{Segments: files, Key: make([]byte, 32)})
	ok(t, err)
	pol, err := policy.New(t.Context(), policy.Config{
		Documents: []policy.Document{{Name: "default.cedar", Text: []byte(policy.DefaultRules() + rules)}}, Store: db, Log: log,
	})
	ok(t, err)
	st := &stack{
		T: t, catalog: catalogtest.New(t), policy: pol, log: log, tokens: map[capability.Role]string{"": ""},
		told: make(map[string]string),
	}
	root := capability.Principal{ID: "admin:root", Role: capability.RoleAdmin}
	for _, role := range []capability.Role{capability.RoleAdmin, capability.RoleOperator, capability.RoleAgent, capability.RoleNode} {
		_, value, err := pol.CreateToken(t.Context(), root, policy.TokenRequest{Role: role, Name: string(role)})
		ok(t, err)
		st.tokens[role] = value.Reveal()
	}
	mux := http.NewServeMux()
	restserve.New(restserve.Config{
		Door: httpapi.New(pol, log, nil), Engine: invoke.New(invoke.Config{Catalog: st.catalog, Policy: pol, Log: log, Outcomes: db}),
		Catalog: st.catalog, Policy: pol, Log: log, MaxInput: 1 << 16,
		Events:   func(context.Context, uint64) iter.Seq[restserve.Event] { return nil },
		AssetURL: func(endpoint, module, path string) string { return "/assets/" + endpoint + "/" + module + "/" + path },
	}).Routes(mux)
	server := httptest.NewServer(mux)
	st.url = server.URL
	t.Cleanup(func() {
		server.Close()
		_ = log.Close()
		ok(t, db.Close())
		http.DefaultClient.CloseIdleConnections()
	})
	return st
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// offer publishes one module on one endpoint: with an entry for each event, and
// one more that reads.
func (st *stack) offer(endpoint, module, members string, state capability.State, events ...string) {
	st.Helper()
	key := capability.NewProviderKey("ext", "endpoint", endpoint)
	availability := capability.Availability{State: state}
	contribution := func(id, kind string, effect capability.Effect, member capability.Member) capability.Contribution {
		return capability.Contribution{ID: id, Kind: kind, Provider: key, Effect: effect, Member: member, Availability: availability}
	}
	m := capability.Module{
		Extension: "remote." + module, ID: module, Name: "@acme/" + module, Origin: "endpoint", Endpoint: endpoint,
		Manifest: json.RawMessage(`{"id":"` + module + `","name":"@acme/` + module + `","version":"1","description":"d"` + members + `}`),
		Contributions: []capability.Contribution{
			contribution("view.asset", "capability.rpc", capability.EffectRead, capability.Member{Module: module, Kind: "view", Name: "asset"}),
		},
	}
	for _, name := range events {
		m.Contributions = append(m.Contributions, contribution("event."+name, "capability.event-handler", capability.EffectExternal,
			capability.Member{Module: module, Kind: "event", Name: name}))
	}
	_, _, err := st.catalog.Replace(capability.Batch{
		Source: "endpoint/" + endpoint, Modules: []capability.Module{m},
		Providers: []capability.Provider{teller{st, key}},
	})
	ok(st, err)
	st.policy.CatalogChanged()
}

// teller notes what it is called with. The module "broken" fails.
type teller struct {
	*stack
	key capability.ProviderKey
}

func (p teller) Key() capability.ProviderKey { return p.key }

func (p teller) Invoke(_ context.Context, c capability.Call) (capability.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told[c.Member.Module] = string(c.Input)
	if c.Member.Module == "broken" {
		return capability.Result{}, capability.Errorf(capability.CodeFailed, "teller", "the disk is full")
	}
	return capability.Result{Value: json.RawMessage(`{"handled":` + map[bool]string{true: "true", false: "false"}[c.Member.Module == "keen"] +
		`}`)}, nil
}

// do asks and reads the JSON of the answer.
func (st *stack) do(method, path string, as capability.Role, body string, into any) int {
	st.Helper()
	req, err := http.NewRequestWithContext(st.Context(), method, st.url+path, strings.NewReader(body))
	ok(st, err)
	if token := st.tokens[as]; token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	ok(st, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	ok(st, err)
	if into != nil {
		if err := json.Unmarshal(data, into); err != nil {
			st.Fatalf("%v in %d %s", err, resp.StatusCode, data)
		}
	}
	return resp.StatusCode
}
