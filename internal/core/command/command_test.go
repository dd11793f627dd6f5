package command_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/command/fault"
)

func table() command.Table {
	return command.Table{
		Reserved: func(name string) bool { return name == "bash" || name == "stop" },
		Commands: []command.Command{
			command.Builtin("help", "Show the commands", command.Action{ID: "default", Args: []command.Arg{{Name: "name"}}}),
			{
				Name: "postman", Extension: "tools.postman", ExtensionName: "Postman", Enabled: true, Summary: "Call an API",
				Examples: []command.Example{{Command: "/postman get https://example.com"}}, DefaultAction: "explain", Aliases: []string{"/pm", "help"},
				Permissions: []string{"network", "exec"},
				Actions: []command.Action{
					{ID: "get", Runner: "exec.postman_cli", Aliases: []string{"fetch"}, Permissions: []string{"exec"}},
					{ID: "test", Runner: "exec.postman_cli"},
					{ID: "explain", Runner: "analyze.response"},
				},
			},
			{
				Name: "hello", Extension: "demo.hello", Enabled: true, Summary: "Say hello",
				Actions: []command.Action{{ID: "default", Runner: "exec.hello"}},
			},
			{
				Name: "x", Extension: "demo.x", Enabled: true, Summary: "Anything", DefaultAction: "default",
				Actions: []command.Action{{ID: "default", Runner: "exec.x"}, {ID: "get", Runner: "exec.x"}},
			},
			{
				Name: "strict", Extension: "demo.strict", Enabled: true, Summary: "Checks what it is given",
				Examples: []command.Example{{Command: "/strict run 3 eu"}},
				Actions: []command.Action{
					{
						ID: "run", Runner: "exec.strict", Sensitive: []string{"token", "pin", "loose"},
						Args: []command.Arg{
							{Name: "count", Required: true, Type: "integer"},
							{Name: "region", Choices: []string{"eu", "us"}, Default: "eu"},
							{Name: "pin", Pattern: "^[0-9]+$"},
						},
						Flags: []command.Flag{
							{Arg: command.Arg{Name: "verbose"}, Short: "v"},
							{Arg: command.Arg{Name: "token"}, Short: "t", TakesValue: true},
							{Arg: command.Arg{Name: "level", Default: "2", Type: "number"}, TakesValue: true},
							{Arg: command.Arg{Name: "header"}, TakesValue: true, Repeat: true},
						},
					},
					{ID: "status", Runner: "exec.strict"},
				},
			},
			{Name: "off", Extension: "demo.off", ExtensionName: "Off", Summary: "Is disabled", Actions: []command.Action{{ID: "default"}}},
			{Name: "a-deploy", Declared: "/deploy", Extension: "a.deploy", Enabled: true, Summary: "a", Actions: []command.Action{{ID: "default"}}},
			{Name: "b-deploy", Declared: "/deploy", Extension: "b.deploy", Enabled: true, Summary: "b", Actions: []command.Action{{ID: "default"}}},
		},
	}
}

func route(t *testing.T, r *command.Router, text string) *command.Route {
	t.Helper()
	got, is, err := r.Route(text)
	if err != nil || !is {
		t.Fatalf("%q: is %v, %v; want no error, is = true", text, is, err)
	}
	return got
}

