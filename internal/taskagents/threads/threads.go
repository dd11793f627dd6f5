// Package threads is the durable registry of the work of task agents. A thread is one task of
// a user. It owns sessions, a plan of nodes that depend on each other, and all decisions,
// messages, artifacts and verifications. The rows are defined by package row and stored by
// package threadsql; the rules are here.
//
// A thread's status is never set. It follows from its sessions ([Status]), as a node's
// follows from its session or its dependencies. Every operation of the [Registry] is one
// transaction that changes rows of one thread, derives the statuses and writes the events, so
// that a reader never sees one without the other and a crash leaves nothing partial. The
// result of an operation is durable.
//
// What a thread shares was written by agents and is untrusted: an address is offered only if
// it is plain http or https without credentials, and a path only if it exists and lies, after
// links are resolved, within an allowed root.
//
// The coordinator stores each change here before it notifies subscribers. This package does not
// access terminals, models or users.
package threads

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// Reasons of errors.
const (
	ReasonNotFound  = "thread_not_found"
	ReasonNoSession = "session_not_found"
	ReasonNoNode    = "node_not_found"
	ReasonNoRow     = "row_not_found"
	ReasonState     = "wrong_state" // the hint states what to do first
	ReasonFull      = "thread_full"
	ReasonGone      = "session_gone" // resume it first
)

// Config of a [Registry].
type Config struct {
	Store Store
	// Gateway names this process among those that share the store; see [Registry.Restart].
	Gateway string
	Now     func() time.Time
}

// Registry is the task registry. It is safe for concurrent use; changes of one thread are
// serialised.
type Registry struct {
	store   Store
	gateway string
	now     func() time.Time
}

// New returns a registry over the store.
func New(cfg Config) (*Registry, error) {
	if cfg.Store == nil || cfg.Now == nil {
		return nil, capability.Errorf(capability.CodeInternal, "threads", "a registry needs a store and a clock")
	}
	return &Registry{store: cfg.Store, gateway: cfg.Gateway, now: cfg.Now}, nil
}

// Moved is a thread after a change. A thread whose parts depend on each other has the status done
// between two parts; then one of Nodes is ready.
type Moved struct {
	Thread   row.Thread
	Sessions []row.Session // all sessions in the order of registration
	Nodes    []row.Node
}

// Session returns the session with that id; ok is false if it is unknown.
func (m *Moved) Session(id string) (row.Session, bool) {
	for _, s := range m.Sessions {
		if s.SessionID == id {
			return s, true
		}
	}
	return row.Session{}, false
}

// work is one change of one thread, with its state before and after.
type work struct {
	Tx
	ctx    context.Context //nolint:containedctx // valid for one operation
	now    time.Time
	was, g Graph
	events []*row.Event
}

// change runs f on the thread, derives the statuses and stores all changed rows in one
// transaction. It fails with not_found, reason thread_not_found, and with the error of f.
func (r *Registry) change(ctx context.Context, thread string, f func(*work) error) (moved Moved, err error) {
	err = r.store.Change(ctx, thread, func(tx Tx) error {
		g, ok, err := tx.Graph(ctx)
		if err != nil {
			return err
		}
		if !ok {
			return notFound(thread)
		}
		w := &work{Tx: tx, ctx: ctx, now: r.now().UTC().Truncate(time.Millisecond), was: g, g: copied(g)}
		if err := f(w); err != nil {
			return err
		}
		if err := w.settle(); err != nil {
			return err
		}
		moved = Moved{Thread: w.g.Thread, Sessions: w.g.Sessions, Nodes: w.g.Nodes}
		return nil
	})
	return moved, err
}

// changeOf is change for the thread of a session. f gets the session in the graph.
func (r *Registry) changeOf(ctx context.Context, session string, f func(*work, *row.Session) error) (Moved, error) {
	s := row.Session{SessionID: session}
	ok, err := r.store.Get(ctx, &s)
	if err != nil {
		return Moved{}, err
	}
	if !ok {
		return Moved{}, noSession(session)
	}
	return r.change(ctx, s.ThreadID, func(w *work) error {
		s, err := w.session(session)
		if err != nil {
			return err
		}
		return f(w, s)
	})
}

// copied returns a copy of the graph with its own rows. Documents are shared, so they must be
// replaced and not modified.
func copied(g Graph) Graph {
	g.Sessions, g.Nodes, g.Claims, g.Jobs = slices.Clone(g.Sessions), slices.Clone(g.Nodes), slices.Clone(g.Claims), slices.Clone(g.Jobs)
	return g
}

func (w *work) session(id string) (*row.Session, error) {
	for i := range w.g.Sessions {
		if w.g.Sessions[i].SessionID == id {
			return &w.g.Sessions[i], nil
		}
	}
	return nil, noSession(id)
}

func (w *work) node(id string) (*row.Node, error) {
	for i := range w.g.Nodes {
		if w.g.Nodes[i].ID == id {
			return &w.g.Nodes[i], nil
		}
	}
	return nil, capability.Errorf(capability.CodeNotFound, "threads", "the thread has no node %q", id).With(ReasonNoNode,
		"its detail lists them")
}

// event adds an event that is written with the change.
func (w *work) event(kind, session, summary string, data any) {
	raw, err := jsonx.Marshal(data)
	if err != nil || data == nil {
		raw = nil
	}
	w.events = append(w.events, &row.Event{
		ID: row.NewID("evt"), ThreadID: w.g.Thread.ID, SessionID: session, EventType: kind, Timestamp: row.At(w.now), Summary: summary,
		Data: raw, CreatedAt: w.now,
	})
}

