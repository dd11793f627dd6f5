package detect

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/term"
)

// session is a detector with a screen and a clock that is moved by hand.
type session struct {
	*Detector
	screen *term.Screen
	now    time.Time
	said   []string
}

func start(t testing.TB, name programs.Name) *session {
	t.Helper()
	files, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	file, _, err := Pick(files, name, "")
	if err != nil {
		t.Fatal(err)
	}
	return begin(file)
}

func begin(file *File) *session {
	s := &session{screen: term.New(100, 30), now: time.Unix(1000, 0)}
	s.Detector = New(file, "", s.screen)
	s.screen.OSC = func(n int, data string) { s.OSC(s.now, n, data) }
	s.record(s.Start(s.now))
	return s
}

func (s *session) record(changes []Change) {
	for _, c := range changes {
		s.said = append(s.said, c.To.Word())
	}
}

// after lets time pass.
func (s *session) after(d time.Duration) *session {
	end := s.now.Add(d)
	for {
		next, ok := s.Next()
		if !ok || next.After(end) {
			break
		}
		s.now = next
		s.record(s.Tick(s.now))
	}
	s.now = end
	return s
}

func (s *session) print(text string) *session {
	_, _ = s.screen.Write([]byte(strings.ReplaceAll(text, "\n", "\r\n")))
	s.Output(s.now)
	return s
}

// show draws a whole screen.
func (s *session) show(text string) *session { return s.print("\x1b[H\x1b[2J" + text) }

func (s *session) typed(text string) *session {
	s.Input(s.now, []byte(text))
	return s
}

func (s *session) fact(f Fact) *session {
	s.Fact(s.now, f)
	return s
}

func (s *session) expect(t *testing.T, words ...string) {
	t.Helper()
	if !slices.Equal(s.said, words) {
		t.Errorf("said %q, want %q", s.said, words)
	}
}

const (
	settleTimeout = 10 * time.Second
	busy          = "\x1b]0;⠂ Claude Code\a"
	idle          = "\x1b]0;✳ Claude Code\a"
	ask           = "● Write(a)\n\nDo you want to create a?\n ❯ 1. Yes\n   2. No\n\n Esc to cancel · Tab to amend"
)

// claude is the screen of Claude Code with a transcript above an empty input box.
func claude(above string) string {
	rule := strings.Repeat("─", 60)
	return above + "\n" + rule + "\n❯ \n" + rule + "\n  ? for shortcuts"
}

// ready is a session whose program waits for its first task.
func ready(t testing.TB) *session {
	s := start(t, programs.Claude)
	return s.print("\x1b[?2004h" + idle).show(claude("Welcome")).after(settleTimeout)
}

// atWork is one whose program works on it.
func atWork(t testing.TB) *session {
	s := ready(t).typed("\x1b[200~do it\x1b[201~").typed("\r")
	return s.print(busy).show(claude("❯ do it\n✽ Baking… (1s)")).after(settleTimeout)
}

func TestATurn(t *testing.T) {
	t.Parallel()
	s := atWork(t)
	s.print(idle).show(claude("❯ do it\n● Done.\n✻ Baked for 3s")).after(settleTimeout).expect(t, "starting", "ready", "busy", "done")
}

func TestProseDoesNotBlock(t *testing.T) {
	t.Parallel()
	for _, prose := range []string{
		"● Would you like to continue? If yes, press Enter to confirm.",
		"● Do you want to proceed?\n  1. Yes\n  2. No",
		"● Type this:\n  ❯ 1. Yes\n    2. No\n  Esc to cancel · Enter to confirm",
		"❯ 1. first thing\n  2. second thing",
		"● Paste code here if prompted. Not logged in · Please run /login is what it prints.",
		"● API Error handling is what I changed, and credit balance too low is a text in it.",
		"● Unable to connect to Anthropic services, says the log.",
		"● DECISION: shall I go on?\n  DECISION: the example in the fence",
	} {
		s := atWork(t)
		s.print(idle).show(claude("❯ do it\n" + prose + "\n✻ Baked for 3s")).after(settleTimeout)
		if s.said[len(s.said)-1] != "done" || len(s.said) != 4 {
			t.Errorf(`%s: %q; want s.said[len(s.said)-1] = "done", len(s.said) = 4`, prose, s.said)
		}
	}
}

