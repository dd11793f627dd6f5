package upstream

import (
	"context"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/upstreams/oauthclient"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// Add connects to a new upstream, reads its tools and stores and publishes it; on an error
// nothing remains. A disabled upstream is stored without being connected, as is one for
// which a user must log in first. Errors: invalid_input (invalid_upstream,
// secret_missing), conflict (upstream_exists), unavailable.
func (r *Registry) Add(ctx context.Context, by capability.Principal, rec record.Record) (Status, error) {
	if err := rec.Check(); err != nil {
		return Status{}, err
	}
	if err := rec.CheckVariables(); err != nil {
		return Status{}, err
	}
	if rec.Managed != nil {
		return Status{}, capability.Errorf(capability.CodeInvalidInput, "upstreams.add", "only a file in config.d marks an upstream as managed").
			With("invalid_upstream", "leave the member managed out")
	}
	publish, err := r.running()
	if err != nil {
		return Status{}, err
	}
	if err := r.reserve(rec.Name); err != nil {
		return Status{}, err
	}
	defer r.unreserve(rec.Name)
	u, err := r.newUpstream(Saved{Record: rec, Added: r.cfg.Now().UTC()})
	if err != nil {
		return Status{}, err
	}
	for _, name := range rec.Secrets() {
		if _, err := u.secret("", name); err != nil {
			e := *capability.AsError(err)
			e.Code = capability.CodeInvalidInput
			return Status{}, &e
		}
	}
	c, err := u.first(ctx)
	if err != nil && capability.AsError(err).Reason == oauthclient.ReasonLogin {
		e := capability.AsError(err)
		u.state = capability.Availability{State: capability.StateUnauthorized, Reason: e.Message, Login: e.Hint, Since: r.cfg.Now()}
		c, err = nil, nil // stored anyway, because the user can log in only afterwards
	}
	if err != nil {
		return Status{}, err
	}
	undo := func() {
		if c != nil {
			u.close(c)
		}
		u.unfold()
	}
	u.changing.Lock()
	defer u.changing.Unlock()
	if r.cfg.Store != nil {
		s := Saved{Record: rec, Added: u.added}
		for _, p := range u.pins {
			s.Pins = append(s.Pins, p.Pin)
		}
		if err := r.cfg.Store.Save(ctx, s); err != nil {
			undo()
			return Status{}, capability.Wrap(capability.CodeFailed, "upstreams.add", "the upstream could not be saved", err)
		}
	}
	err = publish(u.batch())
	if err == nil {
		err = r.enter(u)
	}
	if err == nil && !r.start(u, c) {
		_, err = r.running()
	}
	if err != nil {
		undo()
		if r.cfg.Store != nil {
			if err := r.cfg.Store.Delete(context.WithoutCancel(ctx), rec.Name); err != nil {
				r.cfg.Logger.Error("an upstream that could not be added is still saved", "upstream", rec.Name, "err", err)
			}
		}
		_ = publish(capability.Batch{Source: u.source()})
		return Status{}, err
	}
	r.recordAdded(ctx, &rec, by)
	return u.status(false), nil
}

// first makes the first connection of a record and reads its lists; nil for a disabled
// one. A list other than tools that cannot be read is only marked to be read again.
func (u *upstream) first(ctx context.Context) (*conn, error) {
	if u.record.Disabled {
		return nil, nil
	}
	c, err := u.dial("")
	if err != nil {
		u.unfold()
		return nil, err
	}
	fail := func(err error) (*conn, error) {
		u.noteFailure(err)
		e := *capability.AsError(u.unreachable(u.limited(c, err)))
		if offer := u.offer(); offer != "" {
			e.Hint = offer
		}
		if text := tail(u.masked(c.client.Stderr())); text != "" {
			e.Details = map[string]any{"stderr": lastLines(text)}
		}
		u.close(c)
		u.unfold()
		return nil, &e
	}
	connecting, cancel := context.WithTimeout(ctx, u.patience())
	defer cancel()
	if c.server, err = c.client.Connect(connecting); err != nil {
		return fail(err)
	}
	close(c.ready)
	for _, kind := range ingest.Kinds() {
		limit := listTimeout
		if kind != ingest.Tool {
			limit = addTimeout
		}
		listing, cancel := context.WithTimeout(ctx, limit)
		list, err := u.list(listing, c, kind)
		cancel()
		switch {
		case err != nil && (kind == ingest.Tool || ctx.Err() != nil):
			return fail(err)
		case err != nil:
			u.listed[kind] = capability.AsError(err).Message
			u.changed(kind) // the watcher reads it again
			continue
		}
		u.pins.Reconcile(kind, list.Definitions, &u.record, u.reg.cfg.Now())
		u.listings[kind] = list
	}
	u.server, u.current, u.synced = c.server, c, u.reg.cfg.Now()
	u.attempt = nil
	u.state = capability.Availability{State: capability.StateReady, Since: u.reg.cfg.Now()}
	return c, nil
}

// lastLines returns the end of a program's error output, for operators.
func lastLines(s string) string {
	lines := strings.Split(strings.TrimSpace(ingest.Shown(s)), "\n")
	return text.CutBytes(strings.Join(lines[max(0, len(lines)-maxShownLines):], "\n"), maxShownText)
}

// reserve reserves a name while it is being added; conflict if it exists or is reserved.
func (r *Registry) reserve(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.upstreams[name]; there || r.adding[name] {
		return capability.Errorf(capability.CodeConflict, "upstreams.add", "there is an upstream %s already", name).
			With("upstream_exists", "take it away first: junctor mcp remove "+name)
	}
	if len(r.upstreams)+len(r.adding) >= maxUpstreams {
		return capability.Errorf(capability.CodeOverloaded, "upstreams.add", "there are %d upstreams, which is the most",
			maxUpstreams).With("too_many_upstreams", "remove one")
	}
	r.adding[name] = true
	delete(r.logs, name)
	return nil
}

func (r *Registry) unreserve(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.adding, name)
}

