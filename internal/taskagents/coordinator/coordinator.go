// Package coordinator looks after the sessions of task agents: what happens to a
// session becomes a decision, the decision an answer, and every task an end that
// a user is notified of. What it decides by rules is package decide's, whether work is
// done is package validation's, and what it knows is written to the task registry
// before subscribers are notified of it.
//
// Each session has one goroutine of its own, which handles one thing after the other: so
// there is one decision at a time per session without a lock being held over a model's
// answer, and a slow answer about one agent holds up no other. What happens meanwhile
// waits in the session's inbox, the latest of each kind. Between the sessions of a thread
// the registry keeps order: each of its changes is one transaction of the thread.
//
// Close the coordinator before the sessions, otherwise a session that ends because the server ends would end its
// task, and pending decisions are there after the restart.
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

// Sessions are the live sessions.
type Sessions interface {
	Terminal(id string) (Terminal, error)
	// Subscribe receives every event from now on; next is [sessions.Subscription.Next].
	Subscribe() (next func(context.Context) (sessions.Event, bool, error), end func())
}

// Registry is what is used of [threads.Registry].
type Registry interface {
	Register(ctx context.Context, in threads.Registration) (threads.Moved, error)
	UpdateSession(ctx context.Context, session string, f func(*row.Session)) (threads.Moved, error)
	UpdateThread(ctx context.Context, thread string, f func(*row.Thread)) (threads.Moved, error)
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

// Parent is the agent that a swarm works for. It answers questions that need judgement,
// within 30 s.
type Parent interface {
	Decide(ctx context.Context, q Question) (answer string, err error)
}

// Question is what a parent is asked.
type Question struct {
	ThreadID  string `json:"threadId"`
	SessionID string `json:"sessionId"`
	RoomID    string `json:"roomId"`
	Event     string `json:"event"`
	Prompt    string `json:"prompt"`
}

// Chat is where the user is.
type Chat interface {
	Say(ctx context.Context, t row.Thread, session, text string) error
	// Synthesise writes the message about a swarm that is done; an error or nothing has it
	// told in fixed words.
	Synthesise(ctx context.Context, s decide.Swarm) (string, error)
}

// Fleet finds another program for a task whose own has failed.
type Fleet interface {
	// Next returns the best program that is not one of those that failed; ok is false if
	// all have failed.
	Next(ctx context.Context, task string, failed []programs.Name) (name programs.Name, ok bool)
	// Rest takes a program out of use for a while.
	Rest(ctx context.Context, name programs.Name, c choice.CoolDown) error
	// Spawn starts a session in place of another one, with its folder and rights, and the
	// program that Next said. What it starts has to be kept alive when a turn is done.
	Spawn(ctx context.Context, old row.Session, name programs.Name, task string) (session string, err error)
}

// Skills uses what an agent's turn asks for; skills.Broker does. asked reports that the agent
// was answered and goes on; the error is of that answer.
type Skills interface {
	Turn(ctx context.Context, session string, turn int, text directive.Text) (asked bool, err error)
}

// Config is what a Coordinator works with. Sessions, Registry, Now and Logger are
// required; without Skills none is used, and without Model, Parent and Chat no question is asked
// and nothing is said.
type Config struct {
	Sessions  Sessions
	Registry  Registry
	Model     validation.Model
	Parent    Parent
	Chat      Chat
	Fleet     Fleet
	Skills    Skills
	Validator *validation.Validator // nil: what is said to be done is done
	// Begin starts the parts of a thread that are ready, once there are places for them, and
	// registers their sessions. It is asked as soon as what a part waits for is done, whatever
	// else runs. nil: plans have no parts that wait.
	Begin func(ctx context.Context, thread string)
	// Starting reports whether a launcher starts parts of a thread, or waits for places for them:
	// what has ended meanwhile does not end the thread, and what is ready is not begun twice.
	// After it comes Conclude, or Begin returns. If nil, that never happens.
	Starting func(thread string) bool
	// Roots are folders that every session may use besides its own.
	Roots  []string
	Level  Level // of the supervision; "": Autonomous
	Now    func() time.Time
	Logger *slog.Logger
}

// Timeouts and limits of the coordinator.
const (
	coalesceDelay    = 500 * time.Millisecond
	cooldownInterval = 15 * time.Second
	parentTimeout    = 30 * time.Second
	modelTimeout     = time.Minute
	pauseTimeout     = 30 * time.Second
	sendTimeout      = time.Minute
	reportTimeout    = 30 * time.Second
	stopDelay        = 5 * time.Second
	heldTTL          = 30 * time.Second
	maxHeld          = 100
	MaxResponses     = 10 // automatic answers in a row
	MaxRecovered     = 2  // automatic recoveries of a task
	scanInterval     = time.Minute
	idleTimeout      = 5 * time.Minute
	idleChecks       = 4
	blindChecks      = 2 // without a model
	retryTimeout     = 5 * time.Minute
	waitTimeout      = 24 * time.Hour
	maxShared        = 100 // decisions of a thread that are remembered
)

// Coordinator is the service.
type Coordinator struct {
	cfg    Config
	ctx    context.Context //nolint:containedctx // the service's own
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	tasks   map[string]*task   // by session
	threads map[string]*thread // those that have tasks here
	held    []sessions.Event   // of sessions that are not registered yet
	early   []early            // decisions of such sessions
	level   Level
	paused  chan struct{} // closed when the pause is over; nil: no pause
	resume  *time.Timer
	hearers map[chan Event]bool
}

// thread is what the tasks of one thread share. The coordinator's mu guards it.
type thread struct {
	row    row.Thread
	shared []shared
	from   int // index of the first of shared
	tasks  int
}

type shared struct{ session, text string }

// New starts a coordinator. It receives the events of sessions from now on.
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

// Close ends the coordinator and what it has begun. Sessions go on, and what the
// registry says of them stays.
func (c *Coordinator) Close() {
	c.mu.Lock()
	c.closed = true
	if c.resume != nil {
		c.resume.Stop()
	}
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

// listen gives events to their sessions. One who was too slow begins again, and looks at
// what is there.
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

// Register enters a session into its thread and looks after it from now on. What
// happened to it in the last 30 s is not missed. Sessions are to be started with
// keepAliveAfterComplete: the coordinator stops them, once their work was validated.
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

// Adopt looks after a session that the registry has already.
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

// forget ends what is known of a task whose session is over.
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
