package conformance_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/junctor-run/junctor/conformance"
	"github.com/junctor-run/junctor/secret"
)

// program is how one example is started.
type program struct {
	name string
	args []string
}

// examples builds what has to be built; one whose language is not on this machine
// is left out with a word.
func examples(t *testing.T) map[string]program {
	t.Helper()
	out := map[string]program{"go": {name: buildExample(t)}}
	for language, p := range map[string]program{
		"node":   {"node", []string{"../examples/endpoint-node/server.mjs"}},
		"python": {"python3", []string{"../examples/endpoint-python/endpoint.py"}},
	} {
		if _, err := exec.LookPath(p.name); err != nil {
			t.Logf("SKIPPED: %s is not on this machine", p.name)
			continue
		}
		out[language] = p
	}
	return out
}

// buildExample compiles the Go example in its own module, as its reader would.
func buildExample(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "endpoint-go")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	build.Dir = "../examples/endpoint-go"
	build.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the Go example does not build (its go.mod may lag behind ours): %v\n%s", err, out)
	}
	return binary
}

// TestTheGoExampleHoldsItsOwnTests: a module of its own is not among ./... of
// ours.
func TestTheGoExampleHoldsItsOwnTests(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"vet", "./..."}, {"test", "./..."}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = "../examples/endpoint-go"
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("go %s: %v\n%s", args[0], err, out)
		}
	}
}

// TestExampleEndpointsConform starts each example as its own process, as its
// first lines say, with and without a token, and judges it for every generation
// of routers.
func TestExampleEndpointsConform(t *testing.T) {
	t.Parallel()
	for name, example := range examples(t) {
		for _, token := range []string{"", "an-example-token"} {
			t.Run(name+"/token="+token, func(t *testing.T) {
				t.Parallel()
				args := example.args
				if token != "" {
					file := filepath.Join(t.TempDir(), "token")
					if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
						t.Fatal(err)
					}
					args = append(slices.Clip(args), "--token-file", file)
				}
				url := startExample(t, example.name, args)
				for _, dialect := range dialects {
					report, err := conformance.Run(t.Context(), conformance.Options{BaseURL: url, Token: secret.New(token), Dialect: dialect})
					if err != nil {
						t.Fatalf("dialect %s:\n%v", dialect, err)
					}
					for _, w := range report.Warnings {
						t.Errorf("dialect %s: %s: %s", dialect, w.Where, w.Message)
					}
				}
			})
		}
	}
}

var dialects = []conformance.Dialect{conformance.DialectUnion, conformance.DialectS, conformance.DialectT, conformance.DialectN}

// TestAnEmptyTokenFileOpensNothing: a file that should hold the token and does
// not must not let everybody in.
func TestAnEmptyTokenFileOpensNothing(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, example := range examples(t) {
		out, err := exec.CommandContext(t.Context(), example.name, append(slices.Clip(example.args), "--token-file", empty)...).Output()
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() == 0 || len(out) > 0 {
			t.Errorf("%s: %v, %s; want ok = true, exit.ExitCode() other than 0, len(out) at most 0", name, err, out)
		}
	}
}

func startExample(t *testing.T, program string, args []string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")} // an example needs nothing of ours
	url, err := start(t, cmd)
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// start runs an endpoint until the test ends and returns the URL of its ready
// line. The error is of the start itself: the system did not allow it.
func start(t *testing.T, cmd *exec.Cmd) (string, error) {
	t.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("%s did not become ready: %v", cmd.Path, err)
	}
	var ready struct {
		URL string `json:"url"`
	}
	if err := json.Unmarshal(line, &ready); err != nil {
		t.Fatal(err)
	}
	return ready.URL, nil
}
