package agents

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
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

func TestAContinuedConversationKeepsItsModel(t *testing.T) {
	const token = "0123456789abcdef"
	mine := model{name: "some-model", url: "http://127.0.0.1:1"}
	for _, tt := range []struct {
		name    string
		by      string
		program programs.Name
		request Request
		want    model
	}{
		{"named no model", "user:a", programs.Claude, Request{ResumeToken: token}, mine},
		{"names another model", "user:a", programs.Claude, Request{ResumeToken: token, Model: "other"}, model{name: "other"}},
		{"is another conversation", "user:a", programs.Claude, Request{ResumeToken: "fedcba9876543210"}, model{}},
		{"is another program", "user:a", programs.Codex, Request{ResumeToken: token}, model{}},
		{"is another person's", "user:b", programs.Claude, Request{ResumeToken: token}, model{}},
		{"is new", "user:a", programs.Claude, Request{}, model{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := &Agents{running: map[string]*agent{oneSession: {framework: programs.Claude, owner: "user:a", token: token, model: mine}}}
			a.sameModel(capability.Principal{ID: tt.by}, tt.program, &tt.request)
			if got := (model{tt.request.Model, tt.request.Provider, tt.request.BaseURL}); got != tt.want {
				t.Errorf("sameModel = %+v, want %+v", got, tt.want)
			}
		})
	}
}
