package launch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

const (
	op        = "tasks.create"
	maxMemory = 128 << 10
	titleLen  = 80

	agentTypes = "list them with: junctor frameworks list"
)

// Keys of metadata that are ours.
const (
	metaMemory    = "memoryContent"  // of a thread
	metaBase      = "baseBranch"     // of a thread
	metaPreset    = "approvalPreset" // of a thread
	metaWorkspace = "workspaceId"    // of a thread: its clone; of a session: where it works
	metaHandle    = "task"           // of a thread: its handle
	metaGateway   = "gateway"        // of a thread: whose process made it
	metaChecks    = "checks"         // of a thread: commands that report whether it is done
)

// Registry is what is used of [threads.Registry].
type Registry interface {
	Create(ctx context.Context, p threads.Plan) (threads.Created, error)
	Control(ctx context.Context, thread string, c threads.Control, note string) (threads.Moved, error)
	Detail(ctx context.Context, thread string, s threads.Selection) (threads.Detail, error)
	Session(ctx context.Context, id string) (row.Session, error)
	SetNode(ctx context.Context, thread, node string, status row.NodeStatus) (threads.Moved, error)
	UpdateThread(ctx context.Context, thread string, f func(*row.Thread)) (threads.Moved, error)
	List(ctx context.Context, f threads.Filter) ([]threads.Summary, error)
	MoveMail(ctx context.Context, thread, id string, to row.MailState, session string) error
}

// Coordinator looks after the sessions that are started.
type Coordinator interface {
	Register(ctx context.Context, in threads.Registration) (threads.Moved, error)
	SetContext(ctx context.Context, threadID, brief string) error
	Conclude(thread string)
}

// Agents starts programs.
type Agents interface {
	Spawn(ctx context.Context, by capability.Principal, req agents.Request) (agents.Info, error)
	// Keep keeps a session from being stopped when its turn is over.
	Keep(session string) (agents.Info, error)
	Send(ctx context.Context, session, text string) error
	Stop(session string, force bool)
}

// Place is where a part works.
type Place struct {
	ID, Path, Branch string
}

// Workspaces are clones of repositories.
type Workspaces interface {
	Clone(ctx context.Context, repo, base, label string) (Place, error)
	// Worktree is a further branch beside a clone's.
	Worktree(ctx context.Context, clone, label string) (Place, error)
	// Path finds one that was made before.
	Path(id string) (Place, error)
}

// Chooser states which program does a task.
type Chooser interface {
	State(ctx context.Context, t choice.Task) choice.State
	Rest(ctx context.Context, name programs.Name, c choice.CoolDown) error
}

// Config is what a Launcher works with. Coordinator and Handle may be set later, by
// [Launcher.Use], since the coordinator needs the Launcher.
type Config struct {
	Registry   Registry
	Agents     Agents
	Workspaces Workspaces
	Chooser    Chooser
	// Standing is a principal as it is now, by its id.
	Standing func(id string) (capability.Principal, error)
	// Handle makes the Task that a thread is; nil: none.
	Handle  func(ctx context.Context, by capability.Principal, t row.Thread) (task string, err error)
	Changed func(thread string) // receives the changes of a thread that no session made; may be nil
	Gateway string              // the name of this process among those that share the registry
	Logger  *slog.Logger
}

// Launcher is the service.
type Launcher struct {
	cfg         Config
	coordinator Coordinator
	places      sync.Mutex // one clone for a thread

	mu       sync.Mutex
	parts    map[string]bool // nodes that are being started
	starting map[string]int  // how many start something of a thread, and may wait for places
}

// New makes a launcher, which needs [Launcher.Use] before anything else.
func New(cfg Config) *Launcher {
	return &Launcher{cfg: cfg, parts: make(map[string]bool), starting: make(map[string]int)}
}

// Use states who looks after what is started. It comes before the first call.
func (l *Launcher) Use(c Coordinator) { l.coordinator = c }

