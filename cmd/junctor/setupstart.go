package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/internal/server"
	"github.com/junctor-run/junctor/internal/setup"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/upstreams"
	"github.com/junctor-run/junctor/internal/upstreams/upstream"
	"github.com/junctor-run/junctor/secret"
)

// setupServer makes sure that a server answers: one that was named or runs on the home, or else a new
// one in the background. A server that was started to look only is stopped by stop. If the home was
// never used, or with unused, a look starts none and returns local instead, which previews as that server would.
// With yes nothing is asked. started is the process of a new server that stays, or 0.
func (a *app) setupServer(ctx context.Context, look, unused, yes bool) (
	local *setup.Service, started int, stop func(), err error,
) {
	stop = func() {}
	if a.far() {
		return nil, 0, stop, nil
	}
	home, err := a.findHome()
	if err != nil {
		return nil, 0, nil, err
	}
	if c, err := a.client(); err == nil {
		quick, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		if c.Do(quick, http.MethodGet, "/api/v1/status", nil, nil) == nil {
			return nil, 0, stop, nil
		}
	}
	if _, err := os.Stat(filepath.Join(home, "state")); look && (unused || errors.Is(err, fs.ErrNotExist)) {
		local, err := a.localSetup(home)
		return local, 0, stop, err
	}
	if !look {
		if err := a.keepArguments(ctx, home, yes); err != nil {
			return nil, 0, nil, err
		}
	}
	child, log, err := a.startServer(ctx, home)
	if err != nil {
		return nil, 0, nil, err
	}
	if look {
		return nil, 0, func() { stopServer(child) }, nil
	}
	pid := child.Process.Pid // before Release, which forgets it
	if err := hostfs.WriteFile(backgroundFile(home), []byte(strconv.Itoa(pid)+"\n")); err != nil {
		stopServer(child)
		return nil, 0, nil, capability.Wrap(capability.CodeFailed, "setup", backgroundFile(home)+" cannot be written", err)
	}
	fmt.Fprintf(a.stderr, "Started a server in the background (process %d, log %s). It runs until: junctor stop\n"+
		"To have it started with your session: junctor stop && junctor setup --service\n", pid, log)
	return nil, pid, stop, child.Process.Release()
}

// keepArguments asks, before the first server of a home starts, whether its record keeps the arguments of calls,
// and writes a yes into the configuration of the home if it has none yet. If nothing can be asked, it prints how
// to get it.
func (a *app) keepArguments(ctx context.Context, home string, yes bool) error {
	if _, err := os.Stat(filepath.Join(home, "state")); !errors.Is(err, fs.ErrNotExist) || a.env("JUNCTOR_AUDIT_ARGUMENTS") != "" {
		return nil
	}
	file := filepath.Join(home, "config.yaml")
	cfg, err := a.loadConfig(home, "", nil)
	if err != nil || cfg.Audit.Arguments != config.Default().Audit.Arguments {
		return nil // it is set, or the server that starts next reports the error
	}
	if _, err := os.Lstat(file); yes || a.json || !terminal(a.stdin) || !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(a.stderr, "The record will not show the arguments of calls, such as which file. To keep them, with credentials masked, "+
			"put this into %s and start the server again: %s", plainText(file), keptArguments)
		return nil
	}
	answer, err := a.ask(ctx, "Keep the arguments of calls in the record, encrypted and with credentials masked, "+
		"so that it shows which file? [Y/n] ")
	if answer = strings.TrimSpace(answer); err != nil || answer != "" && !isYes(answer) {
		return err
	}
	err = os.MkdirAll(home, 0o700)
	if err == nil {
		var f *os.File
		if f, err = os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			_, err = f.WriteString(keptArguments)
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "setup", file+" cannot be written", err)
	}
	fmt.Fprintf(a.stderr, "Wrote %s: %s", plainText(file), keptArguments)
	return nil
}

// keptArguments is the configuration with which the record keeps the arguments of calls.
const keptArguments = "audit: {arguments: redacted}\n"

