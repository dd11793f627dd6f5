// Package gitcmd runs the git program without executing anything that a repository
// configures. A repository is untrusted data, but git executes hooks, fsmonitor, filters,
// textconv, external diffs, ssh commands and credential helpers from its configuration.
//
// Four measures prevent that. With [Config.Walls], git runs in a sandbox that shows it the repository and nothing
// else of the user, without a network, so that also what a program changes after the checks has no effect outside.
// The environment does not include user or system
// configuration, prompts, pager or editor. Dangerous keys with a fixed name are overridden at
// command scope, which takes precedence over the repository's file (harden.go); keys whose
// name the repository chose, such as filter.<x>.clean, are listed first and overridden one
// by one. The repository's directories must lie inside the given root, whatever .git files
// and core.worktree contain.
//
// Arguments are lists, never shell lines. The caller decides which arguments are permitted:
// this package runs any subcommand.
package gitcmd

import (
	"cmp"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// Config tunes a Git. The zero value uses the git of PATH, without any remote.
type Config struct {
	// Path of the program; "" looks "git" up.
	Path string
	// Protocols that git may use to reach remotes, such as "https" and "ssh"; none if empty.
	// New rejects "ext", which runs commands, and "file", which runs the hooks of the remote
	// repository, to which the overrides do not apply.
	Protocols []string
	// LocalRemotes also allows remotes that are folders of this machine. It requires that they
	// are trusted, because their hooks run on a push.
	LocalRemotes bool
	// StdoutLimit and StderrLimit cap the kept output; 0 means 1 MiB and 256 KiB.
	StdoutLimit, StderrLimit int
	// Walls confines git; if nil, git runs with all that the server's user may do, and only the overrides
	// keep it from what the repository configures.
	Walls Walls
	// Unconfined permits every command where no tier confines. Otherwise only read-only ones run there.
	Unconfined bool
	// Grace between TERM and KILL when ctx ends; 0 means 2 s.
	Grace time.Duration
}

// Walls runs confined programs.
type Walls interface {
	Facts() sandbox.Facts
	Run(ctx context.Context, spec sandbox.Spec, c sandbox.Confinement) (sandbox.Result, error)
}

// Git runs git commands. It is safe for concurrent use.
type Git struct {
	cfg   Config
	path  string
	umask string // of this process, for confined runs
}

// New finds the program. Errors: unavailable if it is not installed.
func New(cfg Config) (*Git, error) {
	for _, p := range cfg.Protocols {
		if !protocolName.MatchString(p) || p == "ext" || p == "file" {
			return nil, capability.Errorf(capability.CodeInvalidInput, "git.configure", "git protocol %q cannot be allowed", p).
				With("invalid_protocol", "use https, http, ssh or git; ext and file execute commands of strangers")
		}
	}
	name := cfg.Path
	name = cmp.Or(name, "git")
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, capability.Wrap(capability.CodeUnavailable, "git.configure", "the git program is not installed", err).
			With("git_missing", "install git, or configure where it is")
	}
	return &Git{cfg: cfg, path: path, umask: umask()}, nil
}

var protocolName = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)

// Command is one git command.
type Command struct {
	// Dir is the absolute working directory, and Root the directory that must contain the
	// whole repository. Both are real paths, with Dir inside Root.
	Dir, Root string
	// Also lists further real directories that may hold parts of the repository, such as the git
	// directory of a worktree. The working tree must be inside Root.
	Also []string
	// Args begin with the subcommand.
	Args []string
	// MergeStderr writes both streams to Stdout.
	MergeStderr bool
	// ReadOnly prevents git from taking optional locks, so that a status does not rewrite the
	// index. A confined git cannot change any file then.
	ReadOnly bool
	// Settings take precedence over the repository's configuration and over the overrides of
	// this package, for example an author or a credential helper. They are passed by
	// environment variables, so that they do not appear in the list of processes.
	Settings []Setting
	// LazyFetch permits git to fetch objects that a partial clone lacks.
	LazyFetch bool
	// NeedRepository fails outside of a repository, not_found with reason not_a_repository,
	// because some subcommands otherwise accept any file as theirs.
	NeedRepository bool

	// room is where a confined git runs; nil means without confinement. Run sets it.
	room *room
}

