package interop

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/testkit/built"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

const pythonSDK = "../sdk/python"

// python is an interpreter for programs of the Python SDK, and the environment that they run in.
type python struct {
	program string
	env     []string
}

// newPython returns the first interpreter of at least version 3.11 that has the packages. Without one
// the test is skipped, or fails if INTEROP_REQUIRED is set.
func newPython(t *testing.T, packages ...string) python {
	t.Helper()
	sdk, err := filepath.Abs(pythonSDK)
	ok(t, err)
	check := "import sys; assert sys.version_info >= (3, 11)"
	if len(packages) > 0 {
		check += "; import " + strings.Join(packages, ", ")
	}
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.CommandContext(t.Context(), name, "-c", check).Run() == nil {
			return python{name, append(environment(), "PYTHONPATH="+sdk, "PYTHONDONTWRITEBYTECODE=1", "PYTHONWARNINGS=error::ResourceWarning")}
		}
	}
	text := fmt.Sprintf("not run: this machine lacks Python 3.11 with the packages %q; run: make interop-deps", packages)
	if os.Getenv("INTEROP_REQUIRED") != "" {
		t.Fatalf("INTEROP_REQUIRED is set: %s", text)
	}
	t.Skip(text)
	return python{}
}

// command is a program in the folder of the SDK.
func (p python) command(ctx context.Context, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.program, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = pythonSDK, append(append([]string{}, p.env...), env...), 5*time.Second
	return cmd
}

// run runs a program to its end and returns its output.
func (p python) run(t *testing.T, env []string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := p.command(ctx, env, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("python3 %s: got %v, want exit status 0\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// start starts a program that prints one line of JSON when it is ready, and returns that line.
func (p python) start(t *testing.T, env []string, args ...string) map[string]any {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := p.command(ctx, env, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = logWriter{t, args[0]}
	out, err := cmd.StdoutPipe()
	ok(t, err)
	ok(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // interrupted: its status reports that
	})
	var ready map[string]any
	if err := json.NewDecoder(out).Decode(&ready); err != nil {
		t.Fatalf("%s: got %v instead of a line of JSON", args[0], err)
	}
	return ready
}

func secretFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	ok(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestPythonUnits(t *testing.T) {
	p := newPython(t, "websockets", "cryptography")
	p.run(t, nil, "-m", "unittest", "discover", "-s", "tests", "-t", ".")
}

// TestPythonTypes checks the type hints of the SDK.
func TestPythonTypes(t *testing.T) {
	p := newPython(t)
	program, err := exec.LookPath("mypy")
	if err != nil {
		t.Skip("not run: mypy is not installed; run: make interop-deps")
	}
	args := []string{"--strict", "--python-version", "3.11", "--cache-dir", os.DevNull, "--no-warn-unused-ignores", "junctor"}
	// Versions before 1.7 need this flag, and later ones reject it.
	if out, _ := exec.CommandContext(t.Context(), program, "--enable-incomplete-feature=Unpack", "--version").Output(); len(out) > 0 {
		args = append([]string{"--enable-incomplete-feature=Unpack"}, args...)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = pythonSDK, p.env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("mypy: got %v, want no finding\n%s", err, out)
	}
}

// TestPythonDigestsAreTheServers compares the digests of manifests with random member names, of which
// a signature covers one.
func TestPythonDigestsAreTheServers(t *testing.T) {
	p := newPython(t)
	random := mathrand.New(mathrand.NewPCG(1, 2))
	name := func() string {
		b := make([]byte, 1+random.IntN(6))
		for i := range b {
			b[i] = byte(' ' + random.IntN('~'-' '+1))
		}
		return string(b)
	}
	var manifests []json.RawMessage
	var want []string
	for i := range 300 {
		members := map[string]any{}
		for range 1 + random.IntN(12) {
			members[name()] = []any{random.NormFloat64() * float64(random.Uint64()), 1 / float64(1+random.IntN(1<<40)), "é\"\u2028", nil, true}
		}
		for range random.IntN(3) {
			members[fmt.Sprint(random.IntN(200))] = random.IntN(1 << 20)
		}
		raw, err := json.Marshal(map[string]any{"id": fmt.Sprintf("m%d", i), "name": "n", "metadata": members})
		ok(t, err)
		m, err := router.ParseModule(raw)
		ok(t, err)
		original, canonical, err := m.Digests()
		ok(t, err)
		manifests, want = append(manifests, raw), append(want, original+" "+canonical)
	}
	data, err := json.Marshal(manifests)
	ok(t, err)
	program := "import json, pathlib, sys; from junctor.manifest import digests\n" +
		"for m in json.loads(pathlib.Path(sys.argv[1]).read_text()): print(*digests(m))"
	got := strings.Split(strings.TrimSpace(p.run(t, nil, "-c", program, secretFile(t, "manifests.json", string(data)))), "\n")
	if len(got) != len(want) {
		t.Fatalf("got %d digests, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("digests of %s = %s, want %s", manifests[i], got[i], want[i])
		}
	}
}

func TestPythonEndpointConforms(t *testing.T) {
	p := newPython(t, "cryptography")
	w := newPlane(t, "")
	token := secretFile(t, "token", "a-token-of-the-endpoint\n")
	public, private, err := ed25519.GenerateKey(rand.Reader)
	ok(t, err)
	key, err := x509.MarshalPKCS8PrivateKey(private)
	ok(t, err)
	keyFile := secretFile(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
	for name, args := range map[string][]string{
		"http.server": {"examples/endpoint.py", "--token-file", token},
		"ASGI":        {"tests/asgi_server.py", "examples/endpoint.py:endpoint", token},
		"signed":      {"tests/signed_endpoint.py", keyFile, token},
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := p.start(t, nil, args...)["url"].(string)
			if name == "signed" {
				w.connectSigned(t, url, token, public)
			} else {
				w.cli("conformance", url, "--endpoint-token-file", token)
				w.cli("connect", url, "--id", "python", "--endpoint-token-file", token)
			}
			w.cli("invoke", "word-count:action:COUNT_WORDS", `{"text":"how many words are these"}`)
			w.cli("invoke", "word-count:service:words.count", `{"args":["two words"]}`)
			w.cli("disconnect", "python")
		})
	}
}

// connectSigned connects an endpoint with a policy that requires a verified signature of the key, and
// is refused with one for another key.
func (w *world) connectSigned(t *testing.T, url, token string, key ed25519.PublicKey) {
	t.Helper()
	other, _, err := ed25519.GenerateKey(rand.Reader)
	ok(t, err)
	policy := func(key ed25519.PublicKey) string {
		der, err := x509.MarshalPKIXPublicKey(key)
		ok(t, err)
		text, err := json.Marshal(map[string]any{
			"requireVerifiedProvenance":   true,
			"trustedProvenancePublicKeys": map[string]string{"lab": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))},
		})
		ok(t, err)
		return secretFile(t, "policy.json", string(text))
	}
	args := []string{"connect", url, "--id", "python", "--endpoint-token-file", token, "--trust-policy"}
	cmd := exec.CommandContext(t.Context(), w.binary, append(append([]string{"--home", w.home}, args...), policy(other))...)
	cmd.Env = environment()
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("connect with the key of another issuer: got success, want a refusal\n%s", out)
	}
	w.cli(append(args, policy(key))...)
}

