package endpoint

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/managed"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint/offered"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// Store keeps the endpoints that must survive a restart and that several servers share.
// It holds tokens only as names of secrets.
type Store interface {
	SaveEndpoint(ctx context.Context, s Saved) error
	// SaveOffer replaces the record of an endpoint. It does nothing if the endpoint was
	// deleted or connected again since s.Connected.
	SaveOffer(ctx context.Context, s Saved) error
	Endpoints(ctx context.Context) ([]Saved, error)
	DeleteEndpoint(ctx context.Context, id string) error
}

// Secrets keeps endpoint tokens.
type Secrets interface {
	Set(name string, value []byte) error
	Get(name string) (secret.Value, error)
	Remove(name string) error
}

// Saved is the stored record of one endpoint.
type Saved struct {
	ID             string          `json:"id"`
	BaseURL        string          `json:"base_url"`
	Provider       string          `json:"provider"`
	TokenName      string          `json:"token_name,omitempty"` // in Secrets
	AllowedModules []string        `json:"allowed_modules,omitempty"`
	TrustPolicy    json.RawMessage `json:"trust_policy,omitempty"`
	Timeout        time.Duration   `json:"timeout,omitempty"`
	KeepMissing    bool            `json:"keep_missing,omitempty"`
	Managed        *managed.Mark   `json:"managed,omitempty"` // TokenName is then a secret that a user stored
	Connected      time.Time       `json:"connected"`
	// Seen is its last offer, so that its modules can be listed while it is down.
	Seen *SavedOffer `json:"seen,omitempty"`
	// Damaged states which part of the record could not be read. Such an endpoint is
	// restored with all its modules denied.
	Damaged string `json:"-"`
}

// SavedOffer is the last manifest of an endpoint, after the trust check.
type SavedOffer struct {
	Environment  string              `json:"environment"`
	Capabilities router.Capabilities `json:"capabilities"`
	Modules      []json.RawMessage   `json:"modules"`
}

// seen returns the current offer for the store, or nil if its manifests exceed maxSeen.
func (ep *Endpoint) seen() *SavedOffer {
	o := ep.offer.Load()
	s := &SavedOffer{Environment: o.availability.Environment, Capabilities: o.availability.Capabilities, Modules: []json.RawMessage{}}
	size := 0
	for _, m := range o.modules {
		if size += len(m.Raw); size > maxSeen {
			return nil
		}
		s.Modules = append(s.Modules, m.Raw)
	}
	return s
}

// saveOffer stores the endpoint's current offer in its saved record. The caller holds changing.
func (r *Registry) saveOffer(ctx context.Context, ep *Endpoint) error {
	ep.record.Seen = ep.seen()
	return r.cfg.Store.SaveOffer(ctx, ep.record)
}

// restore creates the saved endpoints. It skips those that cannot be created, and fails
// only if the store cannot be read.
func (r *Registry) restore(ctx context.Context) (list []*Endpoint, err error) {
	if r.cfg.Store == nil {
		return nil, nil
	}
	saved, err := r.cfg.Store.Endpoints(ctx)
	for _, s := range saved {
		if ep, ok := r.restoreOne(s); ok {
			list = append(list, ep)
		}
	}
	return list, err
}

// restoreOne creates an endpoint from its saved record. The token is in the secret store
// of the machine on which it was connected; on another machine the endpoint is listed but
// gets no requests.
func (r *Registry) restoreOne(s Saved) (*Endpoint, bool) {
	req := Request{
		ID: s.ID, BaseURL: s.BaseURL, Provider: s.Provider, AllowedModules: s.AllowedModules, Timeout: s.Timeout,
		KeepMissing: s.KeepMissing, managed: s.Managed,
	}
	distrust := s.Damaged
	if len(s.TrustPolicy) > 0 {
		var unknown []string
		var err error
		if req.TrustPolicy, unknown, err = ParseTrustPolicy(s.TrustPolicy); err != nil {
			distrust = capability.AsError(err).Message
		} else if len(unknown) > 0 { // an unknown restriction could not be enforced
			distrust = strings.Join(unknown, "; ")
		}
	}
	state := capability.Availability{State: capability.StateStarting, Reason: notAsked, Since: r.cfg.Now()}
	tokenless := false
	if s.TokenName != "" {
		var err error
		if req.Token, err = r.cfg.Secrets.Get(s.TokenName); err != nil {
			tokenless, state.State, state.Reason = true, capability.StateUnauthorized, noToken(s.TokenName)
			r.cfg.Logger.Error("an endpoint's token is not in the secret store of this machine, so it is not asked", "endpoint", s.ID, "secret",
				s.TokenName, "err", err)
		}
	}
	ep, err := r.newEndpoint(req)
	if err != nil {
		r.cfg.Logger.Error("endpoint not restored", "endpoint", s.ID, "err", err)
		return nil, false
	}
	if distrust != "" {
		ep.distrust = "its saved trust policy cannot be read, so all of it is denied; connect it again (" + distrust + ")"
		r.cfg.Logger.Error("endpoint denied: its saved trust policy cannot be read", "endpoint", s.ID, "reason", distrust)
	}
	ep.saved, ep.record = true, s
	ep.secret = cmp.Or(s.TokenName, ep.secret)
	ep.hasToken, ep.tokenless, ep.state = s.TokenName != "", tokenless, state
	return ep, true
}

