package command

import (
	"strings"
)

// Line is a message in the form of a command. The command may not exist.
type Line struct {
	Name      string // in lower case, without the slash
	Extension string // of /name:ext.id, else ""
	Rest      string // the text after the name, unchanged
}

// Parse splits a message into command name and rest. It returns false for a message that is not a
// command, for example a pasted path, and for a name of more than 32 bytes, unless registered
// reports that the command exists. A suffix after the name, as in /deploy@bot, is dropped.
// registered may be nil.
func Parse(text string, registered func(name string) bool) (Line, bool) {
	i := skipSeparators(text, 0)
	if i == len(text) || text[i] != '/' {
		return Line{}, false
	}
	text = text[i+1:]
	end := 0
	for end < len(text) && end <= maxName && nameByte(text[end], end) {
		end++
	}
	line := Line{Name: strings.ToLower(text[:end])}
	if end == 0 || end > maxTyped && (registered == nil || !registered(line.Name)) {
		return Line{}, false
	}
	rest := text[end:]
	if strings.HasPrefix(rest, ":") {
		n := 1
		for n < len(rest) && n <= maxExtension+1 && idByte(rest[n]) {
			n++
		}
		if n == 1 || n > maxExtension+1 {
			return Line{}, false
		}
		line.Extension, rest = rest[1:n], rest[n:]
	}
	if strings.HasPrefix(rest, "@") {
		n := 1
		for n < len(rest) && (idByte(rest[n]) || rest[n] == ':') {
			n++
		}
		rest = rest[n:]
	}
	if rest != "" && !isSeparator(rest[0]) {
		return Line{}, false
	}
	line.Rest = rest
	return line, true
}

// Chat returns the text of a message that is not a command: //text is the escaped form of
// /text, and all other text is unchanged.
func Chat(text string) string {
	i := skipSeparators(text, 0)
	if strings.HasPrefix(text[i:], "//") {
		return text[:i] + text[i+1:]
	}
	return text
}

func letter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func digit(c byte) bool { return '0' <= c && c <= '9' }

func nameByte(c byte, at int) bool {
	return letter(c) || at > 0 && (digit(c) || c == '_' || c == '-')
}

func idByte(c byte) bool {
	return letter(c) || digit(c) || c == '.' || c == '_' || c == '-' || c == '~'
}

// word reports whether s has the form of an action's or flag's name.
func word(s string) bool {
	for i := range len(s) {
		if !nameByte(s[i], i) {
			return false
		}
	}
	return s != ""
}
