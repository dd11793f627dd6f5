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
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
)

const (
	op       = "tasks.create"
	titleLen = 80

	agentTypes = "list them with: junctor frameworks list"
)

// Keys of metadata that this package writes.
const (
	metaMemory    = "memoryContent"  // of a thread
	metaBase      = "baseBranch"     // of a thread
	metaPreset    = "approvalPreset" // of a thread
	metaMode      = "sessionMode"    // of a thread and of a session
	metaWorkspace = "workspaceId"    // of a thread: its clone; of a session: its workspace
	metaHandle    = "task"           // of a thread: id of its Task
	metaGateway   = "gateway"        // of a thread: the gateway that created it
	metaChecks    = "checks"         // of a thread: commands that check whether it is done
)

// Registry is the part of [threads.Registry] that the launcher uses.
type Registry interface {
	Create(ctx context.Context, p threads.Plan) (threads.Created, error)
	Control(ctx context.Context, thread string, c threads.Control, note string) (threads.Moved, error)
	Detail(ctx context.Context, thread string, s threads.Selection) (threads.Detail, error)
	Session(ctx context.Context, id string) (row.Session, error)
	SetNode(ctx context.Context, thread, node string, status row.NodeStatus) (threads.Moved, error)
	UpdateThread(ctx context.Context, thread string, f func(*row.Thread)) (threads.Moved, error)
	List(ctx context.Context, f threads.Filter) ([]threads.Summary, error)
	Record(ctx context.Context, e row.Event) error
	MoveMail(ctx context.Context, thread, id string, to row.MailState, session string) error
}

// Coordinator supervises the started sessions.
type Coordinator interface {
	Register(ctx context.Context, in threads.Registration) (threads.Moved, error)
	SetContext(ctx context.Context, threadID, brief string) error
	Conclude(thread string)
}

// Agents starts, prompts and stops programs.
type Agents interface {
	Spawn(ctx context.Context, by capability.Principal, req agents.Request) (agents.Info, error)
	// Keep prevents the automatic stop of a session after a completed turn.
	Keep(session string) (agents.Info, error)
	Send(ctx context.Context, session, text string) error
	Stop(session string, force bool)
}

// Place is the workspace of a part.
type Place struct {
	ID, Path, Branch string
	Conflicts        []string // files with conflicts between the parts that this one depends on
}

// Workspaces creates clones of repositories, and worktrees beside them.
type Workspaces interface {
	Provision(ctx context.Context, req workspace.Request) (workspace.Workspace, error)
	Get(id string) (workspace.Workspace, error)
}

// Chooser selects the program for a task.
type Chooser interface {
	State(ctx context.Context, t choice.Task) choice.State
	Rest(ctx context.Context, name programs.Name, c choice.CoolDown) error
}

// Config holds the dependencies of a Launcher. [Launcher.Use] sets the coordinator later,
// because the coordinator needs the Launcher.
type Config struct {
	Registry   Registry
	Agents     Agents
	Workspaces Workspaces
	// Checkouts returns the access to users' repositories, or why it is not available.
	Checkouts func() (Checkouts, error)
	Consents  Consents
	Chooser   Chooser
	// Standing returns the principal with the given id and its current rights.
	Standing func(id string) (capability.Principal, error)
	// Handle returns the id of a thread's Task and creates it if needed. If nil, threads have
	// no Task.
	Handle  func(ctx context.Context, by capability.Principal, t row.Thread) (task string, err error)
	Changed func(thread string) // called after changes that no session made; may be nil
	// Notify sends a message about a thread to its owner; nil: none is sent.
	Notify  func(ctx context.Context, th row.Thread, session, text string) error
	Gateway string // name of this process among those that share the registry
	Logger  *slog.Logger
}

// Launcher creates and controls threads. It is safe for concurrent use.
type Launcher struct {
	cfg         Config
	coordinator Coordinator
	places      sync.Mutex // held while a thread's clone is created

	mu       sync.Mutex
	parts    map[string]bool // nodes that are being started
	starting map[string]int  // number of callers that start parts, by thread
}

// New returns a launcher. The caller must call [Launcher.Use] before any other method.
func New(cfg Config) *Launcher {
	return &Launcher{cfg: cfg, parts: make(map[string]bool), starting: make(map[string]int)}
}

// Use sets the coordinator. It must be called before any other method.
func (l *Launcher) Use(c Coordinator) { l.coordinator = c }

