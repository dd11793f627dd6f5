package endpoint

import (
	"cmp"
	"context"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
)

// Connect reads the endpoint's offer, starts its modules, publishes them and then stores
// the endpoint. It replaces an endpoint of the same id or URL, which stays in force until
// the new one is published. A failure, also that of a module's init, restores the previous
// state: started modules are stopped in reverse order, and modules that were stopped to
// make room are started again. The endpoint is asked without holding a lock, so that a
// silent one does not block other callers.
func (r *Registry) Connect(ctx context.Context, req Request) (Status, Synced, error) {
	if _, err := r.running(); err != nil {
		return Status{}, Synced{}, err
	}
	anonymous := req.ID == ""
	if err := r.normalise(&req); err != nil {
		return Status{}, Synced{}, err
	}
	ep, err := r.newEndpoint(req)
	if err != nil {
		return Status{}, Synced{}, err
	}
	if err := mayReplace(ep, r.replaced); err != nil {
		return Status{}, Synced{}, err
	}
	askCtx, cancel := context.WithTimeout(ctx, cmp.Or(req.Timeout, r.cfg.Timeout))
	offer, err := ep.ask(askCtx)
	cancel()
	if err != nil {
		err = connectFailed(ep, err)
		r.trust.add(r.trustRecord(ep, req.mode(), Synced{}, err))
		if req.managed != nil {
			err = r.saveUnreached(ctx, req, err)
		}
		return Status{}, Synced{}, err
	}
	in := installing{r: r, ep: ep, next: offer, req: req}
	if err := in.run(ctx, anonymous); err != nil {
		r.trust.add(r.trustRecord(in.ep, req.mode(), in.synced, err))
		return Status{}, Synced{}, err
	}
	for _, gone := range in.elsewhere() {
		r.disposeElsewhere(ctx, gone)
	}
	return in.ep.status(), in.synced, nil
}

// installing is the state of one connect after the endpoint has answered.
type installing struct {
	r      *Registry
	ep     *Endpoint
	next   *offering
	req    Request
	synced Synced

	old, moved *Endpoint // with the same id; with another id, but the same URL
	change     *change
}

// run calls install while it holds the gate of the endpoint's URL.
func (in *installing) run(ctx context.Context, anonymous bool) error {
	r := in.r
	unlock, err := r.gates.lock(ctx, in.ep.baseURL)
	if err != nil {
		return err
	}
	defer unlock()
	if err := in.install(ctx, anonymous); err != nil {
		return err
	}
	r.dispose(ctx, in.change.gone)
	return nil
}

// install judges the endpoint, calls the hooks without holding changing, and commits. If
// that fails, it undoes the hooks and restores the previous state. If anonymous, the id was
// chosen by default and is chosen again if it has been used meanwhile.
func (in *installing) install(ctx context.Context, anonymous bool) error {
	r := in.r
	r.changing.Lock()
	defer r.changing.Unlock()
	if anonymous { // another caller may have taken the id meanwhile
		if id := r.freeID(in.req.Provider, in.req.BaseURL); id != in.req.ID {
			in.req.ID = id
			var err error
			if in.ep, err = r.newEndpoint(in.req); err != nil {
				return err
			}
		}
	}
	if err := in.judge(ctx); err != nil {
		return err
	}
	if !in.change.calls() {
		return in.commit(ctx)
	}
	same := in.sameServer()
	if same != nil {
		same.setDraining(in.change.reloading())
		defer same.setDraining(nil)
		if publish, err := r.running(); err == nil {
			_ = publish(same.batch()) // if it fails, calls may reach a stopped module
		}
	}
	r.changing.Unlock()
	err := in.change.run(ctx, true)
	r.changing.Lock()
	if err == nil {
		err = in.again()
	}
	if err == nil {
		err = in.commit(ctx)
	}
	if err == nil {
		return nil
	}
	r.changing.Unlock() // no request is sent with the lock held
	lost := in.change.undo(ctx)
	r.changing.Lock()
	if same == nil {
		return err
	}
	same.setDraining(nil)
	if publish, gone := r.current(same); gone == nil {
		// What could not be started again is out; its watcher tries it again.
		same.offer.Store(same.offer.Load().lose(lost))
		same.setStarted(dropLive(same.started(), lost))
		_ = publish(same.batch())
		r.publishModels(publish)
		if len(lost) > 0 {
			same.wake()
		}
	}
	return err
}

// sameServer returns the replaced endpoint if it has the same URL, else nil.
func (in *installing) sameServer() *Endpoint {
	switch {
	case in.old != nil && in.old.baseURL == in.ep.baseURL:
		return in.old
	case in.moved != nil:
		return in.moved
	}
	return nil
}

// judge decides whether the endpoint may be connected, and plans the change. The caller
// holds changing.
func (in *installing) judge(ctx context.Context) error {
	r := in.r
	if _, err := r.running(); err != nil {
		return err
	}
	if err := mayReplace(in.ep, r.replaced); err != nil {
		return err
	}
	in.old, in.moved = r.replaced(in.ep)
	same := in.sameServer()
	var before *offering
	switch {
	case in.old != nil:
		before = in.old.offer.Load()
	case same != nil && in.req.KeepMissing: // moved to another id together with its modules
		before = same.offer.Load()
	}
	in.synced = in.ep.judge(in.next, before, in.req.KeepMissing && same != nil)
	if err := refused(in.synced.TrustDecisions); err != nil {
		r.recordTrust(ctx, in.req.By, in.synced.TrustDecisions)
		return err
	}
	if err := r.collides(in.ep, in.next.modules, in.old, in.moved); err != nil {
		return err
	}
	var began []live
	if same != nil {
		if state := same.availability().State; state != capability.StateUnavailable && state != capability.StateStarting {
			began = same.started()
		}
	}
	in.change = r.plan(in.ep, began, in.next)
	return nil
}

