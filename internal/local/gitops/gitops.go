// Package gitops implements git.status, git.diff and git.command.run on working trees below
// configured roots. Package gitcmd keeps a hostile repository from executing anything, and confines git; this
// package checks the caller's arguments (args.go) and formats the results for the
// capability-router protocol.
package gitops

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
	"github.com/junctor-run/junctor/internal/platform/roots"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

const (
	opStatus = "git.status"
	opDiff   = "git.diff"
	opRun    = "git.command.run"
)

// Config configures Functions.
type Config struct {
	// Roots are the accessible directories; the caller closes the set. If it is nil or
	// empty, the functions are unavailable.
	Roots *roots.Set
	// Git runs git; if it is nil, the functions are unavailable.
	Git *gitcmd.Git
}

// Functions returns the functions of the family, to be registered on a host.
func Functions(cfg Config) []host.Function {
	g := &gitops{cfg}
	unavailable := ""
	switch {
	case cfg.Roots.Empty():
		unavailable = roots.NoneReason
	case cfg.Git == nil:
		unavailable = "the git program is not installed"
	}
	return []host.Function{
		{
			ID: opStatus, Action: opStatus, Effect: capability.EffectRead, Permissions: []string{"filesystem.read"},
			Timeout: time.Minute, Unavailable: unavailable, Handle: g.status,
		},
		{
			ID: opDiff, Action: opDiff, Effect: capability.EffectRead, Permissions: []string{"filesystem.read"},
			Timeout: time.Minute, Unavailable: unavailable, Handle: g.diff,
		},
		{
			ID: opRun, Action: opRun, Effect: capability.EffectWrite, Permissions: []string{"filesystem.write"},
			Timeout: 5 * time.Minute, Unavailable: unavailable, Handle: g.run,
		},
	}
}

type gitops struct{ cfg Config }

// params holds the parameters of all three functions. Cwd and Root mean the same: the
// protocol has cwd, the original's programming interface root. Cwd takes precedence.
type params struct {
	Cwd    string   `json:"cwd"`
	Root   string   `json:"root"`
	Path   string   `json:"path"`
	Staged bool     `json:"staged"`
	Args   []string `json:"args"`
}

// tree is the working directory of one call and the root that contains it.
type tree struct {
	place     roots.Place
	dir, root string
}

// open parses the input of a call and resolves its working directory.
func (g *gitops) open(op string, input json.RawMessage) (params, tree, error) {
	var p params
	if err := jsonx.Unmarshal(input, &p); err != nil {
		return p, tree{}, capability.Errorf(capability.CodeInvalidInput, op, "the input does not fit: %v", err)
	}
	at := p.Cwd
	if strings.TrimSpace(at) == "" {
		at = p.Root
	}
	place, err := g.cfg.Roots.Resolve("", at)
	if err != nil {
		return p, tree{}, err
	}
	dir, root, err := place.Directory()
	if err == nil && namesGitDirectory(strings.TrimPrefix(dir, root)) {
		err = gitDirectory(op, at)
	}
	return p, tree{place, dir, root}, err
}

type repoInfo struct {
	RootID string `json:"rootId"`
	Path   string `json:"path"`
}

type statusResult struct {
	Repo      repoInfo   `json:"repo"`
	Branch    string     `json:"branch,omitempty"`
	Ahead     *int       `json:"ahead,omitempty"`
	Behind    *int       `json:"behind,omitempty"`
	Files     []fileItem `json:"files"`
	Raw       string     `json:"raw"`
	Truncated bool       `json:"truncated,omitempty"`
}

// status implements git.status. It does not report uncommitted changes inside submodules.
func (g *gitops) status(ctx context.Context, c capability.Call) (capability.Result, error) {
	_, t, err := g.open(opStatus, c.Input)
	if err != nil {
		return capability.Result{}, err
	}
	out, err := g.read(ctx, opStatus, t, "-c", "core.quotePath=false", "status", "--porcelain=v1", "--branch", "--ignore-submodules=dirty")
	if err != nil {
		return capability.Result{}, err
	}
	s := parseStatus(out)
	s.Repo = repoInfo{t.place.ID, t.place.Rel}
	return encode(s)
}

