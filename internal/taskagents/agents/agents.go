// Package agents starts task agents and manages them while they run: it finds the program,
// prepares its files in a way that can be undone, issues it a token, runs it as a session,
// judges the tools that its hooks ask about, and removes everything when it has ended, also
// after a crash of the server.
//
// Hooks and their answers differ between programs; each body becomes one [Report]. A body is
// untrusted, because the program's input may control it: no path or name in it is used
// without a check.
//
// Decisions about tasks, such as whether work is done, are the coordinator's.
package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/overlay"
	"github.com/junctor-run/junctor/internal/platform/process"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
	"github.com/junctor-run/junctor/internal/taskagents/permit"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/preflight"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/structured"
	"github.com/junctor-run/junctor/secret"
)

const (
	preflightTTL  = 15 * time.Second // what is known of programs and accounts
	autoStopDelay = 5 * time.Second  // after a completion that a hook told
	undoTimeout   = 30 * time.Second
	askTimeout    = 55 * time.Second // of a permission; programs give their hooks a minute
	maxMemory     = 256 << 10
	maxCustom     = 64 // variables of a caller's own
)

// Agents is the service.
type Agents struct {
	cfg Config

	mu      sync.Mutex
	running map[string]*agent // and those that have ended, as long as they are shown
	checked []preflight.Result
	at      time.Time // of checked

	heard *sessions.Subscription
	group sync.WaitGroup
	end   context.CancelFunc // of what is done for sessions
}

// agent is what is known of a session beyond its terminal.
type agent struct {
	owner     string // who asked for it
	preset    programs.Preset
	framework programs.Name
	workdir   string
	keep      bool // it is not stopped when its turn is over
	// structured reports that its program uses a protocol: hooks judge, and tell nothing.
	structured bool
	over       bool // its session has ended; under the service's mu
	notes      []string
	mask       sessions.Mask // of its credentials
	task       string
	memory     string
	kept       string // the folder of its conversation

	mu        sync.Mutex
	token     string // what the program calls that
	ledger    directive.Ledger
	decisions []directive.Decision
	stop      *time.Timer
}

// Request is a session to be.
type Request struct {
	AgentType   string            `json:"agentType"`
	Workdir     string            `json:"workdir"`
	Task        string            `json:"task"`
	Memory      string            `json:"memoryContent"`
	Preset      programs.Preset   `json:"approvalPreset"`
	Custom      map[string]string `json:"customCredentials"`
	Metadata    json.RawMessage   `json:"metadata"`
	Name        string            `json:"name"`
	Model       string            `json:"model"`
	Provider    string            `json:"provider"`
	BaseURL     string            `json:"baseUrl"`
	Cols        int               `json:"cols"`
	Rows        int               `json:"rows"`
	ResumeToken string            `json:"resumeToken"`
	Mode        sessions.Mode     `json:"mode"` // "": pty
}

// meta is what is read of the metadata.
type meta struct {
	Label    string `json:"label"`
	ThreadID string `json:"threadId"`
	Repo     string `json:"repo"`
	RoomID   string `json:"roomId"`
	Keep     bool   `json:"keepAliveAfterComplete"`
}

// end is how a session's end is called where its folder is: that of a thread may have a
// successor.
func (m meta) end() string {
	if m.ThreadID != "" {
		return "interrupted"
	}
	return "ended"
}

// New makes the service, and clears away what an earlier process left: programs that
// outlived it are ended, and what was prepared for them is undone.
func New(ctx context.Context, cfg Config) (*Agents, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Login == nil {
		cfg.Login = func() map[string]string { return cfg.Parent }
	}
	a := &Agents{cfg: cfg, running: make(map[string]*agent)}
	for _, dir := range []string{a.folder(), a.kept(), a.journals()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, capability.Wrap(capability.CodeFailed, "tasks", "the folder of task agents cannot be made", err)
		}
	}
	a.recover(ctx)
	a.heard = cfg.Sessions.Subscribe()
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	a.end = end
	a.group.Go(func() { a.handleEvents(work) })
	return a, nil
}

