// Package preflight finds out which task agents' programs can be used on this machine:
// whether they are installed, in which version, and whether a user is logged in. It
// asks the programs themselves where they can be asked, and looks at no credential: a
// variable or a file is there or it is not.
package preflight

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
)

// Status reports whether a program has an account to work with.
type Status string

// The statuses. Unknown is also what a program without any question about it gets.
const (
	Authenticated   Status = "authenticated"
	Unauthenticated Status = "unauthenticated"
	Unknown         Status = "unknown"
)

// Auth is what is known of a program's account.
type Auth struct {
	Status    Status `json:"status"`
	Method    string `json:"method,omitempty"` // api_key, or what the program calls it
	Detail    string `json:"detail,omitempty"` // where that is known from
	LoginHint string `json:"loginHint,omitempty"`
}

// Result is one program.
type Result struct {
	Adapter        programs.Name `json:"adapter"`
	Binary         string        `json:"binary"`
	Path           string        `json:"path,omitempty"`
	Installed      bool          `json:"installed"`
	Version        string        `json:"version,omitempty"`
	Error          string        `json:"error,omitempty"` // why nothing more is known of an installed one
	InstallCommand string        `json:"installCommand,omitempty"`
	DocsURL        string        `json:"docsUrl,omitempty"`
	Auth           Auth          `json:"auth"`
}

// Config is the machine. The zero value is this one.
type Config struct {
	Find func(binary string) (path string, err error) // nil: on PATH
	Env  func(name string) string                     // nil: our environment
	Home string                                       // "": the user's
	Wait time.Duration                                // for one answer of a program; 0: 5 s
}

// askMost is what a program may answer.
const askMost = 64 << 10

// Check asks about every program, as many at once as there are processors, for some of
// them take seconds of one to say their version; two questions at most. The order is that
// of [programs.Names].
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

// One asks about one program.
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
		cfg.Wait = 5 * time.Second
	}
}

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
	answer, err := cfg.ask(ctx, path, "--version")
	if err != nil { // nor will it answer anything else
		r.Error = capability.AsError(err).Message
		return r
	}
	if r.Version = version.FindString(answer.text); r.Version == "" {
		r.Error = "it does not say which version it is"
	}
	r.Auth = cfg.auth(ctx, path, &f)
	if r.Auth.Status != Authenticated {
		r.Auth.LoginHint = f.Login
	}
	return r
}

var version = regexp.MustCompile(`\d+(\.\d+)+[0-9A-Za-z.+-]*`)

// answer is what a program said.
type answer struct {
	code int
	text string // of both streams
}

// ask runs a program with what it needs to find itself and its user's files, and
// nothing of ours besides.
func (cfg *Config) ask(ctx context.Context, path string, args ...string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.Wait)
	defer cancel()
	dir := cfg.Home
	if info, err := os.Stat(dir); err != nil || !info.IsDir() { // a service may have none
		dir = os.TempDir()
	}
	env := append(sandbox.Environment(), "HOME="+cfg.Home, "TERM=dumb", "NO_COLOR=1", "CI=1", "DISABLE_AUTOUPDATER=1",
		"OPENCODE_DISABLE_AUTOUPDATE=1", "PI_OFFLINE=1")
	got, err := sandbox.Run(ctx, sandbox.Spec{Path: path, Args: args, Dir: dir, Env: env, StdoutLimit: askMost, MergeStderr: true})
	switch {
	case ctx.Err() != nil:
		return answer{}, capability.Errorf(capability.CodeTimeout, "preflight", "%s %s gave no answer within %s", path, strings.Join(args, " "),
			cfg.Wait)
	case err != nil:
		return answer{}, capability.Wrap(capability.CodeFailed, "preflight", path+" cannot be run", err)
	}
	return answer{got.ExitCode, got.Stdout.Text()}, nil
}
