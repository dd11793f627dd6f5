package upstream

import (
	"cmp"
	"context"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/managed"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// free returns an error if a file declares the upstream, so that only the file may change it.
func (u *upstream) free(op string) error {
	return u.record.Managed.Refuse(op, "the upstream "+u.record.Name)
}

// Declared returns the upstreams that files of a gateway declare, with the files by names.
func (r *Registry) Declared(gateway string) map[string]string {
	out := make(map[string]string)
	for _, u := range r.all() {
		if m := u.record.Managed; m.OwnedBy(gateway) {
			out[u.record.Name] = m.File
		}
	}
	return out
}

// declaration decodes the record that a file declares: spec is its JSON, without name and mark.
func declaration(mark managed.Mark, name string, spec []byte) (rec record.Record, err error) {
	if err := jsonx.UnmarshalStrict(spec, &rec); err != nil {
		return rec, capability.Wrap(capability.CodeInvalidInput, "upstreams.declare", err.Error(), err).With("invalid_upstream",
			"the members are those of POST /api/v1/upstreams in docs/upstreams.md")
	}
	if rec.Name != "" || rec.Managed != nil {
		return rec, capability.Errorf(capability.CodeInvalidInput, "upstreams.declare", "name and managed are not members of a declaration").
			With("invalid_upstream", "the key above it is its name")
	}
	rec.Name, rec.Managed = name, &mark
	if err := rec.Check(); err != nil {
		return rec, err
	}
	return rec, rec.CheckVariables()
}

// Compare checks a declaration, and compares it with the upstream of its name. Errors:
// invalid_input; conflict (managed_by_file) if a user added that upstream.
func (r *Registry) Compare(mark managed.Mark, name string, spec []byte) (managed.Difference, error) {
	rec, err := declaration(mark, name, spec)
	if err != nil {
		return managed.Difference{}, err
	}
	u, err := r.get(name)
	if err != nil {
		return managed.Difference{}, nil //nolint:nilerr // it does not exist
	}
	if u.record.Managed == nil {
		return managed.Difference{}, managed.UserOwned("upstreams.declare", "the upstream "+name)
	}
	d, err := managed.Compare(u.record, rec, u.record.Managed, rec.Managed)
	u.mu.Lock()
	defer u.mu.Unlock()
	if state := u.state; state.State != capability.StateReady && !u.record.Disabled {
		d.Away = cmp.Or(state.Reason, string(state.State))
	}
	return d, err
}

// Declare adds the upstream that a file declares, or changes it and keeps its approved definitions.
// Unlike [Registry.Add], it stores an upstream that cannot be connected, which is then tried again
// like one that was lost. One for which a user must log in first is not an error. Errors: those of
// Compare; overloaded; those of connecting.
func (r *Registry) Declare(ctx context.Context, by capability.Principal, mark managed.Mark, name string, spec []byte) error {
	err := r.declare(ctx, by, mark, name, spec)
	if err == nil {
		return nil
	}
	if u, gone := r.get(name); gone == nil && u.tokens != nil && u.brief().State == capability.StateUnauthorized {
		return nil
	}
	return err
}

func (r *Registry) declare(ctx context.Context, by capability.Principal, mark managed.Mark, name string, spec []byte) error {
	difference, err := r.Compare(mark, name, spec)
	if err != nil || difference.Exists && len(difference.Members) == 0 {
		return err
	}
	rec, err := declaration(mark, name, spec)
	if err != nil {
		return err
	}
	if _, err := r.running(); err != nil {
		return err
	}
	saved := Saved{Record: rec, Added: r.cfg.Now().UTC()}
	if u, err := r.get(name); err == nil {
		if u.record.Managed == nil { // added meanwhile
			return managed.UserOwned("upstreams.declare", "the upstream "+name)
		}
		_, err = r.replace(ctx, by, u, rec)
		return err
	}
	if err := r.reserve(name); err != nil {
		return err
	}
	defer r.unreserve(name)
	u, err := r.newUpstream(saved)
	if err != nil {
		return err
	}
	if r.cfg.Store != nil {
		if err := r.cfg.Store.Save(ctx, saved); err != nil {
			return capability.Wrap(capability.CodeFailed, "upstreams.declare", "the upstream could not be saved", err)
		}
	}
	r.recordAdded(ctx, &rec, by)
	_, err = r.begin(ctx, by, u)
	return err
}

// Withdraw removes an upstream that a file of a gateway declared. Others stay.
func (r *Registry) Withdraw(ctx context.Context, by capability.Principal, gateway, name string) error {
	u, err := r.get(name)
	if err != nil || !u.record.Managed.OwnedBy(gateway) {
		return nil //nolint:nilerr // it is gone already
	}
	return r.remove(ctx, by, u)
}
