package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/audit"
)

// Causes of the end of a run's context.
var (
	errCancelled = errors.New("the task was cancelled")
	errStopping  = capability.ErrStopping
)

// Manager runs tasks. It is safe for concurrent use. Call [Manager.Open] first.
type Manager struct {
	cfg  Config
	ctx  context.Context // of all runs
	stop context.CancelCauseFunc
	work sync.WaitGroup
	wake chan struct{}

	mu      sync.Mutex
	closed  bool
	open    map[string]*entry // tasks of this process that have not ended
	running map[string]int    // by owner
	total   int
	asking  map[string]int // by owner
	seen    map[string]seen
	absent  map[string]bool // owners whose tasks wait until the owner is seen

	carriers map[Kind]Carrier
}

// entry is one task that has not ended.
type entry struct {
	mu      sync.Mutex
	task    Task
	cancel  context.CancelCauseFunc // nil: nothing runs
	done    chan struct{}           // closed when the current run has ended
	answers map[string]chan json.RawMessage
	asked   int
	subs    map[*watcher]struct{}
	spoke   time.Time
	// until is set for work of an earlier process that can be resumed: it is the latest
	// time for that. next is the time of the next attempt.
	until, next time.Time
	ending      bool // cancelled before it was resumed
}

// New returns a Manager.
func New(cfg Config) *Manager {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Poll == 0 {
		cfg.Poll = 500 * time.Millisecond
	}
	if cfg.Changed == nil {
		cfg.Changed = func(Task) {}
	}
	m := &Manager{
		cfg: cfg, wake: make(chan struct{}, 1),
		open: make(map[string]*entry), running: make(map[string]int), asking: make(map[string]int), seen: make(map[string]seen),
		absent: make(map[string]bool), carriers: make(map[Kind]Carrier),
	}
	m.ctx, m.stop = context.WithCancelCause(context.Background())
	return m
}

// Open loads the open tasks of an earlier process of this gateway. Waiting tasks continue to
// wait, and work that a far side still performs is resumed by Run. All other running tasks
// end as failed, reason interrupted.
func (m *Manager) Open(ctx context.Context) error {
	left, err := m.cfg.Store.OpenTasks(ctx, m.cfg.Gateway)
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "tasks.open", "the tasks cannot be read", err)
	}
	for _, t := range left {
		e := m.adopt(t)
		e.mu.Lock()
		if t.resumable() {
			e.until = m.cfg.Now().Add(resumeTimeout)
		}
		if t.Kind.carried() || parked(&t) || !e.until.IsZero() {
			e.mu.Unlock()
			continue
		}
		err := m.change(ctx, e, func(t *Task) { t.interrupt() })
		e.mu.Unlock()
		if err != nil {
			return err
		}
		m.record(ctx, audit.TaskRecovered, t.ID, t.Owner, t.Surface, Failed)
	}
	return nil
}

// parked reports whether t waits while no call of it runs.
func parked(t *Task) bool {
	if t.Kind.carried() {
		return false
	}
	switch t.State {
	case AuthRequired, Interrupted:
		return true
	case InputRequired: // without a call, or for the caller's approval
		return !slices.ContainsFunc(t.Requests, func(r Request) bool { return r.Approval == "" && t.called() })
	}
	return false
}

// called reports whether the task has a call yet.
func (t *Task) called() bool {
	target := &t.Call.Target
	return target.Capability != "" || target.Action != "" || !target.Member.IsZero()
}

// interrupt ends a task because it is unknown whether its work was done.
func (t *Task) interrupt() {
	t.State, t.Requests = Failed, nil
	t.Status = "the server stopped while this was under way; whether its work was done is not known"
	t.Error = capability.Errorf(capability.CodeFailed, "tasks", "%s", t.Status).With("interrupted",
		"look at what it was to change before you start it again")
}

// adopt registers an open task of this process, without its input.
func (m *Manager) adopt(t Task) *entry {
	t.Input = nil
	e := &entry{task: t, subs: make(map[*watcher]struct{}), answers: make(map[string]chan json.RawMessage)}
	m.mu.Lock()
	m.open[t.ID] = e
	m.mu.Unlock()
	return e
}

