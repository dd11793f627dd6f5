package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/platform/roots"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

const opCommandRun = "pty.command.run"

// CommandConfig configures [CommandFunctions].
type CommandConfig struct {
	// Enabled turns the function on.
	Enabled bool
	// Roots contain the working directories; the caller closes them. If there is
	// none, the function is unavailable.
	Roots *roots.Set
	// Shell runs command lines without args; "" means /bin/sh.
	Shell string
	// Grace is the time between TERM and KILL after the timeout; 0 means 2 s.
	Grace time.Duration
}

// CommandFunctions returns pty.command.run, which runs one command to its end. It is
// unavailable unless the operator enables it, because a command is bounded by nothing
// but the account the server runs as: the working directory lies in a root, but what
// the command accesses may not. Despite the name on the wire, no pseudo-terminal is
// involved.
func CommandFunctions(cfg CommandConfig) []host.Function {
	cfg.Shell = cmp.Or(cfg.Shell, "/bin/sh")
	t := &terminal{cfg}
	unavailable := ""
	switch {
	case !cfg.Enabled:
		unavailable = "running commands is turned off"
	case cfg.Roots.Empty():
		unavailable = roots.NoneReason
	}
	return []host.Function{{
		ID: opCommandRun, Action: opCommandRun, Effect: capability.EffectWrite, Permissions: []string{"exec"},
		// The command's own timeout expires first, so that its output is returned.
		Timeout: maxCommandTimeout + time.Minute, Unavailable: unavailable, Handle: t.run,
	}}
}

type terminal struct{ cfg CommandConfig }

type commandParams struct {
	Command   string            `json:"command"`
	Args      []string          `json:"args"`
	Cwd       string            `json:"cwd"`
	Env       map[string]string `json:"env"`
	TimeoutMs *float64          `json:"timeoutMs"`
}

type commandResult struct {
	Output   string `json:"output"`
	ExitCode *int   `json:"exitCode"` // null if the command timed out or a signal ended it
	TimedOut bool   `json:"timedOut"`
	Signal   string `json:"signal,omitempty"`
}

