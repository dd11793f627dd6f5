package taskagents

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

func TestQuestionsShowCharactersThatHideOthers(t *testing.T) {
	t.Parallel()
	b := &detect.Blocker{
		Prompt: "Run it?\u202e", Tool: "Bash", Reason: "harmless\u200b", Input: json.RawMessage(`{"command":"rm ` + "\u2066" + `-rf"}`),
		Choices: []detect.Choice{{N: 1, Label: "Yes\u202d"}},
	}
	got := shown(message(b, ""))
	for _, want := range []string{`Run it?\u202e`, `harmless\u200b`, `rm \u2066-rf`, `1 Yes\u202d`} {
		if !strings.Contains(got, want) {
			t.Errorf("the question is %q, want %q in it", got, want)
		}
	}
	if n := strings.Count(got, "\n"); n != 4 {
		t.Errorf("the question has %d line ends, want 4: %q", n, got)
	}
	decision := row.PendingDecision{LLMDecision: json.RawMessage(`{"action":"respond","response":"cat \u202ea"}`)}
	if got, want := shown(decided(decision)), `Decided: respond cat \u202ea`; got != want {
		t.Errorf("shown(decided()) = %q, want %q", got, want)
	}
}
