package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// hold keeps the lease of this gateway, and takes the runs of others whose lease has ended, until ctx
// ends. A gateway that just started, or could not reach the database, waits for the time of a lease: the
// others may have been cut off as well, and extend theirs first.
func (e *Engine) hold(ctx context.Context) {
	renew, take := time.NewTicker(renewInterval), time.NewTicker(takeInterval)
	defer renew.Stop()
	defer take.Stop()
	since := time.Now()
	for {
		select {
		case <-renew.C:
			if !e.renew(ctx) {
				since = time.Now()
			}
		case <-take.C:
			if time.Since(since) >= leaseTTL {
				e.take(ctx)
			}
		case <-ctx.Done():
			return
		}
	}
}

// renew extends the lease of this gateway. held is false if it had lapsed, or could not be extended.
func (e *Engine) renew(ctx context.Context) (held bool) {
	inner, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	lapsed, err := e.cfg.Leases.Hold(inner, e.cfg.Gateway, leaseTTL)
	if err != nil {
		if ctx.Err() == nil {
			e.cfg.Logger.Warn("the lease of this gateway cannot be extended; another one may take its runs", "err", err)
		}
		return false
	}
	if lapsed || e.astray.Swap(false) {
		e.reconcile(ctx)
	}
	return !lapsed
}

// take continues the runs of gateways whose lease has ended.
func (e *Engine) take(ctx context.Context) {
	inner, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	rows, err := e.cfg.Leases.Take(inner, e.cfg.Gateway)
	if err == nil && len(rows) > 0 {
		e.cfg.Logger.Info("runs of a gateway that is gone are continued here", "runs", len(rows))
		err = e.resumeRows(ctx, rows)
	}
	if err != nil && ctx.Err() == nil {
		e.astray.Store(true) // some may be this gateway's by now
		e.cfg.Logger.Warn("runs of other gateways cannot be taken", "err", err)
	}
}

// reconcile compares the runs in memory with those that are stored for this gateway: it stops the work
// on those that another one has taken, and continues those that are not in memory.
func (e *Engine) reconcile(ctx context.Context) {
	e.mu.Lock()
	known := maps.Clone(e.runs)
	e.mu.Unlock()
	for _, r := range known { // those that just begin are stored before the query
		r.mu.Lock()
		r.mu.Unlock() //nolint:staticcheck // only waits
	}
	rows, err := e.cfg.Journal.Open(ctx, e.cfg.Gateway)
	if err != nil {
		e.astray.Store(true)
		e.cfg.Logger.Warn("the runs of the agent cannot be read", "err", err)
		return
	}
	terms := make(map[string]int64, len(rows))
	for _, row := range rows {
		terms[row.ID] = row.Term
	}
	for id, r := range known {
		r.mu.Lock()
		if term, ok := terms[id]; !ok || term != r.row.Term {
			e.lose(r)
		}
		r.mu.Unlock()
	}
	if err := e.resumeRows(ctx, rows); err != nil {
		e.astray.Store(true)
		e.cfg.Logger.Warn("the tasks of runs cannot be read", "err", err)
	}
}

// adopt registers stored runs of this gateway that are not in memory, and returns them.
func (e *Engine) adopt(ctx context.Context, rows []Run) (list []*run, err error) {
	rows = slices.DeleteFunc(rows, func(row Run) bool { return e.lookup(row.ID) != nil })
	ids := make([]string, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}
	if err := e.cfg.Tasks.TakeTurns(ctx, ids); err != nil {
		return nil, err
	}
	for _, row := range rows {
		r := e.register(row)
		e.wait(r, row.Approvals)
		list = append(list, r)
	}
	return list, nil
}

// resumeRows adopts runs and continues them.
func (e *Engine) resumeRows(ctx context.Context, rows []Run) error {
	list, err := e.adopt(ctx, rows)
	if len(list) == 0 || err != nil {
		return err
	}
	e.resume(list)
	e.Sweep(ctx) // what was decided while no gateway carried them
	e.Noted()
	return nil
}

// resume wakes the runs that do not wait.
func (e *Engine) resume(list []*run) {
	for _, r := range list {
		r.mu.Lock()
		works := r.row.State == Working
		r.mu.Unlock()
		if works {
			e.wake(r)
		}
	}
}

// carries reports whether this gateway still carries a run, and gives the run up otherwise. Nothing may
// be delivered before. The caller holds r.mu.
func (e *Engine) carries(ctx context.Context, r *run) bool {
	if e.cfg.Leases == nil {
		return true
	}
	err := e.save(ctx, r, nil)
	switch {
	case err == nil:
		return true
	case !errors.Is(err, ErrTaken):
		e.astray.Store(true) // it is continued once the journal can be reached
		e.cfg.Logger.Error("the end of a run cannot be stored", "run", r.row.ID, "err", err)
	}
	e.lose(r)
	return false
}

// lose ends the work on a run that another gateway carries; its followers read the journal from then on.
// It does nothing for a run that has ended. The caller holds r.mu.
func (e *Engine) lose(r *run) {
	if r.gone || r.row.State.Ended() {
		return
	}
	r.gone = true
	if r.cancel != nil {
		r.cancel(ErrTaken)
	}
	for f := range r.followers {
		f.leave()
	}
	clear(r.followers) // what this process still receives from the model is void
	e.unregister(r)
	e.cfg.Tasks.ReleaseTurn(r.row.ID)
}

