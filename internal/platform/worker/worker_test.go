//go:build linux

package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/platform/worker"
)

func TestMain(m *testing.M) {
	if sandbox.IsHelper(os.Args) {
		syscall.Exit(sandbox.HelperMain(os.Args)) // os.Exit waits a second with the race detector
	}
	if worker.IsWorker(os.Args) {
		syscall.Exit(worker.Main()) // os.Exit waits a second with the race detector
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

// process is the path of the worker, as the product runs it: static.
var process string

func build() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "worker"); err != nil {
		return "", err
	}
	process = filepath.Join(dir, "process")
	cmd := exec.Command("go", "build", "-o", process, "./testdata/process")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return dir, nil
}

// at forces a tier, and runs the process in the room that the product runs it in.
type at struct {
	*sandbox.Box
	tier sandbox.Tier
}

func (a at) force(c sandbox.Confinement) sandbox.Confinement {
	c.MinTier, c.MaxTier = a.tier, a.tier
	return c
}

func (a at) Place(c sandbox.Confinement) (sandbox.Placement, error) { return a.Box.Place(a.force(c)) }

func (a at) Run(ctx context.Context, s sandbox.Spec, c sandbox.Confinement) (sandbox.Result, error) {
	if s.Self {
		s.Self, s.Path, c.Bare = false, process, true
	}
	return a.Box.Run(ctx, s, a.force(c))
}

// eachTier runs a test at both confined tiers, and states why where it cannot.
func eachTier(t *testing.T, test func(t *testing.T, r *worker.Runner)) {
	t.Helper()
	box := sandbox.New(sandbox.Config{})
	f := box.Facts()
	for tier, why := range map[sandbox.Tier]string{sandbox.T3: f.NoT3, sandbox.T2: f.NoT2} {
		t.Run(tier.String(), func(t *testing.T) {
			t.Parallel()
			if why != "" {
				t.Skipf("SKIPPED: %s", why)
			}
			test(t, worker.New(worker.Config{
				Walls: at{box, tier}, Languages: []string{worker.JavaScript, worker.WASM, worker.Python},
				Python: "/usr/bin/python3",
			}))
		})
	}
}

// outcome is what a run is expected to come to.
type outcome struct {
	value   string // JSON
	chunks  []string
	code    capability.Code
	reason  string
	message string // a part of it
}

func check(t *testing.T, r *worker.Runner, job worker.Job, want outcome) worker.Result {
	t.Helper()
	var chunks []string
	if job.Chunk == nil {
		job.Chunk = func(c json.RawMessage) { chunks = append(chunks, string(c)) }
	}
	got, err := r.Run(t.Context(), job)
	if want.code == "" {
		if err != nil || string(got.Value) != want.value || fmt.Sprint(chunks) != fmt.Sprint(want.chunks) {
			t.Errorf("got %.300s %v, %v; want %s %v", got.Value, chunks, err, want.value, want.chunks)
		}
		return got
	}
	e, ok := errors.AsType[*capability.Error](err)
	if !ok || e.Code != want.code || e.Reason != want.reason || !strings.Contains(e.Message, want.message) {
		t.Errorf("got %.200s, %v (%+v); want %+v", got.Value, err, e, want)
	}
	return got
}

const document = `{"args":["a",2],"kwargs":{"k":true},"context":{"session_id":"s"}}`

func js(code string) worker.Job {
	return worker.Job{Language: "js", Code: []byte(code), Input: json.RawMessage(document), Timeout: 20 * time.Second}
}

