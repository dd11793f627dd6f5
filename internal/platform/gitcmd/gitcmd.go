// Package gitcmd is the one hardened way to run the git program. A repository is
// data written by strangers, yet git executes much of what its configuration
// says: hooks, fsmonitor, filters, textconv, external diffs, ssh commands,
// credential helpers. None of that runs here.
//
// Three things see to it. The environment is built from nothing: no user or
// system configuration, no prompts, no pager, no editor. Keys with a fixed name
// are overridden at command scope, which beats the repository's own file
// (harden.go). Keys with a name the repository chose, such as filter.<x>.clean,
// are listed first and overridden one by one. And the repository's directories
// must lie inside the given root, whatever .git files and core.worktree say.
//
// Arguments are lists, never shell lines. What arguments may say is decided by
// the caller: this package runs any subcommand it is given.
package gitcmd

import (
	"context"
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
	// Protocols that git may use to reach remotes, such as "https" and "ssh";
	// none when empty. "ext" runs commands, and "file" runs the hooks of the
	// repository at the other end, where our overrides do not reach: New
	// refuses both.
	Protocols []string
	// LocalRemotes also allows remotes that are folders of this machine. It requires that they
	// are trusted, because their hooks run on a push.
	LocalRemotes bool
	// StdoutLimit and StderrLimit cap the kept output; 0 means 1 MiB and 256 KiB.
	StdoutLimit, StderrLimit int
	// Grace between TERM and KILL when ctx ends; 0 means 2 s.
	Grace time.Duration
}

// Git runs git commands. It is safe for concurrent use.
type Git struct {
	cfg  Config
	path string
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
	if name == "" {
		name = "git"
	}
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, capability.Wrap(capability.CodeUnavailable, "git.configure", "the git program is not installed", err).
			With("git_missing", "install git, or configure where it is")
	}
	return &Git{cfg: cfg, path: path}, nil
}

var protocolName = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)

// Command is one git command.
type Command struct {
	// Dir is the absolute working directory and Root the directory the
	// repository may not reach out of; both real paths, Dir inside Root.
	Dir, Root string
	// Args begin with the subcommand.
	Args []string
	// MergeStderr puts both streams into Stdout.
	MergeStderr bool
	// ReadOnly keeps git from taking optional locks, so that a status does not
	// rewrite the index.
	ReadOnly bool
	// Settings hold above everything the repository says, and above our own
	// overrides: an author, a credential helper. They reach git by its
	// environment, so they are not in the list of processes.
	Settings []Setting
	// LazyFetch lets git fetch objects that a partial clone left out.
	LazyFetch bool
	// NeedRepository fails outside of a repository, not_found with reason not_a_repository,
	// because some subcommands otherwise accept any file as theirs.
	NeedRepository bool
}

// Setting is one configuration value at command scope, such as user.name.
type Setting struct{ Key, Value string }

// Run runs the command and returns what came of it, whatever its exit code.
// Errors: denied with reason security_violation for a repository that reaches
// out of Root; timeout and cancelled when ctx ended, with the output so far.
func (g *Git) Run(ctx context.Context, c Command) (sandbox.Result, error) {
	if rel, err := filepath.Rel(c.Root, c.Dir); err != nil || !filepath.IsLocal(rel) || !filepath.IsAbs(c.Dir) {
		return sandbox.Result{}, outside()
	}
	overrides, err := g.inspect(ctx, c)
	if err != nil {
		return sandbox.Result{}, err
	}
	return g.run(ctx, c, overrides)
}

func (g *Git) run(ctx context.Context, c Command, overrides []Setting) (sandbox.Result, error) {
	result, err := sandbox.Run(ctx, sandbox.Spec{
		Path: g.path, Args: append([]string{"--no-pager"}, c.Args...), Dir: c.Dir,
		Env:         g.environment(c, overrides),
		StdoutLimit: g.cfg.StdoutLimit, StderrLimit: g.cfg.StderrLimit,
		MergeStderr: c.MergeStderr, Grace: g.cfg.Grace,
	})
	if err == nil {
		return result, nil
	}
	if ctx.Err() != nil {
		return result, capability.AsError(ctx.Err())
	}
	return result, capability.Wrap(capability.CodeUnavailable, "git.run", "git could not be started", err)
}

// MinVersion is the oldest git whose overrides we rely on (GIT_CONFIG_COUNT and
// GIT_CONFIG_GLOBAL). Directories of other owners need git version "2.38".
const MinVersion = "2.32"

// Version returns the version of the program, such as "2.39.5", and an
// unavailable error when it is older than [MinVersion] or does not answer.
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
