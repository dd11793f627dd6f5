package clis

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/platform/scriptedmodel"
	"github.com/junctor-run/junctor/internal/testkit/built"
)

// cell is a behaviour that every program has in both modes, unless the program cannot.
type cell struct {
	name  string
	modes string // a word for each: one in capitals is tried in the short form, too
	hold  func(c *conversation, t *testing.T)
}

// part is a session, and the cells that it goes through.
type part struct {
	name, preset string
	cells        []cell
}

// contract returns the suite. The session of a part begins with its first cell.
func contract() []part {
	return []part{
		{"work", "autonomous", []cell{
			{"a task", "STRUCTURED PTY", (*conversation).task},
			{"a message", "STRUCTURED PTY", (*conversation).message},
			{"interrupted, then sent", "STRUCTURED PTY", (*conversation).interruptedThenSent},
			{"a file outside", "structured PTY", (*conversation).outside},
			{"5 MB of output", "STRUCTURED pty", (*conversation).big},
			{"a question", "STRUCTURED PTY", (*conversation).question},
			{"a form", "STRUCTURED PTY", (*conversation).form},
			{"a draft of a person, then sent", "pty", (*conversation).drafts},
			{"another size while it works", "pty", (*conversation).resized},
			{"a command would open an editor", "structured pty", (*conversation).edits},
			{"it is resumed", "STRUCTURED PTY", (*conversation).resumed},
			{"429", "STRUCTURED pty", (*conversation).retried},
			{"the connection is cut", "STRUCTURED pty", (*conversation).cut},
		}},
		{"asked", "standard", []cell{
			{"allowed by label", "STRUCTURED PTY", func(c *conversation, t *testing.T) { c.permission(t, "PLAY-ALLOW-LABEL", "once", false) }},
			{"denied by label", "structured pty", func(c *conversation, t *testing.T) { c.permission(t, "PLAY-DENY-LABEL", "deny", false) }},
			{"allowed by number", "structured pty", func(c *conversation, t *testing.T) { c.permission(t, "PLAY-ALLOW-NUMBER", "once", true) }},
			{"denied by number", "STRUCTURED PTY", func(c *conversation, t *testing.T) { c.permission(t, "PLAY-DENY-NUMBER", "deny", true) }},
		}},
		{"first", "autonomous", []cell{{"its first turn is interrupted", "structured PTY", (*conversation).interruptedThenSent}}},
		{"read", "readonly", []cell{{"it may only read", "structured pty", (*conversation).reads}}},
		{"auth", "autonomous", []cell{
			{"the key is refused", "structured pty", func(c *conversation, t *testing.T) { c.fails(t, scriptedmodel.Auth) }},
		}},
		{"billing", "autonomous", []cell{
			{"no money is left", "structured pty", func(c *conversation, t *testing.T) { c.fails(t, scriptedmodel.Billing) }},
		}},
		{"plan", "autonomous", []cell{{"a plan", "STRUCTURED PTY", (*conversation).plan}}},
		{"killed", "standard", []cell{{"the server is killed while it asks", "STRUCTURED pty", (*conversation).killed}}},
	}
}

// cannot returns why the program has no such cell in a mode, or "".
func (p program) cannot(what, mode string) string {
	if mode == "pty" && p.once != "" && !slices.Contains([]string{"a task", "usage", "it may only read", "the key is refused"}, what) {
		return p.once
	}
	return p.not[what] + p.not[what+", "+mode]
}

// tried reports whether a cell is tried. In the short form, those of slow programs are about decisions in structured mode.
func (c cell) tried(p program, mode string) bool {
	if os.Getenv("TASK_AGENTS_SHORT") == "" {
		return strings.Contains(strings.ToLower(c.modes), mode)
	}
	asks := c.name == "a question" || c.name == "a form"
	return strings.Contains(c.modes, strings.ToUpper(mode)) && (mode == "pty" || !p.slow || asks) && !slices.Contains(p.long, c.name)
}

