package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/junctor-run/junctor/internal/config"
)

var update = flag.Bool("update", false, "write the golden files")

// everyCommand are the commands in the order of the help, nouns before their verbs.
func everyCommand(a *app) []*cobra.Command {
	var out []*cobra.Command
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		out = append(out, c)
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				walk(sub)
			}
		}
	}
	walk(a.root())
	return out
}

// typed runs one command line without a server, on an empty home.
func typed(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := &app{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr}
	status = a.execute(t.Context(), append([]string{"--home", filepath.Join(t.TempDir(), "home")}, args...))
	return status, stdout.String(), stderr.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s is not what it was; read the difference, then go test -update\n%s\nwant d = \"\"", name, d)
	}
}

// TestTheHelpOfEveryCommand holds the whole text that people are shown, and the flags
// that say different things in different commands, so that a reader sees both.
func TestTheHelpOfEveryCommand(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	said := map[string]map[string][]string{}
	for _, c := range everyCommand(&app{}) {
		path := strings.Fields(c.CommandPath())[1:]
		status, out, errs := typed(t, append(path, "--help")...)
		if status != 0 || errs != "" {
			t.Errorf(`%s --help: status %d, %s; want status = 0, errs = ""`, c.CommandPath(), status, errs)
		}
		if len(path) < 1 || path[0] != "completion" || len(path) == 1 { // how to load a script is the library's text
			fmt.Fprintf(&b, "%s\n# %s --help\n\n%s\n", strings.Repeat("-", 80), c.CommandPath(), out)
			if strings.Contains(out, "more flags, for rarer cases") {
				_, out, _ := typed(t, append(append([]string{"help"}, path...), "--all")...)
				fmt.Fprintf(&b, "%s\n# junctor help %s --all\n\n%s\n", strings.Repeat("-", 80), strings.Join(path, " "), out)
			}
		}
		own, _ := flagsOf(c)
		for _, f := range own {
			if said[f.Name] == nil {
				said[f.Name] = map[string][]string{}
			}
			text := placeholder(f) + "  " + f.Usage
			said[f.Name][text] = append(said[f.Name][text], strings.TrimPrefix(c.CommandPath(), "junctor "))
		}
	}
	fmt.Fprintf(&b, "%s\n# flags that say different things in different commands\n\n", strings.Repeat("-", 80))
	for _, name := range slices.Sorted(maps.Keys(said)) {
		if len(said[name]) > 1 {
			fmt.Fprintf(&b, "--%s\n", name)
			for _, text := range slices.Sorted(maps.Keys(said[name])) {
				fmt.Fprintf(&b, "  %s (%s)\n", text, strings.Join(said[name][text], ", "))
			}
		}
	}
	golden(t, "testdata/help.golden", b.String())
}

// TestTheConfigurationPage holds the page to the keys, and each key to a sentence.
func TestTheConfigurationPage(t *testing.T) {
	t.Parallel()
	for _, k := range config.Keys() {
		if k.Doc == "" || !unicode.IsUpper([]rune(k.Doc)[0]) || !strings.HasSuffix(k.Doc, ".") {
			t.Errorf(`%s: %q is not a sentence; want k.Doc other than "", unicode.IsUpper([]rune(k.Doc)[0]), k.Doc ending with "."`,
				k.Path, k.Doc)
		}
	}
	status, out, errs := typed(t, "config", "docs", "--markdown")
	if status != 0 || errs != "" {
		t.Fatalf("config docs: status %d, standard error %q, want 0 and none", status, errs)
	}
	golden(t, "../../docs/configuration.md", out)
}

