package naming_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/core/catalog/naming"
)

func reserved(fold string) bool { return fold == "message_send" || fold == "fs_list" }

// tool reads "extension/contribution declared [label] [!]"; '!' insists.
func tool(spec string) *naming.Tool {
	spec, exact := strings.CutSuffix(spec, " !")
	parts := strings.Fields(spec)
	ext, contribution, _ := strings.Cut(parts[0], "/")
	t := &naming.Tool{
		ID: parts[0], Capability: parts[0] + "#x", Extension: ext, Contribution: contribution, Declared: parts[1],
		Label: ext[strings.LastIndexByte(ext, '.')+1:], Exact: exact,
	}
	if len(parts) > 2 {
		t.Label = parts[2]
	}
	return t
}

func names(opt naming.Options, tools ...string) (map[string]string, []naming.Contest) {
	table := naming.NewTable(opt, reserved)
	for _, spec := range tools {
		table.Add(tool(spec))
	}
	table.Settle()
	got := make(map[string]string)
	for _, spec := range tools {
		t := tool(spec)
		got[t.ID] = table.Name(t).Public
	}
	contests, _ := table.Contests()
	return got, contests
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		opt      naming.Options
		tools    []string
		want     string
		contests string
	}{
		{"alone", naming.Options{}, []string{"a/x create.Branch"}, "a/x=create.Branch", ""},
		{"other bytes", naming.Options{}, []string{"a/x naïve"}, "a/x=na__ve", ""},
		{
			"level 1",
			naming.Options{},
			[]string{"mcp.a/x create-Branch", "mcp.b/x create_branch", "mcp.c/x other"},
			"mcp.a/x=a__create-Branch mcp.b/x=b__create_branch mcp.c/x=other", "create_branch labelled mcp.a/x+mcp.b/x",
		},
		{
			"level 2",
			naming.Options{},
			[]string{"mcp.g/x go", "acme.g/x go"},
			"acme.g/x=acme_g__go mcp.g/x=mcp_g__go",
			"go labelled acme.g/x+mcp.g/x",
		},
		{"level 3", naming.Options{}, []string{"m/a query", "m/b query"}, "m/a=m_a__query m/b=m_b__query", "query labelled m/a+m/b"},
		{
			"level 4",
			naming.Options{},
			[]string{"m/a.b query", "m/a_b query"},
			"m/a.b=m_a_b__query_65a89783 m/a_b=m_a_b__query_22b13ec9",
			"query labelled m/a.b+m/a_b",
		},
		{
			"a label is no way to a declared name",
			naming.Options{},
			[]string{"mcp.a/x go", "mcp.b/x go", "mcp.b/y a__go"},
			"mcp.a/x=mcp_a__go mcp.b/x=mcp_b__go mcp.b/y=a__go", "go labelled mcp.a/x+mcp.b/x",
		},
		{
			"canonical names are reserved in any spelling",
			naming.Options{},
			[]string{"mcp.sms/t Message-Send"},
			"mcp.sms/t=sms__Message-Send",
			"message_send labelled core+mcp.sms/t",
		},
		{
			"a name that a label would hide behind is reserved too",
			naming.Options{},
			[]string{"mcp.fs/t list", "mcp.b/t list"},
			"mcp.b/t=mcp_b__list mcp.fs/t=mcp_fs__list", "list labelled mcp.b/t+mcp.fs/t",
		},
		{"one insists", naming.Options{}, []string{"a/t render !", "b/t render"}, "a/t=render b/t=b__render", "render exact_kept a/t+b/t a/t"},
		{"two insist", naming.Options{}, []string{"a/t render !", "b/t render !"}, "a/t= b/t=", "render withheld a/t+b/t"},
		{
			"two insist, a third does not",
			naming.Options{},
			[]string{"a/t render !", "b/t render !", "c/t render"},
			"a/t= b/t= c/t=c__render",
			"render withheld a/t+b/t+c/t",
		},
		{
			"two insist and one is pinned",
			naming.Options{Pins: map[string]string{"render": "b/t"}},
			[]string{"a/t render !", "b/t render !"},
			"a/t= b/t=render", "render exact_kept a/t+b/t b/t",
		},
		{"nobody can insist on a canonical name", naming.Options{}, []string{"a/t message_send !"}, "a/t=", "message_send withheld a/t+core"},
		{"rejected", naming.Options{Reject: true}, []string{"a/t go", "b/t go", "b/u on"}, "a/t= b/t= b/u=on", "go withheld a/t+b/t"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for range 3 {
				got, contests := names(tt.opt, tt.tools...)
				var pairs, lines []string
				for _, id := range slices.Sorted(maps.Keys(got)) {
					pairs = append(pairs, id+"="+got[id])
				}
				for _, c := range contests {
					lines = append(lines, strings.TrimSpace(fmt.Sprint(c.Fold, " ", c.Resolution, " ", strings.Join(c.Members, "+"), " ", c.Winner)))
				}
				if d := cmp.Diff(tt.want, strings.Join(pairs, " ")); d != "" {
					t.Errorf("strings.Join(pairs, \" \") differs from want (-want +got):\n%s", d)
				}
				if d := cmp.Diff(tt.contests, strings.Join(lines, "; ")); d != "" {
					t.Errorf("strings.Join(lines, \"; \") differs from want (-want +got):\n%s", d)
				}
				slices.Reverse(tt.tools)
				tt.tools = append(tt.tools[1:], tt.tools[0])
			}
		})
	}
}

