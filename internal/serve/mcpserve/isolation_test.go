package mcpserve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/local"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// island is an upstream of its own; everything that it declares bears a mark that is
// found nowhere else.
type island struct{ name string }

func (i island) Key() capability.ProviderKey { return capability.ProviderKey("ext:mcp:" + i.name) }

func (i island) Invoke(_ context.Context, c capability.Call) (capability.Result, error) {
	return capability.Result{Value: json.RawMessage(`{"content":[],"messages":[],"contents":[],"completion":{"values":["of ` + i.name +
		`"]}}`)}, nil
}

func (i island) batch() capability.Batch {
	mark := func(kind string, k int) string { return fmt.Sprintf("zq%s%s%dz", i.name, kind, k) }
	m := capability.Module{Extension: "mcp." + i.name, ID: "mcp." + i.name, Name: i.name, Label: i.name, Origin: "mcp"}
	for k, effect := range []capability.Effect{
		capability.EffectRead, capability.EffectRead, capability.EffectWrite,
		capability.EffectExternal,
	} {
		c := declared(mark("t", k), `,"description":"shared word of `+mark("t", k)+`"`)
		c.Effect, c.Description = effect, "shared word"
		m.Contributions = append(m.Contributions, c)
	}
	for k := range 2 {
		m.Contributions = append(m.Contributions,
			thing(kindPrompt, "capability.interaction", mark("p", k), `{"name":"`+mark("p", k)+`","arguments":[{"name":"who"}]}`),
			thing(kindResource, "capability.context-augmenter", "island://"+mark("r", k), `{"uri":"island://`+mark("r", k)+`","name":"r"}`))
	}
	completion := thing(kindCompletion, "capability.rpc", "complete", "")
	completion.Definition = nil
	m.Contributions = append(m.Contributions, completion,
		thing(kindTemplate, "capability.context-augmenter", "island://"+mark("u", 0)+"/{x}", `{"uriTemplate":"island://`+mark("u", 0)+
			`/{x}","name":"u"}`))
	for n := range m.Contributions {
		m.Contributions[n].Provider, m.Contributions[n].Member.Module = i.Key(), m.Extension
	}
	return capability.Batch{Source: "upstream/" + m.Extension, Modules: []capability.Module{m}, Providers: []capability.Provider{i}}
}

// rule is one random rule, as Cedar says it and as this test understands it.
type rule struct {
	principal, scope, value, consent string
	forbid                           bool
}

func (r rule) matches(principal string, e *catalog.Entry) bool {
	if r.principal != principal {
		return false
	}
	switch r.scope {
	case "module":
		return e.Module.Extension == r.value
	case "action":
		return string(e.Action) == r.value
	case "effect":
		return string(e.Effect) == r.value
	}
	return string(e.ID) == r.value
}

func (r rule) cedar(n int) string {
	action, resource := "action", "resource"
	switch r.scope {
	case "module":
		resource = `resource in Module::` + strconv.Quote(r.value)
	case "action":
		action = `action == Action::` + strconv.Quote(r.value)
	case "effect":
		action = `action in Action::` + strconv.Quote(r.value)
	default:
		resource = `resource == Capability::` + strconv.Quote(r.value)
	}
	verb, consent := "permit", ""
	if r.forbid {
		verb = "forbid"
	} else if r.consent != "" {
		consent = `@consent("` + r.consent + `") `
	}
	return fmt.Sprintf("@id(\"r%d\") %s%s (principal == Principal::%q, %s, %s);\n", n, consent, verb, r.principal, action, resource)
}

// isles is a surface in front of three islands, and everything on them.
type isles struct {
	*stack
	mux     *http.ServeMux
	entries []*catalog.Entry
	agents  map[string]string // principal → token
	opened  map[string]string // principal and view → session
}