func TestADialogBeatsWhatTheTitleSays(t *testing.T) {
	t.Parallel()
	s := atWork(t).print(idle).show(ask).after(settleTimeout)
	s.expect(t, "starting", "ready", "busy", "blocked:permission")
	if b := s.Status().Blocker; b.Prompt != "Do you want to create a?" || len(b.Options) != 2 || b.Selected != 0 {
		t.Errorf(`%+v; want b.Prompt = "Do you want to create a?", len(b.Options) = 2, b.Selected = 0`, b)
	}
}

func TestAnUnknownDialogBlocks(t *testing.T) {
	t.Parallel()
	s := ready(t).show("Fancy a new colour for the moon?\n ❯ 1. Green\n   2. Blue\n").after(settleTimeout)
	s.expect(t, "starting", "ready", "blocked:unknown")
	if b := s.Status().Blocker; b.Options[1] != "Blue" {
		t.Errorf(`%+v; want b.Options[1] = "Blue"`, b)
	}
	s.show(claude("Welcome")).after(settleTimeout).expect(t, "starting", "ready", "blocked:unknown", "ready")
}

func TestTheSameDialogDrawnAgainIsOne(t *testing.T) {
	t.Parallel()
	s := atWork(t).show(ask).after(settleTimeout)
	n := len(s.said)
	s.show("\n" + strings.Replace(strings.Replace(ask, "❯ 1", "  1", 1), "  2", "❯ 2", 1)).after(settleTimeout)
	if len(s.said) != n {
		t.Errorf("%q; want len(s.said) = %v", s.said, n)
	}
	s.show(strings.Replace(ask, "create a", "create another", 1)).after(settleTimeout)
	if len(s.said) != n+1 {
		t.Errorf("another question is another dialog: %q; want len(s.said) = n + 1", s.said)
	}
}

func TestAShortFlickerIsNotTold(t *testing.T) {
	t.Parallel()
	s := ready(t)
	s.show(ask).after(150*time.Millisecond).show(claude("Welcome")).after(settleTimeout).expect(t, "starting", "ready")
}

func TestTextThatEnterDidNotSubmit(t *testing.T) {
	t.Parallel()
	s := ready(t).typed("\x1b[200~one\ntwo\x1b[201~\r")
	s.show(strings.Replace(claude("Welcome"), "❯ ", "❯ [Pasted text #1 +1 lines]", 1)).after(settleTimeout).expect(t, "starting", "ready",
		"ready:unsubmitted")
	s.typed("\r").print(busy).show(claude("❯ one\n  two\n✽ Baking…")).after(settleTimeout).expect(t, "starting", "ready",
		"ready:unsubmitted", "busy")
}

func TestEscEndsATurnWithoutAHook(t *testing.T) {
	t.Parallel()
	s := atWork(t).fact(Fact{Class: 2, State: Busy, Source: "hook:PreToolUse"}).after(time.Second)
	s.typed("\x1b").print(idle).show(claude("Welcome")).after(settleTimeout)
	s.expect(t, "starting", "ready", "busy", "ready:interrupted")
}

// The process of a hook may be slow, so that the hook is reported after Esc.
func TestAHookReportedAfterEscDoesNotContinueTheTurn(t *testing.T) {
	t.Parallel()
	hook := Fact{Class: 2, State: Busy, Phase: PhaseThinking, Source: "hook:UserPromptSubmit"}
	ended := []string{"starting", "ready", "busy", "ready:interrupted"}
	stop := func() *session { return atWork(t).typed("\x1b").print(idle).show(claude("Welcome")) }
	stop().after(500*time.Millisecond).fact(hook).after(time.Minute).expect(t, ended...)
	stop().after(settleTimeout).fact(hook).after(time.Minute).expect(t, ended...)

	// A program may continue although Esc was pressed.
	s := stop().after(settleTimeout).fact(hook).print(busy).show(claude("❯ do it\n✽ Baking… (9s)")).after(settleTimeout)
	s.expect(t, append(ended, "busy")...)
	// The next text begins a turn, which a hook may report before the screen shows it.
	s = stop().after(settleTimeout).typed("again\r").after(time.Second).fact(hook).after(settleTimeout)
	s.expect(t, append(ended, "busy")...)
}

