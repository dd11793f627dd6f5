package clis

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/platform/scriptedmodel"
	"github.com/junctor-run/junctor/internal/testkit/built"
)

// The plays about troubles.
const (
	playCJK   = "PLAY-CJK"
	playBusy  = "PLAY-BUSY-429"
	playCut   = "PLAY-CUT"
	playBig   = "PLAY-BIG-OUTPUT"
	playStuck = "PLAY-STUCK"
	playAfter = "PLAY-AFTER"
	playKill  = "PLAY-KILL"
)

// cjk is a text of several lines with wide characters, a combining one, and one beyond the first plane.
const cjk = "第一行：你好，世界\n二行目：こんにちは「世界」\n셋째 줄: 안녕하세요 e\u0301 🦀\n" + playCJK

// TestTroubles drives each program through what goes wrong around a turn, in both modes: the state is
// the one of the program, the model receives what was sent, and nothing runs unasked.
func TestTroubles(t *testing.T) {
	if os.Getenv("TASK_AGENTS_SHORT") != "" {
		t.Parallel()
	}
	bin, _ := commands(t)
	binary := built.Junctor(t)
	for _, c := range programs() {
		t.Run(c.name, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(bin, c.binary)); err != nil {
				t.Skipf("%s is not installed; run: make test-agents", c.name)
			}
			short := os.Getenv("TASK_AGENTS_SHORT") != ""
			if short && c.name != "claude" && c.name != "codex" {
				t.Skip("in make test-agents only")
			}
			if short {
				t.Parallel()
			}
			for _, mode := range []string{"structured", "pty"} {
				if mode == "structured" && c.noStructured != "" || mode == "pty" && (c.noPrompt != "" || short) {
					continue
				}
				t.Run(mode, func(t *testing.T) {
					r := &run{program: c, plane: newPlane(t, binary, c.files, "JUNCTOR_AGENTS_AUTO_RESUME=true")}
					r.dir = r.workspace(t, "work")
					asked := r.workspace(t, "asked")
					var err error
					r.fake, err = scriptedmodel.Start(scriptedmodel.Script{
						playCJK:  {{Say: "I see."}},
						playBusy: {{Fail: scriptedmodel.RateLimit, Times: 1}, {Say: "At last."}},
						playCut:  {{Fail: scriptedmodel.Cut}},
						playBig: {
							{Run: "head -c 5242880 /dev/zero | tr '\\0' x; echo; echo done > " + filepath.Join(r.dir, "big.txt")},
							{Say: "It was long."},
						},
						playStuck: {{Slow: time.Minute, Say: "At last."}},
						playAfter: {{Say: "Now that."}},
						playKill:  {{Run: "touch " + filepath.Join(asked, "ran.txt"), Leave: true}, {Say: "So be it."}},
					})
					ok(t, err)
					t.Cleanup(r.fake.Close)
					s := r.spawnIn(t, mode, "autonomous", r.dir, cjk, "")
					r.completed(t, s.ID, 1)
					t.Run("lines of wide characters", func(t *testing.T) { r.wide(t, s.ID) })
					t.Run("interrupted, then sent", func(t *testing.T) { r.interruptedThenSent(t, s.ID) })
					t.Run("5 MB of output", func(t *testing.T) { r.big(t, s.ID, mode) })
					t.Run("429", func(t *testing.T) { r.retried(t, s.ID) })
					if !short || c.name == "claude" { // Codex tries again for 8 s
						t.Run("the connection is cut", func(t *testing.T) { r.cut(t, s.ID) })
					}
					r.stop(t, s.ID)
					if short && c.name != "claude" {
						return
					}
					if c.noAsking == "" || mode == "structured" {
						t.Run("the server is killed while it asks", func(t *testing.T) { r.killedWhileAsking(t, mode, asked) })
					}
				})
			}
		})
	}
}

// wide: the task and a message arrive as they were sent.
func (r *run) wide(t *testing.T, id string) {
	before := r.shown(t, id).CompletedTurns
	r.post(t, id, "send", map[string]any{"input": "再一次。\n" + cjk})
	r.completed(t, id, before+1)
	asked := r.fake.Asked(playCJK)
	if len(asked) != 2 || !strings.Contains(asked[0].Last, cjk) || !strings.Contains(asked[1].Last, "再一次。\n"+cjk) {
		t.Errorf("the model received %+v, want the task and the message as they were sent", lasts(asked))
	}
}

