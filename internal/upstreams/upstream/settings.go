package upstream

import (
	"context"
	"strconv"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// Settings are the settings of an upstream that can be changed. Those that are nil stay.
type Settings struct {
	HintsTrusted     *bool   `json:"hints_trusted,omitempty"`
	Trust            *string `json:"trust,omitempty"`
	ChangedPin       *string `json:"changed_pin,omitempty"`
	Sampling         *string `json:"sampling,omitempty"`
	Isolation        *string `json:"isolation,omitempty"`
	TimeoutMS        *int64  `json:"timeout_ms,omitempty"`
	IdleTimeoutMS    *int64  `json:"idle_timeout_ms,omitempty"`
	ConnectTimeoutMS *int64  `json:"connect_timeout_ms,omitempty"`
	Disabled         *bool   `json:"disabled,omitempty"`
}

// apply sets the members of rec that s has, and reports whether one differs.
func (s Settings) apply(rec *record.Record) bool {
	changed := assign(&rec.HintsTrusted, s.HintsTrusted)
	changed = assign(&rec.Trust, s.Trust) || changed
	changed = assign(&rec.ChangedPin, s.ChangedPin) || changed
	changed = assign(&rec.Sampling, s.Sampling) || changed
	changed = assign(&rec.Isolation, s.Isolation) || changed
	changed = assign(&rec.TimeoutMS, s.TimeoutMS) || changed
	changed = assign(&rec.IdleTimeoutMS, s.IdleTimeoutMS) || changed
	changed = assign(&rec.ConnectTimeoutMS, s.ConnectTimeoutMS) || changed
	return assign(&rec.Disabled, s.Disabled) || changed
}

func assign[T comparable](to, from *T) bool {
	if from == nil || *from == *to {
		return false
	}
	*to = *from
	return true
}

// Set changes settings of an upstream and connects to it again; its approved definitions and its
// login are kept. If the connection fails, the settings are stored nevertheless, and the error is
// returned. Errors: not_found, invalid_input, conflict (managed_by_file), and those of connecting.
func (r *Registry) Set(ctx context.Context, by capability.Principal, name string, to Settings) (Status, error) {
	u, err := r.get(name)
	if err != nil {
		return Status{}, err
	}
	if err := u.free("upstreams.set"); err != nil {
		return Status{}, err
	}
	if u.damaged != "" {
		return Status{}, capability.Errorf(capability.CodeConflict, "upstreams.set", "the record of %s cannot be used: %s", name, u.damaged).
			With("upstream_disabled", "remove it and add it again")
	}
	rec := u.record
	if !to.apply(&rec) {
		return u.brief(), nil
	}
	if err := rec.Check(); err != nil {
		return Status{}, err
	}
	return r.replace(ctx, by, u, rec)
}

// replace stores another record for an upstream, with the same definitions, and connects to it
// again unless it is disabled.
func (r *Registry) replace(ctx context.Context, by capability.Principal, u *upstream, rec record.Record) (Status, error) {
	name := rec.Name
	u.changing.Lock()
	s := Saved{Record: rec, Added: r.cfg.Now().UTC()} // another time of adding makes other gateways read it again
	for _, p := range u.pins {
		s.Pins = append(s.Pins, p.Pin)
	}
	next, err := r.newUpstream(s)
	if err != nil {
		u.changing.Unlock()
		return Status{}, err
	}
	if r.cfg.Store != nil {
		err = r.cfg.Store.Save(ctx, s)
	}
	u.changing.Unlock()
	if err != nil {
		return Status{}, capability.Wrap(capability.CodeFailed, "upstreams.set", "the upstream could not be saved", err)
	}
	// Tokens that nothing uses any more are removed.
	if !r.leave(u, u.tokens == nil || rec.OAuth != nil && rec.OAuth.Login == u.record.OAuth.Login) {
		return Status{}, capability.Errorf(capability.CodeConflict, "upstreams.set", "the upstream %s was removed meanwhile", name).
			With("upstream_not_found", "")
	}
	r.recordAdded(ctx, &rec, by)
	return r.begin(ctx, by, next)
}

// begin enters an upstream that is stored, and connects to it unless it is disabled. If that fails,
// it stays and is tried again.
func (r *Registry) begin(ctx context.Context, by capability.Principal, u *upstream) (Status, error) {
	if err := r.enter(u); err != nil {
		return Status{}, err
	}
	u.show()
	if !r.start(u, nil) {
		_, err := r.running()
		return Status{}, err
	}
	if u.record.Disabled {
		return u.brief(), nil
	}
	return r.Restart(ctx, by, u.record.Name)
}

// recordAdded records the settings of an upstream that was added or changed.
func (r *Registry) recordAdded(ctx context.Context, rec *record.Record, by capability.Principal) {
	attrs := []audit.Attr{
		{Key: "trust", Value: rec.Trust}, {Key: "isolation", Value: rec.Isolation}, {Key: "confinement", Value: rec.Confinement},
	}
	if rec.Managed != nil {
		attrs = append(attrs, audit.Attr{Key: "managed", Value: rec.Managed.File})
	}
	if rec.HintsTrusted {
		attrs = append(attrs, audit.Attr{Key: "hints_trusted", Value: strconv.FormatBool(true)})
	}
	r.record(ctx, audit.UpstreamAdded, rec, by, audit.OutcomeSuccess, attrs...)
}
