package endpoint

import (
	"context"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
)

// Refresh applies the changes that other servers made to the shared store: endpoints
// connected, connected again or disconnected. A new endpoint is published at once with its
// last saved offer, and its watcher asks it. Endpoints that are not saved belong to this
// server and stay. Refresh stops no remote modules, because the server that disconnected
// the endpoint has done so. It fails without a change if the store cannot be read. Before
// Run has begun and after its end it does nothing.
func (r *Registry) Refresh(ctx context.Context) error {
	if r.cfg.Store == nil {
		return nil
	}
	r.changing.Lock() // a connect saves and registers its endpoint in one step
	defer r.changing.Unlock()
	publish, err := r.running()
	if err != nil {
		return nil
	}
	list, err := r.cfg.Store.Endpoints(ctx)
	if err != nil {
		return err
	}
	saved := make(map[string]bool, len(list))
	for _, s := range list {
		saved[s.ID] = true
	}
	for _, ep := range r.all() { // first, because an endpoint may have been saved with another id
		if ep.saved && !saved[ep.id] {
			r.leave(ep, publish)
		}
	}
	for _, s := range list {
		old, there := r.get(s.ID)
		switch {
		case there && !old.saved:
			r.cfg.Logger.Warn("another server saved an endpoint under the id of one that is connected here alone; it is left as it is", "endpoint",
				s.ID)
		case there && old.record.Connected.Equal(s.Connected) && old.baseURL == s.BaseURL:
		default:
			if ep, ok := r.restoreOne(s); ok {
				r.take(ep, old, publish, capability.Principal{}, "saved by another server")
			}
		}
	}
	r.publishModels(publish)
	return nil
}

// take puts a saved endpoint in place of old, which may be nil, and records that with a reason. The
// caller holds changing.
func (r *Registry) take(ep, old *Endpoint, publish func(capability.Batch) error, by capability.Principal, reason string) {
	r.mu.Lock()
	r.endpoints[ep.id] = ep
	r.mu.Unlock()
	if old != nil {
		old.stop()
		if ep.record.Seen == nil { // nothing is published until it answers
			r.withdrawBatch(ep, publish)
		}
	}
	r.comeBack(ep, publish)
	if r.watch(ep) {
		r.record(context.Background(), audit.EndpointConnected, ep.id, by, reason)
	}
}

// leave removes an endpoint that another server disconnected. The caller holds changing.
func (r *Registry) leave(ep *Endpoint, publish func(capability.Batch) error) {
	ep.stop()
	r.mu.Lock()
	delete(r.endpoints, ep.id)
	r.mu.Unlock()
	r.withdrawBatch(ep, publish)
	if ep.hasToken {
		if err := r.removeToken(ep); err != nil {
			r.cfg.Logger.Error("the token of a disconnected endpoint is still stored", "endpoint", ep.id, "err", err)
		}
	}
	r.record(context.Background(), audit.EndpointDisconnected, ep.id, capability.Principal{}, "forgotten by another server")
}

func (r *Registry) withdrawBatch(ep *Endpoint, publish func(capability.Batch) error) {
	if err := publish(capability.Batch{Source: ep.source()}); err != nil {
		r.cfg.Logger.Error("what an endpoint offered could not be withdrawn", "endpoint", ep.id, "err", err)
	}
}

// noToken returns the state's reason for an endpoint whose token is on another machine.
func noToken(secret string) string {
	return "its token is not in the secret store of this machine; store it here, too: junctor secrets set " + secret
}

func (ep *Endpoint) withoutToken() error {
	return capability.Errorf(capability.CodeUnavailable, "endpoint", "endpoint %s cannot be asked: %s", ep.id, noToken(ep.secret)).
		With(reasonToken, "junctor secrets set "+ep.secret)
}

// redeem replaces a tokenless endpoint by one with its token, and returns that, if the
// secret store has the token by now; otherwise it fails.
func (r *Registry) redeem(ep *Endpoint) (*Endpoint, error) {
	if value, err := r.cfg.Secrets.Get(ep.secret); err != nil || value.Empty() {
		return nil, ep.withoutToken()
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	publish, err := r.current(ep)
	if err != nil {
		return nil, err
	}
	next, ok := r.restoreOne(ep.record)
	if !ok || next.tokenless {
		return nil, ep.withoutToken()
	}
	r.take(next, ep, publish, capability.Principal{}, "saved by another server")
	return next, nil
}
