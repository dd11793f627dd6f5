//go:build linux

package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/worker"
)

// guest builds the module of testdata as a command and as a reactor, once.
var guest = sync.OnceValues(func() (modules [2][]byte, err error) {
	dir, err := os.MkdirTemp("", "guest")
	if err != nil {
		return modules, err
	}
	defer os.RemoveAll(dir)
	for i, mode := range []string{"exe", "c-shared"} {
		file := filepath.Join(dir, mode)
		cmd := exec.Command("go", "build", "-buildmode="+mode, "-trimpath", "-ldflags=-s -w", "-o", file, ".")
		cmd.Dir, cmd.Env = "testdata/guest", append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			return modules, errors.New(string(out))
		}
		if modules[i], err = os.ReadFile(file); err != nil {
			return modules, err
		}
	}
	return modules, nil
})

func wasm(t *testing.T, entry string) worker.Job {
	t.Helper()
	modules, err := guest()
	if err != nil {
		t.Fatal(err)
	}
	module := modules[0]
	switch entry {
	case "answer", "half", "told", "takes":
		module = modules[1]
	}
	return worker.Job{Language: "wasi", Code: module, Entry: entry, Input: json.RawMessage(document), Timeout: time.Minute}
}

// sorted is the document as the guest writes it.
const sorted = `{"args":["a",2],"context":{"session_id":"s"},"kwargs":{"k":true}}`

func TestWASM(t *testing.T) {
	t.Parallel()
	failed := func(text string) outcome {
		return outcome{code: capability.CodeFailed, reason: "execution_failed", message: text}
	}
	timeout, output := outcome{code: capability.CodeTimeout, reason: "timeout"}, outcome{code: capability.CodeFailed, reason: "output_limit"}
	eachTier(t, func(t *testing.T, r *worker.Runner) {
		for entry, want := range map[string]outcome{
			"echo":       {value: sorted},
			"":           {value: sorted},
			"chunks":     {value: `"end"`, chunks: []string{"1", `"two"`}},
			"nothing":    {value: "null"},
			"answer":     {value: "-42"},
			"half":       {value: "0.5"},
			"told":       {value: `"told"`},
			"reach":      {value: `""`},
			"call":       {value: `"{\"error\":{\"message\":\"the host call \\\"read\\\" is not allowed here: the permissions in force do not cover it, or nothing serves it\"}}"`},
			"takes":      failed("has parameters"),
			"error":      failed("on purpose"),
			"exit":       failed("exit code 3: last words"),
			"text":       failed("not one of chunk, result and error"),
			"twice":      failed("two results"),
			"memory":     failed("out of memory"),
			"loop":       timeout,
			"sleep":      timeout,
			"endless":    output,
			"large":      output,
			"largechunk": output,
		} {
			if strings.HasSuffix(t.Name(), "/T2") && entry != "echo" && entry != "reach" && entry != "memory" {
				continue // the module takes a second to compile, and the walls do not differ for it
			}
			t.Run(entry, func(t *testing.T) {
				t.Parallel()
				job := wasm(t, entry)
				if want.code == capability.CodeTimeout {
					job.Timeout = 3 * time.Second
				}
				check(t, r, job, want)
			})
		}
		t.Run("no module", func(t *testing.T) {
			t.Parallel()
			check(t, r, worker.Job{Language: "wasm", Code: []byte("\x00asm no module")}, failed("not a module"))
		})
		t.Run("recursion", func(t *testing.T) { // a function that calls itself
			t.Parallel()
			code := "\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x07\x08\x01\x04main\x00\x00\x0a\x06\x01\x04\x00\x10\x00\x0b"
			check(t, r, worker.Job{Language: "wasm", Code: []byte(code)}, failed("stack overflow"))
		})
		t.Run("more memory than there is", func(t *testing.T) {
			t.Parallel()
			code := "\x00asm\x01\x00\x00\x00\x05\x05\x01\x00\x80\x80\x04"
			check(t, r, worker.Job{Language: "wasm", Code: []byte(code)}, failed("memory"))
		})
		t.Run("no entry", func(t *testing.T) {
			t.Parallel()
			check(t, r, worker.Job{Language: "wasm", Code: []byte("\x00asm\x01\x00\x00\x00")}, failed("neither main nor _start"))
		})
	})
}

// Host calls reach their handler, in every language, and what they answer the code.
func TestHostCalls(t *testing.T) {
	t.Parallel()
	eachTier(t, func(t *testing.T, r *worker.Runner) {
		for name, job := range map[string]worker.Job{
			"javascript": js("function main() { return host.read('file') }"),
			"wasm":       wasm(t, "call"),
			"python":     {Language: "python", Code: []byte("def main(*a, **k):\n  return host.read('file')\n"), Input: json.RawMessage(document)},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var asked string
				job.Timeout = time.Minute
				job.Calls = map[string]worker.Call{"read": func(_ context.Context, params json.RawMessage) (any, error) {
					asked = string(params)
					return "content", nil
				}}
				want := outcome{value: `"content"`}
				if name == "wasm" {
					want.value = `"{\"result\":\"content\"}"`
				}
				if got := check(t, r, job, want); asked != `["file"]` || got.Calls != 1 {
					t.Errorf(`the handler was asked %s, %d calls; want asked = "[\"file\"]", got.Calls = 1`, asked, got.Calls)
				}
			})
		}
		t.Run("what goes wrong", func(t *testing.T) {
			t.Parallel()
			job := js("function main() { try { host.fetch(1) } catch (e) { host.chunk(e.message) } try { host.read('x'.repeat(1 << 20)) } catch (e) { host.chunk(e.message) } host.llm('') }")
			job.Calls = map[string]worker.Call{
				"fetch": func(context.Context, json.RawMessage) (any, error) {
					return nil, capability.Errorf(capability.CodeDenied, "x", "no\nsuch host")
				},
				"llm": func(context.Context, json.RawMessage) (any, error) { return make([]byte, worker.MaxReply), nil },
			}
			var chunks []string
			job.Chunk = func(c json.RawMessage) { chunks = append(chunks, string(c)) }
			check(t, r, job, outcome{code: capability.CodeFailed, reason: "execution_failed", message: "the limit is 4194304"})
			if len(chunks) != 2 || chunks[0] != `"no such host"` || chunks[1] != `"the host call has 1048580 bytes of parameters; the limit is 1048576"` {
				t.Errorf(`the code heard %s; want len(chunks) = 2, chunks[0] = "\"no such host\"", chunks[1] = "\"the host call `+
					`has 1048580 bytes of parameters; the limit is 1048576\""`, chunks)
			}
		})
	})
}
