package interop

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/conformance"
	"github.com/junctor-run/junctor/internal/platform/scriptedmodel"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// typeScriptSDK is the SDK compiled into a folder of its own, in which programs import it
// as "junctor".
type typeScriptSDK struct {
	*world
	source, dir string
}

// newTypeScriptSDK compiles sdk/typescript with the compiler of the folder node_modules.
// The compiler checks the types of the SDK and its examples; errors fail the test.
func newTypeScriptSDK(t *testing.T, w *world) *typeScriptSDK {
	t.Helper()
	source, err := filepath.Abs("../sdk/typescript")
	ok(t, err)
	modules, err := filepath.Abs("node_modules")
	ok(t, err)
	for _, name := range []string{"typescript", "@types/node", "@nats-io/nats-core", "@nats-io/nkeys"} {
		if _, err := os.Stat(filepath.Join(modules, name)); err != nil {
			text := name + " is not installed, so the TypeScript SDK was neither checked nor run; run: npm ci --prefix interop"
			if os.Getenv("INTEROP_REQUIRED") != "" {
				t.Fatalf("INTEROP_REQUIRED is set: %s", text)
			}
			t.Skip(text)
		}
	}
	s := &typeScriptSDK{world: w, source: source, dir: t.TempDir()}
	pkg := filepath.Join(s.dir, "sdk")
	for _, name := range []string{"src", "examples"} {
		ok(t, os.CopyFS(filepath.Join(pkg, name), os.DirFS(filepath.Join(source, name))))
	}
	for _, name := range []string{"package.json", "tsconfig.json", "tsconfig.examples.json"} {
		data, err := os.ReadFile(filepath.Join(source, name))
		ok(t, err)
		ok(t, os.WriteFile(filepath.Join(pkg, name), data, 0o600))
	}
	ok(t, os.Symlink(modules, filepath.Join(pkg, "node_modules")))
	programs := filepath.Join(s.dir, "programs")
	ok(t, os.CopyFS(programs, os.DirFS(filepath.Join(source, "examples"))))
	ok(t, os.Mkdir(filepath.Join(programs, "node_modules"), 0o700))
	ok(t, os.Symlink(pkg, filepath.Join(programs, "node_modules", "junctor")))
	ok(t, os.WriteFile(filepath.Join(programs, "package.json"), []byte(`{"type":"module"}`), 0o600))
	types, err := os.ReadFile(filepath.Join("sdktypescript", "types.ts"))
	ok(t, err)
	ok(t, os.WriteFile(filepath.Join(pkg, "examples", "types.ts"), types, 0o600))
	for name, text := range guideExamples(t) {
		for _, dir := range []string{filepath.Join(pkg, "examples"), programs} {
			ok(t, os.WriteFile(filepath.Join(dir, "guide-"+name), []byte(text), 0o600))
		}
	}
	for _, project := range []string{"tsconfig.json", "tsconfig.examples.json"} {
		s.run(t, exec.CommandContext(t.Context(), w.node, filepath.Join(modules, "typescript", "bin", "tsc"), "-p", filepath.Join(pkg, project)))
	}
	return s
}

// guideExamples returns the programs of docs/sdk-typescript.md by the name in their first
// line.
func guideExamples(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../docs/sdk-typescript.md")
	ok(t, err)
	examples := make(map[string]string)
	for _, m := range regexp.MustCompile("(?ms)^```ts\n// (\\w+\\.ts)\n(.*?)^```").FindAllSubmatch(page, -1) {
		examples[string(m[1])] = string(m[2])
	}
	if len(examples) != 4 {
		t.Fatalf("docs/sdk-typescript.md has %d programs with a name; want 4", len(examples))
	}
	return examples
}