// Setting is one configuration value at command scope, such as user.name.
type Setting struct{ Key, Value string }

// Run runs the command and returns its result, with any exit code. Errors: denied, reason
// security_violation, for a repository that reaches out of Root or configures too much;
// unavailable, reason sandbox_unavailable, if it cannot be confined; those of [sandbox.Box.Run];
// not_found, reason not_a_repository, with NeedRepository; failed, reason bad_repository, for
// an unreadable configuration; timeout and cancelled if ctx ended, with the output so far;
// unavailable if git does not start.
func (g *Git) Run(ctx context.Context, c Command) (sandbox.Result, error) {
	if rel, err := filepath.Rel(c.Root, c.Dir); err != nil || !filepath.IsLocal(rel) || !filepath.IsAbs(c.Dir) {
		return sandbox.Result{}, outside()
	}
	var err error
	if c.room, err = g.enter(c); err != nil {
		return sandbox.Result{}, err
	}
	overrides, err := g.inspect(ctx, c)
	if err != nil {
		return sandbox.Result{}, err
	}
	return g.run(ctx, c, overrides)
}

// run runs the command with the overrides, without checking the repository.
func (g *Git) run(ctx context.Context, c Command, overrides []Setting) (sandbox.Result, error) {
	spec := sandbox.Spec{
		Path: g.path, Args: append([]string{"--no-pager"}, c.Args...), Dir: c.Dir,
		Env:         g.environment(c, overrides),
		StdoutLimit: g.cfg.StdoutLimit, StderrLimit: g.cfg.StderrLimit,
		MergeStderr: c.MergeStderr, Grace: g.cfg.Grace,
	}
	var result sandbox.Result
	var err error
	if c.room != nil {
		result, err = g.confined(ctx, spec, c)
	} else {
		result, err = sandbox.Run(ctx, spec)
	}
	if err == nil {
		return result, nil
	}
	if ctx.Err() != nil {
		return result, capability.AsError(ctx.Err())
	}
	if e, ok := errors.AsType[*capability.Error](err); ok {
		if _, limit := e.Details["kind"]; limit {
			e.Hint = "run this command yourself, without junctor"
		}
		return result, e
	}
	return result, capability.Wrap(capability.CodeUnavailable, "git.run", "git could not be started", err)
}

// MinVersion is the oldest git with the required overrides (GIT_CONFIG_COUNT and
// GIT_CONFIG_GLOBAL). Directories of other owners require git version "2.38".
const MinVersion = "2.32"

// Version returns the version of the program, such as "2.39.5". The error is unavailable if git is
// older than [MinVersion] (reason git_too_old, with the version), does not run, or is another
// program.
func (g *Git) Version(ctx context.Context) (string, error) {
	result, err := sandbox.Run(ctx, sandbox.Spec{Path: g.path, Args: []string{"version"}, Env: g.environment(Command{}, nil)})
	if err != nil {
		return "", capability.Wrap(capability.CodeUnavailable, "git.version", "git does not answer", err)
	}
	fields := strings.Fields(result.Stdout.Text())
	if len(fields) < 3 || fields[0] != "git" {
		return "", capability.Errorf(capability.CodeUnavailable, "git.version", "the configured program is not git").With("git_missing", "")
	}
	if older(fields[2], MinVersion) {
		return fields[2], capability.Errorf(capability.CodeUnavailable, "git.version", "git %s is too old: %s or newer is needed", fields[2],
			MinVersion).
			With("git_too_old", "upgrade git")
	}
	return fields[2], nil
}

// older reports whether a dotted version is lower than another one.
func older(version, than string) bool {
	have, want := strings.Split(version, "."), strings.Split(than, ".")
	for i, w := range want {
		need, _ := strconv.Atoi(w)
		got := 0
		if i < len(have) {
			got, _ = strconv.Atoi(have[i])
		}
		if got != need {
			return got < need
		}
	}
	return false
}
