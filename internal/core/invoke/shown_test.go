package invoke_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// opened returns the approval that the call opens.
func (r *rig) opened(inv capability.Invocation) policy.Approval {
	r.Helper()
	_, err := r.engine.Invoke(r.Context(), inv)
	e := fails(r, err, capability.CodeApprovalRequired, "confirmation_required")
	a, err := r.policy.Approval(r.Context(), e.Details["approval"].(string))
	if err != nil {
		r.Fatal(err)
	}
	return a
}

func TestApprovalShowsEveryMember(t *testing.T) {
	t.Parallel()
	r, _ := withClock(t)
	r.tells("w", capability.Contribution{Effect: capability.EffectWrite}, capability.Preview{})
	long := strings.Repeat("a", 1400)
	for name, tt := range map[string]struct {
		input string
		want  []string
	}{
		"a member behind a long one":  {`{"text":"` + long + `","path":".ssh-authorized_keys"}`, []string{`path: ".ssh-authorized_keys"`, "1400 bytes", "sha256"}},
		"a member inside an object":   {`{"edit":{"text":"` + long + `","path":".ssh-authorized_keys"}}`, []string{`edit.path: ".ssh-authorized_keys"`}},
		"a member inside an array":    {`{"edits":[{"text":"` + long + `"},{"path":".ssh-authorized_keys"}]}`, []string{`edits[1].path: ".ssh-authorized_keys"`}},
		"bidi and zero-width letters": {"{\"path\":\"safe\u202etxt.exe\u200b\"}", []string{`\u202e`, `\u200b`}},
		"control characters":          {`{"path":"a\u001b[2Kb\nc"}`, []string{`a\x1b[2Kb\nc`}},
		"a name with a quote":         {`{"a: \"x\", b":1}`, []string{`"a: \"x\", b": 1`}},
		"a name that hides":           {"{\"a\u2066\":1}", []string{`\u2066`}},
	} {
		t.Run(name, func(t *testing.T) {
			a := r.opened(on(agent(), "w", tt.input))
			for _, want := range tt.want {
				if !strings.Contains(a.Summary, want) {
					t.Errorf("summary = %q, want it to contain %q", a.Summary, want)
				}
			}
			if strings.ContainsAny(a.Summary, "\u202e\u200b\u2066\x1b\n") {
				t.Errorf("summary = %q, want no invisible characters", a.Summary)
			}
			input, err := r.policy.ApprovalInput(t.Context(), a.ID)
			if string(input) != tt.input || err != nil {
				t.Errorf("ApprovalInput = %s, %v, want %s", input, err, tt.input)
			}
			if _, _, err := r.policy.Decide(t.Context(), operator(), a.ID, policy.DecideDeny); err != nil {
				t.Fatal(err)
			}
			if input, err := r.policy.ApprovalInput(t.Context(), a.ID); len(input) != 0 || err != nil {
				t.Errorf("ApprovalInput after the decision = %s, %v, want none", input, err)
			}
		})
	}
}

func TestApprovalQuotesArguments(t *testing.T) {
	t.Parallel()
	r, _ := withClock(t)
	r.tells("w", capability.Contribution{Effect: capability.EffectWrite}, capability.Preview{
		What: []string{"rm", "a b", "--", "x\u200b"}, Details: map[string]any{"cwd": "/srv"}, Binds: "x",
	})
	a := r.opened(on(agent(), "w", `{"stdin":"more"}`))
	for _, want := range []string{`"rm" "a b" "--" "x\u200b"`, `cwd: "/srv"`, `stdin: "more"`} {
		if !strings.Contains(a.Summary, want) {
			t.Errorf("summary = %q, want it to contain %q", a.Summary, want)
		}
	}
}

func TestCallWithMoreThanCanBeShownIsRefused(t *testing.T) {
	t.Parallel()
	r, _ := withClock(t)
	r.tells("w", capability.Contribution{Effect: capability.EffectWrite}, capability.Preview{})
	var b strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&b, `,"m%d":%d`, i, i)
	}
	_, err := r.engine.Invoke(t.Context(), on(agent(), "w", "{"+b.String()[1:]+"}"))
	fails(t, err, capability.CodeTooLarge, policy.ReasonNotShowable)
	a := r.opened(on(agent(), "w", `{"inner":{`+b.String()[1:]+`},"path":"x"}`))
	if !strings.Contains(a.Summary, `path: "x"`) || !strings.Contains(a.Summary, "inner: ") {
		t.Errorf("summary = %.300q, want both members", a.Summary)
	}
}
