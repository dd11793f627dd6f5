package setup_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/setup/setupserve"
	"github.com/junctor-run/junctor/secret"
)

// TestFoldersThatAMovedServerCannotReachAreShownAndGivenOnlyOnRequest names folders in every way.
func TestFoldersThatAMovedServerCannotReachAreShownAndGivenOnlyOnRequest(t *testing.T) {
	t.Parallel()
	r := open(t)
	notes, docs, lib := filepath.Join(r.user, "notes"), filepath.Join(r.user, "docs"), filepath.Join(r.user, "app", "lib")
	program := filepath.Join(r.user, "app", "bin", "memory")
	err := errors.Join(os.Mkdir(notes, 0o700), os.Mkdir(docs, 0o700), os.MkdirAll(lib, 0o700), os.MkdirAll(filepath.Dir(program), 0o700),
		os.WriteFile(program, nil, 0o700), os.WriteFile(filepath.Join(r.user, "app", "package.json"), []byte("{}"), 0o600))
	if err != nil {
		t.Fatalf("making the folders: %v", err)
	}
	servers, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"memory": map[string]any{
		"command": program, "args": []string{"--docs=~/docs", "~/docs/none/x"},
		"env": map[string]string{
			"MEMORY_FILE_PATH": filepath.Join(notes, "memory.json"), "BESIDE": "~/docs/memory.json", "LIBRARIES": "/usr/lib:" + lib,
			"FILE_TOKEN": filepath.Join(docs, "x"), "DIGEST": "/not-a-path+of-anything/x", "PATH": docs,
		},
	}}})
	if err != nil {
		t.Fatalf("encoding the servers: %v", err)
	}
	r.write(t, ".claude.json", string(servers))
	req := setupserve.Request{Move: []string{"*"}, DryRun: true}
	plan, err := r.Connect(t.Context(), admin(), "claude", req)
	if err != nil {
		t.Fatalf("a dry run: %v", err)
	}
	want := []setupserve.Unreached{
		{Folder: docs, From: "the argument --docs"},
		{Folder: filepath.Join(r.user, "app"), From: "the package of memory", Package: true},
		{Folder: lib, From: "LIBRARIES"},
		{Folder: notes, From: "MEMORY_FILE_PATH"},
	}
	if d := cmp.Diff(want, plan.Unreached["memory"]); d != "" {
		t.Errorf("what the program cannot reach (-want +got):\n%s", d)
	}
	req.KeepUnreached = true
	if kept, err := r.Connect(t.Context(), admin(), "claude", req); err != nil || len(kept.Moved) > 0 ||
		!strings.HasSuffix(kept.Left["memory"], ": junctor setup --client claude --move memory") {
		t.Errorf("without a person: %v, moved %v, left %v; want memory to stay with the command that asks", err, kept.Moved, kept.Left)
	}
	req.KeepUnreached, req.DryRun = false, false
	done, err := r.Connect(t.Context(), admin(), "claude", req)
	if err != nil || len(r.upstreams.added) != 1 || len(r.upstreams.added[0].ReadWrite)+len(r.upstreams.added[0].ReadOnly) > 0 {
		t.Fatalf("without an answer: %v, added %+v; want memory without any folder", err, r.upstreams.added)
	}
	if got := r.upstreams.added[0].Env["BESIDE"]; got != filepath.Join(docs, "memory.json") {
		t.Errorf("BESIDE = %q, want the path in full, because ~ is another folder for the program", got)
	}
	if again, err := r.Connect(t.Context(), admin(), "cursor", setupserve.Request{DryRun: true}); err != nil || len(again.Unreached) > 0 {
		t.Errorf("a client without servers: %v, %v; want nothing out of reach", again.Unreached, err)
	}
	if _, err := r.Disconnect(t.Context(), admin(), "claude"); err != nil || done.Moved["memory"] != "memory" {
		t.Fatalf("undoing it: %v, moved %v; want memory", err, done.Moved)
	}
	req.Folders = map[string]setupserve.Folders{"memory": {ReadWrite: []string{notes}, ReadOnly: []string{filepath.Join(r.user, "app")}}}
	if _, err := r.Connect(t.Context(), admin(), "claude", req); err != nil || len(r.upstreams.added) != 1 {
		t.Fatalf("with an answer: %v, added %v; want memory", err, r.upstreams.added)
	}
	got := r.upstreams.added[0]
	if d := cmp.Diff(req.Folders["memory"], setupserve.Folders{ReadWrite: got.ReadWrite, ReadOnly: got.ReadOnly}); d != "" {
		t.Errorf("the folders that were given (-want +got):\n%s", d)
	}
}