// NewID returns a new task id: tsk_ and 32 random hex digits.
func NewID() string {
	return ids.Hex("tsk_", 16)
}

// Start creates a task for the invocation, starts it and returns the stored task, which runs
// independently of ctx. The task replaces inv.Ask and inv.Relay. With Options.Request, the
// task does not run until [Manager.Begin]. Errors: overloaded, too_large; unavailable once the
// server stops.
func (m *Manager) Start(ctx context.Context, inv capability.Invocation, o Options) (Task, error) {
	if err := checkHistory(o.History); err != nil {
		return Task{}, err
	}
	now := m.cfg.Now().UTC()
	keep := o.Keep
	if keep <= 0 {
		keep = TaskTTL
	}
	t := Task{
		ID: NewID(), Kind: KindCall, Owner: inv.Principal.ID, State: Submitted, Status: o.Status, Surface: inv.Surface, Context: o.Context,
		Created: now, Updated: now, Keep: min(keep, maxTaskTTL), Version: 1, History: o.History, Gateway: m.cfg.Gateway,
		Call: callOf(&inv), Input: inv.Input,
	}
	t.Expires = now.Add(t.Keep)
	if o.Request != nil {
		r := *o.Request
		r.Asked = now
		t.State, t.Requests = InputRequired, []Request{r}
	} else if err := m.enter(t.Owner); err != nil {
		return Task{}, err
	}
	if err := m.create(ctx, t); err != nil {
		if o.Request == nil {
			m.leave(t.Owner)
		}
		return Task{}, err
	}
	m.record(ctx, audit.TaskCreated, t.ID, t.Owner, t.Surface, t.State)
	e := m.adopt(t)
	e.mu.Lock()
	defer e.mu.Unlock()
	m.cfg.Changed(e.task)
	if o.Request == nil {
		m.launch(e, inv)
	}
	return e.task, nil
}

// create stores a new task. If its owner has MaxOpenOf open tasks, the error is overloaded.
func (m *Manager) create(ctx context.Context, t Task) error {
	ok, err := m.cfg.Store.CreateTask(ctx, t, Bounds{Open: MaxOpenOf, Ended: MaxEndedOf, Bytes: MaxBytesOf})
	if err == nil && !ok {
		err = capability.Errorf(capability.CodeOverloaded, "tasks.start", "%d of your tasks have not ended", MaxOpenOf).With("queue_full",
			"cancel what is not wanted any more, or answer what waits")
	}
	if err != nil {
		return wrap(err)
	}
	return nil
}

func wrap(err error) error {
	if _, ok := errors.AsType[*capability.Error](err); ok {
		return err
	}
	return capability.Wrap(capability.CodeFailed, "tasks", "the task could not be kept", err)
}

func callOf(inv *capability.Invocation) Call {
	return Call{
		Target: inv.Target, Client: inv.Client, Session: inv.Session, Context: inv.Context, Timeout: inv.Timeout, Key: inv.IdempotencyKey,
		Audience: inv.Audience,
	}
}

// checkHistory returns too_large if the documents exceed MaxHistory or MaxDocuments.
func checkHistory(docs []json.RawMessage) error {
	size := 0
	for _, d := range docs {
		size += len(d)
	}
	switch {
	case len(docs) > MaxHistory:
		return capability.Errorf(capability.CodeTooLarge, "tasks", "a task holds %d messages at most", MaxHistory).With("too_many_messages",
			"start another one")
	case size > MaxDocuments:
		return capability.Errorf(capability.CodeTooLarge, "tasks", "the messages of a task have %d bytes at most", MaxDocuments)
	}
	return nil
}

// enter acquires a slot for a run, which leave releases. Errors: overloaded if the process or the
// owner has no slot left; unavailable once the server stops.
func (m *Manager) enter(owner string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return capability.Errorf(capability.CodeUnavailable, "tasks", "the server is stopping")
	case m.total >= MaxRunning || m.running[owner] >= MaxRunningOf:
		err := capability.Errorf(capability.CodeOverloaded, "tasks", "%d tasks of yours, or %d in all, are at work already", MaxRunningOf,
			MaxRunning).With("queue_full", "")
		err.RetryAfter = time.Second
		return err
	}
	m.running[owner]++
	m.total++
	m.work.Add(1)
	return nil
}

