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
	"crypto/rand"
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
	"github.com/junctor-run/junctor/internal/platform/hostfs"
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

// Agents is the service.
type Agents struct {
	cfg Config

	mu      sync.Mutex
	running map[string]*agent // includes ended sessions as long as they are listed
	checked []preflight.Result
	at      time.Time // of checked

	files sync.Mutex // serializes changes of users' files and their undoing

	heard *sessions.Subscription
	group sync.WaitGroup
	end   context.CancelFunc // stops running skills
}

// agent holds the data of a session that its terminal does not have.
type agent struct {
	owner     string // id of the principal that started it
	preset    programs.Preset
	framework programs.Name
	workdir   string
	keep      bool // the session is not stopped after a completed turn
	// structured reports that its program uses a protocol, so that hooks only decide about
	// tools and do not report its state.
	structured bool
	over       bool // its session has ended; guarded by the service's mu
	notes      []string
	mask       sessions.Mask // hides its credentials
	task       string
	memory     string
	model      model
	kept       string        // folder of its conversation
	turned     chan struct{} // receives a value when a turn in a terminal has ended

	mu        sync.Mutex
	token     string // the program's id of the conversation
	record    string // path of the record of its conversation, as hooks name it
	ledger    directive.Ledger
	decisions []directive.Decision
	stop      *time.Timer
}

// model is the model of a session, as its request named it.
type model struct{ name, provider, url string }

// Request describes a session to start. Empty fields have defaults.
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
	Mode        sessions.Mode     `json:"mode"` // "": structured for a program with a protocol and an account, else pty
	// Trusted reports that an operator chose Workdir, which need not be below a root.
	Trusted bool `json:"-"`
}

// meta holds the members of the metadata that this package reads.
type meta struct {
	Label    string `json:"label"`
	ThreadID string `json:"threadId"`
	Repo     string `json:"repo"`
	RoomID   string `json:"roomId"`
	Keep     bool   `json:"keepAliveAfterComplete"`
}

// end returns the name of the session's end for its scratch folder. It is "interrupted" if the
// session belongs to a thread, because another session may continue in the folder.
func (m meta) end() string {
	if m.ThreadID != "" {
		return "interrupted"
	}
	return "ended"
}

// New returns the service. It ends programs that an earlier server process left running and
// undoes the preparations for them; failures of that are logged.
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

// recover ends the programs of sessions whose server was killed and undoes their preparations.
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

// undo undoes the preparations for a session: changed files, token, scratch folder. It removes
// the session's state folder last, because the next start calls undo for folders that exist.
func (a *Agents) undo(ctx context.Context, id, event string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	a.files.Lock()
	err := overlay.Undo(ctx, a.journal(id))
	a.files.Unlock()
	if err != nil {
		return err
	}
	if err := a.cfg.Tokens.Revoke(ctx, id); err != nil && capability.CodeOf(err) != capability.CodeNotFound {
		return err
	}
	if err := a.cfg.Scratch.SessionEnded(id, event); err != nil {
		return err
	}
	return hostfs.RemoveAll(filepath.Join(a.folder(), id))
}

// Close stops handling events and waits for running skills. The caller stops the sessions
// before.
func (a *Agents) Close() {
	a.end()
	a.heard.Close()
	a.group.Wait()
}

// Programs returns the state of all known programs on this machine, cached for 15 s. A program
// whose version cannot be read now keeps its last result.
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
		for i, r := range list { // a slow answer on a busy machine must not mark a program as broken
			if r.Error != "" && i < len(a.checked) && a.checked[i].Path == r.Path && a.checked[i].Version != "" {
				list[i] = a.checked[i]
			}
		}
		a.checked, a.at = list, time.Now()
		a.mu.Unlock()
	}
	return list
}

