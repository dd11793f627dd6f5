package setup_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/internal/setup"
	"github.com/junctor-run/junctor/internal/setup/setupserve"
	"github.com/junctor-run/junctor/internal/store"
)

// upstreams holds what was added. It refuses servers whose command is "broken".
type upstreams struct{ added []setup.Definition }

func (u *upstreams) Find(d setup.Definition) (out []setup.Definition) {
	for _, a := range u.added {
		if a.URL == d.URL && a.Command == d.Command && slices.Equal(a.Args, d.Args) && cmp.Equal(a.Env, d.Env) {
			out = append(out, a)
		}
	}
	return out
}

func (u *upstreams) Has(name string) bool {
	return slices.ContainsFunc(u.added, func(a setup.Definition) bool { return a.Name == name })
}

// Check refuses a folder named "private".
func (u *upstreams) Check(d setup.Definition) error {
	for _, dir := range slices.Concat(d.ReadOnly, d.ReadWrite) {
		if filepath.Base(dir) == "private" {
			return capability.Errorf(capability.CodeInvalidInput, "upstreams.add", "%s cannot be changed", dir).With("folder_unusable", "chown it")
		}
	}
	return nil
}

func (u *upstreams) Add(_ context.Context, _ capability.Principal, d setup.Definition) (int, error) {
	if d.Command == "broken" {
		return 0, capability.Errorf(capability.CodeUnavailable, "upstreams.add", "the program broken does not exist")
	}
	u.added = append(u.added, d)
	return 1, nil
}

func (u *upstreams) Remove(_ context.Context, _ capability.Principal, name string) error {
	u.added = slices.DeleteFunc(u.added, func(a setup.Definition) bool { return a.Name == name })
	return nil
}

type rig struct {
	*setup.Service
	user, dir string
	upstreams *upstreams
	secrets   *secretstore.Store
	policy    *policy.Policy
}

func admin() capability.Principal {
	return capability.Principal{ID: "admin:x", Role: capability.RoleAdmin}
}

func open(t *testing.T) *rig {
	t.Helper()
	r := &rig{user: t.TempDir(), dir: filepath.Join(t.TempDir(), "clients"), upstreams: &upstreams{}}
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "junctor.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if r.policy, err = policy.New(t.Context(), policy.Config{
		Documents: []policy.Document{{Name: "default.cedar", Text: []byte(policy.DefaultRules())}}, Store: db,
	}); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if r.secrets, err = secretstore.Open(folder, secretstore.Further{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.secrets.Close() })
	r.start(t)
	return r
}

// start opens the service, as after a restart of the server.
func (r *rig) start(t *testing.T) {
	t.Helper()
	var err error
	if r.Service, err = setup.New(setup.Config{
		Dir: r.dir, UserHome: r.user, Env: func(string) string { return "" }, Command: []string{"/bin/junctor", "mcp"},
		URL:       "http://127.0.0.1:7777/mcp",
		Upstreams: r.upstreams, Secrets: r.secrets, Tokens: r.policy, Logger: slog.New(slog.DiscardHandler),
	}); err != nil {
		t.Fatal(err)
	}
}

// Disconnect undoes a setup. It fails if the preview shows anything else than what is done.
func (r *rig) Disconnect(ctx context.Context, by capability.Principal, name string) (setupserve.Result, error) {
	shown, failed := r.PreviewUndo(name, nil)
	done, err := r.Service.Disconnect(ctx, by, name)
	if capability.CodeOf(failed) != capability.CodeOf(err) {
		return done, fmt.Errorf("the preview of the undo: got %w, want %w", failed, err)
	}
	type part struct {
		Difference string
		Removed    []string
	}
	if d := cmp.Diff(part{done.Difference, done.Removed}, part{shown.Difference, shown.Removed}); err == nil && d != "" {
		return done, fmt.Errorf("the preview of the undo differs from what was done (-done +shown):\n%s", d)
	}
	return done, err
}

