package setup_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/internal/setup/setupserve"
)

// TestAnEntryWithAURLHasATokenThatIsNeverShown connects over HTTP, and undoes it.
func TestAnEntryWithAURLHasATokenThatIsNeverShown(t *testing.T) {
	t.Parallel()
	for client, name := range map[string]string{"claude": ".claude.json", "codex": ".codex/config.toml", "goose": ".config/goose/config.yaml"} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			before := map[string]string{"claude": claude, "codex": "model = \"mine\" # a comment\n", "goose": "A: 1 # a comment\n"}[client]
			file := r.write(t, name, before)
			if err := os.Chmod(file, 0o644); err != nil {
				t.Fatalf("changing the mode of the file: %v", err)
			}
			req := setupserve.Request{HTTP: true, DryRun: true}
			for _, dry := range []bool{true, false} {
				_, err := r.Connect(t.Context(), admin(), client, setupserve.Request{HTTP: true, DryRun: dry})
				if e := capability.AsError(err); e == nil || e.Reason != "client_file_open" || !strings.Contains(e.Hint, "chmod 600 "+file+",") {
					t.Errorf("a file that others may read, dry run %v: %v, want client_file_open with the command", dry, err)
				}
			}
			if err := os.Chmod(file, 0o600); err != nil || read(t, file) != before {
				t.Fatalf("changing the mode back: %v; the file has %q, want %q", err, read(t, file), before)
			}
			plan, err := r.Connect(t.Context(), admin(), client, req)
			if err != nil || !strings.Contains(plan.Difference, `"•••"`) || !strings.Contains(plan.Difference, "http://127.0.0.1:7777/mcp") {
				t.Fatalf("a dry run = %v, %v; want the URL, and a masked token", plan.Difference, err)
			}
			if tokens, err := r.policy.Tokens(t.Context()); err != nil || len(tokens) > 0 {
				t.Errorf("tokens after a dry run: %v (%v), want none", tokens, err)
			}
			req.DryRun = false
			done, err := r.Connect(t.Context(), admin(), client, req)
			if err != nil {
				t.Fatalf("connecting: %v", err)
			}
			token, _, err := secretstore.ReadFile(filepath.Join(r.dir, client+".token"))
			if err != nil {
				t.Fatalf("reading the token: %v", err)
			}
			if who, err := r.policy.Authenticate(token.Reveal()); err != nil || who.ID != "agent:"+client {
				t.Errorf("the token is of %q (%v), want agent:%s", who.ID, err, client)
			}
			if text := read(t, file); !strings.Contains(text, "Bearer "+token.Reveal()) {
				t.Errorf("the file has\n%s\nwant the token in it", text)
			}
			undone, err := r.Disconnect(t.Context(), admin(), client)
			if err != nil {
				t.Fatalf("undoing it: %v", err)
			}
			for what, difference := range map[string]string{"setup": done.Difference, "undo": undone.Difference} {
				if strings.Contains(difference, token.Reveal()) || !strings.Contains(difference, "•••") {
					t.Errorf("the difference of the %s is\n%s\nwant the token masked", what, difference)
				}
			}
			if got := read(t, file); got != before {
				t.Errorf("after the undo the file has\n%s\nwant\n%s", got, before)
			}
			if _, err := r.policy.Authenticate(token.Reveal()); err == nil {
				t.Error("after the undo the token is valid, want it revoked")
			}
		})
	}
}

func TestAClientWithoutURLsIsNotChangedOverHTTP(t *testing.T) {
	t.Parallel()
	r := open(t)
	file := r.write(t, ".config/Claude/claude_desktop_config.json", claude)
	_, err := r.Connect(t.Context(), admin(), "claude-desktop", setupserve.Request{HTTP: true, Move: []string{"*"}})
	if e := capability.AsError(err); e == nil || e.Reason != "client_no_http" {
		t.Errorf("Connect over HTTP = %v, want client_no_http", err)
	}
	if got := read(t, file); got != claude || len(r.upstreams.added) > 0 {
		t.Errorf("the file has\n%s\nand %d servers moved, want no change", got, len(r.upstreams.added))
	}
}

func TestAnOldTokenOfJunctorInTheFileIsMasked(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.write(t, ".claude.json", `{"mcpServers": {"junctor": {"type": "http", "url": "http://x/mcp", "headers": {"Authorization": "Bearer by-hand-123"}}}}`)
	plan, err := r.Connect(t.Context(), admin(), "claude", setupserve.Request{DryRun: true})
	if err != nil || strings.Contains(plan.Difference, "by-hand-123") || !strings.Contains(plan.Difference, "•••") {
		t.Errorf("the difference is\n%s (%v)\nwant the old token masked", plan.Difference, err)
	}
}