// TestATableForgetsHowItCameToBe compares a table that lived through a thousand
// changes with one built at once from what is left.
func TestATableForgetsHowItCameToBe(t *testing.T) {
	t.Parallel()
	words := []string{"go", "a__go", "b__go", "a_b__go", "Go", "on", "fs.list", "x_go", "m_go", "m_a__go", "go_on"}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		table := naming.NewTable(naming.Options{Pins: map[string]string{"go": "a/t1"}}, reserved)
		held := make(map[string]*naming.Tool)
		families := make(map[string]bool)
		known := make(map[string]naming.Name)
		for round := range 200 {
			for range 1 + rng.IntN(4) {
				id := fmt.Sprintf("%s/t%d", []string{"a", "b", "m", "m.a", "x.a"}[rng.IntN(5)], rng.IntN(4))
				switch old := held[id]; {
				case rng.IntN(8) == 0:
					fam := []string{"x.go", "go.on"}[rng.IntN(2)]
					if families[fam] {
						table.Reserve(fam, -1)
					} else {
						table.Reserve(fam, 1)
					}
					families[fam] = !families[fam]
				case old != nil && rng.IntN(2) == 0:
					table.Remove(old)
					delete(held, id)
				default:
					if old != nil {
						table.Remove(old)
					}
					spec := id + " " + words[rng.IntN(len(words))]
					if rng.IntN(6) == 0 {
						spec += " !"
					}
					held[id] = tool(spec)
					table.Add(held[id])
				}
			}
			for _, id := range table.Settle() {
				if known[id] = (naming.Name{}); held[id] != nil {
					known[id] = table.Name(held[id])
				}
			}
			whole := naming.NewTable(naming.Options{Pins: map[string]string{"go": "a/t1"}}, reserved)
			for fam, on := range families {
				if on {
					whole.Reserve(fam, 1)
				}
			}
			seen := make(map[string]string)
			for _, one := range held {
				own := *one // a table owns its tools
				whole.Add(&own)
			}
			whole.Settle()
			for id := range held {
				want, got := whole.Name(held[id]), table.Name(held[id])
				if got != want || known[id] != want {
					t.Fatalf("seed %d round %d: %s (%s) is %+v, told %+v, want %+v", seed, round, id, held[id].Declared, got, known[id], want)
				}
				if fold := naming.Fold(want.Public); fold != "" {
					if other, taken := seen[fold]; taken {
						t.Fatalf("%s and %s are both %s; want taken = false", id, other, fold)
					}
					seen[fold] = id
				}
			}
			want, _ := whole.Contests()
			contests, _ := table.Contests()
			if d := cmp.Diff(want, contests); d != "" {
				t.Fatalf("contests differs from want (-want +got):\n%s", d)
			}
		}
	}
}

func TestFold(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "a": "a", "a_b": "a_b", "a__b": "a_b", "_a": "a", "a_": "a", " a ": "a", "create-Branch": "create_branch",
		"create.branch": "create_branch",
		"A.-B":          "a_b", "é": "", "aé1": "a_1", "___": "",
	} {
		if got := naming.Fold(in); got != want || naming.Fold(got) != got {
			t.Errorf("%q folds to %q; want got = %v, naming.Fold(got) = %v", in, got, want, got)
		}
	}
}

func TestWireNames(t *testing.T) {
	t.Parallel()
	long := "plugin_chrome-devtools-mcp_chrome-devtools__get_console_message_by_identifier"
	for _, tt := range []struct {
		name, want string
		dialect    naming.Dialect
		limit      int
	}{
		{"message.send", "message_send", naming.Strict64, 0},
		{"message.send", "message.send", naming.MCP, 0},
		{"a b.c", "a b.c", naming.Dotted, 0},
		{"a b.c", "a_b.c", naming.MCP, 0},
		{"github__create_branch", "github__create_branch", naming.Strict64, 0},
		{long, "plugin_chrome-devtools-mcp_chrome-devtools__get_console_10e3cc06", naming.Strict64, 64},
		{long, "plugin_chrome-devtools-mcp_chrome-devto_10e3cc06", naming.Strict64, 48},
	} {
		if got := naming.Wire(tt.name, tt.dialect, tt.limit); got != tt.want {
			t.Errorf("%s in %s at %d: %s; want got = %v", tt.name, tt.dialect, tt.limit, got, tt.want)
		}
	}
	if d := naming.Distinct(strings.Repeat("x", 64), 64, "id"); len(d) != 64 {
		t.Errorf(`naming.Distinct(strings.Repeat("x", 64), 64, "id") = %v, want len(d) == 64`, d)
	}
}

func FuzzNames(f *testing.F) {
	f.Add("create.Branch", "create_branch", "label")
	f.Add("\xff", "日本", "")
	f.Add(strings.Repeat("x", 60), strings.Repeat("x", 61), "a.b")
	f.Fuzz(func(t *testing.T, one, two, label string) {
		table := naming.NewTable(naming.Options{}, reserved)
		tools := []*naming.Tool{
			{ID: "1", Capability: "1", Declared: one, Label: label, Extension: "a", Contribution: "x"},
			{ID: "2", Capability: "2", Declared: two, Label: label, Extension: "b", Contribution: "x"},
			{ID: "3", Capability: "3", Declared: one + two, Label: label, Extension: "b", Contribution: "y"},
		}
		for _, tool := range tools {
			table.Add(tool)
		}
		table.Settle()
		seen := make(map[string]bool)
		for _, tool := range tools {
			name := table.Name(tool).Public
			fold := naming.Fold(name)
			if seen[fold] || name != naming.Plain(name) {
				t.Errorf("%q of %q %q", name, one, two)
			}
			seen[fold] = true
			if w := naming.Wire(name, naming.Strict64, 48); len(w) > 48 || strings.ContainsAny(w, "./ ") {
				t.Errorf(`%q; want len(w) at most 48, w without any of "./ "`, w)
			}
		}
	})
}
