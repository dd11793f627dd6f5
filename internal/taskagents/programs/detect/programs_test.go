package detect

import (
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
)

func codex(above string) string {
	return above + "\n\n› Ask Codex to do anything\n\n  model · /work\n  ? for shortcuts"
}

func gemini(above string) string {
	return above + "\n" + strings.Repeat("▄", 60) + "\n >   Type your message or @path/to/file\n" + strings.Repeat("▀", 60) +
		"\n workspace   /model"
}

func pi(above string) string {
	rule := strings.Repeat("─", 60)
	return above + "\n\n" + rule + "\n\n" + rule + "\n/work\n0.0%/128k (auto)"
}

func state(s string) string { return "\x1b]7501;state=" + s + ":app=codex\a" }

func title(s string) string { return "\x1b]0;" + s + "\a" }

// TestPrograms plays sessions whose course the recordings do not have. Each step is
// what is drawn, or, with a leading "<", what is typed; then time passes.
func TestPrograms(t *testing.T) {
	t.Parallel()
	const paste = "<\x1b[200~do it\x1b[201~"
	for _, c := range []struct {
		name    string
		program programs.Name
		steps   []string
		want    string
	}{
		{"Codex with a bad key retries, then fails", programs.Codex, []string{
			state("idle") + codex("hello"), paste, "<\r", state("working") + codex("› do it\n\n• Working (1s • esc to interrupt)"),
			codex("› do it\n\n• Reconnecting... 2/5 (4s • esc to interrupt)"),
			state("error") + codex("› do it\n\n■ unexpected status 401 Unauthorized: bad key"),
		}, "starting ready busy busy:provider_retry failed:auth"},
		{"Codex waits for a network", programs.Codex, []string{
			state("idle") + codex("hello"), paste, "<\r", state("working") + codex("› do it\n\n• Working (1s • esc to interrupt)"),
			codex("› do it\n\n• Reconnecting... waiting for network (5s • esc to interrupt)\n  └ Connection failed: error sending request"),
		}, "starting ready busy busy:provider_retry"},
		{"Codex writes of reconnecting", programs.Codex, []string{
			state("idle") + codex("hello"), paste, "<\r", state("working") + codex("› do it\n\n• Working (1s • esc to interrupt)"),
			state("done") + codex("› do it\n\n• Reconnecting to the database is tried 3/5 times\n\n─ Worked for 2s ─"),
		}, "starting ready busy done"},
		{"Codex takes Enter for a new line", programs.Codex, []string{
			state("idle") + codex("hello"), "<do it now\r", strings.Replace(codex("hello"), "Ask Codex to do anything", "do it now\n  ", 1),
		}, "starting ready ready:unsubmitted"},
		{"Codex is interrupted", programs.Codex, []string{
			state("idle") + codex("hello"), paste, "<\r", state("working") + codex("› do it\n\n• Working (1s • esc to interrupt)"), "<\x1b",
			state("idle") + codex("› do it\n\n■ Conversation interrupted - tell the model what to do differently."),
		}, "starting ready busy ready:interrupted"},
		{"Codex offers a new model after its input box", programs.Codex, []string{
			state("idle") + codex("hello"), "A new model is out\n\n› 1. Try new model\n  2. Use existing model\n\n  Press enter to confirm",
			codex("hello"),
		}, "starting ready blocked:config ready"},
		{"Gemini works and asks", programs.Gemini, []string{
			title("◇  Ready (work)") + gemini("hello"), "<do it", "<\r",
			title("✦  Working… (work)") + gemini(" > do it\n\n ⠏ Thinking (esc to cancel, 2s)"),
			title("✋  Action Required (work)") + "╭────────────────────────────╮\n│ Allow execution of: 'ls'?   │\n│                            │\n│ ● 1. Allow once            │\n│   2. Allow for this session│\n│   3. No, suggest changes (esc)│\n╰────────────────────────────╯",
			"<\r", title("✦  Working… (work)") + gemini(" > do it\n\n ⠏ Thinking (esc to cancel, 4s)"),
			title("◇  Ready (work)") + gemini(" > do it\n\n✦ It is done."),
		}, "starting ready busy blocked:permission busy done"},
		{"Gemini with a task on the command line", programs.Gemini, []string{
			title("✦  Working… (work)") + gemini(" > do it\n\n ⠏ Thinking (esc to cancel, 2s)"),
			title("◇  Ready (work)") + gemini(" > do it\n\n✦ It is done."),
		}, "starting busy done"},
		{"Pi has no model", programs.Pi, []string{pi("pi v1\n\n Warning: No models available. Use /login to log in")}, "starting auth_required"},
		{"Pi works twice", programs.Pi, []string{
			pi("hello"), "<do it\r", pi(" do it\n\n ⠼ Working..."), pi(" do it\n\n It is done."),
			"<once more\r", pi(" once more\n\n ⠼ Working..."), pi(" once more\n\n Done again."),
		}, "starting ready busy done busy done"},
		{
			"OpenCode fails", programs.OpenCode,
			[]string{"> build · model\n", "> build · model\n\nError: Unauthorized: bad api key\n"},
			"starting busy failed:auth",
		},
		{"OpenCode uses a tool last", programs.OpenCode, []string{
			"> build · model\n",
			"> build · model\n\n← Write a\nWrote file successfully.\n",
		}, "starting busy"},
		{"Aider asks", programs.Aider, []string{
			"Aider v1\n\ncode> ", "<do it\r", "code> do it\nWaiting for the model", "Add a.go to the chat? (Y)es/(N)o/(D)on't ask again [Yes]: ",
			"<y\r", "Waiting for the model", "Tokens: 1k sent\nApplied edit to a.go\ncode> ",
		}, "starting ready busy blocked:permission busy done"},
		{"a shell runs a command", programs.Shell, []string{
			"\x1b]133;A\apty> \x1b]133;B\a", "<make\r", "pty> make\n\x1b]133;C\amaking",
			"pty> make\nmade\n\x1b]133;D;0\a\x1b]133;A\apty> \x1b]133;B\a",
		}, "starting ready busy done"},
		{"Claude wants a plan agreed to, then is out of money", programs.Claude, []string{
			idle + claude("Welcome"), paste, "<\r", busy + claude("❯ do it\n✽ Planning…"),
			idle + "Here is the plan\n\nWould you like to proceed?\n ❯ 1. Yes, and auto-accept edits\n   2. Yes, and manually approve edits\n   3. No, keep planning\n",
			"<\r", busy + claude("❯ do it\n✽ Baking…"), idle + claude("❯ do it\n  ⎿  5-hour limit reached ∙ resets 3pm"),
		}, "starting ready busy blocked:permission busy failed:rate_limit"},
		{"Claude is asked twice", programs.Claude, []string{
			idle + claude("Welcome"), paste, "<\r", busy + claude("❯ do it\n✽ Baking…"),
			idle + claude("❯ do it\n● Done.\n✻ Baked for 3s"),
			"<\x1b[200~and more\x1b[201~", "<\r", busy + claude("❯ do it\n● Done.\n✻ Baked for 3s\n❯ and more\n✽ Stewing…"),
			idle + claude("❯ do it\n● Done.\n✻ Baked for 3s\n❯ and more\n● Well.\n✻ Stewed for 1m 2s"),
		}, "starting ready busy done busy done"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, c.program)
			for _, step := range c.steps {
				if keys, ok := strings.CutPrefix(step, "<"); ok {
					s.typed(keys).after(200 * time.Millisecond)
					continue
				}
				s.show(step).after(4 * time.Second)
			}
			if got := strings.Join(s.said, " "); got != c.want {
				t.Errorf("said %q, want %q", got, c.want)
			}
		})
	}
}
