package clis

import (
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/junctor-run/junctor/internal/platform/scriptedmodel"
	coding "github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/testkit/built"
)

var update = flag.Bool("update", false, "write the table of docs/task-agents.md")

// outcome is what becomes of a use of a tool.
type outcome string

// The outcomes.
const (
	runs    outcome = "at once"
	asks    outcome = "asked"
	fails   outcome = "asked, then fails" // the user is asked, and the program's sandbox refuses nevertheless
	mayFail outcome = "asked, and may fail"
	refused outcome = "refused"
	missing outcome = "" // the program does not offer it, and it is not tried
)

// use is a row of the table: what an agent does.
type use struct {
	name, title string
	category    coding.Category // by which the preset judges
	refused     bool            // by the rules, with each preset
}

func uses() []use {
	return []use{
		{name: "read", title: "reads a file of the folder", category: coding.FileRead},
		{name: "ls", title: "runs a command that only reads", category: coding.FileRead},
		{name: "write", title: "writes a file of the folder", category: coding.FileWrite},
		{name: "run", title: "runs a command that writes", category: coding.ShellUse},
		{name: "outside", title: "writes a file outside of the folder", category: coding.FileWrite, refused: true},
		{name: "into", title: "runs a command that writes outside (`> ../x`)", category: coding.ShellUse, refused: true},
		{name: "script", title: "runs a program that writes outside, which its command line hides", category: coding.ShellUse},
		{name: "net", title: "runs a command that uses the network", category: coding.ShellUse},
		{name: "web", title: "uses its tool for the web", category: coding.Web},
		{name: "mcp", title: "calls a tool of an MCP server", category: coding.Agent},
		{name: "agent", title: "starts an agent", category: coding.Agent},
		{name: "question", title: "asks the user", category: coding.UserInteraction},
	}
}

var presetNames = []coding.Preset{coding.Readonly, coding.Standard, coding.Permissive, coding.Autonomous}

// except is a cell in which a program differs from the preset: because its sandbox or the list of its tools
// refuses more.
type except struct {
	mode    string // "": both
	presets []coding.Preset
	uses    []string
	is      outcome
	why     string
}

func exceptions(name string) []except {
	every := presetNames
	asking := []coding.Preset{coding.Standard, coding.Permissive}
	switch name {
	case "claude", "gemini", "opencode":
		list := []except{{
			presets: every[:1], uses: []string{"ls"}, is: refused,
			why: "it has tools of its own for reading, and with `readonly` none for commands",
		}}
		if name == "gemini" {
			list = append(list, except{mode: "structured", presets: every, uses: []string{"question"}, is: missing, why: "not offered"},
				except{
					mode: "structured", presets: every[3:], uses: []string{"into"}, is: runs, why: "its hooks do not run in this mode",
				},
				except{
					mode: "structured", presets: asking, uses: []string{"agent"}, is: refused,
					why: "it does not start agents in this mode",
				})
		}
		return list
	case "codex":
		return []except{
			{mode: "pty", presets: asking, uses: []string{"run", "script", "net"}, is: refused, why: "its sandbox is read-only"},
			{presets: every[3:], uses: []string{"script"}, is: refused, why: "by its sandbox"},
			{mode: "structured", presets: asking, uses: []string{"net"}, is: fails, why: "its sandbox has no network"},
			{mode: "structured", presets: asking, uses: []string{"script"}, is: mayFail, why: "it is run in the sandbox first"},
			{presets: every[1:2], uses: []string{"agent"}, is: refused, why: "it cannot ask about agents, so it has none"},
			{mode: "pty", presets: every, uses: []string{"question"}, is: missing, why: "not offered"},
		}
	}
	return nil
}

// expected returns what becomes of a use, and the exception that applies.
func expected(name, mode string, p coding.Preset, u use) (outcome, *except) {
	for _, e := range exceptions(name) {
		if (e.mode == "" || e.mode == mode) && slices.Contains(e.presets, p) && slices.Contains(e.uses, u.name) {
			return e.is, &e
		}
	}
	switch v := p.Judge(u.category); {
	case u.refused || v == coding.Blocked:
		return refused, nil
	case v == coding.Ask:
		return asks, nil
	}
	return runs, nil
}

