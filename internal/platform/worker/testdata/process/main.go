// The process is the worker of the tests: small, static, and never slowed down by
// the race detector.
package main

import (
	"os"

	"github.com/junctor-run/junctor/internal/platform/worker"
)

func main() { os.Exit(worker.Main()) }
