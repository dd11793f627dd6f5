package taskagents

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

func TestApprovalOfABlockerShowsAllOfIt(t *testing.T) {
	t.Parallel()
	b := &detect.Blocker{
		ID: "apr_1", Type: "permission", Tool: "Bash", Prompt: "Run it?\u202e", Cwd: "/work", Reason: "to look", Source: "protocol",
		Input: json.RawMessage(`{"command":"ls"}`), Options: []string{"Yes", "No"}, Asked: time.Now(),
		Choices: []detect.Choice{{N: 1, Label: "Yes", Effect: detect.Once}, {N: 2, Label: "No", Effect: detect.Denies}},
	}
	a := approvalOf(b, sessions.Info{ID: "pty-1-a", Name: "builder"}, "operator:o", "agents:g")
	if a.ID != "apr_1" || a.Kind != policy.KindTerminal || a.Session != "pty-1-a" || a.Principal != "operator:o" || !a.Expires.IsZero() {
		t.Errorf("approvalOf(permission) = %+v, want a terminal approval with the blocker's id that does not expire", a)
	}
	if strings.ContainsRune(a.Summary, '\u202e') || !strings.Contains(a.Summary, "builder waits for a permission") {
		t.Errorf("the summary is %q, want the session, the kind, and no hidden characters", a.Summary)
	}
	var seen []string
	for _, v := range append(a.Shown.Details, a.Shown.Members...) {
		seen = append(seen, v.String())
	}
	for _, want := range []string{`folder: "/work"`, `command: "ls"`, `tool: "Bash"`, `to look`} {
		if got := strings.Join(seen, "\n"); !strings.Contains(got, want) {
			t.Errorf("the approval shows %s, want %s in it", got, want)
		}
	}
	if len(a.Shown.Choices) != 2 || a.Shown.Choices[1] != (policy.ShownChoice{N: 2, Label: "No", Effect: "deny"}) {
		t.Errorf("the choices are %+v, want those of the program", a.Shown.Choices)
	}
	b.Type, b.Input = "plan", json.RawMessage(`{"plan":"`+strings.Repeat("x", maxKept)+`"}`)
	a = approvalOf(b, sessions.Info{ID: "pty-1-a"}, "operator:o", "agents:g")
	if a.Kind != policy.KindQuestion || len(a.Input) != 0 || !a.Shown.Cut() {
		t.Errorf("approvalOf(long plan) = kind %s, %d bytes of input, cut %v; want a question, none, true", a.Kind, len(a.Input), a.Shown.Cut())
	}
}

func TestDecisionsSelectTheOnlyOptionWithTheirEffect(t *testing.T) {
	t.Parallel()
	b := &detect.Blocker{ID: "apr_1", Options: []string{"Yes", "Yes, always", "Yes, and edits", "No", "Never"}, Choices: []detect.Choice{
		{N: 1, Label: "Yes", Effect: detect.Once},
		{N: 2, Label: "Yes, always", Effect: detect.Always},
		{N: 3, Label: "Yes, and edits", Effect: detect.Always},
		{N: 4, Label: "No", Effect: detect.Denies},
		{N: 5, Label: "Never", Effect: detect.Denies},
	}}
	for effect, want := range map[detect.Effect]string{detect.Once: "1", detect.Denies: "4", detect.Always: "", detect.InSession: ""} {
		got, ok := b.ReplyFor(effect)
		if got.Text != want || ok != (want != "") {
			t.Errorf("ReplyFor(%s) = %q, %v; want %q", effect, got.Text, ok, want)
		}
	}
}
