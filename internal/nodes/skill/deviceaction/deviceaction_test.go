//go:build unix

package deviceaction_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/skill/deviceaction"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/internal/testkit/programfile"
	"github.com/junctor-run/junctor/protocol/cmp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// folder writes files; those that begin with #! may be executed.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		mode := os.FileMode(0o600)
		if strings.HasPrefix(content, "#!") {
			mode = 0o700
		}
		programfile.Write(t, filepath.Join(dir, name), content, mode)
	}
	return dir
}

func answers(answer string) functions.Handler {
	return func(context.Context, functions.Call) (json.RawMessage, error) { return json.RawMessage(answer), nil }
}

// loads runs nothing: a module answers with its language and export.
func loads(_ context.Context, language string, code []byte, export string) (functions.Handler, bool, error) {
	if string(code) == "broken" {
		return nil, false, errors.New("it cannot be loaded")
	}
	return answers(`"` + language + " " + export + `"`), false, nil
}

func call(t *testing.T, s *deviceaction.Set, name, args string, emit func(context.Context, json.RawMessage) error) (string, error) {
	t.Helper()
	a, ok := s.Get(name)
	if !ok {
		t.Fatalf("%v; want ok = true", "there is no action "+name)
	}
	parsed, err := cmp.ParseArguments(json.RawMessage(args))
	if err != nil {
		t.Fatal(err)
	}
	v, err := a.Handle(t.Context(), functions.Call{Args: parsed, Emit: emit})
	return string(v), err
}

func TestAFolderOfActions(t *testing.T) {
	dir := folder(t, map[string]string{
		"echo": "#!/bin/sh\ncat\n", "echo.action.json": `{"description":"says it again","metadata":{"k":1}}`,
		"greet.sh": "#!/bin/sh\nprintf 'hello %s' \"$2\"\n", "greet.sh.action.json": `{"name":"say.hello","argv":["-x"],"input":"args","output":"text"}`,
		"fails": "#!/bin/sh\necho no camera >&2\nexit 3\n", "fails.action.json": `{}`,
		"babbles": "#!/bin/sh\necho not json\n", "babbles.action.json": `{}`,
		"env": "#!/bin/sh\nenv\n", "env.action.json": `{"output":"text"}`,
		"add.wasm": "code", "add.action.json": `{"export":"plus"}`,
		"mul.js": "code", "mul.js.action.json": `{"name":"mul"}`,
		"README": "not an action",
	})
	var s deviceaction.Set
	n, err := s.Load(t.Context(), deviceaction.Folder{Path: dir, Load: loads})
	if err != nil || n != 7 {
		t.Fatalf("err = %v, want nil; n = %v, want 7", err, n)
	}
	t.Setenv("JUNCTOR_TOKEN", "secret")
	for _, c := range []struct{ name, args, want, fails string }{
		{"echo", `{"a":[1]}`, `{"args":[],"kwargs":{"a":[1]}}`, ""},
		{"say.hello", `["you; rm -rf"]`, `"hello you; rm -rf"`, ""},
		{"say.hello", `["--flag"]`, "", cmp.ReasonParams},
		{"say.hello", `{"k":1}`, "", cmp.ReasonParams},
		{"fails", ``, "", cmp.ReasonExecution},
		{"babbles", ``, "", cmp.ReasonExecution},
		{"add", ``, `"wasm plus"`, ""},
		{"mul", ``, `"javascript mul"`, ""},
	} {
		got, err := call(t, &s, c.name, c.args, nil)
		reason := ""
		if err != nil {
			reason = capability.AsError(err).Reason
		}
		if got != c.want || reason != c.fails {
			t.Errorf("%s(%s): %s %v; want got = %v, reason = %v", c.name, c.args, got, err, c.want, c.fails)
		}
	}
	if got, _ := call(t, &s, "env", "", nil); strings.Contains(got, "JUNCTOR") {
		t.Errorf(`our environment is not the program's: %v; want got without "JUNCTOR"`, got)
	}
	if _, modules := s.Status(); modules != 2 || string(s.List()["echo"].Metadata) != `{"k":1}` {
		t.Errorf(`%d %+v; want modules = 2, string(s.List()["echo"].Metadata) = "{\"k\":1}"`, modules, s.List())
	}
	if err := s.Register(deviceaction.Action{Name: " echo ", Handle: answers("1")}); err != nil {
		t.Fatal(err)
	}
	if got, _ := call(t, &s, "echo", "", nil); got != "1" {
		t.Errorf(`what the program registers comes first: %v; want got = "1"`, got)
	}
}