func (r *rig) write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(r.user, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	return file
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const claude = `{"mcpServers": {
  "files": {"command": "files", "args": ["/data"], "env": {"FILES_TOKEN": "very-secret-1", "MODE": "ro"}},
  "bad": {"command": "broken"}
}}
`

func TestMovedServersKeepNoCredentialAndBrokenOnesStay(t *testing.T) {
	t.Parallel()
	r := open(t)
	file := r.write(t, ".claude.json", claude)
	all := setupserve.Request{Move: []string{"*"}, TrustHints: true}
	dry := all
	dry.DryRun = true
	preview, err := r.Connect(t.Context(), admin(), "claude", dry)
	if err != nil || len(r.upstreams.added) > 0 || read(t, file) != claude {
		t.Fatalf("a dry run: %v, added %v; want no error and no change", err, r.upstreams.added)
	}
	if strings.Contains(preview.Difference, "very-secret-1") {
		t.Errorf("the difference shows the credential:\n%s\nwant preview.Difference without \"very-secret-1\"", preview.Difference)
	}
	done, err := r.Connect(t.Context(), admin(), "claude", all)
	if err != nil {
		t.Fatal(err)
	}
	if done.Moved["files"] != "files" || !strings.Contains(done.Left["bad"], "does not exist") {
		t.Errorf("moved %v, left %v; want files moved and bad left with its reason", done.Moved, done.Left)
	}
	want := []setup.Definition{{
		Name: "files", Command: "files", Args: []string{"/data"}, Env: map[string]string{"MODE": "ro"},
		EnvSecrets: map[string]string{"FILES_TOKEN": "files-files-token"}, Headers: map[string]string{}, HeaderSecrets: map[string]string{},
		TrustHints: true,
	}}
	if d := cmp.Diff(want, r.upstreams.added); d != "" {
		t.Errorf("added (-want +got):\n%s", d)
	}
	if v, err := r.secrets.Get("files-files-token"); err != nil || v.Reveal() != "very-secret-1" {
		t.Errorf("the secret: %v, want the value of the variable", err)
	}
	text := read(t, file)
	if !strings.Contains(text, `"bad"`) || strings.Contains(text, `"files": {`) || !strings.Contains(text, `"junctor"`) {
		t.Errorf("the file has\n%s\nwant bad and junctor, and not files", text)
	}
	token, _, err := secretstore.ReadFile(filepath.Join(r.dir, "claude.token"))
	if err != nil {
		t.Fatal(err)
	}
	used := func() time.Time {
		list := r.List(t.Context(), "")
		return list[slices.IndexFunc(list, func(s setupserve.Status) bool { return s.Name == "claude" })].Used
	}
	if at := used(); !at.IsZero() {
		t.Errorf("the client's last request before its first: got %v, want none", at)
	}
	if who, err := r.policy.Authenticate(token.Reveal()); err != nil || who.ID != "agent:claude" {
		t.Errorf("the token is of %q (%v), want agent:claude", who.ID, err)
	}
	if at := used(); at.IsZero() {
		t.Error("the client's last request after its first: got none, want its time")
	}
	if _, err := r.Connect(t.Context(), admin(), "claude", setupserve.Request{}); capability.CodeOf(err) != capability.CodeConflict {
		t.Errorf("Connect again = %v, want conflict", err)
	}

	undone, err := r.Disconnect(t.Context(), admin(), "claude")
	if err != nil || !slices.Equal(undone.Removed, []string{"files"}) {
		t.Fatalf("Disconnect = removed %v, %v; want files removed", undone.Removed, err)
	}
	if got := read(t, file); got != claude {
		t.Errorf("after the undo the file has\n%s\nwant\n%s", got, claude)
	}
	if len(r.upstreams.added) > 0 {
		t.Errorf("after the undo there are the upstreams %v, want none", r.upstreams.added)
	}
	if _, err := r.secrets.Get("files-files-token"); err == nil {
		t.Error("after the undo the secret is still there, want it removed")
	}
	if _, err := r.policy.Authenticate(token.Reveal()); err == nil {
		t.Error("after the undo the token is valid, want it revoked")
	}
	if _, err := r.Disconnect(t.Context(), admin(), "claude"); capability.AsError(err).Reason != "client_not_set_up" {
		t.Errorf("Disconnect again = %v, want client_not_set_up", err)
	}
}

func TestAServerOfTwoClientsIsOneUpstreamUntilBothAreUndone(t *testing.T) {
	t.Parallel()
	r := open(t)
	const same = `{"mcpServers": {"files": {"command": "files", "env": {"T_TOKEN": "secret-value"}}}}`
	r.write(t, ".claude.json", same)
	r.write(t, ".cursor/mcp.json", same)
	r.write(t, ".gemini/settings.json", strings.Replace(same, "secret-value", "another-value", 1))
	for _, name := range []string{"claude", "cursor", "gemini"} {
		if _, err := r.Connect(t.Context(), admin(), name, setupserve.Request{Move: []string{"*"}}); err != nil {
			t.Fatal(err)
		}
	}
	names := func() (out []string) {
		for _, a := range r.upstreams.added {
			out = append(out, a.Name)
		}
		return out
	}
	if got := names(); !slices.Equal(got, []string{"files", "files-gemini"}) {
		t.Errorf("upstreams %v, want one for the two equal servers and one for the other", got)
	}
	for i, name := range []string{"claude", "gemini", "cursor"} {
		undone, err := r.Disconnect(t.Context(), admin(), name)
		if want := [][]string{nil, {"files-gemini"}, {"files"}}[i]; err != nil || !slices.Equal(undone.Removed, want) {
			t.Errorf("undoing %s = removed %v, %v; want %v", name, undone.Removed, err, want)
		}
		want := [][]string{{"files", "files-gemini"}, {"files"}, nil}[i]
		if got := names(); !slices.Equal(got, want) {
			t.Errorf("after the undo of %s: upstreams %v, want %v", name, got, want)
		}
	}
	if list, err := r.secrets.List(); err != nil || len(list) > 0 {
		t.Errorf("secrets %v (%v), want none", list, err)
	}
}

// TestASetupThatWasKilledIsRepairedByTheNext holds for each state that a kill may leave.
func TestASetupThatWasKilledIsRepairedByTheNext(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string][]string{
		"before the file was changed":  {"claude.journal"},
		"before the record was there":  {"claude.json"},
		"before the token was written": {"claude.journal", "claude.token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			file := r.write(t, ".claude.json", claude)
			request := setupserve.Request{Move: []string{"files"}}
			if _, err := r.Connect(t.Context(), admin(), "claude", request); err != nil {
				t.Fatal(err)
			}
			for _, left := range lose {
				if err := os.Remove(filepath.Join(r.dir, left)); err != nil {
					t.Fatal(err)
				}
			}
			if slices.Contains(lose, "claude.token") {
				var record map[string]any
				file := filepath.Join(r.dir, "claude.json")
				if err := json.Unmarshal([]byte(read(t, file)), &record); err != nil {
					t.Fatal(err)
				}
				record["creates_token"] = true
				text, err := json.Marshal(record)
				if err := errors.Join(err, os.WriteFile(file, text, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			if slices.Contains(lose, "claude.journal") { // then the file had not been changed
				r.write(t, ".claude.json", claude)
			}
			r.start(t)
			if _, err := r.Connect(t.Context(), admin(), "claude", request); err != nil {
				t.Fatal(err)
			}
			if text := read(t, file); strings.Count(text, `"junctor"`) != 1 || strings.Contains(text, `"files": {`) {
				t.Errorf("the file has\n%s\nwant junctor once, and not files", text)
			}
			if _, err := r.Disconnect(t.Context(), admin(), "claude"); err != nil {
				t.Fatal(err)
			}
			if got := read(t, file); got != claude {
				t.Errorf("after the undo the file has\n%s\nwant\n%s", got, claude)
			}
		})
	}
}

func TestATokenThatSetupDidNotCreateStaysValid(t *testing.T) {
	t.Parallel()
	r := open(t)
	file := r.write(t, ".claude.json", claude)
	_, value, err := r.policy.CreateToken(t.Context(), admin(), policy.TokenRequest{Role: capability.RoleAgent, Name: "claude"})
	if err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		_, err = r.Connect(t.Context(), admin(), "claude", setupserve.Request{Move: []string{"*"}, DryRun: dry})
		if e := capability.AsError(err); e == nil || e.Reason != "client_token_exists" {
			t.Errorf("Connect(dry run %v) = %v, want client_token_exists", dry, err)
		}
	}
	if _, err := r.policy.Authenticate(value.Reveal()); err != nil {
		t.Errorf("the operator's token: %v, want it valid", err)
	}
	if got := read(t, file); got != claude || len(r.upstreams.added) > 0 {
		t.Errorf("the file has\n%s\nand %d servers moved, want no change", got, len(r.upstreams.added))
	}
	if _, err := r.policy.RevokeToken(t.Context(), admin(), "claude"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Connect(t.Context(), admin(), "claude", setupserve.Request{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.policy.RevokeToken(t.Context(), admin(), "claude"); err != nil {
		t.Fatal(err)
	}
	_, value, err = r.policy.CreateToken(t.Context(), admin(), policy.TokenRequest{Role: capability.RoleAgent, Name: "claude"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Disconnect(t.Context(), admin(), "claude"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.policy.Authenticate(value.Reveal()); err != nil {
		t.Errorf("the operator's token after the undo: %v, want it valid", err)
	}
}

func TestAnUnknownClientIsReportedWithTheKnownOnes(t *testing.T) {
	t.Parallel()
	_, err := open(t).Connect(t.Context(), admin(), "emacs", setupserve.Request{})
	if got := err.Error(); !strings.Contains(got, "claude, claude-desktop, codex") || strings.Contains(got, "[") {
		t.Errorf("Connect(emacs) = %q, want the names separated by commas", got)
	}
}

func TestAFileThatChangedSinceKeepsItsChanges(t *testing.T) {
	t.Parallel()
	r := open(t)
	file := r.write(t, ".claude.json", claude)
	if _, err := r.Connect(t.Context(), admin(), "claude", setupserve.Request{Move: []string{"files"}}); err != nil {
		t.Fatal(err)
	}
	r.write(t, ".claude.json", strings.Replace(read(t, file), "{", `{"numStartups": 7, `, 1))
	if _, err := r.Disconnect(t.Context(), admin(), "claude"); err != nil {
		t.Fatal(err)
	}
	text := read(t, file)
	for _, want := range []string{`"numStartups": 7`, `"files": {"command": "files"`, `"bad"`} {
		if !strings.Contains(text, want) {
			t.Errorf("after the undo the file has\n%s\nwant %s in it", text, want)
		}
	}
	if strings.Contains(text, "junctor") {
		t.Errorf("after the undo the file has\n%s\nwant no entry of junctor", text)
	}
}

func TestABrokenFileStaysAsItIs(t *testing.T) {
	t.Parallel()
	r := open(t)
	file := r.write(t, ".claude.json", "{ broken")
	_, err := r.Connect(t.Context(), admin(), "claude", setupserve.Request{Move: []string{"*"}})
	if e := capability.AsError(err); e == nil || e.Reason != "client_config" || !strings.Contains(e.Message, file) {
		t.Errorf("Connect = %v, want client_config with the name of the file", err)
	}
	if got := read(t, file); got != "{ broken" {
		t.Errorf("the file has %q, want it unchanged", got)
	}
	i := slices.IndexFunc(r.List(t.Context(), ""), func(s setupserve.Status) bool { return s.Name == "claude" })
	if s := r.List(t.Context(), "")[i]; s.Fault == "" || s.SetUp {
		t.Errorf("status %+v, want a fault", s)
	}
}

// TestGooseMayWriteItsFileAgain undoes a setup after the client has written its file in another form.
func TestGooseMayWriteItsFileAgain(t *testing.T) {
	t.Parallel()
	r := open(t)
	file := r.write(t, ".config/goose/config.yaml", "extensions:\n    files:\n        type: stdio\n        cmd: files\n        envs: {TOKEN: very-secret-1}\nA: 1\n")
	if _, err := r.Connect(t.Context(), admin(), "goose", setupserve.Request{Move: []string{"*"}}); err != nil {
		t.Fatalf("connecting goose: %v", err)
	}
	if got := read(t, file); strings.Contains(got, "very-secret-1") || !strings.Contains(got, "junctor") {
		t.Errorf("the file has\n%s\nwant junctor, and no credential", got)
	}
	r.write(t, ".config/goose/config.yaml", "A: 2\nextensions:\n  junctor:\n    args:\n    - mcp\n    cmd: /bin/junctor\n    enabled: true\n    type: stdio\n")
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatalf("changing the mode of the file: %v", err)
	}
	if _, err := r.Disconnect(t.Context(), admin(), "goose"); err != nil {
		t.Fatalf("undoing the setup: %v", err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("after the undo the mode is %v (%v), want 0640", info.Mode().Perm(), err)
	}
	want := "A: 2\nextensions:\n  files:\n      type: stdio\n      cmd: files\n      envs: {TOKEN: very-secret-1}\n"
	if got := read(t, file); got != want {
		t.Errorf("after the undo the file has\n%s\nwant\n%s", got, want)
	}
}

func TestServersOfProjectsStayWithTheReason(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.write(t, ".claude.json", `{"mcpServers": {"files": {"command": "files"}}, "projects": {"/p": {"mcpServers": {"files": {"command": "a"}, "notes": {"command": "b"}}}}}`)
	r.write(t, "work/.mcp.json", `{"mcpServers": {"tracker": {"command": "c"}}}`)
	folder := filepath.Join(r.user, "work")
	done, err := r.Connect(t.Context(), admin(), "claude", setupserve.Request{Move: []string{"*", "notes"}, Folder: folder})
	want := map[string]string{
		"notes": "it is defined by project, in /p", "tracker": "it is defined by project, in " + filepath.Join(folder, ".mcp.json"),
	}
	if d := cmp.Diff(want, done.Left); err != nil || d != "" || done.Moved["files"] != "files" || len(r.upstreams.added) != 1 {
		t.Errorf("Connect = moved %v, %v; want files; left (-want +got):\n%s", done.Moved, err, d)
	}
}

func TestFurtherServersOfAClientMove(t *testing.T) {
	t.Parallel()
	for client, tt := range map[string]struct{ file, text string }{
		"claude": {".claude.json", `{"mcpServers": {"c": {"command": "c"}, "b": {"command": "b", "env": {"B_TOKEN": "very-secret-1"}}, "a": {"command": "a"}}, "x": 1}`},
		"codex": {
			".codex/config.toml",
			"[mcp_servers.c]\ncommand = \"c\"\n\n[mcp_servers.b]\ncommand = \"b\"\nenv = { B_TOKEN = \"very-secret-1\" }\n\n[mcp_servers.a]\ncommand = \"a\"\n",
		},
		"goose": {
			".config/goose/config.yaml", "extensions:\n  c: {type: stdio, cmd: c}\n  b:\n    type: stdio\n    cmd: b\n    envs: {B_TOKEN: very-secret-1}\n" +
				"  a:\n    type: stdio\n    cmd: a\nx: 1\n",
		},
	} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			file := r.write(t, tt.file, tt.text)
			if _, err := r.Connect(t.Context(), admin(), client, setupserve.Request{Move: []string{"a"}}); err != nil {
				t.Fatalf("connecting: %v", err)
			}
			connected := read(t, file)
			dry, err := r.Connect(t.Context(), admin(), client, setupserve.Request{Move: []string{"a", "b"}, DryRun: true})
			if err != nil || dry.Moved["b"] != "b" || len(dry.Moved) != 1 || dry.Left["a"] != "" || strings.Contains(dry.Difference, "very-secret") {
				t.Fatalf("a dry run: got moved %v, left %v, %s, %v; want b moved, and its secret masked", dry.Moved, dry.Left, dry.Difference, err)
			}
			if got := read(t, file); got != connected {
				t.Fatalf("after a dry run the file has\n%s\nwant\n%s", got, connected)
			}
			done, err := r.Connect(t.Context(), admin(), client, setupserve.Request{Move: []string{"b"}})
			if err != nil || done.Moved["b"] != "b" {
				t.Fatalf("moving one more: got %v, %v; want b moved", done.Moved, err)
			}
			if got := read(t, file); strings.Contains(got, "very-secret") || !strings.Contains(got, "/bin/junctor") {
				t.Errorf("the file has\n%s\nwant junctor, and b removed", got)
			}
			r.start(t)
			undone, err := r.Disconnect(t.Context(), admin(), client)
			if err != nil || !slices.Equal(undone.Removed, []string{"a", "b"}) {
				t.Errorf("undoing: got removed %v, %v; want a and b", undone.Removed, err)
			}
			if got := read(t, file); got != tt.text {
				t.Errorf("after the undo the file has\n%s\nwant\n%s", got, tt.text)
			}
			if list, err := r.secrets.List(); err != nil || len(list)+len(r.upstreams.added) > 0 {
				t.Errorf("after the undo: secrets %v (%v), upstreams %v; want none", list, err, r.upstreams.added)
			}
		})
	}
}

// TestFurtherServersThatCannotMoveLeaveTheSetup holds a failure of the change of the file.
func TestFurtherServersThatCannotMoveLeaveTheSetup(t *testing.T) {
	t.Parallel()
	r := open(t)
	const text = `{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b", "env": {"B_TOKEN": "very-secret-1"}}}}`
	file := r.write(t, ".claude.json", text)
	if _, err := r.Connect(t.Context(), admin(), "claude", setupserve.Request{Move: []string{"a"}}); err != nil {
		t.Fatalf("connecting: %v", err)
	}
	connected := read(t, file)
	if err := os.Mkdir(file+".lock", 0o700); err != nil {
		t.Fatalf("locking the file: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := r.Connect(ctx, admin(), "claude", setupserve.Request{Move: []string{"b"}}); err == nil {
		t.Error("moving with a locked file: got no error, want one")
	}
	if err := os.Remove(file + ".lock"); err != nil {
		t.Fatalf("unlocking the file: %v", err)
	}
	secrets, err := r.secrets.List()
	if got := read(t, file); got != connected || err != nil || len(secrets) > 0 || len(r.upstreams.added) != 1 {
		t.Errorf("after the failure: file %s, secrets %v (%v), upstreams %v; want %s and the first upstream only", got, secrets, err,
			r.upstreams.added, connected)
	}
	if _, err := r.Disconnect(t.Context(), admin(), "claude"); err != nil || read(t, file) != text {
		t.Errorf("after the undo (%v) the file has %s, want %s", err, read(t, file), text)
	}
}