// Create makes a thread and starts the parts of it that wait for nothing. It returns when
// their programs run or could not be started: the error is nil where only that failed.
//
// Its errors: invalid_input (no_parts, too_many_agents, unknown_agent_type, bad_metadata,
// invalid_plan), denied (checks_denied), too_large, and those of the registry; nothing was made then.
func (l *Launcher) Create(ctx context.Context, by capability.Principal, t Task) (Created, error) {
	plan, err := l.plan(by, t)
	if err != nil {
		return Created{}, err
	}
	made, err := l.cfg.Registry.Create(ctx, plan)
	if err != nil {
		return Created{}, err
	}
	defer l.coordinator.Conclude(made.Thread.ID) // what found no place waits for one
	defer l.starts(made.Thread.ID)()
	out := Created{ThreadID: made.Thread.ID}
	if t.Brief != "" {
		if err := l.coordinator.SetContext(ctx, made.Thread.ID, t.Brief); err != nil {
			return out, err
		}
	}
	if out.Task, err = l.handle(ctx, by, made.Thread); err != nil {
		l.giveUp(ctx, made.Thread.ID, "its handle could not be made")
		return out, err
	}
	out.Agents = l.start(ctx, by, made.Thread.ID, false)
	if !begun(out.Agents) {
		l.giveUp(ctx, made.Thread.ID, "no agent could be started")
	}
	return out, nil
}

// handle is the thread's Task, which is kept with it.
func (l *Launcher) handle(ctx context.Context, by capability.Principal, t row.Thread) (string, error) {
	if l.cfg.Handle == nil {
		return "", nil
	}
	id, err := l.cfg.Handle(ctx, by, t)
	if err == nil && id != row.Meta(t.Metadata, metaHandle) {
		_, err = l.cfg.Registry.UpdateThread(ctx, t.ID, func(t *row.Thread) { t.Metadata = row.WithMeta(t.Metadata, metaHandle, id) })
	}
	return id, err
}

// plan is the task as the registry keeps it.
func (l *Launcher) plan(by capability.Principal, t Task) (p threads.Plan, err error) {
	switch {
	case len(t.Parts) == 0:
		return p, capability.Errorf(capability.CodeInvalidInput, op, "no task was given").With("no_parts",
			"give it as a text, with --part, or in a file with --file")
	case len(t.Parts) > MaxParts:
		return p, capability.Errorf(capability.CodeInvalidInput, op, "a task has %d agents at most, and this one would have %d", MaxParts,
			len(t.Parts)).With("too_many_agents", "make it several tasks")
	case len(t.Memory) > maxMemory:
		return p, capability.Errorf(capability.CodeTooLarge, op, "the memory has %d bytes, and may have %d", len(t.Memory), maxMemory)
	}
	var members map[string]json.RawMessage
	if len(t.Metadata) > 0 && jsonx.Unmarshal(t.Metadata, &members) != nil {
		return p, capability.Errorf(capability.CodeInvalidInput, op, "metadata is not an object").With("bad_metadata", "")
	}
	if members[metaChecks] != nil && by.Role != capability.RoleAdmin && by.Role != capability.RoleOperator {
		return p, capability.Errorf(capability.CodeDenied, op, "metadata.checks are commands that this server runs: only operators name them").
			With("checks_denied", "say in acceptanceCriteria what has to hold, or name a validator")
	}
	meta := t.Metadata
	for _, key := range []string{row.ControlState, row.ToldEnd, row.Supervision, row.Brief} {
		meta = row.WithMeta(meta, key, "")
	}
	for key, value := range map[string]string{
		metaMemory: t.Memory, metaBase: t.BaseBranch, metaPreset: string(t.Preset),
		metaGateway: l.cfg.Gateway, metaWorkspace: "", metaHandle: "",
	} {
		meta = row.WithMeta(meta, key, value)
	}
	if t.Validator != nil {
		if meta, err = withMember(meta, "validator", t.Validator); err != nil {
			return p, err
		}
	}
	criteria, err := jsonx.Marshal(t.Criteria)
	if err != nil {
		return p, err
	}
	if len(t.Criteria) == 0 {
		criteria = nil
	}
	p = threads.Plan{Brief: t.Brief, Thread: row.Thread{
		AgentID: by.ID, RoomID: t.RoomID, WorldID: t.WorldID, OwnerUserID: t.UserID,
		Title: cmp.Or(t.Title, beginning(cmp.Or(t.Request, t.Parts[0].Task))), Kind: t.Kind,
		OriginalRequest: cmp.Or(t.Request, t.Parts[0].Task), AcceptanceCriteria: criteria, Metadata: meta,
	}}
	for _, part := range t.Parts {
		name := programs.Name("")
		if part.AgentType != "" && part.AgentType != "auto" {
			ok := false
			if name, ok = programs.Normalise(part.AgentType); !ok {
				return p, capability.Errorf(capability.CodeInvalidInput, op, "there is no agent type %.60q",
					part.AgentType).With(programs.ReasonUnknownAgent, agentTypes)
			}
		}
		label := cmp.Or(part.Label, beginning(part.Task))
		p.Parts = append(p.Parts, threads.Part{
			Title: label, Label: label, Instructions: part.Task, AgentType: string(name), Workdir: t.Workdir, Repo: t.Repo,
			DependsOn: part.DependsOn,
		})
	}
	return p, nil
}

