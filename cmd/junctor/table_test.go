package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"
)

// What agents and strangers say is shown without steering the terminal.
func TestTextOfStrangersCannotSteerTheTerminal(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"\n one\ntwo\n", "one\ntwo"},
		{"red \x1b[31mtext\x07.", "red  [31mtext ."},
		{"over\rwritten\nnext\u009b2J", "over written\nnext 2J"},
	} {
		if got := plainLines(c.text); got != c.want {
			t.Errorf("%q is shown as %q; want got = %v", c.text, got, c.want)
		}
	}
}

func TestTheLinesOfAListFitItsWidth(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	long := strings.Repeat("many words of a reason ", 6)
	for _, c := range []struct {
		name  string
		head  []string
		rows  [][]string
		width int
		want  string
	}{
		{
			"short rows stay as they are",
			[]string{"ID", "STATE"},
			[][]string{{"a", "on"}, {"bcd", "off"}},
			80, "ID   STATE\na    on\nbcd  off\n",
		},
		{
			"times become ages",
			[]string{"ID", "CREATED", "EXPIRES"},
			[][]string{{"a", when(now.Add(-90 * time.Second)), when(now.Add(72 * time.Hour))}, {"b", when(now.Add(-5 * time.Hour)), "-"}},
			80, "ID  CREATED  EXPIRES\na   1m ago   in 3d\nb   5h ago   -\n",
		},
		{
			"columns for wide are left out",
			[]string{"ID", "+ORIGIN", "STATE"},
			[][]string{{"a", "endpoint", "on"}},
			80, "ID  STATE\na   on\n",
		},
		{
			"the last column continues on further lines",
			[]string{"ID", "WHY"},
			[][]string{{"a", "one two three four"}},
			14, "ID  WHY\na   one two\n    three four\n",
		},
		{
			"other columns are cut before the first",
			[]string{"ID", "PROVIDER", "STATE"},
			[][]string{{"tok_0123456789", "ext:mcp:github", "ready"}},
			32, "ID              PROVIDER   STATE\ntok_0123456789  ext:mcp:…  ready\n",
		},
	} {
		if got := fitted(c.head, c.rows, c.width, now); got != c.want {
			t.Errorf("%s: fitted = \n%s\nwant\n%s", c.name, got, c.want)
		}
	}
	wide := fitted([]string{"ID", "ACTION", "PRINCIPAL", "WHY"}, [][]string{{strings.Repeat("i", 90), long, "日本語" + long, long}}, 80, now)
	for line := range strings.Lines(wide) {
		if n := ansi.StringWidth(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("the line %q has %d columns, want at most 80", line, n)
		}
	}
}

func TestEachCommandOfACompletionExists(t *testing.T) {
	t.Parallel()
	root := new(app).root()
	for _, source := range nameSources() {
		for path := range strings.SplitSeq(source.commands, ",") {
			c, rest, err := root.Find(strings.Fields(path))
			if err != nil || len(rest) > 0 || c.ValidArgsFunction == nil {
				t.Errorf("%q: found %v, rest %q, %v; want a command that completes names", path, c, rest, err)
			}
		}
	}
}

func TestOutputOfACommandIsSelectedByOneFlag(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args       string
		json, wide bool
	}{
		{"--json", true, false},
		{"-o json", true, false},
		{"--output=json", true, false},
		{"-o wide", false, true},
		{"-o table", false, false},
		{"--json -o table", false, false},
	} {
		a := new(app)
		root := a.root()
		root.AddCommand(&cobra.Command{Use: "probe", RunE: func(*cobra.Command, []string) error { return nil }})
		root.SetArgs(append([]string{"probe"}, strings.Fields(c.args)...))
		if err := root.Execute(); err != nil || a.json != c.json || a.wide != c.wide {
			t.Errorf("%s: json %v, wide %v, %v; want %v, %v, no error", c.args, a.json, a.wide, err, c.json, c.wide)
		}
		if got := asksForJSON(strings.Fields(c.args)); c.json && !got {
			t.Errorf("asksForJSON(%s) = false, want true", c.args)
		}
	}
}

// At a terminal the server reports what happens in a line each, lists fit, and names complete.
func TestAServerAtATerminalReportsWhatHappens(t *testing.T) {
	h := &patient{home: filepath.Join(t.TempDir(), "home"), env: []string{"JUNCTOR_APPROVALS_WAIT=0s"}}
	s := h.sit(t, 120, 40, "", nil, "serve", "--listen", "127.0.0.1:0")
	s.until(" serves "+h.home, "console: http", "Ctrl-C ends the server")
	h.run(t, "mcp", "add", "units", "--unconfined", "--", "junctor", "mcp", "sample")
	s.until("connected        units")
	token, err := os.ReadFile(filepath.Join(h.home, "run", "agent.token"))
	if err != nil {
		t.Fatalf("read the agent's token: got %v, want no error", err)
	}
	agent := h.command(t, "invoke", "ext.mcp.units.units")
	agent.Env = append(agent.Env, "JUNCTOR_TOKEN="+strings.TrimSpace(string(token)))
	if out, err := agent.CombinedOutput(); err == nil {
		t.Errorf("an invocation without approval succeeded with %s, want approval_required", out)
	}
	s.until("approval         agent:local-agent asks for units/units", "see: junctor approvals show apr_")
	id := strings.TrimSpace(h.run(t, "approvals", "list", "-q"))

	list := h.sit(t, 80, 24, "", nil, "approvals", "list")
	if status := list.ends(); status != 0 {
		t.Errorf("approvals list ended with %d, want 0", status)
	}
	shown := list.text()
	if !strings.Contains(shown, id[:12]+"  pending") || !strings.Contains(shown, " ago ") || strings.Contains(shown, id) {
		t.Errorf("the list shows\n%s\nwant the short id %s and ages", shown, id[:12])
	}
	list = h.sit(t, 200, 24, "", nil, "approvals", "list", "-o", "wide")
	list.until(id)

	h.run(t, "approvals", "deny", id[:12])
	s.until("decided", "denied by admin:local-admin")
	for words, want := range map[string]string{
		"approvals show": id + "\tagent:local-agent asks for units", "mcp show": "units\tready", "tokens list -o": "wide",
	} {
		out := h.run(t, append(slices.Insert(strings.Fields(words), 0, "__complete"), "")...)
		if !strings.Contains(out, want) {
			t.Errorf("the completion of %q is\n%s\nwant %q", words, out, want)
		}
	}
	s.keys("\x03")
	if status := s.ends(); status != 0 {
		t.Errorf("the server ended with %d and shows\n%s\nwant 0", status, s.text())
	}
}
