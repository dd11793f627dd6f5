// Package text shortens and normalises strings. Limits count bytes or runes, as the
// name of a function states, and a cut never divides a valid character. The functions
// differ in what they do with invalid UTF-8; unless their comment mentions it, they
// keep it.
package text

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const ellipsis = "…"

// CutBytes returns the longest prefix of s that has at most maxBytes bytes and ends
// before the beginning of a character.
func CutBytes(s string, maxBytes int) string {
	if len(s) <= maxBytes {
		return s
	}
	for maxBytes > 0 && !utf8.RuneStart(s[maxBytes]) {
		maxBytes--
	}
	return s[:maxBytes]
}

// ClipBytes returns s if it has at most maxBytes bytes. Otherwise it returns its first
// maxBytes bytes without those that are not valid UTF-8.
func ClipBytes(s string, maxBytes int) string {
	if len(s) <= maxBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxBytes], "")
}

// ShortenBytes is ClipBytes with an ellipsis after a text that was cut. The ellipsis
// does not count.
func ShortenBytes(s string, maxBytes int) string {
	if len(s) <= maxBytes {
		return s
	}
	return ClipBytes(s, maxBytes) + ellipsis
}

// ValidBytes returns at most the first maxBytes bytes of s, without those that are not
// valid UTF-8.
func ValidBytes(s string, maxBytes int) string {
	return strings.ToValidUTF8(s[:min(len(s), maxBytes)], "")
}

// CutRunes returns the first maxRunes runes of s. Invalid bytes of a text that is cut
// become U+FFFD.
func CutRunes(s string, maxRunes int) string {
	if end := runes(s, maxRunes); end < len(s) {
		return string([]rune(s[:end]))
	}
	return s
}

// ShortenRunes is CutRunes with an ellipsis after a text that was cut. The ellipsis
// does not count.
func ShortenRunes(s string, maxRunes int) string {
	if runes(s, maxRunes) < len(s) {
		return CutRunes(s, maxRunes) + ellipsis
	}
	return s
}

// FitRunes is CutRunes with an ellipsis as the last rune of a text that was cut.
func FitRunes(s string, maxRunes int) string {
	if runes(s, maxRunes) < len(s) {
		return CutRunes(s, maxRunes-1) + ellipsis
	}
	return s
}

// LastRunes returns the last maxRunes runes of s. Invalid bytes of a text that is cut
// become U+FFFD.
func LastRunes(s string, maxRunes int) string {
	if len(s) <= maxRunes {
		return s
	}
	if r := []rune(s); len(r) > maxRunes {
		return string(r[len(r)-maxRunes:])
	}
	return s
}

// runes returns the length in bytes of the first maxRunes runes of s.
func runes(s string, maxRunes int) int {
	if len(s) <= maxRunes {
		return len(s)
	}
	for i := range s {
		if maxRunes--; maxRunes < 0 {
			return i
		}
	}
	return len(s)
}

// OneLine returns the words of s, separated by single spaces.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Fold returns s on one line and in lower case, so that texts can be compared.
func Fold(s string) string { return OneLine(strings.ToLower(s)) }

// Line returns s on one line of at most maxRunes runes, without bytes that are not valid
// UTF-8. A text that was cut ends in an ellipsis, without a space before it.
func Line(s string, maxRunes int) string {
	s = OneLine(strings.ToValidUTF8(s, ""))
	if runes(s, maxRunes) == len(s) {
		return s
	}
	return strings.TrimSpace(CutRunes(s, maxRunes-1)) + ellipsis
}

// StripControl removes control characters except newline and tab, the replacement
// character, and bytes that are not valid UTF-8.
func StripControl(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || r == utf8.RuneError {
			return -1
		}
		return r
	}, s)
}

// Visible returns s on one line, with escapes such as \u202e for characters that a screen does not
// show or that change how it shows others: control, format, and blank characters.
func Visible(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !strconv.IsPrint(r) || blank(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// VisibleLines applies [Visible] to each line of a text, without empty lines around it.
func VisibleLines(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for i, line := range lines {
		lines[i] = Visible(line)
	}
	return strings.Join(lines, "\n")
}

// Quote returns s as a quoted string, with escapes as in [Visible].
func Quote(s string) string { return Visible(strconv.Quote(s)) }

// blank reports whether a character counts as printable but has no visible form.
func blank(r rune) bool {
	switch r {
	case 0x034f, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x2800, 0x3164, 0xffa0:
		return true
	}
	return r >= 0x180b && r <= 0x180f || r >= 0xfe00 && r <= 0xfe0f || r >= 0xe0000 && r <= 0xe0fff
}