// again repeats the checks whose outcome may have changed while the modules were started.
func (in *installing) again() error {
	r := in.r
	if old, moved := r.replaced(in.ep); old != in.old || moved != in.moved {
		return capability.Errorf(capability.CodeConflict, "endpoints.connect",
			"endpoint %s was connected or disconnected by another caller meanwhile", in.ep.id).
			With("registration_conflict", "look at what is connected now, and try again")
	}
	return r.collides(in.ep, in.next.modules, in.old, in.moved)
}

// commit publishes and stores ep in place of the endpoints with its id or URL. The caller
// holds changing.
func (in *installing) commit(ctx context.Context) error {
	r, ep, old, moved := in.r, in.ep, in.old, in.moved
	publish, err := r.running()
	if err != nil {
		return err
	}
	restore := func() { // the catalog accepted the previous batches before
		back := capability.Batch{Source: ep.source()}
		if old != nil {
			back = old.batch()
		}
		_ = publish(back)
		if moved != nil {
			_ = publish(moved.batch())
		}
	}
	ep.offer.Store(in.next)
	ep.setStarted(in.change.after)
	ep.markUp(r.cfg.Now(), nil)
	if moved != nil {
		// moved is withdrawn first, because its modules would collide with their copies.
		if err := publish(capability.Batch{Source: moved.source()}); err != nil {
			return err
		}
	}
	if err := publish(ep.batch()); err != nil {
		restore()
		return err
	}
	if in.req.Persist {
		if err := r.save(ctx, ep, old, in.req); err != nil {
			restore()
			return err
		}
	}
	if !r.watch(ep) {
		restore()
		return errStopped()
	}
	r.mu.Lock()
	for _, gone := range []*Endpoint{old, moved} {
		if gone != nil {
			delete(r.endpoints, gone.id)
			gone.stop()
		}
	}
	r.endpoints[ep.id] = ep
	r.mu.Unlock()
	for _, gone := range []*Endpoint{old, moved} {
		if err := r.forgetReplaced(ctx, gone, ep); err != nil {
			r.cfg.Logger.Error("something of a replaced endpoint is still saved", "endpoint", gone.id, "err", err)
		}
	}
	r.publishModels(publish)
	r.record(ctx, audit.EndpointConnected, ep.id, in.req.By, "")
	r.recordTrust(ctx, in.req.By, in.synced.TrustDecisions)
	r.trust.add(r.trustRecord(ep, in.req.mode(), in.synced, nil))
	return nil
}

// elsewhere returns the replaced endpoints whose URL differs from the new one's: their
// modules are still started there.
func (in *installing) elsewhere() (list []*Endpoint) {
	for _, gone := range []*Endpoint{in.old, in.moved} {
		if gone != nil && gone.baseURL != in.ep.baseURL {
			list = append(list, gone)
		}
	}
	return list
}

// disposeElsewhere stops the modules of an endpoint that is no longer connected, unless
// the same server was connected again meanwhile. An unavailable server gets no request.
func (r *Registry) disposeElsewhere(ctx context.Context, gone *Endpoint) {
	if state := gone.availability().State; state == capability.StateUnavailable || state == capability.StateStarting {
		return
	}
	unlock, err := r.gates.lock(context.WithoutCancel(ctx), gone.baseURL)
	if err != nil {
		return
	}
	defer unlock()
	for _, ep := range r.all() {
		if ep.baseURL == gone.baseURL {
			return
		}
	}
	r.dispose(ctx, gone.started())
}

// Disconnect withdraws the endpoint's offer, deletes its record and stops its modules. A
// failure to stop them does not prevent the removal. Errors: not_found; conflict
// (managed_by_file).
func (r *Registry) Disconnect(ctx context.Context, by capability.Principal, id string) error {
	return r.disconnect(ctx, by, id, func(ep *Endpoint) error { return ep.managed.Refuse("endpoints.disconnect", "the endpoint "+id) })
}

// disconnect disconnects an endpoint if may returns nil for it.
func (r *Registry) disconnect(ctx context.Context, by capability.Principal, id string, may func(*Endpoint) error) error {
	ep, err := r.withdraw(ctx, by, id, may)
	if err != nil {
		return err
	}
	r.disposeElsewhere(ctx, ep)
	return nil
}

// withdraw removes the endpoint from store, registry and catalog, stops its watcher,
// records the removal and returns it. It leaves the endpoint's modules started. It fails
// if the registry is not running, has no such endpoint, or the store fails.
func (r *Registry) withdraw(ctx context.Context, by capability.Principal, id string, may func(*Endpoint) error) (*Endpoint, error) {
	publish, err := r.running()
	if err != nil {
		return nil, err
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	ep, ok := r.get(id)
	if !ok {
		return nil, noEndpoint(id)
	}
	if err := may(ep); err != nil {
		return nil, err
	}
	if ep.saved {
		if err := r.forget(ctx, ep); err != nil {
			return nil, err
		}
	}
	ep.stop()
	r.mu.Lock()
	delete(r.endpoints, id)
	r.mu.Unlock()
	if err := publish(capability.Batch{Source: ep.source()}); err != nil {
		return nil, err
	}
	r.publishModels(publish)
	r.record(ctx, audit.EndpointDisconnected, id, by, "")
	return ep, nil
}