// Create creates a thread and starts its parts without dependencies. It returns when their
// programs run or could not be started, which is not an error of Create. If no part could be
// started, the thread is stopped.
//
// Its errors: invalid_input (no_parts, too_many_agents, unknown_agent_type, bad_metadata,
// invalid_plan, and those of a checkout), denied (checks_denied, checkout_denied), approval_required
// (setup_required), too_large, and those of the registry. If storing the
// brief or creating the Task fails, the thread exists and its id is returned.
func (l *Launcher) Create(ctx context.Context, by capability.Principal, t Task) (Created, error) {
	plan, err := l.plan(by, t)
	if err != nil {
		return Created{}, err
	}
	var source workspace.Source
	var setup *workspace.Setup
	if t.Checkout != nil {
		if source, err = l.inspect(ctx, by, t); err == nil {
			setup, err = l.setup(ctx, by, source, *t.Checkout)
		}
		if err == nil {
			plan.Thread.Metadata, err = withChecks(plan.Thread.Metadata, setup)
		}
		if err != nil {
			return Created{}, err
		}
	}
	made, err := l.cfg.Registry.Create(ctx, plan)
	if err != nil {
		return Created{}, err
	}
	defer l.coordinator.Conclude(made.Thread.ID) // starts parts that got no slot
	defer l.starts(made.Thread.ID)()
	out := Created{ThreadID: made.Thread.ID}
	if t.Checkout != nil {
		c, err := l.enter(ctx, made.Thread, source, setup, *t.Checkout)
		if err != nil {
			l.giveUp(ctx, made.Thread.ID, "its checkout could not be used")
			return out, err
		}
		out.Checkout = &c
	}
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

// handle returns the id of the thread's Task and stores it in the thread's metadata.
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

// plan validates a task and converts it to the registry's plan.
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
	mode, err := t.Mode.Request(op)
	if err != nil {
		return p, err
	}
	t.Mode = mode
	var members map[string]json.RawMessage
	if len(t.Metadata) > 0 && jsonx.Unmarshal(t.Metadata, &members) != nil {
		return p, capability.Errorf(capability.CodeInvalidInput, op, "metadata is not an object").With("bad_metadata", "")
	}
	if members[metaChecks] != nil && by.Role != capability.RoleAdmin && by.Role != capability.RoleOperator {
		return p, capability.Errorf(capability.CodeDenied, op, "metadata.checks are commands that this server runs: only operators name them").
			With("checks_denied", "say in acceptanceCriteria what has to hold, or name a validator")
	}
	meta := t.Metadata
	for _, key := range []string{row.ControlState, row.ToldEnd, row.Supervision, row.Brief, metaCheckout} {
		meta = row.WithMeta(meta, key, "")
	}
	for key, value := range map[string]string{
		metaMemory: t.Memory, metaBase: t.BaseBranch, metaPreset: string(t.Preset), metaMode: string(t.Mode),
		metaGateway: l.cfg.Gateway, metaWorkspace: "", metaHandle: "",
	} {
		meta = row.WithMeta(meta, key, value)
	}
	if t.Validator != nil {
		if meta, err = row.WithMember(meta, "validator", t.Validator); err != nil {
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
	request := cmp.Or(t.Request, t.Parts[0].Task)
	p = threads.Plan{Brief: t.Brief, Thread: row.Thread{
		AgentID: by.ID, RoomID: t.RoomID, WorldID: t.WorldID, OwnerUserID: t.UserID,
		Title: cmp.Or(t.Title, beginning(request)), Kind: cmp.Or(t.Kind, row.ThreadKind(choice.KindOf(request))),
		OriginalRequest: request, AcceptanceCriteria: criteria, Metadata: meta,
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

// giveUp stops a thread in which nothing could be started, so that it is not shown as open.
func (l *Launcher) giveUp(ctx context.Context, thread, why string) {
	if _, err := l.cfg.Registry.Control(context.WithoutCancel(ctx), thread, threads.Stop, why); err != nil {
		l.cfg.Logger.Error("a thread that could not be started is still open", "thread", thread, "err", err)
	}
	if l.cfg.Changed != nil {
		l.cfg.Changed(thread)
	}
}

// Track creates a thread for a running session, registers it with the coordinator and sends it
// the task. If the session already belongs to a thread, Track only sends the task. If sending
// fails, the thread exists and its id is returned.
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

// beginning returns a title for a text: its first line, cut to titleLen characters.
func beginning(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	if utf8.RuneCountInString(line) <= titleLen {
		return line
	}
	return strings.TrimSpace(text.CutRunes(line, titleLen-1)) + "…"
}

// asError returns the *capability.Error in err, or err converted to one.
func asError(err error) *capability.Error {
	var e *capability.Error
	if errors.As(err, &e) {
		return e
	}
	return capability.AsError(err)
}
