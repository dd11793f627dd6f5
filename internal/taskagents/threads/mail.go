package threads

import (
	"context"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// PutMail adds a pending message to a thread's mailbox.
func (r *Registry) PutMail(ctx context.Context, m row.MailboxItem) (row.MailboxItem, error) {
	m.ID = row.NewID("msg")
	_, err := r.change(ctx, m.ThreadID, func(w *work) error {
		m.DeliveryState, m.CreatedAt = row.MailPending, w.now
		if err := w.belongs(m.SessionID, m.NodeID); err != nil {
			return err
		}
		return w.add(&m)
	})
	return m, err
}

// Mail returns messages of a thread in the order in which they were added.
func (r *Registry) Mail(ctx context.Context, q MailQuery) ([]row.MailboxItem, error) {
	return r.store.Mail(ctx, q)
}

// MoveMail moves a message forward to the state delivered (to a session) or consumed. A move that
// is not forward fails with wrong_state, so that of two concurrent callers one fails.
func (r *Registry) MoveMail(ctx context.Context, thread, id string, to row.MailState, session string) error {
	_, err := r.change(ctx, thread, func(w *work) error {
		m := row.MailboxItem{ID: id}
		ok, err := w.Get(w.ctx, &m)
		switch {
		case err != nil:
			return err
		case !ok || m.ThreadID != thread:
			return noRow("message", id)
		case to.Order() <= m.DeliveryState.Order():
			return wrongState("", "the message %q is %s already", id, m.DeliveryState)
		}
		if err := w.belongs(session, ""); err != nil {
			return err
		}
		m.DeliveryState = to
		if session != "" {
			m.SessionID = session
		}
		if m.DeliveredAt.IsZero() {
			m.DeliveredAt = w.now
		}
		return w.put(&m, true)
	})
	return err
}

// PutPending stores the decision that a session needs confirmed and replaces an earlier one.
// It survives a restart.
func (r *Registry) PutPending(ctx context.Context, p row.PendingDecision) error {
	_, err := r.changeOf(ctx, p.SessionID, func(w *work, s *row.Session) error {
		was, is := row.PendingDecision{SessionID: p.SessionID}, p
		known, err := w.Get(w.ctx, &was)
		if err != nil {
			return err
		}
		is.ThreadID, is.UpdatedAt = s.ThreadID, w.now
		w.stamp(&is.CreatedAt)
		return w.put(&is, known)
	})
	return err
}

// Pending returns all pending decisions, the oldest first, at most MaxPending.
func (r *Registry) Pending(ctx context.Context) ([]row.PendingDecision, error) {
	return r.store.Pending(ctx)
}

// TakePending removes and returns the pending decision of a session, so that only one of two
// confirmations succeeds. With act, the decision is to be executed, which needs the session.
// If the session has ended, the decision stays and the error is conflict, reason
// session_gone.
func (r *Registry) TakePending(ctx context.Context, session string, act bool) (p row.PendingDecision, err error) {
	_, err = r.changeOf(ctx, session, func(w *work, s *row.Session) error {
		p = row.PendingDecision{SessionID: session}
		ok, err := w.Get(w.ctx, &p)
		switch {
		case err != nil:
			return err
		case !ok:
			return noRow("pending decision of the session", session)
		case act && !s.Status.Live():
			return capability.Errorf(capability.CodeConflict, "threads", "the session %q that this decision is for has ended", session).
				With(ReasonGone, "resume the task first")
		}
		return w.Remove(w.ctx, &p)
	})
	if err != nil {
		return row.PendingDecision{}, err
	}
	return p, nil
}

// PeekPending returns the pending decision of a session without removing it. The bool is false if
// none exists.
func (r *Registry) PeekPending(ctx context.Context, session string) (row.PendingDecision, bool, error) {
	p := row.PendingDecision{SessionID: session}
	ok, err := r.store.Get(ctx, &p)
	return p, ok, err
}
