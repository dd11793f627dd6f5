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
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/managed"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// Request describes an endpoint to connect.
type Request struct {
	ID             string // "": the provider's name, numbered when taken by another URL
	BaseURL        string
	Provider       string // connector: direct, e2b, home-machine, mobile-companion or desktop-companion
	Token          secret.Value
	AllowedModules []string            // nil: all; an empty list is refused
	TrustPolicy    *router.TrustPolicy // nil: the allow-list alone decides
	Timeout        time.Duration       // of one call; 0: the registry's
	Persist        bool
	// KeepMissing keeps modules that the endpoint no longer lists, now and at later
	// syncs, until the endpoint is disconnected or connected again without it. It is
	// unloadMissing:false in JSON. Modules that the trust policy refuses are still unloaded.
	KeepMissing bool
	By          capability.Principal

	// managed marks the endpoint that a file declares, and tokenSecret is the secret with its token,
	// which a user stored, or "".
	managed     *managed.Mark
	tokenSecret string

	made bool // created by ConnectCloud
}

// Synced is the result of a connect or sync; the lists hold module names.
type Synced struct {
	Registered     []string               `json:"registered"`
	Reloaded       []string               `json:"reloaded"`
	Unloaded       []string               `json:"unloaded"`
	Skipped        []string               `json:"skipped"`
	TrustDecisions []router.TrustDecision `json:"trustDecisions"`
	// Failed lists modules that a sync left out because they could not be started. It is
	// empty after a connect, which fails as a whole.
	Failed []HookFailure `json:"failed,omitempty"`
}

// changed reports whether the endpoint's modules differ from before.
func (s *Synced) changed() bool { return len(s.Registered)+len(s.Reloaded)+len(s.Unloaded) > 0 }

var endpointID = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,120}$`)

// connectors lists the providers that a connect by URL may name.
func connectors() []string {
	return []string{"direct", "e2b", "home-machine", "mobile-companion", "desktop-companion"}
}

// cloudProvider is the provider of an endpoint created by ConnectCloud.
const cloudProvider = "cloud"

// connectFailed adds the endpoint's id, its URL and a hint to err, and keeps its code and reason.
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

// normalise checks req, puts its URL in canonical form and sets the default provider and
// id. Its errors are invalid_input, except those of the client for the URL.
func (r *Registry) normalise(req *Request) error {
	const op = "endpoints.connect"
	req.Provider = cmp.Or(req.Provider, "direct")
	if !req.made && !slices.Contains(connectors(), req.Provider) {
		return capability.Errorf(capability.CodeInvalidInput, op, "%q is not a provider; use %s", req.Provider, strings.Join(connectors(), ", "))
	}
	if req.AllowedModules != nil && len(req.AllowedModules) == 0 {
		return capability.Errorf(capability.CodeInvalidInput, op, "an empty list of allowed modules would connect nothing; leave it out to allow all")
	}
	if req.AllowedModules != nil && req.TrustPolicy != nil && req.TrustPolicy.AllowedModuleIDs != nil {
		return capability.Errorf(capability.CodeInvalidInput, op, "allowedModuleIds is given twice: beside the trust policy and inside it")
	}
	if err := checkPolicy(req.TrustPolicy); err != nil {
		return err
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

// freeID returns the default id: the connector's name, or "default" for direct, with a
// number if an endpoint with another URL uses it.
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

// replaced returns the endpoint with ep's id as old, and one with another id but ep's URL
// as moved; nil for none.
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

// SyncReport is the outcome for one endpoint. Error is set if this endpoint did not answer
// or if its offer was refused. Modules that could not be started are in Sync.Failed.
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
			synced, err := r.refresh(ctx, ep, ep.timeout)
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