func (a *Agents) folder() string           { return filepath.Join(a.cfg.Dir, "sessions") }
func (a *Agents) kept() string             { return filepath.Join(a.cfg.Dir, "kept") }
func (a *Agents) journals() string         { return filepath.Join(a.cfg.Dir, "journals") }
func (a *Agents) journal(id string) string { return filepath.Join(a.journals(), id+".json") }

// recover undoes what is left of sessions whose server was killed.
func (a *Agents) recover(ctx context.Context) {
	entries, err := os.ReadDir(a.folder())
	if err != nil {
		a.cfg.Logger.Error("the folder of task agents cannot be read", "err", err)
		return
	}
	for _, e := range entries {
		id := e.Name()
		if !sessions.ValidID(id) {
			continue
		}
		n := process.Sweep(sessions.Mark(id))
		a.cfg.Logger.Warn("a session of an earlier server is cleared away", "session", id, "processes", n)
		if err := a.undo(ctx, id, "interrupted"); err != nil {
			a.cfg.Logger.Error("what is left of a session could not be undone; it is tried again at the next start", "session", id, "err", err)
		}
	}
}

// undo takes back all that was prepared for a session. Its folder goes last: while it
// is there, a start tries again.
func (a *Agents) undo(ctx context.Context, id, event string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := overlay.Undo(ctx, a.journal(id)); err != nil {
		return err
	}
	if err := a.cfg.Tokens.Revoke(ctx, id); err != nil && capability.CodeOf(err) != capability.CodeNotFound {
		return err
	}
	if err := a.cfg.Scratch.SessionEnded(id, event); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(a.folder(), id))
}

// Close waits for the subscribers of the sessions; their manager stops the sessions before.
func (a *Agents) Close() {
	a.end()
	a.heard.Close()
	a.group.Wait()
}

// Programs is what is known of the programs on this machine, for 15 s.
func (a *Agents) Programs(ctx context.Context) []preflight.Result {
	a.mu.Lock()
	if a.checked != nil && time.Since(a.at) < preflightTTL {
		defer a.mu.Unlock()
		return a.checked
	}
	a.mu.Unlock()
	list := a.cfg.Check(ctx)
	if ctx.Err() == nil {
		a.mu.Lock()
		for i, r := range list { // a program on a busy machine must not count as broken
			if r.Error != "" && i < len(a.checked) && a.checked[i].Path == r.Path && a.checked[i].Version != "" {
				list[i] = a.checked[i]
			}
		}
		a.checked, a.at = list, time.Now()
		a.mu.Unlock()
	}
	return list
}

// Spawn starts a session and returns when its program runs; its task is delivered after
// that. Whatever fails, nothing is left of it.
//
// Its errors: invalid_input (unknown_agent_type, unknown_preset, bad_metadata, bad_mode,
// no_structured_mode, and those of [programs.Build]), denied (workdir_outside_allowed), unavailable (agent_not_installed),
// overloaded (too_many_sessions), and those of the parts.
func (a *Agents) Spawn(ctx context.Context, by capability.Principal, req Request) (Info, error) {
	const op = "tasks.spawn"
	name, ok := programs.Normalise(req.AgentType)
	if !ok {
		return Info{}, capability.Errorf(capability.CodeInvalidInput, op, "there is no agent type %.60q",
			req.AgentType).With(programs.ReasonUnknownAgent, "agent types are "+accepted())
	}
	var m meta
	if len(req.Metadata) > 0 && json.Unmarshal(req.Metadata, &m) != nil {
		return Info{}, capability.Errorf(capability.CodeInvalidInput, op,
			"metadata is not an object whose label, threadId, roomId and repo are texts").With("bad_metadata", "")
	}
	if len(req.Custom) > maxCustom || len(req.Memory) > maxMemory {
		return Info{}, capability.Errorf(capability.CodeTooLarge, op, "at most %d variables and %d KiB of memory can be given", maxCustom,
			maxMemory>>10)
	}
	if req.Mode != "" && req.Mode != sessions.InPTY && req.Mode != sessions.Structured {
		return Info{}, capability.Errorf(capability.CodeInvalidInput, op, "there is no mode %.60q", req.Mode).With("bad_mode",
			"use pty, or structured for a program that has a protocol")
	}
	if err := a.cfg.Sessions.Room(); err != nil {
		return Info{}, err
	}
	program, err := a.program(ctx, name)
	if err != nil {
		return Info{}, err
	}
	rules, _, err := detect.Pick(a.cfg.Rules, name, program.Version)
	if err != nil {
		return Info{}, err
	}
	id := sessions.NewID()
	g := &agent{
		owner: by.ID, preset: req.Preset, framework: name, keep: m.Keep, structured: req.Mode == sessions.Structured, task: req.Task,
		memory: req.Memory,
	}
	made := false
	if g.workdir, made, err = a.place(id, req.Workdir, cmp.Or(m.Label, req.Name)); err != nil {
		return Info{}, err
	}
	if g.preset == "" {
		g.preset = programs.Permissive
		if made {
			g.preset = programs.Autonomous
		}
	}
	undone := func(event string) error {
		a.disarm(id)
		return a.undo(ctx, id, event)
	}
	s, err := a.prepared(ctx, by, id, g, program, rules, req, m)
	if err != nil {
		if again := undone("failed"); again != nil {
			a.cfg.Logger.Error("what was prepared for a session that did not start could not be undone", "session", id, "err", again)
		}
		return Info{}, err
	}
	i := s.Info()
	a.cfg.Recorder.Session(ctx, by, i, "created")
	return a.info(i), nil
}

