package programs

import (
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/overlay"
)

// Spawn describes a session to plan.
type Spawn struct {
	Framework Name
	Binary    string // the program; "": found on PATH, a shell in SHELL
	Version   string // of the program; "" if it is unknown
	Session   string // our session's id
	UUID      string // a new one, for programs whose conversation id can be given
	Server    string // URL of junctor's server, such as http://127.0.0.1:2138
	Token     string // token of the session; passed by variable only
	Password  string // a new one, for a program that serves its protocol over HTTP; passed by variable only
	Self      string // path of junctor's binary, the command of hooks

	Workdir  string // without symbolic links
	StateDir string // existing folder of the session; not below the temporary folder
	// KeepDir is an existing folder that outlives the session, with the files from which a
	// conversation is resumed. If it is "", Codex and Pi cannot be resumed.
	KeepDir string
	// Home is the home directory, usually the user's. One of the session's own must outlive it
	// to resume Claude Code or Gemini CLI, because it contains their conversations.
	Home    string
	OwnHome bool // Home belongs to the session
	UID     int
	Repo    bool   // the task has a repository
	Clone   string // root of the cloned repository that Workdir is in, without symbolic links; "": none
	// Structured plans for structured mode, whose protocol asks for permissions, instead of a hook.
	Structured bool

	Task   string
	Memory string // text of the caller for the memory file
	Skills string // manifest of its skills; "" if it has none
	Preset Preset
	Resume string // the program's id of the conversation to resume

	Model    string // "": the program's own choice
	Provider string // of Aider and Pi: anthropic, openai or google; they get its key only
	BaseURL  string // of the model's API; "": the program's variable in Parent, otherwise the vendor's

	// Credentials are variables for logins, of which a program gets those that it supports.
	// Custom are variables of the caller. Parent is the server's environment.
	Credentials, Custom, Parent map[string]string
}

// Plan describes how to start a session. Env may contain credentials and must not be logged.
type Plan struct {
	Argv    []string
	Env     []string // all of it, sorted
	Changes []overlay.Change
	// FirstInput is the task as the program receives it, or "". With TaskInArgv it is on the
	// command line; otherwise it is typed DeliverDelay after the program is ready.
	FirstInput   string
	TaskInArgv   bool
	DeliverDelay time.Duration
	// ResumeToken is the program's id of the conversation if it can be given; otherwise hooks
	// report it later.
	ResumeToken string
	// Structured is the command line of structured mode, which receives the task by its
	// protocol; nil if the program has no such mode.
	Structured []string
	Protocol   Protocol // of structured mode; "": that of the program
	Notes      []string // for users: parts of the request that could not be fulfilled
}

// Build plans a session. Errors are invalid_input, reason adapter_invalid, adapter_framework or
// adapter_preset, and OPENCODE_NO_PROVIDER.
func Build(s Spawn) (Plan, error) {
	b, err := newBuild(s)
	if err != nil {
		return Plan{}, err
	}
	b.skills()
	if !b.program.Startable() {
		return Plan{}, capability.Errorf(capability.CodeInvalidInput, "task.spawn", "%q cannot be started as a task agent", s.Framework).
			With("adapter_framework", "use "+Choices())
	}
	if err := b.program.plan(b); err != nil {
		return Plan{}, err
	}
	if b.ignored != "" {
		b.plan.Changes = append(b.plan.Changes, overlay.Change{Kind: overlay.Ignore, Root: b.Workdir, Path: b.Workdir, Text: b.ignored})
	}
	b.plan.Env = b.environment()
	return b.plan, nil
}

// build is an incomplete plan.
type build struct {
	Spawn
	program Program
	port    string
	plan    Plan
	// ignored holds the patterns that git ignores in the workspace.
	ignored string
	env     map[string]string // variables of the program; they win over those of the caller
}

