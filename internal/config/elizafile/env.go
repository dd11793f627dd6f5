package elizafile

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Env is a config.env: KEY=value lines of which the last one of a key counts.
// Comments, blank lines and whatever else stands in the file are kept.
type Env struct{ lines []line }

// line is one of the file without its end; key is "" where it defines nothing.
// Values are decoded only when they are asked for: those of others are not ours
// to judge.
type line struct{ text, key string }

// ParseEnv parses a file; it accepts any content.
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

// Get is the value of the last line that defines key, "" without one. One that
// cannot be read is an error that names the line and not the value.
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

// unquote reads a value: bare, literal in single quotes, or in double quotes with
// the escapes \\ \" \n and \r, which are read in one pass from the left. Two
// passes, as the original has them, turn an escaped backslash before an n into a
// line end.
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
			default: // no escape: it stands for itself
				b.WriteByte('\\')
				b.WriteByte(rest[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return "", ended("", false)
}

func ended(after string, closed bool) error {
	switch after = strings.TrimSpace(after); {
	case !closed:
		return fmt.Errorf("has no closing quote")
	case after != "" && after[0] != '#':
		return fmt.Errorf("goes on behind its closing quote")
	}
	return nil
}

// Set defines key in the place of its last line, or at the end of the file, and
// takes away its other lines; an empty value takes all of them away. It fails for
// a key that is not a variable of ours: nothing that steers a loader or a shell may
// ever be written here.
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

// quote is the inverse of unquote. What holds a backslash goes into single quotes
// where it can: the original reads double ones in two passes, breaks the keys of
// a trust policy, and goes on without the policy.
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

// Bytes is the file.
func (e *Env) Bytes() ([]byte, error) {
	var b bytes.Buffer
	for _, l := range e.lines {
		b.WriteString(l.text)
		b.WriteByte('\n')
	}
	return b.Bytes(), nil
}
