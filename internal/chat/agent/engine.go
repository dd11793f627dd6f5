package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/chat/agent/eliza"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/core/queue"
	"github.com/junctor-run/junctor/internal/core/tasks"
)

// approvalPage is how many pending approvals one query returns.
const approvalPage = 500

var (
	errCancelled = errors.New("the run was cancelled")
	errStopping  = capability.ErrStopping
)

// Engine executes runs. It is safe for concurrent use. Call Open before any other method.
type Engine struct {
	cfg    Config
	ctx    context.Context // of all work
	stop   context.CancelCauseFunc
	work   sync.WaitGroup
	places *queue.Shares // of work, by person
	items  atomic.Pointer[items]
	noted  chan struct{} // capacity 1: another gateway left a note
	// astray is set if a run could not be stored, which therefore is not in runs, but has not ended.
	astray atomic.Bool

	mu     sync.Mutex
	closed bool
	runs   map[string]*run    // that have not ended
	of     map[[2]string]*run // by person and session
	parked map[string]*run    // by approval
}

// run is a run that has not ended.
type run struct {
	mu   sync.Mutex
	row  Run
	conv *conversation // nil while no goroutine carries the run
	// cancel ends the work; nil while no goroutine carries the run.
	cancel context.CancelCauseFunc
	// again is set if something happened that a goroutine which is about to leave has to see.
	again bool
	// gone is set once this process does not carry the run any more, though it has not ended.
	gone      bool
	followers map[*Follower]struct{}
	live      liveText
	used      Used // that is not stored yet
}

// New returns an Engine.
func New(cfg Config) *Engine {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Publish == nil {
		cfg.Publish = func(Run) {}
	}
	e := &Engine{
		cfg: cfg, places: queue.NewShares(maxActive, maxActiveOf), noted: make(chan struct{}, 1),
		runs: make(map[string]*run), of: make(map[[2]string]*run), parked: make(map[string]*run),
	}
	e.ctx, e.stop = context.WithCancelCause(context.Background())
	return e
}