// TestHelpIsInOneVoice holds what an editor would mark.
func TestHelpIsInOneVoice(t *testing.T) {
	t.Parallel()
	for _, c := range everyCommand(&app{}) {
		name := c.CommandPath()
		first, _, _ := strings.Cut(c.Short, " ")
		switch {
		case c.Short == "" || !unicode.IsUpper(rune(c.Short[0])) || strings.HasSuffix(c.Short, "."):
			t.Errorf("%s: %q does not begin with a capital letter or ends with a full stop", name, c.Short)
		case len(c.Short) > 80:
			t.Errorf("%s: %q is longer than 80", name, c.Short)
		case strings.HasSuffix(first, "s") && first != "Pass" || strings.HasSuffix(first, "ing"):
			t.Errorf("%s: %q does not begin with an imperative", name, c.Short)
		case strings.ContainsRune(c.Use, '…'):
			t.Errorf("%s: %q writes what repeats as ..., not as …", name, c.Use)
		}
		for line := range strings.Lines(c.Long) {
			if len([]rune(line)) > 91 {
				t.Errorf("%s: a line of its text has more than 90 columns: %q; want len([]rune(line)) at most 91", name, line)
			}
		}
		own, global := flagsOf(c)
		for _, f := range append(own, global...) {
			switch {
			case f.Usage == "" || strings.HasSuffix(f.Usage, ".") || strings.Contains(f.Usage, "`"):
				t.Errorf("%s --%s: %q", name, f.Name, f.Usage)
			case strings.Contains(f.Usage, "(default:") || strings.Contains(f.Usage, "may be given again") ||
				strings.Contains(f.Usage, "may be repeated"):
				t.Errorf("%s --%s: %q: say (default X) and (repeatable)", name, f.Name, f.Usage)
			case placeholder(f) == "VALUE":
				t.Errorf("%s --%s takes a value without a name: begin its usage with one in backquotes", name, f.Name)
			case strings.HasSuffix(f.Value.Type(), "Array") != strings.Contains(f.Usage, "(repeatable") && f.Value.Type() != "stringSlice":
				t.Errorf("%s --%s is %s, and says %q", name, f.Name, f.Value.Type(), f.Usage)
			}
		}
	}
}

// TestExamplesOfTheHelpAreCommands parses every example as far as that can be done
// without doing it: the command is there, so are its flags, and the arguments fit.
func TestExamplesOfTheHelpAreCommands(t *testing.T) {
	t.Parallel()
	for _, c := range everyCommand(&app{}) {
		for line := range strings.Lines(c.Example) {
			for _, args := range junctorLines(line) {
				root := (&app{}).root()
				cmd, rest, err := root.Find(args)
				if err == nil {
					err = cmd.ParseFlags(rest)
				}
				if err == nil {
					err = cmd.ValidateArgs(cmd.Flags().Args())
				}
				if err != nil {
					t.Errorf("%s: %s: %v", c.CommandPath(), strings.TrimSpace(line), err)
				}
			}
		}
	}
}

// junctorLines are the argument lists of the junctor commands in a line of shell.
func junctorLines(line string) (out [][]string) {
	var word strings.Builder
	var words []string
	var quote rune
	inWord := false
	flush := func() {
		if inWord {
			words = append(words, word.String())
			word.Reset()
			inWord = false
		}
	}
	for _, r := range line + "\n" {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case strings.ContainsRune(" \t", r):
			flush()
		case strings.ContainsRune("\n&|();<", r):
			flush()
			if len(words) > 0 && words[0] == "junctor" {
				out = append(out, words[1:])
			}
			words = nil
		default:
			inWord = true
			word.WriteRune(r)
		}
	}
	return out
}

// TestWrongUsageOfEveryCommand holds the command line's contract for wrong usage:
// status 2, one sentence and the usage line, or one document with --json.
func TestWrongUsageOfEveryCommand(t *testing.T) {
	t.Parallel()
	tooMany := strings.Fields(strings.Repeat("x ", 30))
	for _, c := range everyCommand(&app{}) {
		path := strings.Fields(c.CommandPath())[1:]
		for _, wrong := range [][]string{{"--no-such-flag"}, tooMany} {
			if len(wrong) > 1 && (takesAnyNumber(c) || len(path) == 0) {
				continue
			}
			line := slices.Concat(path, wrong)
			status, out, errs := typed(t, line...)
			said, usage, _ := strings.Cut(errs, "\n")
			if status != 2 || out != "" || !strings.HasPrefix(said, "junctor: ") || strings.Count(usage, "Usage: junctor") != 1 {
				t.Errorf(`%q: status %d, stdout %q, stderr %q; want status = 2, out = "", said beginning with "junctor: ", `+
					`strings.Count(usage, "Usage: junctor") = 1`, line, status, out, errs)
			}
			status, out, errs = typed(t, append([]string{"--json"}, line...)...)
			if e := theError(out); status != 2 || errs != "" || e.Code != "invalid_input" || e.Message == "" {
				t.Errorf(`%q --json: status %d, stdout %q, stderr %q; want status = 2, errs = "", e.Code = "invalid_input", `+
					`e.Message other than ""`, line, status, out, errs)
			}
		}
	}
}

// moved maps the places of commands that moved to those where they were.
func moved() map[string]string {
	return map[string]string{
		"mcp": "upstreams", "endpoints add": "connect", "endpoints remove": "disconnect", "nodes call": "call", "nodes held": "held",
		"nodes skill": "skill", "nodes device": "node", "catalog modules": "modules", "policy grants": "grants", "audit events": "events",
		"tasks workspaces": "workspaces", "tasks frameworks": "frameworks", "extensions run": "run", "extensions runs": "runs",
		"home": "", "chat channels": "channels",
	}
}

