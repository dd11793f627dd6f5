package interop

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestProgramsOfTheAgentsPage runs the programs that docs/agents.md shows.
func TestProgramsOfTheAgentsPage(t *testing.T) {
	w := newWorld(t)
	page, err := os.ReadFile("../docs/agents.md")
	ok(t, err)
	for _, kind := range []string{"js", "go"} {
		t.Run(kind, func(t *testing.T) {
			program := regexp.MustCompile("(?s)```" + kind + "\n(.*?)```").FindSubmatch(page)
			if program == nil {
				t.Fatal("the page shows none; want program not nil")
			}
			ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
			defer cancel()
			cmd := w.command(ctx, "--input-type=module", "-")
			cmd.Stdin = strings.NewReader(string(program[1]))
			if kind == "go" {
				file := filepath.Join(t.TempDir(), "main.go")
				ok(t, os.WriteFile(file, program[1], 0o600))
				cmd = exec.CommandContext(ctx, "go", "run", file)
				cmd.Env = environment()
			}
			cmd.Env = append(cmd.Env, "MCP_URL="+w.url, "AGENT_TOKEN="+w.tok)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "fs_readText\n") {
				t.Errorf("%v\n%s\nwant no error, string(out) with \"fs_readText\\n\"", err, out)
			}
		})
	}
}
