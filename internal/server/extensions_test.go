package server_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// sayPackage is a small extension, as a zip file.
func sayPackage(t testing.TB, version string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for name, text := range map[string]string{
		"manifest.json": fmt.Sprintf(`{"id":"tools.say","name":"Say","version":%q,"description":"Says things","author":"example","license":"MIT","platforms":["all"],
			"capabilities":[{"type":"slash_command","name":"/say","description":"Say"}],"permissions_required":["exec"],
			"install":{"mode":"agentos_managed","plan":"install/plan.yaml"},"docs":{"usage":"docs/USAGE.md"}}`, version),
		"commands/commands.yaml": "slash_commands:\n- name: /say\n  summary: Say\n  maps_to:\n    capability: tools.say\n    actions:\n    - {id: hello, description: Say it, runner: exec.echo, argv: ['{args}']}\n    - {id: wait, description: Wait, runner: exec.sleep, argv: ['600']}\n    - {id: greet, description: Greet, runner: exec.echo, argv: ['{config:word}'], cache: {ttl_sec: 600}}\n",
		"install/plan.yaml":      "id: tools.say\nsteps:\n- {id: mark, type: exec.shell, command: 'echo made > mark'}\nuninstall: {steps: []}\n",
		"docs/USAGE.md":          "# Say\n",
	} {
		f, err := w.Create(name)
		if err == nil {
			_, err = f.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

const extensionsDoor = "/api/v1/extensions"

// install installs a package, and agrees to what it does meanwhile if that is asked.
func (n *node) install(t testing.TB, pkg []byte) error {
	t.Helper()
	err := n.admin.Do(t.Context(), http.MethodPost, extensionsDoor+"/install", pkg, nil)
	if capability.CodeOf(err) != capability.CodeApprovalRequired {
		return err
	}
	hash, _ := capability.AsError(err).Details["tree_hash"].(string)
	return n.admin.Do(t.Context(), http.MethodPost, extensionsDoor+"/install?agreed="+hash, pkg, nil)
}

// enableSay agrees to what the package asks for.
func (n *node) enableSay(t testing.TB) error {
	t.Helper()
	var shown struct {
		Screen struct {
			TreeHash string `json:"tree_hash"`
		}
	}
	if err := n.admin.Do(t.Context(), http.MethodGet, extensionsDoor+"/tools.say/screen", nil, &shown); err != nil {
		return err
	}
	return n.admin.Do(t.Context(), http.MethodPost, extensionsDoor+"/tools.say/enable", map[string]string{"tree_hash": shown.Screen.TreeHash},
		nil)
}

func (n *node) say(t testing.TB, line string) (string, error) {
	t.Helper()
	var out struct{ Result struct{ Output string } }
	err := n.admin.Do(t.Context(), http.MethodPost, extensionsDoor+"/execute", map[string]string{"command": line}, &out)
	return out.Result.Output, err
}

func TestExtensionDoorRefusesNonsense(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	admin := n.token(t, "admin")
	form := func(parts ...string) (string, string) {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		for i := 0; i < len(parts); i += 2 {
			if err := w.WriteField(parts[i], parts[i+1]); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		return b.String(), w.FormDataContentType()
	}
	twice, twiceType := form("file", "a", "file", "b")
	other, otherType := form("other", "a")
	for _, tt := range []struct{ method, path, body, kind, code string }{
		{"POST", "/install", "", "", "invalid_input"},
		{"POST", "/install", "no zip", "", "invalid_input"},
		{"POST", "/install?force=maybe", "x", "", "invalid_input"},
		{"POST", "/install", strings.Repeat("x", 51<<20), "", "too_large"},
		{"POST", "/install", twice, twiceType, "invalid_input"},
		{"POST", "/install", other, otherType, "invalid_input"},
		{"POST", "/install", "x", "multipart/form-data", "invalid_input"},
		{"POST", "/install?sha256=00", string(sayPackage(t, "1.0.0")), "", ""},
		{"POST", "/install-url", `{}`, "", "invalid_input"},
		{"POST", "/install-url", `{"url":"http://127.0.0.1:1/x.zip"}`, "", ""},
		{"POST", "/install-url", `{"uri":"x"}`, "", "invalid_input"},
		{"POST", "/execute", `{"command":"hello"}`, "", "invalid_input"},
		{"POST", "/execute", `{"command":"/nothing"}`, "", "unknown_capability"},
		{"POST", "/execute", `{"command":"/say \u0000"}`, "", "unknown_capability"},
		{"POST", "/execute", `{"command":"/` + strings.Repeat("x", 70<<10) + `"}`, "", ""},
		{"GET", "?status=BOGUS", "", "", "invalid_input"},
		{"GET", "/tools.none", "", "", "not_found"},
		{"GET", "/tools.none/icon", "", "", "not_found"},
		{"GET", "/tools.none/other", "", "", "not_found"},
		{"GET", "/install/inst_none", "", "", "not_found"},
		{"GET", "/..%2f..%2fetc/icon", "", "", "not_found"},
		{"POST", "/tools.none/enable", `{}`, "", "not_found"},
		{"POST", "/tools.none/disable?kill=2", "", "", "invalid_input"},
		{"DELETE", "/tools.none", "", "", "not_found"},
		{"PUT", "/tools.none/config", `[]`, "", ""},
	} {
		a := n.request(t, tt.method, extensionsDoor+tt.path, admin, tt.body, func(r *http.Request) {
			if tt.kind != "" {
				r.Header.Set("Content-Type", tt.kind)
			}
		})
		if a.status < 400 || a.status >= 500 && a.code() != "failed" && a.code() != "unavailable" || tt.code != "" && a.code() != tt.code {
			t.Errorf(`%s %s %.40q: %d %s; want a.status at least 400, not (a.status >= 500 && a.code() != "failed" && a.code() `+
				`!= "unavailable"), not (tt.code != "" && a.code() != tt.code)`, tt.method, tt.path, tt.body, a.status, a.body)
		}
	}
	var list struct{ Extensions []any }
	if err := n.admin.Do(t.Context(), http.MethodGet, extensionsDoor, nil, &list); err != nil || len(list.Extensions) != 0 {
		t.Errorf("%v %v; want no error, len(list.Extensions) = 0", list, err)
	}
	for _, path := range []string{"/install", "/install-url", "/tools.say/enable"} {
		if a := n.request(t, "POST", extensionsDoor+path, n.token(t, "agent"), "{}"); a.status != http.StatusForbidden {
			t.Errorf("an agent: %s: %d; want a.status = http.StatusForbidden", path, a.status)
		}
	}
	n.verify(t)
}

func TestKeptResultsDieWithTheSettings(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	if err := n.install(t, sayPackage(t, "1.0.0")); err != nil {
		t.Fatal(err)
	}
	if err := n.enableSay(t); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"one", "two"} {
		if err := n.admin.Do(t.Context(), http.MethodPut, extensionsDoor+"/tools.say/config", map[string]string{"word": word}, nil); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second is the kept one
			if out, err := n.say(t, "/say greet"); err != nil || out != word+"\n" {
				t.Errorf(`%s: %q %v; want no error, out = word + "\n"`, word, out, err)
			}
		}
	}
}

func TestDisablingEndsWhatRuns(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	if err := n.install(t, sayPackage(t, "1.0.0")); err != nil {
		t.Fatal(err)
	}
	if err := n.enableSay(t); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := n.say(t, "/say wait")
		ended <- err
	}()
	eventually(t, "it runs", func() bool { return len(n.records(t, "event=capability_started")) == 1 })
	if err := n.admin.Do(t.Context(), http.MethodPost, extensionsDoor+"/tools.say/disable?kill=true", nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("it went on; want an error")
	}
	if _, err := n.say(t, "/say hello"); capability.CodeOf(err) != capability.CodeUnavailable {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeUnavailable", err)
	}
	n.verify(t)
}

// TestKilledServerKeepsExtensionsWhole kills the server while it installs, upgrades,
// enables, runs and removes, and looks after each restart for what is half there.
func TestKilledServerKeepsExtensionsWhole(t *testing.T) {
	t.Parallel()
	rounds := 12
	if testing.Short() {
		rounds = 2
	}
	home := t.TempDir()
	for round := range rounds {
		n := serve(t, home)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ; i++ {
				version := fmt.Sprintf("1.%d.%d", round, i)
				err := n.install(t, sayPackage(t, version))
				if err == nil {
					_ = n.enableSay(t)
					_, _ = n.say(t, "/say hello")
				}
				if i%3 == 2 {
					err = n.admin.Do(t.Context(), http.MethodDelete, extensionsDoor+"/tools.say", nil, nil)
				}
				if capability.CodeOf(err) == capability.CodeUnavailable {
					return // it is dead
				}
			}
		}()
		<-time.After(time.Duration(20+37*round) * time.Millisecond) // somewhere in the middle of it
		n.kill()
		<-done

		n = serve(t, home)
		var found struct{ Findings []any }
		if err := n.admin.Do(t.Context(), http.MethodGet, extensionsDoor+"/doctor", nil, &found); err != nil || len(found.Findings) != 0 {
			t.Errorf("round %d: %v %v; want no error, len(found.Findings) = 0", round, found.Findings, err)
		}
		var list struct {
			Extensions []struct {
				Status  string
				Enabled bool
			}
		}
		if err := n.admin.Do(t.Context(), http.MethodGet, extensionsDoor, nil, &list); err != nil {
			t.Fatal(err)
		}
		for _, x := range list.Extensions {
			if x.Status != "INSTALLED" {
				t.Errorf(`round %d: %+v; want x.Status = "INSTALLED"`, round, x)
			}
			if out, err := n.say(t, "/say hello"); x.Enabled && (err != nil || strings.TrimSpace(out) != "") {
				t.Errorf(`round %d: %q %v; want not (x.Enabled && (err != nil || strings.TrimSpace(out) != ""))`, round, out, err)
			}
		}
		left, err := os.ReadDir(filepath.Join(home, "extensions"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range left {
			if !strings.HasPrefix(f.Name(), ".") && len(list.Extensions) == 0 {
				t.Errorf(`round %d: %s is there, and nothing is installed; want not (!strings.HasPrefix(f.Name(), ".") && `+
					"len(list.Extensions) == 0)", round, f.Name())
			}
		}
		n.verify(t)
		n.terminate(t)
	}
}

func TestSettingsFitTheirSchemaAndSecretsAreTheAdministrators(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	pkg := func(schema string) []byte {
		return rezip(t, sayPackage(t, "1.0.0"), "manifest.json", `"license":"MIT",`, `"license":"MIT","config_schema":`+schema+`,`)
	}
	var rec struct {
		Error string
	}
	err := n.admin.Do(t.Context(), http.MethodPost, extensionsDoor+"/install", pkg(`{"type":"nothing"}`), &rec)
	if capability.CodeOf(err) != capability.CodeInvalidInput || !strings.Contains(err.Error(), "config_schema") {
		t.Errorf(`%+v %v; want capability.CodeOf(err) = capability.CodeInvalidInput, err.Error() with "config_schema"`, rec, err)
	}
	if err := n.install(t,
		pkg(`{"type":"object","properties":{"word":{"type":"string"},"api_key":{"type":"string"}},"additionalProperties":false}`)); err != nil {
		t.Fatal(err)
	}
	var made struct{ Token string }
	if err := n.admin.Do(t.Context(), http.MethodPost, "/api/v1/tokens", map[string]string{"role": "operator", "name": "olga"},
		&made); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, token, doc, code string }{
		{"it fits", n.token(t, "admin"), `{"word":"a","api_key":"k"}`, ""},
		{"it does not", n.token(t, "admin"), `{"word":7}`, "invalid_input"},
		{"an operator may set what is not a secret", made.Token, `{"word":"b","api_key":"***"}`, ""},
		{"and no secret", made.Token, `{"api_key":"mine"}`, "denied"},
		{"nor may an agent anything", n.token(t, "agent"), `{"word":"c"}`, "denied"},
	} {
		if a := n.request(t, http.MethodPut, extensionsDoor+"/tools.say/config", tt.token, tt.doc); a.code() != tt.code {
			t.Errorf("%s: %d %s; want a.code() = %v", tt.name, a.status, a.body, tt.code)
		}
	}
	if a := n.request(t, http.MethodGet, extensionsDoor+"/tools.say/config", n.token(t, "admin"), ""); !strings.Contains(a.body,
		`"word":"b"`) || !strings.Contains(a.body, `"api_key":"***"`) {
		t.Errorf("settings = %s, want word b and a masked api_key", a.body)
	}
	// What was done with it can be read page by page.
	var first, second struct{ Records []struct{ Event string } }
	if err := n.admin.Do(t.Context(), http.MethodGet, extensionsDoor+"/tools.say/logs?limit=2", nil, &first); err != nil ||
		len(first.Records) != 2 || first.Records[0].Event != "config_changed" {
		t.Errorf(`%+v %v; want no error, len(first.Records) = 2, first.Records[0].Event = "config_changed"`, first, err)
	}
	if err := n.admin.Do(t.Context(), http.MethodGet, extensionsDoor+"/tools.say/logs?limit=1&offset=1", nil, &second); err != nil ||
		len(second.Records) != 1 || second.Records[0] != first.Records[1] {
		t.Errorf("%+v %v; want no error, len(second.Records) = 1, second.Records[0] = first.Records[1]", second, err)
	}
	for _, bad := range []string{"/tools.say/logs?limit=1001", "/tools.say/logs?offset=-1"} {
		if a := n.request(t, http.MethodGet, extensionsDoor+bad, n.token(t, "admin"), ""); a.code() != "invalid_input" {
			t.Errorf(`%s: %s; want a.code() = "invalid_input"`, bad, a.body)
		}
	}
	var walls struct {
		Tier   string
		Layers map[string]string
		Held   bool
	}
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/sandbox", nil, &walls); err != nil || !walls.Held || walls.Tier == "" ||
		walls.Layers["hygiene"] != "active" {
		t.Errorf(`%+v %v; want no error, walls.Held = true, walls.Tier other than "", walls.Layers["hygiene"] = "active"`, walls, err)
	}
}

// rezip replaces a text in one file of an archive.
func rezip(t testing.TB, data []byte, name, old, by string) []byte {
	t.Helper()
	in, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	out := zip.NewWriter(&buf)
	for _, f := range in.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if f.Name == name {
			if !bytes.Contains(text, []byte(old)) {
				t.Fatalf("%q is not in %s; want text with []byte(old)", old, name)
			}
			text = bytes.Replace(text, []byte(old), []byte(by), 1)
		}
		w, err := out.Create(f.Name)
		if err == nil {
			_, err = w.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestEachExtensionHasAUserOfItsOwnUnderRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only a server that is root gives users away")
	}
	home := t.TempDir()
	n := serve(t, home)
	owners := make(map[uint32]string)
	for _, id := range []string{"tools.say", "tools.shout"} {
		pkg := rezip(t, sayPackage(t, "1.0.0"), "manifest.json", `"permissions_required":["exec"]`,
			`"permissions_required":["exec","filesystem.write"]`)
		pkg = rezip(t, pkg, "commands/commands.yaml", "exec.echo, argv: ['{args}']", "exec.touch, argv: [made]")
		if id != "tools.say" {
			pkg = rezip(t, pkg, "manifest.json", `"id":"tools.say"`, `"id":"tools.shout"`)
			pkg = rezip(t, pkg, "install/plan.yaml", "id: tools.say", "id: tools.shout")
		}
		if err := n.install(t, pkg); err != nil {
			t.Fatal(err)
		}
		var shown struct {
			Screen struct {
				TreeHash string `json:"tree_hash"`
			}
		}
		if err := n.admin.Do(t.Context(), http.MethodGet, extensionsDoor+"/"+id+"/screen", nil, &shown); err != nil {
			t.Fatal(err)
		}
		if err := n.admin.Do(t.Context(), http.MethodPost, extensionsDoor+"/"+id+"/enable",
			map[string]string{"tree_hash": shown.Screen.TreeHash}, nil); err != nil {
			t.Fatal(err)
		}
		if out, err := n.say(t, "/say:"+id+" hello"); err != nil {
			t.Fatalf("output = %q, error %v, want success", out, err)
		}
		for _, name := range []string{"mark", "made"} { // by the plan, and by the run
			info, err := os.Stat(filepath.Join(home, "extensions", id, "work", name))
			if err != nil {
				t.Fatal(err)
			}
			uid := info.Sys().(*syscall.Stat_t).Uid
			if other := owners[uid]; uid == 0 || other != "" && other != id {
				t.Errorf(`%s of %s belongs to user %d, as %s does; want uid other than 0, not (other != "" && other != id)`,
					name, id, uid, other)
			}
			owners[uid] = id
		}
	}
	if len(owners) != 2 {
		t.Errorf("%v; want len(owners) = 2", owners)
	}
}