// TestContract holds each program to the same behaviour in both modes: the state is the one of the program, the
// model receives what was sent, nothing runs unasked, and the user's files stay as they are.
func TestContract(t *testing.T) {
	bin, _ := commands(t)
	binary := built.Junctor(t)
	for _, c := range programs() {
		for _, mode := range []string{"pty", "structured"} {
			t.Run(c.name+", "+mode, func(t *testing.T) {
				if _, err := os.Stat(filepath.Join(bin, c.binary)); err != nil || c.not[mode] != "" {
					t.Skipf("%s is not installed, or %s; run: make test-agents", c.name, c.not[mode])
				}
				if mode == "structured" && !c.slow {
					t.Parallel()
				}
				r := &run{program: c, plane: newPlane(t, binary, c.files)}
				var err error
				r.fake, err = scriptedmodel.Start(plays(c.name, filepath.Join(r.home, "workspaces")))
				ok(t, err)
				t.Cleanup(r.fake.Close)
				for _, p := range contract() {
					(&conversation{run: r, mode: mode, preset: p.preset}).hold(t, p)
				}
				r.userFiles(t)
			})
		}
	}
}

// conversation is a session of a program in one of the modes.
type conversation struct {
	*run
	mode, preset, dir string
	id                string // "" before the first text
	token             string // of the conversation that the session continues, or ""
	turns             int    // completed ones before the last text
	play              string // of that text
	requests          int    // of the play, before it
}

func (c *conversation) hold(t *testing.T, p part) {
	c.dir = filepath.Join(c.home, "workspaces", p.name)
	for _, one := range p.cells {
		if !one.tried(c.program, c.mode) {
			continue
		}
		t.Run(one.name, func(t *testing.T) {
			if why := c.cannot(one.name, c.mode); why != "" {
				t.Skip(why)
			}
			ok(t, os.MkdirAll(c.dir, 0o700))
			one.hold(c, t)
		})
	}
	if c.id != "" {
		c.stop(t, c.id)
	}
}

// send sends a text. It is the task of a new session if the conversation has not begun.
func (c *conversation) send(t *testing.T, text string) {
	t.Helper()
	c.play = text[strings.LastIndex(text, "PLAY-"):]
	c.requests = len(c.fake.Asked(c.play))
	if c.id == "" {
		c.turns, c.id = 0, c.spawnIn(t, c.mode, c.preset, c.dir, text, c.token).ID
		return
	}
	c.turns = c.shown(t, c.id).CompletedTurns
	c.post(t, c.id, "send", map[string]any{"input": text})
}

// done waits for the end of the turn. On a slow machine, Gemini CLI in a terminal looks as if it worked again while its hooks
// run at the end of a turn, so that one may count twice.
func (c *conversation) done(t *testing.T) session {
	t.Helper()
	return c.until(t, c.id, "the turn is done", func(s session) bool {
		if s.Status == "error" || s.Status != "busy" && strings.HasPrefix(s.Phase, "failed:") {
			t.Fatalf("the session is %+v, want the turn done\n%s", s, c.picture(t, c.id))
		}
		return s.CompletedTurns > c.turns && s.Status != "busy" && len(c.fake.Asked(c.play)) > c.requests
	})
}

// received returns the requests of a play, of which there must be n.
func (c *conversation) received(t *testing.T, play string, n int) []scriptedmodel.Asked {
	t.Helper()
	asked := c.fake.Asked(play)
	if len(asked) != n {
		t.Fatalf("the model was asked %d times in %s, want %d: %q", len(asked), play, n, lasts(asked))
	}
	return asked
}

// cjk are lines with wide characters, a combining one, and one beyond the first plane.
const cjk = "第一行：你好，世界\n二行目：こんにちは「世界」\n셋째 줄: 안녕하세요 e\u0301 🦀\n"

const decision = "DECISION: the greeting is in hello.txt because the task asked for a file."

