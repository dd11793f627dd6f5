package extension_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/archive"
	"github.com/junctor-run/junctor/internal/extensions/extension"
	"github.com/junctor-run/junctor/internal/extensions/operator"
)

func tree(t *testing.T, dir string) *archive.Tree {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	got, err := archive.ReadDir(root)
	if err == nil {
		got, err = got.Package()
	}
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func rules() extension.Rules {
	return extension.Rules{OS: "linux", Version: "v1.2.0", Reserved: operator.ReservedCommand}
}

func TestTheExamplePackageIsRead(t *testing.T) {
	t.Parallel()
	files := tree(t, "testdata/postman")
	p, err := extension.Read(files, rules())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"exec", "network", "filesystem.write", "llm"}, p.Permissions); d != "" || len(p.Warnings) != 0 {
		t.Errorf(`d = %q, want ""; p = %+v, want len(p.Warnings) = 0; p.Warnings = %q`, d, p, p.Warnings)
	}
	x, diagnostics, err := p.Extension("INSTALLED", true, []string{"postman.explain"})
	if err != nil || len(diagnostics) != 0 {
		t.Fatalf("err = %v, want nil; len(diagnostics) = %v, want 0; diagnostics = %q", err, len(diagnostics), diagnostics)
	}
	got := make(map[string]string)
	for _, c := range x.Module().Contributions {
		got[c.ID] = string(c.Effect) + " " + strings.Join(c.Permissions, ",")
	}
	want := map[string]string{
		"command.postman":      " ",
		"tool.postman.get":     "external exec,network,filesystem.write,llm",
		"tool.postman.explain": "read llm",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	if !p.HasAction("postman.test") || p.HasAction("postman.none") {
		t.Error("actions")
	}
	if usage, err := extension.Usage(files, &p.Manifest); err != nil || !strings.Contains(usage, "/postman get URL") {
		t.Errorf(`extension.Usage(files, &p.Manifest): err = %v, want nil; usage = %q, want it to contain "/postman get URL"`, err, usage)
	}
	if _, err := json.Marshal(p); err != nil {
		t.Error(err)
	}
}

func TestTheSmallExamplesAreRead(t *testing.T) {
	t.Parallel()
	hello, err := extension.Read(tree(t, "testdata/hello"), rules())
	if err != nil {
		t.Fatal(err)
	}
	if c := hello.Commands[0]; c.Name != "/hello" || c.Runner != "exec.entrypoint" || c.Actions[0].ID != "default" ||
		c.Actions[0].Entrypoint != "scripts/hello" || len(hello.Warnings) != 3 {
		t.Errorf(`%+v %q; want c.Name = "/hello", c.Runner = "exec.entrypoint", c.Actions[0].ID = "default", `+
			`c.Actions[0].Entrypoint = "scripts/hello", len(hello.Warnings) = 3`, c, hello.Warnings)
	}
	strict := rules()
	strict.Strict, strict.NoExternalBins = true, true
	test, err := extension.Read(tree(t, "testdata/test"), strict)
	if err != nil {
		t.Fatal(err)
	}
	if c := test.Commands[0]; len(test.Commands) != 1 || len(c.Actions) != 2 || c.Actions[1].TimeoutSec != 10 || c.Permissions[0] != "exec" {
		t.Errorf(`%+v; want len(test.Commands) = 1, len(c.Actions) = 2, c.Actions[1].TimeoutSec = 10, c.Permissions[0] = "exec"`,
			test.Commands)
	}
}

// files is a package in memory.
type files map[string]string

func (f files) Has(name string) bool { _, ok := f[name]; return ok }

func (f files) ReadFile(name string, limit int64) ([]byte, error) {
	data, ok := f[name]
	switch {
	case !ok:
		return nil, capability.Errorf(capability.CodeNotFound, "test", "no %s", name)
	case int64(len(data)) > limit:
		return nil, capability.Errorf(capability.CodeTooLarge, "test", "%s is long", name)
	}
	return []byte(data), nil
}

