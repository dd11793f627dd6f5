package endpoint

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/audit"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// Request describes an endpoint to connect.
type Request struct {
	ID             string // "": the provider's name, numbered when taken by another URL
	BaseURL        string
	Provider       string // connector: "direct" and its equals (router spec, section 10.1)
	Token          secret.Value
	AllowedModules []string            // nil: all; an empty list is refused
	TrustPolicy    *router.TrustPolicy // nil: the allow-list alone decides
	Timeout        time.Duration       // of one call; 0: the registry's
	Persist        bool
	By             capability.Principal

	made bool // by ConnectCloud
}

// Synced is what a connect or sync did; the lists hold module names.
type Synced struct {
	Registered     []string               `json:"registered"`
	Reloaded       []string               `json:"reloaded"`
	Unloaded       []string               `json:"unloaded"`
	Skipped        []string               `json:"skipped"`
	TrustDecisions []router.TrustDecision `json:"trustDecisions"`
}

// changed reports whether the endpoint offers something else than before.
func (s *Synced) changed() bool { return len(s.Registered)+len(s.Reloaded)+len(s.Unloaded) > 0 }

var endpointID = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,120}$`)

// connectors are the ways to obtain an endpoint by its URL.
func connectors() []string {
	return []string{"direct", "e2b", "home-machine", "mobile-companion", "desktop-companion"}
}

// cloudProvider is what an endpoint made by ConnectCloud says it came from.
const cloudProvider = "cloud"

// Connect asks the endpoint for what it offers, publishes it, and only then
// keeps it. An endpoint of the same id or URL is replaced, the old one staying
// until the new one is in. Whatever fails leaves everything as it was. The
// endpoint is asked without a lock: a silent one holds up nobody else.
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
	askCtx, cancel := context.WithTimeout(ctx, cmp.Or(req.Timeout, r.cfg.Timeout))
	offer, err := ep.ask(askCtx)
	cancel()
	if err != nil {
		return Status{}, Synced{}, connectFailed(ep, err)
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	if anonymous { // somebody may have taken the id meanwhile
		if id := r.freeID(req.Provider, req.BaseURL); id != req.ID {
			req.ID = id
			if ep, err = r.newEndpoint(req); err != nil {
				return Status{}, Synced{}, err
			}
		}
	}
	synced, err := r.install(ctx, ep, offer, req)
	if err != nil {
		return Status{}, Synced{}, err
	}
	r.record(ctx, audit.EndpointConnected, ep.id, req.By, "")
	r.recordTrust(ctx, req.By, synced.TrustDecisions)
	return ep.status(), synced, nil
}

// install publishes and keeps ep in place of those with its id or URL. Caller
// holds changing.
func (r *Registry) install(ctx context.Context, ep *Endpoint, offer *offering, req Request) (Synced, error) {
	publish, err := r.running()
	if err != nil {
		return Synced{}, err
	}
	old, moved := r.replaced(ep)
	var before *offering
	if old != nil {
		before = old.offer.Load()
	}
	restore := func() { // what was there was accepted once, and is again
		back := capability.Batch{Source: ep.source()}
		if old != nil {
			back = old.batch()
		}
		_ = publish(back)
		if moved != nil {
			_ = publish(moved.batch())
		}
	}
	synced := ep.accept(offer, before)
	if err := refused(synced.TrustDecisions); err != nil {
		r.recordTrust(ctx, req.By, synced.TrustDecisions)
		return Synced{}, err
	}
	if err := r.collides(ep, old, moved); err != nil {
		return Synced{}, err
	}
	ep.markUp(r.cfg.Now())
	if moved != nil {
		// It goes first, or its modules would collide with their own copies.
		if err := publish(capability.Batch{Source: moved.source()}); err != nil {
			return Synced{}, err
		}
	}
	if err := publish(ep.batch()); err != nil {
		restore()
		return Synced{}, err
	}
	if req.Persist {
		if err := r.save(ctx, ep, old, req); err != nil {
			restore()
			return Synced{}, err
		}
	}
	if !r.watch(ep) {
		restore()
		return Synced{}, errStopped()
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
	return synced, nil
}

func connectFailed(ep *Endpoint, err error) error {
	e := capability.AsError(err)
	out := capability.Errorf(e.Code, "endpoints.connect", "endpoint %s at %s: %s", ep.id, ep.baseURL, e.Message)
	out.Err = err
	hint := "check that the URL is the endpoint's and that it is running"
	switch {
	case e.Reason == reasonToken:
		hint = "give the endpoint's own token with --endpoint-token-file"
	case e.Hint != "":
		hint = e.Hint
	}
	return out.With(e.Reason, hint)
}

func (r *Registry) normalise(req *Request) error {
	const op = "endpoints.connect"
	if req.Provider == "" {
		req.Provider = "direct"
	}
	if !req.made && !slices.Contains(connectors(), req.Provider) {
		return capability.Errorf(capability.CodeInvalidInput, op, "%q is not a provider; use %s", req.Provider, strings.Join(connectors(), ", "))
	}
	if req.AllowedModules != nil && len(req.AllowedModules) == 0 {
		return capability.Errorf(capability.CodeInvalidInput, op, "an empty list of allowed modules would connect nothing; leave it out to allow all")
	}
	if req.AllowedModules != nil && req.TrustPolicy != nil && req.TrustPolicy.AllowedModuleIDs != nil {
		return capability.Errorf(capability.CodeInvalidInput, op, "allowedModuleIds is given twice: beside the trust policy and inside it")
	}
	if req.Timeout < 0 {
		return capability.Errorf(capability.CodeInvalidInput, op, "the timeout %s is negative", req.Timeout)
	}
	client, err := router.NewClient(router.ClientConfig{BaseURL: req.BaseURL})
	if err != nil {
		return capability.AsError(asCapability(err, op))
	}
	req.BaseURL = client.BaseURL()
	if req.ID == "" {
		req.ID = r.freeID(req.Provider, req.BaseURL)
	}
	if !endpointID.MatchString(req.ID) || strings.HasPrefix(req.ID, "node:") {
		return capability.Errorf(capability.CodeInvalidInput, op, "the endpoint id %q must be 1 to 120 letters, digits, '.', '_', ':' or '-', and not begin with node:", req.ID)
	}
	return nil
}

// freeID defaults the id to the connector's name, "default" for direct, and
// numbers it when another URL has it.
func (r *Registry) freeID(provider, url string) string {
	base := provider
	switch provider {
	case "direct":
		base = "default"
	case cloudProvider:
		base = "cloud-capability"
	}
	for n := 1; ; n++ {
		id := base
		if n > 1 {
			id = fmt.Sprintf("%s-%d", base, n)
		}
		if ep, taken := r.get(id); !taken || ep.baseURL == url {
			return id
		}
	}
}

// replaced finds the endpoint with ep's id, and another one with its URL.
func (r *Registry) replaced(ep *Endpoint) (old, moved *Endpoint) {
	for _, other := range r.all() {
		switch {
		case other.id == ep.id:
			old = other
		case other.baseURL == ep.baseURL:
			moved = other
		}
	}
	return old, moved
}

// Disconnect withdraws everything the endpoint offers and forgets it.
func (r *Registry) Disconnect(ctx context.Context, by capability.Principal, id string) error {
	publish, err := r.running()
	if err != nil {
		return err
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	ep, ok := r.get(id)
	if !ok {
		return noEndpoint(id)
	}
	if ep.saved {
		if err := r.forget(ctx, ep); err != nil {
			return err
		}
	}
	ep.stop()
	r.mu.Lock()
	delete(r.endpoints, id)
	r.mu.Unlock()
	if err := publish(capability.Batch{Source: ep.source()}); err != nil {
		return err
	}
	r.record(ctx, audit.EndpointDisconnected, id, by, "")
	return nil
}

// SyncReport is the outcome for one endpoint; Error is set when it did not
// answer, and says nothing about the others.
type SyncReport struct {
	ID    string            `json:"id"`
	Sync  *Synced           `json:"sync,omitempty"`
	Error *capability.Error `json:"error,omitempty"`
}

// Sync reads the manifests of one endpoint, or with id "" of all of them in
// parallel, and applies what changed.
func (r *Registry) Sync(ctx context.Context, by capability.Principal, id string) ([]SyncReport, error) {
	if _, err := r.running(); err != nil {
		return nil, err
	}
	targets := r.all()
	if id != "" {
		ep, ok := r.get(id)
		if !ok {
			return nil, noEndpoint(id)
		}
		targets = []*Endpoint{ep}
	}
	reports := make([]SyncReport, len(targets))
	var wg sync.WaitGroup
	for i, ep := range targets {
		wg.Go(func() {
			reports[i].ID = ep.id
			ctx, cancel := context.WithTimeout(ctx, ep.timeout)
			defer cancel()
			synced, err := r.refresh(ctx, ep)
			if err != nil {
				reports[i].Error = capability.AsError(err)
				return
			}
			reports[i].Sync = &synced
			r.record(ctx, audit.EndpointSynced, ep.id, by, "")
			r.recordTrust(ctx, by, synced.TrustDecisions)
		})
	}
	wg.Wait()
	return reports, nil
}
