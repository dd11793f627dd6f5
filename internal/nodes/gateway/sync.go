package gateway

import (
	"cmp"
	"context"
	"time"

	"github.com/junctor-run/junctor/internal/base/pause"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// watch watches the bucket until ctx ends. A watch that ends is opened again, and each
// snapshot is compared with the whole table.
func (s *shared) watch(ctx context.Context) error {
	wait := minRetryDelay
	for {
		for c, err := range s.bucket.Watch(ctx) {
			if messaging.Is(err, messaging.ReasonClosed) {
				return err
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				s.g.cfg.Logger.Warn("the watch of the table of nodes ended", "err", err)
				break
			}
			s.changed(ctx, c)
			wait = minRetryDelay
		}
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, maxRetryDelay)
	}
}

func (s *shared) changed(ctx context.Context, c messaging.Change) {
	switch c.Kind {
	case messaging.Reset:
		s.mu.Lock()
		s.inside, s.fresh = true, nil
		for _, r := range s.rows { // the bucket may have been created again, with new revisions
			r.shown, r.revision = false, 0
		}
		s.mu.Unlock()
	case messaging.Put:
		s.put(ctx, c.Entry)
	case messaging.Deleted:
		s.deleted(ctx, c.Entry)
	case messaging.Synced:
		s.compare(ctx)
	}
}

func (s *shared) put(ctx context.Context, e messaging.Entry) {
	rec, err := s.codec.Decode(e.Value)
	if err != nil || keyOf(rec.ID) != e.Key {
		s.take(ctx, e) // logs the error
		return
	}
	_, known := s.g.table.Record(rec.ID)
	s.mu.Lock()
	found := s.inside && !known && rec.Gateway != s.g.instance // not one that is just being admitted here
	s.mu.Unlock()
	enter := s.g.table.Take
	if found {
		enter = s.g.table.Remember
	}
	s.g.change(ctx, func() []fleet.Event { return enter(rec) })
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.row(rec.ID)
	r.revision, r.written, r.shown = max(r.revision, e.Revision), s.g.cfg.Fleet.Now(), true
	if found {
		s.fresh = append(s.fresh, rec)
	}
}

func (s *shared) deleted(ctx context.Context, e messaging.Entry) {
	s.mu.Lock()
	r := s.rows[e.Key]
	if r == nil || e.Revision < r.revision || r.removing {
		s.mu.Unlock()
		return
	}
	// Claimed, so that no other goroutine finds the entry missing now and treats the removal
	// as its own.
	r.revision, r.removing = 0, true
	s.mu.Unlock()
	s.forget(ctx, r)
}

// forget removes a node whose entry another gateway has deleted. That gateway's event has
// the actual reason; here it is derived from the node's status.
func (s *shared) forget(ctx context.Context, r *row) {
	if n, ok := s.g.table.Get(r.node); ok {
		reason := map[fleet.Status]string{fleet.Disconnected: fleet.ReasonLost, fleet.Draining: fleet.ReasonDrained}[n.Status]
		reason = cmp.Or(reason, fleet.ReasonLeft)
		s.g.change(ctx, func() []fleet.Event { return s.g.table.Drop(n.ID, n.Epoch, reason, false) })
		if reason == fleet.ReasonLeft { // or removed by an operator
			s.g.dismiss(n.ID)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.removing = false
	s.tidy(r)
}

// compare ends a snapshot: nodes that it does not contain are removed. A node that still
// sends heartbeats is written to the bucket again, because the bucket has lost it.
func (s *shared) compare(ctx context.Context) {
	s.mu.Lock()
	var missing []*row
	for _, r := range s.rows {
		if !r.shown && r.writing == 0 && !r.removing {
			missing = append(missing, r)
		}
	}
	fresh := s.fresh
	s.synced, s.inside, s.fresh = true, false, nil
	s.mu.Unlock()
	for _, r := range missing {
		n, ok := s.g.table.Get(r.node)
		if ok && n.Status != fleet.Disconnected && !s.g.table.Late(r.node, 3*s.g.cfg.Heartbeat) {
			s.g.inLane(ctx, r.node, func(ctx context.Context) { s.restore(ctx, r.node) })
			s.g.probe(ctx, r.node, n.Epoch)
			continue
		}
		if s.claim(r.node) {
			s.forget(ctx, r)
		}
	}
	for _, rec := range fresh { // request a heartbeat from nodes that are new to the table
		s.g.control(ctx, rec.ID, wire.Control{Epoch: rec.Epoch, Type: wire.ControlBeat})
	}
}

// restore writes an entry that the bucket has lost, unless another gateway has done so.
func (s *shared) restore(ctx context.Context, node string) {
	err := s.write(ctx, node, func() (fleet.Record, bool, error) {
		r, there := s.g.table.Record(node)
		return r, there && s.revision(node) == 0, nil
	}, nil)
	if err != nil {
		s.g.cfg.Logger.Warn("the entry of a node could not be written again", "node", node, "err", err)
	}
}

// refresh writes entries again that have not changed for Config.Refresh, which repairs
// differences between bucket and table. The gateway that admitted the node does so; the
// others do if that one does not.
func (s *shared) refresh(ctx context.Context) error {
	for {
		if err := pause.For(ctx, s.g.cfg.Refresh/10); err != nil {
			return err
		}
		if s.g.deaf.Load() || !s.isSynced() {
			continue
		}
		now := s.g.cfg.Fleet.Now()
		for _, n := range s.g.table.List(fleet.Filter{Suspect: true}) {
			limit := s.g.cfg.Refresh
			if n.Gateway != s.g.instance {
				limit += limit / 5
			}
			s.mu.Lock()
			r := s.row(n.ID)
			lost, old := r.revision == 0 && !r.removing, now.Sub(r.written) >= limit
			s.mu.Unlock()
			if n.Status == fleet.Disconnected || !lost && !old {
				continue
			}
			s.g.inLane(ctx, n.ID, func(ctx context.Context) { s.again(ctx, n.ID, limit) })
		}
	}
}

// again writes an entry that is missing or was last written at least limit ago.
func (s *shared) again(ctx context.Context, node string, limit time.Duration) {
	err := s.write(ctx, node, func() (fleet.Record, bool, error) {
		rec, there := s.g.table.Record(node)
		s.mu.Lock()
		defer s.mu.Unlock()
		r := s.row(node)
		return rec, there && (r.revision == 0 || s.g.cfg.Fleet.Now().Sub(r.written) >= limit), nil
	}, nil)
	if err != nil {
		s.g.cfg.Logger.Warn("the entry of a node could not be refreshed", "node", node, "err", err)
	}
}
