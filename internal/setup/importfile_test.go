package setup_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/setup/setupserve"
)

func TestImportAddsServersAndLeavesTheFile(t *testing.T) {
	t.Parallel()
	r := open(t)
	req := setupserve.Import{File: "/x/mcp.json", Text: claude, Move: []string{"*"}, DryRun: true}
	plan, err := r.Import(t.Context(), admin(), req)
	if err != nil || len(r.upstreams.added) > 0 {
		t.Fatalf("a dry run: %v, added %v; want no error and no upstream", err, r.upstreams.added)
	}
	if d := cmp.Diff([]string{"files-files-token"}, plan.Secrets); d != "" {
		t.Errorf("secrets of the plan (-want +got):\n%s", d)
	}
	req.DryRun = false
	done, err := r.Import(t.Context(), admin(), req)
	if err != nil {
		t.Fatalf("importing the file: %v", err)
	}
	if d := cmp.Diff(map[string]string{"files": "files"}, done.Moved); d != "" {
		t.Errorf("moved (-want +got):\n%s", d)
	}
	if done.Left["bad"] == "" {
		t.Errorf("left = %v, want bad with its reason", done.Left)
	}
	if again, err := r.Import(t.Context(), admin(), req); err != nil || len(r.upstreams.added) != 1 || again.Moved["files"] != "files" {
		t.Errorf("importing it again: %v, %v, upstreams %v; want the same upstream", err, again.Moved, r.upstreams.added)
	}
}

func TestAServerWithAnotherCredentialGetsAnotherNameAndSecret(t *testing.T) {
	t.Parallel()
	r := open(t)
	text := func(token string) string {
		return `{"mcpServers": {"files": {"command": "files", "env": {"TOKEN": "` + token + `"}}}}`
	}
	for _, token := range []string{"very-secret-1", "very-secret-2", "very-secret-3"} {
		req := setupserve.Import{File: "mcp.json", Text: text(token), Move: []string{"files"}}
		if _, err := r.Import(t.Context(), admin(), req); err != nil {
			t.Fatalf("importing %s: %v", token, err)
		}
	}
	r.write(t, ".claude.json", text("very-secret-4"))
	if _, err := r.Connect(t.Context(), admin(), "claude", setupserve.Request{Move: []string{"*"}}); err != nil {
		t.Fatalf("connecting claude: %v", err)
	}
	for name, want := range map[string]string{
		"files-token": "very-secret-1", "files-2-token": "very-secret-2", "files-3-token": "very-secret-3", "files-claude-token": "very-secret-4",
	} {
		if v, err := r.secrets.Get(name); err != nil || v.Reveal() != want {
			t.Errorf("secret %s: %v, want the value that belongs to it", name, err)
		}
	}
}

func TestAFileOfUnknownFormIsRefused(t *testing.T) {
	t.Parallel()
	r := open(t)
	for _, text := range []string{``, `[]`, `{"servers": 3}`, `{"tools": {"x": {"command": "y"}}}`, `{"mcpServers": `} {
		_, err := r.Import(t.Context(), admin(), setupserve.Import{File: "mcp.json", Text: text, Move: []string{"*"}})
		if e := capability.AsError(err); e == nil || e.Reason != "client_config" {
			t.Errorf("Import(%q) = %v, want reason client_config", text, err)
		}
	}
	if len(r.upstreams.added) > 0 {
		t.Errorf("upstreams = %v, want none", r.upstreams.added)
	}
}
