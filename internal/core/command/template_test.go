package command_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/command"
)

func action() command.Action {
	return command.Action{
		ID: "get", Runner: "exec.curl", Sensitive: []string{"token"},
		Args: []command.Arg{{Name: "url"}, {Name: "name", AllowDash: true}, {Name: "kind", Default: "json"}},
		Flags: []command.Flag{
			{Arg: command.Arg{Name: "token"}, TakesValue: true},
			{Arg: command.Arg{Name: "env"}, TakesValue: true},
			{Arg: command.Arg{Name: "fast"}},
		},
	}
}

func routeOf(t testing.TB, a command.Action, text string) *command.Route {
	t.Helper()
	r := command.New(command.Table{Commands: []command.Command{{
		Name: "x", Extension: "e.x", Enabled: true, DefaultAction: a.ID,
		Actions: []command.Action{a},
	}}})
	got, is, err := r.Route("/x " + text)
	if err != nil || !is {
		t.Fatalf("%q: %v; want no error, is = true", text, err)
	}
	return got
}

func expand(t testing.TB, items []string, text string) (command.Argv, error) {
	t.Helper()
	tpl, err := command.CompileTemplate("curl", items)
	if err != nil {
		t.Fatal(err)
	}
	return tpl.Expand(command.TemplateInput{
		Route: routeOf(t, action(), text), WorkDir: "/w d",
		Config: func(key string) (string, bool) { return "-set", key == "a.b" },
	})
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		items []string
		text  string
		want  []string
	}{
		{nil, `"a b" --env dev -- x`, []string{"curl", "get", "a b", "--env", "dev", "--", "x"}},
		{[]string{}, "a", []string{"curl"}},
		{[]string{"-sS", "--", "{arg:0}"}, "-x", []string{"curl", "-sS", "--", "-x"}},
		{[]string{"{arg:0}", "{arg:1}", "{arg:2}", "{arg:3}"}, `u '-$(n); {arg:0}'`, []string{"curl", "u", "-$(n); {arg:0}", "json"}},
		{[]string{"{arg:3}", "{arg:4}"}, "a b c d", []string{"curl", "d"}},
		{[]string{"--env={flag:env}", "{flag:fast}", "-t{flag:token}"}, "--env -x --fast", []string{"curl", "--env=-x", "true"}},
		{[]string{"{work_dir}/out", "{config:a.b}", "{config:none}"}, "", []string{"curl", "/w d/out", "-set"}},
		{[]string{"<{args}>", "q={raw_args}"}, `"a b" c`, []string{"curl", "<a b c>", `q="a b" c`}},
		{[]string{"<{args}>", "q={raw_args}", "{args}"}, "", []string{"curl"}},
		{[]string{`{"a":"{arg:0}", "b": {} }`, "{", ""}, `x"`, []string{"curl", `{"a":"x"", "b": {} }`, "{", ""}},
	} {
		got, err := expand(t, c.items, c.text)
		if d := cmp.Diff(c.want, got.List); d != "" || err != nil {
			t.Errorf(`%q of %q: %v %s; want d = "", no error`, c.items, c.text, err, d)
		}
	}
	for _, c := range []struct{ item, text string }{
		{"{arg:0}", "-- -o/etc/x"},
		{"{arg:0}{arg:1}", "'' -x -rf"},
		{"{flag:env}", "--env -rf"},
		{"{raw_args}", "-rf"},
		{"{args}{arg:0}", "-rf"},
		{"{arg:0}", "-"},
		{"{arg:3}", "-- a b c -d"},
	} {
		got, err := expand(t, []string{c.item}, c.text)
		if c.item == "{arg:0}{arg:1}" { // the second may begin with a hyphen, the first was empty
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if capability.AsError(err) == nil || capability.AsError(err).Reason != "invalid_args" {
			t.Errorf(`%s of %q passes as %q (%v); want capability.AsError(err) not nil, capability.AsError(err).Reason = "invalid_args"`,
				c.item, c.text, got.List, err)
		}
	}
	for _, item := range []string{"{argz}", "{arg:x}", "{arg:-1}", "{arg}", "{flag:}", "{args:1}", "{config}", "a\x00", "{arg:512}"} {
		if _, err := command.CompileTemplate("curl", []string{item}); err == nil {
			t.Errorf("%q is a template; want an error", item)
		}
	}
	for _, tool := range []string{"", "/bin/sh", "..", ".", "a b", "-x", strings.Repeat("a", 65)} {
		if _, err := command.CompileTemplate(tool, nil); err == nil {
			t.Errorf("%q is a tool; want an error", tool)
		}
	}
}

