package endpoint

import (
	"slices"

	"github.com/junctor-run/junctor/internal/endpoints/endpoint/offered"
	"github.com/junctor-run/junctor/protocol/router"
)

// claimants are modules as this endpoint's.
func (ep *Endpoint) claimants(modules []router.Module) []offered.Claimant {
	out := make([]offered.Claimant, len(modules))
	for i := range modules {
		out[i] = offered.ClaimantOf(ep.source(), &modules[i])
		out[i].Shared, out[i].Strict = ep.policy.AllowSharedModelTypes, ep.policy.StrictNames
	}
	return out
}

// collides checks the modules that ep is about to offer against all other
// endpoints, less those it replaces, and this machine's own modules.
func (r *Registry) collides(ep *Endpoint, modules []router.Module, replaced ...*Endpoint) error {
	var existing []offered.Claimant
	for _, other := range r.all() {
		if other.id != ep.id && !slices.Contains(replaced, other) {
			existing = append(existing, other.claimants(other.offer.Load().modules)...)
		}
	}
	if r.cfg.Local != nil {
		for _, m := range r.cfg.Local() {
			existing = append(existing, offered.LocalClaimant(&m))
		}
	}
	return offered.Collide(ep.claimants(modules), existing)
}
