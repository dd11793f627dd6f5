package extensions

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/extensions/archive"
	"github.com/junctor-run/junctor/internal/extensions/extension"
	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
	"github.com/junctor-run/junctor/internal/extensions/operator"
)

func loaded(t *testing.T, id string, enabled bool) lifecycle.Loaded {
	t.Helper()
	root, err := os.OpenRoot("extension/testdata/postman")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	tree, err := archive.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	p, err := extension.Read(tree, extension.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	p.Manifest.ID = id
	return lifecycle.Loaded{Extension: lifecycle.Extension{
		ID: id, Name: p.Manifest.Name, Enabled: enabled, Status: lifecycle.Installed,
		TreeHash: "hash of " + id,
	}, Package: p}
}

func names(list []command.Command) (out []string) {
	for i := range list {
		out = append(out, list[i].Name)
	}
	return out
}

func TestCommandsOfTheExampleRoute(t *testing.T) {
	t.Parallel()
	x := loaded(t, "tools.postman", true)
	x.AgentVisible = []string{"postman.explain"}
	list, conflicts := commandTable(&lifecycle.View{Extensions: []lifecycle.Loaded{
		x,
		{Extension: lifecycle.Extension{ID: "broken.x", Enabled: true}},
	}})
	if d := cmp.Diff([]string{"postman"}, names(list)); d != "" || len(conflicts) != 0 {
		t.Fatalf("diff (-want +got):\n%s; len(conflicts) = %v, want 0; conflicts = %+v", d, len(conflicts), conflicts)
	}
	c := list[0]
	if c.Capability != "tools.postman" || c.Generation != "hash of tools.postman" || c.Usage != "docs/USAGE.md" || len(c.Examples) != 3 ||
		len(c.Permissions) != 4 {
		t.Errorf(`%+v; want c.Capability = "tools.postman", c.Generation = "hash of tools.postman", c.Usage = "docs/USAGE.md", `+
			"len(c.Examples) = 3, len(c.Permissions) = 4", c)
	}
	get, test, explain := c.Actions[0], c.Actions[1], c.Actions[2]
	if get.Runner != "exec.postman_cli" || !get.AgentVisible || get.Timeout != time.Minute || !get.Output.Store {
		t.Errorf(`%+v; want get.Runner = "exec.postman_cli", get.AgentVisible = true, get.Timeout = time.Minute, get.Output.Store = true`,
			get)
	}
	if test.AgentVisible || test.Timeout != 2*time.Minute || test.Confirm != "first" || len(test.Flags) != 1 || !test.Flags[0].TakesValue {
		t.Errorf(`%+v; want test.AgentVisible = false, test.Timeout = 2 * time.Minute, test.Confirm = "first", len(test.Flags) `+
			"= 1, test.Flags[0].TakesValue = true", test)
	}
	if !explain.AgentVisible || explain.Runner != "analyze.response" || len(explain.Permissions) != 1 {
		t.Errorf(`%+v; want explain.AgentVisible = true, explain.Runner = "analyze.response", len(explain.Permissions) = 1`, explain)
	}
	router := command.New(command.Table{Commands: list, Reserved: operator.ReservedCommand})
	if problems := router.Problems(); len(problems) != 0 {
		t.Errorf("len(problems) = %v, want 0; problems = %q", len(problems), problems)
	}
	if got := router.List(); len(got) != 1 || got[0].Name != "/postman" || got[0].Source != "extension" {
		t.Errorf(`%+v; want len(got) = 1, got[0].Name = "/postman", got[0].Source = "extension"`, got)
	}
}

func TestNamesAreThoseThatWereRegistered(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		why       string
		list      []lifecycle.Loaded
		want      []string
		conflicts int
	}{
		{"two enabled", []lifecycle.Loaded{loaded(t, "a.one", true), loaded(t, "b.two", true)}, []string{"one-postman", "two-postman"}, 1},
		{"one disabled", []lifecycle.Loaded{loaded(t, "a.one", true), loaded(t, "b.two", false)}, []string{"postman", "b-two-postman"}, 0},
		{"two disabled", []lifecycle.Loaded{loaded(t, "a.one", false), loaded(t, "b.two", false)}, []string{"a-one-postman", "b-two-postman"}, 0},
		{
			"two and one",
			[]lifecycle.Loaded{loaded(t, "a.one", true), loaded(t, "b.two", true), loaded(t, "c.three", false)},
			[]string{"one-postman", "two-postman", "c-three-postman"},
			1,
		},
		{"digits", []lifecycle.Loaded{loaded(t, "1.one", false), loaded(t, "b.two", true)}, []string{"x1-one-postman", "postman"}, 0},
		{"disabled alone", []lifecycle.Loaded{loaded(t, "a.one", false)}, []string{"postman"}, 0},
	} {
		list, conflicts := commandTable(&lifecycle.View{Extensions: tt.list})
		if d := cmp.Diff(tt.want, names(list)); d != "" || len(conflicts) != tt.conflicts {
			t.Errorf(`%s: %s %v; want d = "", len(conflicts) = %v`, tt.why, d, conflicts, tt.conflicts)
		}
		if problems := command.New(command.Table{Commands: list}).Problems(); len(problems) != 0 {
			t.Errorf("%s: %v; want len(problems) = 0", tt.why, problems)
		}
	}
}
