package agents

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// TestAConversationBelongsToOneSession: a program that calls its own by the name of another
// one's is not believed, and does not stand in its place when that is gone on with.
func TestAConversationBelongsToOneSession(t *testing.T) {
	a := &Agents{cfg: Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}}
	folder := func(id string) *agent {
		dir, err := a.keepFolder(id, "")
		if err != nil || dir != filepath.Join(a.kept(), id) {
			t.Fatalf("folder = %q, %v; want %q", dir, err, filepath.Join(a.kept(), id))
		}
		return &agent{kept: dir}
	}
	older, newer := folder("pty-1-0a"), folder("pty-2-0a")
	if !a.named(newer, "conversation-2") || !a.named(older, "conversation-1") || !a.named(older, "conversation-1") {
		t.Error("their own names are refused")
	}
	for _, token := range []string{"conversation-2", "", "../conversation", "--flag", "a b", "a\nb"} {
		if a.named(older, token) {
			t.Errorf("%q is taken; want not a.named(older, token)", token)
		}
	}
	if older.token != "conversation-1" {
		t.Errorf(`it is called %q; want older.token = "conversation-1"`, older.token)
	}
	for token, want := range map[string]string{
		"conversation-1": older.kept, "conversation-2": newer.kept,
		"../pty-1-0a": filepath.Join(a.kept(), "pty-3-0a"),
	} {
		if dir, err := a.keepFolder("pty-3-0a", token); dir != want || err != nil {
			t.Errorf("%s: %s %v; want dir = %v, no error", token, dir, err, want)
		}
	}
	again := &agent{kept: newer.kept} // it goes on there
	if !a.named(again, "conversation-2") || !a.named(again, "conversation-3") {
		t.Error("a conversation that is gone on with is refused")
	}
	if data, err := os.ReadFile(filepath.Join(newer.kept, resumeFile)); string(data) != "conversation-3\n" {
		t.Errorf(`%q %v; want string(data) = "conversation-3\n"`, data, err)
	}
}
