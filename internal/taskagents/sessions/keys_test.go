package sessions_test

import (
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

func TestKeys(t *testing.T) {
	for name, want := range map[string]string{
		"enter": "\r", "Return": "\r", "shift+enter": "\x1b[13;2u", "tab": "\t", "shift+tab": "\x1b[Z", "space": " ", "ctrl+space": "\x00",
		"backspace": "\x7f", "alt+backspace": "\x1b\x7f", "delete": "\x1b[3~", "insert": "\x1b[2~", "esc": "\x1b", "escape": "\x1b",
		"up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D", "home": "\x1b[H", "end": "\x1b[F", "pageup": "\x1b[5~",
		"pagedown": "\x1b[6~",
		"f1":       "\x1bOP", "f4": "\x1bOS", "f5": "\x1b[15~", "f12": "\x1b[24~", "shift+f1": "\x1b[1;2P",
		"ctrl+a": "\x01", "Ctrl+C": "\x03", "control+z": "\x1a", "cmd+c": "\x03", "command+c": "\x03", "ctrl+[": "\x1b", "ctrl+\\": "\x1c",
		"ctrl+]": "\x1d", "ctrl+^": "\x1e", "ctrl+_": "\x1f",
		"alt+b": "\x1bb", "option+b": "\x1bb", "meta+enter": "\x1b\r", "ctrl+left": "\x1b[1;5D", "shift+up": "\x1b[1;2A",
		"alt+right": "\x1b[1;3C", "ctrl+shift+down": "\x1b[1;6B",
		"y": "y", "1": "1", "?": "?", "shift+y": "Y", "alt++": "\x1b+",
	} {
		got, err := sessions.EncodeKeys([]string{name})
		if err != nil || string(got[0]) != want {
			t.Errorf("%s: %q %v, want %q", name, got, err, want)
		}
	}
}

func TestWhatIsNoKey(t *testing.T) {
	for _, name := range []string{
		"", "entr", "ctrl+", "ctrl+ctrl+a", "ctrl+1", "hello", "ä", "\x1b[A", "ctrl+enter", "f13", "+", "shift+?",
		" ",
	} {
		if name == "+" {
			continue // a character like others
		}
		got, err := sessions.EncodeKeys([]string{"enter", name})
		if e := capability.AsError(err); err == nil || e.Reason != "unknown_key" || got != nil {
			t.Errorf(`%q: %q %v; want an error, e.Reason = "unknown_key", got = nil`, name, got, err)
		}
	}
	if _, err := sessions.EncodeKeys(make([]string, sessions.MaxKeys+1)); capability.CodeOf(err) != capability.CodeTooLarge {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeTooLarge", err)
	}
}

// FuzzBytes: whatever is asked for, what comes is short and one key.
func FuzzBytes(f *testing.F) {
	f.Add("ctrl+alt+shift+up")
	f.Fuzz(func(t *testing.T, name string) {
		got, err := sessions.EncodeKeys([]string{name})
		if err == nil && (len(got) != 1 || len(got[0]) == 0 || len(got[0]) > 8 || strings.Count(string(got[0]), "\x1b") > 2) {
			t.Errorf("%q sends %q", name, got)
		}
	})
}
