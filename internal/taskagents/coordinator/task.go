package coordinator

import (
	"context"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// task is a supervised session. Only its goroutine uses the fields above mu.
type task struct {
	c          *Coordinator
	id, thread string
	row        row.Session // last state in the registry
	ledger     directive.Ledger
	recovered  int
	failed     []programs.Name // programs that failed at the task
	over       bool            // ends the goroutine
	handled    string          // fingerprint of the last handled dialog
	answers    int             // answers to dialogs since a turn ended
	replies    int             // answers to turns since the user spoke
	told       bool            // the user was notified that a login is needed
	result     string          // the text of the last turn
	screen     uint64          // hash of the screen at the last idle check
	scan       time.Time       // time of the next idle check
	stopAt     time.Time       // when to stop the program; zero: never
	denied     bool            // the user refused the open dialog
	waiting    time.Time       // since when the user has to answer; zero if not
	pending    string          // fingerprint of the dialog whose answer waits for confirmation; "-" for a turn

	calls chan func()
	wake  chan struct{}
	done  chan struct{}

	mu        sync.Mutex
	inbox     map[sessions.Type]letter
	posted    []string // decisions that were reported and are not shared yet
	deciding  bool
	lastInput time.Time
	active    time.Time // time of the last event
	retrying  time.Time // since when the program retries to reach its provider; zero if it does not
}

type letter struct {
	sessions.Event
	due time.Time
}

func newTask(c *Coordinator, thread string, s row.Session, recovered int, failed []programs.Name) *task {
	now := c.cfg.Now()
	return &task{
		c: c, id: s.SessionID, thread: thread, row: s, recovered: recovered, failed: failed, scan: now.Add(scanInterval), active: now,
		calls: make(chan func()), wake: make(chan struct{}, 1), done: make(chan struct{}), inbox: make(map[sessions.Type]letter),
	}
}

// order returns the event types in the order in which a task handles them. The end comes last,
// so that the agent's last turn is handled before it.
func order() []sessions.Type {
	return []sessions.Type{
		sessions.BusyNow, sessions.ReadyAgain, sessions.ToolRunning, sessions.Wedged, sessions.LoginRequired,
		sessions.TurnFailed, sessions.BlockedNow, sessions.TaskComplete, sessions.Failed, sessions.Ended,
	}
}

// queueEvent puts an event into the inbox, which holds the latest of each type, and removes
// events that it makes obsolete. Completed turns are delayed by coalesceDelay; one that only
// the screen shows is dropped within cooldownInterval of the last input.
func (t *task) queueEvent(e sessions.Event) {
	now := t.c.cfg.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	due := now
	buffered := ""
	switch e.Type {
	case sessions.State:
		switch {
		case e.To == nil || e.To.Phase != detect.PhaseRetry:
			t.retrying = time.Time{}
		case t.retrying.IsZero():
			t.retrying = now
			t.c.tell(t.event("provider_retry", nil))
		}
		t.poke()
		return
	case sessions.Message, sessions.Controlled:
		t.active = now
		return
	case sessions.Elsewhere:
		t.c.tell(t.event("answered_elsewhere", e))
		return
	case sessions.BusyNow:
		// The program works again after its turn or dialog.
		delete(t.inbox, sessions.BlockedNow)
		delete(t.inbox, sessions.TaskComplete)
		delete(t.inbox, sessions.ReadyAgain)
	case sessions.ReadyAgain:
		delete(t.inbox, sessions.BlockedNow)
		delete(t.inbox, sessions.BusyNow)
	case sessions.ToolRunning, sessions.LoginRequired, sessions.Wedged, sessions.Failed, sessions.Ended:
	case sessions.TurnFailed:
		delete(t.inbox, sessions.TaskComplete)
	case sessions.BlockedNow:
		buffered = "blocked_buffered"
	case sessions.TaskComplete:
		if e.Source == "signal" && !t.lastInput.IsZero() && now.Sub(t.lastInput) < cooldownInterval {
			return // the screen still shows the turn before our input
		}
		buffered = "turn_complete_buffered"
		due = now.Add(coalesceDelay)
		if old, ok := t.inbox[e.Type]; ok {
			due = old.due
		}
	default:
		return
	}
	t.active = now
	t.inbox[e.Type] = letter{e, due}
	if buffered != "" && t.deciding {
		t.c.tell(t.event(buffered, nil))
	}
	t.poke()
}

// post queues a decision that the session's program reported. The number of them is bounded
// by the ledger of their sender.
func (t *task) post(text string) {
	t.mu.Lock()
	t.posted = append(t.posted, text)
	t.mu.Unlock()
	t.poke()
}

// sharePosted shares the queued decisions that are new.
func (t *task) sharePosted() {
	t.mu.Lock()
	posted := t.posted
	t.posted = nil
	t.mu.Unlock()
	for _, text := range posted {
		if d, ok := t.ledger.Post(text); ok {
			t.share(d, "hook")
		}
	}
}

// poke wakes the goroutine. The caller need not hold mu.
func (t *task) poke() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// look queues an event for the current state if the session has ended, failed, or is blocked,
// because that event may have been missed.
func (t *task) look() {
	term, err := t.c.cfg.Sessions.Terminal(t.id)
	if err != nil {
		t.queueEvent(sessions.Event{Session: t.id, Type: sessions.Ended, At: t.c.cfg.Now(), Cause: "the session is not there"})
		return
	}
	i := term.Info()
	e := sessions.Event{
		Session: t.id, At: t.c.cfg.Now(), Text: i.Error,
		To: &detect.Status{State: i.Status, Phase: i.Phase, Blocker: i.Blocker},
	}
	switch i.Status {
	case detect.Stopped:
		e.Type = sessions.Ended
	case detect.Error:
		e.Type = sessions.Failed
	case detect.Blocked:
		e.Type = sessions.BlockedNow
	default:
		return
	}
	t.mu.Lock()
	_, known := t.inbox[e.Type]
	t.mu.Unlock()
	if !known {
		t.queueEvent(e)
	}
}

// next removes and returns the next event that is due. If none is due, ok is false and wait
// is the time until the next event or timer is due.
func (t *task) next() (l letter, ok bool, wait time.Duration) {
	now := t.c.cfg.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ended := t.inbox[sessions.Ended]
	_, failed := t.inbox[sessions.Failed]
	until := t.scan
	for _, kind := range order() {
		l, ok := t.inbox[kind]
		if !ok {
			continue
		}
		if kind == sessions.BlockedNow && (ended || failed) { // the dialog has ended too
			delete(t.inbox, kind)
			continue
		}
		if l.due.After(now) && !ended && !failed {
			until = earlier(until, l.due)
			continue
		}
		delete(t.inbox, kind)
		t.deciding = kind == sessions.BlockedNow || kind == sessions.TaskComplete
		return l, true, 0
	}
	t.deciding = false
	until = earlier(until, t.stopAt)
	if !t.waiting.IsZero() {
		until = earlier(until, t.waiting.Add(waitTimeout))
	}
	if !t.retrying.IsZero() {
		until = earlier(until, t.retrying.Add(retryTimeout))
	}
	return l, false, max(0, until.Sub(now))
}

func earlier(a, b time.Time) time.Time {
	if b.IsZero() || a.Before(b) {
		return a
	}
	return b
}

// run handles events, calls and timers one after the other until the task is over or the
// coordinator closes.
func (t *task) run() {
	defer close(t.done)
	defer t.c.forget(t)
	for !t.over && t.c.ctx.Err() == nil {
		t.sharePosted()
		l, ok, wait := t.next()
		if ok {
			t.handle(l.Event)
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-t.wake:
		case f := <-t.calls:
			f()
		case <-timer.C:
			t.tick()
		case <-t.c.ctx.Done():
		}
		timer.Stop()
	}
	t.sharePosted()
}

// do runs f on the task's goroutine, between two decisions, and returns its error. Errors of
// its own: conflict, reason session_gone, if the task has ended; timeout if ctx ends before f
// starts.
func (t *task) do(ctx context.Context, f func() error) error {
	result := make(chan error, 1)
	select {
	case t.calls <- func() { result <- f() }:
		return <-result
	case <-t.done:
		return gone(t.id)
	case <-ctx.Done():
		return capability.Wrap(capability.CodeTimeout, "task.coordinate", "the session is busy with another decision", ctx.Err())
	}
}

func (t *task) handle(e sessions.Event) {
	switch e.Type {
	case sessions.BusyNow, sessions.ReadyAgain, sessions.ToolRunning:
		t.goesOn(e)
	case sessions.Wedged:
		t.c.tell(t.event("wedged", e))
	case sessions.LoginRequired:
		t.login(e)
	case sessions.BlockedNow:
		t.blocked(e)
	case sessions.TaskComplete:
		t.turn(e)
	case sessions.TurnFailed:
		t.turnFailed(e)
	case sessions.Failed, sessions.Ended:
		t.ended(e)
	}
}

// goesOn handles an event of a session that works again. It updates the status, and discards a
// pending decision and the wait for the user if the event makes them obsolete.
func (t *task) goesOn(e sessions.Event) {
	if e.Type != sessions.ToolRunning {
		t.handled = ""
		if t.pending != "" && t.pending != "-" || t.pending == "-" && e.Type == sessions.BusyNow {
			t.expire()
		}
	}
	if e.Type == sessions.ReadyAgain && t.denied && e.To != nil && e.To.Phase == detect.PhaseInterrupted {
		t.denied = false
		if err := t.respond(nil, directive.Answer{Action: "respond", Response: refusedText}); err != nil {
			t.unanswered("", err)
		}
		return
	}
	if e.Type == sessions.BusyNow {
		t.denied = false
		t.stopAt, t.waiting = time.Time{}, time.Time{}
		if t.row.Status == row.SessionBlocked || t.row.Status == row.SessionWaiting {
			t.replies = 0 // the user answered
		}
	}
	want := t.row.Status
	switch { // only a new turn continues a finished task
	case e.Type == sessions.BusyNow, e.Type == sessions.ReadyAgain && want == row.SessionToolRunning:
		want = row.SessionActive
	case e.Type == sessions.ToolRunning && want.Live():
		want = row.SessionToolRunning
	}
	took := e.Type != sessions.ReadyAgain // it works on the task
	if t.row.Status != want || t.row.IdleCheckCount > 0 || took && !t.row.TaskDelivered {
		t.update(func(s *row.Session) {
			s.Status, s.IdleCheckCount, s.LastActivityAt = want, 0, row.At(t.c.cfg.Now())
			s.TaskDelivered = s.TaskDelivered || took
		})
	}
	if e.Type != sessions.BusyNow {
		t.c.tell(t.event(string(e.Type), e))
	}
}

// login marks a live session blocked by a missing login, and notifies the user once.
func (t *task) login(e sessions.Event) {
	if !t.row.Status.Live() {
		return
	}
	t.waiting = t.c.cfg.Now()
	t.update(func(s *row.Session) { s.Status = row.SessionBlocked })
	t.c.tell(t.event("login_required", e))
	if !t.told {
		t.told = true
		t.say("The agent " + t.name() + " needs a person to log in. " + text.CutRunes(e.Text, 500))
	}
}

// tick runs the one timer that is due: the delayed stop, the end of the wait for the user, a
// provider that was not reached, or the idle check.
func (t *task) tick() {
	now := t.c.cfg.Now()
	t.mu.Lock()
	retrying := t.retrying
	t.mu.Unlock()
	switch {
	case !t.stopAt.IsZero() && !now.Before(t.stopAt):
		t.stopAt = time.Time{}
		t.stop(false)
	case !t.waiting.IsZero() && !now.Before(t.waiting.Add(waitTimeout)):
		t.waiting = time.Time{}
		t.expire()
		t.end(row.SessionInterrupted, "Not answered within 24 hours.", t.event("stopped", map[string]string{"reason": "not answered in time"}))
		t.stop(false)
	case !retrying.IsZero() && !now.Before(retrying.Add(retryTimeout)):
		t.mu.Lock()
		t.retrying = time.Time{}
		t.mu.Unlock()
		t.providerFailed("provider_retry", "The program could not reach its provider for 5 minutes.")
	case !now.Before(t.scan):
		t.scan = now.Add(scanInterval)
		t.idle(now)
	}
}
