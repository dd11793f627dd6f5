package programs

import (
	"encoding/json"
	"testing"
	"unicode/utf8"
)

// TestCodexKnowsOurHooksAgain compares with what Codex 0.169.0 itself said of these hooks.
func TestCodexKnowsOurHooksAgain(t *testing.T) {
	t.Parallel()
	handler := object{"type": "command", "command": "'/bin/true' child hook codex", "timeout": 5}
	if got := codexHookHash("stop", handler); got != "sha256:9a11eb0cdaa0b1ae45516881f906cc470513af7bfeabe3e01a616d44d3af65cc" {
		t.Errorf("digest of the rules = %q, want the recorded one", got)
	}
}

// FuzzTOMLText: for what is not a control character JSON has the same rules, and is there
// to check with.
func FuzzTOMLText(f *testing.F) {
	for _, s := range []string{"", `a"b\c`, "new\nline\ttab\x00\x7f", "é\U0001F600", "\xff", "]\n[mcp_servers.x]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var back string
		if err := json.Unmarshal([]byte(tomlText(s)), &back); err != nil {
			t.Fatalf("%q: %v", tomlText(s), err)
		}
		if utf8.ValidString(s) && back != s {
			t.Fatalf("%q became %q; want not (utf8.ValidString(s) && back != s)", s, back)
		}
	})
}