// comeBack publishes the last saved offer of an endpoint, judged again by its policy and marked as
// not ready yet. Modules that cannot be published wait for its answer. The caller holds changing.
func (r *Registry) comeBack(ep *Endpoint, publish func(capability.Batch) error) {
	if now, ok := r.get(ep.id); !ok || now != ep || ep.record.Seen == nil {
		return
	}
	seen := ep.record.Seen
	o := &offering{
		availability: router.Availability{Environment: seen.Environment, Available: true, Capabilities: seen.Capabilities},
		digests:      make(map[string]string),
	}
	for _, raw := range seen.Modules {
		m, err := router.ParseModule(raw)
		if err != nil {
			r.cfg.Logger.Error("a saved manifest cannot be read", "endpoint", ep.id, "err", err)
			continue
		}
		o.modules = append(o.modules, m)
	}
	err := o.digest()
	if err == nil {
		ep.judge(o, nil, false)
		if err = r.collides(ep, o.modules); err == nil {
			ep.offer.Store(o)
			err = publish(ep.batch())
		}
	}
	if err != nil {
		r.cfg.Logger.Error("what an endpoint offered before cannot be shown", "endpoint", ep.id, "err", err)
		ep.offer.Store(&offering{})
	}
}

// forgetReplaced removes the saved record of the replaced endpoint gone, or, if ep is
// saved in its place, a token that ep does not use.
func (r *Registry) forgetReplaced(ctx context.Context, gone, ep *Endpoint) error {
	switch {
	case gone == nil || !gone.saved:
		return nil
	case gone.id != ep.id || !ep.saved:
		return r.forget(ctx, gone)
	case gone.hasToken && (!ep.hasToken || gone.secret != ep.secret):
		return r.removeToken(gone)
	}
	return nil
}

// save stores ep for the next start. It stores the token first, because a saved endpoint
// without its token would be useless.
func (r *Registry) save(ctx context.Context, ep, old *Endpoint, req Request) error {
	if r.cfg.Store == nil {
		return nil
	}
	s, err := ep.savedAs(req)
	if err != nil {
		return err
	}
	s.Connected, s.Seen = r.cfg.Now().UTC(), ep.seen()
	if ep.hasToken && ep.managed == nil {
		if err := r.cfg.Secrets.Set(s.TokenName, []byte(req.Token.Reveal())); err != nil {
			return err
		}
	}
	if err := r.cfg.Store.SaveEndpoint(ctx, s); err != nil {
		if ep.hasToken && (old == nil || !old.saved || old.secret != ep.secret) {
			_ = r.removeToken(ep)
		}
		return err
	}
	ep.saved, ep.record = true, s
	return nil
}

// savedAs returns the record of an endpoint that was created for req, without its offer.
func (ep *Endpoint) savedAs(req Request) (s Saved, err error) {
	s = Saved{
		ID: ep.id, BaseURL: ep.baseURL, Provider: req.Provider, AllowedModules: req.AllowedModules, Timeout: req.Timeout,
		KeepMissing: req.KeepMissing, Managed: ep.managed,
	}
	if ep.hasToken || req.tokenSecret != "" {
		s.TokenName = ep.secret
	}
	if req.TrustPolicy != nil {
		s.TrustPolicy, err = json.Marshal(req.TrustPolicy)
	}
	return s, err
}

// tokenName returns the name of an endpoint's secret. It depends on id and URL, so that a
// token for one server is never sent to another, even if saving stops half-way. Names of
// secrets are shorter than ids may be and contain no ':'.
func tokenName(id, url string) string {
	return "endpoint." + strings.ReplaceAll(id[:min(len(id), 80)], ":", ".") + "." + offered.ShortSum(id+" "+url) + ".token"
}

// forget removes ep's saved record and token.
func (r *Registry) forget(ctx context.Context, ep *Endpoint) error {
	if err := r.cfg.Store.DeleteEndpoint(ctx, ep.id); err != nil {
		return err
	}
	if ep.hasToken {
		return r.removeToken(ep)
	}
	return nil
}

// removeToken removes a token that was stored with an endpoint. One that a user stored stays.
func (r *Registry) removeToken(ep *Endpoint) error {
	if ep.managed != nil {
		return nil
	}
	err := r.cfg.Secrets.Remove(ep.secret)
	if capability.CodeOf(err) == capability.CodeNotFound {
		return nil // already removed by another goroutine
	}
	return err
}