// program returns a Node program of the folder of examples, or of interop/sdktypescript,
// which is copied there so that it finds the SDK.
func (s *typeScriptSDK) program(ctx context.Context, t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	if data, err := os.ReadFile(filepath.Join("sdktypescript", name)); err == nil {
		here, err := filepath.Abs("sdktypescript")
		ok(t, err)
		text := strings.ReplaceAll(string(data), "import.meta.url", "process.env.INTEROP_HERE")
		ok(t, os.WriteFile(filepath.Join(s.dir, "programs", name), []byte(text), 0o600))
		t.Setenv("INTEROP_HERE", "file://"+filepath.Join(here, name))
	}
	cmd := exec.CommandContext(ctx, s.node, append(args, name)...)
	cmd.Dir = filepath.Join(s.dir, "programs")
	admin, err := os.ReadFile(filepath.Join(s.home, "run", "admin.token"))
	ok(t, err)
	cmd.Env = append(environment(), "SDK=file://"+filepath.Join(s.dir, "sdk")+"/", "INTEROP_URL="+strings.TrimSuffix(s.url, "/mcp"),
		"INTEROP_TOKEN="+s.tok, "INTEROP_ADMIN="+strings.TrimSpace(string(admin)), "NO_COLOR=1")
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func (s *typeScriptSDK) run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return string(out)
}

func TestTypeScriptSDK(t *testing.T) {
	model, err := scriptedmodel.Start(scriptedmodel.Script{"PLAY-PING": {
		{Call: &scriptedmodel.Call{Names: []string{"DEVICE_PING"}, Args: map[string]any{"text": "from the agent"}}}, {Say: "The device answers."},
	}})
	ok(t, err)
	t.Cleanup(model.Close)
	s := newTypeScriptSDK(t, newWorld(t, func(home string) {
		config, err := os.OpenFile(filepath.Join(home, "config.yaml"), os.O_APPEND|os.O_WRONLY, 0o600)
		ok(t, err)
		_, err = fmt.Fprintf(config, "model:\n  kind: openai-chat\n  url: %s/v1\n  name: fake\n", model.URL())
		ok(t, err)
		ok(t, config.Close())
	}))
	t.Setenv("INTEROP_DIGESTS", manifestWithDigests(t))
	t.Setenv("INTEROP_NODE_TOKEN", s.nodeToken(t))
	for _, name := range []string{"vectors", "client", "endpoint", "node"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
			defer cancel()
			for line := range strings.Lines(s.run(t, s.program(ctx, t, name+".test.mjs", "--test"))) {
				if figure, ok := strings.CutPrefix(strings.TrimSpace(line), "# figure: "); ok {
					t.Log(figure)
				}
			}
		})
	}
	t.Run("endpoint conforms", s.conforms)
	t.Run("signed endpoint is trusted", s.signs)
	t.Run("guide", s.guide)
	t.Run("node throughput", s.throughput)
}

// manifestWithDigests returns a manifest whose member names are ordered differently by
// different collations, with the digests of this implementation.
func manifestWithDigests(t *testing.T) string {
	t.Helper()
	metadata := map[string]any{}
	for i, name := range strings.Fields("b A a B _x x_ 10 9 01 é e E ñ z-1 z_1 z.1 zz Z $a a$ ab aB Ab ß ss ø 日 人 __proto__ a1 a10 a2 - ~") {
		metadata[name] = map[string]any{"n": i, "B": 1.5, "a": "é\u2028<", "C": nil}
	}
	raw, err := json.Marshal(map[string]any{"id": "m", "name": "m", "metadata": metadata})
	ok(t, err)
	m, err := router.ParseModule(raw)
	ok(t, err)
	original, rfc8785, err := m.Digests()
	ok(t, err)
	out, err := json.Marshal(map[string]any{"manifest": json.RawMessage(raw), "original": original, "rfc8785": rfc8785})
	ok(t, err)
	return string(out)
}

// start runs a program until the test ends and returns the URL of its ready line.
func (s *typeScriptSDK) start(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := s.program(ctx, t, name)
	cmd.Args = append(cmd.Args, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stderr = logWriter{t, name}
	out, err := cmd.StdoutPipe()
	ok(t, err)
	ok(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was ended by a signal
	})
	var ready readyLine
	ok(t, json.NewDecoder(out).Decode(&ready))
	return ready.URL
}

