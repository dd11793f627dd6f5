// Package coordinator supervises the sessions of task agents. It answers their dialogs and
// turns, validates finished work, replaces failed programs, and notifies the user of questions
// and of the end of each task. Package decide has its rules, and package validation checks
// whether work is done. Every change is stored in the task registry before subscribers are
// notified of it.
//
// Each session has its own goroutine, which handles one event after the other. So a session
// has one decision at a time, no lock is held while a model answers, and a slow answer delays
// no other session. Meanwhile the session's inbox holds the latest event of each type. The
// registry orders the changes of a thread's sessions: each is one transaction of the thread.
//
// Close the coordinator before the sessions. Otherwise a session that ends because the server
// shuts down would end its task and discard its pending decision.
package coordinator

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator/decide"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator/validation"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// Terminal is a live session; [sessions.Session] is one.
type Terminal interface {
	Info() sessions.Info
	Send(ctx context.Context, text string, atOnce bool) (sessions.Outcome, error)
	Keys(ctx context.Context, names []string) error
	Choose(ctx context.Context, fingerprint, label string) error
	Lines(n int) []string
	Stop(force bool)
}

// Sessions gives access to the live sessions.
type Sessions interface {
	Terminal(id string) (Terminal, error)
	// Subscribe receives every event from now on; next is [sessions.Subscription.Next].
	Subscribe() (next func(context.Context) (sessions.Event, bool, error), end func())
}

// Registry is the part of [threads.Registry] that the coordinator uses.
type Registry interface {
	Register(ctx context.Context, in threads.Registration) (threads.Moved, error)
	UpdateSession(ctx context.Context, session string, f func(*row.Session)) (threads.Moved, error)
	UpdateThread(ctx context.Context, thread string, f func(*row.Thread)) (threads.Moved, error)
	SetNode(ctx context.Context, thread, node string, status row.NodeStatus) (threads.Moved, error)
	Tell(ctx context.Context, thread, text string) (m threads.Moved, first bool, err error)
	Session(ctx context.Context, id string) (row.Session, error)
	Detail(ctx context.Context, thread string, s threads.Selection) (threads.Detail, error)
	Decide(ctx context.Context, d row.Decision) (threads.Moved, error)
	Record(ctx context.Context, e row.Event) error
	PutPending(ctx context.Context, p row.PendingDecision) error
	PeekPending(ctx context.Context, session string) (row.PendingDecision, bool, error)
	TakePending(ctx context.Context, session string, act bool) (row.PendingDecision, error)
	StartJob(ctx context.Context, j row.VerifierJob) (row.VerifierJob, error)
	EndJob(ctx context.Context, thread, job string, status row.JobStatus, summary string) (threads.Moved, error)
	AddEvidence(ctx context.Context, e row.Evidence) (row.Evidence, error)
	AddArtifact(ctx context.Context, a row.Artifact) (row.Artifact, error)
}

// Parent is the agent that a swarm works for. It answers questions that need judgement; ctx
// limits it to 30 s.
type Parent interface {
	Decide(ctx context.Context, q Question) (answer string, err error)
}

// Question is a question to the parent about one session.
type Question struct {
	ThreadID  string `json:"threadId"`
	SessionID string `json:"sessionId"`
	RoomID    string `json:"roomId"`
	Event     string `json:"event"`
	Prompt    string `json:"prompt"`
}

// Chat sends messages to the user.
type Chat interface {
	Say(ctx context.Context, t row.Thread, session, text string) error
	// Synthesise returns the message about a finished swarm. If it returns an error or an
	// empty text, [decide.Synthesis] is used.
	Synthesise(ctx context.Context, s decide.Swarm) (string, error)
}

// Fleet starts another program for a task whose program has failed.
type Fleet interface {
	// Next returns the best program that is not in failed; ok is false if none is left.
	Next(ctx context.Context, task string, failed []programs.Name) (name programs.Name, ok bool)
	// Rest excludes a program from the choice until its cooldown ends.
	Rest(ctx context.Context, name programs.Name, c choice.CoolDown) error
	// Spawn starts a session of program name with the folder and rights of old. The session
	// must stay alive after a completed turn.
	Spawn(ctx context.Context, old row.Session, name programs.Name, task string) (session string, err error)
}

// Skills runs the skill that an agent's turn requests; skills.Broker implements it. asked
// reports that a skill was requested, so the turn does not end the task; err reports that its
// answer did not arrive.
type Skills interface {
	Turn(ctx context.Context, session string, turn int, text directive.Text) (asked bool, err error)
}

// Config holds the dependencies of a Coordinator. Sessions, Registry, Now and Logger are
// required. If another field is nil, the coordinator works without it.
type Config struct {
	Sessions  Sessions
	Registry  Registry
	Model     validation.Model
	Parent    Parent
	Chat      Chat
	Fleet     Fleet
	Skills    Skills
	Validator *validation.Validator // nil: work is accepted without validation
	// Begin starts the ready parts of a thread as slots become free, and registers their
	// sessions. It is called as soon as the dependencies of a part are done. If nil, no parts
	// are started.
	Begin func(ctx context.Context, thread string)
	// Starting reports whether a launcher starts parts of a thread or waits for slots for
	// them. Meanwhile the coordinator neither reports the end of the thread nor starts ready
	// parts. The launcher calls Conclude afterwards, or Begin returns. nil: always false.
	Starting func(thread string) bool
	// Roots are folders that every session may use besides its working directory.
	Roots  []string
	Level  Level // default level of supervision; "": Autonomous
	Now    func() time.Time
	Logger *slog.Logger
}

