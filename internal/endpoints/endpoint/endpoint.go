package endpoint

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/breaker"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/managed"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint/offered"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// Endpoint is one remote endpoint and its health.
type Endpoint struct {
	id, baseURL, provider string
	client                *router.Client
	hasToken, primary     bool
	timeout, ownTimeout   time.Duration       // of one call; as requested, 0 if not
	policy                *router.TrustPolicy // never nil: the endpoint's own, with its allow-list
	distrust              string              // why the saved policy cannot be read: no module is let in
	keepMissing           bool                // modules it no longer lists stay
	saved, unsaved        bool                // unsaved: saving its last offer failed
	record                Saved               // its saved record; changed under Registry.changing
	token                 secret.Value        // as it is sent
	secret                string              // name of the saved token
	managed               *managed.Mark       // of a file that declares it; nil otherwise
	tokenless             bool                // this machine does not have that token: no request is sent
	registry              *Registry
	providers             map[string]*providerOf // by domain; fixed, so that their identity is stable

	offer    atomic.Pointer[offering]
	bindings atomic.Pointer[map[capability.Member]offered.Binding]

	mu       sync.Mutex
	state    capability.Availability
	synced   time.Time
	live     []live          // the started modules; changed under the URL's gate
	draining map[string]bool // modules that are being reloaded, by id
	hooks    []HookOutcome   // the last ones
	breaker  breaker.Breaker
	cancel   context.CancelFunc
	kick     chan chan error // asks the watcher to probe now
	dead     chan struct{}   // closed when the watcher has ended
}

// offering is the availability and the modules that an endpoint reported, after the trust check.
type offering struct {
	availability router.Availability
	modules      []router.Module
	digests      map[string]string // module id → digest
	decisions    []router.TrustDecision
}

// newEndpoint creates the endpoint of req and its client, without asking or registering
// it. The error is that of the client for the URL or the token.
func (r *Registry) newEndpoint(req Request) (*Endpoint, error) {
	timeout := cmp.Or(req.Timeout, r.cfg.Timeout)
	client, err := router.NewClient(router.ClientConfig{
		ID: req.ID, BaseURL: req.BaseURL, Token: req.Token, Transport: r.cfg.Transport, MaxResponse: r.cfg.MaxAnswer, Timeout: timeout,
	})
	if err != nil {
		return nil, asCapability(err, "endpoints.connect")
	}
	ep := &Endpoint{
		id: req.ID, baseURL: client.BaseURL(), provider: req.Provider, client: client, hasToken: !req.Token.Empty(),
		primary: req.ID == r.cfg.Primary || req.ID == "primary", policy: effectivePolicy(req), registry: r, keepMissing: req.KeepMissing,
		timeout: timeout, ownTimeout: req.Timeout, kick: make(chan chan error, 1), dead: make(chan struct{}),
		providers: make(map[string]*providerOf), token: req.Token, managed: req.managed,
	}
	for _, domain := range domains() {
		ep.providers[domain] = &providerOf{ep: ep, key: capability.NewProviderKey(domain, "endpoint", ep.id)}
	}
	ep.secret = cmp.Or(req.tokenSecret, tokenName(ep.id, ep.baseURL))
	ep.offer.Store(&offering{})
	ep.bindings.Store(&map[capability.Member]offered.Binding{})
	return ep, nil
}

// domains lists the domains of an endpoint's provider keys: modules ("ext") and primitives.
func domains() []string { return []string{"ext", "fs", "pty", "git", "model"} }

func (ep *Endpoint) source() string { return "endpoint/" + ep.id }

// batch returns the endpoint's current offer as modules of the catalog: its own primitives (fs,
// git, …) as one module, and each remote module with every surface it declares. It also stores the
// bindings that map calls to the wire, so that no published entry lacks one.
func (ep *Endpoint) batch() capability.Batch {
	o := ep.offer.Load()
	b := capability.Batch{Source: ep.source()}
	keys := make(map[string]capability.ProviderKey, len(ep.providers))
	for _, domain := range domains() {
		b.Providers = append(b.Providers, ep.providers[domain])
		keys[domain] = ep.providers[domain].key
	}
	m := offered.Offer{
		Endpoint: ep.id, Primary: ep.primary, Providers: keys, Timeout: ep.ownTimeout, State: ep.availability(), Draining: ep.drains(),
		Bindings: make(map[capability.Member]offered.Binding),
	}
	if primitives := m.Primitives(o.availability.Capabilities); len(primitives.Contributions) > 0 {
		b.Modules = append(b.Modules, primitives)
	}
	for i := range o.modules {
		b.Modules = append(b.Modules, m.Module(&o.modules[i], o.digests[o.modules[i].ID]))
	}
	ep.bindings.Store(&m.Bindings)
	return b
}