// until repeats a command until its output has a text.
func (w *world) until(command, verb, text string) {
	w.t.Helper()
	for end := time.Now().Add(waitTimeout); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		cmd := exec.CommandContext(w.t.Context(), w.binary, "--home", w.home, command, verb)
		cmd.Env = environment()
		if out, err := cmd.CombinedOutput(); err == nil && strings.Contains(string(out), text) {
			return
		}
	}
	w.t.Fatalf("junctor %s %s: got no %q within %v", command, verb, text, waitTimeout)
}

// newModel returns the address of a model that answers each question with one sentence.
func newModel(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, part := range []string{
			`{"choices":[{"index":0,"delta":{"role":"assistant","content":"four "}}]}`,
			`{"choices":[{"index":0,"delta":{"content":"words it is"},"finish_reason":"stop"}]}`, "[DONE]",
		} {
			fmt.Fprintf(w, "data: %s\n\n", part)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestPythonClient(t *testing.T) {
	p := newPython(t)
	files := t.TempDir()
	ok(t, os.WriteFile(filepath.Join(files, "note.txt"), []byte("hello\n"), 0o600))
	w := newPlane(t, fmt.Sprintf("fs:\n  roots:\n    - {id: files, path: %q}\nmodel: {kind: openai-chat, url: %q, name: small}\n", files,
		newModel(t)+"/v1"))
	ok(t, os.WriteFile(filepath.Join(w.home, "policy", "asks.cedar"), []byte(`@id("python-asks") @approval("operator")
forbid (principal in Role::"agent", action == Action::"fs.writeText", resource);`), 0o600))
	w.until("policy", "list", "python-asks")
	admin, err := os.ReadFile(filepath.Join(w.home, "run", "admin.token"))
	ok(t, err)
	p.run(t, []string{
		"JUNCTOR_URL=" + strings.TrimSuffix(w.url, "/mcp"), "JUNCTOR_TOKEN=" + w.tok, "INTEROP_OPERATOR=" + strings.TrimSpace(string(admin)),
	}, "-m", "unittest", "tests.live_client")
}

// operator returns a client with the admin's token.
func (w *world) operator(t *testing.T) *client.Client {
	t.Helper()
	token, err := os.ReadFile(filepath.Join(w.home, "run", "admin.token"))
	ok(t, err)
	c, err := client.New(client.Config{URL: strings.TrimSuffix(w.url, "/mcp"), Token: secret.New(strings.TrimSpace(string(token)))})
	ok(t, err)
	return c
}

// nodeToken returns a file with a token that lets nodes in.
func (w *world) nodeToken(t *testing.T, name string) string {
	t.Helper()
	var made struct{ Token string }
	ok(t, w.operator(t).Do(t.Context(), http.MethodPost, "/api/v1/tokens", map[string]any{"role": "node", "name": name}, &made))
	return secretFile(t, "node.token", made.Token)
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(waitTimeout); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("got no %s within %v", what, waitTimeout)
		}
	}
}

