package endpoint

import (
	"slices"

	"github.com/junctor-run/junctor/internal/endpoints/endpoint/offered"
	"github.com/junctor-run/junctor/protocol/router"
)

// claimants returns the claims of modules, with this endpoint as their source and with its policy.
func (ep *Endpoint) claimants(modules []router.Module) []offered.Claimant {
	out := make([]offered.Claimant, len(modules))
	for i := range modules {
		out[i] = offered.ClaimantOf(ep.source(), &modules[i])
		out[i].Shared, out[i].Strict = ep.policy.AllowSharedModelTypes, ep.policy.StrictNames
	}
	return out
}

// collides returns the first collision of the modules that ep is about to offer with this
// machine's own modules or those of all other endpoints except replaced.
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
