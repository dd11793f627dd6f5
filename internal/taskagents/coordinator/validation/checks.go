package validation

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
)

// Runner runs a command in a folder. When ctx ends, it ends the command and all its
// descendants. err reports that the command could not be run; a failing exit status is not an
// error. Output may be cut.
type Runner interface {
	Run(ctx context.Context, dir string, argv []string) (exit int, output string, err error)
}

// Check is the result of a command.
type Check struct {
	Argv   []string `json:"argv"`
	Exit   int      `json:"exitCode"`
	Output string   `json:"output,omitzero"` // the last maxOutput characters
	Error  string   `json:"error,omitzero"`  // set if it could not be run or took too long
	TookMS int64    `json:"tookMs"`
}

// Passed reports whether the command ran and exited with 0.
func (c Check) Passed() bool { return c.Error == "" && c.Exit == 0 }

// Conventions returns the test commands that the files of a folder suggest, for Go, npm, Cargo
// and pytest. Links out of the folder are not followed.
func Conventions(dir string) [][]string {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil
	}
	defer root.Close()
	there := func(name string) bool {
		i, err := root.Stat(name)
		return err == nil && i.Mode().IsRegular()
	}
	var out [][]string
	if there("go.mod") {
		out = append(out, []string{"go", "test", "./..."})
	}
	if hasTest(root) {
		out = append(out, []string{"npm", "test"})
	}
	if there("Cargo.toml") {
		out = append(out, []string{"cargo", "test"})
	}
	if there("pytest.ini") || there("conftest.py") || there("tests/conftest.py") {
		out = append(out, []string{"python3", "-m", "pytest", "-q"})
	}
	return out
}

// hasTest reports whether package.json has a test script that is not npm's placeholder.
func hasTest(root *os.Root) bool {
	if i, err := root.Stat("package.json"); err != nil || !i.Mode().IsRegular() || i.Size() > maxManifest {
		return false
	}
	raw, err := root.ReadFile("package.json")
	var p struct {
		Scripts map[string]json.RawMessage `json:"scripts"`
	}
	if err != nil || jsonx.Unmarshal(raw, &p) != nil {
		return false
	}
	test, ok := jsonx.Text(p.Scripts["test"])
	return ok && strings.TrimSpace(test) != "" && !strings.Contains(test, "no test specified")
}

// run runs at most MaxChecks commands one after the other, each for at most checkTimeout. If r
// is nil or ctx has ended, no command is run.
func run(ctx context.Context, r Runner, now func() time.Time, dir string, list [][]string) (out []Check) {
	for _, argv := range list[:min(len(list), MaxChecks)] {
		if r == nil || len(argv) == 0 || ctx.Err() != nil {
			continue
		}
		begun := now()
		limited, cancel := context.WithTimeout(ctx, checkTimeout)
		exit, output, err := r.Run(limited, dir, argv)
		c := Check{Argv: argv, Exit: exit, Output: text.LastRunes(output, maxOutput), TookMS: now().Sub(begun).Milliseconds()}
		switch {
		case limited.Err() != nil:
			c.Error = "it was ended after " + checkTimeout.String()
		case err != nil:
			c.Error = text.CutRunes(err.Error(), maxSummary)
		}
		cancel()
		out = append(out, c)
	}
	return out
}