// startServer starts a server in the background and waits until it is ready. Its messages are
// appended to log, logs/server.log in the home.
func (a *app) startServer(ctx context.Context, home string) (child *exec.Cmd, log string, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	logs := filepath.Join(home, "logs")
	if err := os.MkdirAll(logs, 0o700); err != nil {
		return nil, "", capability.Wrap(capability.CodeFailed, "setup", "the home "+home+" cannot be created", err)
	}
	f, err := os.OpenFile(filepath.Join(logs, "server.log"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, "", capability.Wrap(capability.CodeFailed, "setup", "the log of the server cannot be opened", err)
	}
	defer f.Close()
	before, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, "", err
	}
	child = exec.Command(program, "serve", "--home", home)
	child.Env, child.Stderr = a.environ, f
	child.SysProcAttr = ownSession()
	out, err := child.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := child.Start(); err != nil {
		return nil, "", capability.Wrap(capability.CodeFailed, "setup", "the server cannot be started", err)
	}
	ready := make(chan error, 1)
	go func() { // ends with the line, or with the process
		_, err := bufio.NewReader(out).ReadString('\n')
		ready <- err
	}()
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(startTimeout):
		err = context.DeadlineExceeded
	}
	if err != nil {
		_ = child.Process.Kill()
		_ = child.Wait()
		text := "the server did not start; its log is " + f.Name() + faultOf(f, before)
		return nil, "", capability.Wrap(capability.CodeUnavailable, "setup", text, err).
			With("service_unavailable", "start it by hand to see why: "+server.StartCommand(home))
	}
	return child, f.Name(), nil
}

// faultOf returns the end of what a server that failed has written to its log, behind the byte before.
func faultOf(log io.ReaderAt, before int64) string {
	text, _ := io.ReadAll(io.NewSectionReader(log, before, 1<<20))
	if len(text) > maxStartFault {
		text = text[len(text)-maxStartFault:]
		if _, rest, ok := strings.Cut(string(text), "\n"); ok {
			text = []byte(rest)
		}
	}
	if len(strings.TrimSpace(string(text))) == 0 {
		return ""
	}
	return ", which ends with:\n" + strings.TrimSpace(string(text))
}

// stopServer ends a server that startServer started, and waits for its end.
func stopServer(child *exec.Cmd) {
	_ = child.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(serverStopTimeout, func() { _ = child.Process.Kill() })
	defer timer.Stop()
	_ = child.Wait()
}

// localSetup returns a setup for previews of a home that was never used: it has no upstreams, no
// secrets and no tokens.
func (a *app) localSetup(home string) (*setup.Service, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	user, err := os.UserHomeDir()
	if err != nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, "setup", "the folder with the configuration of your clients is not known", err)
	}
	cfg, err := config.Load(home, "", false, a.environ, nil, programs.Configurable())
	if err != nil {
		return nil, err
	}
	walls := sandbox.NewForHome(home, cfg.Sandbox.ReadOnly, cfg.Sandbox.Off)
	registry := upstream.NewRegistry(upstream.Config{
		Dir: filepath.Join(home, "upstreams"), Walls: walls, CA: cfg.Upstreams.Registries.CA,
	})
	return setup.New(setup.Config{
		URL: setup.LocalURL("http://"+cfg.Listen) + "/mcp", URLEnds: strings.HasSuffix(cfg.Listen, ":0"),
		Dir: filepath.Join(home, "clients"), UserHome: user, Env: a.env, Command: server.BridgeCommand(program, home),
		Upstreams: noUpstreams{registry: registry}, Secrets: noSecrets{}, Tokens: noTokens{}, Logger: slog.New(slog.DiscardHandler),
	})
}

// noUpstreams, noSecrets and noTokens are those of a home that was never used. Their embedded
// interfaces are nil, because a preview only reads.
type (
	noUpstreams struct {
		setup.Upstreams
		registry *upstream.Registry
	}
	noSecrets struct{ setup.Secrets }
	noTokens  struct{ tokens }
	tokens    = setup.Tokens // a field of the name of a method is an error
)

func (noUpstreams) Find(setup.Definition) []setup.Definition { return nil }

// Check asks a registry that holds nothing. A server that is not root may use what its user may.
func (u noUpstreams) Check(d setup.Definition) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return u.registry.Confinable(upstreams.Record{Name: d.Name, Command: d.Program(), ReadOnly: d.ReadOnly, ReadWrite: d.ReadWrite})
}

func (noUpstreams) Has(string) bool { return false }

func (noTokens) Verify(string) (capability.Principal, error) {
	return capability.Principal{}, capability.Errorf(capability.CodeDenied, "setup", "the home has no tokens yet")
}

func (noSecrets) Get(name string) (secret.Value, error) {
	return secret.Value{}, capability.Errorf(capability.CodeNotFound, "setup", "the secret %s does not exist", name).
		With(secretstore.ReasonUnknown, "")
}

func (noTokens) Tokens(context.Context) ([]policy.Token, error) { return nil, nil }
