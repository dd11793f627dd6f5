package elizafile

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Env is the content of a config.env: KEY=value lines, of which the last one of a key counts.
// Comments, blank lines and all other content are preserved.
type Env struct{ lines []line }

// line is one line without its line feed; key is "" if it defines no variable. Values are
// parsed only by Get, so that malformed values of other variables cause no errors.
type line struct{ text, key string }

// ParseEnv parses the content of a file. It accepts any content.
func ParseEnv(data []byte) *Env {
	e := new(Env)
	text := strings.TrimPrefix(string(data), "\ufeff")
	if text == "" {
		return e
	}
	grammar := keyGrammar()
	for one := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		l := line{text: one}
		if key, _, ok := strings.Cut(one, "="); ok {
			if key = strings.TrimSpace(key); grammar.MatchString(key) {
				l.key = key
			}
		}
		e.lines = append(e.lines, l)
	}
	return e
}

func keyGrammar() *regexp.Regexp { return regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`) }

// Names lists the keys that are defined, each once, in the order of the file.
func (e *Env) Names() []string {
	var out []string
	for _, l := range e.lines {
		if l.key != "" && !slices.Contains(out, l.key) {
			out = append(out, l.key)
		}
	}
	return out
}

// Get returns the value of the last line that defines key, "" if no line does. The error for
// a malformed value names the line but does not quote the value.
func (e *Env) Get(key string) (string, error) {
	for i, l := range slices.Backward(e.lines) {
		if l.key != key {
			continue
		}
		_, raw, _ := strings.Cut(l.text, "=")
		value, err := unquote(strings.TrimSpace(raw))
		if err != nil {
			return "", fmt.Errorf("line %d: the value of %s %w", i+1, key, err)
		}
		return value, nil
	}
	return "", nil
}

// unquote parses a value: unquoted, literal in single quotes, or in double quotes with the
// escapes \\ \" \n and \r. It resolves escapes in one pass from the left; the two passes of
// the original turn an escaped backslash before an n into a line feed.
func unquote(raw string) (string, error) {
	if raw == "" || raw[0] != '"' && raw[0] != '\'' {
		return raw, nil
	}
	quote, rest := raw[0], raw[1:]
	if quote == '\'' {
		value, after, closed := strings.Cut(rest, "'")
		return value, ended(after, closed)
	}
	var b strings.Builder
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; c {
		case '"':
			return b.String(), ended(rest[i+1:], true)
		case '\\':
			if i++; i == len(rest) {
				return "", ended("", false)
			}
			switch rest[i] {
			case 'n':
				b.WriteByte('\n')
			case 'r':
				b.WriteByte('\r')
			case '\\', '"':
				b.WriteByte(rest[i])
			default: // not an escape: the backslash is literal
				b.WriteByte('\\')
				b.WriteByte(rest[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return "", ended("", false)
}

// ended checks that a quoted value has its closing quote and that only a comment follows.
func ended(after string, closed bool) error {
	switch after = strings.TrimSpace(after); {
	case !closed:
		return fmt.Errorf("has no closing quote")
	case after != "" && after[0] != '#':
		return fmt.Errorf("goes on behind its closing quote")
	}
	return nil
}

// Set replaces the last line of key, or adds one at the end of the file, and removes the
// key's other lines; an empty value removes them all. It fails unless key is an ELIZA_
// variable, so that a variable that controls a loader or a shell can never be written, and
// for a value that is not text.
func (e *Env) Set(key, value string) error {
	if !keyGrammar().MatchString(key) || !strings.HasPrefix(key, prefix) {
		return fmt.Errorf("%q is not a variable that may be set", key)
	}
	if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
		return fmt.Errorf("the value of %s is not text", key)
	}
	last := -1
	for i, l := range e.lines {
		if l.key == key {
			last = i
		}
	}
	kept := e.lines[:0:0]
	for i, l := range e.lines {
		switch {
		case l.key != key:
			kept = append(kept, l)
		case i == last && value != "":
			kept = append(kept, line{key + "=" + quote(value), key})
		}
	}
	if last < 0 && value != "" {
		kept = append(kept, line{key + "=" + quote(value), key})
	}
	e.lines = kept
	return nil
}

// quote is the inverse of unquote. It writes a value with a backslash in single quotes if
// possible: the original parses double quotes in two passes, which would corrupt the keys of
// a trust policy, and would continue without the policy.
func quote(value string) string {
	if strings.Contains(value, `\`) && !strings.ContainsAny(value, "'\r\n") {
		return "'" + value + "'"
	}
	if !strings.ContainsAny(value, "#\"'\\") && !strings.ContainsFunc(value, isSpace) {
		return value
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`).Replace(value) + `"`
}

func isSpace(r rune) bool { return strings.TrimSpace(string(r)) == "" }

// Bytes returns the content of the file. The error is always nil.
func (e *Env) Bytes() ([]byte, error) {
	var b bytes.Buffer
	for _, l := range e.lines {
		b.WriteString(l.text)
		b.WriteByte('\n')
	}
	return b.Bytes(), nil
}