// A report of the end of a turn may arrive when the next one has begun, which the program reports first.
func TestAHookOfTheTurnBeforeDoesNotEndTheNext(t *testing.T) {
	t.Parallel()
	begun := Fact{Class: 2, State: Busy, Phase: PhaseThinking, Source: "hook:UserPromptSubmit", Begin: true}
	tool := Fact{Class: 2, State: Busy, Phase: PhaseThinking, Source: "hook:PostToolUse"}
	stop := Fact{Class: 2, State: Ready, Phase: PhaseDone, Source: "hook:Stop"}
	next := func(first bool) *session {
		s := atWork(t)
		if first {
			s.fact(begun).after(time.Second)
		}
		s.print(idle).show(claude("❯ do it\n✻ Baked for 3s")).after(settleTimeout)
		return s.typed("again\r").print(busy).show(claude("❯ do it\n✻ Baked for 3s\n❯ again\n✽ Baking… (1s)")).after(time.Second)
	}
	words := []string{"starting", "ready", "busy", "busy", "done", "busy", "busy"}
	s := next(true).fact(tool).after(time.Second).fact(stop).after(time.Second)
	s.expect(t, words...)
	s.fact(begun).after(time.Second).fact(stop).after(time.Second).expect(t, append(words, "done")...)

	// A program that does not report the begin of its turns.
	next(false).fact(stop).after(time.Second).expect(t, "starting", "ready", "busy", "done", "busy", "done")

	// The reports of the begin and of the end change places, or the second is lost.
	s = next(true).fact(stop).fact(begun).print(idle).show(claude("❯ again\n✻ Baked for 3s")).after(hookEndTimeout + settleTimeout)
	s.expect(t, append(words, "done")...)
}

// The line that the last turn ended with is still there when this one leaves nothing.
func TestEscBeforeTheFirstWord(t *testing.T) {
	t.Parallel()
	last := "❯ before\n● Done.\n✻ Baked for 3s"
	s := ready(t).typed("do it\r").print(busy).show(claude(last + "\n❯ do it\n✽ Baking… (1s)")).after(settleTimeout)
	s.typed("\x1b").print(idle).show(claude(last)).after(settleTimeout)
	s.expect(t, "starting", "ready", "busy", "ready:interrupted")
}