// nodeToken returns a new token for nodes.
func (s *typeScriptSDK) nodeToken(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), s.binary, "--home", s.home, "--json", "tokens", "create", "--role", "node", "--name", "lab")
	cmd.Env = environment()
	out, err := cmd.Output()
	ok(t, err)
	var made struct{ Token string }
	ok(t, json.Unmarshal(out, &made))
	return made.Token
}

// conforms runs the conformance suite against the example, for each generation of routers.
func (s *typeScriptSDK) conforms(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	ok(t, os.WriteFile(file, []byte("an-example-token\n"), 0o600))
	for token, args := range map[string][]string{"": nil, "an-example-token": {"--token-file", file}} {
		url := s.start(t, "endpoint.ts", args...)
		dialects := []conformance.Dialect{conformance.DialectUnion, conformance.DialectS, conformance.DialectT, conformance.DialectN}
		for _, dialect := range dialects {
			report, err := conformance.Run(t.Context(), conformance.Options{BaseURL: url, Token: secret.New(token), Dialect: dialect})
			if err != nil || len(report.Warnings) > 0 || len(report.Exercised) != 12 {
				t.Errorf("conformance.Run(token %q, dialect %s) = %d surfaces, warnings %v, %v; want 12 surfaces without warnings or errors",
					token, dialect, len(report.Exercised), report.Warnings, err)
			}
		}
	}
	ok(t, os.WriteFile(file, []byte("\n"), 0o600))
	cmd := s.program(t.Context(), t, "endpoint.ts")
	cmd.Args = append(cmd.Args, "--token-file", file)
	if out, err := cmd.Output(); err == nil || len(out) > 0 {
		t.Errorf("the example with an empty token file wrote %q, %v; want no output and an error", out, err)
	}
}

// signs connects an endpoint whose manifest is signed under a policy that requires the
// signature to verify.
func (s *typeScriptSDK) signs(t *testing.T) {
	dir := t.TempDir()
	_, private, err := ed25519.GenerateKey(nil)
	ok(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	ok(t, err)
	public, err := x509.MarshalPKIXPublicKey(private.Public())
	ok(t, err)
	key := filepath.Join(dir, "key.pem")
	ok(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	policy, err := json.Marshal(map[string]any{
		"requireVerifiedProvenance":   true,
		"trustedProvenancePublicKeys": map[string]string{"examples": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))},
	})
	ok(t, err)
	ok(t, os.WriteFile(filepath.Join(dir, "policy.json"), policy, 0o600))
	s.cli("connect", s.start(t, "endpoint.ts", "--key-file", key), "--id", "signed", "--trust-policy", filepath.Join(dir, "policy.json"))
	s.cli("invoke", "unit-converter:action:CONVERT", `{"value":3,"from":"mi","to":"km"}`)
	s.cli("disconnect", "signed")
	unsigned := exec.CommandContext(t.Context(), s.binary, "--home", s.home, "connect", s.start(t, "endpoint.ts"), "--id", "unsigned",
		"--trust-policy", filepath.Join(dir, "policy.json"))
	unsigned.Env = environment()
	if out, err := unsigned.CombinedOutput(); err == nil {
		t.Errorf("connect of an unsigned endpoint succeeded: %s; want an error", out)
	}
}