// Coordinator is the service.
type Coordinator struct {
	cfg    Config
	ctx    context.Context //nolint:containedctx // the service's own
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	tasks   map[string]*task   // by session
	threads map[string]*thread // threads with entries in tasks
	held    []sessions.Event   // of sessions that are not registered yet
	early   []early            // decisions of such sessions
	level   Level
	hearers map[chan Event]bool
}

// thread holds the state that the tasks of one thread share. The coordinator's mu guards it.
type thread struct {
	row    row.Thread
	shared []shared
	from   int // index of the first of shared
	tasks  int
}

type shared struct{ session, text string }

// New starts a coordinator and subscribes it to the events of sessions. It fails with internal
// if a required field of cfg is missing. The caller closes the coordinator.
func New(cfg Config) (*Coordinator, error) {
	if cfg.Sessions == nil || cfg.Registry == nil || cfg.Now == nil || cfg.Logger == nil {
		return nil, capability.Errorf(capability.CodeInternal, "task.coordinate",
			"a coordinator needs sessions, a registry, a clock and a logger")
	}
	if cfg.Level == "" {
		cfg.Level = Autonomous
	}
	c := &Coordinator{
		cfg: cfg, level: cfg.Level, tasks: make(map[string]*task), threads: make(map[string]*thread),
		hearers: make(map[chan Event]bool),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	next, end := cfg.Sessions.Subscribe()
	c.wg.Go(func() { c.listen(next, end) })
	return c, nil
}

// Close stops the coordinator, waits for its goroutines and closes the channels of its
// subscribers. Sessions and their records in the registry do not change.
func (c *Coordinator) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for h := range c.hearers {
		delete(c.hearers, h)
		close(h)
	}
}

// listen distributes events to the tasks of their sessions. If it was too slow and lost events,
// it subscribes again and checks the state of every session.
func (c *Coordinator) listen(next func(context.Context) (sessions.Event, bool, error), end func()) {
	for {
		e, ok, err := next(c.ctx)
		switch {
		case ok:
			c.handleEvent(e)
			continue
		case err == nil || c.ctx.Err() != nil:
			end()
			return
		}
		c.cfg.Logger.Warn("events of sessions were missed", "err", err)
		end()
		next, end = c.cfg.Sessions.Subscribe()
		c.mu.Lock()
		list := make([]*task, 0, len(c.tasks))
		for _, t := range c.tasks {
			list = append(list, t)
		}
		c.mu.Unlock()
		for _, t := range list {
			t.look()
		}
	}
}

// handleEvent queues an event for its session's task. Events of sessions that are not
// registered yet are held, at most maxHeld. Output and resize events are ignored.
func (c *Coordinator) handleEvent(e sessions.Event) {
	if e.Type == sessions.Output || e.Type == sessions.Resized {
		return
	}
	c.mu.Lock()
	t := c.tasks[e.Session]
	if t == nil { // it may be registered shortly
		c.held = append(c.held, e)
		c.held = c.held[max(0, len(c.held)-maxHeld):]
	}
	c.mu.Unlock()
	if t != nil {
		t.queueEvent(e)
	}
}

// Register adds a session to its thread in the registry and supervises it from now on. Its
// events of the last 30 s are handled too. Start sessions with keepAliveAfterComplete, because
// the coordinator stops them after it has validated their work.
//
// Its errors are those of [threads.Registry.Register], and unavailable (shutting_down).
func (c *Coordinator) Register(ctx context.Context, in threads.Registration) (threads.Moved, error) {
	m, err := c.cfg.Registry.Register(ctx, in)
	if err != nil {
		return m, err
	}
	s, _ := m.Session(in.Session.SessionID)
	c.tell(Event{Type: "task_registered", SessionID: s.SessionID, ThreadID: s.ThreadID, Data: s})
	return m, c.track(m.Thread, s, 0, nil)
}

// Adopt supervises a session that is already in the registry. Its errors are those of the
// registry, and unavailable (shutting_down).
func (c *Coordinator) Adopt(ctx context.Context, session string) error {
	s, err := c.cfg.Registry.Session(ctx, session)
	if err != nil {
		return err
	}
	d, err := c.cfg.Registry.Detail(ctx, s.ThreadID, threads.Selection{Fields: []threads.Field{}})
	if err != nil {
		return err
	}
	return c.track(d.Thread, s, 0, nil)
}

// track starts the task goroutine of a session and queues its held events and current state.
// It does nothing if the session is tracked already, and fails with unavailable, reason
// shutting_down, if the coordinator is closed.
func (c *Coordinator) track(th row.Thread, s row.Session, recovered int, failed []programs.Name) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return capability.Errorf(capability.CodeUnavailable, "task.coordinate", "the coordinator is closing").With("shutting_down",
			"try again after the restart")
	}
	if c.tasks[s.SessionID] != nil {
		c.mu.Unlock()
		return nil
	}
	shares := c.threads[th.ID]
	if shares == nil {
		shares = &thread{}
		c.threads[th.ID] = shares
	}
	shares.row = th
	shares.tasks++
	t := newTask(c, th.ID, s, recovered, failed)
	c.tasks[s.SessionID] = t
	var missed []sessions.Event
	c.held = slices.DeleteFunc(c.held, func(e sessions.Event) bool {
		mine := e.Session == s.SessionID
		late := c.cfg.Now().Sub(e.At) > heldTTL
		if mine && !late {
			missed = append(missed, e)
		}
		return mine || late
	})
	t.posted = c.takeEarly(s.SessionID)
	c.wg.Go(t.run)
	c.mu.Unlock()
	for _, e := range missed {
		t.queueEvent(e)
	}
	t.look()
	return nil
}

// forget removes a task, and its thread's shared state if it was the thread's last task.
func (c *Coordinator) forget(t *task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tasks, t.id)
	if th := c.threads[t.thread]; th != nil {
		if th.tasks--; th.tasks == 0 {
			delete(c.threads, t.thread)
		}
	}
}
