package endpoint

import (
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/managed"
	"github.com/junctor-run/junctor/protocol/router"
)

// Status describes one endpoint. It never contains the token.
type Status struct {
	ID        string           `json:"id"`
	BaseURL   string           `json:"baseUrl"`
	Provider  string           `json:"provider"`
	HasToken  bool             `json:"hasToken"`
	Primary   bool             `json:"primary,omitempty"`
	State     capability.State `json:"state"`
	Reason    string           `json:"reason,omitempty"`
	Since     time.Time        `json:"since"`
	Modules   []string         `json:"modules"`
	Families  []string         `json:"families"`
	Synced    time.Time        `json:"synced,omitzero"`
	Persisted bool             `json:"persisted"`
	Managed   *managed.Mark    `json:"managed,omitempty"` // of the file that declares it
	// AllowedModules and TrustPolicy are the rules, TrustDecisions the decisions for the
	// last manifest.
	AllowedModules []string               `json:"allowedModuleIds,omitempty"`
	TrustPolicy    *router.TrustPolicy    `json:"trustPolicy,omitempty"`
	TrustDecisions []router.TrustDecision `json:"trustDecisions"`
	// KeepMissing keeps modules that the endpoint no longer lists (unloadMissing: false).
	KeepMissing bool `json:"keepMissing,omitempty"`
	// Lifecycle lists the last hooks called. History lists the last attempts to load its
	// modules with the accepted, rejected and colliding ones, oldest first.
	Lifecycle []HookOutcome `json:"lifecycle,omitempty"`
	History   []TrustRecord `json:"history,omitempty"`
}

// List returns every endpoint, ordered by id.
func (r *Registry) List() []Status {
	all := r.all()
	out := make([]Status, len(all))
	for i, ep := range all {
		out[i] = ep.status()
	}
	return out
}

// Show returns one endpoint.
func (r *Registry) Show(id string) (Status, error) {
	ep, ok := r.get(id)
	if !ok {
		return Status{}, noEndpoint(id)
	}
	return ep.status(), nil
}

func noEndpoint(id string) error {
	return capability.Errorf(capability.CodeNotFound, "endpoints", "no endpoint %q is connected", id).
		With("endpoint_not_found", "list them with: junctor endpoints list")
}

func (ep *Endpoint) status() Status {
	a := ep.availability()
	o := ep.offer.Load()
	s := Status{
		ID: ep.id, BaseURL: ep.baseURL, Provider: ep.provider, HasToken: ep.hasToken, Primary: ep.primary,
		State: a.State, Reason: a.Reason, Since: a.Since, Modules: []string{}, Families: []string{}, Persisted: ep.saved, Managed: ep.managed,
		KeepMissing: ep.keepMissing, AllowedModules: ep.policy.AllowedModuleIDs, TrustPolicy: ep.policy,
		TrustDecisions: append([]router.TrustDecision{}, o.decisions...),
	}
	ep.mu.Lock()
	s.Synced = ep.synced
	s.Lifecycle = slices.Clone(ep.hooks)
	ep.mu.Unlock()
	s.History = ep.registry.trust.of(ep.id, statusRecords)
	for _, m := range o.modules {
		s.Modules = append(s.Modules, m.ID)
	}
	for _, f := range []router.Family{router.FamilyFS, router.FamilyPTY, router.FamilyGit, router.FamilyModel, router.FamilyPlugin} {
		if o.availability.Capabilities.Has(f) {
			s.Families = append(s.Families, string(f))
		}
	}
	return s
}