func (f files) Sum(name string, limit int64) (string, error) {
	_, err := f.ReadFile(name, limit)
	return strings.Repeat("ab", 32), err
}

func minimal() files {
	return files{
		"manifest.json": `{"id":"a.b","name":"n","version":"1.0.0","description":"","author":"","license":"","capabilities":[{"type":"tool","name":"a.b"}],"platforms":["all"],` +
			`"install":{"plan":"install/plan.yaml"},"docs":{"usage":"docs/USAGE.md"}}`,
		"commands/commands.yaml": "slash_commands: [{name: /b, summary: s, actions: [{id: a, runner: analyze.response}]}]",
		"install/plan.yaml":      "steps: []",
		"docs/USAGE.md":          "usage",
	}
}

// with changes members of the manifest; null takes one away.
func with(t *testing.T, f files, members string) files {
	t.Helper()
	var doc, change map[string]json.RawMessage
	if err := json.Unmarshal([]byte(f["manifest.json"]), &doc); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(members), &change); err != nil {
		t.Fatal(err)
	}
	for k, v := range change {
		if doc[k] = v; string(v) == `"-"` {
			delete(doc, k)
		}
	}
	data, _ := json.Marshal(doc)
	out := maps.Clone(f)
	out["manifest.json"] = string(data)
	return out
}

