package extension_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/extension"
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
	got, warnings, err := extension.ParseCommands([]byte(current))
	if err != nil || len(warnings) != 1 {
		t.Fatalf("err = %v, want nil; len(warnings) = %v, want 1; warnings = %q", err, len(warnings), warnings)
	}
	three := "3"
	want := []extension.Command{{
		Name: "/postman", Summary: "Try an API", DefaultAction: "get", Runner: "exec.postman_cli", Aliases: []string{"/pm"},
		Permissions: []string{"exec"}, Confirm: "always",
		Capability: "tools.postman", Examples: []extension.Example{
			{Command: "/postman get https://a.test"},
			{Command: "/postman test x.json", Description: "Run a collection"},
		},
		Actions: []extension.Action{
			{
				ID: "get", Runner: "exec.postman_cli", Summary: "Fetch", Description: "Fetch", Sensitive: []string{"url"}, CacheSec: 5,
				Priority: "high", AgentVisible: true,
				Args:  []extension.Argument{{Name: "url", Required: true, Pattern: "^https?://"}},
				Flags: []extension.Argument{{Name: "verbose", Short: "v", Type: "boolean"}, {Name: "n", Type: "integer", Default: &three}},
			},
			{
				ID: "explain", Runner: "analyze.response", Argv: []string{"a", "1", "true"},
				Output: extension.Output{Format: "json", MaxBytes: 10, Store: true},
			},
		},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
}

func TestTheOlderShape(t *testing.T) {
	t.Parallel()
	got, _, err := extension.ParseCommands([]byte(`
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
	want := []extension.Command{
		{Name: "/hello", Summary: "Say hello", Description: "Say hello", Runner: "exec.entrypoint", Actions: []extension.Action{
			{
				ID: "default", Runner: "exec.entrypoint", Description: "Say hello", Entrypoint: "scripts/hello",
				Args: []extension.Argument{{Name: "who"}},
			},
		}},
		{
			Name: "/deploy", Summary: "Deploy it.", Description: "Deploy it.\nTo somewhere.\n", Runner: "builtin", DefaultAction: "staging",
			Actions: []extension.Action{
				{ID: "staging", Runner: "builtin", Description: "Deploy it.\nTo somewhere.\n", Args: []extension.Argument{{Name: "tag"}}},
				{ID: "production", Runner: "builtin", Description: "Deploy it.\nTo somewhere.\n", Args: []extension.Argument{{Name: "tag"}}},
			},
		},
	}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("err = %v, want nil; diff (-want +got):\n%s", err, d)
	}
}

func TestWhatDoesNotFitIsRefused(t *testing.T) {
	t.Parallel()
	one := func(action string) string {
		return "slash_commands: [{name: /x, summary: s, actions: [" + action + "]}]"
	}
	for why, tt := range map[string]struct{ doc, want string }{
		"path as runner":   {one("{id: a, runner: exec./bin/sh}"), extension.ReasonRunner},
		"way up as runner": {one("{id: a, runner: exec.../../bin/sh}"), extension.ReasonRunner},
		"no runner":        {one("{id: a}"), extension.ReasonRunner},
		"option as id":     {one("{id: -c, runner: exec.x}"), extension.ReasonCommands},
		"id twice":         {one("{id: a, runner: exec.x}, {id: a, runner: exec.x}"), extension.ReasonCommands},
		"permission":       {one("{id: a, runner: exec.x, permissions: [root]}"), extension.ReasonCommands},
		"confirm":          {one("{id: a, runner: exec.x, confirm: maybe}"), extension.ReasonCommands},
		"pattern":          {one("{id: a, runner: exec.x, args: [{name: b, pattern: '('}]}"), extension.ReasonCommands},
		"sensitive":        {one("{id: a, runner: exec.x, sensitive: [b]}"), extension.ReasonCommands},
		"timeout":          {one("{id: a, runner: exec.x, timeout_sec: 4000}"), extension.ReasonCommands},
		"entrypoint":       {one("{id: a, runner: exec.entrypoint, entrypoint: ../x}"), extension.ReasonCommands},
		"no action":        {"slash_commands: [{name: /x, summary: s}]", extension.ReasonCommands},
		"no summary":       {"slash_commands: [{name: /x, actions: [{id: a, runner: exec.x}]}]", extension.ReasonCommands},
		"two lines":        {`slash_commands: [{name: /x, summary: "a\nb", actions: [{id: a, runner: exec.x}]}]`, extension.ReasonCommands},
		"bidi": {
			`slash_commands: [{name: /x, summary: "a` + "\u202e" + `b", actions: [{id: a, runner: exec.x}]}]`,
			extension.ReasonCommands,
		},
		"name": {"slash_commands: [{name: /1x, summary: s, actions: [{id: a, runner: exec.x}]}]", extension.ReasonCommands},
		"long name": {
			"slash_commands: [{name: /" + strings.Repeat("x", 33) + ", summary: s, actions: [{id: a, runner: exec.x}]}]",
			extension.ReasonCommands,
		},
		"default": {
			"slash_commands: [{name: /x, summary: s, default_action: b, actions: [{id: a, runner: exec.x}]}]",
			extension.ReasonCommands,
		},
		"alias twice": {
			"slash_commands: [{name: /x, summary: s, aliases: [x], actions: [{id: a, runner: exec.x}]}]",
			extension.ReasonCommands,
		},
		"nothing":             {"", extension.ReasonCommands},
		"shape":               {"slash_commands: 1", extension.ReasonCommands},
		"key twice":           {"slash_commands: []\nslash_commands: []", extension.ReasonCommands},
		"choice is not an id": {"commands: [{name: /x, description: d, args: [{name: a, choices: ['b c']}]}]", extension.ReasonCommands},
		"legacy description":  {"commands: [{name: /x}]", extension.ReasonCommands},
	} {
		_, _, err := extension.ParseCommands([]byte(tt.doc))
		if e := capability.AsError(err); e == nil || e.Reason != tt.want || e.Code != capability.CodeInvalidInput {
			t.Errorf("%s: %v; want e not nil, e.Reason = %v, e.Code = capability.CodeInvalidInput", why, err, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(current))
	f.Add([]byte("commands: [{name: /x, description: d, args: [{name: a, choices: [b, 1]}]}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, _, err := extension.ParseCommands(data)
		if err != nil {
			if e := capability.AsError(err); e.Reason == "" {
				t.Fatalf(`%v; want e.Reason other than ""`, err)
			}
			return
		}
		for i := range list {
			if !extension.ValidCommandName(list[i].Name) || len(list[i].Actions) == 0 {
				t.Fatalf("%+v; want extension.ValidCommandName(list[i].Name), len(list[i].Actions) other than 0", list[i])
			}
		}
	})
}