// run implements pty.command.run. If the command exits with another code than 0 or exceeds
// its own timeout, the result reports it; that is not an error. If ctx ends first, the output
// is dropped and ctx's error returned.
func (t *terminal) run(ctx context.Context, c capability.Call) (capability.Result, error) {
	var p commandParams
	if err := jsonx.Unmarshal(c.Input, &p); err != nil {
		return capability.Result{}, invalidCommand("the input does not fit: %v", err)
	}
	timeout, err := p.check()
	if err != nil {
		return capability.Result{}, err
	}
	env, err := commandEnvironment(p.Env)
	if err != nil {
		return capability.Result{}, err
	}
	place, err := t.cfg.Roots.Resolve("", p.Cwd)
	if err != nil {
		return capability.Result{}, err
	}
	dir, _, err := place.Directory()
	if err != nil {
		return capability.Result{}, err
	}
	path, args, err := t.program(p, dir)
	if err != nil {
		return capability.Result{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := sandbox.Run(bounded, sandbox.Spec{Path: path, Args: args, Dir: dir, Env: env, Grace: t.cfg.Grace})
	out := commandResult{Output: r.Stdout.Text(), Signal: r.Signal}
	if said := r.Stderr.Text(); said != "" {
		out.Output += "\n" + said
	}
	switch {
	case err == nil && r.Signal == "":
		out.ExitCode = &r.ExitCode
	case err == nil:
	case ctx.Err() != nil: // the call ended, not the command's timeout: the output is not needed
		return capability.Result{}, capability.AsError(ctx.Err())
	case bounded.Err() != nil:
		out.TimedOut, out.Signal = true, ""
	default:
		return capability.Result{}, capability.Wrap(capability.CodeFailed, opCommandRun, "the command could not be started",
			err).With("not_started", "")
	}
	data, err := jsonx.Marshal(out)
	if err != nil {
		return capability.Result{}, capability.Wrap(capability.CodeFailed, opCommandRun, "the result cannot be written as JSON", err)
	}
	return capability.Result{Value: data}, nil
}

// program returns the program to start and its arguments: without args the shell with the
// command line, else the command itself, without a shell. A relative path with a slash is
// relative to dir. Errors: not_found, reason program_not_found; failed if not executable.
func (t *terminal) program(p commandParams, dir string) (path string, args []string, err error) {
	if len(p.Args) == 0 { // clients of the protocol send an empty list for none
		return t.cfg.Shell, []string{"-c", p.Command}, nil
	}
	path = p.Command
	if strings.ContainsRune(path, '/') && !filepath.IsAbs(path) {
		path = filepath.Join(dir, path) // LookPath would use the server's own directory
	}
	path, err = exec.LookPath(path)
	switch {
	case err == nil:
		return path, p.Args, nil
	case errors.Is(err, fs.ErrPermission):
		return "", nil, capability.Wrap(capability.CodeFailed, opCommandRun, "the program is not executable", err).With("not_started", "")
	}
	return "", nil, capability.Wrap(capability.CodeNotFound, opCommandRun, "the program was not found", err).
		With("program_not_found", "leave args out to have a shell read the command line")
}

// check validates the command, its arguments and timeoutMs, and returns the timeout. Error:
// invalid_input.
func (p *commandParams) check() (time.Duration, error) {
	size := len(p.Command)
	for _, a := range p.Args {
		size += len(a)
	}
	switch {
	case strings.TrimSpace(p.Command) == "":
		return 0, invalidCommand("a command is required")
	case size > maxCommandBytes:
		return 0, invalidCommand("command and args are larger than %d bytes", maxCommandBytes)
	case len(p.Args) > maxCommandArgs:
		return 0, invalidCommand("more than %d args", maxCommandArgs)
	case strings.ContainsRune(p.Command, 0) || slices.ContainsFunc(p.Args, func(a string) bool { return strings.ContainsRune(a, 0) }):
		return 0, invalidCommand("command or args hold a NUL byte")
	}
	if p.TimeoutMs == nil {
		return defaultCommandTimeout, nil
	}
	if !(*p.TimeoutMs >= 1) || *p.TimeoutMs > float64(maxCommandTimeout.Milliseconds()) {
		return 0, invalidCommand("timeoutMs must be between 1 and %d", maxCommandTimeout.Milliseconds())
	}
	return time.Duration(*p.TimeoutMs * float64(time.Millisecond)), nil
}

var envNamePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// commandEnvironment returns the clean environment with the caller's variables, which may
// replace PATH and HOME: a caller that may run any command gains nothing by that. It refuses
// variables that make the loader, shell or an interpreter run further code, so that the
// command in the audit log is the command that ran.
func commandEnvironment(extra map[string]string) ([]string, error) {
	if len(extra) > maxCommandEnv {
		return nil, invalidCommand("more than %d environment variables", maxCommandEnv)
	}
	env := append(sandbox.Environment(), "TERM=dumb")
	size := 0
	names := make([]string, 0, len(extra))
	for name, value := range extra {
		size += len(name) + len(value)
		switch {
		case !envNamePattern.MatchString(name):
			return nil, invalidCommand("the name of an environment variable must be letters, digits and underscores, at most 128")
		case strings.ContainsRune(value, 0):
			return nil, invalidCommand("the environment variable %s holds a NUL byte", name)
		case isDeniedVariable(name):
			return nil, capability.Errorf(capability.CodeDenied, opCommandRun, "the environment variable %s cannot be set", name).
				With("security_violation", "set it inside the command, where it can be seen")
		}
		names = append(names, name)
	}
	if size > maxCommandEnvBytes {
		return nil, invalidCommand("the environment is larger than %d bytes", maxCommandEnvBytes)
	}
	slices.Sort(names)
	for _, name := range names { // later entries take precedence
		env = append(env, name+"="+extra[name])
	}
	return env, nil
}

// isDeniedVariable reports whether commandEnvironment refuses the variable.
func isDeniedVariable(name string) bool {
	return text.IsSteering(name) || strings.HasPrefix(strings.ToUpper(name), "JUNCTOR_")
}

func invalidCommand(format string, args ...any) error {
	return capability.Wrap(capability.CodeInvalidInput, opCommandRun, fmt.Sprintf(format, args...), nil)
}