func (r *Registry) enter(u *upstream) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.publish == nil {
		return capability.Errorf(capability.CodeUnavailable, "upstreams", "the server is stopping").With("service_unavailable",
			"try again in a moment")
	}
	r.upstreams[u.record.Name] = u
	return nil
}

// Remove deletes an upstream with its pins and closes its connections. Its folder is
// deleted only if it is empty. Errors: not_found; conflict (managed_by_file).
func (r *Registry) Remove(ctx context.Context, by capability.Principal, name string) error {
	u, err := r.get(name)
	if err != nil {
		return err
	}
	if err := u.free("upstreams.remove"); err != nil {
		return err
	}
	return r.remove(ctx, by, u)
}

func (r *Registry) remove(ctx context.Context, by capability.Principal, u *upstream) error {
	if r.cfg.Store != nil {
		if err := r.cfg.Store.Delete(ctx, u.record.Name); err != nil {
			return capability.Wrap(capability.CodeFailed, "upstreams.remove", "the upstream could not be removed from the store", err)
		}
	}
	if !r.leave(u, false) {
		return nil // another caller removed it first
	}
	r.record(ctx, audit.UpstreamRemoved, &u.record, by, audit.OutcomeSuccess)
	return nil
}

// leave removes an upstream from the catalog and waits until its connections are closed. keep
// keeps its tokens and its folder. It returns false if it was not registered.
func (r *Registry) leave(u *upstream, keep bool) bool {
	r.mu.Lock()
	was := r.upstreams[u.record.Name] == u
	if was {
		delete(r.upstreams, u.record.Name)
		r.adding[u.record.Name] = true // it must not be added again before it has ended
	}
	publish := r.publish
	r.mu.Unlock()
	if !was {
		return false
	}
	defer r.unreserve(u.record.Name)
	u.changing.Lock()
	u.mu.Lock()
	u.gone = true
	cancel := u.cancel
	u.mu.Unlock()
	if publish != nil {
		if err := publish(capability.Batch{Source: u.source()}); err != nil {
			r.cfg.Logger.Error("an upstream could not be taken out of the catalog", "upstream", u.record.Name, "err", err)
		}
	}
	u.changing.Unlock()
	if cancel != nil {
		cancel()
		<-u.dead
	}
	if !keep {
		u.unfold()
	}
	return true
}

// Restart closes the connections of an upstream and connects again, even if it had failed
// permanently, and waits for the connection. Errors: not_found, conflict
// (upstream_disabled), and those of connecting.
func (r *Registry) Restart(ctx context.Context, by capability.Principal, name string) (Status, error) {
	u, err := r.get(name)
	if err != nil {
		return Status{}, err
	}
	if u.record.Disabled {
		return Status{}, capability.Errorf(capability.CodeConflict, "upstreams.restart", "the upstream %s is disabled",
			name).With("upstream_disabled", "enable it with: junctor mcp set "+name+" --disabled=false")
	}
	a := u.again()
	if a == nil {
		return Status{}, u.unavailable()
	}
	ctx, cancel := context.WithTimeout(ctx, 2*u.patience())
	defer cancel()
	select {
	case <-a.done:
		err = a.err
	case <-u.dead:
		err = u.unavailable()
	case <-ctx.Done():
		err = capability.AsError(ctx.Err())
	}
	if err != nil {
		return Status{}, err
	}
	return u.brief(), nil
}