func TestJavaScriptAnswers(t *testing.T) {
	t.Parallel()
	eachTier(t, func(t *testing.T, r *worker.Runner) {
		for name, c := range map[string]struct {
			code, entry, handler string
			want                 outcome
		}{
			"a string": {
				"function main(i) { return `${i.args[0]} ${i.kwargs.k} ${i.context.session_id}` }", "", "",
				outcome{value: `"a true s"`},
			},
			"json": {
				"function main(i) { return {n: i.args[1] + 1, s: '\\u00e9\"\\n'} }", "", "",
				outcome{value: `{"n":3,"s":"é\"\n"}`},
			},
			"nothing":          {"function main() {}", "", "", outcome{value: "null"}},
			"another function": {"const twice = (i) => i.args[1] * 2", "twice", "", outcome{value: "4"}},
			"a handler": {
				"const handlers = {hello(i) { return this.word + i.args[0] }, word: 'hi '}; function main() { return 'main' }",
				"", "hello",
				outcome{value: `"hi a"`},
			},
			"no such handler":   {"const handlers = {hello() {}}; function main() { return 'main' }", "", "bye", outcome{value: `"main"`}},
			"inherited handler": {"const handlers = {}; function main() { return 'main' }", "", "toString", outcome{value: `"main"`}},
			"async": {
				"async function main(i) { await null; return await Promise.all([1, Promise.resolve(2)]) }", "", "",
				outcome{value: "[1,2]"},
			},
			"generator": {
				"function* main() { yield 1; yield {a: 2}; return 'end' }", "", "",
				outcome{value: `"end"`, chunks: []string{"1", `{"a":2}`}},
			},
			"async generator": {
				"async function* main() { yield await Promise.resolve(1); host.chunk('x') }", "", "",
				outcome{value: "null", chunks: []string{"1", `"x"`}},
			},
			"nothing to log to": {"function main() { console.log('x'); return 1 }", "", "", outcome{value: "1"}},
			"changed globals": {
				"JSON.parse = JSON.stringify = String = eval = Promise = undefined; function main(i) { return i.args }", "", "",
				outcome{value: `["a",2]`},
			},
			"an error": {
				"function main() { throw new TypeError('wrong') }", "", "",
				outcome{code: capability.CodeFailed, reason: "execution_failed", message: "TypeError: wrong (at main"},
			},
			"a thrown string": {
				"async function main() { throw 'so' }", "", "",
				outcome{code: capability.CodeFailed, reason: "execution_failed", message: "the script failed: so"},
			},
			"syntax": {"function main( {", "", "", outcome{
				code: capability.CodeFailed, reason: "execution_failed",
				message: "SyntaxError",
			}},
			"no function": {"let x = 1", "", "run", outcome{
				code: capability.CodeFailed, reason: "execution_failed",
				message: "no function main, and no handlers with run",
			}},
			"no name": {"let x = 1", "a b", "", outcome{
				code: capability.CodeInvalidInput, reason: "bad_code_binding",
				message: "not the name",
			}},
			"never settled": {
				"function main() { return new Promise(() => {}) }", "", "",
				outcome{code: capability.CodeFailed, reason: "execution_failed", message: "never settled"},
			},
			"no JSON": {
				"function main() { return 1n }", "", "",
				outcome{code: capability.CodeFailed, reason: "execution_failed", message: "BigInt"},
			},
			"hostile error": {
				"function main() { throw {get message() { for(;;); }, toString: 1} }", "", "",
				outcome{code: capability.CodeFailed, reason: "execution_failed"},
			},
			"no calls": {
				"function main() { host.fetch({url: 'https://a.test'}) }", "", "",
				outcome{code: capability.CodeFailed, reason: "execution_failed", message: `the host call "fetch" is not allowed here`},
			},
			"no module": {
				"import('fs').catch(String); async function main() { return String(await import('fs').catch((e) => 'none')) }",
				"", "",
				outcome{value: `"none"`},
			},
			"no standard things": {"function main() { return [typeof require, typeof process, typeof std, typeof os, typeof setTimeout, typeof __call, typeof __emit] }", "", "", outcome{value: `["undefined","undefined","undefined","undefined","undefined","undefined","undefined"]`}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				job := js(c.code)
				job.Entry, job.Handler = c.entry, c.handler
				check(t, r, job, c.want)
			})
		}
	})
}

// What code does without end is ended, and said.
func TestJavaScriptIsBounded(t *testing.T) {
	t.Parallel()
	eachTier(t, func(t *testing.T, r *worker.Runner) {
		timeout := outcome{code: capability.CodeTimeout, reason: "timeout"}
		memory := outcome{code: capability.CodeFailed, reason: "resource_limit", message: "64 MiB"}
		output := outcome{code: capability.CodeFailed, reason: "output_limit"}
		failed := outcome{code: capability.CodeFailed, reason: "execution_failed"}
		for name, c := range map[string]struct {
			code string
			want outcome
		}{
			"endless loop":            {"function main() { for (;;); }", timeout},
			"endless loop, caught":    {"function main() { for (;;) try { for (;;); } catch {} finally { for (;;); } }", timeout},
			"endless loop at the top": {"for (;;);", timeout},
			"endless jobs":            {"async function main() { for (;;) await null }", timeout},
			"catastrophic regex":      {"function main() { return /^(a+)+$/.test('a'.repeat(40) + 'b') }", timeout},
			"a loop of the engine":    {"function main() { return Array(4294967295).indexOf(1) }", timeout},
			"memory":                  {"function main() { const l = []; for (;;) l.push(new Array(1000).fill(1)) }", memory},
			"memory, caught":          {"function main() { const l = []; for (;;) try { l.push('x'.repeat(1 << 20) + l.length) } catch (e) { return e.message } }", outcome{value: `"out of memory"`}},
			"one large string":        {"function main() { return 'x'.repeat(1 << 28) }", memory},
			"one large buffer":        {"function main() { return new ArrayBuffer(1 << 30) }", memory},
			"deep recursion": {
				"function main() { return main() }",
				outcome{code: capability.CodeFailed, reason: "execution_failed", message: "stack overflow"},
			},
			"deep json":             {"function main() { let a = []; for (let i = 0; i < 100000; i++) a = [a]; return a }", failed},
			"a large result":        {"function main() { return 'x'.repeat(17 << 20) }", output},
			"a large chunk":         {"function main() { host.chunk('x'.repeat(1 << 20)) }", output},
			"a large chunk, caught": {"function main() { try { host.chunk('x'.repeat(1 << 20)) } catch {} return 1 }", output},
			"chunks without end":    {"function* main() { for (;;) yield 1 }", output},
			"many large chunks":     {"function* main() { for (;;) yield 'x'.repeat(1 << 19) }", output},
			"host calls without end": {
				"function main() { for (;;) try { host.log(1) } catch {} }",
				outcome{code: capability.CodeFailed, reason: "resource_limit", message: "1000 host calls"},
			},
			"a sort that never ends":   {"function main() { const a = Array.from({length: 1e5}, Math.random); for (;;) a.sort(() => Math.random() - 0.5) }", timeout},
			"a getter that never ends": {"function main() { return {get x() { for (;;); }} }", timeout},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				job := js(c.code)
				if c.want.code == capability.CodeTimeout {
					job.Timeout = time.Second
				}
				began := time.Now()
				check(t, r, job, c.want)
				if took := time.Since(began); c.want.code == capability.CodeTimeout && took < time.Second {
					t.Errorf("it was ended after %s; want not (c.want.code == capability.CodeTimeout && took < time.Second)", took)
				}
			})
		}
	})
}

