package commandfile_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/commandfile"
)

const current = `
commands: [{name: /old, description: passed over}]
slash_commands:
  - name: /Postman
    summary: Try an API
    default_action: get
    runner: exec.postman_cli
    aliases: [pm]
    permissions: [exec_shell]
    confirm: true
    examples: ["/postman get https://a.test", {command: "/postman test x.json", description: Run a collection}]
    actions: []
    maps_to:
      capability: tools.postman
      actions:
        - {id: get, summary: Fetch, args: [{name: url, required: true, pattern: "^https?://"}], flags: [{name: --verbose, short: -v, type: bool}, {name: n, type: int, default: 3}], sensitive: [url], cache: {ttl_sec: 5}, priority: 2, agentVisible: true}
        - {id: explain, runner: analyze.response, argv: [a, 1, true], output: {format: json, max_bytes: 10, store: true}}
`

func TestTheCurrentShape(t *testing.T) {
	t.Parallel()
	got, warnings, err := commandfile.Parse([]byte(current))
	if err != nil || len(warnings) != 1 {
		t.Fatal(err, warnings)
	}
	three := "3"
	want := []commandfile.Command{{
		Name: "/postman", Summary: "Try an API", DefaultAction: "get", Runner: "exec.postman_cli", Aliases: []string{"/pm"}, Permissions: []string{"exec"}, Confirm: "always",
		Capability: "tools.postman", Examples: []commandfile.Example{{Command: "/postman get https://a.test"}, {Command: "/postman test x.json", Description: "Run a collection"}},
		Actions: []commandfile.Action{
			{
				ID: "get", Runner: "exec.postman_cli", Summary: "Fetch", Description: "Fetch", Sensitive: []string{"url"}, CacheSec: 5, Priority: "high", AgentVisible: true,
				Args:  []commandfile.Argument{{Name: "url", Required: true, Pattern: "^https?://"}},
				Flags: []commandfile.Argument{{Name: "verbose", Short: "v", Type: "boolean"}, {Name: "n", Type: "integer", Default: &three}},
			},
			{ID: "explain", Runner: "analyze.response", Argv: []string{"a", "1", "true"}, Output: commandfile.Output{Format: "json", MaxBytes: 10, Store: true}},
		},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestTheOlderShape(t *testing.T) {
	t.Parallel()
	got, _, err := commandfile.Parse([]byte(`
commands:
  - name: /hello
    description: Say hello
    entrypoint: ./scripts/hello
    args: [{name: who}]
  - name: deploy
    description: |
      Deploy it.
      To somewhere.
    args: [{name: where, choices: [staging, production], default: staging}, {name: tag}]
`))
	want := []commandfile.Command{
		{Name: "/hello", Summary: "Say hello", Description: "Say hello", Runner: "exec.entrypoint", Actions: []commandfile.Action{
			{ID: "default", Runner: "exec.entrypoint", Description: "Say hello", Entrypoint: "scripts/hello", Args: []commandfile.Argument{{Name: "who"}}},
		}},
		{Name: "/deploy", Summary: "Deploy it.", Description: "Deploy it.\nTo somewhere.\n", Runner: "builtin", DefaultAction: "staging", Actions: []commandfile.Action{
			{ID: "staging", Runner: "builtin", Description: "Deploy it.\nTo somewhere.\n", Args: []commandfile.Argument{{Name: "tag"}}},
			{ID: "production", Runner: "builtin", Description: "Deploy it.\nTo somewhere.\n", Args: []commandfile.Argument{{Name: "tag"}}},
		}},
	}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Error(err, d)
	}
}

func TestWhatDoesNotFitIsRefused(t *testing.T) {
	t.Parallel()
	one := func(action string) string {
		return "slash_commands: [{name: /x, summary: s, actions: [" + action + "]}]"
	}
	for why, tt := range map[string]struct{ doc, want string }{
		"path as runner":     {one("{id: a, runner: exec./bin/sh}"), commandfile.ReasonRunner},
		"way up as runner":   {one("{id: a, runner: exec.../../bin/sh}"), commandfile.ReasonRunner},
		"no runner":          {one("{id: a}"), commandfile.ReasonRunner},
		"option as id":       {one("{id: -c, runner: exec.x}"), commandfile.ReasonCommands},
		"id twice":           {one("{id: a, runner: exec.x}, {id: a, runner: exec.x}"), commandfile.ReasonCommands},
		"permission":         {one("{id: a, runner: exec.x, permissions: [root]}"), commandfile.ReasonCommands},
		"confirm":            {one("{id: a, runner: exec.x, confirm: maybe}"), commandfile.ReasonCommands},
		"pattern":            {one("{id: a, runner: exec.x, args: [{name: b, pattern: '('}]}"), commandfile.ReasonCommands},
		"sensitive":          {one("{id: a, runner: exec.x, sensitive: [b]}"), commandfile.ReasonCommands},
		"timeout":            {one("{id: a, runner: exec.x, timeout_sec: 4000}"), commandfile.ReasonCommands},
		"entrypoint":         {one("{id: a, runner: exec.entrypoint, entrypoint: ../x}"), commandfile.ReasonCommands},
		"no action":          {"slash_commands: [{name: /x, summary: s}]", commandfile.ReasonCommands},
		"no summary":         {"slash_commands: [{name: /x, actions: [{id: a, runner: exec.x}]}]", commandfile.ReasonCommands},
		"two lines":          {`slash_commands: [{name: /x, summary: "a\nb", actions: [{id: a, runner: exec.x}]}]`, commandfile.ReasonCommands},
		"bidi":               {`slash_commands: [{name: /x, summary: "a` + "\u202e" + `b", actions: [{id: a, runner: exec.x}]}]`, commandfile.ReasonCommands},
		"name":               {"slash_commands: [{name: /1x, summary: s, actions: [{id: a, runner: exec.x}]}]", commandfile.ReasonCommands},
		"long name":          {"slash_commands: [{name: /" + strings.Repeat("x", 33) + ", summary: s, actions: [{id: a, runner: exec.x}]}]", commandfile.ReasonCommands},
		"default":            {"slash_commands: [{name: /x, summary: s, default_action: b, actions: [{id: a, runner: exec.x}]}]", commandfile.ReasonCommands},
		"alias twice":        {"slash_commands: [{name: /x, summary: s, aliases: [x], actions: [{id: a, runner: exec.x}]}]", commandfile.ReasonCommands},
		"nothing":            {"", commandfile.ReasonCommands},
		"shape":              {"slash_commands: 1", commandfile.ReasonCommands},
		"key twice":          {"slash_commands: []\nslash_commands: []", commandfile.ReasonCommands},
		"choice is no id":    {"commands: [{name: /x, description: d, args: [{name: a, choices: ['b c']}]}]", commandfile.ReasonCommands},
		"legacy description": {"commands: [{name: /x}]", commandfile.ReasonCommands},
	} {
		_, _, err := commandfile.Parse([]byte(tt.doc))
		if e := capability.AsError(err); e == nil || e.Reason != tt.want || e.Code != capability.CodeInvalidInput {
			t.Errorf("%s: %v", why, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(current))
	f.Add([]byte("commands: [{name: /x, description: d, args: [{name: a, choices: [b, 1]}]}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, _, err := commandfile.Parse(data)
		if err != nil {
			if e := capability.AsError(err); e.Reason == "" {
				t.Fatal(err)
			}
			return
		}
		for i := range list {
			if !commandfile.ValidName(list[i].Name) || len(list[i].Actions) == 0 {
				t.Fatalf("%+v", list[i])
			}
		}
	})
}