// TestTheTableOfPresets: docs/task-agents.md has the table that TestPresetsHold holds live.
func TestTheTableOfPresets(t *testing.T) {
	const begin, end = "<!-- presets: written by go test ./interop/clis -run Table -update -->\n", "<!-- end of presets -->\n"
	path := filepath.Join("..", "..", "docs", "task-agents.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("reading the page: %v", err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	got, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("the page has no %q and %q, want both", begin, end)
	}
	want := table()
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil { //nolint:gosec // a page of the repository
			t.Fatalf("writing the page: %v", err)
		}
		return
	}
	if got != want {
		t.Errorf("the table is\n%s\nwant\n%s", got, want)
	}
}

func table() string {
	var b strings.Builder
	b.WriteString("\n| an agent … |")
	for _, p := range presetNames {
		fmt.Fprintf(&b, " `%s` |", p)
	}
	b.WriteString("\n|---|---|---|---|---|\n")
	for _, u := range uses() {
		fmt.Fprintf(&b, "| %s |", u.title)
		for _, p := range presetNames {
			o, _ := expected("", "", p, u)
			fmt.Fprintf(&b, " %s |", o)
		}
		b.WriteString("\n")
	}
	b.WriteString("\n| program | mode | preset | an agent … | |\n|---|---|---|---|---|\n")
	for _, c := range live() {
		for _, e := range exceptions(c.name) {
			var titles, presets []string
			for _, u := range uses() {
				if slices.Contains(e.uses, u.name) {
					titles = append(titles, u.title)
				}
			}
			for _, p := range e.presets {
				presets = append(presets, "`"+string(p)+"`")
			}
			if len(presets) == len(presetNames) {
				presets = []string{"all"}
			}
			mode, what := map[string]string{"": "both", "pty": "terminal", "structured": "structured"}[e.mode], string(e.is)+": "+e.why
			if e.is == missing {
				what = e.why
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", coding.Of(coding.Name(c.name)).Title, mode, strings.Join(presets, ", "),
				strings.Join(titles, ", "), what)
		}
	}
	b.WriteString("\nThe settings with which the programs are started; Codex in structured mode has the approval policy `untrusted` and " +
		"the sandbox `workspace-write` with `standard` and `permissive`. OpenCode in structured mode asks about every command that " +
		"it may run, and the preset answers.\n\n| program | preset | settings |\n|---|---|---|\n")
	for _, c := range live() {
		for _, p := range presetNames {
			fmt.Fprintf(&b, "| %s | `%s` | %s |\n", coding.Of(coding.Name(c.name)).Title, p, settings(coding.Name(c.name), p))
		}
	}
	return b.String() + "\n"
}

// settings returns the settings with which a program is started, from the code that makes them.
func settings(name coding.Name, p coding.Preset) string {
	a, err := coding.ApprovalOf(name, p)
	if err != nil {
		return err.Error()
	}
	var words []string
	for _, f := range a.CLIFlags {
		words = append(words, "`"+f+"`")
	}
	for _, v := range slices.Sorted(maps.Values(a.EnvVars)) {
		words = append(words, "`"+v+"`")
	}
	for _, f := range a.WorkspaceFiles {
		text := strings.Join(strings.Fields(f.Content), " ")
		words = append(words, "`"+text+"`")
	}
	return strings.ReplaceAll(strings.Join(words, ", "), "|", "\\|")
}

// live returns the programs whose presets are tried.
func live() (list []program) {
	for _, c := range programs() {
		if c.presets {
			list = append(list, c)
		}
	}
	return list
}