// plays are what the model does in the cells. Their names are in the texts.
func plays(name, workspaces string) scriptedmodel.Script {
	file := func(path, text string) *scriptedmodel.File {
		return &scriptedmodel.File{Path: filepath.Join(workspaces, path), Text: text}
	}
	asks := func(name string) []scriptedmodel.Step {
		return []scriptedmodel.Step{{Run: "touch " + filepath.Join(workspaces, "asked", name), Leave: true}, {Say: "So be it."}}
	}
	script := scriptedmodel.Script{
		"PLAY-TASK":         {{Write: file("work/hello.txt", "hello")}, {Say: "The file is there.\n\n" + decision}},
		"PLAY-AGAIN":        {{Say: "Again."}},
		"PLAY-STUCK":        {{Slow: time.Minute, Say: "At last."}},
		"PLAY-AFTER":        {{Say: "Now that."}},
		"PLAY-OUTSIDE":      {{Write: file("other/outside.txt", "hello")}, {Say: "So be it."}},
		"PLAY-BUSY-429":     {{Fail: scriptedmodel.RateLimit, Times: 1}, {Say: "At last."}},
		"PLAY-CUT":          {{Fail: scriptedmodel.Cut}},
		"PLAY-RESUME":       {{Say: "I remember."}},
		"PLAY-auth":         {{Fail: scriptedmodel.Auth}},
		"PLAY-billing":      {{Fail: scriptedmodel.Billing}},
		"PLAY-READ":         {{Write: file("read/denied.txt", "hello")}, {Say: "So be it."}},
		"PLAY-ALLOW-LABEL":  {{Write: file("asked/PLAY-ALLOW-LABEL", "hello"), Leave: true}, {Say: "Thank you."}},
		"PLAY-ALLOW-NUMBER": asks("PLAY-ALLOW-NUMBER"),
		"PLAY-DENY-LABEL":   {{Write: file("asked/PLAY-DENY-LABEL", "hello"), Leave: true}, {Say: "A pity."}},
		"PLAY-DENY-NUMBER":  asks("PLAY-DENY-NUMBER"),
		"PLAY-KILL":         {{Run: "touch " + filepath.Join(workspaces, "killed", "ran.txt"), Leave: true}, {Say: "So be it."}},
		"PLAY-BIG-OUTPUT": {
			{Run: "head -c 5242880 /dev/zero | tr '\\0' x; echo; echo done > " + filepath.Join(workspaces, "work", "big.txt")},
			{Say: "It was long."},
		},
		playMine:   {{Say: "That was yours."}},
		playTheirs: {{Say: "That was theirs."}},
		playSizes:  {{Slow: 3 * time.Second, Say: "It fits."}},
		playEditor: {
			{Run: "git init -q . && git -c user.name=a -c user.email=a@example.org commit --allow-empty; echo over > " +
				filepath.Join(workspaces, "work", "over.txt")},
			{Say: "No editor."},
		},
	}
	maps.Copy(script, decisionPlays(name, workspaces))
	return script
}

func lasts(asked []scriptedmodel.Asked) (texts []string) {
	for _, a := range asked {
		texts = append(texts, a.Last)
	}
	return texts
}

// task: the model receives the task as it was sent, and what it did and used is known.
func (c *conversation) task(t *testing.T) {
	c.send(t, cjk+"Write a greeting. PLAY-TASK")
	if s := c.done(t); s.CompletedTurns != 1 {
		t.Errorf("the session has %d completed turns, want 1", s.CompletedTurns)
	}
	if asked := c.received(t, "PLAY-TASK", 2); !strings.Contains(asked[0].Last, cjk+"Write a greeting. PLAY-TASK") {
		t.Errorf("the model received %q, want the task as it was sent", asked[0].Last)
	}
	if data, err := os.ReadFile(filepath.Join(c.dir, "hello.txt")); err != nil || string(data) != "hello" {
		t.Errorf("hello.txt = %q, %v, want hello", data, err)
	}
	holds(t, c.dir, "hello.txt")
	// Decisions are read from the turn's text after its end was seen.
	s := c.until(t, c.id, "its decision is noted", func(s session) bool { return len(s.Decisions) > 0 })
	if len(s.Decisions) != 1 || !strings.HasPrefix(s.Decisions[0], "the greeting is in hello.txt") {
		t.Errorf("decisions = %q, want the one of the task", s.Decisions)
	}
	if c.cannot("usage", c.mode) == "" { // the model reports at least one token each way for each of its two answers
		c.until(t, c.id, "its usage is known", func(s session) bool { return s.Usage.InputTokens >= 2 && s.Usage.OutputTokens >= 2 })
	}
	if c.cannot("a message", c.mode) != "" {
		c.gone(t, c.id)
		c.id = ""
	}
}

