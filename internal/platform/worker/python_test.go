//go:build linux

package worker_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/worker"
)

func TestPython(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip("SKIPPED: there is no /usr/bin/python3")
	}
	failed := func(text string) outcome {
		return outcome{code: capability.CodeFailed, reason: "execution_failed", message: text}
	}
	eachTier(t, func(t *testing.T, r *worker.Runner) {
		for name, c := range map[string]struct {
			code, handler string
			want          outcome
		}{
			"a handler": {"def hello(args, context):\n  print('x')\n  return '%s %s' % (args[0], context['session_id'])\nHANDLERS = {'hello': hello}", "hello", outcome{value: `"a s"`}},
			"a function": {
				"def main(a, n, k=False):\n  return {'a': a, 'n': n + 1, 'k': k}", "",
				outcome{value: `{"a": "a", "n": 3, "k": true}`},
			},
			"a generator": {
				"def main(*a, **k):\n  yield 1\n  yield 'x'\n  return 'end'", "",
				outcome{value: `"end"`, chunks: []string{"1", `"x"`}},
			},
			"a coroutine":     {"async def main(*a, **k):\n  return 7", "", outcome{value: "7"}},
			"async generator": {"async def main(*a, **k):\n  yield 7", "", outcome{value: "null", chunks: []string{"7"}}},
			"an error":        {"def main(*a, **k): raise ValueError('wrong')", "", failed("ValueError: wrong")},
			"an exit":         {"import sys\nsys.exit(1)", "", failed("SystemExit")},
			"syntax":          {"def", "", failed("SyntaxError")},
			"no handler":      {"HANDLERS = {}", "x", failed("no HANDLERS with x")},
			"no JSON":         {"def main(*a, **k): return float('nan')", "", failed("ValueError")},
			"a hard end":      {"import os\ndef main(*a, **k): os._exit(3)", "", failed("without an answer")},
			"no such line":    {"import os\ndef main(*a, **k): os.write(4, b'hello\\n')", "", failed("not an answer")},
			"endless":         {"def main(*a, **k):\n  while True: pass", "", outcome{code: capability.CodeTimeout, reason: "timeout"}},
			"memory": {
				"def main(*a, **k):\n  l = []\n  while True: l.append('x' * (1 << 20) + str(len(l)))", "",
				outcome{code: capability.CodeFailed, reason: "resource_limit", message: "64 MiB"},
			},
			"chunks":       {"def main(*a, **k):\n  while True: yield 1", "", outcome{code: capability.CodeFailed, reason: "output_limit"}},
			"a large line": {"def main(*a, **k): return 'x' * (17 << 20)", "", outcome{code: capability.CodeFailed, reason: "output_limit"}},
			"recursion":    {"def main(*a, **k): return main()", "", failed("RecursionError")},
			"the network":  {"import socket\ndef main(*a, **k):\n  socket.create_connection(('127.0.0.1', 22), 1)", "", failed("Error")},
			"outside":      {"def main(*a, **k): return open('/root/.profile').read()", "", failed("Error")},
			"children are few": {
				"import os, time\ndef main(*a, **k):\n  for _ in range(200):\n    if os.fork() == 0: time.sleep(60)", "",
				failed("BlockingIOError"),
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				job := worker.Job{Language: "py", Code: []byte(c.code), Handler: c.handler, Input: json.RawMessage(document), Timeout: 30 * time.Second}
				switch {
				case c.want.code == capability.CodeTimeout:
					job.Timeout = time.Second
				case name == "a large line", name == "children are few": // three copies of the line; all children together
					job.Memory = 256 << 20
				}
				check(t, r, job, c.want)
			})
		}
	})
}
