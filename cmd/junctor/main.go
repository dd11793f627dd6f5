// Command junctor is the capability plane for AI agents: a server that joins any
// agent to any capability over one governed path, and the command line to it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/junctor-run/junctor/internal/extensions/exec/db"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/platform/worker"
)

func main() {
	// Some helper processes are this binary started again. They must run nothing else.
	if sandbox.IsHelper(os.Args) {
		os.Exit(sandbox.HelperMain(os.Args))
	}
	if db.IsWorker(os.Args) {
		os.Exit(db.WorkerMain(os.Stdin, os.Stdout))
	}
	if worker.IsWorker(os.Args) {
		os.Exit(worker.Main())
	}
	os.Exit(run())
}

// run is main with an exit status, so that tests can call it.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	app := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ()}
	return app.execute(ctx, os.Args[1:])
}
