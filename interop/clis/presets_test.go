package clis

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/testkit/built"
	"github.com/junctor-run/junctor/internal/testkit/fakemodel"
)

// TestPresetsHold lets the model run commands that write and commands that read, without a request to
// leave the program's sandbox, with each preset. A command that writes runs only after a yes, unless
// the preset allows commands; one that reads inside the folder runs unasked.
func TestPresetsHold(t *testing.T) {
	bin, _ := commands(t)
	binary := built.Junctor(t)
	for _, c := range programs() {
		t.Run(c.name, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(bin, c.binary)); err != nil || !c.presets {
				t.Skipf("%s is not installed, or its presets are not tried; run: make test-agents", c.name)
			}
			r := &run{program: c, plane: newPlane(t, binary, c.files)}
			var err error
			script := fakemodel.Script{}
			for _, mode := range []string{"structured", "pty"} {
				for _, preset := range []string{"readonly", "standard", "permissive", "autonomous"} {
					dir := filepath.Join(r.home, "workspaces", preset+"-"+mode)
					script["PLAY-RUN-"+preset+"-"+mode] = []fakemodel.Step{
						{Run: "echo ran > " + filepath.Join(dir, "ran.txt") + " && ls"}, {Say: "So be it."},
					}
					script["PLAY-LS-"+preset+"-"+mode] = []fakemodel.Step{{Run: "ls " + dir}, {Say: "I have looked."}}
				}
			}
			r.fake, err = fakemodel.Start(script)
			ok(t, err)
			t.Cleanup(r.fake.Close)
			for _, mode := range []string{"structured", "pty"} {
				if mode == "pty" && c.noAsking != "" {
					continue
				}
				for _, preset := range []string{"readonly", "standard", "permissive", "autonomous"} {
					t.Run(preset+", "+mode, func(t *testing.T) { r.preset(t, preset, mode) })
				}
			}
		})
	}
}

func (r *run) preset(t *testing.T, preset, mode string) {
	dir := r.workspace(t, preset+"-"+mode)
	s := r.spawnIn(t, mode, preset, dir, "Run. PLAY-RUN-"+preset+"-"+mode, "")
	s = r.until(t, s.ID, "it asks, or is done", func(s session) bool {
		if s.Status == "error" || strings.HasPrefix(s.Phase, "failed:") {
			t.Fatalf("it failed: %+v\n%s\nwant s.Status other than \"error\", s.Phase not beginning with \"failed:\"",
				s, r.picture(t, s.ID))
		}
		return s.Status == "blocked" && s.Blocker.Type == "permission" && len(s.Blocker.Options) > 0 || s.CompletedTurns > 0 && s.Status != "busy"
	})
	asked := s.Status == "blocked"
	asks := preset == "standard" || preset == "permissive"
	inSandbox := asks && r.sandboxed[mode]
	if want := asks && !inSandbox; asked != want {
		t.Errorf("a command that writes: asked is %v, want %v", asked, want)
	}
	if asked {
		if !strings.Contains(s.Blocker.Prompt+string(s.Blocker.Input), "ran.txt") {
			t.Errorf("the user is asked about %v, want the command in it", s.Blocker)
		}
		holds(t, dir)
		r.post(t, s.ID, "answer", map[string]any{"blocker": s.Blocker.ID, "answer": "yes"})
		r.completed(t, s.ID, 1)
	}
	if preset == "readonly" || inSandbox {
		holds(t, dir)
	} else {
		holds(t, dir, "ran.txt")
	}
	r.post(t, s.ID, "send", map[string]any{"input": "Look. PLAY-LS-" + preset + "-" + mode})
	s = r.until(t, s.ID, "it has looked, or asks", func(s session) bool {
		return s.CompletedTurns > 1 || s.Status == "blocked" && s.Blocker.Type == "permission"
	})
	if s.Status == "blocked" && s.Blocker.Source == "screen" {
		// On a slow machine a program draws its dialog while its hook is asked; the answer takes it away.
		s = r.until(t, s.ID, "its hook is answered, and it has looked", func(s session) bool { return s.CompletedTurns > 1 })
	}
	if s.Status == "blocked" {
		t.Errorf(`a command that reads inside the folder is asked about: %v; want s.Status other than "blocked"`, s.Blocker)
	}
	r.stop(t, s.ID)
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
		r.fake, err = fakemodel.Start(fakemodel.Script{
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