func TestWordsAreBoundedAndRecordable(t *testing.T) {
	t.Parallel()
	got, err := expand(t, []string{"--token={flag:token}", "{arg:0}", "{raw_args}", "{args}"}, "u --token s3cret")
	want := []string{"curl", command.Mask, "u", command.Mask, "u", command.Mask, command.Mask}
	if d := cmp.Diff(want, got.Recordable()); d != "" || err != nil {
		t.Errorf("got.Recordable() differs from want, err = %v (-want +got):\n%s", err, d)
	}
	long := strings.Repeat("a", 32<<10)
	if _, err := expand(t, []string{strings.Repeat("{arg:0}", 4)}, long); capability.CodeOf(err) != capability.CodeTooLarge {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeTooLarge", err)
	}
	if _, err := expand(t, slices.Repeat([]string{"{arg:0}"}, 40), long); capability.CodeOf(err) != capability.CodeTooLarge {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeTooLarge", err)
	}
	tpl, err := command.CompileTemplate("curl", []string{"{config:k}"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tpl.Expand(command.TemplateInput{
		Route:  routeOf(t, action(), ""),
		Config: func(string) (string, bool) { return "a\x00b", true },
	}); err == nil {
		t.Error("a NUL passes; want an error")
	}
}

func TestTemplatesOfAllowedCommands(t *testing.T) {
	t.Parallel()
	a := action()
	tpl, tool, err := command.CompileShellTemplate(`git log --author "{url} x" -- {env} '{"k": 1}'`, &a)
	if err != nil || tool != "git" {
		t.Fatalf(`tool = %v, err = %v, want err == nil && tool == "git"`, tool, err)
	}
	got, err := tpl.Expand(command.TemplateInput{Route: routeOf(t, a, `'; rm -rf / {env}' --env=-x`)})
	if d := cmp.Diff([]string{"git", "log", "--author", "; rm -rf / {env} x", "--", "-x", `{"k": 1}`}, got.List); d != "" || err != nil {
		t.Errorf("got.List differs from want, err = %v (-want +got):\n%s", err, d)
	}
	if _, err := tpl.Expand(command.TemplateInput{Route: routeOf(t, a,
		"u")}); capability.AsError(err).Message != "the argument env is missing" {
		t.Errorf(`%v; want capability.AsError(err).Message = "the argument env is missing"`, err)
	}
	for _, text := range []string{
		"", "{url}", "/bin/sh -c {url}", "a; b", "a && b", "a || b", "a | b", "a $b", "a > b", "a < b", "a `b`",
		"a\nb", "a 'b", "a {nobody}",
	} {
		if _, _, err := command.CompileShellTemplate(text, &a); err == nil {
			t.Errorf("%q is a template; want an error", text)
		}
	}
}

func TestToolNames(t *testing.T) {
	t.Parallel()
	for runner, want := range map[string]string{
		"exec.postman_cli": "postman", "exec.aws_client": "aws_client", "exec.my_cli_tool": "my_cli", "exec.curl": "curl", "exec._cli": "",
		"exec./bin/sh": "", "exec...": "", "exec.": "", "curl": "", "api.get": "", "exec.g++": "g++",
	} {
		if got, err := command.ToolOf(runner); got != want || (err == nil) != (want != "") {
			t.Errorf(`%s: %q %v; want got = %v, (err == nil) = (want != "")`, runner, got, err, want)
		}
	}
}

// TestTheSmallExtension routes a command and expands its template.
func TestTheSmallExtension(t *testing.T) {
	t.Parallel()
	get := command.Action{
		ID: "get", Runner: "exec.curl", Argv: []string{"-sS", "--max-time", "20", "--", "{arg:0}"},
		Args: []command.Arg{{Name: "url", Required: true, Pattern: "^https?://"}},
	}
	r := command.New(command.Table{Commands: []command.Command{{
		Name: "httpcheck", Extension: "tools.httpcheck", Enabled: true, DefaultAction: "get",
		Actions: []command.Action{get, {ID: "explain", Runner: "analyze.response"}},
	}}})
	got, _, err := r.Route("/httpcheck https://api.example.com/status")
	if err != nil {
		t.Fatal(err)
	}
	tool, err := command.ToolOf(got.Action.Runner)
	if err != nil {
		t.Fatal(err)
	}
	tpl, err := command.CompileTemplate(tool, got.Action.Argv)
	if err != nil {
		t.Fatal(err)
	}
	words, err := tpl.Expand(command.TemplateInput{Route: got})
	if d := cmp.Diff([]string{"curl", "-sS", "--max-time", "20", "--", "https://api.example.com/status"}, words.List); d != "" || err != nil {
		t.Errorf("words.List differs from want, err = %v (-want +got):\n%s", err, d)
	}
	if got, _, err := r.Route("/httpcheck explain last_response"); err != nil || got.Action.ID != "explain" {
		t.Errorf(`%v; want no error, got.Action.ID = "explain"`, err)
	}
	if _, _, err := r.Route("/httpcheck file:///etc/passwd"); capability.AsError(err).Reason != "invalid_args" {
		t.Errorf(`%v; want capability.AsError(err).Reason = "invalid_args"`, err)
	}
	if _, _, err := r.Route("/httpchek"); capability.AsError(err).Hint != "did you mean /httpcheck?" {
		t.Errorf(`%v; want capability.AsError(err).Hint = "did you mean /httpcheck?"`, err)
	}
}

// FuzzTemplate holds that what is typed cannot make another word: the number of
// words and every literal among them follow from the template and from which
// values are there.
func FuzzTemplate(f *testing.F) {
	for _, s := range []string{
		"a", `"a b" c`, "'", "-x", "-- -x", `--env "a b"`, "--token=x y", "\\", "a\n;b && $(c) `d` {arg:0} {args}",
		"看 \u00a0 --fast",
	} {
		f.Add(s, "--q={arg:0}")
	}
	fixed := []string{"-a", "{arg:0}", "--", "{arg:1}", "mid", "x={flag:env}", "{raw_args}", "last"}
	a := action()
	r := command.New(command.Table{Commands: []command.Command{{
		Name: "x", Extension: "e.x", Enabled: true, DefaultAction: a.ID,
		Actions: []command.Action{a},
	}}})
	tpl, err := command.CompileTemplate("tool", fixed)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text, item string) {
		got, is, err := r.Route("/x " + text)
		if err != nil || !is {
			return
		}
		in := command.TemplateInput{Route: got}
		if w, err := tpl.Expand(in); err == nil {
			want := []string{"tool", "-a"}
			if v, ok := got.Values["url"]; ok {
				want = append(want, v)
			}
			want = append(want, "--")
			if v, ok := got.Values["name"]; ok {
				want = append(want, v)
			}
			want = append(want, "mid")
			if v, ok := got.Flag("env"); ok {
				want = append(want, "x="+v)
			}
			if got.Raw != "" {
				want = append(want, got.Raw)
			}
			if want = append(want, "last"); !slices.Equal(want, w.List) {
				t.Fatalf("%q became %q; want want = %v", text, w.List, w.List)
			}
			if v, ok := got.Values["url"]; ok && strings.HasPrefix(v, "-") {
				t.Fatalf(`%q became an option; want not (ok && strings.HasPrefix(v, "-"))`, v)
			}
		}
		free, err := command.CompileTemplate("tool", []string{item})
		if err != nil {
			return
		}
		w, err := free.Expand(in)
		if most := 2; err == nil && item != "{args}" && len(w.List) > most {
			t.Fatalf(`%q and %q became %q; want not (err == nil && item != "{args}" && len(w.List) > most)`, item, text, w.List)
		}
		shell, _, err := command.CompileShellTemplate("tool "+item, &a)
		if err != nil {
			return
		}
		tokens, err := command.LexStrict("tool " + item)
		if err != nil {
			t.Fatal(err)
		}
		if w, err := shell.Expand(in); err == nil && len(w.List) != len(tokens) {
			t.Fatalf("%q and %q became %q; want not (err == nil && len(w.List) != len(tokens))", item, text, w.List)
		}
	})
}