// TestAServerWhoseFoldersAreRefusedStaysBeforeAnythingIsAsked has one with a folder of an argument, and one with
// a folder that would be asked for.
func TestAServerWhoseFoldersAreRefusedStaysBeforeAnythingIsAsked(t *testing.T) {
	t.Parallel()
	r := open(t)
	private := filepath.Join(r.user, "private")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatalf("making the folder: %v", err)
	}
	r.write(t, ".claude.json", `{"mcpServers": {"files": {"command": "x", "args": ["`+private+`"]},
		"memory": {"command": "x", "env": {"MEMORY_FILE_PATH": "`+private+`/m.json"}}, "other": {"command": "x"}}}`)
	want := private + " cannot be changed; chown it"
	for _, dry := range []bool{true, false} {
		got, err := r.Connect(t.Context(), admin(), "claude", setupserve.Request{Move: []string{"*"}, DryRun: dry})
		if err != nil || got.Left["files"] != want || got.Left["memory"] != want || len(got.Moved) != 1 || len(got.Unreached) > 0 {
			t.Errorf("dry run %t: %v, moved %v, left %v, unreached %v; want both left: %s", dry, err, got.Moved, got.Left, got.Unreached, want)
		}
	}
}

// TestAnImportChecksFoldersAsASetupDoes has a folder that is refused, and one that nothing gives without a person.
func TestAnImportChecksFoldersAsASetupDoes(t *testing.T) {
	t.Parallel()
	r := open(t)
	private, notes := filepath.Join(r.user, "private"), filepath.Join(r.user, "notes")
	for dir, mode := range map[string]os.FileMode{private: 0o700, notes: 0o755} {
		if err := os.Mkdir(dir, mode); err != nil {
			t.Fatalf("making the folder: %v", err)
		}
	}
	req := setupserve.Import{
		File: filepath.Join(r.user, "mcp.json"), Move: []string{"*"}, KeepUnreached: true,
		Text: `{"mcpServers": {"files": {"command": "x", "args": ["` + private + `"]},
			"memory": {"command": "x", "env": {"MEMORY_FILE_PATH": "` + notes + `/m.json"}}, "other": {"command": "x"}}}`,
	}
	for _, dry := range []bool{true, false} {
		req.DryRun = dry
		got, err := r.Import(t.Context(), admin(), req)
		if err != nil || len(got.Moved) != 1 || got.Left["files"] != private+" cannot be changed; chown it" ||
			!strings.HasSuffix(got.Left["memory"], ": junctor mcp import "+req.File+" --server memory") {
			t.Errorf("dry run %t: %v, added %v, left %v; want other added, and both left with what to do", dry, err, got.Moved, got.Left)
		}
	}
	req.File = "pasted.json"
	if got, err := r.Import(t.Context(), admin(), req); err != nil || !strings.HasSuffix(got.Left["memory"], " import FILE --server memory") {
		t.Errorf("a text without a file: %v, left %v; want the form of the command", err, got.Left)
	}
	req.KeepUnreached = false
	if got, err := r.Import(t.Context(), admin(), req); err != nil || got.Moved["memory"] == "" || len(got.Unreached["memory"]) != 1 {
		t.Errorf("with a person: %v, added %v, unreached %v; want memory with its folder", err, got.Moved, got.Unreached)
	}
}

// TestAServerWithAFileDirectlyInTheHomeStaysWithTheStepsThatMoveIt names such files by a variable and an argument,
// and follows the steps.
func TestAServerWithAFileDirectlyInTheHomeStaysWithTheStepsThatMoveIt(t *testing.T) {
	t.Parallel()
	r := open(t)
	data, db := filepath.Join(r.user, "memory.jsonl"), filepath.Join(r.user, "it's.db")
	if err := errors.Join(os.WriteFile(data, []byte("kept"), 0o600), os.WriteFile(db, nil, 0o600)); err != nil {
		t.Fatalf("making the files: %v", err)
	}
	const servers = `{"mcpServers": {"memory": {"command": "x", "args": ["--db=~/it's.db", "~/none.log"],
		"env": {"MEMORY_FILE_PATH": "~/memory.jsonl"}}, "beside": {"command": "x", "args": ["~/memory.jsonl"]},
		"all": {"command": "x", "env": {"ROOT": "~/"}}}}`
	r.write(t, ".claude.json", servers)
	config, folder := filepath.Join(r.user, ".claude.json"), filepath.Join(r.user, "memory")
	steps := "mkdir -p " + folder + " && mv '" + r.user + `/it'\''s.db' '` + folder + `/it'\''s.db' && mv ` + data + " " +
		folder + "/memory.jsonl"
	want := map[string]string{
		"memory": "it needs " + db + " (the argument --db), " + r.user + "/none.log (an argument), " + data + " (MEMORY_FILE_PATH), " +
			"and a program is not given all of " + r.user + "; give it a folder of its own with: " + steps + "; then, in " + config +
			", change " + db + " to " + folder + "/it's.db (the argument --db) and " + r.user + "/none.log to " + folder +
			"/none.log (an argument) and " + data + " to " + folder +
			"/memory.jsonl (MEMORY_FILE_PATH), and run again: junctor setup --client claude --move memory",
		"beside": "it needs " + data + " (an argument), and a program is not given all of " + r.user + "; give it a folder of its own with: " +
			"mkdir -p " + r.user + "/beside && mv " + data + " " + r.user + "/beside/memory.jsonl; then, in " + config + ", change " + data +
			" to " + r.user + "/beside/memory.jsonl (an argument), and run again: junctor setup --client claude --move beside",
		"all": "it needs " + r.user + " (ROOT), and a program is not given all of " + r.user + "; give it a folder of its own with: mkdir -p " +
			r.user + "/all; then, in " + config + ", change " + r.user + " to " + r.user +
			"/all (ROOT), and run again: junctor setup --client claude --move all",
	}
	for _, req := range []setupserve.Request{
		{Move: []string{"*"}, DryRun: true},
		{Move: []string{"*"}, DryRun: true, KeepUnreached: true},
		{Move: []string{"*"}},
	} {
		got, err := r.Connect(t.Context(), admin(), "claude", req)
		if err != nil || len(got.Moved)+len(got.Folders)+len(r.upstreams.added) > 0 {
			t.Errorf("%+v: %v, moved %v, folders %v, added %v; want none", req, err, got.Moved, got.Folders, r.upstreams.added)
		}
		if d := cmp.Diff(want, got.Left); d != "" {
			t.Errorf("%+v: what stays (-want +got):\n%s", req, d)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-ec", steps).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v, %s", steps, err, out)
	}
	if _, err := r.Disconnect(t.Context(), admin(), "claude"); err != nil {
		t.Fatalf("undoing it: %v", err)
	}
	moved := strings.NewReplacer("~/memory.jsonl", folder+"/memory.jsonl", "~/it's", folder+"/it's", "~/none", folder+"/none")
	r.write(t, ".claude.json", moved.Replace(servers))
	got, err := r.Connect(t.Context(), admin(), "claude", setupserve.Request{Move: []string{"memory"}, DryRun: true})
	if err != nil || got.Moved["memory"] != "memory" {
		t.Errorf("after the steps: %v, moved %v, left %v; want memory moved", err, got.Moved, got.Left)
	}
	asked := []setupserve.Unreached{{Folder: folder, From: "the argument --db"}}
	if d := cmp.Diff(asked, got.Unreached["memory"]); d != "" {
		t.Errorf("after the steps, what a question follows about (-want +got):\n%s", d)
	}
}

