//go:build linux

package pushcode

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/nodes/skill"
	"github.com/junctor-run/junctor/internal/nodes/skill/deviceaction"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/platform/worker"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/payload"
)

func TestMain(m *testing.M) {
	if sandbox.IsHelper(os.Args) {
		os.Exit(sandbox.HelperMain(os.Args))
	}
	if worker.IsWorker(os.Args) {
		os.Exit(worker.Main())
	}
	dir, err := build()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// process is the worker as the product runs it: static. guest is a module for it.
var process, guest string

func build() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "pushed"); err != nil {
		return "", err
	}
	process, guest = filepath.Join(dir, "process"), filepath.Join(dir, "guest.wasm")
	for out, c := range map[string]struct {
		dir string
		env []string
	}{
		process: {"../../../internal/platform/worker/testdata/process", []string{"CGO_ENABLED=0"}},
		guest:   {"../../../internal/platform/worker/testdata/guest", []string{"GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS="}},
	} {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, ".")
		cmd.Dir, cmd.Env = c.dir, append(os.Environ(), c.env...)
		if text, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: %s", err, text)
		}
	}
	return dir, nil
}

// walls runs the static process in the place of this one.
type walls struct{ *sandbox.Box }

func (w walls) Run(ctx context.Context, s sandbox.Spec, c sandbox.Confinement) (sandbox.Result, error) {
	if s.Self {
		s.Self, s.Path, c.Bare = false, process, true
	}
	return w.Box.Run(ctx, s, c)
}

func real(t *testing.T) *codeRuntime {
	t.Helper()
	box := sandbox.New(sandbox.Config{})
	if f := box.Facts(); f.NoT3 != "" && f.NoT2 != "" {
		t.Skipf("SKIPPED: no sandbox can be made here: %s; %s", f.NoT3, f.NoT2)
	}
	return &codeRuntime{worker: worker.New(worker.Config{
		Walls:     walls{box},
		Languages: []string{worker.JavaScript, worker.WASM, worker.Python}, Python: "/usr/bin/python3",
	})}
}

// node is a device with a real runtime.
type node struct {
	host *skill.Host
	exec *functions.Executor
}

func newDevice(t *testing.T, r *codeRuntime) node {
	t.Helper()
	store, err := skill.OpenFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	table := functions.New(0)
	h := skill.New(skill.Config{Node: "n", Functions: table, Actions: new(deviceaction.Set), Store: store, Runtime: r, AllowCode: true})
	t.Cleanup(h.Close)
	exec := functions.NewExecutor(functions.Config{Node: "n", Functions: table, Timeout: 20 * time.Second})
	t.Cleanup(func() { // a call that ran into its timeout may still be ending
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := exec.Close(ctx); err != nil {
			t.Errorf("wait for the running calls: got %v, want no error", err)
		}
	})
	return node{h, exec}
}

