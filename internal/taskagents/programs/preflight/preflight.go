// Package preflight detects which programs of task agents can be used on this machine: whether
// they are installed, their versions, and whether a user is logged in. It runs the programs if
// they report this. It does not read credentials, only whether a variable or file exists.
package preflight

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
)

// Status reports whether a program has an account to work with.
type Status string

// The statuses. Unknown is also the status of a program whose login cannot be detected.
const (
	Authenticated   Status = "authenticated"
	Unauthenticated Status = "unauthenticated"
	Unknown         Status = "unknown"
)

// Auth describes a program's account.
type Auth struct {
	Status    Status `json:"status"`
	Method    string `json:"method,omitempty"` // api_key, or the program's own name for it
	Detail    string `json:"detail,omitempty"` // source of the status
	LoginHint string `json:"loginHint,omitempty"`
}

// Result is the state of one program.
type Result struct {
	Adapter        programs.Name `json:"adapter"`
	Binary         string        `json:"binary"`
	Path           string        `json:"path,omitempty"`
	Installed      bool          `json:"installed"`
	Version        string        `json:"version,omitempty"`
	Error          string        `json:"error,omitempty"` // why an installed program could not be examined
	InstallCommand string        `json:"installCommand,omitempty"`
	DocsURL        string        `json:"docsUrl,omitempty"`
	Auth           Auth          `json:"auth"`
}

// Config gives access to the machine. The zero value is this machine.
type Config struct {
	Find func(binary string) (path string, err error) // nil: on PATH
	Env  func(name string) string                     // nil: the process's environment
	Home string                                       // "": the user's
	Wait time.Duration                                // timeout of one answer of a program; 0: 20 s; some need seconds
}

// Check examines all programs, in the order of [programs.All]. It runs as many at the same time
// as there are processors, because some need seconds to print their version.
func Check(ctx context.Context, cfg Config) []Result {
	cfg.defaults()
	list := programs.All()
	out := make([]Result, len(list))
	var all sync.WaitGroup
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, p := range list {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			out[i] = cfg.check(ctx, p.Name)
		})
	}
	all.Wait()
	return out
}

// One examines one program.
func One(ctx context.Context, cfg Config, name programs.Name) Result {
	cfg.defaults()
	return cfg.check(ctx, name)
}

func (cfg *Config) defaults() {
	if cfg.Find == nil {
		cfg.Find = exec.LookPath
	}
	if cfg.Env == nil {
		cfg.Env = os.Getenv
	}
	if cfg.Home == "" {
		cfg.Home, _ = os.UserHomeDir()
	}
	if cfg.Wait <= 0 {
		cfg.Wait = 20 * time.Second
	}
}

// check examines one program: its path, its version and, if it runs, its account.
func (cfg *Config) check(ctx context.Context, name programs.Name) Result {
	f := programs.Of(name)
	if name == programs.Shell {
		if own := cfg.Env("SHELL"); own != "" {
			f.Binary = own
		}
	}
	r := Result{Adapter: name, Binary: f.Binary, InstallCommand: f.Install, DocsURL: f.Docs, Auth: Auth{Status: Unknown}}
	path, err := cfg.Find(f.Binary)
	if err != nil {
		return r
	}
	r.Path, r.Installed, r.InstallCommand = path, true, ""
	if name == programs.Shell {
		r.Auth = Auth{Status: Authenticated, Method: "none"}
		return r
	}
	home, err := cfg.room(f.Account.Needs)
	if err != nil {
		r.Error = "it is not started, because a folder for it cannot be made: " + err.Error()
		return r
	}
	defer os.RemoveAll(home)
	answer, err := cfg.ask(ctx, home, path, "--version")
	if err != nil { // further questions would fail too
		r.Error = capability.AsError(err).Message
		return r
	}
	if r.Version = version.FindString(answer.text); r.Version == "" {
		r.Error = "it does not say which version it is"
	}
	r.Auth = cfg.auth(ctx, home, path, &f)
	if r.Auth.Status != Authenticated {
		r.Auth.LoginHint = f.Login
	}
	return r
}

var version = regexp.MustCompile(`\d+(\.\d+)+[0-9A-Za-z.+-]*`)

// answer is the output of a program.
type answer struct {
	code int
	text string // stdout and stderr
}

// room makes a home for one program, with copies of files of the user's home. In the user's, programs
// rewrite their own files whenever they start.
func (cfg *Config) room(needs []string) (home string, err error) {
	if home, err = os.MkdirTemp("", "junctor-ask-"); err != nil {
		return "", err
	}
	for _, name := range needs {
		data, err := hostfs.ReadRegular(filepath.Join(cfg.Home, filepath.FromSlash(name)), maxCopy)
		if err != nil { // the file is missing, too large or not a regular file
			continue
		}
		to := filepath.Join(home, filepath.FromSlash(name))
		if err = os.MkdirAll(filepath.Dir(to), 0o700); err == nil {
			err = os.WriteFile(to, data, 0o600)
		}
		if err != nil {
			return "", errors.Join(err, os.RemoveAll(home))
		}
	}
	return home, nil
}

// ask runs a program with a minimal environment: PATH, a home of its own, and settings that
// disable updates and colours. It fails with timeout after Wait.
func (cfg *Config) ask(ctx context.Context, home, path string, args ...string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.Wait)
	defer cancel()
	env := append(sandbox.Environment(), "HOME="+home, "TMPDIR="+home, "TERM=dumb", "NO_COLOR=1", "CI=1", "DISABLE_AUTOUPDATER=1",
		"OPENCODE_DISABLE_AUTOUPDATE=1", "PI_OFFLINE=1")
	got, err := sandbox.Run(ctx, sandbox.Spec{Path: path, Args: args, Dir: home, Env: env, StdoutLimit: maxAnswer, MergeStderr: true})
	switch {
	case ctx.Err() != nil:
		return answer{}, capability.Errorf(capability.CodeTimeout, "preflight", "%s %s gave no answer within %s", path, strings.Join(args, " "),
			cfg.Wait)
	case err != nil:
		return answer{}, capability.Wrap(capability.CodeFailed, "preflight", path+" cannot be run", err)
	}
	return answer{got.ExitCode, got.Stdout.Text()}, nil
}
