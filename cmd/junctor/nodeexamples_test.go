package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestNodesToCopy runs the example nodes against a real server. The one in plain
// Node is skipped if Node with WebSocket is not installed.
func TestNodesToCopy(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a module of its own")
	}
	program := filepath.Join(t.TempDir(), "node-go")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir = "../../examples/node-go"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	script, err := filepath.Abs("../../examples/node-js/node.mjs")
	if err != nil {
		t.Fatal(err)
	}
	const flag = "--experimental-websocket" // Node 20 wants it, later ones take it
	websocket := exec.CommandContext(t.Context(), "node", flag, "-e", "process.exit(typeof WebSocket === 'function' ? 0 : 1)").Run() == nil
	testscript.Run(t, testscript.Params{
		Dir: "testdata/nodes",
		Setup: func(env *testscript.Env) error {
			env.Setenv("JUNCTOR_HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("NODE_GO", program)
			env.Setenv("NODE_JS", script)
			env.Setenv("NODE_FLAG", flag)
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Condition: func(string) (bool, error) { return websocket, nil }, // [websocket] is the only one
		Cmds:      scriptCommands(),
	})
}