func TestHooks(t *testing.T) {
	t.Parallel()
	stop := Fact{Class: 2, State: Ready, Phase: PhaseDone, Source: "hook:Stop", Text: "it is done"}
	t.Run("hold at once", func(t *testing.T) {
		t.Parallel()
		atWork(t).fact(stop).after(time.Millisecond).expect(t, "starting", "ready", "busy")
		atWork(t).fact(stop).after(60*time.Millisecond).expect(t, "starting", "ready", "busy", "done")
	})
	t.Run("yield to a dialog", func(t *testing.T) {
		t.Parallel()
		atWork(t).show(ask).after(settleTimeout).fact(stop).after(settleTimeout).expect(t, "starting", "ready", "busy", "blocked:permission")
	})
	t.Run("yield to what is two seconds newer", func(t *testing.T) {
		t.Parallel()
		s := atWork(t).fact(stop).after(3 * time.Second)
		s.print(strings.Replace(busy, "⠂", "⠐", 1)).after(settleTimeout)
		// The title was busy all the time; nothing newer contradicts the hook.
		s.expect(t, "starting", "ready", "busy", "done")
		s.print(idle).show(claude("❯ do it\n✻ Baked for 3s")).after(3 * time.Second)
		s.print(busy).show(claude("❯ do it\n✻ Baked for 3s\n✽ Waking…")).after(settleTimeout).expect(t, "starting", "ready", "busy",
			"done", "busy")
	})
	t.Run("yield to an end that no hook told", func(t *testing.T) {
		t.Parallel()
		s := atWork(t).fact(Fact{Class: 2, State: Busy, Phase: PhaseThinking, Source: "hook:UserPromptSubmit"}).after(500 * time.Millisecond)
		s.print(idle).show(claude("❯ do it\n● Credit balance too low")).after(time.Second).expect(t, "starting", "ready", "busy", "busy")
		s.after(2*time.Second).expect(t, "starting", "ready", "busy", "busy", "failed:billing")
		s.after(settleTimeout).expect(t, "starting", "ready", "busy", "busy", "failed:billing")
	})
	t.Run("yield when a dialog was answered", func(t *testing.T) {
		t.Parallel()
		s := atWork(t).fact(Fact{Class: 2, State: Busy, Phase: PhaseTool + ":Write", Source: "hook:PreToolUse"}).after(100 * time.Millisecond)
		s.print(idle).show(ask).after(600 * time.Millisecond)
		s.show(claude("❯ do it\n● Write(a)\n  ⎿  User rejected write to a")).after(settleTimeout)
		s.expect(t, "starting", "ready", "busy", "busy:tool", "blocked:permission", "done")
	})
	t.Run("end a turn where an open input box alone does not", func(t *testing.T) {
		t.Parallel()
		// Without a title, the input box is all that the screen shows between two tools.
		works := func(fact bool) *session {
			s := start(t, programs.Gemini).print("\x1b[?2004h").show(gemini("Welcome")).after(settleTimeout).typed("do it\r")
			s.print("\x1b]0;✦  Working… (demo)\a").show(gemini("> do it\n⠋ Thinking (esc to cancel, 1s)")).after(time.Second)
			if fact {
				s.fact(Fact{Class: 2, State: Busy, Phase: PhaseTool + ":read_file", Source: "hook:BeforeTool"}).after(time.Second)
			}
			return s.print("\x1b]0;demo\a").show(gemini("> do it\nReading"))
		}
		works(false).after(settleTimeout).expect(t, "starting", "ready", "busy", "done")
		s := works(true).after(settleTimeout)
		s.expect(t, "starting", "ready", "busy", "busy:tool")
		s.fact(stop).after(time.Second).expect(t, "starting", "ready", "busy", "busy:tool", "done")
		// A hook begins the time again.
		works(true).after(hookEndTimeout-5*time.Second).fact(Fact{Class: 2, State: Busy, Phase: PhaseTool + ":read_file"}).
			after(settleTimeout).expect(t, "starting", "ready", "busy", "busy:tool")
		// The hook may be lost.
		works(true).after(hookEndTimeout+settleTimeout).expect(t, "starting", "ready", "busy", "busy:tool", "done")
	})
	t.Run("structured facts are all there is", func(t *testing.T) {
		t.Parallel()
		s := start(t, programs.Claude).fact(Fact{Class: 1, State: Ready, Source: "structured"}).after(time.Second)
		s.fact(Fact{Class: 1, State: Busy}).after(time.Second).fact(Fact{Class: 2, State: Ready}).after(time.Second)
		s.show(ask).after(settleTimeout).expect(t, "starting", "ready", "busy")
	})
}

func TestExit(t *testing.T) {
	t.Parallel()
	s := atWork(t)
	s.record(s.Exit(s.now, 0, false))
	s.expect(t, "starting", "ready", "busy", "done", "stopping", "done")
	s = atWork(t)
	s.record(s.Exit(s.now, 0, true))
	s.expect(t, "starting", "ready", "busy", "stopping", "stopped")
	s = ready(t)
	s.record(s.Exit(s.now, 3, false))
	s.expect(t, "starting", "ready", "failed:exit")
	s = ready(t)
	s.record(s.Stopping(s.now))
	s.record(s.Exit(s.now, -15, true))
	s.expect(t, "starting", "ready", "stopping", "stopped")
	s = start(t, programs.Codex).show("Error loading configuration: nothing fits")
	s.record(s.Exit(s.now, 1, false))
	s.expect(t, "starting", "failed:config")
	one := start(t, programs.OpenCode).show("> build · m\n").after(settleTimeout).print("\nError: Incorrect API key provided.\n")
	one.record(one.Exit(one.now, 1, false))
	one.expect(t, "starting", "busy", "failed:auth", "failed:exit")
	if s.record(s.show(ask).Tick(s.now.Add(settleTimeout))); len(s.said) != 2 {
		t.Errorf("a state after the end: %q; want len(s.said) = 2", s.said)
	}
}

