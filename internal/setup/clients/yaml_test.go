package clients_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/overlay"
	"github.com/junctor-run/junctor/internal/setup/clients"
)

// TestYAMLIsEditedAsText connects goose with files of many forms, and undoes it to the byte.
func TestYAMLIsEditedAsText(t *testing.T) {
	t.Parallel()
	goose, err := clients.Find("goose")
	if err != nil {
		t.Fatalf("finding goose: %v", err)
	}
	files := "  files: {type: stdio, cmd: x, args: []}\n"
	for name, text := range map[string]string{
		"empty":          "",
		"comments only":  "# nothing yet\n",
		"no extensions":  "GOOSE_MODE: auto\n",
		"no value":       "extensions:\nGOOSE_MODE: auto\n",
		"no value, last": "GOOSE_MODE: auto\nextensions:",
		"no end of line": "extensions:\n  files:\n    type: stdio\n    cmd: x",
		"Windows":        strings.ReplaceAll("a: 1\nextensions:\n"+files+"b: 2\n", "\n", "\r\n"),
		"two documents":  "---\nextensions:\n" + files,
		"connected":      "extensions:\n" + files + "  junctor:\n    type: stdio\n    cmd: /old\n",
		"deep":           "extensions:\n        files:\n                type: stdio\n                cmd: x\n# end\nz: [1,\n  2]\n",
		"text like it":   "prompt: |\n  extensions:\n    x: 1\nextensions:\n" + files + "  # last\n\n\nz: 1\n",
		"quoted":         "extensions:\n  'files':\n    type: stdio\n    cmd: \"a: b # c\"\n    args:\n    - '--x: y'\n",
		"UTF-8":          "extensions:\n  files:\n    type: stdio\n    cmd: x\n    description: grüße ☂\n",
	} {
		home := t.TempDir()
		file := goose.File(home, env)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatalf("making the folder: %v", err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatalf("writing the file: %v", err)
		}
		now, err := goose.Read(file)
		if err != nil {
			t.Errorf("%s: Read: %v", name, err)
			continue
		}
		var move []string
		if strings.Contains(text, "files") && name != "Windows" { // both with and without a removal
			move = []string{"files"}
		}
		changes, left, err := goose.Plan(home, file, now, clients.Server{Command: `/opt/my "junctor`, Args: []string{"mcp", "--client", "goose"}}, move)
		if err != nil || len(left) > 0 {
			t.Errorf("%s: Plan: %v, left %v; want neither", name, err, left)
			continue
		}
		journal := filepath.Join(t.TempDir(), "journal")
		if err := overlay.Apply(t.Context(), journal, "setup", changes); err != nil {
			t.Errorf("%s: Apply: %v", name, err)
			continue
		}
		after, err := goose.Read(file)
		if err != nil || !after.Connected || len(after.Servers) != len(now.Servers)-len(move) {
			t.Errorf("%s: after: %+v, %v; want junctor and %d servers:\n%s", name, after.Servers, err, len(now.Servers)-len(move), after.Text)
		}
		if err := overlay.Undo(t.Context(), journal); err != nil {
			t.Errorf("%s: Undo: %v", name, err)
		}
		got, err := os.ReadFile(file)
		if d := cmp.Diff(text, string(got)); err != nil && text != "" || d != "" {
			t.Errorf("%s: after the undo: %v (-want +got):\n%s", name, err, d)
		}
	}
}

func TestYAMLThatCannotBeEditedSafelyStays(t *testing.T) {
	t.Parallel()
	goose, err := clients.Find("goose")
	if err != nil {
		t.Fatalf("finding goose: %v", err)
	}
	for name, text := range map[string]string{
		"flow":      "extensions: {files: {type: stdio, cmd: x}}\n",
		"flow null": "extensions: {}\n",
		"quoted":    "\"extensions\":\n  files: {type: stdio, cmd: x}\n",
		"flow top":  "{extensions: {files: {type: stdio, cmd: x}}}\n",
	} {
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatalf("writing the file: %v", err)
		}
		now, err := goose.Read(file)
		if err != nil {
			t.Errorf("%s: Read: %v", name, err)
			continue
		}
		changes, _, err := goose.Plan(filepath.Dir(file), file, now, clients.Server{Command: "/bin/junctor"}, nil)
		if e := capability.AsError(err); e == nil || e.Reason != "client_config" || !strings.Contains(e.Message, file) {
			t.Errorf("%s: Plan = %v, %v; want client_config with the file", name, changes, err)
		}
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	anchored := "extensions:\n  files: &f {type: stdio, cmd: x}\n  more:\n    type: stdio\n    cmd: y\n  more2: {type: stdio, cmd: z}\n"
	if err := os.WriteFile(file, []byte(anchored), 0o600); err != nil {
		t.Fatalf("writing the file: %v", err)
	}
	now, err := goose.Read(file)
	if err != nil {
		t.Fatalf("reading anchors: %v", err)
	}
	_, left, err := goose.Plan(filepath.Dir(file), file, now, clients.Server{Command: "/bin/junctor"}, []string{"files", "more", "none"})
	if err != nil || len(left) != 1 || left["none"] == "" {
		t.Errorf("Plan = %v, left %v; want only none left", err, left)
	}
}