// Open registers the runs that an earlier process of this gateway did not end. Run continues them.
func (e *Engine) Open(ctx context.Context) error {
	fail := func(err error) error {
		return capability.Wrap(capability.CodeFailed, "agent.open", "the runs of the agent cannot be read", err)
	}
	if e.cfg.Leases != nil {
		if _, err := e.cfg.Leases.Hold(ctx, e.cfg.Gateway, leaseTTL); err != nil {
			return fail(err)
		}
	}
	left, err := e.cfg.Journal.Open(ctx, e.cfg.Gateway)
	if err == nil {
		_, err = e.adopt(ctx, left)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// Run continues the runs of an earlier process, looks for decisions whose notice was lost, removes old
// runs, and takes those of gateways that died, until ctx ends.
func (e *Engine) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	if e.cfg.Leases != nil {
		e.renew(ctx) // the start may have taken longer than the lease
		work.Go(func() { e.hold(ctx) })
		work.Go(func() { e.answerNotes(ctx) })
	}
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	e.mu.Lock()
	left := slices.Collect(maps.Values(e.runs))
	e.mu.Unlock()
	e.resume(left)
	e.Sweep(ctx) // what was decided while no process carried the runs
	for {
		select {
		case <-tick.C:
			e.Sweep(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// Sweep wakes the runs whose approvals are no longer pending, and removes old runs.
func (e *Engine) Sweep(ctx context.Context) {
	if err := e.cfg.Journal.Sweep(ctx, e.cfg.Now().Add(-runTTL)); err != nil && ctx.Err() == nil {
		e.cfg.Logger.Warn("old runs of the agent cannot be removed", "err", err)
	}
	e.mu.Lock()
	waiting := make(map[string]*run, len(e.parked))
	for id, r := range e.parked {
		waiting[id] = r
	}
	e.mu.Unlock()
	if len(waiting) == 0 {
		return
	}
	for after := ""; ; {
		page, err := e.cfg.Policy.Approvals(ctx, policy.ApprovalPending, after, approvalPage)
		if err != nil {
			if ctx.Err() == nil {
				e.cfg.Logger.Warn("pending approvals cannot be read", "err", err)
			}
			return
		}
		for _, a := range page {
			delete(waiting, a.ID)
		}
		if len(page) < approvalPage {
			break
		}
		after = page[len(page)-1].ID
	}
	for _, r := range waiting {
		e.wake(r)
	}
}

// Close ends the work of all runs, which the next process continues, and waits for it.
func (e *Engine) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.stop(errStopping)
	e.work.Wait()
}

func (e *Engine) register(row Run) *run {
	r := &run{row: row, followers: make(map[*Follower]struct{})}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runs[row.ID] = r
	e.of[[2]string{row.Person, row.Session}] = r
	return r
}

func (e *Engine) unregister(r *run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.runs, r.row.ID)
	for key, other := range e.of {
		if other == r {
			delete(e.of, key)
		}
	}
	for id, other := range e.parked {
		if other == r {
			delete(e.parked, id)
		}
	}
}

// wait registers the approvals that a run waits for, instead of those before.
func (e *Engine) wait(r *run, approvals []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, other := range e.parked {
		if other == r {
			delete(e.parked, id)
		}
	}
	for _, id := range approvals {
		e.parked[id] = r
	}
}

func (e *Engine) lookup(id string) *run {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[id]
}

// Send begins a run for a message, or passes the message to the run that is under way in the
// conversation, which sees it with its next question to the model. It returns a follower of the
// run, which the caller must close; nil if m.Again is set and the message was sent before. Errors:
// those of [policy.Policy.Assistant]; overloaded; unavailable once the server stops.
func (e *Engine) Send(ctx context.Context, m Message) (*Follower, error) {
	if _, err := e.cfg.Policy.Assistant(ctx, m.Person); err != nil {
		return nil, err
	}
	key := [2]string{m.Person.ID, m.Session}
	if m.Again && m.Key != "" {
		if taken, err := e.taken(ctx, m); err != nil || taken {
			return nil, err
		}
	}
	for {
		e.mu.Lock()
		if e.closed {
			e.mu.Unlock()
			return nil, capability.Errorf(capability.CodeUnavailable, "agent", "the server is stopping")
		}
		if r := e.of[key]; r != nil {
			e.mu.Unlock()
			if f, ok, err := e.guide(ctx, r, m, 0); ok || err != nil {
				return f, err
			}
			continue // it has ended meanwhile
		}
		r := &run{followers: make(map[*Follower]struct{})}
		r.mu.Lock() // a second message waits until the run is stored
		e.of[key] = r
		e.mu.Unlock()
		f, other, err := e.begin(ctx, r, m)
		r.mu.Unlock()
		if f != nil {
			e.wake(r)
			return f, nil
		}
		e.unregister(r)
		if err == nil {
			f, err = e.pass(ctx, other, m)
		}
		if f != nil || err != nil {
			return f, err
		}
	}
}

// taken reports whether one of the last runs of the conversation has the message.
func (e *Engine) taken(ctx context.Context, m Message) (bool, error) {
	list, _, err := e.cfg.Journal.Runs(ctx, Query{Person: m.Person.ID, Session: m.Session, Limit: 100})
	for _, r := range list {
		if err != nil {
			break
		}
		var records []Record
		records, err = e.cfg.Journal.Records(ctx, r.ID)
		for _, rec := range records {
			var doc struct{ Key string }
			if (rec.Kind == kindStarted || rec.Kind == kindGuidance) && json.Unmarshal(rec.Doc, &doc) == nil && doc.Key == m.Key {
				return true, nil
			}
		}
	}
	return false, err
}

// begin stores a new run. If the conversation has a run that this process does not carry, it returns that
// one. The caller holds r.mu.
func (e *Engine) begin(ctx context.Context, r *run, m Message) (f *Follower, other Run, err error) {
	r.row.State = Failed // until it is stored
	if e.cfg.Leases != nil {
		if other, found, err := e.current(ctx, m.Person.ID, m.Session); found || err != nil {
			return nil, other, err
		}
	}
	if why, err := e.spent(ctx, m.Person.ID); err != nil || why != "" {
		if err == nil {
			err = capability.Errorf(capability.CodeOverloaded, "agent", "the agent answers you again tomorrow (UTC): %s", why).
				With(reasonBudget, "an operator raises it with agent.budget.day")
		}
		return nil, other, err
	}
	task, err := e.cfg.Tasks.OpenTurn(ctx, m.Person.ID, m.Session)
	if err != nil {
		return nil, other, err
	}
	now := e.cfg.Now().UTC()
	r.row = Run{ID: task.ID, Person: m.Person.ID, Session: m.Session, Gateway: e.cfg.Gateway, State: Working, Created: now, Updated: now}
	r.row.Route = m.Route
	ctx = context.WithoutCancel(ctx)
	row, records, err := e.records(r.row, entry{kind: kindStarted, doc: started{m.Person.ID, m.Session, m.System, m.Turns, m.Tainted, m.Key}})
	stored := false
	e.mu.Lock()
	e.runs[task.ID] = r // before it is stored, so that reconcile does not adopt it
	e.mu.Unlock()
	if err == nil {
		other, stored, err = e.cfg.Journal.Begin(ctx, row, records...)
	}
	if !stored {
		r.row.State = Failed
		end := tasks.Movement{State: tasks.Cancelled, Status: "the conversation had a run already"}
		if err != nil {
			err = capability.AsError(err)
			end = tasks.Movement{State: tasks.Failed, Error: capability.AsError(err)}
		}
		_, err2 := e.cfg.Tasks.Move(ctx, task.ID, end)
		return nil, other, errors.Join(err, err2)
	}
	r.row = row
	return e.follow(r), other, nil
}

// guide adds a message to a run. ok is false if the run has ended meanwhile, or was taken. note is the
// note that the message came with, or 0.
func (e *Engine) guide(ctx context.Context, r *run, m Message, note int64) (f *Follower, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.row.State.Ended() || r.gone {
		return nil, false, nil
	}
	if err := full(r.row); err != nil {
		return nil, false, err
	}
	err = e.save(context.WithoutCancel(ctx), r, r.conv, entry{kind: kindGuidance, doc: guidance{m.Text, m.Key, m.Tainted}, note: note})
	if errors.Is(err, ErrTaken) {
		e.lose(r)
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	f = e.follow(r)
	if r.row.State == Waiting {
		f.push(Event{ID: eventID(r.row.Seq, 2), Type: "park", Outcome: &Outcome{State: Waiting, Approvals: r.row.Approvals}})
	}
	return f, true, nil
}

// full returns an error if a run takes no more messages.
func full(row Run) error {
	if row.Seq < maxRecords {
		return nil
	}
	return capability.Errorf(capability.CodeOverloaded, "agent", "the run %s takes no more messages before it has ended", row.ID).
		With("queue_full", "wait for its reply, or stop it with /stop")
}

// Decided wakes the run that waits for an approval. It never blocks.
func (e *Engine) Decided(approval string) {
	e.mu.Lock()
	r := e.parked[approval]
	e.mu.Unlock()
	switch {
	case r != nil:
		e.wake(r)
	case e.cfg.Leases != nil:
		e.later("", func(ctx context.Context) { e.forward(ctx, approval) })
	}
}

// Get returns a run that the principal may see: its own, or any for operators. Error: not_found.
func (e *Engine) Get(ctx context.Context, who capability.Principal, id string) (Run, error) {
	r, err := e.cfg.Journal.Run(ctx, id)
	if err == nil && !visible(who, r) {
		err = NotFound(id)
	}
	return r, err
}

// Done returns the calls that were made for a run, in the order of their ends. Errors: as of Get.
func (e *Engine) Done(ctx context.Context, who capability.Principal, id string) ([]Done, error) {
	if _, err := e.Get(ctx, who, id); err != nil {
		return nil, err
	}
	c, err := e.fold(ctx, id)
	if err != nil {
		return nil, err
	}
	return c.done, nil
}

// Page returns what the page of a tool is given of one call of a run. Errors: as of Get; not_found for a
// call whose tool has no page, or whose result was too large to be kept.
func (e *Engine) Page(ctx context.Context, who capability.Principal, id, invocation string) (Page, error) {
	if _, err := e.Get(ctx, who, id); err != nil {
		return Page{}, err
	}
	records, err := e.cfg.Journal.Records(ctx, id)
	if err != nil {
		return Page{}, capability.AsError(err)
	}
	for _, rec := range records {
		var r result
		if rec.Kind == kindResult && json.Unmarshal(rec.Doc, &r) == nil && r.Page != nil && r.Done != nil && r.Done.Invocation == invocation {
			return *r.Page, nil
		}
	}
	return Page{}, capability.Errorf(capability.CodeNotFound, "agent", "the run %s keeps no result of %.80q for a page", id, invocation).
		With("no_page", "open the tool in the catalog, and call it there")
}

func visible(who capability.Principal, r Run) bool {
	return r.Person == who.ID || who.Role == capability.RoleAdmin || who.Role == capability.RoleOperator
}

// NotFound returns the error for a run that does not exist, or that the caller may not see.
func NotFound(id string) error {
	return capability.Errorf(capability.CodeNotFound, "agent", "no run of the agent has the id %q", id).
		With("no_run", "junctor chat runs lists them")
}

// List returns the runs that q selects among those the principal may see.
func (e *Engine) List(ctx context.Context, who capability.Principal, q Query) ([]Run, string, error) {
	if who.Role != capability.RoleAdmin && who.Role != capability.RoleOperator {
		q.Person = who.ID
	}
	if q.Limit <= 0 {
		q.Limit = 50
	}
	q.Limit = min(q.Limit, 100)
	return e.cfg.Journal.Runs(ctx, q)
}

// Cancel ends a run; a run that has ended stays as it is. Error: not_found.
func (e *Engine) Cancel(ctx context.Context, who capability.Principal, id string) error {
	if _, err := e.Get(ctx, who, id); err != nil {
		return err
	}
	return e.cancel(ctx, id)
}

func (e *Engine) cancel(ctx context.Context, id string) error {
	r := e.lookup(id)
	if r == nil {
		return e.cancelElsewhere(ctx, id)
	}
	r.mu.Lock()
	if r.cancel != nil {
		r.cancel(errCancelled)
		r.mu.Unlock()
		return nil
	}
	conv, err := e.fold(ctx, r.row.ID)
	if err != nil {
		r.mu.Unlock()
		return err
	}
	r.conv = conv
	r.mu.Unlock()
	e.finish(context.WithoutCancel(ctx), r, Cancelled, nil)
	return nil
}

// CancelSession cancels the current run of a person's conversation. It returns false and no error if
// the conversation has no run, and true with the error if the run cannot be cancelled.
func (e *Engine) CancelSession(ctx context.Context, person, session string) (bool, error) {
	e.mu.Lock()
	r := e.of[[2]string{person, session}]
	e.mu.Unlock()
	if r == nil {
		other, found, err := e.current(ctx, person, session)
		if !found || err != nil {
			return found, err
		}
		return true, e.cancel(ctx, other.ID)
	}
	r.mu.Lock()
	id := r.row.ID
	r.mu.Unlock()
	return true, e.cancel(ctx, id)
}

// Forget cancels the run of a conversation and removes the records of all its runs.
func (e *Engine) Forget(ctx context.Context, person, session string) error {
	if _, err := e.CancelSession(ctx, person, session); err != nil {
		return err
	}
	return e.cfg.Journal.Forget(ctx, person, session)
}

// Answer implements [tasks.Carrier]: a run asks no questions of its own.
func (e *Engine) Answer(context.Context, capability.Principal, tasks.Task, tasks.Request, json.RawMessage) error {
	return capability.Errorf(capability.CodeConflict, "tasks.answer", "the run asks nothing; send it a message in its conversation").
		With("not_asked", "")
}

// Stop implements [tasks.Carrier].
func (e *Engine) Stop(ctx context.Context, _ string, t tasks.Task) error { return e.cancel(ctx, t.ID) }

// entry is a record before it has a number and a time.
type entry struct {
	kind Kind
	doc  any
	note int64 // see [Record]
}

// records returns entries as the next records of a run, and its row with them.
func (e *Engine) records(row Run, entries ...entry) (Run, []Record, error) {
	row.Updated = e.cfg.Now().UTC()
	records := make([]Record, len(entries))
	for i, one := range entries {
		doc, err := jsonx.Marshal(one.doc)
		if err != nil {
			return row, nil, capability.Wrap(capability.CodeInternal, "agent", "a record cannot be written", err)
		}
		row.Seq++
		records[i] = Record{Seq: row.Seq, Kind: one.kind, Time: row.Updated, Doc: doc, Note: one.note}
	}
	return row, records, nil
}

// save appends records to the journal of a run, with its row, and applies them to conv, which may
// be nil. The caller holds r.mu. A failure leaves the run as it was. The error is ErrTaken if another
// gateway carries the run.
func (e *Engine) save(ctx context.Context, r *run, conv *conversation, entries ...entry) error {
	row, records, err := e.records(r.row, entries...)
	if err != nil {
		return err
	}
	if err := e.cfg.Journal.Save(ctx, row, r.used, records...); errors.Is(err, ErrTaken) {
		return ErrTaken
	} else if err != nil {
		return capability.AsError(err)
	}
	r.row, r.used = row, Used{}
	for _, rec := range records {
		if conv != nil {
			if err := conv.apply(rec); err != nil {
				return capability.Wrap(capability.CodeInternal, "agent", "a record cannot be read", err)
			}
		}
		r.notify(eventsOf(rec, r.live)...)
	}
	return nil
}

// fold reads the records of a run.
func (e *Engine) fold(ctx context.Context, id string) (*conversation, error) {
	records, err := e.cfg.Journal.Records(ctx, id)
	if err != nil {
		return nil, capability.AsError(err)
	}
	c := &conversation{}
	for _, rec := range records {
		if err := c.apply(rec); err != nil {
			return nil, capability.Wrap(capability.CodeFailed, "agent", fmt.Sprintf("record %d of the run %s is damaged", rec.Seq, id), err)
		}
	}
	return c, nil
}

// wake starts the work on a run, unless a goroutine carries it already, which then looks again
// before it leaves.
func (e *Engine) wake(r *run) {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return
	}
	e.work.Add(1)
	e.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.again = true
	if r.cancel != nil || r.row.State.Ended() || r.gone {
		e.work.Done()
		return
	}
	ctx, cancel := context.WithCancelCause(e.ctx)
	r.cancel = cancel
	person := r.row.Person
	go func() {
		defer e.work.Done()
		e.carry(ctx, r, person)
	}()
}

// carry works on a run until it ends, waits, or ctx ends.
func (e *Engine) carry(ctx context.Context, r *run, person string) {
	release, _ := e.places.Take(ctx, person) // without a place, the cause of ctx is stored
	defer release()
	for {
		r.mu.Lock()
		r.again = false
		r.mu.Unlock()
		err := e.guarded(ctx, r)
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, errCancelled):
			e.finish(context.WithoutCancel(ctx), r, Cancelled, nil)
		case errors.Is(err, ErrTaken):
			r.mu.Lock()
			e.lose(r)
			r.mu.Unlock()
		case cause != nil: // the next process continues, or the gateway that has taken it
		case err != nil:
			e.finish(context.WithoutCancel(ctx), r, Failed, err)
		}
		r.mu.Lock()
		if r.again && ctx.Err() == nil && !r.row.State.Ended() && !r.gone {
			r.mu.Unlock()
			continue
		}
		r.cancel(nil)
		r.cancel, r.conv, r.live = nil, nil, liveText{}
		r.mu.Unlock()
		return
	}
}

// guarded is drive, with a panic as an error.
func (e *Engine) guarded(ctx context.Context, r *run) (err error) {
	defer func() {
		if p := recover(); p != nil {
			e.cfg.Logger.Error("a run of the agent broke", "run", r.row.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = capability.Errorf(capability.CodeInternal, "agent", "something broke inside junctor; the incident is %s", r.row.ID).
				With("panic", "")
		}
	}()
	return e.drive(ctx, r)
}

// finish stores the reply and the end of a run. It does nothing for a run that has ended.
func (e *Engine) finish(ctx context.Context, r *run, state State, failure error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.row.State.Ended() || r.gone {
		return
	}
	if !e.carries(ctx, r) {
		if id := r.row.ID; state == Cancelled {
			e.later("", func(ctx context.Context) { _ = e.cancelElsewhere(ctx, id) })
		}
		return
	}
	o := Outcome{State: state}
	if failure != nil {
		o.Error = capability.AsError(failure)
	}
	if r.conv != nil {
		o.Text, o.Done, o.Tainted = r.conv.text, r.conv.done, r.conv.taint
		if partial := r.live.text; partial != "" {
			o.Text += partial
		}
		o.Ignored = r.conv.planned != nil && r.conv.planned.Route == eliza.RouteNone
	}
	for _, id := range r.row.Approvals { // of calls that are not made any more
		if err := e.cfg.Policy.Withdraw(ctx, id); err != nil {
			e.cfg.Logger.Warn("an approval cannot be ended", "approval", id, "err", err)
		}
	}
	var entries []entry
	if message, err := e.cfg.Deliver(ctx, r.row, o); err != nil {
		e.cfg.Logger.Error("the reply of a run cannot be stored", "run", r.row.ID, "err", err)
	} else {
		o.Message = message
		entries = append(entries, entry{kind: kindReplied, doc: replied{message}})
	}
	before := r.row
	r.row.State, r.row.Error, r.row.Approvals = state, o.Error, nil
	if err := e.save(ctx, r, r.conv, append(entries, entry{kind: kindEnded, doc: ended{state, o.Error}})...); err != nil {
		r.row, r.gone = before, true // the next process ends it, or this one does
		e.astray.Store(true)
		e.cfg.Logger.Error("the end of a run cannot be stored", "run", r.row.ID, "err", err)
	}
	e.move(ctx, r.row, o)
	r.notify(Event{ID: eventID(r.row.Seq, 1), Type: "end", Outcome: &o})
	e.unregister(r)
	if conv := r.conv; e.cfg.Evaluators && r.row.State == Completed && conv != nil {
		e.later(r.row.Person, func(ctx context.Context) { e.evaluate(ctx, r, conv, o) })
	}
}

// later does work for a person, or the server itself, beside the runs, unless the server stops.
func (e *Engine) later(person string, do func(ctx context.Context)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.work.Go(func() {
		release, err := e.places.Take(e.ctx, person)
		defer release()
		if err == nil {
			do(e.ctx)
		}
	})
}

// move sets the state of the run's task and publishes it.
func (e *Engine) move(ctx context.Context, row Run, o Outcome) {
	to := tasks.Movement{State: tasks.Working, Error: o.Error}
	switch o.State {
	case Waiting:
		to.State, to.Error = tasks.AuthRequired, nil
		to.Status = "waits for an approval: " + o.Approvals[0]
	case Completed:
		to.State = tasks.Completed
		to.Result, _ = jsonx.Marshal(map[string]string{"text": o.Text}) // a string can always be written
	case Failed:
		to.State = tasks.Failed
	case Cancelled:
		to.State, to.Status = tasks.Cancelled, "cancelled"
	}
	if _, err := e.cfg.Tasks.Move(ctx, row.ID, to); err != nil {
		e.cfg.Logger.Error("the task of a run is not up to date", "run", row.ID, "err", err)
	}
	e.cfg.Publish(row)
}