func (m *Manager) leave(owner string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running[owner]--; m.running[owner] == 0 {
		delete(m.running, owner)
	}
	m.total--
	m.work.Done()
}

// notFound returns the error for a missing task and for one of another owner.
func notFound(id string) error {
	return capability.Errorf(capability.CodeNotFound, "tasks", "there is no task %.64q of yours", id).With(ReasonNotFound,
		"list them with: junctor tasks list")
}

func (m *Manager) entry(id string) *entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open[id]
}

// change applies f, stores the task and notifies all watchers. The caller holds e.mu. If it
// fails, the task is unchanged.
func (m *Manager) change(ctx context.Context, e *entry, f func(*Task)) error {
	t := e.task
	f(&t)
	t.Status = text.ShortenBytes(t.Status, maxStatus)
	t.Version++
	// The time must increase with every change, because lists are ordered by it.
	t.Updated = m.cfg.Now().UTC()
	if !t.Updated.After(e.task.Updated) {
		t.Updated = e.task.Updated.Add(1)
	}
	t.Expires = t.Updated.Add(t.Keep)
	ok, err := m.cfg.Store.SaveTask(context.WithoutCancel(ctx), t)
	if err == nil && !ok {
		err = capability.Errorf(capability.CodeConflict, "tasks", "the task %s was changed elsewhere", t.ID)
	}
	if err != nil {
		return wrap(err)
	}
	t.Input = nil
	moved := t.State != e.task.State
	e.task = t
	if moved {
		m.record(ctx, audit.TaskStatusChanged, t.ID, t.Owner, t.Surface, t.State)
	}
	m.cfg.Changed(t)
	m.tell(e)
	return nil
}

// tell sends the current task to all watchers. The caller holds e.mu.
func (m *Manager) tell(e *entry) {
	over := e.task.State.Terminal()
	for w := range e.subs {
		if !w.put(e.task, over) {
			delete(e.subs, w)
		}
	}
	if over {
		m.mu.Lock()
		delete(m.open, e.task.ID)
		m.mu.Unlock()
	}
}

// record writes an audit record about a task. A failure is only logged.
func (m *Manager) record(ctx context.Context, ev audit.Event, id, owner, surface string, s State) {
	if m.cfg.Log == nil {
		return
	}
	rec := audit.Record{
		Logger: "tasks", Event: ev, User: owner, Success: audit.OutcomeOf(s != Failed && s != Rejected),
		Metadata: audit.Metadata{Principal: audit.Principal{ID: owner}, Task: id, Surface: surface, State: string(s)},
	}
	if _, err := m.cfg.Log.Append(context.WithoutCancel(ctx), rec, audit.Written); err != nil {
		m.cfg.Logger.Error("audit record not written", "event", string(ev), "err", err)
	}
}

// Run resumes waiting tasks until ctx ends; after that, no task is started.
func (m *Manager) Run(ctx context.Context) error {
	poll := time.NewTicker(m.cfg.Poll)
	defer poll.Stop()
	sweep := time.NewTicker(sweepInterval)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
			m.look(ctx)
		case <-m.wake:
			m.look(ctx)
		case <-sweep.C:
			if err := m.cfg.Store.SweepTasks(ctx, m.cfg.Now().UTC()); err != nil && ctx.Err() == nil {
				m.cfg.Logger.Error("old tasks cannot be removed", "err", err)
			}
		}
	}
}

// Close ends all tasks: those that wait for an answer while they run at once, the rest when
// ctx ends. An interrupted task has failed, reason interrupted. Close returns when no task
// runs.
func (m *Manager) Close(ctx context.Context) {
	m.mu.Lock()
	m.closed = true
	open := make([]*entry, 0, len(m.open))
	for _, e := range m.open {
		open = append(open, e)
	}
	m.mu.Unlock()
	for _, e := range open {
		e.mu.Lock()
		if e.cancel != nil && len(e.answers) > 0 {
			e.cancel(errStopping)
		}
		e.mu.Unlock()
	}
	over := context.AfterFunc(ctx, func() { m.stop(errStopping) })
	defer over()
	m.work.Wait()
	m.stop(errStopping)
}