// fromTo is the data of an event about a change of status.
type fromTo struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// settle derives the statuses of the thread, its nodes and claims, and writes all changed rows.
func (w *work) settle() error {
	t := &w.g.Thread
	if t.Status != row.ThreadArchived {
		t.Status = row.ThreadActive // of goals, whose end follows that of the thread
		settleNodes(&w.g)
		t.Status = Status(*t, w.g.Sessions, w.g.Nodes)
	}
	if was := w.was.Thread.Status; was != t.Status {
		w.event(row.TaskStatusChanged, "", fmt.Sprintf("%s → %s", was, t.Status), fromTo{string(was), string(t.Status)})
	}
	switch {
	case t.Status == row.ThreadArchived: // unchanged
	case !t.Status.Closed():
		t.ClosedAt = time.Time{}
	case t.ClosedAt.IsZero():
		t.ClosedAt = w.now
	}
	settleNodes(&w.g)
	for i := range w.g.Claims {
		if err := w.settleClaim(&w.g.Claims[i]); err != nil {
			return err
		}
	}
	for i := range w.g.Nodes {
		stampNode(&w.g.Nodes[i], w.now)
	}
	return w.write()
}

// settleClaim derives the status of a claim from the node's session. The claim of a session that
// lost its node to another one is released, unless it has ended.
func (w *work) settleClaim(c *row.Claim) error {
	n, err := w.node(c.NodeID)
	if err != nil {
		return err
	}
	s, err := w.session(c.SessionID)
	if err != nil {
		return err
	}
	switch {
	case n.AssignedSessionID == c.SessionID:
		c.Status = claimOf(*s)
	case c.Status == row.ClaimActive:
		c.Status = row.ClaimReleased
	}
	switch {
	case c.Status == row.ClaimActive:
		c.ReleasedAt = time.Time{}
	case c.ReleasedAt.IsZero():
		c.ReleasedAt = w.now
	}
	return nil
}

// stampNode sets a node's times by its status.
func stampNode(n *row.Node, now time.Time) {
	if n.StartedAt.IsZero() && !waits(n.Status) && n.Status != row.NodeCanceled {
		n.StartedAt = now
	}
	switch {
	case !n.Status.Over():
		n.CompletedAt = time.Time{}
	case n.CompletedAt.IsZero():
		n.CompletedAt = now
	}
}

// write writes new and changed rows, each after the rows that it refers to.
func (w *work) write() error {
	var err error
	each := func(is, was row.Row, known bool, stamp *time.Time) {
		switch {
		case err != nil || known && reflect.DeepEqual(is, was):
			return
		case stamp != nil:
			*stamp = w.now
		}
		err = w.put(is, known)
	}
	t := &w.g.Thread
	if len(w.events) > 0 { // the thread was updated
		t.UpdatedAt = w.now
	}
	t.SearchText = row.Text(searchText(*t))
	each(t, &w.was.Thread, true, &t.UpdatedAt)
	for i := range w.g.Sessions {
		was, known := at(w.was.Sessions, i)
		each(&w.g.Sessions[i], &was, known, &w.g.Sessions[i].UpdatedAt)
	}
	for i := range w.g.Nodes {
		was, known := at(w.was.Nodes, i)
		each(&w.g.Nodes[i], &was, known, &w.g.Nodes[i].UpdatedAt)
	}
	for i := range w.g.Claims {
		was, known := at(w.was.Claims, i)
		each(&w.g.Claims[i], &was, known, nil)
	}
	for i := range w.g.Jobs {
		was, known := at(w.was.Jobs, i)
		each(&w.g.Jobs[i], &was, known, nil)
	}
	for _, e := range w.events {
		each(e, e, false, nil)
	}
	if err != nil || len(w.events) == 0 {
		return err
	}
	return w.TrimEvents(w.ctx, MaxEvents)
}

// at returns the row that was at index i before the change, because a graph only grows.
func at[T any](rows []T, i int) (was T, known bool) {
	if i < len(rows) {
		return rows[i], true
	}
	return was, false
}

// put cleans a row, and inserts it or, if it is known, updates it.
func (w *work) put(r row.Row, known bool) error {
	if err := row.Clean(r); err != nil {
		return err
	}
	if known {
		return w.Update(w.ctx, r)
	}
	return w.Insert(w.ctx, r)
}

// add inserts a row, or fails with overloaded if the thread has MaxRows of its table.
func (w *work) add(r row.Row) error {
	n, err := w.Count(w.ctx, r)
	if err != nil {
		return err
	}
	if n >= MaxRows {
		return full(r.Table(), MaxRows)
	}
	return w.put(r, false)
}

func full(what string, limit int) error {
	return capability.Errorf(capability.CodeOverloaded, "threads", "the thread has %d rows in %s, which is all it may have", limit, what).
		With(ReasonFull, "go on in a new thread")
}

func notFound(thread string) error {
	return capability.Errorf(capability.CodeNotFound, "threads", "there is no thread %q", thread).With(ReasonNotFound,
		"list them with: junctor tasks history --archived")
}

func noSession(id string) error {
	return capability.Errorf(capability.CodeNotFound, "threads", "no thread has a session %q", id).With(ReasonNoSession, "list the sessions")
}

func wrongState(hint, format string, args ...any) error {
	return capability.Errorf(capability.CodeConflict, "threads", format, args...).With(ReasonState, hint)
}

// words returns a list of texts as JSON.
func words(list []string) json.RawMessage {
	raw, err := jsonx.Marshal(list)
	if err != nil || list == nil {
		return nil
	}
	return raw
}