// giveUp ends a thread in which nothing runs, so that it does not look as if.
func (l *Launcher) giveUp(ctx context.Context, thread, why string) {
	if _, err := l.cfg.Registry.Control(context.WithoutCancel(ctx), thread, threads.Stop, why); err != nil {
		l.cfg.Logger.Error("a thread that could not be started is still open", "thread", thread, "err", err)
	}
	if l.cfg.Changed != nil {
		l.cfg.Changed(thread)
	}
}

// Track has a session that runs looked after, as a thread of its own, and tells it what
// to do. One that a thread has already goes on in that one.
func (l *Launcher) Track(ctx context.Context, by capability.Principal, session, task, label string) (thread string, err error) {
	if s, err := l.cfg.Registry.Session(ctx, session); err == nil {
		return s.ThreadID, l.cfg.Agents.Send(ctx, session, task)
	}
	i, err := l.cfg.Agents.Keep(session)
	if err != nil {
		return "", err
	}
	plan, err := l.plan(by, Task{
		Request: task, Workdir: i.Workdir, Preset: i.Preset,
		Parts: []Part{{Task: task, AgentType: string(i.AdapterType), Label: label}},
	})
	if err != nil {
		return "", err
	}
	made, err := l.cfg.Registry.Create(ctx, plan)
	if err != nil {
		return "", err
	}
	_, err = l.coordinator.Register(ctx, threads.Registration{
		ThreadID: made.Thread.ID, Node: made.Nodes[1].ID,
		Session: l.session(made.Thread, made.Nodes[1], i, Place{}),
	})
	if err == nil {
		err = l.cfg.Agents.Send(ctx, session, task)
	}
	return made.Thread.ID, err
}

// beginning is how a text is called: its first line, as far as a title goes.
func beginning(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	if utf8.RuneCountInString(line) <= titleLen {
		return line
	}
	return strings.TrimSpace(text.CutRunes(line, titleLen-1)) + "…"
}

func withMember(object json.RawMessage, key string, value any) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if err := jsonx.Unmarshal(object, &members); len(object) > 0 && err != nil {
		return nil, err
	}
	raw, err := jsonx.Marshal(value)
	if err != nil {
		return nil, err
	}
	members[key] = raw
	return jsonx.Marshal(members)
}

// asError is err for an answer.
func asError(err error) *capability.Error {
	var e *capability.Error
	if errors.As(err, &e) {
		return e
	}
	return capability.AsError(err)
}