// again makes the watcher connect again, and returns its attempt.
func (u *upstream) again() *attempt {
	u.mu.Lock()
	u.restart = true
	a := u.attempt
	if u.current != nil { // callers wait for the next connection from now on
		u.current = nil
		a = &attempt{done: make(chan struct{})}
		u.attempt = a
	} else if a != nil { // a new attempt, because the current one may be ending
		a = &attempt{done: make(chan struct{})}
		old := u.attempt
		u.attempt = a
		old.err = nil
		close(old.done)
	}
	u.mu.Unlock()
	u.poke()
	return a
}

// Selection selects definitions: all that wait, those of one kind, or one.
type Selection struct {
	Kind ingest.Kind `json:"kind,omitempty"` // "": any
	Name string      `json:"name,omitempty"` // "": all
	// Pin is the pin that the operator has seen. If set, another one is a conflict.
	Pin string `json:"pin,omitempty"`
}

// Approved describes one approved definition.
type Approved struct {
	Kind ingest.Kind     `json:"kind"`
	Name string          `json:"name"`
	Was  ingest.PinState `json:"was"`
	Pin  string          `json:"pin"`
}

// localName returns the name that an upstream itself has for a definition, which people also name
// SERVER/TOOL.
func localName(upstream, name string, list []*ingest.PinRow) string {
	local, ok := strings.CutPrefix(name, upstream+"/")
	if !ok || slices.ContainsFunc(list, func(p *ingest.PinRow) bool { return p.Name == name }) {
		return name
	}
	return local
}

// Approve publishes the current form of held and quarantined definitions that the upstream
// lists, and stores that. Errors: not_found (definition_not_found), invalid_input (kind),
// conflict (pin_changed), failed (nothing was changed).
func (r *Registry) Approve(ctx context.Context, by capability.Principal, name string, which Selection) ([]Approved, error) {
	u, err := r.get(name)
	if err != nil {
		return nil, err
	}
	if which.Kind != "" && !slices.Contains(ingest.Kinds(), which.Kind) {
		return nil, capability.Errorf(capability.CodeInvalidInput, "upstreams.approve",
			"%.40q is not a kind: tool, prompt, resource, resource-template or instructions", which.Kind)
	}
	u.changing.Lock()
	defer u.changing.Unlock()
	out := []Approved{}
	var save []*ingest.PinRow
	var undo []ingest.PinRow
	found := false
	which.Name = localName(name, which.Name, u.pins.Sorted())
	for _, p := range u.pins.Sorted() {
		if which.Kind != "" && p.Kind != which.Kind || which.Name != "" && p.Name != which.Name || !p.Listed {
			continue
		}
		found = true
		offered := p.Pin.Pin
		if p.State == ingest.Held {
			offered = p.Offered
		}
		if which.Pin != "" && which.Pin != offered {
			return nil, capability.Errorf(capability.CodeConflict, "upstreams.approve", "%s has changed once more since it was looked at", p.Name).
				With("pin_changed", "look again: junctor mcp diff "+name)
		}
		before := *p
		if p.Approve() {
			undo, save = append(undo, before), append(save, p)
			out = append(out, Approved{Kind: p.Kind, Name: p.Name, Was: before.State, Pin: p.Pin.Pin})
		}
	}
	if !found && which.Name != "" {
		return nil, capability.Errorf(capability.CodeNotFound, "upstreams.approve", "%s lists no %q", name, which.Name).
			With("definition_not_found", "see: junctor mcp show "+name)
	}
	if r.cfg.Store != nil && len(save) > 0 {
		pins := make([]ingest.Pin, len(save))
		for i, p := range save {
			pins[i] = p.Pin
		}
		if err := r.cfg.Store.SavePins(ctx, name, pins, nil); err != nil {
			for i, p := range save {
				*p = undo[i]
			}
			return nil, capability.Wrap(capability.CodeFailed, "upstreams.approve", "the approval could not be saved", err)
		}
	}
	for i, p := range save {
		r.record(ctx, audit.PinApproved, &u.record, by, audit.OutcomeSuccess,
			append(pinAttrs(&p.Pin, p.Pin.Pin), audit.Attr{Key: "was", Value: string(undo[i].State)})...)
	}
	u.publish()
	return out, nil
}