func TestManifests(t *testing.T) {
	t.Parallel()
	for members, want := range map[string]string{
		`{}`:                                     "",
		`{"id":"a"}`:                             extension.ReasonManifest,
		`{"id":"a..b"}`:                          extension.ReasonManifest,
		`{"id":".a.b"}`:                          extension.ReasonManifest,
		`{"id":"a.b."}`:                          extension.ReasonManifest,
		`{"id":"../a.b"}`:                        extension.ReasonManifest,
		`{"id":"core.x"}`:                        extension.ReasonManifest,
		`{"id":"Remote.x"}`:                      extension.ReasonManifest,
		`{"id":"local.x"}`:                       extension.ReasonManifest,
		`{"id":"corey.x"}`:                       "",
		`{"env":{"set":{"GLIBC_TUNABLES":"x"}}}`: extension.ReasonManifest,
		`{"env":{"set":{"OPENSSL_CONF":"/ext/x"}}}`:         extension.ReasonManifest,
		`{"env":{"secrets":{"LD_PRELOAD":"key"}}}`:          extension.ReasonManifest,
		`{"env":{"set":{"MODE":"x"}}}`:                      "",
		`{"id":"skillful.x"}`:                               "",
		`{"name":" "}`:                                      extension.ReasonManifest,
		`{"name":"a\u202eb"}`:                               extension.ReasonManifest,
		`{"name":"a\nb"}`:                                   extension.ReasonManifest,
		`{"version":"1.0"}`:                                 extension.ReasonManifest,
		`{"version":"01.0.0"}`:                              extension.ReasonManifest,
		`{"version":"1.0.0-rc.1+b"}`:                        "",
		`{"author":"-"}`:                                    extension.ReasonManifest,
		`{"capabilities":[]}`:                               extension.ReasonManifest,
		`{"capabilities":[{"type":"plugin","name":"a.b"}]}`: extension.ReasonManifest,
		`{"capabilities":[{"type":"slash_command","name":"/b"},{"type":"slash_command","name":"examples.hello"}]}`:                                            "",
		`{"capabilities":[{"command":"/b","runner":"exec.x","permissions":[]}]}`:                                                                              extension.ReasonManifest,
		`{"capabilities":[{"command":"/b","runner":"exec./bin/sh","permissions":["exec"]}]}`:                                                                  "unsupported_runner",
		`{"capabilities":[{"command":"/b","runner":"exec.shell","permissions":["exec"]}]}`:                                                                    extension.ReasonManifest,
		`{"capabilities":[{"command":"/b","runner":"exec.shell","permissions":["exec"],"allowed_commands":["a; b"]}]}`:                                        extension.ReasonManifest,
		`{"capabilities":[{"command":"/b","runner":"exec.shell","permissions":["exec"],"allowed_commands":["git log {n}"]}],"permissions_required":["exec"]}`: "",
		`{"platforms":[]}`:                                 extension.ReasonManifest,
		`{"platforms":["windows"]}`:                        extension.ReasonManifest,
		`{"platforms":["win32"]}`:                          extension.ReasonPlatform,
		`{"install":{"mode":"other","plan":"x"}}`:          extension.ReasonManifest,
		`{"install":{"plan":"../x"}}`:                      extension.ReasonManifest,
		`{"install":{"plan":"install/other.yaml"}}`:        extension.ReasonManifest,
		`{"docs":{"usage":"/etc/passwd"}}`:                 extension.ReasonManifest,
		`{"permissions_required":["root"]}`:                extension.ReasonManifest,
		`{"permissions":{"root":{"reason":"x"}}}`:          extension.ReasonManifest,
		`{"entrypoint":null}`:                              "",
		`{"entrypoint":"main.py"}`:                         extension.ReasonManifest,
		`{"icon":"icon.gif"}`:                              extension.ReasonManifest,
		`{"icon":"icon.png"}`:                              extension.ReasonManifest,
		`{"runtime":"native"}`:                             extension.ReasonManifest,
		`{"runtime":"python"}`:                             extension.ReasonManifest,
		`{"runtime":"python","python":{"version":"3.11"}}`: "",
		`{"external_bins":["/bin/sh"]}`:                    extension.ReasonManifest,
		`{"external_bins":"curl"}`:                         extension.ReasonManifest,
		`{"tools":[{"name":"x","path":"bin/x","sha256":"` + strings.Repeat("ab", 32) + `"}]}`:   extension.ReasonManifest,
		`{"tools":[{"name":"x","path":"tools/x","sha256":"` + strings.Repeat("ab", 32) + `"}]}`: extension.ReasonManifest, // it is not there
		`{"network":{"allow":["http://a.test"]}}`:                                               extension.ReasonManifest,
		`{"network":{"allow":["*"]}}`:                                                           extension.ReasonManifest,
		`{"network":{"allow":["a.test","*.b.test:8443"]}}`:                                      "",
		`{"limits":{"timeout_sec":-1}}`:                                                         extension.ReasonManifest,
		`{"env":{"pass":["A B"]}}`:                                                              extension.ReasonManifest,
		`{"env":{"set":{"A":"b"},"secrets":{"T":"token"}}}`:                                     "",
		`{"config_schema":[]}`:                                                                  extension.ReasonManifest,
		`{"min_agent_version":"1.2.0"}`:                                                         "",
		`{"min_agent_version":"1.3.0"}`:                                                         extension.ReasonPlatform,
		`{"unknown":1}`:                                                                         "",
		`{"description":"` + strings.Repeat("x", 4097) + `"}`:                                   extension.ReasonManifest,
		`{"description":"` + strings.Repeat("x", 101<<10) + `"}`:                                "",
	} {
		_, err := extension.Read(with(t, minimal(), members), rules())
		if len(members) > 100<<10 {
			if capability.CodeOf(err) != capability.CodeTooLarge {
				t.Error("a long manifest; want capability.CodeOf(err) = capability.CodeTooLarge")
			}
			continue
		}
		got := ""
		if err != nil {
			got = capability.AsError(err).Reason
		}
		if got != want {
			t.Errorf("%.150s: %v; want got = %v", members, err, want)
		}
	}
	twice := minimal()
	twice["manifest.json"] = strings.Replace(twice["manifest.json"], `"name":"n"`, `"name":"n","name":"m"`, 1)
	if _, err := extension.Read(twice, rules()); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeInvalidInput", err)
	}
	strict := rules()
	strict.Strict = true
	if _, err := extension.Read(with(t, minimal(), `{"unknown":1}`), strict); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeInvalidInput", err)
	}
}

