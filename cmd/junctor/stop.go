package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/server"
)

func (a *app) stopCommand() *cobra.Command {
	return &cobra.Command{
		Use: "stop", Short: "Stop the server of the home", Args: cobra.NoArgs,
		Long: `Stop the server that runs on the home, as its Ctrl-C does, and wait for its end. Without
a running server it does nothing. A server that systemd started is stopped by
systemctl --user stop junctor, and for good by junctor setup --undo --service.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			home, err := a.findHome()
			if err != nil {
				return err
			}
			pid, err := a.stopServer(cmd.Context(), home, 0)
			switch {
			case err != nil:
				return err
			case a.json:
				return a.printObject(map[string]any{"stopped": pid > 0, "pid": pid})
			case pid == 0:
				a.printf("No server runs on the home %s.\n", plainText(home))
			default:
				a.printf("Stopped the server of the home %s (process %d).\n", plainText(home), pid)
			}
			return nil
		},
	}
}

// stopServer ends the server of a home and waits for its end. If only is not 0, it ends no other
// process. It returns the process that it ended, or 0. A process is ended only if it answers as the server.
func (a *app) stopServer(ctx context.Context, home string, only int) (pid int, err error) {
	line, err := server.ReadServer(home)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if only != 0 && line.PID != only {
		return 0, nil
	}
	c, err := (&app{home: home, environ: a.environ}).client()
	if err == nil {
		quick, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		err = c.Do(quick, "GET", "/api/v1/status", nil, nil)
	}
	if err != nil {
		if capability.CodeOf(err) == capability.CodeUnavailable {
			return 0, nil // it was killed, and left its file
		}
		return 0, err
	}
	process, err := os.FindProcess(line.PID)
	if err == nil {
		err = process.Signal(syscall.SIGTERM)
	}
	if err != nil {
		return 0, capability.Wrap(capability.CodeFailed, "home", fmt.Sprintf("the server (process %d) cannot be stopped", line.PID), err)
	}
	ctx, cancel := context.WithTimeout(ctx, serverStopTimeout)
	defer cancel()
	tick := time.NewTicker(serviceStartInterval)
	defer tick.Stop()
	for {
		if now, err := server.ReadServer(home); err != nil || now.PID != line.PID {
			return line.PID, nil
		}
		select {
		case <-ctx.Done():
			return 0, capability.Wrap(capability.CodeTimeout, "home", fmt.Sprintf("the server (process %d) did not end yet", line.PID), ctx.Err())
		case <-tick.C:
		}
	}
}

// backgroundFile has the process that setup started in the background.
func backgroundFile(home string) string { return filepath.Join(home, "run", "background") }

// stopBackground stops the server if setup started it in the background.
func (a *app) stopBackground(ctx context.Context) error {
	home, err := a.findHome()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(backgroundFile(home))
	if err != nil {
		return nil // setup started none
	}
	started, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || started <= 0 {
		return os.Remove(backgroundFile(home))
	}
	pid, err := a.stopServer(ctx, home, started)
	if err != nil {
		return err
	}
	if pid > 0 && !a.json {
		a.printf("Stopped the server that setup had started (process %d).\n", pid)
	}
	return os.Remove(backgroundFile(home))
}

// hasSetups reports whether the home has records of clients that were set up.
func hasSetups(home string) bool {
	for _, pattern := range []string{"*.json", "*.journal"} {
		if files, err := filepath.Glob(filepath.Join(home, "clients", pattern)); err == nil && len(files) > 0 {
			return true
		}
	}
	return false
}