// Spawn starts a session and returns when its program runs; the task is delivered afterwards.
// On failure all preparations are undone.
//
// Its errors: invalid_input (unknown_agent_type, unknown_preset, bad_metadata, bad_mode,
// no_structured_mode, and those of [programs.Build]), denied (workdir_outside_allowed), unavailable (agent_not_installed,
// agent_unproven), overloaded (too_many_sessions), and those of the parts.
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
	mode, err := req.Mode.Request(op)
	if err != nil {
		return Info{}, err
	}
	req.Mode = mode
	if err := a.cfg.Sessions.Room(); err != nil {
		return Info{}, err
	}
	program, err := a.program(ctx, name)
	if err != nil {
		return Info{}, err
	}
	if req.Mode == "" && programs.Of(name).Protocol != "" && program.Auth.Status != preflight.Unauthenticated {
		req.Mode = sessions.Structured // a login needs the program's own screen
	}
	rules, remark, err := detect.Pick(a.cfg.Rules, name, program.Version)
	if err != nil {
		return Info{}, err
	}
	if req.Preset == "" {
		req.Preset = programs.Permissive
		if req.Workdir == "" {
			req.Preset = programs.Autonomous
		}
	}
	if remark != "" {
		if remark, err = a.proven(ctx, program, remark, req); err != nil {
			return Info{}, err
		}
	}
	id := sessions.NewID()
	a.sameModel(by, name, &req)
	g := &agent{
		owner: by.ID, preset: req.Preset, framework: name, keep: m.Keep, structured: req.Mode == sessions.Structured, task: req.Task,
		memory: req.Memory, turned: make(chan struct{}, 1), model: model{req.Model, req.Provider, req.BaseURL},
	}
	if remark != "" {
		g.notes = append(g.notes, remark)
	}
	if g.workdir, err = a.place(id, req.Workdir, cmp.Or(m.Label, req.Name), req.Trusted); err != nil {
		return Info{}, err
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

// cloneOf returns the root of the cloned repository that a session works in, or "".
func (a *Agents) cloneOf(g *agent, m meta) string {
	if a.cfg.CloneOf != nil {
		if root := a.cfg.CloneOf(g.workdir); root != "" {
			return root
		}
	}
	if m.Repo != "" {
		return g.workdir
	}
	return ""
}

// sameModel sets the model of a request that continues a conversation and names none: that of the caller's listed
// session that had it.
func (a *Agents) sameModel(by capability.Principal, name programs.Name, req *Request) {
	if req.ResumeToken == "" || (model{req.Model, req.Provider, req.BaseURL}) != (model{}) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range a.running {
		g.mu.Lock()
		same := g.token == req.ResumeToken
		g.mu.Unlock()
		if same && g.framework == name && g.owner == by.ID && g.model != (model{}) {
			req.Model, req.Provider, req.BaseURL = g.model.name, g.model.provider, g.model.url
		}
	}
}

// prepared issues the token, builds the plan of the program, writes its files and starts the
// session. On failure it leaves the preparations to the caller, which calls undo.
func (a *Agents) prepared(ctx context.Context, by capability.Principal, id string, g *agent, program preflight.Result, rules *detect.File,
	req Request, m meta,
) (sessions.Live, error) {
	if file := programs.AnsweringHook(g.framework, a.cfg.Home, g.workdir); file != "" {
		return nil, capability.Errorf(capability.CodeInvalidInput, "tasks.spawn",
			"%s has, or may have, a PermissionRequest hook, which would answer what the agent asks you", file).With("permission_hook",
			"remove the hook from that file, or choose another program")
	}
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
		Framework: g.framework, Binary: program.Path, Version: program.Version, Password: rand.Text(),
		Session: id, UUID: newUUID(), Server: a.cfg.Server(), Token: token, Self: a.cfg.Self,
		Workdir: g.workdir, StateDir: state, KeepDir: g.kept, Home: a.cfg.Home, UID: a.cfg.UID, Structured: g.structured,
		Repo: m.Repo != "", Clone: a.cloneOf(g, m),
		Task: req.Task, Memory: req.Memory, Skills: manifest, Preset: g.preset, Resume: req.ResumeToken, Model: req.Model,
		Provider: req.Provider, BaseURL: req.BaseURL,
		Credentials: a.cfg.Login(), Custom: req.Custom, Parent: a.cfg.Parent,
	})
	if err != nil {
		return nil, err
	}
	g.notes, g.mask = append(g.notes, plan.Notes...), secret.NewMasker(credentials(plan.Env, req.Custom)).Mask
	if !g.structured {
		a.named(g, plan.ResumeToken)
	}
	a.files.Lock()
	err = overlay.Apply(ctx, a.journal(id), id, plan.Changes)
	a.files.Unlock()
	if err != nil {
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
		spec.Argv, spec.ResumeToken = plan.Structured, "" // the program reports its id of the conversation
		s, err = a.structured(g, spec, plan.Protocol, req.ResumeToken)
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
	if t, ok := s.(*sessions.Session); ok {
		a.group.Go(func() { a.watchUsage(g, t) })
	}
	return s, nil
}

