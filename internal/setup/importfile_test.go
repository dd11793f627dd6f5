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

// TestAnImportedServerStaysWhenItsClientIsUndone holds that an import counts as a wish of its own,
// for the server and its secrets, and for no other server of the client.
func TestAnImportedServerStaysWhenItsClientIsUndone(t *testing.T) {
	t.Parallel()
	r := open(t)
	const files = `"files": {"command": "files", "env": {"TOKEN": "very-secret-1"}}`
	r.write(t, ".claude.json", `{"mcpServers": {`+files+`, "files-2": {"command": "more", "env": {"TOKEN": "very-secret-2"}}}}`)
	if _, err := r.Connect(t.Context(), admin(), "claude", setupserve.Request{Move: []string{"*"}}); err != nil {
		t.Fatalf("connecting claude: %v", err)
	}
	req := setupserve.Import{File: "mcp.json", Text: `{"mcpServers": {` + files + `}}`, Move: []string{"*"}}
	if done, err := r.Import(t.Context(), admin(), req); err != nil || done.Moved["files"] != "files" {
		t.Fatalf("importing the server again = %v, %v; want the upstream files", done.Moved, err)
	}
	if _, err := r.Disconnect(t.Context(), admin(), "claude"); err != nil {
		t.Fatalf("undoing claude: %v", err)
	}
	if !r.upstreams.Has("files") || r.upstreams.Has("files-2") {
		t.Errorf("after the undo: upstreams %v, want files only", r.upstreams.added)
	}
	if v, err := r.secrets.Get("files-token"); err != nil || v.Reveal() != "very-secret-1" {
		t.Errorf("after the undo: secret files-token: %v, want its value", err)
	}
	if _, err := r.secrets.Get("files-2-token"); err == nil {
		t.Error("after the undo: secret files-2-token is stored, want it removed")
	}
}

func TestADryRunOfAnImportLeavesTheServerToItsClient(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.write(t, ".claude.json", claude)
	if _, err := r.Connect(t.Context(), admin(), "claude", setupserve.Request{Move: []string{"*"}}); err != nil {
		t.Fatalf("connecting claude: %v", err)
	}
	if _, err := r.Import(t.Context(), admin(), setupserve.Import{File: "mcp.json", Text: claude, Move: []string{"*"}, DryRun: true}); err != nil {
		t.Fatalf("a dry run of the import: %v", err)
	}
	if _, err := r.Disconnect(t.Context(), admin(), "claude"); err != nil || len(r.upstreams.added) > 0 {
		t.Errorf("undoing claude: %v, upstreams %v; want none", err, r.upstreams.added)
	}
}