func newBuild(s Spawn) (*build, error) {
	invalid := func(format string, args ...any) (*build, error) {
		return nil, capability.Errorf(capability.CodeInvalidInput, "task.spawn", format, args...).With("adapter_invalid", "")
	}
	for _, path := range []string{s.Workdir, s.StateDir, s.Home, s.Self} {
		if !filepath.IsAbs(path) {
			return invalid("%q must be an absolute path", path)
		}
	}
	if s.KeepDir != "" && !filepath.IsAbs(s.KeepDir) {
		return invalid("%q must be an absolute path", s.KeepDir)
	}
	server, err := url.Parse(s.Server)
	if err != nil || server.Port() == "" {
		return invalid("the server's address %q has no port", s.Server)
	}
	if !plainID.MatchString(s.Session) || !uuid.MatchString(s.UUID) || s.Resume != "" &&
		(len(s.Resume) > 512 || !resumable.MatchString(s.Resume)) {
		return invalid("the ids of the session, of the program's session or of what is resumed are malformed")
	}
	for what, text := range map[string]string{
		"task": s.Task, "memory": s.Memory, "manifest of skills": s.Skills, "model": s.Model,
		"provider": s.Provider,
	} {
		if strings.ContainsRune(text, 0) || len(text) > MaxTask {
			return invalid("the %s holds a NUL character, or more than %d bytes", what, MaxTask)
		}
	}
	if strings.HasPrefix(s.Model, "-") || strings.HasPrefix(s.Provider, "-") {
		return invalid("a model and a provider do not begin with a hyphen")
	}
	if _, ok := s.Preset.row(); !ok {
		return nil, capability.Errorf(capability.CodeInvalidInput, "task.spawn", "there is no approval preset %q", s.Preset).
			With("adapter_preset", "use readonly, standard, permissive or autonomous")
	}
	program := Of(s.Framework)
	if s.Binary == "" {
		s.Binary = program.Binary
	}
	if s.BaseURL == "" {
		s.BaseURL = s.Parent[program.BaseURL]
	}
	s.Server = strings.TrimSuffix(s.Server, "/")
	b := &build{Spawn: s, program: program, port: server.Port(), env: make(map[string]string)}
	b.plan.DeliverDelay = program.DeliverDelay
	return b, nil
}

var (
	plainID   = regexp.MustCompile(`^[A-Za-z0-9._-]{1,80}$`)
	uuid      = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	resumable = regexp.MustCompile(`^[A-Za-z0-9/][A-Za-z0-9._/ -]*$`) // an id, or a file of Pi; never a flag
)

// state returns a path in the session's folder.
func (b *build) state(names ...string) string {
	return filepath.Join(append([]string{b.StateDir}, names...)...)
}

// private adds a private file in the session's folder to the plan and returns its path.
func (b *build) private(text string, names ...string) string {
	path := b.state(names...)
	b.plan.Changes = append(b.plan.Changes, overlay.Change{Kind: overlay.Private, Root: b.StateDir, Path: path, Text: text})
	return path
}

// folder adds a folder in the session's folder to the plan and returns its path. It is removed
// with all files that the program writes there.
func (b *build) folder(name string) string {
	path := b.state(name)
	b.plan.Changes = append(b.plan.Changes, overlay.Change{Kind: overlay.Folder, Root: b.StateDir, Path: path})
	return path
}

func (b *build) link(target string, names ...string) {
	b.plan.Changes = append(b.plan.Changes, overlay.Change{Kind: overlay.Link, Root: b.StateDir, Path: b.state(names...), Target: target})
}

func (b *build) note(text string) { b.plan.Notes = append(b.plan.Notes, text) }

// argv sets the command line: the program with its flags and, if there is a task, the arguments
// that task returns for it.
func (b *build) argv(flags []string, task func(text string) []string) {
	b.plan.Argv = append([]string{b.Binary}, flags...)
	if text := b.firstTask(MaxArgv, true); text != "" {
		b.plan.Argv, b.plan.TaskInArgv, b.plan.FirstInput = append(b.plan.Argv, task(text)...), true, text
	}
}

// typed sets the command line without the task, which is typed later.
func (b *build) typed(flags []string) {
	b.plan.Argv = append([]string{b.Binary}, flags...)
	b.plan.FirstInput = b.firstTask(MaxTyped, false)
}

// structured sets the command line of structured mode.
func (b *build) structured(words []string, flags []string) {
	b.plan.Structured = slices.Concat([]string{b.Binary}, words, flags)
}

// withoutEditor keeps the commands of a program from waiting in an editor that is not shown. The other programs do so themselves.
func (b *build) withoutEditor() {
	if b.Custom["GIT_EDITOR"] == "" {
		b.env["GIT_EDITOR"] = "true"
	}
}

func (b *build) hooksURL() string { return b.Server + "/api/coding-agents/hooks" }

// hookCommand returns the shell command of hooks, which runs this binary.
func (b *build) hookCommand() string {
	return quote(b.Self) + " child hook " + string(b.Framework)
}

// quote returns s quoted as one word for a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