func TestPythonNode(t *testing.T) {
	p := newPython(t, "websockets", "cryptography")
	w := newPlane(t, "")
	url, c := strings.TrimSuffix(w.url, "/mcp"), w.operator(t)
	token := w.nodeToken(t, "lab")
	p.start(t, nil, "examples/node.py", url, "--node-token-file", token, "--id", "py.1")
	call := func(function string, arguments any) (string, error) {
		result, _, err := c.Call(t.Context(), function, arguments, client.CallOptions{Node: "py.1", Timeout: 20 * time.Second})
		return string(result), err
	}
	// The catalog has the functions a moment after the node has joined.
	eventually(t, "function of the node", func() bool {
		_, err := call("greet", nil)
		return err == nil
	})
	for _, x := range []struct {
		function  string
		arguments any
		want      string
	}{
		{"greet", map[string]any{"name": "Ann"}, `"hello, Ann"`},
		{"greet", []any{"Bo"}, `"hello, Bo"`},
		{"add", []any{1, 2}, "3"},
		{"count", map[string]any{"to": 3}, "[1,2,3]"},
		{"count.slowly", nil, "[1,2,3]"},
		{"data", nil, `{"$bytes":"AP8="}`},
		{"large", map[string]any{"size": 2 << 20}, `"` + strings.Repeat("x", 2<<20) + `"`},
		{"wait", map[string]any{"seconds": 0.4}, `"done"`},
	} {
		if got, err := call(x.function, x.arguments); err != nil || got != x.want {
			t.Errorf("%s(%v) = %.80s, %v, want %.80s", x.function, x.arguments, got, err, x.want)
		}
	}
	for _, x := range []struct {
		function  string
		arguments any
		reason    string
		message   string
	}{
		{"fail", nil, "execution_failed", "RuntimeError: this always fails"},
		{"add", map[string]any{"a": "1", "b": 2}, "", "a"},
		{"none", nil, "", "none"},
	} {
		_, err := call(x.function, x.arguments)
		e := capability.AsError(err)
		if e == nil || x.reason != "" && e.Reason != x.reason || !strings.Contains(e.Message, x.message) {
			t.Errorf("%s(%v): got %#v, want reason %q and a message with %q", x.function, x.arguments, e, x.reason, x.message)
		}
	}
	t.Run("a large argument travels as an asset", func(t *testing.T) {
		name := strings.Repeat("n", 700<<10)
		if got, err := call("greet", map[string]any{"name": name}); err != nil || len(got) != len(name)+len(`"hello, "`) {
			t.Errorf("greet(700 KiB) = %d bytes, %v, want %d", len(got), err, len(name)+len(`"hello, "`))
		}
	})
	t.Run("a stream waits for its reader", func(t *testing.T) { streamSlowly(t, c, 600) })
	t.Run("the deadline ends a call", func(t *testing.T) {
		_, _, err := c.Call(t.Context(), "wait", map[string]any{"seconds": 30}, client.CallOptions{Node: "py.1", Timeout: 300 * time.Millisecond})
		if code := capability.CodeOf(err); code != capability.CodeTimeout {
			t.Errorf("call beyond its deadline: got %v, want %v", err, capability.CodeTimeout)
		}
	})
	t.Run("a cancel ends the function", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, _, err := c.Call(ctx, "wait", map[string]any{"seconds": 30}, client.CallOptions{Node: "py.1"})
		if err == nil {
			t.Error("cancelled call: got success, want an error")
		}
		eventually(t, "end of the function", func() bool {
			got, err := call("waiting", nil)
			return err == nil && got == "0"
		})
	})
	t.Run("a function is added while the node runs", func(t *testing.T) {
		if got, err := call("define", []any{"later"}); err != nil || !strings.Contains(got, `"later"`) {
			t.Fatalf("define = %s, %v, want a list with later", got, err)
		}
		eventually(t, "new function", func() bool {
			got, err := call("later", nil)
			return err == nil && got == `"later"`
		})
	})
	t.Run("a node calls the gateway", func(t *testing.T) {
		got, err := call("ask", map[string]any{"action": "catalog.search", "input": map[string]any{"query": "greet"}})
		if err != nil || !strings.Contains(got, `"actions"`) {
			t.Errorf("ask(catalog.search) = %s, %v, want actions", got, err)
		}
		if _, err := call("ask", map[string]any{"action": "no.such", "input": map[string]any{}}); err == nil {
			t.Error("ask(no.such): got success, want an error")
		}
	})
	t.Run("throughput", func(t *testing.T) { throughput(t, c) })
}