func (c *conversation) message(t *testing.T) {
	c.send(t, "再一次。\n"+cjk+"PLAY-AGAIN")
	c.done(t)
	if asked := c.received(t, "PLAY-AGAIN", 1); !strings.Contains(asked[0].Last, "再一次。\n"+cjk+"PLAY-AGAIN") {
		t.Errorf("the model received %q, want the message as it was sent", asked[0].Last)
	}
}

// interruptedThenSent: the interrupted text is not sent again, nor joined with the next one, and its turn is not done.
// Claude Code restores a task in its input box.
func (c *conversation) interruptedThenSent(t *testing.T) {
	before := len(c.fake.Asked("PLAY-STUCK"))
	c.send(t, "Take your time. PLAY-STUCK")
	c.until(t, c.id, "the model is asked", func(s session) bool { return s.Status == "busy" && len(c.fake.Asked("PLAY-STUCK")) > before })
	c.post(t, c.id, "send", map[string]any{"keys": []string{"escape"}})
	if s := c.until(t, c.id, "it stops", func(s session) bool { return s.Status == "ready" }); s.CompletedTurns != c.turns {
		t.Errorf("the session is %+v, want %d completed turns\n%s", s, c.turns, c.picture(t, c.id))
	}
	before = len(c.fake.Asked("PLAY-AFTER"))
	c.send(t, "Now this. PLAY-AFTER")
	c.done(t)
	if asked := c.received(t, "PLAY-AFTER", before+1); strings.Contains(asked[before].Last, "PLAY-STUCK") {
		t.Errorf("the model received %q, want the text alone", asked[before].Last)
	}
}

func (c *conversation) outside(t *testing.T) {
	other := c.workspace(t, "other")
	c.send(t, "PLAY-OUTSIDE")
	c.done(t)
	holds(t, other)
	if c.checksPaths || c.mode == "structured" {
		return
	}
	if _, answer := c.request(t, "GET", "/api/v1/audit?event=agent_permission", nil); !strings.Contains(answer, `"verdict":"deny"`) {
		t.Errorf("the records are %s, want one of a hook that has refused it", answer)
	}
}

// big: a command that prints 5 MB runs to its end. If it is too much for the program, the user reads why.
func (c *conversation) big(t *testing.T) {
	c.send(t, "Print. PLAY-BIG-OUTPUT")
	if over := c.bigOver[c.mode]; over != "" {
		s := c.until(t, c.id, "its turn ends", func(s session) bool {
			return s.Status == "ready" && s.Phase != "interrupted" && s.Phase != "done"
		})
		if got := c.picture(t, c.id); s.Phase != "failed:limit" || !strings.Contains(got, over) {
			t.Errorf("the session is %+v\n%s\nwant failed:limit and the reason %s", s, got, over)
		}
	} else {
		c.done(t)
	}
	if data, err := os.ReadFile(filepath.Join(c.dir, "big.txt")); err != nil || string(data) != "done\n" {
		t.Errorf("big.txt = %q, %v, want the command run to its end", data, err)
	}
}

// retried: the provider refuses once, the program asks again, and the turn is done.
func (c *conversation) retried(t *testing.T) {
	c.send(t, "Try. PLAY-BUSY-429")
	s := c.until(t, c.id, "it is done, or has failed", func(s session) bool {
		return s.Status == "ready" && (s.CompletedTurns > c.turns || strings.HasPrefix(s.Phase, "failed:"))
	})
	if asked := c.fake.Asked("PLAY-BUSY-429"); s.CompletedTurns != c.turns+1 || len(asked) < 2 {
		t.Errorf("the session is %+v after %d requests, want the turn done after a retry\n%s", s, len(asked), c.picture(t, c.id))
	}
}

// cut: the provider hangs up in the middle of every answer.
func (c *conversation) cut(t *testing.T) {
	c.send(t, "Try. PLAY-CUT")
	c.failed(t, "failed:")
}

// fails: a failure of the provider has its own kind.
func (c *conversation) fails(t *testing.T, kind scriptedmodel.Failure) {
	c.send(t, "Fail. PLAY-"+string(kind))
	c.failed(t, "failed:"+string(kind))
}

