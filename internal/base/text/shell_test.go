package text_test

import (
	"os/exec"
	"testing"

	"github.com/junctor-run/junctor/internal/base/text"
)

func TestShellWordsAreQuotedWhereAShellWouldReadMore(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"": "''", "/a/b-c_d.e": "/a/b-c_d.e", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'", "a;b": "'a;b'", "~": "'~'", "*": "'*'",
		"a\nb": "'a\nb'",
	} {
		got := text.ShellWord(word)
		if got != want {
			t.Errorf("ShellWord(%q): got %s, want %s", word, got, want)
		}
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+got).Output(); err != nil || string(out) != word {
			t.Errorf("a shell reads %s: got %q and %v, want %q", got, out, err, word)
		}
	}
}