func TestTheHelpHasAtMostTwentyCommandsInFiveGroups(t *testing.T) {
	t.Parallel()
	groups := (&app{}).commands()
	n := 0
	for _, c := range (&app{}).root().Commands() {
		if c.IsAvailableCommand() {
			n++
		}
	}
	if n > 20 || len(groups) > 5 {
		t.Errorf("the help has %d commands in %d groups, want at most 20 in 5", n, len(groups))
	}
}

// TestMovedCommandsAreReachedByBothNames holds for every command that was at another place before.
func TestMovedCommandsAreReachedByBothNames(t *testing.T) {
	t.Parallel()
	for now, former := range moved() {
		for _, path := range []string{now, former} {
			c, rest, err := (&app{}).root().Find(strings.Fields(path))
			if err != nil || len(rest) > 0 {
				t.Errorf("%q leads to %q with %q left (%v), want a command", path, c.CommandPath(), rest, err)
			}
		}
	}
}

// TestCommandsAreInTheFilesOfTheirNames holds the rule that a reader finds "junctor mcp add" in
// mcpadd.go or mcp.go. Commands that have a name of their own at the top level, such as skill, may be
// in a file of that name.
func TestCommandsAreInTheFilesOfTheirNames(t *testing.T) {
	checked := 0
	for _, c := range everyCommand(&app{}) {
		if c.RunE == nil {
			continue
		}
		run := reflect.ValueOf(c.RunE).Pointer()
		path, _ := runtime.FuncForPC(run).FileLine(run)
		file := strings.TrimSuffix(filepath.Base(path), ".go")
		words := strings.Fields(c.CommandPath())[1:]
		// What groups and plain lists have in common is in app.go and commands.go.
		if len(words) == 0 || file == "app" || file == "<autogenerated>" || words[0] == "help" || words[0] == "completion" {
			continue
		}
		checked++
		if !slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(file, strings.ReplaceAll(w, "-", "")) }) {
			t.Errorf("%s is in %s.go; want a file whose name begins with one of its words", c.CommandPath(), file)
		}
	}
	if checked < 100 {
		t.Errorf("%d commands were looked at; want at least 100", checked)
	}
}

func TestListsWithQuietPrintOnlyTheFirstColumn(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a := &app{stdout: &out, quiet: true}
	if err := a.table([]string{"ID", "STATE"}, [][]string{{"a", "x"}, {"b", "y"}}, ""); err != nil || out.String() != "a\nb\n" {
		t.Errorf("table = %q, %v; want the ids a and b", out.String(), err)
	}
}

func TestVersionFlagPrintsTheVersion(t *testing.T) {
	t.Parallel()
	if status, out, errs := typed(t, "--version"); status != 0 || !strings.HasPrefix(out, "junctor ") || errs != "" {
		t.Errorf("--version: status %d, %q, %q on standard error; want 0 and the version", status, out, errs)
	}
}

// takesAnyNumber reports commands that any number of arguments fits.
func takesAnyNumber(c *cobra.Command) bool {
	return strings.Contains(c.Use, "...") && c.Name() != "help"
}

type saidError struct{ Code, Reason, Message, Hint string }

// theError is the error of a document that is nothing else; empty for any other.
func theError(out string) saidError {
	var doc struct{ Error saidError }
	dec := json.NewDecoder(strings.NewReader(out))
	if dec.Decode(&doc) != nil || dec.More() {
		return saidError{}
	}
	return doc.Error
}