// install puts one module on the device; each export is a function of its name.
func (n node) install(t *testing.T, language, source string, exports ...string) error {
	t.Helper()
	m := map[string]any{"module_id": "m", "language": language, "source": source}
	if language == "wasm" {
		code, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		s := payload.Source{Code: code}
		_ = s.Verify()
		m = map[string]any{"module_id": "m", "language": language, "source_base64": base64.StdEncoding.EncodeToString(code), "sha256": s.SHA256}
	}
	var caps []any
	named := strings.NewReplacer("(", "_", ")", "_", ";", "_")
	for _, e := range exports {
		caps = append(caps, map[string]any{
			"alias": e, "function_name": named.Replace("f." + e), "timeout": 15,
			"metadata": map[string]any{"code_binding": cmp.CodeBinding{ModuleID: "m", Export: e}},
		})
	}
	raw, err := jsonx.Marshal(map[string]any{
		"schema": payload.Schema, "version": "1.0", "skill_name": "s-" + language, "capabilities": caps,
		"runtime_modules": []any{m},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = n.host.Install(t.Context(), skill.Order{Payload: raw})
	return err
}

func (n node) call(t *testing.T, name, args string, timeout time.Duration) (string, error) {
	t.Helper()
	a, err := cmp.ParseArguments(json.RawMessage(args))
	if err != nil {
		t.Fatal(err)
	}
	out, err := n.exec.Do(t.Context(), functions.Request{ID: "c1", Function: "f." + name, Args: a, Timeout: timeout, Caller: "agent:a"})
	return string(out.Value), err
}

func reason(err error) string {
	if e := capability.AsError(err); e != nil {
		return e.Reason
	}
	return ""
}

const (
	script = `
const add = (doc) => doc.args[0] + doc.kwargs.b;
function* count(doc) { for (let i = 0; i < doc.args[0]; i++) yield i; }
async function later(doc) { return doc.context; }
function fails() { throw new Error("no camera"); }
function never() { for (;;) {} }
const notCallable = 7; // the end is a comment`
	snake = `
def add(a, b): return a + b
def count(n):
    for i in range(n): yield i
async def later(): return 'later'
def never():
    while True: pass
def fork():
    import os
    made = 0
    try:
        while True:
            if os.fork() == 0:
                while True: pass
            made += 1
    except OSError as e:
        return 'no'
def fill():
    with open('/tmp/full', 'wb') as f:
        while True: f.write(b'x' * 1048576)
notCallable = 7`
)

func TestCodeOfASkillRuns(t *testing.T) {
	t.Parallel()
	n := newDevice(t, real(t))
	if err := n.install(t, "javascript", script, "add", "count", "later", "fails"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, args, want, fails string }{
		{"add", `{"__args__":[1],"__kwargs__":{"b":2}}`, "3", ""},
		{"count", `[3]`, "[0,1,2]", ""},
		{"later", ``, `{"call_id":"c1","caller":"agent:a"}`, ""},
		{"fails", ``, "", cmp.ReasonExecution},
	} {
		got, err := n.call(t, c.name, c.args, 0)
		if got != c.want || reason(err) != c.fails {
			t.Errorf("%s: %s %v; want got = %v, reason(err) = %v", c.name, got, err, c.want, c.fails)
		}
	}
	var chunks []string
	out, err := n.exec.Do(t.Context(), functions.Request{
		Function: "f.count",
		Args:     cmp.Arguments{Args: []json.RawMessage{json.RawMessage("2")}}, Stream: true,
		Emit: func(_ context.Context, c json.RawMessage) error {
			chunks = append(chunks, string(c))
			return nil
		},
	})
	if err != nil || !out.Streamed || strings.Join(chunks, " ") != "0 1" {
		t.Errorf("chunks = %q, output %+v, error %v, want the streamed chunks 0 and 1", chunks, out, err)
	}
	_, err = n.exec.Do(t.Context(), functions.Request{
		Function: "f.count", Args: cmp.Arguments{Args: []json.RawMessage{json.RawMessage("2")}},
		Stream: true, Emit: func(context.Context, json.RawMessage) error { return errors.New("the reader is gone") },
	})
	if reason(err) != cmp.ReasonExecution || !strings.Contains(err.Error(), "the reader is gone") {
		t.Errorf(`%v; want reason(err) = cmp.ReasonExecution, err.Error() with "the reader is gone"`, err)
	}
}

func TestPythonRunsWhereItIsAllowed(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip("SKIPPED: there is no /usr/bin/python3")
	}
	n := newDevice(t, real(t))
	if err := n.install(t, "python", snake, "add", "count", "later"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, args, want string }{
		{"add", `{"__args__":[1],"__kwargs__":{"b":2}}`, "3"},
		{"count", `[3]`, "[0,1,2]"},
		{"later", ``, `"later"`},
	} {
		if got, err := n.call(t, c.name, c.args, 0); got != c.want {
			t.Errorf("%s: %s %v; want got = %v", c.name, got, err, c.want)
		}
	}
}

func TestWASMRuns(t *testing.T) {
	t.Parallel()
	code, err := os.ReadFile(guest)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := real(t).Load(t.Context(), []payload.Source{{ModuleID: "m", Language: "wasi", Code: code}},
		[]cmp.CodeBinding{{ModuleID: "m", Export: "echo"}})
	if err != nil {
		t.Fatal(err)
	}
	defer loaded.Release()
	handle, _, ok := loaded.Export(cmp.CodeBinding{ModuleID: "m", Export: "echo"})
	if !ok {
		t.Fatal("a command has every name")
	}
	got, err := handle(t.Context(), functions.Call{ID: "1", Args: cmp.Arguments{Args: []json.RawMessage{json.RawMessage("1")}}})
	if err != nil || string(got) != `{"args":[1],"context":{"call_id":"1","caller":""},"kwargs":{}}` {
		t.Errorf(`%s %v; want no error, string(got) = "{\"args\":[1],\"context\":{\"call_id\":\"1\",\"caller\":\"\"},\"kwargs\":{}}"`,
			got, err)
	}
	if _, err := real(t).Load(t.Context(), []payload.Source{{ModuleID: "m", Language: "wasm", Code: []byte("MZ")}},
		nil); reason(err) != cmp.ReasonPayload {
		t.Errorf("%v; want reason(err) = cmp.ReasonPayload", err)
	}
}

func TestWhatCannotBeBound(t *testing.T) {
	t.Parallel()
	n := newDevice(t, real(t))
	for name, c := range map[string]struct{ language, source, export, want string }{
		"not there": {"javascript", script, "other", cmp.ReasonBinding}, "not callable": {"js", script, "notCallable", cmp.ReasonBinding},
		"no name": {"js", script, "add();stop", cmp.ReasonBinding},
		"syntax":  {"javascript", "function (", "add", cmp.ReasonPayload},
		"throws":  {"javascript", "throw new Error('no')", "add", cmp.ReasonPayload}, "language": {"ruby", "x", "add", cmp.ReasonLanguage},
	} {
		if err := n.install(t, c.language, c.source, c.export); reason(err) != c.want {
			t.Errorf("%s: %v; want reason(err) = %v", name, err, c.want)
		}
	}
	if len(n.host.Installed()) != 0 {
		t.Error("nothing is installed; want len(n.host.Installed()) = 0")
	}
}

func TestAFileOfTheFolder(t *testing.T) {
	t.Parallel()
	r := real(t)
	handle, streams, err := r.LoadFile(t.Context(), "javascript", []byte(script), "count")
	if err != nil || !streams || handle == nil {
		t.Errorf("LoadFile = %v, streams %v, error %v, want a handle that streams", handle, streams, err)
	}
	if _, _, err := r.LoadFile(t.Context(), "javascript", []byte(script), "other"); err == nil {
		t.Error("an export that is not there; want an error")
	}
}

// Scenario 60: code that forks, fills the disk or never returns is stopped, and the
// node goes on.
func TestScenario60HostileModules(t *testing.T) {
	t.Parallel()
	n := newDevice(t, real(t))
	if err := n.install(t, "javascript", script, "never", "add"); err != nil {
		t.Fatal(err)
	}
	hostile := map[string][]string{"never": {cmp.ReasonTimeout}}
	if _, err := os.Stat("/usr/bin/python3"); err == nil {
		if err := n.install(t, "python", snake, "fork", "fill"); err != nil {
			t.Fatal(err)
		}
		hostile["fork"] = []string{"", cmp.ReasonTimeout, "resource_limit", cmp.ReasonExecution}
		hostile["fill"] = []string{cmp.ReasonExecution, "resource_limit"}
	}
	for name, want := range hostile {
		began := time.Now()
		_, err := n.call(t, name, "", 3*time.Second)
		if !slices.Contains(want, reason(err)) || time.Since(began) > time.Minute {
			t.Errorf("%s: %v after %s; want want with reason(err), time.Since(began) at most a minute",
				name, err, time.Since(began))
		}
		if got, err := n.call(t, "add", `{"__args__":[1],"__kwargs__":{"b":2}}`, 0); got != "3" {
			t.Errorf(`after %s: %s %v; want got = "3"`, name, got, err)
		}
	}
}

// still is a worker that runs until it is stopped.
type still struct{ finish chan struct{} }

func (*still) Languages() map[string]string { return map[string]string{"javascript": ""} }

func (s *still) Run(ctx context.Context, job worker.Job) (worker.Result, error) {
	if strings.HasPrefix(job.Entry, "__") {
		return worker.Result{Value: json.RawMessage(`{"f":"Function"}`)}, nil
	}
	select {
	case <-s.finish:
		return worker.Result{Value: json.RawMessage("1")}, nil
	case <-ctx.Done():
		return worker.Result{}, ctx.Err()
	}
}

func TestWhatRunsHasItsGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &still{finish: make(chan struct{})}
		b := cmp.CodeBinding{ModuleID: "m", Export: "f"}
		load := func() (func(context.Context, functions.Call) (json.RawMessage, error), func()) {
			p, err := (&codeRuntime{worker: w}).Load(t.Context(), []payload.Source{{ModuleID: "m", Language: "js"}}, []cmp.CodeBinding{b})
			if err != nil {
				t.Fatal(err)
			}
			handle, _, _ := p.Export(b)
			return handle, p.Release
		}
		handle, release := load()
		ends := make(chan error, 1)
		go func() { _, err := handle(t.Context(), functions.Call{}); ends <- err }()
		synctest.Wait()
		began := time.Now()
		release()
		release()
		if err := <-ends; reason(err) != cmp.ReasonExecution || time.Since(began) != releaseGrace {
			t.Errorf("end = %v after %v, want an execution error after %v", err, time.Since(began), releaseGrace)
		}
		handle, release = load()
		go func() { _, err := handle(t.Context(), functions.Call{}); ends <- err }()
		synctest.Wait()
		release()
		close(w.finish)
		if err := <-ends; err != nil {
			t.Error("what ends in time ends well:", err)
		}
	})
}

func FuzzExports(f *testing.F) {
	f.Add([]byte("\x00asm\x01\x00\x00\x00\x07\x05\x01\x01f\x00\x00"))
	f.Add([]byte("\x00asm\x01\x00\x00\x00\x07\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, code []byte) {
		p, err := new(codeRuntime).Load(t.Context(), []payload.Source{{ModuleID: "m", Language: "wasm", Code: code}},
			[]cmp.CodeBinding{{ModuleID: "m", Export: "f"}})
		if err == nil {
			p.Release()
		} else if reason(err) != cmp.ReasonPayload {
			t.Fatalf("%v; want reason(err) = cmp.ReasonPayload", err)
		}
	})
}
