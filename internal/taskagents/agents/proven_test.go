package agents

import (
	"context"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/preflight"
)

func TestPresetsOfProgramsThatFailedTheirCheck(t *testing.T) {
	full := capability.Errorf(capability.CodeFailed, "canary", "the disk is full")
	for _, c := range []struct {
		name    programs.Name
		preset  programs.Preset
		why     string
		err     error
		code    capability.Code
		note    string
		skipped bool // no check is made
	}{
		{name: programs.Claude, preset: programs.Standard, note: "asks as it must"},
		{name: programs.Claude, preset: programs.Standard, why: "refusal: it ran", code: capability.CodeUnavailable},
		{name: programs.Claude, preset: programs.Permissive, why: "refusal: it ran", code: capability.CodeUnavailable},
		{name: programs.Claude, preset: programs.Readonly, why: "refusal: it ran", note: "refusal: it ran"},
		{name: programs.Claude, preset: programs.Autonomous, why: "refusal: it ran", note: "refusal: it ran"},
		{name: programs.OpenCode, preset: programs.Readonly, why: "refusal: it ran", code: capability.CodeUnavailable},
		{name: programs.Codex, preset: programs.Autonomous, err: full, code: capability.CodeFailed},
		{name: programs.Pi, preset: programs.Standard, note: "newer", skipped: true},
	} {
		t.Run(string(c.name)+" "+string(c.preset)+" "+c.why, func(t *testing.T) {
			checked := false
			a := &Agents{cfg: Config{Prove: func(context.Context, preflight.Result) (string, error) {
				checked = true
				return c.why, c.err
			}}}
			note, err := a.proven(t.Context(), preflight.Result{Adapter: c.name}, "it is newer", Request{Preset: c.preset})
			if capability.CodeOf(err) != c.code || !strings.Contains(note, c.note) || checked == c.skipped {
				t.Errorf("proven = %q, %v, checked %t; want a note with %q, code %q, checked %t", note, err, checked, c.note, c.code, !c.skipped)
			}
		})
	}
}