func TestAProgramStreams(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{
		"s": "#!/bin/sh\necho 1\necho '{\"a\":2}'\nread x\necho 3\n", "s.action.json": `{"stream":true}`,
		"long": "#!/bin/sh\necho 1\nsleep 60 & wait\n", "long.action.json": `{"stream":true}`,
	})
	var s deviceaction.Set
	if _, err := s.Load(t.Context(), deviceaction.Folder{Path: dir}); err != nil {
		t.Fatal(err)
	}
	if a, _ := s.Get("s"); !a.Stream {
		t.Error("it streams")
	}
	var got []string
	v, err := call(t, &s, "s", "", func(_ context.Context, c json.RawMessage) error { got = append(got, string(c)); return nil })
	if err != nil || v != "" || strings.Join(got, " ") != `1 {"a":2} 3` {
		t.Errorf("err = %v, want nil; v = %q, want \"\"; strings.Join(got, \" \") = %q, want \"1 {\\\"a\\\":2} 3\"",
			err, v, strings.Join(got, " "))
	}
	refused := errors.New("the reader is gone")
	if _, err := call(t, &s, "long", "", func(context.Context, json.RawMessage) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("a chunk that is refused ends the program: %v; want err is %v", err, refused)
	}
}

// Scenario 27: all or nothing, and the status names the file.
func TestScenario27BrokenFile(t *testing.T) {
	t.Parallel()
	good := map[string]string{"aa": "#!/bin/sh\n", "aa.action.json": `{}`}
	for name, c := range map[string]struct {
		files map[string]string
		kind  string
	}{
		"no JSON":        {map[string]string{"zz.action.json": `{`}, "SyntaxError"},
		"unknown field":  {map[string]string{"zz.action.json": `{"nme":"x"}`, "zz": "#!"}, "SyntaxError"},
		"no code":        {map[string]string{"zz.action.json": `{}`}, "ImportError"},
		"not executable": {map[string]string{"zz.action.json": `{}`, "zz": "x"}, "PermissionError"},
		"broken module":  {map[string]string{"zz.action.json": `{}`, "zz.wasm": "broken"}, "ImportError"},
		"undeclared":     {map[string]string{"zz.py": "def f(): ..."}, "ImportError"},
		"same name":      {map[string]string{"zz.action.json": `{"name":"aa"}`, "zz": "#!"}, "ValueError"},
		"input":          {map[string]string{"zz.action.json": `{"input":"telepathy"}`, "zz": "#!"}, "ValueError"},
		"timeout":        {map[string]string{"zz.action.json": `{"timeout":-1}`, "zz": "#!"}, "ValueError"},
		"metadata":       {map[string]string{"zz.action.json": `{"metadata":[]}`, "zz": "#!"}, "ValueError"},
		"large":          {map[string]string{"zz.action.json": strings.Repeat(" ", 70<<10), "zz": "#!"}, "ValueError"},
	} {
		files := maps.Clone(good)
		maps.Copy(files, c.files)
		var s deviceaction.Set
		now := func() time.Time { return time.Unix(0, 0) }
		s.TryLoad(t.Context(), deviceaction.Folder{Path: folder(t, files), Shown: "node/actions", Load: loads, Now: now})
		got, _ := s.Status()
		if !got.Attempted || got.Loaded || got.ActionsRegistered != 0 || *got.ErrorType != c.kind || !strings.Contains(*got.Error, "zz") ||
			len(s.List()) != 0 || *got.Path != "node/actions" || *got.AttemptedAt != "1970-01-01T00:00:00.000000+00:00" || got.ErrorCode == "" {
			t.Errorf("%s: %+v %v", name, got, slices.Collect(maps.Keys(s.List())))
		}
	}
}

