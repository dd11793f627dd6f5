package extension_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
	"github.com/junctor-run/junctor/internal/extensions/extension"
)

// tools compiles an extension and returns the names of the actions that a planner sees.
func tools(t *testing.T, x declaration.Extension) (names []string) {
	t.Helper()
	c, err := catalog.New(catalog.Settings{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := json.Marshal(x) // what a mapping makes is a manifest like any other
	if err != nil {
		t.Fatal(err)
	}
	read, diagnostics, err := declaration.Parse(doc)
	if err != nil || slices.ContainsFunc(diagnostics, func(d string) bool { return strings.HasSuffix(d, "known field") }) {
		t.Fatalf("diagnostics = %q, err = %v; want no unknown field", diagnostics, err)
	}
	if _, _, err := c.Replace(capability.Batch{Source: x.ID, Modules: []capability.Module{read.Module()}}); err != nil {
		t.Fatal(err)
	}
	if rejected := c.Snapshot().Rejected(); len(rejected) > 0 {
		t.Errorf("the catalog rejects %v; want len(rejected) at most 0", rejected)
	}
	for a := range compile.New(c).Compile(&capability.Context{}).Actions() {
		names = append(names, a.Name)
	}
	slices.Sort(names)
	return names
}

func same(t *testing.T, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
}

func ids(x declaration.Extension) (out []string) {
	for _, c := range x.Contributions {
		out = append(out, c.ID)
	}
	return out
}

func must(t *testing.T) func(declaration.Extension, []string, error) declaration.Extension {
	return func(x declaration.Extension, diagnostics []string, err error) declaration.Extension {
		t.Helper()
		if err != nil || len(diagnostics) > 0 {
			t.Fatalf("err = %v, want nil; len(diagnostics) = %v, want at most 0; diagnostics = %q", err, len(diagnostics), diagnostics)
		}
		return x
	}
}

func TestPackageMapsToContributions(t *testing.T) {
	t.Parallel()
	off := false
	p := &extension.Package{
		Manifest: extension.Manifest{ID: "tools.postman", Name: "Postman", Version: "1.0.0"}, Permissions: []string{"filesystem.read"},
		Commands: []extension.Command{{
			Name: "/Postman", Summary: "Runs collections", Runner: "builtin", DefaultAction: "list", Aliases: []string{"/pm"},
			Actions: []extension.Action{
				{ID: "list", AgentVisible: true, Args: []extension.Argument{{Name: "filter", Choices: []string{"a", "b"}}}},
				{ID: "save", AgentVisible: true, Permissions: []string{"db.write", "db.read"}},
				{
					ID: "run", AgentVisible: true, Runner: "exec.run", Confirm: "always",
					Args: []extension.Argument{{Name: "collection", Required: true}}, Flags: []extension.Argument{{Name: "verbose", TakesValue: &off}},
				},
				{ID: "sync", Permissions: []string{"network"}},
				{ID: "hidden"},
			},
		}},
	}
	visible := []string{"postman.sync"}
	x := must(t)(p.Extension("INSTALLED", true, visible))
	same(t, []string{
		"command.postman", "command.postman.pm", "tool.postman.list", "tool.postman.run", "tool.postman.save",
		"tool.postman.sync",
	}, ids(x))
	same(t, []string{"postman.list", "postman.run", "postman.save", "postman.sync"}, tools(t, x))
	effects := make(map[string]capability.Effect)
	for _, c := range x.Contributions {
		if c.Tool != nil {
			effects[c.Tool.Name] = c.Tool.Effect
		}
	}
	same(t, map[string]capability.Effect{
		"postman.list": "read", "postman.save": "write", "postman.run": "external",
		"postman.sync": "external",
	}, effects)
	run := x.Contributions[3].Tool
	same(t, `{"type":"object","properties":{"collection":{"type":"string"},"verbose":{"type":"boolean"}},"required":["collection"],"additionalProperties":false}`, string(run.InputSchema))
	if !run.Approval {
		t.Error("confirm: always asks for no approval")
	}
	for status, want := range map[string]string{"FAILED": "failed", "INSTALLING": "declared"} {
		if x := must(t)(p.Extension(status, true, visible)); x.Stage != want || x.Active() {
			t.Errorf("%s: stage = %v, active = %v; want %v, inactive", status, x.Stage, x.Active(), want)
		}
	}
	if x := must(t)(p.Extension("INSTALLED", false, visible)); x.Active() || len(x.Contributions) == 0 ||
		x.Module().Stage != capability.StageDisabled {
		t.Errorf("stage = %v, active = %v, %d contributions; want disabled, inactive, some", x.Stage, x.Active(), len(x.Contributions))
	}
	if x := must(t)(p.Extension("UNINSTALLED", false, visible)); len(x.Contributions) > 0 {
		t.Errorf("len(x.Contributions) = %v, want at most 0; ids(x) = %q", len(x.Contributions), ids(x))
	}
	p.Commands = append(p.Commands, extension.Command{Name: "/a b"})
	if x, diagnostics, err := p.Extension("INSTALLED", true, []string{"all"}); err != nil || len(diagnostics) != 1 ||
		len(x.Contributions) != 7 {
		t.Errorf("contributions = %v, diagnostics = %q, err = %v; want 7 contributions and one diagnostic", ids(x), diagnostics, err)
	}
}