// streamSlowly reads a stream whose chunks exceed its window many times.
func streamSlowly(t *testing.T, c *client.Client, chunks int) {
	t.Helper()
	got := 0
	for _, err := range c.Stream(t.Context(), "count", map[string]any{"to": chunks, "size": 20000},
		client.CallOptions{Node: "py.1", Timeout: time.Minute}) {
		if err != nil {
			t.Fatalf("chunk %d: got %v, want no error", got, err)
		}
		if got++; got%200 == 0 {
			time.Sleep(100 * time.Millisecond)
		}
	}
	if got != chunks {
		t.Errorf("got %d chunks, want %d", got, chunks)
	}
}

// throughput measures calls of an empty async function by 64 callers and reports them. It asserts
// nothing, because the machine may be shared.
func throughput(t *testing.T, c *client.Client) {
	t.Helper()
	const callers, measureInterval = 64, 5 * time.Second
	var calls, failed atomic.Int64
	var mu sync.Mutex
	var times []time.Duration
	end := time.Now().Add(measureInterval)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			var own []time.Duration
			for time.Now().Before(end) {
				start := time.Now()
				if _, _, err := c.Call(t.Context(), "nothing", nil, client.CallOptions{Node: "py.1"}); err != nil {
					failed.Add(1)
				}
				calls.Add(1)
				own = append(own, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			times = append(times, own...)
		})
	}
	wg.Wait()
	slices.Sort(times)
	t.Logf("%d callers: %.0f calls/s, p50 %v, p99 %v, %d failed", callers, float64(calls.Load())/measureInterval.Seconds(), times[len(times)/2],
		times[len(times)*99/100], failed.Load())
	if n := failed.Load(); n > 0 {
		t.Errorf("got %d failed calls, want 0", n)
	}
}

// restart ends the server and starts another one at the same address.
func (w *world) restart(t *testing.T, url string) {
	t.Helper()
	var running struct{ PID int }
	data, err := os.ReadFile(filepath.Join(w.home, "run", "server.json"))
	ok(t, err)
	ok(t, json.Unmarshal(data, &running))
	process, err := os.FindProcess(running.PID)
	ok(t, err)
	ok(t, process.Signal(os.Interrupt))
	eventually(t, "end of the server", func() bool {
		_, err := os.Stat(filepath.Join(w.home, "run", "server.json"))
		return os.IsNotExist(err)
	})
	w.serve("--home", w.home, "serve", "--listen", strings.TrimPrefix(url, "http://"))
}

