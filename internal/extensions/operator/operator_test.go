package operator_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
	"github.com/junctor-run/junctor/internal/extensions/operator"
)

func command(ext, contribution, name string) declaration.Extension {
	return declaration.Extension{ID: ext, Contributions: []declaration.Contribution{{
		ID: contribution, Kind: "capability.control-command", Command: &declaration.Command{Name: name, AcceptsArgs: true},
	}}}
}

func build(list ...declaration.Extension) *operator.Catalog {
	return operator.New(declaration.Resolve(list, nil))
}

// registered maps runtime ids to the names they can be called by.
func registered(c *operator.Catalog) map[string]string {
	out := make(map[string]string)
	for _, name := range c.Names() {
		m, _ := c.Match("/" + name)
		out[m.Runtime] = name
	}
	return out
}

func TestNamesOfCommands(t *testing.T) {
	t.Parallel()
	twice := command("a", "c", "go")
	twice.Contributions = append(twice.Contributions, command("a", "d", "GO ").Contributions...)
	labelled := func(x declaration.Extension, label string) declaration.Extension { x.Label = label; return x }
	for name, c := range map[string]struct {
		in   []declaration.Extension
		want map[string]string
	}{
		"alone": {[]declaration.Extension{command("a", "c", " Deploy ")}, map[string]string{"a/c": "deploy"}},
		"two": {
			[]declaration.Extension{command("x.a", "c", "deploy"), command("x.b", "c", "deploy")},
			map[string]string{"x.a/c": "a-deploy", "x.b/c": "b-deploy"},
		},
		"equal labels": {
			[]declaration.Extension{command("x.a", "c", "deploy"), command("y.a", "c", "deploy")},
			map[string]string{"x.a/c": "x-a-deploy", "y.a/c": "y-a-deploy"},
		},
		"one extension": {[]declaration.Extension{twice}, map[string]string{"a/c": "a-c-go", "a/d": "a-d-go"}},
		"a long name is wanted": {
			[]declaration.Extension{command("x.a", "c", "go"), command("b", "c", "go"), command("z", "c", "a-go")},
			map[string]string{"x.a/c": "x-a-go", "b/c": "b-go", "z/c": "a-go"},
		},
		"long names meet": {[]declaration.Extension{
			command("a", "c", "b-go"), command("x", "c", "b-go"), command("n.a-b", "c", "go"),
			command("y", "c", "go"),
		}, map[string]string{"a/c": "a-b-go", "x/c": "x-b-go", "n.a-b/c": "n-a-b-go", "y/c": "y-go"}},
		"label of three": {[]declaration.Extension{
			command("1pass", "c", "go"), labelled(command("b", "c", "go"), "Ünï.x"),
			command("c", "c", "go"),
		}, map[string]string{"1pass/c": "x1pass-go", "b/c": "x--n---x-go", "c/c": "c-go"}},
		"punctuation is nothing": {
			[]declaration.Extension{command("a.b", "c", "go"), command("a-b", "c", "go")},
			map[string]string{"a.b/c": "b-go", "a-b/c": "a-b-go"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 10 {
				rand.Shuffle(len(c.in), func(i, j int) { c.in[i], c.in[j] = c.in[j], c.in[i] })
				if diff := cmp.Diff(c.want, registered(build(c.in...))); diff != "" {
					t.Errorf("diff (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestNobodyIsLostAmongManyCommands(t *testing.T) {
	t.Parallel()
	grammar := regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var list []declaration.Extension
		for i := range 12 {
			x := command(fmt.Sprintf("%c%c.%c-%d", 'a'+rune(rng.IntN(2)), "._"[rng.IntN(2)], 'a'+rune(rng.IntN(2)), i), "c",
				[]string{"a", "b", "a-b", "b-a"}[rng.IntN(4)])
			x.Label = []string{"", "a", "b", "a-b", "a.b"}[rng.IntN(5)]
			list = append(list, x)
		}
		first := registered(build(list...))
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		second := registered(build(list...))
		if diff := cmp.Diff(first, second); diff != "" || len(first) != len(list) {
			t.Fatalf("%d of %d commands\n%s\nwant diff = \"\", len(first) = %v", len(first), len(list), diff, len(list))
		}
		for _, name := range first {
			if !grammar.MatchString(name) {
				t.Fatalf("grammar.MatchString(name) = false, want true; name = %q", name)
			}
		}
	}
}

func TestReservedAndInvalidNames(t *testing.T) {
	t.Parallel()
	c := build(command("a", "c", "Stop"), command("b", "c", "9lives"), command("d", "c", "a b"), command("e", "c", ""),
		command("f", "c", "fine"))
	want := map[string]string{"a/c": "reserved_command", "b/c": "invalid_command", "d/c": "invalid_command", "e/c": "invalid_command"}
	if diff := cmp.Diff(want, c.Rejected()); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"fine"}, c.Names()); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
	for _, name := range strings.Fields("help catalog bash EXEC model") {
		if !operator.ReservedCommand(name) {
			t.Errorf("operator.ReservedCommand(name) = false, want true; name = %q", name)
		}
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	off := false
	quiet := command("q.x", "c", "ping")
	quiet.Contributions[0].Command.AcceptsArgs, quiet.Contributions[0].Command.RequireAuth = false, &off
	twice := command("t", "c", "two")
	twice.Contributions = append(twice.Contributions, command("t", "d", "two").Contributions...)
	c := build(quiet, twice, command("a.one", "c", "deploy"), command("b.two", "c", "deploy"), command("p", "c", "phone"))
	for line, want := range map[string]string{
		"/phone": "p/c ", "  /PHONE  ": "p/c ", "/phone on  10m ": "p/c on  10m", "/phone\ton": "p/c on", "/phone\non\n": "p/c on",
		"/phone@bot on": "p/c on", "/phone:p x": "p/c x",
		"/phone:P@bot": "p/c ", "/phone a\x00b\x1bc\td": "p/c abc\td", "/ping": "q.x/c ", "/ping \x00 ": "q.x/c ", "/ping now": "",
		"/deploy": "", "/deploy:a.one x": "a.one/c x",
		"/one-deploy:a.one": "", "/DEPLOY:B.TWO": "b.two/c ", "/one-deploy": "a.one/c ", "/two:t": "", "phone on": "", "//phone": "",
		"/ phone": "", "/": "", "": "", "/phone:": "", "/:p": "", "/phone:q.x": "",
	} {
		got := ""
		if m, ok := c.Match(line); ok {
			got = m.Runtime + " " + m.Args
		}
		if got != want {
			t.Errorf("%q: %q, not %q; want got = %v", line, got, want, want)
		}
	}
	if m, _ := c.Match("/ping"); m.RequireAuth {
		t.Error("ping asks for no authorization")
	}
	if m, _ := c.Match("/phone"); !m.RequireAuth {
		t.Error("authorization is the default")
	}
	const limit = 1 << 20
	long := strings.Repeat("ü", limit)
	for line, want := range map[string]int{"/phone " + long: limit, "/phone x" + long: limit - 1, "/phone " + long[:8000]: 8000} {
		if m, _ := c.Match(line); len(m.Args) != want || !utf8.ValidString(m.Args) {
			t.Errorf("Match(%.10q, %d bytes) has %d bytes of arguments (valid UTF-8: %v), want %d", line, len(line), len(m.Args),
				utf8.ValidString(m.Args), want)
		}
	}
}

func TestNatives(t *testing.T) {
	t.Parallel()
	named := func(ext, name string, native map[string]string) declaration.Extension {
		x := command(ext, "c", name)
		x.Contributions[0].Command.NativeNames, x.Contributions[0].Command.Description = native, "does "+name
		return x
	}
	c := build(named("a", "phone", map[string]string{"discord": "phonectl", "default": "tel"}),
		named("b", "mail", map[string]string{"default": "tel"}),
		named("c", "chat", map[string]string{"discord": "mail"}), named("d", "plain", nil))
	got := func(provider string) (out []string) {
		for _, n := range c.Natives(provider) {
			out = append(out, n.Name+" "+n.Command+" "+n.Description)
		}
		return out
	}
	if diff := cmp.Diff([]string{"chat c/c does chat", "tel b/c does mail", "phonectl a/c does phone", "plain d/c does plain"},
		got("discord")); diff != "" {
		t.Errorf(`diff = %q, want ""`, diff)
	}
	if diff := cmp.Diff([]string{"chat c/c does chat", "mail b/c does mail", "phone a/c does phone", "plain d/c does plain"},
		got("telegram")); diff != "" {
		t.Error("two that want one native name keep their own", diff)
	}
}

func TestSelectAuth(t *testing.T) {
	t.Parallel()
	auth := func(ext, id, alias string, methods ...declaration.AuthMethod) declaration.Extension {
		return declaration.Extension{ID: ext, Contributions: []declaration.Contribution{{
			ID: "auth", Kind: "capability.provider-integration", Auth: &declaration.Auth{
				ProviderID: id, Aliases: []string{alias}, Methods: methods,
				DiscoveryOrder: len(ext),
			},
		}}}
	}
	method := func(id string, rank int) declaration.AuthMethod { return declaration.AuthMethod{ID: id, Rank: rank} }
	list := []declaration.Extension{
		auth("z.first", "Gemini", "google", method("oauth", 5), method("api-key", 1)),
		auth("a.second", "gemini", "g", method("OAuth", 5), method("token", 9)),
		auth("m", "google", "x", method("device", 0)), auth("off", "gemini", "", method("best", 99)),
	}
	disabled := false
	list[3].Enabled = &disabled
	for _, c := range []struct{ provider, method, preferred, want string }{
		{" GEMINI ", "", "", "a.second/auth:token"},
		{"gemini", "OAUTH", "", "a.second/auth:OAuth"},
		{"gemini", "oauth", "z.first/auth", "z.first/auth:oauth"},
		{"gemini", "api-key", "", "z.first/auth:api-key"},
		{"google", "", "", "m/auth:device"},
		{"G", "", "", "a.second/auth:token"},
		{"gemini", "device", "", "auth_method_unknown"},
		{"gemini", "  ", "", "auth_method_unknown"},
		{"mistral", "", "", "auth_provider_unknown"},
		{"", "", "", "auth_provider_unknown"},
	} {
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		choice, err := build(list...).SelectAuth(c.provider, c.method, strings.Fields(c.preferred))
		got := choice.Runtime + ":" + choice.Method.ID
		if err != nil {
			got = capability.AsError(err).Reason
		} else if choice.Integration.DiscoveryOrder != len(choice.Runtime)-len("/auth") {
			t.Errorf("the metadata is another integration's; got choice.Integration.DiscoveryOrder = %v; want "+
				`choice.Integration.DiscoveryOrder = len(choice.Runtime) - len("/auth")`, choice.Integration.DiscoveryOrder)
		}
		if got != c.want {
			t.Errorf("%+v: %s; want got = %v", c, got, c.want)
		}
	}
}

func TestRowsFollowTheStage(t *testing.T) {
	t.Parallel()
	x := command("x", "cmd", "go")
	for _, kind := range []string{
		"surface.setup", "surface.cli", "surface.config", "surface.status", "surface.http-route",
		"service.background", "capability.agent-tool",
	} {
		x.Contributions = append(x.Contributions, declaration.Contribution{ID: kind[strings.IndexByte(kind, '.')+1:], Kind: kind})
	}
	static := []string{"x/cli", "x/config", "x/setup", "x/status"}
	for stage, want := range map[string][]string{
		"": append([]string{"x/cli", "x/cmd"}, static[1:]...), "declared": static,
		"policy-approved": static, "failed": nil,
	} {
		x.Stage = stage
		if diff := cmp.Diff(want, build(x).RuntimeIDs()); len(want)+len(build(x).RuntimeIDs()) > 0 && diff != "" {
			t.Errorf("%v: diff (-want +got):\n%s", stage, diff)
		}
	}
}

func TestViewShowsWhatRuns(t *testing.T) {
	t.Parallel()
	list := []declaration.Extension{command("a.one", "c", "deploy"), command("b.two", "c", "deploy")}
	slack := declaration.Extension{ID: "slack", Contributions: []declaration.Contribution{{
		ID: "adapter", Kind: "adapter.runtime", Actions: []capability.Action{"message.send", "message.edit"},
		Provider: &declaration.Provider{Kind: "slack", Instances: []declaration.Instance{
			{ID: "up"}, {ID: "down", Availability: declaration.Availability{Availability: capability.Availability{
				State:  "unavailable",
				Reason: "token expired",
			}}},
		}},
	}}}
	view := func(list ...declaration.Extension) operator.View {
		c, err := catalog.New(catalog.Settings{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		r := declaration.Resolve(list, nil)
		for _, x := range r.Extensions {
			if _, _, err := c.Replace(capability.Batch{Source: x.ID, Modules: []capability.Module{x.Module()}}); err != nil {
				t.Fatal(err)
			}
		}
		v, err := operator.New(r).View(c.Snapshot(), r.Conflicts...)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	v := view(append(list, slack)...)
	var got []string
	for _, row := range v.Rows {
		if row.Row == "diagnostic" {
			got = append(got, row.RowID+" "+row.Availability)
		}
	}
	want := []string{
		"diagnostic:conflict:operator_command:deploy:labelled ready", "diagnostic:provider:messaging:slack:down unavailable",
		"diagnostic:provider:messaging:slack:up ready",
		"diagnostic:slot:context-engine unavailable", "diagnostic:slot:memory unavailable",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
	if again := view(slack, list[1], list[0]); again.Etag != v.Etag || len(v.Etag) != 64 {
		t.Errorf("the etag depends on the order; got again.Etag = %v, len(v.Etag) = %v; want again.Etag = %v, len(v.Etag) = 64",
			again.Etag, len(v.Etag), v.Etag)
	}
	slack.Contributions[0].Provider.Instances[1].Availability = declaration.Availability{}
	if other := view(append(list, slack)...); other.Etag == v.Etag {
		t.Errorf("the etag does not see that a provider is back; got other.Etag = %v; want other.Etag other than %v",
			other.Etag, v.Etag)
	}
}

func FuzzMatch(f *testing.F) {
	for _, line := range []string{"/phone on", "/deploy:a.one x", " /Phone@bot\t\x00y", "//", "/phone\u2028x"} {
		f.Add(line)
	}
	c := build(command("a.one", "c", "deploy"), command("b.two", "c", "deploy"), command("p", "c", "phone"))
	f.Fuzz(func(t *testing.T, line string) {
		m, ok := c.Match(line)
		if !ok {
			return
		}
		if !strings.HasPrefix(strings.TrimSpace(line), "/") || len(m.Args) > 1<<20 || !utf8.ValidString(m.Args) ||
			strings.TrimSpace(m.Args) != m.Args {
			t.Fatalf(`%q: %+v; want strings.TrimSpace(line) beginning with "/", len(m.Args) at most 1 << 20, `+
				"utf8.ValidString(m.Args), strings.TrimSpace(m.Args) = %v", line, m, m.Args)
		}
		if again, ok := c.Match("/" + m.Name + " " + m.Args); !ok || again.Runtime != m.Runtime || again.Args != m.Args {
			t.Fatalf("%q: %+v is not what its own text says: %+v; want ok = true, again.Runtime = %v, again.Args = %v",
				line, m, again, m.Runtime, m.Args)
		}
	})
}

func TestProviderShowsTheWorstStateOfItsEntries(t *testing.T) {
	for _, tt := range []struct {
		states []capability.State
		want   string
	}{
		{[]capability.State{capability.StateUnconfigured, capability.StateUnavailable}, "unavailable"},
		{[]capability.State{capability.StateUnavailable, capability.StateUnauthorized}, "unavailable"},
		{[]capability.State{capability.StateUnconfigured, capability.StateUnauthorized}, "unauthenticated"},
		{[]capability.State{capability.StateUnavailable, capability.StateReady}, "degraded"},
		{[]capability.State{capability.StateReady, ""}, "ready"},
	} {
		m := capability.Module{Extension: "a", ID: "a"}
		for i, state := range tt.states {
			m.Contributions = append(m.Contributions, capability.Contribution{
				ID: fmt.Sprint("t", i), Kind: "capability.agent-tool", Tool: fmt.Sprint("t", i), Availability: capability.Availability{State: state},
			})
		}
		c, err := catalog.New(catalog.Settings{}, 0)
		if err == nil {
			_, _, err = c.Replace(capability.Batch{Source: "a", Modules: []capability.Module{m}})
		}
		if err != nil {
			t.Fatalf("catalog: got %v, want no error", err)
		}
		v, err := operator.New(declaration.Resolve(nil, nil)).View(c.Snapshot())
		if err != nil {
			t.Fatalf("View: got %v, want no error", err)
		}
		got := ""
		for _, row := range v.Rows {
			if strings.HasPrefix(row.RowID, "diagnostic:provider:") {
				got = row.Availability
			}
		}
		if got != tt.want {
			t.Errorf("state of a provider with %v: got %q, want %q", tt.states, got, tt.want)
		}
	}
}