func TestAnUpdateIsSeenWhole(t *testing.T) {
	t.Parallel()
	s := ready(t).print("\x1b[?2026h").show(ask).after(800 * time.Millisecond)
	s.show(claude("Welcome")).print("\x1b[?2026l").after(settleTimeout).expect(t, "starting", "ready")
	s = ready(t).print("\x1b[?2026h").show(ask).after(settleTimeout) // one that never ends
	s.expect(t, "starting", "ready", "blocked:permission")
}

func TestExplainNamesEveryRule(t *testing.T) {
	t.Parallel()
	s := atWork(t).show(ask).after(100 * time.Millisecond)
	x := s.Explain(s.now)
	if x.Word != "busy" || x.Candidate == nil || x.Candidate.Word != "blocked:permission" || len(x.Rules) != len(s.file.Rules) {
		t.Fatalf(`%+v; want x.Word = "busy", x.Candidate not nil, x.Candidate.Word = "blocked:permission", len(x.Rules) = %v`,
			x, len(s.file.Rules))
	}
	if x.RuleFile != "claude, revision 1, built in" || x.Remark != "" {
		t.Errorf(`%s: %s; want x.RuleFile = "claude, revision 1, built in", x.Remark = ""`, x.RuleFile, x.Remark)
	}
	if other := New(s.file, "99.1", s.screen).Explain(s.now); !strings.Contains(other.Remark, "99.1") {
		t.Errorf(`other.Remark = %q, want it to contain "99.1"`, other.Remark)
	}
	won := 0
	for _, r := range x.Rules {
		if r.Why == "" || r.Won && !r.Matched {
			t.Errorf(`%+v; want r.Why other than "", not (r.Won && !r.Matched)`, r)
		}
		if r.Won {
			won++
		}
	}
	if won != 1 || len(x.Evidence) == 0 || x.Quiet {
		t.Errorf("%d rules won; evidence %+v; want won = 1, len(x.Evidence) other than 0, x.Quiet = false", won, x.Evidence)
	}
	if x = s.after(2 * time.Minute).Explain(s.now); !x.Quiet || x.Word != "blocked:permission" {
		t.Errorf(`quiet is not a state, but it is seen: %+v; want x.Quiet = true, x.Word = "blocked:permission"`, x)
	}
}