// interruptedThenSent: the interrupted text is not sent again.
func (r *run) interruptedThenSent(t *testing.T, id string) {
	before := r.shown(t, id).CompletedTurns
	r.post(t, id, "send", map[string]any{"input": "Take your time. " + playStuck})
	r.until(t, id, "the model is asked", func(s session) bool { return s.Status == "busy" && len(r.fake.Asked(playStuck)) > 0 })
	r.post(t, id, "send", map[string]any{"keys": []string{"escape"}})
	r.until(t, id, "it stops", func(s session) bool { return s.Status == "ready" })
	r.post(t, id, "send", map[string]any{"input": "Now this. " + playAfter})
	r.completed(t, id, before+1)
	asked := r.fake.Asked(playAfter)
	if len(asked) != 1 || strings.Contains(asked[0].Last, playStuck) {
		t.Errorf("the model received %q, want the text alone", lasts(asked))
	}
}

// big: a command that prints 5 MB runs to its end. If it is too much for the program, the user reads why.
func (r *run) big(t *testing.T, id, mode string) {
	before := r.shown(t, id).CompletedTurns
	r.post(t, id, "send", map[string]any{"input": "Print. " + playBig})
	if over := r.bigOver[mode]; over != "" {
		s := r.until(t, id, "its turn ends", func(s session) bool { return s.Status == "ready" && s.Phase != "interrupted" && s.Phase != "done" })
		if got := r.picture(t, id); s.Phase != "failed:limit" || !strings.Contains(got, over) {
			t.Errorf("the session is %+v\n%s\nwant failed:limit and the reason %s", s, got, over)
		}
	} else {
		r.completed(t, id, before+1)
	}
	if data, err := os.ReadFile(filepath.Join(r.dir, "big.txt")); err != nil || string(data) != "done\n" {
		t.Errorf("big.txt = %q, %v, want the command run to its end", data, err)
	}
}

// retried: the provider refuses once, the program asks again, and the turn is done.
func (r *run) retried(t *testing.T, id string) {
	before := r.shown(t, id).CompletedTurns
	r.post(t, id, "send", map[string]any{"input": "Try. " + playBusy})
	s := r.until(t, id, "it is done, or has failed", func(s session) bool {
		return s.Status == "ready" && (s.CompletedTurns > before || strings.HasPrefix(s.Phase, "failed:"))
	})
	if asked := r.fake.Asked(playBusy); s.CompletedTurns != before+1 || len(asked) < 2 {
		t.Errorf("the session is %+v after %d requests, want the turn done after a retry\n%s", s, len(asked), r.picture(t, id))
	}
}

// cut: the provider hangs up in the middle of every answer. The turn fails and does not count as done.
func (r *run) cut(t *testing.T, id string) {
	before := r.shown(t, id).CompletedTurns
	r.post(t, id, "send", map[string]any{"input": "Try. " + playCut})
	s := r.until(t, id, "it has failed", func(s session) bool {
		return strings.HasPrefix(s.Phase, "failed:") || s.CompletedTurns > before || s.Status == "error"
	})
	if !strings.HasPrefix(s.Phase, "failed:") || s.CompletedTurns != before {
		t.Errorf("the session is %+v, want a failed turn\n%s", s, r.picture(t, id))
	}
}

// killedWhileAsking: nothing has run, no process is left, and the blocker that was open has ended.
func (r *run) killedWhileAsking(t *testing.T, mode, dir string) {
	s := r.spawnIn(t, mode, "standard", dir, "Ask me. "+playKill, "")
	s = r.until(t, s.ID, "it asks", func(s session) bool {
		return s.Status == "blocked" && s.Blocker.Type == "permission" && len(s.Blocker.Options) > 0
	})
	r.approval(t, s.Blocker.ID, "pending")
	r.restart(t)
	r.approval(t, s.Blocker.ID, "ended")
	r.noProcess(t, s.ID)
	holds(t, dir)
}

func lasts(asked []scriptedmodel.Asked) (texts []string) {
	for _, a := range asked {
		texts = append(texts, a.Last)
	}
	return texts
}