// structured starts a session without a terminal. Permission requests of its protocol are
// decided like those of hooks, which the program may also have.
func (a *Agents) structured(g *agent, spec sessions.Spec, protocol programs.Protocol, resume string) (sessions.Live, error) {
	return a.cfg.Sessions.Run(spec.ID, func(tell func(sessions.Event)) (sessions.Live, error) {
		return structured.Start(structured.Config{Tell: tell, Version: a.cfg.Version, Logger: a.cfg.Logger}, structured.Spec{
			Spec: spec, Resume: resume, Protocol: protocol, Preset: g.preset,
			Judge: func(ctx context.Context, ask structured.Ask) permit.Decision {
				return a.permitted(ctx, spec.ID, g, ask.Tool, ask.Input, !ask.Filing)
			},
			Rules: func(tool string, input []byte) permit.Decision { return a.rules(g, tool, input) },
		})
	})
}

// credentials returns the values of env that must be masked: all variables in custom, and
// those whose name looks like a credential.
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

// disarm removes a session's grant of skills.
func (a *Agents) disarm(id string) {
	if a.cfg.Skills != nil {
		a.cfg.Skills.Forget(id)
	}
}

// program returns the installed program of a framework. It fails with unavailable, reason
// agent_not_installed.
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

// proven checks a program whose version is not among those of its rules. It returns the note for the
// session, or unavailable (agent_unproven) if the preset depends on questions that the program may not
// ask.
func (a *Agents) proven(ctx context.Context, program preflight.Result, remark string, req Request) (note string, err error) {
	if a.cfg.Prove == nil || programs.Of(program.Adapter).Protocol == "" {
		return remark, nil
	}
	why, err := a.cfg.Prove(ctx, program)
	switch {
	case err != nil:
		return "", err
	case why == "":
		return remark + "; it was checked before its first task, and asks as it must", nil
	case programs.MustAsk(program.Adapter, req.Preset):
		return "", capability.Errorf(capability.CodeUnavailable, "tasks.spawn", "%s, and failed its check: %s", remark, why).
			With("agent_unproven", "use the preset readonly or autonomous, which need no answers, or a version of the range; look closer with: junctor debug canary "+
				string(program.Adapter))
	}
	return remark + ", and failed its check, so presets that ask are not offered: " + why, nil
}

// place returns the real path of a session's working directory: a new scratch folder if asked
// is "", otherwise asked. It fails with denied, reason workdir_outside_allowed,
// if asked is relative, not a directory, or not below a root unless it is trusted.
func (a *Agents) place(id, asked, label string, trusted bool) (dir string, err error) {
	const op = "tasks.spawn"
	if asked == "" {
		return a.cfg.Scratch.Create(id, label)
	}
	outside := capability.Errorf(capability.CodeDenied, op, "the folder %.200q does not exist or is outside of those that agents may work in",
		asked).
		With("workdir_outside_allowed", "allow it in the configuration, or leave workdir out: then a folder is made")
	if !filepath.IsAbs(asked) {
		return "", outside
	}
	dir, err = filepath.EvalSymlinks(asked)
	if err != nil {
		return "", outside
	}
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return "", outside
	}
	if trusted {
		return dir, nil
	}
	for _, root := range a.cfg.Roots {
		if root, err := filepath.EvalSymlinks(root); err == nil && (dir == root || strings.HasPrefix(dir, strings.TrimSuffix(root, "/")+"/")) {
			return dir, a.cfg.Scratch.Adopt(dir, id)
		}
	}
	return "", outside
}

func accepted() string {
	var list []string
	for _, n := range programs.All() {
		list = append(list, string(n.Name))
	}
	return strings.Join(list, ", ")
}
