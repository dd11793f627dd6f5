package interop

import (
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
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/protocol/router"
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
	text := fmt.Sprintf("not run: there is no Python 3.11 with the packages %q; run: make interop-deps", packages)
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
