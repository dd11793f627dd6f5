// Package tool runs the command-line tool of an extension's action: it finds the
// program, builds its environment, runs it in the sandbox, and cleans and redacts its
// output. The caller supplies the arguments; package sandbox implements the confinement.
package tool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// Walls runs programs in a sandbox; sandbox.Box implements it.
type Walls interface {
	// Place returns how a program with that confinement would run.
	Place(c sandbox.Confinement) (sandbox.Placement, error)
	// Run runs a program and returns when all its processes have ended.
	Run(ctx context.Context, spec sandbox.Spec, c sandbox.Confinement) (sandbox.Result, error)
}

// Config holds the settings that all runs share.
type Config struct {
	Walls Walls
	// Dirs are the directories of shared tools, searched in order after the package's
	// own tools: <home>/tools, <home>/bin and the system's.
	Dirs []string
	// Interpreters are the programs that need the permission exec.interpreter, because
	// they can run any other. If nil, the built-in list is used.
	Interpreters []string
}

// Executor runs tools. It is safe for concurrent use.
type Executor struct{ cfg Config }

// New returns an executor.
func New(cfg Config) *Executor {
	if cfg.Interpreters == nil {
		cfg.Interpreters = interpreters()
	}
	return &Executor{cfg}
}

// Request is one run.
type Request struct {
	Tool  string   // "curl", as [command.ToolOf] returns it
	Args  []string // without the tool's name
	Stdin []byte
	// Own holds the tools that the package contains, by name.
	Own map[string]Own
	// Permissions are those in force, canonical.
	Permissions []string
	Environment Environment
	Confinement sandbox.Confinement
	Timeout     time.Duration // 0: [DefaultTimeout]; at most [MaxTimeout]
	MaxStdout   int           // bytes; 0: sandbox.DefaultStdoutLimit
}

// Own is a tool of the package: its path and the required digest.
type Own struct {
	Path   string // absolute
	SHA256 string // lower-case hex of its content
}

// Result is the result of a program that was started.
type Result struct {
	Success   bool              `json:"success"`
	Output    string            `json:"output"` // stdout, or stderr if stdout is empty
	Stdout    string            `json:"stdout"`
	Stderr    string            `json:"stderr,omitempty"`
	ExitCode  int               `json:"exit_code"` // timeout 124, cancel 130, signal n 128+n
	Signal    string            `json:"signal,omitempty"`
	Duration  time.Duration     `json:"-"`
	Truncated bool              `json:"truncated,omitempty"`
	Binary    bool              `json:"binary,omitempty"` // stdout is binary and replaced with a note
	Placement sandbox.Placement `json:"sandbox"`
	Usage     sandbox.Usage     `json:"-"`
}

// Execute finds the tool and runs it. If it returns an error, either the tool was not
// started and Result is zero, or it failed and Result holds its output. The reasons are
// tool_not_found, permission_denied, security_violation, args_too_long,
// sandbox_unavailable, sandbox_setup_failed, timeout, cancelled and execution_failed.
func (x *Executor) Execute(ctx context.Context, req Request) (Result, error) {
	if err := checkArgs(req.Args); err != nil {
		return Result{}, err
	}
	if err := x.permitted(req); err != nil {
		return Result{}, err
	}
	program, err := x.find(req)
	if err != nil {
		return Result{}, err
	}
	defer program.Close()
	placement, err := x.cfg.Walls.Place(req.Confinement)
	if err != nil {
		return Result{}, unavailable(err)
	}
	env, err := req.Environment.build(placement, req.Confinement.Package, x.dirs(req))
	if err != nil {
		return Result{}, err
	}
	timeout := req.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, min(timeout, MaxTimeout))
	defer cancel()
	ran, err := x.cfg.Walls.Run(ctx, sandbox.Spec{
		Path: program.Name(), Program: program, Args: req.Args, Dir: req.Confinement.Work, Env: env, Stdin: req.Stdin, StdoutLimit: req.MaxStdout,
	}, req.Confinement)
	result := outcome(ran, req.Environment.secrets())
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		result.ExitCode = 124
		return result, fault.TimedOut(min(timeout, MaxTimeout))
	case errors.Is(err, context.Canceled):
		result.ExitCode = 130
		return result, fault.Cancelled()
	case ended(err): // it ran; its output until then is returned
		return result, unavailable(err)
	case err != nil:
		return Result{}, unavailable(err)
	case !result.Success:
		return result, fault.ExecutionFailed(result.ExitCode, lastLine(result.Stderr))
	}
	return result, nil
}

// ended reports whether err means that the program was started and exceeded a limit.
func ended(err error) bool {
	e, ok := errors.AsType[*capability.Error](err)
	return ok && (e.Reason == capability.ReasonResourceLimit || e.Reason == capability.ReasonOutputLimit)
}

// unavailable returns an error of the sandbox that has a code unchanged, and wraps any
// other as sandbox_setup_failed.
func unavailable(err error) error {
	if e, ok := errors.AsType[*capability.Error](err); ok {
		return e
	}
	return fault.SandboxSetupFailed("", err)
}

// checkArgs refuses a NUL byte (security_violation) and words that exceed the limits of
// a command line (args_too_long).
func checkArgs(args []string) error {
	total := 0
	for _, a := range args {
		if strings.IndexByte(a, 0) >= 0 {
			return fault.SecurityViolation("a word of the command holds a NUL byte")
		}
		if len(a) > command.MaxArgvWord {
			return tooLong("one word has %d bytes; the limit is %d", len(a), command.MaxArgvWord)
		}
		if total += len(a) + 1; total > command.MaxArgv {
			return tooLong("the words have more than %d bytes together", command.MaxArgv)
		}
	}
	return nil
}

func tooLong(format string, args ...any) error {
	return capability.Errorf(capability.CodeTooLarge, "runner", format, args...).With("args_too_long",
		"pass large input through a file or standard input")
}

// outcome converts the sandbox's result, with output cleaned and redacted.
func outcome(ran sandbox.Result, secrets []string) Result {
	r := Result{
		ExitCode: ran.ExitCode, Signal: ran.Signal, Placement: ran.Placement, Usage: ran.Usage, Duration: ran.Ended.Sub(ran.Started),
		Truncated: ran.Stdout.Truncated() || ran.Stderr.Truncated(),
	}
	if ran.Signal != "" && r.ExitCode < 0 {
		r.ExitCode = 128 + signalNumber(ran.Signal)
	}
	r.Success = r.ExitCode == 0 && ran.Signal == ""
	out := ran.Stdout.Bytes()
	if isBinary(out) {
		r.Binary = true
		r.Stdout = fmt.Sprintf("(%d bytes that are not text)", len(out))
	} else {
		r.Stdout = Clean(string(out), secrets)
	}
	r.Stderr = Clean(string(ran.Stderr.Bytes()), secrets)
	if r.Output = r.Stdout; r.Output == "" {
		r.Output = r.Stderr
	}
	return r
}

func lastLine(output string) string {
	line := strings.TrimSpace(output)
	if i := strings.LastIndexByte(line, '\n'); i >= 0 {
		line = line[i+1:]
	}
	return text.ShortenRunes(line, errorLine)
}

// dirs returns the directories of the program's PATH: those of the package's tools, then
// Config.Dirs.
func (x *Executor) dirs(req Request) []string {
	var own []string
	for _, o := range req.Own {
		dir := o.Path[:max(0, strings.LastIndexByte(o.Path, os.PathSeparator))]
		if dir != "" {
			own = append(own, dir)
		}
	}
	return append(own, x.cfg.Dirs...)
}
