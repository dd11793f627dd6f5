package sessions

import (
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

// EncodeKeys returns the bytes that each key sends. It fails with invalid_input, reason
// unknown_key, which names the first unknown key.
func EncodeKeys(names []string) ([][]byte, error) {
	if len(names) > MaxKeys {
		return nil, capability.Errorf(capability.CodeTooLarge, "tasks.keys", "%d keys at most can be sent at once", MaxKeys)
	}
	out := make([][]byte, 0, len(names))
	for _, name := range names {
		text, ok := sequence(strings.ToLower(strings.TrimSpace(name)))
		if !ok {
			return nil, capability.Errorf(capability.CodeInvalidInput, "tasks.keys", "there is no key %.40q", name).
				With("unknown_key", "keys are named like enter, tab, esc, up, pagedown, f5, ctrl+c, alt+b, shift+tab")
		}
		out = append(out, []byte(text))
	}
	return out, nil
}

// Bits of modifiers in xterm's sequences, which send their sum plus one.
const (
	shift = 1 << iota
	alt
	ctrl
)

func sequence(name string) (string, bool) {
	held := 0
	key := name
	for {
		word, rest, more := strings.Cut(key, "+")
		bit := 0
		switch word {
		case "shift":
			bit = shift
		case "alt", "option", "meta":
			bit = alt
		case "ctrl", "control", "cmd", "command":
			bit = ctrl
		}
		if !more || rest == "" || bit == 0 {
			break
		}
		if held&bit != 0 {
			return "", false
		}
		held, key = held|bit, rest
	}
	if text, ok := cursor(key, held); ok {
		return text, true
	}
	text, ok := plainKeys(key, held&(shift|ctrl))
	if ok && held&alt != 0 {
		text = "\x1b" + text
	}
	return text, ok
}

// cursor returns the bytes of a key whose sequence contains its modifiers (xterm: PC-style
// function keys). ok is false for other keys.
func cursor(key string, held int) (string, bool) {
	modified := ""
	if held != 0 {
		modified = ";" + strconv.Itoa(held+1)
	}
	if final := map[string]string{"up": "A", "down": "B", "right": "C", "left": "D", "end": "F", "home": "H"}[key]; final != "" {
		if held == 0 {
			return "\x1b[" + final, true
		}
		return "\x1b[1" + modified + final, true
	}
	if n := map[string]int{
		"insert": 2, "delete": 3, "pageup": 5, "pagedown": 6, "f5": 15, "f6": 17, "f7": 18, "f8": 19, "f9": 20, "f10": 21,
		"f11": 23, "f12": 24,
	}[key]; n != 0 {
		return "\x1b[" + strconv.Itoa(n) + modified + "~", true
	}
	if final := map[string]string{"f1": "P", "f2": "Q", "f3": "R", "f4": "S"}[key]; final != "" {
		if held == 0 {
			return "\x1bO" + final, true
		}
		return "\x1b[1" + modified + final, true
	}
	return "", false
}

// plainKeys returns the bytes of a key that sends a character. held excludes alt, which the
// caller encodes.
func plainKeys(key string, held int) (string, bool) {
	switch key {
	case "enter", "return":
		if held == shift { // a line break in the input box, in kitty's keyboard protocol
			return "\x1b[13;2u", true
		}
		return "\r", held == 0
	case "tab":
		if held == shift {
			return "\x1b[Z", true
		}
		return "\t", held == 0
	case "space":
		if held == ctrl {
			return "\x00", true
		}
		return " ", held == 0
	case "backspace":
		return "\x7f", held == 0
	case "esc", "escape":
		return "\x1b", held == 0
	}
	if len(key) != 1 {
		return "", false
	}
	c := key[0]
	switch {
	case held == ctrl && (c >= 'a' && c <= 'z' || c >= '[' && c <= '_'):
		return string(c & 0x1f), true
	case held == shift && c >= 'a' && c <= 'z':
		return string(c &^ 0x20), true
	case held == 0 && c > ' ' && c < 0x7f:
		return key, true
	}
	return "", false
}