// TestWithoutAServer holds that every command that needs one says so, with status 5
// and the command that starts one.
func TestWithoutAServer(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	with := map[string]string{
		"access": "", "audit trail": "run_1", "audit show": "run_1", "audit forget": "run_1",
		"audit session": "s1", "call": "laptop f", "catalog explain": "fs.list",
		"approvals approve": "apr_1", "approvals deny": "apr_1", "approvals show": "apr_1",
		"confirmations approve": "apr_1", "confirmations deny": "apr_1", "confirmations show": "apr_1",
		"channels add": "telegram --token-secret s", "channels pair": "telegram --role agent", "channels remove": "telegram",
		"channels show": "telegram", "channels unpair": "telegram 1",
		"chat cancel": "tsk_1", "chat record": "tsk_1", "chat show": "tsk_1", "connect": "http://127.0.0.1:1", "console end": "ses_1",
		"disconnect": "tools", "endpoints export": "--to " + t.TempDir(), "endpoints show": "tools",
		"events publish": "E", "extensions disable": "x", "extensions enable": "x",
		"extensions install": file, "extensions install-url": "https://example.org/x.zip", "extensions show": "x", "extensions uninstall": "x",
		"grants revoke": "grt_1", "held cancel": "c", "held show": "c",
		"invoke": "fs.list", "mcp import": file + " --dry-run", "mcp search": "files",
		"modules route": "m GET /x", "modules show": "m", "nodes drain": "n", "nodes remove": "n", "nodes show": "n",
		"policy allow": "f/x", "policy ask": "f/x", "policy check": file, "policy deny": "f/x", "policy reset": "f/x",
		"policy set": "f strict", "policy test": "f/x --as agent:x",
		"report write": "e2b --url http://127.0.0.1:1 --dir " + t.TempDir(),
		"run":          "/x", "runs artifacts": "r", "runs cancel": "r", "runs show": "r", "secrets link": "s env:X",
		"secrets remove": "s", "secrets set": "s",
		"skill install": "n " + file, "skill list": "n", "skill uninstall": "n s",
		"tasks answer": "t", "tasks attach": "t", "tasks cancel": "t", "tasks control": "t stop", "tasks comment": "t x", "tasks create": "x",
		"tasks diff": "t", "tasks open": "pty-1", "tasks discard": "t --yes", "tasks explain": "t", "tasks merge": "t", "tasks pr": "t",
		"tasks send": "t x", "tasks share": "t", "tasks show": "t", "tasks stop": "t", "tasks watch": "t",
		"tokens create": "--role agent", "tokens revoke": "t", "upstreams add": "u --url http://127.0.0.1:1", "upstreams approve": "u",
		"upstreams confine": "u",
		"upstreams diff":    "u", "upstreams login": "u", "upstreams logout": "u", "upstreams remove": "u",
		"upstreams logs": "u", "upstreams restart": "u", "upstreams set": "u --disabled", "upstreams show": "u",
		"workspaces create": "o/r", "workspaces finalize": "w", "workspaces remove": "w",
	}
	alone := strings.Fields(`serve setup doctor config debug logout stop`)
	others := []string{ // they need files of their own, another process, or no terminal
		"audit verify", "home backup", "home restore", "home stop", "home config check", "home config docs", "home config nats",
		"home config show", "mcp sample", "catalog eval", "chat eval", "extensions check", "extensions new", "report validate",
		"nodes skill pack", "nodes skill sign", "nodes skill diff", "endpoints import", "endpoints serve",
		"tokens logout", "tasks templates", "tasks frameworks list", "tasks frameworks replay",
		"nodes device join", "nodes device status", "nodes device drain", "nodes device leave", "nodes device rescan",
		"nodes device consent list", "nodes device consent grant", "nodes device consent deny",
	}
	for _, c := range everyCommand(&app{}) {
		path := strings.Fields(c.CommandPath())[1:]
		name := strings.Join(path, " ")
		if len(path) == 0 || slices.Contains(alone, path[0]) || slices.Contains(others, name) || c.HasAvailableSubCommands() &&
			!slices.Contains([]string{"endpoints", "audit events"}, name) {
			continue
		}
		arguments, known := with[name]
		for now, former := range moved() { // the arguments are those of the former name
			if rest, ok := strings.CutPrefix(name+" ", now+" "); ok && !known {
				arguments = with[strings.TrimSpace(strings.Join([]string{former, rest}, " "))]
			}
		}
		line := append(path, strings.Fields(arguments)...)
		status, out, errs := typed(t, line...)
		if status != 5 || out != "" || !strings.Contains(errs, "no server runs on the home") ||
			!strings.Contains(errs, "start one with: junctor serve") {
			t.Errorf(`%q: status %d, stdout %q, stderr %q; want status = 5, out = "", errs with "no server runs on the home", `+
				`errs with "start one with: junctor serve"`, line, status, out, errs)
		}
		status, out, errs = typed(t, append([]string{"--json"}, line...)...)
		if e := theError(out); status != 5 || errs != "" || e.Code != "unavailable" || e.Hint == "" {
			t.Errorf(`%q --json: status %d, stdout %q, stderr %q; want status = 5, errs = "", e.Code = "unavailable", e.Hint other than ""`,
				line, status, out, errs)
		}
	}
}