// TestPresetsHold lets the model do everything that the table names, in each program, mode and preset: what
// the preset asks about happens only after a yes, what it refuses does not happen, and the rest happens unasked.
// The short form tries one mode.
func TestPresetsHold(t *testing.T) {
	bin, _ := commands(t)
	binary := built.Junctor(t)
	for _, c := range live() {
		t.Run(c.name, func(t *testing.T) {
			short := os.Getenv("TASK_AGENTS_SHORT") != ""
			if _, err := os.Stat(filepath.Join(bin, c.binary)); err != nil || short && c.slow {
				t.Skipf("%s is not installed, or the short form; run: make test-agents", c.name)
			}
			r := &run{program: c, plane: newPlane(t, binary, c.files)}
			var list []*trial
			script := scriptedmodel.Script{}
			for _, mode := range []string{"structured", "pty"} {
				if mode == "pty" && (c.once != "" || short) {
					continue
				}
				for _, p := range presetNames {
					list = append(list, r.trial(t, mode, p, script))
				}
			}
			var err error
			r.fake, err = scriptedmodel.Start(script)
			ok(t, err)
			t.Cleanup(r.fake.Close)
			for _, one := range list {
				t.Run(string(one.preset)+", "+one.mode, func(t *testing.T) {
					if !c.slow && one.mode == "structured" {
						t.Parallel()
					}
					one.hold(t)
				})
			}
		})
	}
}

// trial is a session of a program in which the model does everything.
type trial struct {
	*run
	mode   string
	preset coding.Preset
	dir    string
	done   map[string]func() bool // by the name of a use: whether it has happened
}

func (r *run) trial(t *testing.T, mode string, p coding.Preset, script scriptedmodel.Script) *trial {
	name := string(p) + "-" + mode
	x := &trial{run: r, mode: mode, preset: p, dir: r.workspace(t, name), done: make(map[string]func() bool)}
	beside := r.workspace(t, name+"-beside")
	note, sub := filepath.Join(x.dir, "note.txt"), filepath.Join(x.dir, "sub")
	ok(t, os.WriteFile(note, []byte("the words of "+name), 0o600))
	ok(t, os.Mkdir(sub, 0o700))
	ok(t, os.WriteFile(filepath.Join(sub, "listed-"+name), nil, 0o600))
	net, reached := listener(t)
	web, fetched := listener(t)
	file := func(dir, name string) func() bool {
		return func() bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	}
	said := func(use string, marks ...string) func() bool {
		return func() bool {
			return slices.ContainsFunc(r.fake.Asked(x.play(use)), func(a scriptedmodel.Asked) bool {
				_, turn, _ := strings.Cut(a.Text, x.play(use))
				return slices.ContainsFunc(marks, func(m string) bool { return strings.Contains(turn, m) })
			})
		}
	}
	call := func(args map[string]any, names ...string) scriptedmodel.Step {
		return scriptedmodel.Step{Call: &scriptedmodel.Call{Names: names, Args: args, Namespace: "mcp__junctor"}}
	}
	add := func(use string, s scriptedmodel.Step, done func() bool) {
		script[x.play(use)], x.done[use] = []scriptedmodel.Step{s, {Say: "So be it."}}, done
	}

	read := call(map[string]any{map[string]string{"opencode": "filePath"}[r.name]: note, "file_path": note}, "Read", "read_file", "read")
	delete(read.Call.Args, "")
	if r.name == "codex" { // it reads by commands
		read = scriptedmodel.Step{Run: "cat " + note}
	}
	add("read", read, said("read", "the words of "+name))
	add("ls", scriptedmodel.Step{Run: "ls " + sub}, said("ls", "listed-"+name))
	patch := func(dir, name string) scriptedmodel.Step {
		return scriptedmodel.Step{Patch: &scriptedmodel.File{Path: filepath.Join(dir, name), Text: "x"}}
	}
	add("write", patch(x.dir, "written.txt"), file(x.dir, "written.txt"))
	add("run", scriptedmodel.Step{Run: "echo ran > " + filepath.Join(x.dir, "ran.txt") + " && ls"}, file(x.dir, "ran.txt"))
	add("outside", patch(beside, "file.txt"), file(beside, "file.txt"))
	add("into", scriptedmodel.Step{Run: "echo x > " + filepath.Join(beside, "into.txt")}, file(beside, "into.txt"))
	add("script", scriptedmodel.Step{Run: `awk 'BEGIN { print > "` + filepath.Join(beside, "script.txt") + `" }'`}, file(beside, "script.txt"))
	add("net", scriptedmodel.Step{Run: "curl -s -m 5 http://" + net + "/"}, reached)
	address := "http://" + web + "/"
	args := map[string]any{"url": address, "prompt": "Read " + address}
	if r.name == "opencode" {
		args = map[string]any{"url": address, "format": "text"}
	}
	// Claude Code and Gemini CLI refuse addresses of this machine, after the permission.
	fetch, attempted := call(args, "WebFetch", "web_fetch", "webfetch"), said("web", "Unable to verify if domain", "[Blocked Host]")
	add("web", fetch, func() bool {
		if r.name == "codex" { // its provider searches, unasked
			return slices.ContainsFunc(r.fake.Asked(x.play("web")), func(a scriptedmodel.Asked) bool {
				return slices.Contains(a.Tools, "web_search")
			})
		}
		return fetched() || attempted()
	})
	add("mcp", call(map[string]any{}, "session_status", "mcp__junctor__session_status", "mcp_junctor_session_status",
		"junctor_session_status"),
		said("mcp", "task:pty-"))
	helper := "PLAY-HELPER-" + name + "."
	script[helper] = []scriptedmodel.Step{{Say: "I am another."}}
	agent := call(map[string]any{
		"description": "help", "prompt": helper, "agent_name": "generalist",
		"subagent_type": map[string]string{"claude": "general-purpose", "opencode": "general"}[r.name],
	}, "Agent", "task", "invoke_agent")
	if r.name == "codex" {
		agent.Call = &scriptedmodel.Call{Names: []string{"spawn_agent"}, Namespace: "multi_agent_v1", Args: map[string]any{"message": helper}}
	}
	add("agent", agent, func() bool { return len(r.fake.Asked(helper)) > 0 })
	add("question", decisionPlays(r.name, x.dir)[playOneQuestion][0], said("question", "Pears"))
	return x
}