func TestPartsOfAPackage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ why, name, data, want string }{
		{"no guide", "docs/USAGE.md", "-", extension.ReasonManifest},
		{"no plan", "install/plan.yaml", "-", extension.ReasonManifest},
		{"no commands", "commands/commands.yaml", "-", extension.ReasonManifest},
		{
			"reserved", "commands/commands.yaml", "slash_commands: [{name: /Help, summary: s, actions: [{id: a, runner: exec.x}]}]",
			extension.ReasonReserved,
		},
		{"reserved alias", "commands/commands.yaml", "slash_commands: [{name: /b, aliases: [status], summary: s, actions: [{id: a, runner: exec.x}]}]", extension.ReasonReserved},
		{"no entrypoint", "commands/commands.yaml", "commands: [{name: /b, description: d, entrypoint: scripts/x}]", extension.ReasonManifest},
		{
			"an entrypoint that is not named", "commands/commands.yaml",
			"slash_commands: [{name: /b, summary: s, actions: [{id: a, runner: exec.entrypoint}]}]", "invalid_commands",
		},
		{
			"no script", "commands/commands.yaml", "slash_commands: [{name: /b, summary: s, actions: [{id: a, runner: script.js}]}]",
			extension.ReasonManifest,
		},
		{"script of another kind", "commands/commands.yaml", "slash_commands: [{name: /b, summary: s, actions: [{id: a, runner: script.wasm, script: docs/USAGE.md}]}]", extension.ReasonManifest},
		{"script outside", "commands/commands.yaml", "slash_commands: [{name: /b, summary: s, actions: [{id: a, runner: script.js, script: ../x.js}]}]", "invalid_commands"},
		{"plan asks for more", "install/plan.yaml", "steps: [{type: exec.shell, command: x}]", "permission_denied"},
		{"plan of another", "install/plan.yaml", "id: c.d", "invalid_plan"},
	} {
		f := minimal()
		if f[tt.name] = tt.data; tt.data == "-" {
			delete(f, tt.name)
		}
		_, err := extension.Read(f, rules())
		if err == nil || capability.AsError(err).Reason != tt.want {
			t.Errorf("%s: %v; want an error, capability.AsError(err).Reason = %v", tt.why, err, tt.want)
		}
	}
	f := minimal()
	f["commands.yaml"] = f["commands/commands.yaml"]
	delete(f, "commands/commands.yaml")
	if p, err := extension.Read(f, rules()); err != nil || len(p.Warnings) != 1 {
		t.Errorf("%v; want no error, len(p.Warnings) = 1", err)
	}
}

func TestFormBJoinsTheCommands(t *testing.T) {
	t.Parallel()
	p, err := extension.Read(with(t, minimal(), `{"capabilities":[{"command":"/b","runner":"exec.x","permissions":["network_http"],"timeout_sec":9},{"command":"/c","runner":"exec.shell","permissions":["exec_shell"],"allowed_commands":["git log {n}"],"summary":"Log"}]}`), rules())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"exec", "network"}, p.Permissions); d != "" || len(p.Warnings) != 2 || len(p.Commands) != 2 {
		t.Fatalf("diff (-want +got):\n%s; p = %+v, want len(p.Warnings) = 2 and len(p.Commands) = 2; p.Warnings = %q", d, p, p.Warnings)
	}
	if b, c := p.Commands[0], p.Commands[1]; b.Actions[0].TimeoutSec != 9 || b.Permissions[0] != "network" || c.Name != "/c" ||
		c.Actions[0].Command != "git log {n}" || c.Summary != "Log" {
		t.Errorf(`%+v; want b.Actions[0].TimeoutSec = 9, b.Permissions[0] = "network", c.Name = "/c", c.Actions[0].Command = `+
			`"git log {n}", c.Summary = "Log"`, p.Commands)
	}
}

func TestAnActionThatCanNeverRunIsTold(t *testing.T) {
	t.Parallel()
	for runner, want := range map[string]string{"browser.open": "browser", "api.get": "", "analyze.response": "", "db.exec": "db.write"} {
		doc := fmt.Sprintf(`{"permissions_required":["exec","network"],"capabilities":[{"command":"/z","runner":%q,"permissions":["network"],"summary":"Z"}]}`, runner)
		p, err := extension.Read(with(t, minimal(), doc), rules())
		if err != nil {
			t.Fatalf("err = %v, want nil; runner = %q", err, runner)
		}
		found := strings.Join(p.Warnings, "\n")
		if want == "" && strings.Contains(found, "cannot run") || want != "" &&
			!strings.Contains(found, "/z default cannot run: its runner needs the permission "+want) {
			t.Errorf("%s: %s", runner, found)
		}
	}
}