func newIsles(t *testing.T) *isles {
	t.Helper()
	st := newStack(t, stackOptions{
		own:   &kept{m: make(map[string]string)},
		views: map[string]View{"some": {Modules: []string{"mcp.a", "core"}}, "rest": {Modules: []string{"mcp.[bc]", "core"}, OwnNames: true}},
	})
	is := &isles{
		stack: st, mux: http.NewServeMux(), agents: map[string]string{"agent:one": st.agent, "agent:two": st.agent2},
		opened: map[string]string{},
	}
	st.surface.Routes(is.mux)
	for _, name := range []string{"a", "b", "c"} {
		st.offer(island{name}.batch())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // one batch
	err := local.NewFunctionSource(local.CatalogFunctions(st.surface.cfg.Engine, "test")...).Run(ctx, func(b capability.Batch) error {
		st.offer(b)
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("%v; want err is context.Canceled", err)
	}
	for _, e := range catalogtest.Entries(st.catalog) {
		if strings.HasPrefix(e.Module.Extension, "mcp.") {
			is.entries = append(is.entries, e)
		}
	}
	return is
}

// mark is what gives an entry away; "" where nothing is listed of it.
func mark(e *catalog.Entry) string {
	_, rest, found := strings.Cut(e.Contribution.Member.Name, "zq")
	if !found {
		return ""
	}
	rest, _, _ = strings.Cut(rest, "z")
	return "zq" + rest + "z"
}

// policy makes random rules for both, and states what each of them may see.
func (is *isles) policy(random *rand.Rand) (seen map[string]map[*catalog.Entry]bool, text string) {
	is.t.Helper()
	var rules []rule
	for who := range is.agents {
		for range random.IntN(6) {
			e := is.entries[random.IntN(len(is.entries))]
			r := rule{principal: who, forbid: random.IntN(4) == 0, consent: []string{"", "", "client", "operator"}[random.IntN(4)]}
			r.scope = []string{"module", "module", "action", "effect", "capability"}[random.IntN(5)]
			r.value = map[string]string{
				"module": e.Module.Extension, "action": string(e.Action), "effect": string(e.Effect),
				"capability": string(e.ID),
			}[r.scope]
			rules = append(rules, r)
		}
	}
	for n, r := range rules {
		text += r.cedar(n)
	}
	ok(is.t, is.stack.policy.SetRules([]policy.Document{{
		Name: "random.cedar",
		Text: []byte(text + `@id("core") permit (principal, action, resource in Module::"core");`),
	}}))
	is.surface.CatalogChanged()
	seen = map[string]map[*catalog.Entry]bool{}
	for who := range is.agents {
		seen[who] = map[*catalog.Entry]bool{}
		for _, e := range is.entries {
			hit := func(forbid bool) bool {
				return slices.ContainsFunc(rules, func(r rule) bool { return r.forbid == forbid && r.matches(who, e) })
			}
			if hit(false) && !hit(true) {
				seen[who][e] = true
			}
		}
	}
	return seen, text
}

// ask sends one request without a network, in the era of the round.
func (is *isles) ask(who, view string, legacy bool, method, params string) string {
	is.t.Helper()
	path := "/mcp"
	if view != "" {
		path += "/" + view
	}
	send := func(body string, headers ...string) *httptest.ResponseRecorder {
		req := httptest.NewRequestWithContext(is.t.Context(), http.MethodPost, "http://127.0.0.1"+path, strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+is.agents[who])
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		out := httptest.NewRecorder()
		is.mux.ServeHTTP(out, req)
		return out
	}
	if !legacy {
		if params != "" {
			params += ","
		}
		var p struct{ Name, URI string }
		ok(is.t, json.Unmarshal([]byte(`{`+params+`"":0}`), &p))
		headers := []string{mcpwire.HeaderVersion, mcpwire.Version20260728, mcpwire.HeaderMethod, method}
		if name := p.Name + p.URI; name != "" {
			headers = append(headers, mcpwire.HeaderName, name)
		}
		return send(modernBody(method, params), headers...).Body.String()
	}
	id := is.opened[who+view]
	if id == "" {
		id = send(strings.Replace(initialize, "VERSION", mcpwire.Version20251125, 1)).Header().Get(mcpwire.HeaderSession)
		is.opened[who+view] = id
	}
	return send(`{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":{`+params+`}}`, mcpwire.HeaderSession, id).Body.String()
}

var invocationID = regexp.MustCompile(`run_[0-9a-f]+`)

// TestOthersToolsAreHiddenAtScale requires, for random rules, that two principals see their own
// capabilities and nothing reveals a capability that only the other has.
func TestOthersToolsAreHiddenAtScale(t *testing.T) {
	// ISOLATION_POLICIES=10000 is the whole check, within a minute; every run of the
	// tests takes a part of it, with other rules each time.
	policies, seed := uint64(200), rand.Uint64()
	for name, to := range map[string]*uint64{"ISOLATION_POLICIES": &policies, "ISOLATION_SEED": &seed} {
		if given := os.Getenv(name); given != "" {
			var err error
			*to, err = strconv.ParseUint(given, 10, 64)
			ok(t, err)
		}
	}
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test that can be repeated
	is := newIsles(t)
	const unknown = "zqunknownz"
	hidden, visible, began := 0, 0, time.Now()
	listed := make(map[string]bool) // principal, view, era and tool: under the rules of some round
	for round := range policies {
		seen, text := is.policy(random)
		view := []string{"", "some", "rest"}[random.IntN(3)]
		legacy := random.IntN(2) == 0
		for who := range is.agents {
			bodies := map[string]string{
				"t": is.ask(who, view, legacy, "tools/list", ""), "p": is.ask(who, view, legacy, "prompts/list", ""),
				"r": is.ask(who, view, legacy, "resources/list", ""), "u": is.ask(who, view, legacy, "resources/templates/list", ""),
				"search": is.ask(who, view, legacy, "tools/call", `"name":"catalog_search","arguments":{"query":"shared word","limit":3}`),
			}
			within := func(e *catalog.Entry) bool {
				return view == "" || (view == "some") == (e.Module.Extension == "mcp.a")
			}
			fail := func(format string, args ...any) {
				t.Helper()
				t.Fatalf("ISOLATION_SEED=%d round %d: %s in view %q, legacy %v: %s\nunder\n%s", seed, round, who, view, legacy,
					fmt.Sprintf(format, args...), text)
			}
			tools := 0
			for _, e := range is.entries {
				m := mark(e)
				if m == "" {
					continue
				}
				may := seen[who][e] && within(e)
				if strings.Contains(bodies["t"], m) {
					listed[fmt.Sprint(who, view, legacy, m)] = true
				}
				for list, body := range bodies {
					there := strings.Contains(body, m)
					if there && !may || !there && may && list == m[3:4] {
						fail("%s in the list %s: %v, may see it: %v\n%s", m, list, there, may, body)
					}
				}
				if may {
					visible++
					if m[3] == 't' {
						tools++
					}
					continue
				}
				hidden++
				if random.IntN(24) != 0 {
					continue
				}
				// What is hidden answers as what is not there.
				probe := []struct{ method, params string }{
					{"tools/call", `"name":"%s","arguments":{}`},
					{"prompts/get", `"name":"%s","arguments":{}`},
					{"resources/read", `"uri":"island://%s"`},
					{"completion/complete", `"ref":{"type":"ref/prompt","name":"%s"},"argument":{"name":"who","value":""}`},
				}[random.IntN(4)]
				got := is.ask(who, view, legacy, probe.method, fmt.Sprintf(probe.params, m))
				want := is.ask(who, view, legacy, probe.method, fmt.Sprintf(probe.params, unknown))
				forbidden := strings.Contains(got, `a rule of this server forbids \"`+m+`\"`)
				if strings.ReplaceAll(got, m, unknown) != want && (!forbidden || !listed[fmt.Sprint(who, view, legacy, m)]) {
					fail("%s of %s: %s\nand of what is not there: %s", probe.method, m, got, want)
				}
				usage := `"uri":"junctor://capabilities/%s/usage"`
				got = is.ask(who, view, legacy, "resources/read", fmt.Sprintf(usage, url.PathEscape(string(e.ID))))
				want = is.ask(who, view, legacy, "resources/read", fmt.Sprintf(usage, "mcp.a%2Fnone"))
				if strings.ReplaceAll(got, url.PathEscape(string(e.ID)), "mcp.a%2Fnone") != want {
					fail("the usage of %s: %s\nand of what is not there: %s", e.ID, got, want)
				}
				described := func(name string) string {
					body := is.ask(who, view, legacy, "tools/call", `"name":"catalog_describe","arguments":{"name":"`+name+`"}`)
					return strings.ReplaceAll(invocationID.ReplaceAllString(body, "run_"), name, "NAME")
				}
				if got, want := described(m), described(unknown); got != want {
					fail("catalog_describe of %s: %s\nand of what is not there: %s", m, got, want)
				}
			}
			if found := strings.Count(bodies["search"], `shared word`) / 2; found != min(tools, 3) &&
				strings.Contains(bodies["search"], "structuredContent") {
				fail("%d found of %d tools: %s", found, tools, bodies["search"])
			}
		}
	}
	t.Logf("seed %d: %d policies in %s, %d times hidden, %d times visible", seed, policies, time.Since(began).Round(time.Millisecond), hidden,
		visible)
	if hidden == 0 || visible == 0 {
		t.Errorf("nothing was tried; got hidden = %v, visible = %v; want hidden other than 0, visible other than 0", hidden, visible)
	}
}

// TestNobodyHearsOfWhatAnotherGets: a list_changed is sent only to sessions whose own list
// changed.
func TestNobodyHearsOfWhatAnotherGets(t *testing.T) {
	is := newIsles(t)
	rules := map[string]string{"agent:one": "", "agent:two": ""}
	set := func() {
		ok(t, is.stack.policy.SetRules([]policy.Document{{Name: "r.cedar", Text: []byte(rules["agent:one"] + rules["agent:two"])}}))
		is.surface.CatalogChanged()
	}
	set()
	heard := map[string]<-chan string{}
	for who, token := range is.agents {
		id := is.open(token, mcpwire.Version20251125)
		is.agent = token // whose stream it is
		lines, _ := is.stream(t.Context(), http.MethodGet, "", mcpwire.HeaderSession, id)
		notices := make(chan string, 100)
		go func() {
			defer close(notices)
			for line := range lines {
				if strings.Contains(line, "list_changed") {
					notices <- line
				}
			}
		}()
		heard[who] = notices
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test that can be repeated
	for round := range 10 {
		who, other := "agent:one", "agent:two"
		if random.IntN(2) == 0 {
			who, other = other, who
		}
		rules[who] = fmt.Sprintf("@id(%q) permit (principal == Principal::%q, action == Action::%q, resource);\n", "r"+who, who,
			fmt.Sprintf("ext.mcp.a.zqat%dz", round%4))
		if round%4 == random.IntN(4) {
			rules[who] = ""
		}
		before := strings.Contains(is.ask(who, "", true, "tools/list", ""), "zqat")
		set()
		after := strings.Contains(is.ask(who, "", true, "tools/list", ""), "zqat")
		if before || after {
			if got := receive(t, heard[who]); !strings.Contains(got, "tools/list_changed") {
				t.Errorf(`round %d: %s; want got with "tools/list_changed"`, round, got)
			}
		}
		if len(heard[other]) > 0 {
			t.Errorf("round %d: %s hears of what %s got: %s; want len(heard[other]) at most 0", round, other, who, <-heard[other])
		}
	}
}