// diff implements git.diff: the changes in the working tree or, if staged, in the index,
// optionally of one path.
func (g *gitops) diff(ctx context.Context, c capability.Call) (capability.Result, error) {
	p, t, err := g.open(opDiff, c.Input)
	if err != nil {
		return capability.Result{}, err
	}
	args := []string{"diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty"}
	if p.Staged {
		args = append(args, "--staged")
	}
	args = append(args, "--")
	if p.Path != "" {
		if err := checkPath(opDiff, p.Path, t); err != nil {
			return capability.Result{}, err
		}
		args = append(args, p.Path)
	}
	out, err := g.read(ctx, opDiff, t, args...)
	if err != nil {
		return capability.Result{}, err
	}
	return encode(map[string]string{"raw": out.Text()})
}

// read runs a command that only reads and returns its output. Every exit code but 0 is an
// error.
func (g *gitops) read(ctx context.Context, op string, t tree, args ...string) (sandbox.Output, error) {
	result, err := g.cfg.Git.Run(ctx, gitcmd.Command{Dir: t.dir, Root: t.root, Args: args, ReadOnly: true, NeedRepository: true})
	if err != nil {
		return sandbox.Output{}, err
	}
	if result.ExitCode == 0 {
		return result.Stdout, nil
	}
	return sandbox.Output{}, capability.Errorf(capability.CodeFailed, op, "git failed: %s",
		firstLine(t.hide(result.Stderr.Text()))).With("git_failed", "")
}

// operation is GitOperation of the protocol. As in the original, stdout holds both streams
// in the order of their output and stderr is always empty.
type operation struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Cwd         string   `json:"cwd"`
	Command     []string `json:"command"`
	Status      string   `json:"status"`
	Stdout      string   `json:"stdout"`
	Stderr      string   `json:"stderr"`
	ExitCode    *int     `json:"exitCode"`
	Signal      *string  `json:"signal"`
	StartedAt   string   `json:"startedAt"`
	CompletedAt string   `json:"completedAt"`
	Error       string   `json:"error,omitempty"`
}

// run implements git.command.run. If git exits with a code other than 0, the result has
// status "failed"; that is not an error.
func (g *gitops) run(ctx context.Context, c capability.Call) (capability.Result, error) {
	p, t, err := g.open(opRun, c.Input)
	if err != nil {
		return capability.Result{}, err
	}
	args, err := checkArgs(p.Args, t)
	if err != nil {
		return capability.Result{}, err
	}
	reads := readsOnly(p.Args)
	if t.place.ReadOnly && !reads {
		return capability.Result{}, capability.Errorf(capability.CodeDenied, opRun, "the root %s is read-only", t.place.ID).
			With("read_only", "use a subcommand that only reads, such as status, diff, log or show")
	}
	result, err := g.cfg.Git.Run(ctx, gitcmd.Command{
		Dir: t.dir, Root: t.root, Args: args, MergeStderr: true, ReadOnly: reads,
		// Outside a repository, diff, grep and apply access any file of the account.
		NeedRepository: args[0] != "init" && args[0] != "version",
	})
	if err != nil {
		return capability.Result{}, err
	}
	op := operation{
		ID: ids.Hex("git_", 12), Name: "git " + args[0], Cwd: t.place.Rel,
		Command: append([]string{"git"}, p.Args...), Status: "completed", Stdout: result.Stdout.Text(),
		StartedAt: stamp(result.Started), CompletedAt: stamp(result.Ended),
	}
	if result.Signal != "" {
		op.Signal = &result.Signal
	} else {
		op.ExitCode = &result.ExitCode
	}
	if result.ExitCode != 0 {
		op.Status = "failed"
		op.Error = firstLine(t.hide(op.Stdout))
	}
	return encode(map[string]operation{"operation": op})
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// hide replaces paths of this machine in a message.
func (t tree) hide(s string) string {
	if t.root == "/" {
		return s
	}
	return strings.ReplaceAll(s, t.root, "<root>")
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return text.ShortenBytes(line, 300)
}

func encode(value any) (capability.Result, error) {
	data, err := jsonx.Marshal(value)
	if err != nil {
		return capability.Result{}, capability.Wrap(capability.CodeFailed, "git", "the result cannot be written as JSON", err)
	}
	return capability.Result{Value: data}, nil
}