func TestRuntimePolicy(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]extension.PolicyCode{
		`{}`:                   extension.PolicyRuntimeMissing,
		`{"runtime":"python"}`: extension.PolicyBinsMissing,
		`{"runtime":"python","external_bins":"x"}`:     extension.PolicyBinsInvalid,
		`{"runtime":"python","external_bins":null}`:    extension.PolicyBinsInvalid,
		`{"runtime":"python","external_bins":["x"]}`:   extension.PolicyBinaryForbidden,
		`{"runtime":"declarative","external_bins":[]}`: extension.PolicyCompliant,
	} {
		if got := extension.RuntimePolicy([]byte(doc)); got != want {
			t.Errorf("%s: %s; want got = %v", doc, got, want)
		}
	}
	on := rules()
	on.NoExternalBins = true
	if _, err := extension.Read(minimal(), on); err == nil || capability.AsError(
		err).Details["policy_code"] != "POLICY_RUNTIME_FIELD_MISSING" {
		t.Errorf(`%v; want an error, capability.AsError( err).Details["policy_code"] = "POLICY_RUNTIME_FIELD_MISSING"`, err)
	}
}

func TestVersionsAreOrdered(t *testing.T) {
	t.Parallel()
	list := []string{
		"0.9.9", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0",
		"1.0.1", "1.10.0", "2.0.0+b",
	}
	for i, a := range list {
		for j, b := range list {
			got := extension.CompareVersions(a, b)
			if (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%s, %s: %d; want (got < 0) = (i < j), (got > 0) = (i > j)", a, b, got)
			}
		}
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(minimal()["manifest.json"]))
	data, err := os.ReadFile("testdata/postman/manifest.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, _, err := extension.ParseManifest(data)
		if err == nil && (!extension.ValidID(m.ID) || len(m.Capabilities) == 0) {
			t.Fatalf("%+v; want not (err == nil && (!extension.ValidID(m.ID) || len(m.Capabilities) == 0))", m)
		}
		if err != nil && capability.AsError(err).Reason == "" {
			t.Fatalf(`%v; want not (err != nil && capability.AsError(err).Reason == "")`, err)
		}
	})
}

// An action without a script means the one of its command; what it is, is hashed.
func TestScriptsAreFound(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ runner, file, script, want string }{
		{"script.js", "scripts/b.js", "", "scripts/b.js"},
		{"script.wasm", "scripts/b.wasm", "", "scripts/b.wasm"},
		{"exec.script", "scripts/b.wasm", "", "scripts/b.wasm"},
		{"exec.script", "scripts/own.js", "scripts/own.js", "scripts/own.js"},
		{"exec.echo", "scripts/b.js", "scripts/b.js", ""},
		{"builtin", "commands/handlers.py", "", ""},
	} {
		f := minimal()
		f[tt.file] = "code"
		f["commands/commands.yaml"] = "slash_commands: [{name: /b, summary: s, actions: [{id: a, runner: " + tt.runner + ", script: '" +
			tt.script + "'}]}]"
		p, err := extension.Read(f, rules())
		if err != nil {
			t.Errorf("%+v: %v", tt, err)
			continue
		}
		a := p.Commands[0].Actions[0]
		if hashed := tt.want == "" && a.ScriptSHA256 == "" || tt.want != "" && len(a.ScriptSHA256) == 64; a.Script != tt.want &&
			tt.runner != "builtin" || !hashed {
			t.Errorf(`%+v: %q %q; want not (a.Script != tt.want && tt.runner != "builtin"), hashed = true`,
				tt, a.Script, a.ScriptSHA256)
		}
	}
}