// failed waits for the end of a turn that does not count as done.
func (c *conversation) failed(t *testing.T, phase string) {
	t.Helper()
	s := c.until(t, c.id, "it has failed", func(s session) bool {
		return strings.HasPrefix(s.Phase, "failed:") || s.CompletedTurns > c.turns || s.Status == "error"
	})
	if !strings.HasPrefix(s.Phase, phase) || s.CompletedTurns != c.turns {
		t.Errorf("the session is %+v, want the phase %s and %d completed turns\n%s", s, phase, c.turns, c.picture(t, c.id))
	}
}

// resumed: another session has the whole conversation, and its own usage.
func (c *conversation) resumed(t *testing.T) {
	c.stop(t, c.id)
	earlier := c.shown(t, c.id)
	if earlier.ResumeToken == "" {
		t.Fatalf("the session is %+v, want a token by which it is resumed", earlier)
	}
	c.id, c.token = "", earlier.ResumeToken
	c.send(t, "Do you remember? PLAY-RESUME")
	s := c.done(t)
	if asked := c.received(t, "PLAY-RESUME", 1); !strings.Contains(asked[0].Text, "PLAY-TASK") || !strings.Contains(asked[0].Text, decision) {
		t.Errorf("the model received %s, want the conversation so far\n%s", asked[0].Text, c.picture(t, s.ID))
	}
	if c.mode == "structured" && (s.Usage.InputTokens >= earlier.Usage.InputTokens || s.Usage.InputTokens == 0) {
		t.Errorf("usage after one answer in the resumed conversation = %+v, want less than the %+v before", s.Usage, earlier.Usage)
	}
}

// permission: what the preset asks about blocks the session. It is answered by the label or the number of the option with
// an effect: a label as a person chooses it, a number as agents and chats do.
func (c *conversation) permission(t *testing.T, play, effect string, number bool) {
	c.send(t, "Ask me. "+play)
	s := c.asked(t, "permission")
	name := filepath.Join(c.dir, play)
	if _, err := os.Stat(name); err == nil {
		t.Errorf("%s is there before the answer, want it after", name)
	}
	i := slices.IndexFunc(s.Blocker.Choices, func(o choice) bool { return o.Effect == effect })
	if i < 0 {
		t.Fatalf("the blocker is %s, want an option with the effect %s", s.Blocker, effect)
	}
	chosen := s.Blocker.Choices[i]
	third := c.three != "" && c.mode == "pty" && play == "PLAY-DENY-NUMBER"
	if third && (chosen.N != 3 || !strings.HasPrefix(chosen.Label, c.three)) {
		t.Errorf("the option that denies is %+v, want the third, %s", chosen, c.three)
	}
	if number {
		status, answer := c.request(t, "POST", "/api/v1/invocations", map[string]any{
			"target": "SEND_TO_AGENT", "input": map[string]any{"sessionId": c.id, "input": strconv.Itoa(chosen.N)},
		})
		if status != http.StatusOK || !strings.Contains(answer, chosen.Label) {
			t.Errorf("the answer %d: %d %s, want %s chosen", chosen.N, status, answer, chosen.Label)
		}
	} else {
		c.post(t, c.id, "choose", map[string]any{"label": chosen.Label})
	}
	if effect != "deny" {
		c.done(t)
	} else { // it goes on, or waits
		c.until(t, c.id, "its turn is over", func(s session) bool {
			return s.Status == "ready" && (s.CompletedTurns > c.turns || s.Phase == "interrupted")
		})
	}
	if _, err := os.Stat(name); (err == nil) != (effect != "deny") {
		t.Errorf("%s after the answer %q: %v, want it there only if that allows it", name, chosen.Label, err)
	}
}

func (c *conversation) reads(t *testing.T) {
	c.send(t, "Write all the same. PLAY-READ")
	c.done(t)
	holds(t, c.dir)
}

// killed: nothing has run, no process is left, and the blocker that was open has ended.
func (c *conversation) killed(t *testing.T) {
	c.send(t, "Ask me. PLAY-KILL")
	s := c.asked(t, "permission")
	c.approval(t, s.Blocker.ID, "pending")
	c.restart(t)
	c.approval(t, s.Blocker.ID, "ended")
	c.noProcess(t, s.ID)
	holds(t, c.dir)
	c.id = ""
}