// guide runs the programs of the guide.
func (s *typeScriptSDK) guide(t *testing.T) {
	base := strings.TrimSuffix(s.url, "/mcp")
	run := func(name, token string) string {
		cmd := s.program(t.Context(), t, "guide-"+name)
		cmd.Env = append(cmd.Env, "JUNCTOR_URL="+base, "JUNCTOR_TOKEN="+token)
		return s.run(t, cmd)
	}
	admin, err := os.ReadFile(filepath.Join(s.home, "run", "admin.token"))
	ok(t, err)
	if out := run("client.ts", s.tok); !strings.Contains(out, "memory.search") || !strings.Contains(out, "unknown_capability") {
		t.Errorf("client.ts wrote %s; want memory.search and unknown_capability", out)
	}
	s.cli("connect", s.start(t, "endpoint.ts"), "--id", "units")
	if out := run("approval.ts", strings.TrimSpace(string(admin))); !strings.Contains(out, "4.82803") {
		t.Errorf("approval.ts wrote %s; want 4.82803", out)
	}

	token := filepath.Join(t.TempDir(), "token")
	ok(t, os.WriteFile(token, []byte(os.Getenv("INTEROP_NODE_TOKEN")), 0o600))
	for _, c := range []struct {
		program, until string
		env            []string
		then           func(line string)
	}{
		{"endpoint.ts", "http://", nil, func(line string) {
			s.cli("connect", line, "--id", "greeter")
			s.cli("invoke", "greeter:action:GREET", `{"name":"Ann"}`)
		}},
		{"node.ts", "connected", []string{"GATEWAY=" + base, "TOKEN_FILE=" + token}, func(string) {
			s.cli("call", "laptop", "resize", `{"width":640}`)
			s.cli("call", "laptop", "count", `{"to":3}`, "--stream")
		}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
		cmd := s.program(ctx, t, "guide-"+c.program)
		cmd.Env = append(cmd.Env, c.env...)
		cmd.Stderr = logWriter{t, c.program}
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		out, err := cmd.StdoutPipe()
		ok(t, err)
		ok(t, cmd.Start())
		found := false
		for lines := bufio.NewScanner(out); !found && lines.Scan(); {
			if found = strings.HasPrefix(lines.Text(), c.until); found {
				c.then(lines.Text())
			}
		}
		if !found {
			t.Errorf("%s ended without a line that begins with %q", c.program, c.until)
		}
		cancel()
		_ = cmd.Wait() // it was ended by a signal
	}
}

// throughput reports how many calls a second one node answers for 64 callers, and their
// latency. The figure depends on the machine, so only failed calls fail the test.
func (s *typeScriptSDK) throughput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	ok(t, os.WriteFile(file, []byte(os.Getenv("INTEROP_NODE_TOKEN")), 0o600))
	base := strings.TrimSuffix(s.url, "/mcp")
	s.start(t, "node.ts", base, "--node-token-file", file, "--id", "ts.load", "--concurrent", "64")
	admin, err := os.ReadFile(filepath.Join(s.home, "run", "admin.token"))
	ok(t, err)
	c, err := client.New(client.Config{
		URL: base, Token: secret.New(strings.TrimSpace(string(admin))), Transport: &http.Transport{MaxIdleConnsPerHost: 64},
	})
	ok(t, err)
	const callers, loadInterval = 64, 2 * time.Second
	var mu sync.Mutex
	var took []time.Duration
	var calls sync.WaitGroup
	began := time.Now()
	for range callers {
		calls.Go(func() {
			for time.Since(began) < loadInterval {
				start := time.Now()
				result, _, err := c.Call(t.Context(), "greet", map[string]string{"name": "load"}, client.CallOptions{Node: "ts.load"})
				if err != nil || string(result) != `"hello, load"` {
					t.Errorf(`Call(greet) = %s, %v; want "hello, load"`, result, err)
					return
				}
				mu.Lock()
				took = append(took, time.Since(start))
				mu.Unlock()
			}
		})
	}
	calls.Wait()
	if len(took) == 0 {
		t.Fatal("got no answered call, want some")
	}
	slices.Sort(took)
	t.Logf("%.0f calls/s at %d callers, p50 %v, p99 %v", float64(len(took))/time.Since(began).Seconds(), callers,
		took[len(took)/2].Round(100*time.Microsecond), took[len(took)*99/100].Round(100*time.Microsecond))
}