func (x *trial) play(use string) string {
	return "PLAY-" + use + "-" + string(x.preset) + "-" + x.mode + "."
}

// finished reports whether the model has ended the turn of a use.
func (x *trial) finished(u use) bool {
	return slices.ContainsFunc(x.fake.Asked(x.play(u.name)), func(a scriptedmodel.Asked) bool { return a.Tool == "" })
}

// listener returns an address on loopback, and whether someone has connected.
func listener(t *testing.T) (addr string, reached func() bool) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	ok(t, err)
	t.Cleanup(func() { _ = l.Close() })
	var some atomic.Bool
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			some.Store(true)
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"))
			_ = c.Close()
		}
	}()
	return l.Addr().String(), some.Load
}

func (x *trial) hold(t *testing.T) {
	var s session
	turn := 0
	for _, u := range uses() {
		want, why := expected(x.name, x.mode, x.preset, u)
		if want == missing {
			continue
		}
		turn++
		task := "Do it. " + x.play(u.name)
		if s.ID == "" {
			s = x.spawnIn(t, x.mode, string(x.preset), x.dir, task, "")
		} else {
			x.post(t, s.ID, "send", map[string]any{"input": task})
		}
		var got outcome
		s, got = x.outcome(t, s, turn, u, want)
		if got != want && (want != mayFail || got != asks && got != fails) {
			t.Errorf("an agent that %s: %s, want %s; the exception: %+v; %s\n%s", u.title, got, want, why, s.Blocker, x.picture(t, s.ID))
		}
	}
	x.stop(t, s.ID)
}

// outcome waits for the end of the turn, and answers with yes.
func (x *trial) outcome(t *testing.T, s session, turn int, u use, want outcome) (session, outcome) {
	answered := ""
	for {
		s = x.until(t, s.ID, "it "+u.title, func(s session) bool {
			over := x.finished(u) && s.CompletedTurns >= turn && s.Status == "ready" || s.Status == "error" || strings.HasPrefix(s.Phase, "failed:")
			// On a slow machine a program draws its dialog while its hook is asked; the answer takes it away.
			drawn := s.Status == "blocked" && s.Blocker.Source == "screen" && want != asks && want != mayFail
			open := s.Status == "blocked" && (s.Blocker.Type == "permission" || s.Blocker.Type == "question") && len(s.Blocker.Options) > 0
			return over || open && !drawn && s.Blocker.ID != answered
		})
		if s.Status != "blocked" {
			break
		}
		if answered == "" && x.done[u.name]() {
			t.Errorf("an agent that %s: it had happened before the answer to %s, want it after", u.title, s.Blocker)
		}
		if kind := map[bool]string{true: "question", false: "permission"}[u.name == "question"]; s.Blocker.Type != kind {
			t.Errorf("an agent that %s: the user is asked for a %s, want a %s: %s", u.title, s.Blocker.Type, kind, s.Blocker)
		}
		answered = s.Blocker.ID
		answer := map[bool]string{true: "Pears", false: "yes"}[s.Blocker.Type == "question"]
		if s.Blocker.Type == "permission" && s.Blocker.Source != "protocol" { // the first option allows once
			answer = "1"
		}
		x.post(t, s.ID, "answer", map[string]any{"blocker": answered, "answer": answer})
	}
	switch done := x.done[u.name](); {
	case s.Phase != "done":
		return s, outcome("the turn ended with " + s.Phase)
	case answered != "" && done:
		return s, asks
	case answered != "":
		return s, fails
	case done:
		return s, runs
	}
	return s, refused
}