// TestAnImportLeavesSecretsThatItDidNotCreate holds a secret whose value cannot be read just now, and one that has
// the imported value already.
func TestAnImportLeavesSecretsThatItDidNotCreate(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]string{"a server that is added": "x", "a server that is refused": "broken"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			source := filepath.Join(r.user, "away")
			if err := r.secrets.Link("prod-api-key", "file:"+source); err != nil {
				t.Fatalf("linking a secret: %v", err)
			}
			if err := r.secrets.Set("known-api-key", secret.New("value-0123456789abcdef")); err != nil {
				t.Fatalf("setting a secret: %v", err)
			}
			server := `{"command": "` + command + `", "args": ["%s"], "env": {"API_KEY": "value-0123456789abcdef"}}`
			got, err := r.Import(t.Context(), admin(), setupserve.Import{
				File: "x.json", Move: []string{"*"},
				Text: `{"mcpServers": {"prod": ` + strings.Replace(server, "%s", "1", 1) + `, "known": ` + strings.Replace(server, "%s", "2", 1) + `}}`,
			})
			if added := len(got.Moved); err != nil || (added == 2) != (command == "x") {
				t.Errorf("Import = %+v, %v, want both servers added unless they are refused", got, err)
			}
			if err := os.WriteFile(source, []byte("the real key"), 0o600); err != nil {
				t.Fatalf("writing the source: %v", err)
			}
			for name, want := range map[string]string{"prod-api-key": "the real key", "known-api-key": "value-0123456789abcdef"} {
				if v, err := r.secrets.Get(name); err != nil || v.Reveal() != want {
					t.Errorf("the secret %s: got %q, %v, want %q", name, v.Reveal(), err, want)
				}
			}
			list, err := r.secrets.List()
			if want := map[string]int{"x": 3, "broken": 2}[command]; err != nil || len(list) != want {
				t.Errorf("secrets: got %+v, %v, want %d", list, err, want)
			}
		})
	}
}

// TestVariablesThatDifferInASignKeepTheirValues holds two variables whose names would make one name of a secret.
func TestVariablesThatDifferInASignKeepTheirValues(t *testing.T) {
	t.Parallel()
	r := open(t)
	env := map[string]string{"API_KEY": "value-of-the-first-0123456789", "API-KEY": "value-of-the-second-0123456789"}
	text, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"prod": map[string]any{"command": "x", "env": env}}})
	if err != nil {
		t.Fatalf("the file: %v", err)
	}
	if got, err := r.Import(t.Context(), admin(), setupserve.Import{File: "x.json", Move: []string{"*"}, Text: string(text)}); err != nil {
		t.Fatalf("Import = %+v, %v, want no error", got, err)
	}
	got := make(map[string]string)
	for variable, name := range r.upstreams.added[0].EnvSecrets {
		v, err := r.secrets.Get(name)
		if err != nil {
			t.Fatalf("the secret %s: %v, want its value", name, err)
		}
		got[variable] = v.Reveal()
	}
	if d := cmp.Diff(env, got); d != "" {
		t.Errorf("the variables (-want +got):\n%s", d)
	}
}
