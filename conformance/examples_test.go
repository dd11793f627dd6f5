package conformance_test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/junctor-run/junctor/conformance"
	"github.com/junctor-run/junctor/secret"
)

// TestExampleEndpointsConform starts each example as its own process, as its
// first lines say, with and without a token.
func TestExampleEndpointsConform(t *testing.T) {
	t.Parallel()
	for _, example := range []struct{ name, program, file string }{
		{"node", "node", "../examples/endpoint-node/server.mjs"},
		{"python", "python3", "../examples/endpoint-python/endpoint.py"},
	} {
		for _, token := range []string{"", "an-example-token"} {
			t.Run(example.name+"/token="+token, func(t *testing.T) {
				t.Parallel()
				program, err := exec.LookPath(example.program)
				if err != nil {
					t.Skipf("SKIPPED: %s is not on this machine", example.program)
				}
				args := []string{example.file}
				if token != "" {
					file := filepath.Join(t.TempDir(), "token")
					if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
						t.Fatal(err)
					}
					args = append(args, "--token-file", file)
				}
				_, err = conformance.Run(t.Context(), conformance.Options{BaseURL: startExample(t, program, args), Token: secret.New(token)})
				if err != nil {
					t.Fatalf("\n%v", err)
				}
			})
		}
	}
}

func startExample(t *testing.T, program string, args []string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")} // an example needs nothing of ours
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("%s did not become ready: %v", program, err)
	}
	var ready struct {
		URL string `json:"url"`
	}
	if err := json.Unmarshal(line, &ready); err != nil {
		t.Fatal(err)
	}
	return ready.URL
}