// TestMovesAreLegal draws random histories, and holds every change to the table of
// moves and to the order in which they follow each other.
func TestMovesAreLegal(t *testing.T) {
	t.Parallel()
	screens := []string{
		claude("Welcome"), claude("❯ do it\n✽ Baking… (1s)"), claude("❯ do it\n✻ Baked for 3s"), ask, "", "Press Enter to continue…",
		claude("❯ do it\n  ⎿  Credit balance too low\n✻ Baked for 0s"),
		claude("❯ do it\n✻ API error · Retrying in 1s · attempt 1/10"),
		claude("❯ do it\n● Bash(x)\n  ⎿  Running…"), strings.Replace(claude("x"), "? for shortcuts", "Not logged in · Run /login", 1),
		"Unable to connect to Anthropic services", "› Ask Codex to do anything\n\n  fake · ? for shortcuts", "Hm?\n● 1. a\n  2. b",
		"• Working (1s • esc to interrupt)\n\n› x\n\n  ? for shortcuts", "> build · model\n\nanswer", "■ unexpected status 401",
	}
	sequences := []string{
		busy, idle, "\x1b]0;\a", "\x1b]7501;state=idle:app=codex\a", "\x1b]7501;state=working\a",
		"\x1b]7501;state=blocked:kind=permission\a", "\x1b]7501;state=done\a", "\x1b]7501;state=error\a", "\x1b]133;C\a", "\x1b]133;A\a",
		"\x1b]0;◇  Ready\a", "\x1b]777;notify;permission\a", "\x1b[?2004h", "\x1b[?2004l", "\x1b[?2026h", "\x1b[?2026l",
	}
	keys := []string{"\r", "do it", "\x1b", "\x03", "\x1b[200~do it\x1b[201~\r", "2"}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 4))
		names := []programs.Name{programs.Claude, programs.Codex, programs.Gemini, programs.OpenCode, programs.Pi, programs.Shell, programs.Aider}
		s := start(t, names[r.IntN(len(names))])
		last := Status{State: Starting}
		check := func(changes []Change) {
			for _, c := range changes {
				if c.From.Word() != last.Word() || !Allowed(c.From.State, c.To.State) || c.From.same(c.To) {
					t.Fatalf("seed %d: after %s a move from %s to %s; want c.From.Word() = last.Word(), Allowed(c.From.State, "+
						"c.To.State), not c.From.same(c.To)", seed, last.Word(), c.From.Word(), c.To.Word())
				}
				last = c.To
			}
		}
		for range 60 {
			switch r.IntN(10) {
			case 0, 1, 2:
				s.show(screens[r.IntN(len(screens))])
			case 3, 4, 5:
				s.print(sequences[r.IntN(len(sequences))])
			case 6, 7:
				s.typed(keys[r.IntN(len(keys))])
			case 8:
				allStates := allStates()
				s.fact(Fact{Class: 2 - r.IntN(20)/19, State: allStates[r.IntN(len(allStates))], Phase: "", Kind: "permission"})
			case 9:
				if r.IntN(20) == 0 {
					check(s.Exit(s.now, r.IntN(3)-1, r.IntN(2) == 0))
				}
			}
			for range r.IntN(40) {
				s.now = s.now.Add(time.Duration(r.IntN(100)) * time.Millisecond)
				check(s.Tick(s.now))
			}
		}
	}
}

func TestAllowed(t *testing.T) {
	t.Parallel()
	for _, to := range allStates() {
		for _, from := range []State{Stopped, Error} {
			if Allowed(from, to) {
				t.Errorf("%s moves to %s; want not Allowed(from, to)", from, to)
			}
		}
		if to != Starting && to != Stopping && to != Error && Allowed(Pending, to) {
			t.Errorf("pending moves to %s; want not (to != Starting && to != Stopping && to != Error && Allowed(Pending, to))", to)
		}
	}
	for _, bad := range [][2]State{{Ready, Starting}, {Busy, Pending}, {Stopping, Ready}, {Ready, Stopped}} {
		if Allowed(bad[0], bad[1]) {
			t.Errorf("%s moves to %s; want not Allowed(bad[0], bad[1])", bad[0], bad[1])
		}
	}
}

// FuzzDetector feeds anything to a session: it must not fail, and stay within bounds.
func FuzzDetector(f *testing.F) {
	f.Add([]byte(idle+claude("Welcome")), []byte("do it\r"), uint8(0))
	f.Add([]byte(ask), []byte("\x1b[200~x"), uint8(1))
	files, err := Load("")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, out, in []byte, which uint8) {
		s := begin(files[int(which)%len(files)])
		for i := 0; i < min(len(out), 4000); i += 197 {
			s.print(string(out[i:min(i+197, len(out))])).after(30 * time.Millisecond)
			s.typed(string(in)).after(time.Second)
		}
		s.after(settleTimeout)
		if len(s.typedText()) > maxTyped {
			t.Fatalf("what was typed is kept without bounds; want len(s.typedText()) at most %v", maxTyped)
		}
		if fmt.Sprint(s.Explain(s.now)) == "" {
			t.Fatal(`nothing is explained; want fmt.Sprint(s.Explain(s.now)) other than ""`)
		}
	})
}

func (s *session) typedText() string { return s.Detector.typed }

func allStates() []State {
	return []State{Pending, Starting, Authenticating, Ready, Busy, Blocked, Stopping, Stopped, Error}
}