// TestAWordThatIsNoneIsAnsweredWithThoseNearIt holds the suggestions, of commands,
// verbs and flags.
func TestAWordThatIsNoneIsAnsweredWithThoseNearIt(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"invok":                       "did you mean: junctor invoke",
		"help invok":                  "did you mean: junctor invoke",
		"help tokens creat":           "did you mean: junctor tokens create",
		"tokens lst":                  "did you mean: junctor tokens list",
		"completion bsh":              "did you mean: junctor completion bash",
		"zzz":                         "see: junctor --help",
		"workspace":                   "did you mean: junctor tasks workspaces",
		"grant":                       "did you mean: junctor policy grants",
		"loginn":                      "did you mean: junctor mcp login",
		"mcp lst":                     "did you mean: junctor mcp list",
		"tokens list --jsn":           "did you mean: --json",
		"invoke x --sesion s":         "did you mean: --session",
		"invoke x --zzzzzz":           "see: junctor invoke --help",
		"audit query --limit x":       `--limit takes a whole number, and "x" is not`,
		"audit query --limit":         "--limit needs a value: N",
		"tokens create":               "junctor tokens create needs --role ROLE",
		"upstreams add u --timeout 3": `--timeout takes a duration such as 30s, and "3" is not`,
		"runs list --status":          "--state needs a value: STATE",
	} {
		status, out, errs := typed(t, strings.Fields(line)...)
		if status != 2 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, stdout %q, stderr %q, wanted %q", line, status, out, errs, want)
		}
	}
}

// TestEveryFlagOfTheContractIsThere checks that the documented flags and their older
// spellings are accepted.
func TestEveryFlagOfTheContractIsThere(t *testing.T) {
	t.Parallel()
	for _, line := range strings.Split(strings.TrimSpace(contract), "\n") {
		args := junctorLines("junctor " + line)[0]
		root := (&app{}).root()
		cmd, rest, err := root.Find(args)
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err == nil {
			err = cmd.ValidateArgs(cmd.Flags().Args())
		}
		if err != nil || cmd.HasAvailableSubCommands() && !cmd.Runnable() {
			t.Errorf("%s: %v; want no error, not (cmd.HasAvailableSubCommands() && !cmd.Runnable())", line, err)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Deprecated != "" {
				t.Errorf(`%s: --%s is deprecated; want f.Deprecated = ""`, line, f.Name)
			}
		})
	}
}

//nolint:lll // a command is one line
const contract = `
serve --listen 127.0.0.1:7777 --ready-file F --demo --insecure-plain-http
tokens create --role agent --name N --label L --label M --view V --expires 1h --json
tokens list
tokens revoke T
invoke fs.list - --select k=v --session S --context k=v --timeout 1s --idempotency-key K --dry-run --stream --yes
run "/cmd args" --dry-run --session S --yes
chat --session S
catalog agent --context k=v --etag E
catalog operator --etag E
catalog internal --etag E
catalog static --etag E
catalog explain A --select k=v --context k=v
catalog conflicts
catalog slots
catalog lint
catalog eval --fixtures F FILE
connect URL --id I --provider P --endpoint-token T --endpoint-token-file F --allowed-module M --allowed-module N --trust-policy F --no-persist
disconnect ID
endpoints
endpoints list
endpoints show ID
endpoints sync ID
endpoint serve --listen A --endpoint-token T --bundle-file F --ready-file F
conformance URL --endpoint-token T --require S --dialect s --report F
report validate F
extensions list
extensions show ID
extensions install FILE.zip
extensions install-url URL
extensions enable ID --yes --agent-visible all
extensions disable ID
extensions uninstall ID
extensions doctor
extensions new NAME
modules list
modules show ID
secrets set NAME --from-file -
secrets list
secrets remove NAME
grants list
grants create
grants revoke ID
approvals list
approvals approve ID
approvals deny ID
sandbox status
sandbox selftest
audit query
audit trail [ID]
audit denied
audit session ID
audit verify
audit tail
node join URL --node-token-file F --id I --label L --actions DIR --allow-code --allow-language python --detach
node status
node drain
node leave
nodes list --status connected
nodes show N
nodes watch
nodes remove N
call NODE FUNCTION {} --stream
skill pack D
skill sign D --key K --key-id I
skill install N F
skill uninstall N S
skill list N
skill diff N F
mcp
upstreams add NAME -- CMD ARG
upstreams add NAME --url U --a2a
upstreams list
upstreams show N
upstreams remove N
upstreams diff NAME
upstreams approve NAME TOOL
tasks create T
tasks list
tasks show I
tasks send I T
tasks attach I
tasks stop I
tasks control I stop
tasks history --status done
tasks share I
tasks explain I
runs list --status running
runs artifacts R A --output F
workspaces list
workspaces create R
workspaces finalize I
workspaces remove I
frameworks list
frameworks replay F --framework claude
child hook claude
child context
child decision T
child parent context
doctor
config show
config check
config docs
version
completion bash
`
