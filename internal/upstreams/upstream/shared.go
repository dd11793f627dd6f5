package upstream

import (
	"context"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// restore returns the stored upstreams. One that cannot be restored is logged and left out.
func (r *Registry) restore(ctx context.Context) (list []*upstream, err error) {
	if r.cfg.Store == nil {
		return nil, nil
	}
	saved, err := r.cfg.Store.Upstreams(ctx)
	for _, s := range saved {
		if u := r.restoreOne(s); u != nil {
			list = append(list, u)
		}
	}
	return list, err
}

func (r *Registry) restoreOne(s Saved) *upstream {
	undecided := s.Record.Confinement == "" && len(s.Record.Command) > 0
	if undecided {
		// It was stored before programs were confined, without the folders that it needs.
		// Confined, it would start and fail later, so it runs as before and is listed as such.
		s.Record.Confinement = record.Unconfined
		if record.IsContainer(s.Record.Command) {
			s.Record.Confinement = record.Container
		}
	}
	if err := s.Record.Check(); err != nil && s.Damaged == "" {
		s.Damaged, s.Record.Disabled = capability.AsError(err).Message, true
	}
	if s.Damaged != "" {
		r.cfg.Logger.Error("the record of an upstream cannot be used", "upstream", s.Record.Name, "reason", s.Damaged)
		s.Record.URL, s.Pins = "", nil
	}
	u, err := r.newUpstream(s)
	if err != nil {
		r.cfg.Logger.Error("an upstream was not restored", "upstream", s.Record.Name, "err", err)
		return nil
	}
	u.undecided = undecided && s.Record.Confinement == record.Unconfined
	return u
}

// Refresh applies the changes that other servers on the same store have made: added and
// removed upstreams, and approvals.
func (r *Registry) Refresh(ctx context.Context) error {
	if _, err := r.running(); err != nil || r.cfg.Store == nil {
		return nil //nolint:nilerr // Run reads them
	}
	saved, err := r.cfg.Store.Upstreams(ctx)
	if err != nil {
		return err
	}
	known := make(map[string]*Saved, len(saved))
	for i := range saved {
		known[saved[i].Record.Name] = &saved[i]
	}
	for _, u := range r.all() {
		if s := known[u.record.Name]; s == nil || !s.Added.Equal(u.added) {
			r.leave(u, s != nil)
		} else {
			u.adopt(s.Pins)
		}
	}
	for _, s := range saved {
		if r.reserve(s.Record.Name) != nil {
			continue // it exists, or is being added here
		}
		if u := r.restoreOne(s); u != nil && r.enter(u) == nil {
			u.show()
			r.start(u, nil)
		}
		r.unreserve(s.Record.Name)
	}
	return r.EndLogins(ctx)
}

// adopt applies approvals that another server stored, if they are for the pin that waits here.
func (u *upstream) adopt(approved []ingest.Pin) {
	u.changing.Lock()
	defer u.changing.Unlock()
	changed := false
	for _, s := range approved {
		p := u.pins[ingest.PinKey{Kind: s.Kind, Name: s.Name}]
		switch {
		case p == nil || p.State == ingest.Published || s.State != ingest.Published:
		case p.State == ingest.Held && p.Offered == s.Pin, p.State == ingest.Quarantined && p.Pin.Pin == s.Pin:
			changed = p.Approve() || changed
		}
	}
	if changed {
		u.publish()
	}
}

func (r *Registry) all() []*upstream {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*upstream, 0, len(r.upstreams))
	for _, u := range r.upstreams {
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b *upstream) int { return strings.Compare(a.record.Name, b.record.Name) })
	return list
}
