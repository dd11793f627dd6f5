package text_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/junctor-run/junctor/internal/base/text"
)

func TestCutsRespectCharacters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		f    func(string, int) string
		s    string
		n    int
		want string
	}{
		{"CutBytes", text.CutBytes, "abc", 3, "abc"},
		{"CutBytes", text.CutBytes, "abc", 2, "ab"},
		{"CutBytes", text.CutBytes, "aé", 2, "a"},
		{"CutBytes", text.CutBytes, "é", 1, ""},
		{"CutBytes", text.CutBytes, "\x80\x80", 1, ""},
		{"CutBytes", text.CutBytes, "a\xffb", 2, "a\xff"},
		{"ClipBytes", text.ClipBytes, "a\xff", 2, "a\xff"},
		{"ClipBytes", text.ClipBytes, "a\xffé", 3, "a"},
		{"ShortenBytes", text.ShortenBytes, "abc", 3, "abc"},
		{"ShortenBytes", text.ShortenBytes, "abé", 3, "ab…"},
		{"ValidBytes", text.ValidBytes, "a\xff", 5, "a"},
		{"ValidBytes", text.ValidBytes, "aé", 2, "a"},
		{"CutRunes", text.CutRunes, "éé", 2, "éé"},
		{"CutRunes", text.CutRunes, "ééé", 2, "éé"},
		{"CutRunes", text.CutRunes, "\xffé", 3, "\xffé"},
		{"CutRunes", text.CutRunes, "\xffab", 2, "\uFFFDa"},
		{"CutRunes", text.CutRunes, "a", 0, ""},
		{"ShortenRunes", text.ShortenRunes, "éé", 2, "éé"},
		{"ShortenRunes", text.ShortenRunes, "ééé", 2, "éé…"},
		{"FitRunes", text.FitRunes, "éé", 2, "éé"},
		{"FitRunes", text.FitRunes, "ééé", 2, "é…"},
		{"LastRunes", text.LastRunes, "éab", 2, "ab"},
		{"LastRunes", text.LastRunes, "é", 1, "é"},
		{"Line", text.Line, " a\n\tb\xff ", 3, "a b"},
		{"Line", text.Line, "a bcd", 3, "a…"},
	} {
		if got := c.f(c.s, c.n); got != c.want {
			t.Errorf("%s(%q, %d) = %q, want %q", c.name, c.s, c.n, got, c.want)
		}
	}
}

func TestNormalForms(t *testing.T) {
	t.Parallel()
	if got, want := text.OneLine(" a\n b\u00a0c"), "a b c"; got != want {
		t.Errorf("OneLine() = %q, want %q", got, want)
	}
	if got, want := text.Fold("A\tÉ"), "a é"; got != want {
		t.Errorf("Fold() = %q, want %q", got, want)
	}
	if got, want := text.StripControl("a\x1b\r\n\tb\xff\uFFFD\u0085"), "a\n\tb"; got != want {
		t.Errorf("StripControl() = %q, want %q", got, want)
	}
}

func FuzzCuts(f *testing.F) {
	f.Add("aé…", 2)
	f.Add("\xff\x80é", 1)
	f.Fuzz(func(t *testing.T, s string, n int) {
		if n < 1 || n > 1<<10 {
			return
		}
		r := []rune(s)
		cut := s
		if len(r) > n {
			cut = string(r[:n])
		}
		if got := text.CutRunes(s, n); got != cut {
			t.Errorf("CutRunes(%q, %d) = %q, want %q", s, n, got, cut)
		}
		if got := text.FitRunes(s, n); utf8.RuneCountInString(got) > n {
			t.Errorf("FitRunes(%q, %d) = %q, which is longer; want utf8.RuneCountInString(got) at most %v", s, n, got, n)
		}
		if got := text.CutBytes(s, n); len(got) > n || !strings.HasPrefix(s, got) {
			t.Errorf("CutBytes(%q, %d) = %q, want a prefix of at most %d bytes", s, n, got, n)
		}
	})
}

func TestInvisibleCharactersAreEscaped(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain é 漢 👍":    "plain é 漢 👍",
		"a\u202eb\u200b": `a\u202eb\u200b`,
		"\x1b[2K\n":      `\x1b[2K\n`,
		"\u3164\ufe0f":   `\u3164\ufe0f`,
		"\U000e0041":     `\U000e0041`,
		"\xff\ufffd":     "\\xff\ufffd",
		"'":              "'",
	} {
		if got := text.Visible(in); got != want {
			t.Errorf("Visible(%q) = %q, want %q", in, got, want)
		}
	}
	if got, want := text.Quote("a\"\u200b\u3164"), `"a\"\u200b\u3164"`; got != want {
		t.Errorf("Quote() = %s, want %s", got, want)
	}
}