// prepared carries out the plan of a session and starts it.
func (a *Agents) prepared(ctx context.Context, by capability.Principal, id string, g *agent, program preflight.Result, rules *detect.File,
	req Request, m meta,
) (sessions.Live, error) {
	state := filepath.Join(a.folder(), id)
	err := os.MkdirAll(state, 0o700)
	if err == nil {
		g.kept, err = a.keepFolder(id, req.ResumeToken)
	}
	if err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "tasks.spawn", "the folder of the session cannot be made", err)
	}
	token, err := a.cfg.Tokens.Issue(ctx, by, id)
	if err != nil {
		return nil, err
	}
	manifest := ""
	if a.cfg.Skills != nil && g.framework != programs.Shell {
		manifest = a.cfg.Skills.Equip(ctx, by, Equipment{Session: id, Thread: m.ThreadID, Task: req.Task, Repo: m.Repo})
	}
	plan, err := programs.Build(programs.Spawn{
		Framework: g.framework, Binary: program.Path, Session: id, UUID: newUUID(), Server: a.cfg.Server(), Token: token, Self: a.cfg.Self,
		Workdir: g.workdir, StateDir: state, KeepDir: g.kept, Home: a.cfg.Home, UID: a.cfg.UID, Repo: m.Repo != "",
		Task: req.Task, Memory: req.Memory, Skills: manifest, Preset: g.preset, Resume: req.ResumeToken, Model: req.Model,
		Provider: req.Provider, BaseURL: req.BaseURL,
		Credentials: a.cfg.Login(), Custom: req.Custom, Parent: a.cfg.Parent,
	})
	if err != nil {
		return nil, err
	}
	g.notes, g.mask = plan.Notes, secret.NewMasker(credentials(plan.Env, req.Custom)).Mask
	if !g.structured {
		a.named(g, plan.ResumeToken)
	}
	if err := overlay.Apply(ctx, a.journal(id), id, plan.Changes); err != nil {
		return nil, err
	}
	spec := sessions.Spec{
		ID: id, Name: cmp.Or(req.Name, m.Label), AgentType: req.AgentType, Framework: g.framework, Version: program.Version, Rules: rules,
		Argv: plan.Argv, Env: plan.Env, Dir: g.workdir, HangUp: g.framework == programs.Shell, Cols: req.Cols, Rows: req.Rows,
		Task: plan.FirstInput, TaskInArgv: plan.TaskInArgv, PostReady: plan.DeliverDelay, ThreadID: m.ThreadID, Metadata: req.Metadata,
		ResumeToken: plan.ResumeToken,
		Mask:        g.mask, Answers: startAnswers(g.framework, g.preset),
		Cleanup: func() error { return a.undo(context.WithoutCancel(ctx), id, m.end()) },
	}
	a.mu.Lock()
	a.running[id] = g
	a.mu.Unlock()
	var s sessions.Live
	if g.structured {
		spec.Argv, spec.ResumeToken = plan.Structured, "" // the program tells what it calls the conversation
		s, err = a.structured(g, spec, req.ResumeToken)
	} else {
		spec.Recording = a.record(spec)
		s, err = a.cfg.Sessions.Start(spec)
	}
	if err != nil {
		a.mu.Lock()
		delete(a.running, id)
		a.mu.Unlock()
		return nil, err
	}
	return s, nil
}

