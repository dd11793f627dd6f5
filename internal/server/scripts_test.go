package server_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// guestModule exports try: it opens a file by the first folder there could be, and
// returns what WASI says to that.
func guestModule() string {
	return "\x00asm\x01\x00\x00\x00" +
		"\x01\x12\x02" + "\x60\x09\x7f\x7f\x7f\x7f\x7f\x7e\x7e\x7f\x7f\x01\x7f" + "\x60\x00\x01\x7f" + // types
		"\x02\x24\x01" + "\x16wasi_snapshot_preview1" + "\x09path_open" + "\x00\x00" + // import
		"\x03\x02\x01\x01" + "\x05\x03\x01\x00\x01" + // function, memory
		"\x07\x10\x02" + "\x06memory\x02\x00" + "\x03try\x00\x01" + // exports
		"\x0a\x19\x01\x17\x00" + "\x41\x03\x41\x00\x41\x00\x41\x0a\x41\x00\x42\x00\x42\x00\x41\x00\x41\xc0\x00\x10\x00\x0b" + // code
		"\x0b\x10\x01\x00\x41\x00\x0b\x0aetc/passwd" // data
}

// badFile is WASI's EBADF: no folder is open.
const badFile = "8"

// scriptPackage is an extension of scripts that reaches host.
func scriptPackage(t *testing.T, host string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for name, text := range map[string]string{
		"manifest.json": fmt.Sprintf(`{"id":"tools.script","name":"Script","version":"1.0.0","description":"Scripts","author":"example","license":"MIT","platforms":["all"],"runtime":"python","python":{"version":"3.9","dependencies":[]},
			"capabilities":[{"type":"slash_command","name":"/js","description":"x"},{"type":"slash_command","name":"/wasm","description":"x"}],
			"permissions_required":["exec","builtin.exec","network","filesystem.write"],"network":{"allow":[%q]},
			"install":{"mode":"agentos_managed","plan":"install/plan.yaml"},"docs":{"usage":"docs/USAGE.md"}}`, host),
		"commands/commands.yaml": `slash_commands:
- name: /js
  summary: JavaScript
  runner: script.js
  permissions: [exec]
  actions:
  - {id: hello, description: Hello, flags: [{name: loud, type: boolean}]}
  - {id: reach, description: Reach}
  - {id: endless, description: Never ends, timeout_sec: 1}
  - {id: chunks, description: Chunks}
  - {id: write, description: Write, permissions: [filesystem.write]}
  - {id: fetch, description: Fetch, permissions: [network]}
  - {id: fetchless, description: Fetch without}
- name: /wasm
  summary: WASM
  permissions: [exec]
  actions:
  - {id: try, description: Try, runner: script.wasm, script: scripts/guest.wasm}
- name: /py
  summary: Handlers
  permissions: [builtin.exec]
  actions:
  - {id: greet, description: Greet, runner: builtin}
- name: /prog
  summary: A program
  permissions: [exec]
  actions:
  - {id: run, description: Run, runner: exec.entrypoint, entrypoint: scripts/prog}
  - {id: text, description: Not a program, runner: exec.entrypoint, entrypoint: scripts/js.js}
`,
		"scripts/js.js": `
const handlers = {
  hello: (i) => ` + "`hello ${i.args} ${i.flags.loud} ${i.context.extension_id} ${i.config.word} ${i.config.api_key} ${i.context.usage_doc}`" + `,
  reach: () => [typeof require, typeof std, typeof os, typeof fetch, typeof XMLHttpRequest].concat(
    ['read', 'write', 'llm', 'fetch'].map((n) => {
      try { host[n]('/etc/hosts', 'x'); return n } catch (e) { return /not allowed/.test(e.message) }
    })),
  endless() { for (;;); },
  *chunks() { yield 'a'; yield 'b' },
  write() { host.write('dir/note', 'kept'); host.log('written'); return host.read('dir/note') },
  fetch(i) { return host.fetch({url: i.args[0], method: 'post', body: 'sent'}) },
  fetchless(i) { return host.fetch(i.args[0]) },
}`,
		"scripts/guest.wasm":   guestModule(),
		"scripts/prog":         "#!/bin/sh\necho \"$@\" && cat \"$0\" | head -n 1\n",
		"commands/handlers.py": "import helper\ndef greet(args, context):\n    return helper.word + ' ' + ' '.join(args) + ' ' + context['action_id']\nHANDLERS = {'greet': greet}\n",
		"commands/helper.py":   "word = 'good day'\n",
		"install/plan.yaml":    "id: tools.script\nsteps: []\nuninstall: {steps: []}\n",
		"docs/USAGE.md":        "# Guide",
	} {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate}
		h.SetMode(0o644)
		if name == "scripts/prog" {
			h.SetMode(0o755)
		}
		f, err := w.CreateHeader(h)
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

// enable agrees to what an installed package asks for.
func (n *node) enable(t testing.TB, id string) {
	t.Helper()
	var shown struct {
		Screen struct {
			TreeHash string `json:"tree_hash"`
		}
	}
	if err := n.admin.Do(t.Context(), http.MethodGet, extensionsDoor+"/"+id+"/screen", nil, &shown); err != nil {
		t.Fatal(err)
	}
	if err := n.admin.Do(t.Context(), http.MethodPost, extensionsDoor+"/"+id+"/enable", map[string]string{"tree_hash": shown.Screen.TreeHash},
		nil); err != nil {
		t.Fatal(err)
	}
}

// Scripts of an installed extension answer, and reach what the extension may reach
// and nothing else.
func TestScriptsOfAnExtension(t *testing.T) {
	t.Parallel()
	if f := sandbox.New(sandbox.Config{}).Facts(); f.NoT3 != "" {
		t.Skipf("SKIPPED: %s", f.NoT3)
	}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, r.Method, " ", body.String())
	}))
	t.Cleanup(service.Close)
	home := t.TempDir()
	config := "sandbox:\n  min_tier: T3\n  allow_addresses: [127.0.0.0/8]\n"
	if err := os.WriteFile(filepath.Join(home, "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	n := serve(t, home)
	if err := n.admin.Do(t.Context(), http.MethodPost, extensionsDoor+"/install", scriptPackage(t, service.Listener.Addr().String()),
		nil); err != nil {
		t.Fatal(err)
	}
	n.enable(t, "tools.script")
	if err := n.admin.Do(t.Context(), http.MethodPut, extensionsDoor+"/tools.script/config",
		map[string]string{"word": "W", "api_key": "hidden"}, nil); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"/js hello a 'b c' --loud":     "hello a,b c true tools.script W undefined # Guide",
		"/js reach":                    `["undefined","undefined","undefined","undefined","undefined",true,true,true,true]`,
		"/js chunks":                   "a\nb",
		"/js write":                    "kept",
		"/js fetch " + service.URL:     `{"status":200,"type":"text/plain","body":"POST sent"}`,
		"/wasm try x":                  badFile,
		"/py greet you":                "good day you greet",
		"/prog run x '$(id)'":          "run x $(id)\n#!/bin/sh\n",
		"/prog text":                   "unavailable tool_not_found",
		"/js endless":                  "timeout timeout",
		"/js fetchless " + service.URL: "failed execution_failed",
	} {
		out, err := n.say(t, line)
		if e := capability.AsError(err); e != nil {
			out = string(e.Code) + " " + e.Reason
		}
		if out != want {
			t.Errorf("%s: %q, %v; want %q", line, out, err, want)
		}
	}
	if data, err := os.ReadFile(filepath.Join(home, "extensions", "tools.script", "work", "dir", "note")); err != nil ||
		string(data) != "kept" {
		t.Errorf(`the working folder has %q, %v; want no error, string(data) = "kept"`, data, err)
	}
	if list := n.records(t, "event=egress_allowed"); len(list) != 1 {
		t.Errorf("%d connections are recorded; want len(list) = 1", len(list))
	}
	script := filepath.Join(home, "extensions", "tools.script", "scripts", "js.js")
	if err := os.Chmod(filepath.Dir(script), 0o755); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(script)
	if err := os.WriteFile(script, []byte("function main() { return 'other' }"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := n.say(t, "/js chunks"); err == nil || capability.AsError(err).Reason != "security_violation" ||
		strings.Contains(out, "other") {
		t.Errorf(`an exchanged script: %q, %v; want an error, capability.AsError(err).Reason = "security_violation", out without "other"`,
			out, err)
	}
	n.verify(t)
}
