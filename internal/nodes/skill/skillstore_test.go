package skill_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/nodes/skill"
	"github.com/junctor-run/junctor/protocol/cmp"
)

func stored(name string, revision int) skill.Stored {
	action := "a"
	return skill.Stored{
		Record: cmp.Record{
			SkillName: name, Revision: revision, State: cmp.StateActive, SHA256: "d", Metadata: cmp.RecordMetadata{RuntimeModules: []string{"m"}},
			Capabilities: map[string]cmp.CapabilityRecord{"x": {
				FunctionName: "f", ActionName: &action, Registered: true,
				Metadata: json.RawMessage(`{"k":1}`),
			}},
		},
		Payloads: map[string]json.RawMessage{"d": json.RawMessage(`{"unknown":1.50}`)}, From: map[string]string{"x": "d"},
		Code: map[string][]byte{"c": {0, 255}},
	}
}

func TestWhatIsPutIsThere(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "skills")
	f, err := skill.OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, s := range []skill.Stored{stored("a/../b@1", 1), stored("other", 1), stored("a/../b@1", 2), stored("gone", 1)} {
		if err := f.Put(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := f.Delete(ctx, "gone"); err != nil {
			t.Fatal(err)
		}
	}
	again, err := skill.OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := again.All(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]skill.Stored)
	for _, s := range all {
		got[s.Record.SkillName] = s
	}
	if diff := gocmp.Diff(map[string]skill.Stored{"a/../b@1": stored("a/../b@1", 2), "other": stored("other", 1)}, got); diff != "" {
		t.Errorf(`diff = %q, want ""`, diff)
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, _ := e.Info(); info.Mode().Perm() != 0o600 || strings.HasSuffix(e.Name(), ".tmp") {
			t.Errorf(`e.Info(): info.Mode().Perm() = %v, want 0o600; e.Name() = %q, want it not to end with ".tmp"`, info.Mode().Perm(), e.Name())
		}
	}
}

func TestAFileThatIsNoSkillIsSetAside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := skill.OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Put(t.Context(), stored("good", 1)); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"torn.json": `{"record":`, "stranger.json": `{"record":{"skill_name":"good"}}`,
		".123.tmp": "half", "notes.txt": "x",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if f, err = skill.OpenFiles(dir); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		all, err := f.All(t.Context())
		if err != nil || len(all) != 1 || all[0].Record.SkillName != "good" {
			t.Errorf(`err = %v, want nil; len(all) = %v, want 1; all = %+v, want all[0].Record.SkillName = "good"`, err, len(all), all)
		}
	}
	for name, there := range map[string]bool{"torn.json": false, "torn.json.broken": true, "stranger.json.broken": true, ".123.tmp": false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != there {
			t.Errorf("os.Stat(filepath.Join(dir, name)): (err == nil) = %v, want %v; name = %q", (err == nil), there, name)
		}
	}
}