// ask requests the endpoint's availability and manifests.
func (ep *Endpoint) ask(ctx context.Context) (*offering, error) {
	availability, err := ep.client.Availability(ctx)
	if err != nil {
		return nil, asCapability(err, "endpoints.ask")
	}
	o := &offering{availability: availability, digests: make(map[string]string)}
	if !availability.Capabilities.Plugin {
		return o, nil
	}
	if o.modules, err = ep.client.Modules(ctx); err != nil {
		return nil, asCapability(err, "endpoints.ask")
	}
	if err := o.digest(); err != nil {
		return nil, err
	}
	return o, nil
}

// digest computes the digest of each module's manifest, by which changes are detected.
func (o *offering) digest() error {
	for _, m := range o.modules {
		canonical, err := jsonx.Canonical(m.Raw)
		if err != nil {
			return capability.Wrap(capability.CodeFailed, "endpoints.ask", "the manifest of module "+m.ID+" has no canonical form", err)
		}
		sum := sha256.Sum256(canonical)
		o.digests[m.ID] = "sha256:" + hex.EncodeToString(sum[:])
	}
	return nil
}

// reasonToken is the reason for an endpoint that refused the token junctor sent.
const reasonToken = "invalid_credentials"

// asCapability converts an error of the router client to a capability error. If an endpoint
// refuses the token that junctor sent, that is a failure of the endpoint and not of the
// caller's authentication.
func asCapability(err error, op string) error {
	e, ok := errors.AsType[*router.Error](err)
	if !ok {
		return err
	}
	out := e.ToCapability(op)
	if out.Code == capability.CodeUnauthenticated {
		out.Code, out.Reason, out.Hint = capability.CodeFailed, reasonToken, "connect the endpoint again with its own token"
	}
	return out
}

func (ep *Endpoint) availability() capability.Availability {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.state
}

func (ep *Endpoint) stop() {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.cancel != nil {
		ep.cancel()
	}
}

// providerOf is an endpoint as the provider with one of its provider keys.
type providerOf struct {
	ep  *Endpoint
	key capability.ProviderKey
}

func (p *providerOf) Key() capability.ProviderKey { return p.key }

// ReturnsPromptly marks the provider: calls wait only for network requests, which end with
// the context.
func (p *providerOf) ReturnsPromptly() {}

// Invoke sends the call. A read-only call whose connection broke is sent once more,
// because after a restart of the endpoint the pool holds dead connections.
func (p *providerOf) Invoke(ctx context.Context, c capability.Call) (capability.Result, error) {
	b, ok := (*p.ep.bindings.Load())[c.Member]
	if !ok {
		return capability.Result{}, capability.Errorf(capability.CodeUnavailable, "endpoint", "endpoint %s no longer offers %s", p.ep.id,
			c.Member).With("capability_retracted", "list what it offers now")
	}
	if b.Undeclared != "" {
		return capability.Result{}, capability.Errorf(capability.CodeInvalidInput, "endpoint",
			"%s is not there: the manifest of module %s does not declare %s", c.Member, c.Member.Module, b.Undeclared).
			With("phase_not_declared", "call the phases that it declares")
	}
	if err := p.ep.circuit(); err != nil {
		return capability.Result{}, err
	}
	params, err := b.Params(c.Input)
	if err != nil {
		return capability.Result{}, err
	}
	if b.Method == "pty.command.run" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, offered.RunTime(c.Input))
		defer cancel()
	}
	result, err := p.ep.send(ctx, b.Method, params)
	if c.Idempotent && ctx.Err() == nil && lost(err) {
		result, err = p.ep.send(ctx, b.Method, params)
	}
	if ctx.Err() == nil && lost(err) {
		p.ep.wake() // one broken call does not prove the endpoint down: let the watcher probe it
	}
	p.ep.recordEnd(ctx, err)
	if err == nil && b.SoftFails {
		result, err = offered.SoftFailed(result)
	}
	return capability.Result{Value: result}, err
}

func (ep *Endpoint) send(ctx context.Context, method string, params []byte) ([]byte, error) {
	if ep.tokenless {
		return nil, ep.withoutToken()
	}
	result, err := ep.client.Invoke(ctx, method, params)
	if err != nil {
		return nil, asCapability(err, "endpoint")
	}
	return result, nil
}

// lost reports whether err means that the connection was refused or broke, which concerns
// the endpoint and not the call.
func lost(err error) bool {
	return err != nil && capability.AsError(err).Reason == capability.ReasonConnectionFailed
}

// Probe checks the endpoint now; concurrent callers share one attempt. If the breaker is
// open, Probe sends no request.
func (p *providerOf) Probe(ctx context.Context) error {
	if err := p.ep.circuit(); err != nil {
		return err
	}
	answer := make(chan error, 1)
	select {
	case p.ep.kick <- answer:
	case <-p.ep.dead:
		return noEndpoint(p.ep.id)
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-answer:
		return err
	case <-p.ep.dead:
		return noEndpoint(p.ep.id)
	case <-ctx.Done():
		return ctx.Err()
	}
}