func TestALaterAttemptTakesTheOldOnesPlace(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"a": "#!/bin/sh\n", "a.action.json": `{}`})
	var s deviceaction.Set
	f := deviceaction.Folder{Path: dir}
	s.TryLoad(t.Context(), f)
	if got, _ := s.Status(); !got.Loaded || got.ActionsRegistered != 1 || got.Error != nil || *got.Path != filepath.Base(dir) {
		t.Errorf("%+v; want got.Loaded = true, got.ActionsRegistered = 1, got.Error = nil, *got.Path = filepath.Base(dir)", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "b.action.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.TryLoad(t.Context(), f)
	if got, _ := s.Status(); got.Loaded || len(s.List()) != 1 {
		t.Error("an attempt that fails takes nothing away; want got.Loaded = false, len(s.List()) = 1")
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "b.action.json")), os.Remove(filepath.Join(dir, "a.action.json"))); err != nil {
		t.Fatal(err)
	}
	s.TryLoad(t.Context(), f)
	if got, _ := s.Status(); !got.Loaded || len(s.List()) != 0 {
		t.Error("what is gone from the folder is gone; want got.Loaded = true, len(s.List()) = 0")
	}
}

func TestWhoMayWriteIsWhoMayRun(t *testing.T) {
	t.Parallel()
	var s deviceaction.Set
	for name, change := range map[string]func(dir string) error{
		"file":   func(dir string) error { return os.Chmod(filepath.Join(dir, "a"), 0o777) },
		"side":   func(dir string) error { return os.Chmod(filepath.Join(dir, "a.action.json"), 0o666) },
		"folder": func(dir string) error { return os.Chmod(dir, 0o777) },
	} {
		dir := folder(t, map[string]string{"a": "#!/bin/sh\n", "a.action.json": `{}`})
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		s.TryLoad(t.Context(), deviceaction.Folder{Path: dir})
		if got, _ := s.Status(); got.Loaded || *got.ErrorType != "PermissionError" {
			t.Errorf(`%s: %+v; want got.Loaded = false, *got.ErrorType = "PermissionError"`, name, got)
		}
	}
	dir := folder(t, map[string]string{"a.action.json": `{}`})
	if err := os.Symlink("/bin/sh", filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	s.TryLoad(t.Context(), deviceaction.Folder{Path: dir})
	if got, _ := s.Status(); got.Loaded || *got.ErrorType != "ImportError" {
		t.Errorf(`a link is not a file of the folder: %+v; want got.Loaded = false, *got.ErrorType = "ImportError"`, got)
	}
}

func TestActionsHaveRules(t *testing.T) {
	t.Parallel()
	var s deviceaction.Set
	for name, a := range map[string]deviceaction.Action{
		"no name": {Handle: answers("1")}, "no handler": {Name: "a"}, "control": {Name: "a\n", Handle: nil},
		"metadata": {Name: "a", Handle: answers("1"), Metadata: json.RawMessage("[]")},
		"long":     {Name: strings.Repeat("a", 300), Handle: answers("1")},
	} {
		if s.Register(a) == nil {
			t.Errorf("%s: Register = nil, want an error", name)
		}
	}
}

func FuzzSideFile(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"name":"a","argv":["x"],"input":"args","output":"text","stream":true,"timeout":1.5}`,
		`{"metadata":{"k":[1]}}`, `{"name":"a\u0000"}`,
	} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, "a"+deviceaction.SideFile), data, 0o600); err != nil {
			t.Fatal(err)
		}
		var s deviceaction.Set
		s.TryLoad(t.Context(), deviceaction.Folder{Path: dir})
		got, _ := s.Status()
		if got.Loaded != (len(s.List()) == 1) || got.Loaded == (got.Error != nil) {
			t.Fatalf("%q: %+v; want got.Loaded = (len(s.List()) == 1), got.Loaded other than (got.Error != nil)", data, got)
		}
	})
}
