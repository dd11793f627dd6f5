package sandbox

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/junctor-run/junctor/internal/platform/sandbox/canary"
)

// canaryMain runs this binary as the hostile program, and returns its exit status. Task
// "nothing" only prints a line; "wait" is a victim, which prints its System V objects, or
// null, and "touched" if it received CONT; "all" attempts all acts, with the victims as JSON on standard input and the results
// on standard output; "removed" takes up disk space with removed files.
func canaryMain(args []string) int {
	inherited := canary.Inherited() // before anything opens more
	task := ""
	if len(args) > 0 {
		task = args[0]
	}
	switch task {
	case "nothing":
		fmt.Println("alive")
	case "wait":
		heard := make(chan os.Signal, 1)
		signal.Notify(heard, syscall.SIGCONT)
		signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM) // of a stop of the server, whose end closes the input
		objects, remove := canary.MakeIPC()
		defer remove()
		if err := json.NewEncoder(os.Stdout).Encode(objects); err != nil {
			return 2
		}
		_, _ = io.Copy(io.Discard, os.Stdin)
		select {
		case <-heard:
			fmt.Println("touched")
		default:
		}
	case "all":
		var v canary.Victims
		if err := json.NewDecoder(os.Stdin).Decode(&v); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		if err := json.NewEncoder(os.Stdout).Encode(canary.Run(v, inherited)); err != nil {
			return 2
		}
	case "removed":
		if err := canary.HoldRemoved(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
	default:
		return 2
	}
	return 0
}