// current returns the run of a conversation that has not ended, of whichever gateway.
func (e *Engine) current(ctx context.Context, person, session string) (row Run, found bool, err error) {
	list, _, err := e.cfg.Journal.Runs(ctx, Query{Person: person, Session: session, Open: true, Limit: 1})
	if err != nil || len(list) == 0 {
		return row, false, err
	}
	return list[0], true, nil
}

// pass gives a message to a run that is not in memory: by a note to the gateway that carries it, or by
// continuing it here. The follower is nil if the run ended first.
func (e *Engine) pass(ctx context.Context, row Run, m Message) (*Follower, error) {
	if err := full(row); err != nil {
		return nil, err
	}
	if row.Gateway == e.cfg.Gateway || e.cfg.Leases == nil {
		list, err := e.adopt(ctx, []Run{row})
		e.resume(list)
		return nil, err // the caller finds it in memory
	}
	id, err := e.cfg.Leases.Post(ctx, Note{Run: row.ID, Kind: NoteMessage, Text: m.Text, Key: m.Key, Tainted: m.Tainted})
	if err != nil {
		return nil, capability.AsError(err)
	}
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		posted, err := e.cfg.Leases.Posted(ctx, id)
		if err != nil {
			break
		}
		if !posted {
			return e.followStored(row.ID, row.Seq, 0), nil
		}
		if now, err := e.cfg.Journal.Run(ctx, row.ID); err != nil || now.State.Ended() {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	switch own, err := e.cfg.Leases.Withdraw(context.WithoutCancel(ctx), id); {
	case err != nil:
		return nil, capability.AsError(err)
	case !own:
		return e.followStored(row.ID, row.Seq, 0), nil
	case ctx.Err() != nil:
		return nil, capability.Wrap(capability.CodeCancelled, "agent", "the gateway that answers in this conversation did not take the message",
			context.Cause(ctx))
	}
	return nil, nil
}

// cancelElsewhere asks the gateway that carries a run to cancel it.
func (e *Engine) cancelElsewhere(ctx context.Context, id string) error {
	row, err := e.cfg.Journal.Run(ctx, id)
	if err != nil || row.State.Ended() {
		return err
	}
	if row.Gateway != e.cfg.Gateway && e.cfg.Leases != nil {
		_, err := e.cfg.Leases.Post(ctx, Note{Run: id, Kind: NoteCancel})
		return err
	}
	list, err := e.adopt(ctx, []Run{row})
	if err != nil || len(list) == 0 {
		return err
	}
	return e.cancel(ctx, id)
}

// forward notifies the gateway that carries the run which waits for an approval that was decided here.
func (e *Engine) forward(ctx context.Context, approval string) {
	a, err := e.cfg.Policy.Approval(ctx, approval)
	if err != nil || a.State == policy.ApprovalPending || a.OnBehalfOf == "" {
		return
	}
	list, _, err := e.cfg.Journal.Runs(ctx, Query{Person: a.OnBehalfOf, State: Waiting, Open: true, Limit: 100})
	for _, row := range list {
		if err == nil && row.Gateway != e.cfg.Gateway && slices.Contains(row.Approvals, approval) {
			_, err = e.cfg.Leases.Post(ctx, Note{Run: row.ID, Kind: NoteDecided})
		}
	}
	if err != nil && ctx.Err() == nil {
		e.cfg.Logger.Warn("the gateway of a run is not notified of a decision; it looks for it itself", "approval", approval, "err", err)
	}
}

// Noted makes the engine read the notes of other gateways. It never blocks.
func (e *Engine) Noted() {
	select {
	case e.noted <- struct{}{}:
	default:
	}
}

// answerNotes does what notes of other gateways ask, until ctx ends.
func (e *Engine) answerNotes(ctx context.Context) {
	tick := time.NewTicker(noteInterval)
	defer tick.Stop()
	for {
		select {
		case <-e.noted:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		notes, err := e.cfg.Leases.Notes(ctx, e.cfg.Gateway)
		for _, n := range notes {
			if r := e.lookup(n.Run); r != nil && err == nil {
				err = e.answer(ctx, r, n)
			}
		}
		if err != nil && ctx.Err() == nil {
			e.cfg.Logger.Warn("notes of other gateways cannot be read", "err", err)
		}
	}
}

// answer does what one note asks, and removes it.
func (e *Engine) answer(ctx context.Context, r *run, n Note) error {
	switch n.Kind {
	case NoteMessage:
		f, ok, err := e.guide(ctx, r, Message{Text: n.Text, Key: n.Key, Tainted: n.Tainted}, n.ID)
		if f != nil {
			f.Close()
		}
		if ok || err == nil {
			return nil // it was removed with the record; or its sender takes it back, because the run has ended
		}
		if capability.CodeOf(err) != capability.CodeOverloaded {
			return err
		}
	case NoteCancel:
		if err := e.cancel(ctx, n.Run); err != nil {
			return err
		}
	case NoteDecided:
		e.wake(r)
	}
	_, err := e.cfg.Leases.Withdraw(ctx, n.ID)
	return err
}