func TestTheWorkedExamplesHold(t *testing.T) {
	t.Parallel()
	r := command.New(table())
	if p := r.Problems(); len(p) > 0 {
		t.Fatalf("r.Problems() = %v, want len(p) == 0", p)
	}
	for _, c := range []struct {
		text, command, action string
		args                  []string
		raw                   string
		mode                  command.Mode
	}{
		{`/postman get https://a/b?x=1&y=2`, "postman", "get", []string{"https://a/b?x=1&y=2"}, "https://a/b?x=1&y=2", "words"},
		{
			`/postman test "my coll.json" --env dev`, "postman", "test",
			[]string{"my coll.json", "--env", "dev"},
			`"my coll.json" --env dev`,
			"words",
		},
		{`/hello World`, "hello", "default", []string{"World"}, "World", "words"},
		{`/x get a\ b '$HOME' "q\"z"`, "x", "get", []string{"a b", "$HOME", `q"z`}, `a\ b '$HOME' "q\"z"`, "words"},
		{`/x get "" y`, "x", "get", []string{"", "y"}, `"" y`, "words"},
		{`/x it's broken`, "x", "default", []string{"it's", "broken"}, "it's broken", "fallback"},
		{`/postman 看看这个响应`, "postman", "explain", []string{"看看这个响应"}, "看看这个响应", "words"},
		{"/x get\nline2 --f=1", "x", "get", []string{"line2", "--f=1"}, "line2 --f=1", "words"},
		{" \t/HELLO  a\u00a0b  'c'd\"e\" ", "hello", "default", []string{"a\u00a0b", "cde"}, "a\u00a0b  'c'd\"e\"", "words"},
		{`/postman fetch x`, "postman", "get", []string{"x"}, "x", "words"},
		{`/pm`, "postman", "explain", nil, "", "words"},
		{`/x@some_bot get # $(y) *`, "x", "get", []string{"#", "$(y)", "*"}, "# $(y) *", "words"},
		{`/x:demo.x@bot a\`, "x", "default", []string{`a\`}, `a\`, "fallback"},
		{`/deploy:B.deploy now`, "b-deploy", "default", []string{"now"}, "now", "words"},
		{`/b-deploy:b.deploy`, "b-deploy", "default", nil, "", "words"},
	} {
		got := route(t, r, c.text)
		args := c.args
		if args == nil {
			args = []string{}
		}
		if got.Command.Name != c.command || got.Action.ID != c.action || got.Raw != c.raw || got.Mode != c.mode || !cmp.Equal(got.Args, args) {
			t.Errorf("%q: /%s %s %q raw %q %s; want got.Command.Name = %v, got.Action.ID = %v, got.Raw = %v, got.Mode = %v, "+
				"cmp.Equal(got.Args, args)", c.text, got.Command.Name, got.Action.ID, got.Args, got.Raw, got.Mode, c.command, c.action,
				c.raw, c.mode)
		}
	}
	for _, text := range []string{
		`/ ls`, `/etc/passwd is a file`, `//x`, ``, `/`, `x`, `/1x`, `/x!`, `/x:`, `/x: y`, "/x\u00a0y", "/x\x00",
		"/" + strings.Repeat("a", 33), "/x:" + strings.Repeat("e", 129),
	} {
		if got, is, err := r.Route(text); is || err != nil || got != nil {
			t.Errorf("%q is taken for a command; want is = false, no error, got = nil", text)
		}
	}
	if got := route(t, r, "/postman get").Permissions(); !cmp.Equal(got, []string{"exec", "network"}) {
		t.Errorf(`route(t, r, "/postman get").Permissions() = %v, want cmp.Equal(got, []string{"exec", "network"})`, got)
	}
	if command.Chat("  //x y") != "  /x y" || command.Chat("/etc/hosts") != "/etc/hosts" {
		t.Error(`the escape of a slash; want command.Chat(" //x y") = " /x y", command.Chat("/etc/hosts") = "/etc/hosts"`)
	}
}

func TestFlagsAreAViewOfTheArguments(t *testing.T) {
	t.Parallel()
	r := command.New(table())
	got := route(t, r, `/strict run 3 --header a:1 -v --no-verbose --header=b:2 us --free --k=v=w -t s3cret --level 1.5 -- 42 --verbose -5`)
	want := map[string]any{"header": []string{"a:1", "b:2"}, "verbose": false, "free": true, "k": "v=w", "token": "s3cret", "level": "1.5"}
	if d := cmp.Diff(want, got.Flags); d != "" {
		t.Errorf("got.Flags differs from want (-want +got):\n%s", d)
	}
	if !cmp.Equal(got.Positional, []string{"3", "us", "42", "--verbose", "-5"}) {
		t.Errorf(`got.Positional = %v, want cmp.Equal(got.Positional, []string{"3", "us", "42", "--verbose", "-5"})`, got.Positional)
	}
}

func TestArgumentsAreWhatIsDeclared(t *testing.T) {
	t.Parallel()
	r := command.New(table())
	for text, want := range map[string]string{
		"/strict run":                         "the argument count is missing",
		"/strict run x":                       "the argument count must be of type integer",
		"/strict run 1 asia":                  "the argument region must be one of eu, us",
		"/strict run 1 eu x1":                 "the argument pin must match the pattern ^[0-9]+$",
		"/strict run 1 --token":               "the flag --token needs a value",
		"/strict run 1 --verbose=maybe":       "the flag --verbose takes no value but true or false",
		"/strict run 1 --level=NaN":           "the flag --level must be of type number",
		"/strict":                             "say what /strict is to do: its actions are run, status",
		"/strict runn 1":                      "/strict has no action of that name: its actions are run, status; did you mean run?",
		"/strict run 1 eu --x \x01":           "the command holds the control character 0x01",
		"/strict run \xff":                    "the command is not valid UTF-8",
		"/x " + strings.Repeat("a ", 513):     "the command has 513 words; 512 are the most",
		"/x " + strings.Repeat("a", 32<<10+1): "a word of the command has 32769 bytes; 32768 are the most",
		"/x " + strings.Repeat("a", 64<<10):   "the message has 65539 bytes; a command may have 65536",
	} {
		_, is, err := r.Route(text)
		e := capability.AsError(err)
		if !is || e == nil || e.Message != want {
			t.Errorf("%.60q: %v; want is = true, e not nil, e.Message = %v", text, err, want)
			continue
		}
		if e.Code == capability.CodeInvalidInput && e.Reason == "invalid_args" && !strings.HasPrefix(e.Hint, "usage: /strict ") {
			t.Errorf("%q: the hint is %q", text, e.Hint)
		}
	}
	got := route(t, r, "/strict run 7 --verbose=true")
	if !cmp.Equal(got.Values, map[string]string{"count": "7", "region": "eu"}) ||
		!cmp.Equal(got.Flags, map[string]any{"verbose": true, "level": "2"}) {
		t.Errorf(`got.Values = %v, got.Flags = %v, want cmp.Equal(got.Values, map[string]string{"count": "7", "region": "eu"}) && cmp.Equal(got.Flags, map[string]any{"verbose": true, "level": "2"})`, got.Values, got.Flags)
	}
}

func TestSensitiveArgumentsAreMarked(t *testing.T) {
	t.Parallel()
	r := command.New(table())
	got := route(t, r, "/strict run 1 eu 1234 --token abc -t def --token=ghi --loose jkl --loose=mno z")
	dots := command.Mask
	want := []string{"1", "eu", dots, dots, dots, dots, dots, dots, dots, dots, dots, "z"}
	if d := cmp.Diff(want, got.RecordableArgs()); d != "" || !got.Sensitive() {
		t.Errorf("got.RecordableArgs() differs from want (-want +got):\n%s", d)
	}
	if _, _, err := r.Route("/strict run 1 eu s3cret"); strings.Contains(err.Error()+capability.AsError(err).Hint, "s3cret") {
		t.Error("a fault shows the value")
	}
	if route(t, r, "/strict run 1").Sensitive() {
		t.Error("nothing sensitive was given")
	}
}

func TestRepliesSayWhatToDo(t *testing.T) {
	t.Parallel()
	r := command.New(table())
	for text, want := range map[string][3]string{
		"/postmn get":     {"unknown_capability", "unknown_command", "did you mean /postman?"},
		"/x:demo.other":   {"unknown_capability", "unknown_command", "type /help for the commands there are"},
		"/off now":        {"unavailable", "extension_disabled", "an operator enables it with: junctor extensions enable demo.off"},
		"/off:demo.off":   {"unavailable", "extension_disabled", "an operator enables it with: junctor extensions enable demo.off"},
		"/bash ls":        {"denied", "reserved_command", "type /help for the commands there are"},
		"/deploy":         {"invalid_input", "ambiguous_alias", "type /a-deploy or /b-deploy, or /deploy:<extension id>"},
		"/deploy:c.other": {"unknown_capability", "unknown_command", "did you mean /a-deploy or /b-deploy?"},
	} {
		_, is, err := r.Route(text)
		e := capability.AsError(err)
		if !is || e == nil {
			t.Fatalf("text = %v, want is && e != nil", text)
		}
		if got := [3]string{string(e.Code), e.Reason, e.Hint}; text != "/deploy:c.other" && text != "/x:demo.other" && got != want ||
			got[1] != want[1] {
			t.Errorf(`%s: %q; want not (text != "/deploy:c.other" && text != "/x:demo.other" && got != want), got[1] = want[1]`,
				text, got)
		}
	}
	_, _, err := r.Route("/postmn")
	reply, ok := command.Prompt(err)
	want := map[string]any{
		"type": "extension_prompt", "command": "/postmn",
		"message":      "there is no command /postmn here; it may come with an extension that is not installed",
		"suggestion":   map[string]any{"action": "search_extensions", "query": "postmn"},
		"did_you_mean": []string{"/postman"},
	}
	if d := cmp.Diff(want, reply); d != "" || !ok {
		t.Errorf("reply differs from want (-want +got):\n%s", d)
	}
	_, _, err = r.Route("/off")
	reply, _ = command.Prompt(err)
	want = map[string]any{
		"type": "extension_prompt", "command": "/off", "message": "/off belongs to Off, which is disabled",
		"extension_info": map[string]any{"id": "demo.off", "name": "Off", "status": "disabled"},
		"action":         map[string]any{"type": "enable_extension", "extension_id": "demo.off", "label": "Enable Off"},
	}
	if d := cmp.Diff(want, reply); d != "" {
		t.Errorf("reply differs from want (-want +got):\n%s", d)
	}
	if _, ok := command.Prompt(fault.Cancelled()); ok {
		t.Error("no prompt")
	}
}

func TestNobodyGetsAContestedName(t *testing.T) {
	t.Parallel()
	good := []command.Action{{ID: "default"}}
	tbl := command.Table{Commands: []command.Command{
		{Name: "twice", Extension: "b.b", Enabled: true, Actions: good},
		{Name: "twice", Extension: "a.a", Enabled: true, Actions: good},
		{Name: "help", Extension: "evil.help", Enabled: true, Actions: good},
		{Name: "Upper", Extension: "a.a", Enabled: true, Actions: good},
		{Name: "none", Extension: "a.a", Enabled: true},
		{Name: "same", Extension: "a.a", Enabled: true, Actions: []command.Action{{ID: "q"}, {ID: "q"}}},
		{Name: "regex", Extension: "a.a", Enabled: true, Actions: []command.Action{{ID: "q", Args: []command.Arg{{Name: "a", Pattern: "("}}}}},
		{Name: "type", Extension: "a.a", Enabled: true, Actions: []command.Action{{ID: "q", Args: []command.Arg{{Name: "a", Type: "date"}}}}},
		{Name: "default", Extension: "a.a", Enabled: true, DefaultAction: "no", Actions: good},
		{Name: "preset", Extension: "a.a", Enabled: true, Actions: []command.Action{{
			ID:   "q",
			Args: []command.Arg{{Name: "a", Type: "integer", Default: "x"}},
		}}},
		{Name: "fine", Extension: "a.a", Enabled: true, Actions: good, Aliases: []string{"al", "help"}},
		{Name: "well", Extension: "a.b", Enabled: true, Actions: good, Aliases: []string{"al"}},
		{Name: "free", Actions: good},
		command.Builtin("help", "Help", good...),
	}}
	r := command.New(tbl)
	if p := r.Problems(); len(p) != 11 {
		t.Errorf("strings.Join(p, \"\\n\") = %v, want len(p) == 11", strings.Join(p, "\n"))
	}
	if got := route(t, r, "/help"); !got.Command.Builtin {
		t.Error("an extension took /help")
	}
	if _, _, err := r.Route("/al"); capability.AsError(err).Reason != "ambiguous_alias" {
		t.Errorf(`%v; want capability.AsError(err).Reason = "ambiguous_alias"`, err)
	}
	var names []string
	for _, e := range r.List() {
		names = append(names, e.Name)
	}
	if !cmp.Equal(names, []string{"/fine", "/help", "/well"}) {
		t.Errorf(`names = %v, want cmp.Equal(names, []string{"/fine", "/help", "/well"})`, names)
	}
}

func TestLongRegisteredNamesAreCommands(t *testing.T) {
	t.Parallel()
	name := "a-label-that-is-rather-long-in-itself-deploy"
	r := command.New(command.Table{Commands: []command.Command{{
		Name: name, Declared: "deploy", Extension: "a.b", Enabled: true,
		Actions: []command.Action{{ID: "default"}},
	}}})
	if got := route(t, r, "/"+strings.ToUpper(name)+" x"); got.Command.Name != name {
		t.Errorf("got.Command.Name = %v, want %v", got.Command.Name, name)
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	r := command.New(table())
	want := `Commands:
  /help  Show the commands

Commands of extensions:
  /a-deploy  a
  /b-deploy  b
  /hello  Say hello
  /off  Is disabled (disabled)
  /postman  Call an API
  /strict  Checks what it is given
  /x  Anything
`
	if d := cmp.Diff(want, r.Help()); d != "" {
		t.Errorf("r.Help() differs from want (-want +got):\n%s", d)
	}
	got, err := r.HelpFor("/strict", "# Usage\x1b[2J\n")
	want = `/strict  Checks what it is given

usage: /strict run <count> [region] [pin] [--verbose] [--token <value>] [--level <value>] [--header <value>]
  <count>
  <region>  one of eu, us; default eu
  <pin>
  --verbose, -v
  --token, -t
  --level  default 2
  --header

usage: /strict status

Examples:
  /strict run 3 eu

# Usage[2J

`
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("result differs from want, err = %v (-want +got):\n%s", err, d)
	}
	if _, err := r.HelpFor("off", ""); err != nil {
		t.Error("a disabled command has its help:", err)
	}
	for _, name := range []string{"nope", "not a name", "deploy"} {
		if _, err := r.HelpFor(name, ""); err == nil {
			t.Errorf("name = %v, want err != nil", name)
		}
	}
}

func FuzzRoute(f *testing.F) {
	for _, s := range []string{"/x get a", "/strict run 1 -t x --token=y", "/deploy:a.deploy@b", "//x", "/help strict", "/off"} {
		f.Add(s)
	}
	r := command.New(table())
	f.Fuzz(func(t *testing.T, text string) {
		got, is, err := r.Route(text)
		switch {
		case !is && (got != nil || err != nil), is && (got == nil) == (err == nil):
			t.Fatalf("%q: %v %v %v", text, got, is, err)
		case err != nil && capability.CodeOf(err) == capability.CodeInternal:
			t.Fatal(err)
		case got != nil && (!strings.Contains(text, got.Raw) || len(got.RecordableArgs()) != len(got.Args) ||
			len(got.Positional) > len(got.Args)):
			t.Fatalf("%q: %+v", text, got)
		}
	})
}

func big(n int) command.Table {
	t := table()
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		name := fmt.Sprintf("cmd%d%c", i, 'a'+rune(rnd.IntN(26)))
		t.Commands = append(t.Commands, command.Command{
			Name: name, Extension: "e." + name, Enabled: true,
			Actions: []command.Action{{ID: "run"}},
		})
	}
	return t
}

func BenchmarkRoute1000(b *testing.B) {
	r := command.New(big(1000))
	for b.Loop() {
		if _, _, err := r.Route(`/strict run 3 "us" --header a:1 -v --token abc`); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnknown1000(b *testing.B) {
	r := command.New(big(1000))
	for b.Loop() {
		if _, _, err := r.Route("/postmn get"); err == nil {
			b.Fatal("found; want an error")
		}
	}
}

func BenchmarkNew1000(b *testing.B) {
	t := big(1000)
	for b.Loop() {
		command.New(t)
	}
}