func TestPythonNodeComesBack(t *testing.T) {
	p := newPython(t, "websockets", "cryptography")
	w := newPlane(t, "")
	url, c := strings.TrimSuffix(w.url, "/mcp"), w.operator(t)
	token, dir := w.nodeToken(t, "lab"), filepath.Join(t.TempDir(), "node")
	greets := func() bool {
		result, _, err := c.Call(t.Context(), "greet", nil, client.CallOptions{Node: "py-key", Timeout: 30 * time.Second})
		return err == nil && string(result) == `"hello, you"`
	}
	t.Run("enrols with a key", func(t *testing.T) {
		p.start(t, nil, "examples/node.py", url, "--node-token-file", token, "--id", "py-key", "--dir", dir)
		eventually(t, "function of the enrolled node", greets)
		info, err := os.Stat(filepath.Join(dir, "node.json"))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("file of the key: got %v, %v, want mode 0600", info, err)
		}
		var stored struct{ Seed string }
		data, err := os.ReadFile(filepath.Join(dir, "node.json"))
		ok(t, err)
		ok(t, json.Unmarshal(data, &stored))
		if pair, err := nkeys.FromSeed([]byte(stored.Seed)); err != nil {
			t.Errorf("seed of the node: got %v, %v, want a key of NATS", pair, err)
		}
		large, _, err := c.Call(t.Context(), "large", []any{1 << 20}, client.CallOptions{Node: "py-key"})
		if len(large) != 1<<20+2 || err != nil {
			t.Errorf("large(1 MiB) with a signed upload = %d bytes, %v, want %d", len(large), err, 1<<20+2)
		}
	})
	t.Run("needs no token afterwards", func(t *testing.T) {
		eventually(t, "departure of the node", func() bool { return !greets() })
		p.start(t, nil, "examples/node.py", url, "--dir", dir)
		eventually(t, "function of the node with a key", greets)
		ok(t, c.Do(t.Context(), http.MethodPost, "/api/v1/nodes/py-key/drain", nil, nil))
		eventually(t, "departure of the drained node", func() bool { return !greets() })
	})
	t.Run("joins again after the gateway restarts", func(t *testing.T) {
		p.start(t, nil, "examples/node.py", url, "--dir", dir)
		w.restart(t, url)
		eventually(t, "node after a restart", greets)
	})
	t.Run("is superseded by another process", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
		defer cancel()
		var out bytes.Buffer
		first := p.command(ctx, nil, "examples/node.py", url, "--dir", dir)
		first.Stdout, first.Stderr = &out, &out
		ok(t, first.Start())
		eventually(t, "first process", greets)
		p.start(t, nil, "examples/node.py", url, "--dir", dir)
		if err := first.Wait(); err == nil || !strings.Contains(out.String(), "another process has joined") {
			t.Errorf("first process: got %v\n%s\nwant an end because another process has joined", err, &out)
		}
		eventually(t, "node of the second process", greets)
	})
	t.Run("ends when its token is refused", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
		defer cancel()
		wrong := secretFile(t, "wrong", "jct_wrong-token-that-must-not-leak")
		out, err := p.command(ctx, nil, "examples/node.py", url, "--node-token-file", wrong, "--id", "py-wrong").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "refused") || strings.Contains(string(out), "must-not-leak") {
			t.Errorf("node with a wrong token: got %v\n%s\nwant a refusal that does not show the token", err, out)
		}
	})
}

func TestPythonEasyRemotePrograms(t *testing.T) {
	p := newPython(t, "websockets", "cryptography")
	w := newPlane(t, "")
	admin, err := os.ReadFile(filepath.Join(w.home, "run", "admin.token"))
	ok(t, err)
	token, err := os.ReadFile(w.nodeToken(t, "lab"))
	ok(t, err)
	p.run(t, []string{
		"INTEROP_ADDRESS=" + strings.TrimPrefix(strings.TrimSuffix(w.url, "/mcp"), "http://"), "INTEROP_NODE_TOKEN=" + string(token),
		"INTEROP_OPERATOR=" + strings.TrimSpace(string(admin)),
	}, "-m", "unittest", "tests.live_easyremote")
}

// TestPythonSDKPage pastes the blocks of docs/sdk-python.md into a shell.
func TestPythonSDKPage(t *testing.T) {
	newPython(t, "websockets", "cryptography")
	page, err := os.ReadFile("../docs/sdk-python.md")
	ok(t, err)
	if n := len(strings.Fields(string(page))); n > 1200 {
		t.Errorf("the page has %d words, want at most 1200", n)
	}
	dir := t.TempDir()
	ok(t, built.Copy(filepath.Join(dir, "bin", "junctor")))
	sdk, err := filepath.Abs("../sdk")
	ok(t, err)
	ok(t, os.Symlink(sdk, filepath.Join(dir, "sdk")))
	var script strings.Builder
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		script.WriteString(block[1])
	}
	script.WriteString("kill $(jobs -p); wait\n")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-e", "-m", "-c", strings.Replace(script.String(), "make build; ", "", 1))
	cmd.Dir, cmd.WaitDelay = dir, 5*time.Second
	cmd.Env = []string{"PATH=/usr/bin:" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "PYTHONDONTWRITEBYTECODE=1"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the page: got %v, want exit status 0\n%s", err, out)
	}
	for _, want := range []string{"fs.readText", "hello\n", "approval_required\napr_", "hello Python", "conforms: 1 module", "42", "1\n2\n3\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the page does not show %q; it shows\n%s", want, out)
		}
	}
}