// structured starts a session without a terminal. What its program asks for is judged as
// hooks are, which it may have besides.
func (a *Agents) structured(g *agent, spec sessions.Spec, resume string) (sessions.Live, error) {
	return a.cfg.Sessions.Run(spec.ID, func(tell func(sessions.Event)) (sessions.Live, error) {
		return structured.Start(structured.Config{Tell: tell, Version: a.cfg.Version, Logger: a.cfg.Logger}, structured.Spec{
			Spec: spec, Resume: resume,
			Judge: func(ctx context.Context, ask structured.Ask) permit.Decision {
				return a.permitted(ctx, spec.ID, g, ask.Tool, ask.Input, !ask.Filing)
			},
		})
	})
}

// credentials are the values among a program's variables that must not be seen: whatever
// the caller asked for, and what has the name of a credential.
func credentials(env []string, custom map[string]string) (values []string) {
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		if _, asked := custom[name]; asked || credentialName.MatchString(name) {
			values = append(values, value)
		}
	}
	return values
}

var credentialName = regexp.MustCompile(`(?i)key|token|secret|passw|credential|auth`)

// disarm takes its skills from a session.
func (a *Agents) disarm(id string) {
	if a.cfg.Skills != nil {
		a.cfg.Skills.Forget(id)
	}
}

// program finds the program of a framework.
func (a *Agents) program(ctx context.Context, name programs.Name) (preflight.Result, error) {
	list := a.Programs(ctx)
	i := slices.IndexFunc(list, func(r preflight.Result) bool { return r.Adapter == name })
	if i < 0 || !list[i].Installed {
		if ctx.Err() != nil {
			return preflight.Result{}, capability.AsError(ctx.Err())
		}
		hint := ""
		if i >= 0 && list[i].InstallCommand != "" {
			hint = "install it with: " + list[i].InstallCommand
		}
		return preflight.Result{}, capability.Errorf(capability.CodeUnavailable, "tasks.spawn", "%s is not installed on this machine",
			name).With("agent_not_installed", hint)
	}
	return list[i], nil
}

// place is where a session works: a folder that was named and is allowed, or one that is
// made for it.
func (a *Agents) place(id, asked, label string) (dir string, made bool, err error) {
	const op = "tasks.spawn"
	if asked == "" {
		dir, err = a.cfg.Scratch.Create(id, label)
		return dir, true, err
	}
	outside := capability.Errorf(capability.CodeDenied, op, "the folder %.200q does not exist or is outside of those that agents may work in",
		asked).
		With("workdir_outside_allowed", "allow it in the configuration, or leave workdir out: then a folder is made")
	if !filepath.IsAbs(asked) {
		return "", false, outside
	}
	dir, err = filepath.EvalSymlinks(asked)
	if err != nil {
		return "", false, outside
	}
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return "", false, outside
	}
	for _, root := range a.cfg.Roots {
		if root, err := filepath.EvalSymlinks(root); err == nil && (dir == root || strings.HasPrefix(dir, strings.TrimSuffix(root, "/")+"/")) {
			return dir, false, a.cfg.Scratch.Adopt(dir, id)
		}
	}
	return "", false, outside
}

func accepted() string {
	var list []string
	for _, n := range programs.All() {
		list = append(list, string(n.Name))
	}
	return strings.Join(list, ", ")
}
