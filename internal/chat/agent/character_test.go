package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/agent"
)

func TestACharacterBecomesThePrompt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file string
		want string // "": invalid_input
	}{
		"a text": {"\nYou are a librarian.\n", "You are a librarian."},
		"a character": {
			`{"name":"Eliza","system":"Be kind.","bio":["A therapist.","Patient."],"lore":"Born in 1966.","adjectives":["calm"],` +
				`"topics":["feelings"],"style":{"all":["short"],"chat":["warm"]},"modelProvider":"x","settings":{"secrets":{"K":"sk-1"}},` +
				`"messageExamples":[[{"name":"{{name1}}","content":{"text":"I am sad"}},{"user":"{{agentName}}","content":{"text":"Tell me."}}]]}`,
			"You are Eliza.\n\nBe kind.\n\nA therapist.\nPatient.\n\nBorn in 1966.\n\nYou are: calm\n\nYou know about: feelings\n\n" +
				"How you write:\n- short\n- warm\n\nAn example:\nAnn: I am sad\nEliza: Tell me.\n",
		},
		"one line as bio":  {`{"name":"E","bio":"A bot."}`, "You are E.\n\nA bot.\n"},
		"without a name":   {`{"bio":"A bot."}`, ""},
		"not JSON":         {`{"name":`, ""},
		"a bio of numbers": {`{"name":"E","bio":[1]}`, ""},
		"too large":        {strings.Repeat("x", 1<<20+1), ""},
	} {
		path := filepath.Join(t.TempDir(), "character")
		if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
			t.Fatalf("write: got %v, want no error", err)
		}
		got, err := agent.ReadCharacter(path)
		if got != c.want || c.want == "" && capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%s: got %q and %v, want %q", name, got, err, c.want)
		}
	}
}
