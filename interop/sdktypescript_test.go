package interop

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
	ok(t, os.CopyFS(pkg, os.DirFS(source)))
	ok(t, os.RemoveAll(filepath.Join(pkg, "node_modules")))
	ok(t, os.Symlink(modules, filepath.Join(pkg, "node_modules")))
	programs := filepath.Join(s.dir, "programs")
	ok(t, os.CopyFS(programs, os.DirFS(filepath.Join(source, "examples"))))
	ok(t, os.Mkdir(filepath.Join(programs, "node_modules"), 0o700))
	ok(t, os.Symlink(pkg, filepath.Join(programs, "node_modules", "junctor")))
	ok(t, os.WriteFile(filepath.Join(programs, "package.json"), []byte(`{"type":"module"}`), 0o600))
	for _, project := range []string{"tsconfig.json", "tsconfig.examples.json"} {
		s.run(t, exec.CommandContext(t.Context(), w.node, filepath.Join(modules, "typescript", "bin", "tsc"), "-p", filepath.Join(pkg, project)))
	}
	return s
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
	s := newTypeScriptSDK(t, newWorld(t))
	for _, name := range []string{"vectors", "client"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
			defer cancel()
			s.run(t, s.program(ctx, t, name+".test.mjs", "--test"))
		})
	}
}
