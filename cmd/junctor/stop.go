package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/server"
	"github.com/junctor-run/junctor/internal/setup/clients"
)

func (a *app) stopCommand() *cobra.Command {
	return &cobra.Command{
		Use: "stop", Short: "Stop the server of the home", Args: cobra.NoArgs,
		Long: `Stop the server that runs on the home, as its Ctrl-C does, and wait for its end. Without
a running server it does nothing. JUNCTOR_URL and JUNCTOR_TOKEN are not used.

A server that systemd started is stopped by systemctl --user stop junctor, and for good
by junctor setup --undo --service.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.server != "" {
				return capability.Errorf(capability.CodeInvalidInput, "home", "a server is stopped by its home, on its machine: leave --server out")
			}
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
// process. It returns the process that it ended, or 0.
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
	if runs, err := servesHome(home, line.PID); err != nil || !runs {
		return 0, err
	}
	token, err := a.readSecretFile(filepath.Join(home, "run", "admin.token"))
	if err != nil {
		return 0, err
	}
	c, err := client.New(client.Config{URL: line.URL, Token: token})
	if err != nil {
		return 0, err
	}
	quick, end := context.WithTimeout(ctx, probeTimeout)
	defer end()
	if err := c.Do(quick, http.MethodGet, "/api/v1/status", nil, nil); err != nil {
		return 0, capability.Wrap(capability.CodeOf(err), "home", fmt.Sprintf("the server of the home (process %d) does not answer at %s: %s",
			line.PID, line.URL, capability.AsError(err).Message), err).
			With("", fmt.Sprintf("see what it does in its log, or end it with: kill %d", line.PID))
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

// servesHome reports whether a process is the server of a home: it holds the home's lock. A file that a
// server left when it was killed may name a process of another program.
func servesHome(home string, pid int) (bool, error) {
	f, err := os.OpenFile(filepath.Join(home, "run", "lock"), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, capability.Wrap(capability.CodeFailed, "home", "the lock of the home cannot be opened", err)
	}
	defer f.Close() // releases it
	if err := hostfs.TryLock(f); err == nil {
		return false, nil
	} else if !errors.Is(err, hostfs.ErrHeld) {
		return false, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxLock))
	if holder := strings.TrimSpace(string(text)); err != nil || holder != strconv.Itoa(pid) || !hasOpen(pid, f) {
		return false, capability.Errorf(capability.CodeConflict, "home",
			"a server holds the home %s, and process %d of this machine is not it", home, pid).
			With("home_locked", "try again if it is just starting; stop one in a container with its engine")
	}
	return true, nil
}

// hasOpen reports whether a process has a file open. Where the system has no /proc it is always true.
func hasOpen(pid int, f *os.File) bool {
	want, err := f.Stat()
	if err != nil {
		return false
	}
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		return true
	}
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	open, _ := os.ReadDir(dir)
	return slices.ContainsFunc(open, func(e fs.DirEntry) bool {
		got, err := os.Stat(filepath.Join(dir, e.Name()))
		return err == nil && os.SameFile(got, want)
	})
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

// setups returns how many clients of a home are set up, and how many setups were interrupted.
func setups(home string) (finished, interrupted int) {
	for _, c := range clients.All() {
		file := filepath.Join(home, "clients", c.Name)
		_, record := os.Stat(file + ".json")
		_, journal := os.Stat(file + ".journal")
		switch {
		case record == nil && journal == nil:
			finished++
		case record == nil || journal == nil:
			interrupted++
		}
	}
	return finished, interrupted
}
