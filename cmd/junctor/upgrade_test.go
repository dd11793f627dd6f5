package main

import (
	"database/sql"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/server"
	"github.com/junctor-run/junctor/internal/store"
)

// commandIn runs the real program on a home and returns what it printed, and its status.
func commandIn(t *testing.T, home string, args ...string) (out string, status int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "junctor", append([]string{"--home", home}, args...)...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "JUNCTOR_HOME=")
	data, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatalf("%v; want cmd.ProcessState not nil", err)
	}
	return string(data), cmd.ProcessState.ExitCode()
}

func schemas(t *testing.T, path string) (have map[string]int64) {
	t.Helper()
	if err := store.Look(path, func(db *sql.DB) (err error) { have, err = store.Versions(t.Context(), db); return err }); err != nil {
		t.Fatal(err)
	}
	return have
}

// TestAnOlderHomeIsUpgradedWhole restores homes that earlier states of this program left
// and starts today's server on them: everything is there, and works.
func TestAnOlderHomeIsUpgradedWhole(t *testing.T) {
	for name, tasks := range map[string]bool{"before-upstreams": false, "before-on-behalf": true} {
		t.Run(name, func(t *testing.T) {
			home, files := filepath.Join(t.TempDir(), "home"), t.TempDir()
			if out, status := commandIn(t, home, "restore", filepath.Join("testdata", "homes", name+".tar.gz")); status != 0 {
				t.Fatalf("restore: status %d, output %s, want 0", status, out)
			}
			database := filepath.Join(home, "state", "junctor.db")
			old := schemas(t, database)
			notYetExpired(t, database, tasks)
			t.Setenv("JUNCTOR_FS_ROOTS", "work="+files)
			s := start(t, "--home", home, "serve", "--listen", "127.0.0.1:0")
			var line server.ReadyLine
			if err := json.Unmarshal([]byte(until(t, s.stdout, "{")[0]), &line); err != nil {
				t.Fatal(err)
			}
			agent, err := os.ReadFile(filepath.Join(home, "run", "agent.token"))
			if err != nil {
				t.Fatal(err)
			}
			ops, err := os.ReadFile(filepath.Join(home, "ops.token"))
			if err != nil {
				t.Fatal(err)
			}
			says := func(status int, want string, args ...string) {
				t.Helper()
				out, got := commandIn(t, home, args...)
				if got != status || !strings.Contains(out, want) {
					t.Errorf("%s: status %d, and %q is not in\n%s\nwant got = %v, out with %v",
						strings.Join(args, " "), got, want, out, status, want)
				}
			}
			asAgent, asOps := "--token="+strings.TrimSpace(string(agent)), "--token="+strings.TrimSpace(string(ops))
			says(0, "far", asOps, "endpoints", "list")
			says(0, "fs.readText", asAgent, "catalog", "agent")
			says(0, "gone", "tokens", "list")
			says(0, "model-key", "secrets", "list")
			says(0, "tools.say", "grants", "list")
			says(0, "after", "run", "/say after", "--session", "s1")
			// The approval that was given is good for its call, once; the open one can be given.
			says(0, "", asAgent, "invoke", "fs.writeText", `{"path":"waits.txt","text":"hi"}`)
			says(3, "approval", asAgent, "invoke", "fs.writeText", `{"path":"waits.txt","text":"hi"}`)
			says(0, "approved.txt", "confirmations", "list", "--state", "pending")
			// The device's name is still its key's: no other device gets it, and it comes in without
			// a token. It knows the gateway by its URL, which only here is another one.
			out, _ := commandIn(t, home, "--json", "tokens", "create", "--role", "node")
			var made struct{ Token string }
			if err := json.Unmarshal([]byte(out), &made); err != nil {
				t.Fatalf("tokens create = %s, want JSON: %v", out, err)
			}
			token := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(token, []byte(made.Token), 0o600); err != nil {
				t.Fatal(err)
			}
			says(1, "laptop", "--home", t.TempDir(), "node", "join", line.URL, "--id", "laptop", "--node-token-file", token, "--detach")
			moveGateway(t, filepath.Join(home, "node", "state.json"), line.URL)
			says(0, "laptop", "node", "join", line.URL, "--detach")
			says(0, "connected", "nodes", "list")
			says(0, "", "node", "drain")
			if tasks {
				says(0, "ready", "upstreams", "list")
				says(0, "input_required", "tasks", "list")
				says(0, "done", "tasks", "history")
				says(0, "called", "invoke", "mcp.notes:tool:look", "{}")
			}
			says(0, "the chain holds", "audit", "verify")
			says(1, "endpoint far", "doctor") // that one was never started
			says(0, "backed up", "backup", filepath.Join(t.TempDir(), "again.tar.gz"))

			knows, err := server.Schemas()
			if err != nil {
				t.Fatal(err)
			}
			now := schemas(t, database)
			for owner, n := range knows {
				if now[owner] != n {
					t.Errorf("the tables of %s have version %d, want %d", owner, now[owner], n)
				}
			}
			if len(now) != len(knows) {
				t.Errorf("owners of tables that server.Schemas does not know: %v, %v; want len(now) = %v", now, knows, len(knows))
			}
			if kept := schemas(t, database+".before-upgrade"); kept["core"] != old["core"] || kept["core"] >= now["core"] {
				t.Errorf("what was before the upgrade: %v, want %v", kept, old)
			}
		})
	}
}

func moveGateway(t *testing.T, path, url string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var who map[string]any
	if err := json.Unmarshal(data, &who); err != nil {
		t.Fatal(err)
	}
	who["gateway"] = url
	if data, err = json.Marshal(who); err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// notYetExpired gives what ends by itself another hour: the homes grow old.
func notYetExpired(t *testing.T, path string, tasks bool) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	later := time.Now().Add(time.Hour).UnixNano()
	statements := []string{"UPDATE approvals SET expires = ?", "UPDATE approvals SET usable_until = ? WHERE usable_until > 0"}
	if tasks {
		statements = append(statements, "UPDATE tasks SET expires = ?")
	}
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s, later); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// TestANewerHomeIsRefused: who goes back to an older program is told what to do, and
// nothing is changed.
func TestANewerHomeIsRefused(t *testing.T) {
	t.Parallel()
	home := filepath.Join(t.TempDir(), "home")
	if out, status := commandIn(t, home, "restore", filepath.Join("testdata", "homes", "before-on-behalf.tar.gz")); status != 0 {
		t.Fatalf("restore: status %d, output %s, want 0", status, out)
	}
	path := filepath.Join(home, "state", "junctor.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "INSERT INTO schema_threads (version_id, is_applied) VALUES (9, 1)"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	before := schemas(t, path)
	out, status := commandIn(t, home, "serve", "--listen", "127.0.0.1:0")
	if status != 1 || !strings.Contains(out, "its tables of threads have version 9") ||
		!strings.Contains(out, "Hint: use the junctor that wrote it") {
		t.Errorf("status %d:\n%s\nwant status = 1, out with \"its tables of threads have version 9\", out with \"Hint: use the "+
			`junctor that wrote it"`, status, out)
	}
	if out, status = commandIn(t, home, "backup", filepath.Join(t.TempDir(), "b.tar.gz")); status != 0 {
		t.Errorf("it cannot be backed up: %s; want status = 0", out)
	}
	if after := schemas(t, path); after["threads"] != before["threads"] {
		t.Errorf(`the tables were %v and are %v; want after["threads"] = before["threads"]`, before, after)
	}
}