func TestCodeIsRefusedBeforeItRuns(t *testing.T) {
	t.Parallel()
	r := worker.New(worker.Config{Walls: noWalls{}})
	for name, c := range map[string]struct {
		change func(*worker.Job)
		want   outcome
	}{
		"unknown language": {
			func(j *worker.Job) { j.Language = "cobol" },
			outcome{code: capability.CodeInvalidInput, reason: "unsupported_language", message: "what runs is javascript, wasm"},
		},
		"python unlisted": {
			func(j *worker.Job) { j.Language = "py" },
			outcome{code: capability.CodeInvalidInput, reason: "unsupported_language", message: "not among the languages"},
		},
		"too much code": {
			func(j *worker.Job) { j.Code = make([]byte, worker.MaxCode+1) },
			outcome{code: capability.CodeTooLarge, reason: "code_too_large"},
		},
		"too much input": {
			func(j *worker.Job) { j.Input = make([]byte, worker.MaxInput+1) },
			outcome{code: capability.CodeTooLarge, message: "4194304"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := js("")
			c.change(&job)
			check(t, r, job, c.want)
		})
	}
	if got := r.Languages(); got["javascript"] != "" || got["wasm"] != "" || got["python"] == "" {
		t.Errorf(`the languages are %v; want got["javascript"] = "", got["wasm"] = "", got["python"] other than ""`, got)
	}
}

// noWalls runs nothing.
type noWalls struct{}

func (noWalls) Place(sandbox.Confinement) (sandbox.Placement, error) {
	return sandbox.Placement{}, errors.New("not asked")
}

func (noWalls) Run(context.Context, sandbox.Spec, sandbox.Confinement) (sandbox.Result, error) {
	return sandbox.Result{}, errors.New("not asked")
}

func TestARunIsCancelled(t *testing.T) {
	t.Parallel()
	eachTier(t, func(t *testing.T, r *worker.Runner) {
		ctx, cancel := context.WithCancel(t.Context())
		job := js("function main() { host.chunk('begun'); for (;;); }")
		job.Chunk = func(json.RawMessage) { cancel() }
		_, err := r.Run(ctx, job)
		if e := capability.AsError(err); e == nil || e.Code != capability.CodeCancelled {
			t.Errorf("got %v; want e not nil, e.Code = capability.CodeCancelled", err)
		}
	})
}

// Nothing of a run survives it. Not in parallel with the others, whose processes
// would be seen.
func TestNoProcessIsLeft(t *testing.T) { //nolint:paralleltest
	box := sandbox.New(sandbox.Config{})
	if f := box.Facts(); f.Tier < sandbox.T2 {
		t.Skipf("SKIPPED: %s", f.NoT2)
	}
	for _, code := range []string{"function main() { for (;;); }", "function main() { return 1 }"} {
		during := 0
		job := js("host.chunk(1); " + code)
		job.Timeout = time.Minute // a busy machine starts a run slowly
		ctx, cancel := context.WithCancel(t.Context())
		job.Chunk = func(json.RawMessage) {
			during = workers(t)
			cancel()
		}
		_, _ = worker.New(worker.Config{Walls: box}).Run(ctx, job)
		cancel()
		endless := strings.Contains(code, "for") // the other may be gone before we look
		if after := workers(t); endless && during != 1 || after != 0 {
			t.Errorf("%d workers during the run, %d after it; want not (endless && during != 1), after = 0", during, after)
		}
	}
}

// workers counts the processes of runs among our descendants.
func workers(t *testing.T) (n int) {
	t.Helper()
	parent, is := map[string]string{}, map[string]bool{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		stat, _ := os.ReadFile(name)
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		_, rest, _ := strings.Cut(string(stat), ") ")
		if f := strings.Fields(rest); len(f) > 1 {
			pid := filepath.Base(filepath.Dir(name))
			parent[pid], is[pid] = f[1], strings.Contains(string(line), "script-worker")
		}
	}
	self := strconv.Itoa(os.Getpid())
	for pid := range is {
		for up := parent[pid]; is[pid] && up != ""; up = parent[up] {
			if up == self {
				n++
			}
		}
	}
	return n
}
