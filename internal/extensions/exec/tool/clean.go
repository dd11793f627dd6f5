package tool

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// redacted replaces a secret.
const redacted = "[redacted]"

// Clean makes a program's output safe for a terminal, storage and a model: it removes escape
// sequences and control characters except newline and tab, replaces marks that change the direction
// of text with visible text and invalid UTF-8 with U+FFFD, and redacts the secrets.
func Clean(text string, secrets []string) string {
	for _, s := range secrets {
		text = strings.ReplaceAll(text, s, redacted)
	}
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); {
		c := text[i]
		if c == 0x1b {
			i += escape(text[i:])
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		i += size
		switch {
		case r == '\r': // part of a line end; a lone one could overwrite the text before it
			if i < len(text) && text[i] == '\n' {
				continue
			}
			b.WriteByte('\n')
		case r == '\n', r == '\t':
			b.WriteRune(r)
		case r < 0x20, r == 0x7f, r >= 0x80 && r < 0xa0:
		case unicode.Is(unicode.Bidi_Control, r):
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteRune(r) // RuneError is U+FFFD
		}
	}
	out := b.String()
	for _, s := range secrets { // again, for secrets that an escape sequence had split
		out = strings.ReplaceAll(out, s, redacted)
	}
	return out
}

// escape returns the length in bytes of the escape sequence that s begins with: CSI up
// to its final byte, OSC, DCS and similar up to their terminator, others two bytes.
func escape(s string) int {
	if len(s) < 2 {
		return len(s)
	}
	switch s[1] {
	case '[':
		for i := 2; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return i + 1
			}
			if s[i] < 0x20 || s[i] > 0x3f { // not a valid sequence
				return i
			}
		}
		return len(s)
	case ']', 'P', '_', '^', 'X':
		for i := 2; i < len(s); i++ {
			if s[i] == 0x07 {
				return i + 1
			}
			if s[i] == 0x1b {
				if i+1 < len(s) && s[i+1] == '\\' {
					return i + 2
				}
				return i
			}
			if s[i] == '\n' { // an unterminated sequence must not hide the rest
				return i
			}
		}
		return len(s)
	}
	if s[1] < 0x20 || s[1] >= 0x80 {
		return 1
	}
	return 2
}

// isBinary reports whether there is a NUL in the first binaryHead bytes.
func isBinary(out []byte) bool {
	for _, c := range out[:min(len(out), binaryHead)] {
		if c == 0 {
			return true
		}
	}
	return false
}