// TestARunThatWasRefusedIsNotDone lets OpenCode, which refuses by itself in a terminal what it would
// have to ask about, write with a preset that asks.
func TestARunThatWasRefusedIsNotDone(t *testing.T) {
	bin, _ := commands(t)
	if _, err := os.Stat(filepath.Join(bin, "opencode")); err != nil {
		t.Skip("opencode is not installed; run: make test-agents")
	}
	for _, c := range programs() {
		if c.name != "opencode" {
			continue
		}
		r := &run{program: c, plane: newPlane(t, built.Junctor(t), c.files)}
		dir := r.workspace(t, "refused")
		var err error
		r.fake, err = scriptedmodel.Start(scriptedmodel.Script{
			"PLAY-REFUSED-RUN": {{Run: "echo ran > " + filepath.Join(dir, "ran.txt")}, {Say: "So be it."}},
		})
		ok(t, err)
		t.Cleanup(r.fake.Close)
		s := r.spawn(t, "standard", dir, "Run. PLAY-REFUSED-RUN", "")
		s = r.until(t, s.ID, "it is over", func(s session) bool { return s.Status == "stopped" || s.Status == "error" })
		if s.CompletedTurns != 0 || s.Phase != "failed:permission_refused" {
			t.Errorf("the session is %+v, want phase failed:permission_refused and no completed turn\n%s", s, r.picture(t, s.ID))
		}
		holds(t, dir)
	}
}

// TestGeminiAsksAboutNoCommandAtAutonomous: with this preset Gemini CLI nevertheless asks about commands that build, once
// it has changed a file that tells how. The preset answers, unless the command writes outside of the folder.
func TestGeminiAsksAboutNoCommandAtAutonomous(t *testing.T) {
	bin, _ := commands(t)
	i := slices.IndexFunc(programs(), func(c program) bool { return c.name == "gemini" })
	c := programs()[i]
	if _, err := os.Stat(filepath.Join(bin, c.binary)); err != nil || os.Getenv("TASK_AGENTS_SHORT") != "" {
		t.Skip("Gemini CLI is not installed, or the short form; run: make test-agents")
	}
	r := &run{program: c, plane: newPlane(t, built.Junctor(t), c.files)}
	dir, beside := r.workspace(t, "work"), r.workspace(t, "beside")
	var err error
	r.fake, err = scriptedmodel.Start(scriptedmodel.Script{"PLAY-BUILD": {
		{Write: &scriptedmodel.File{Path: filepath.Join(dir, "Makefile"), Text: "all:\n\t@echo made\n"}},
		{Run: "make > made.txt 2>&1 && cat < made.txt >> copy.txt"},
		{Run: "make > " + filepath.Join(beside, "made.txt")},
		{Say: "It is made."},
	}})
	ok(t, err)
	t.Cleanup(r.fake.Close)
	s := r.spawnIn(t, "structured", "autonomous", dir, "Build. PLAY-BUILD", "")
	s = r.until(t, s.ID, "it is done, or asks", func(s session) bool {
		return s.CompletedTurns > 0 || s.Status == "blocked" || s.Status == "error"
	})
	if s.CompletedTurns != 1 {
		t.Errorf("the session is %+v with blocker %s, want the turn done without a question\n%s", s, s.Blocker, r.picture(t, s.ID))
	}
	holds(t, dir, "Makefile", "copy.txt", "made.txt")
	holds(t, beside)
	r.stop(t, s.ID)
}
