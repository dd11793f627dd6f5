package router

import (
	"slices"
	"strings"
)

// TrustPolicy states which modules of an endpoint are let in. AllowedModules nil
// allows all; an empty list is refused where a policy is taken in, because
// "nothing" is never what was meant.
type TrustPolicy struct {
	AllowedEndpointIDs           []string          `json:"allowedEndpointIds,omitempty"`
	AllowedModuleIDs             []string          `json:"allowedModuleIds,omitempty"`
	AllowedProvenanceIssuers     []string          `json:"allowedProvenanceIssuers,omitempty"`
	TrustedProvenancePublicKeys  map[string]string `json:"trustedProvenancePublicKeys,omitempty"` // issuer → PEM SPKI
	RequireEndpointID            bool              `json:"requireEndpointId,omitempty"`
	RequireSignedProvenance      bool              `json:"requireSignedProvenance,omitempty"`
	RequireVerifiedProvenance    bool              `json:"requireVerifiedProvenance,omitempty"`
	RequireProvenanceDigestMatch bool              `json:"requireProvenanceDigestMatch,omitempty"`
	// AllowSharedModelTypes stacks models of one type by priority instead of
	// rejecting the later module; ours.
	AllowSharedModelTypes bool `json:"allowSharedModelTypes,omitempty"`
	// StrictNames rejects actions, context providers and events whose name
	// another module has; ours.
	StrictNames bool `json:"strictNames,omitempty"`
}

// The reasons of a trust decision.
const (
	TrustNoPolicy         = "no-policy"
	TrustAllowed          = "allowed"
	TrustNoEndpoint       = "missing-endpoint-id"
	TrustEndpoint         = "endpoint-not-allowed"
	TrustModule           = "module-not-allowed"
	TrustUnsigned         = "missing-provenance"
	TrustIssuer           = "provenance-issuer-not-allowed"
	TrustNoKey            = "missing-provenance-public-key"
	TrustInvalidSignature = "invalid-provenance-signature"
	TrustInvalidDigest    = "invalid-provenance-digest"
)

// TrustDecision is why a module was let in or not.
type TrustDecision struct {
	ModuleID         string `json:"moduleId"`
	PluginName       string `json:"pluginName"`
	EndpointID       string `json:"endpointId,omitempty"`
	ProvenanceIssuer string `json:"provenanceIssuer,omitempty"`
	Trusted          bool   `json:"trusted"`
	Reason           string `json:"reason"`
	// Detail is for operators: what exactly did not fit.
	Detail string `json:"detail,omitempty"`
}

// Normalise trims and de-duplicates the lists and draws what follows from what:
// verified or matching provenance needs a signature, and verified needs the
// digest too, because the signature covers nothing of the content but that.
func (p *TrustPolicy) Normalise() {
	for _, list := range []*[]string{&p.AllowedEndpointIDs, &p.AllowedModuleIDs, &p.AllowedProvenanceIssuers} {
		if *list == nil {
			continue
		}
		clean := []string{}
		for _, s := range *list {
			if s = strings.TrimSpace(s); s != "" && !slices.Contains(clean, s) {
				clean = append(clean, s)
			}
		}
		*list = clean
	}
	if p.RequireVerifiedProvenance {
		p.RequireProvenanceDigestMatch = true
	}
	if p.RequireVerifiedProvenance || p.RequireProvenanceDigestMatch {
		p.RequireSignedProvenance = true
	}
}

// Decide judges one module of the endpoint; a nil policy trusts. The order of the checks
// is fixed; the first failure decides.
func (p *TrustPolicy) Decide(m *Module, endpoint string) TrustDecision {
	d := TrustDecision{ModuleID: m.ID, PluginName: m.Name, EndpointID: endpoint}
	if m.Provenance != nil {
		d.ProvenanceIssuer = m.Provenance.Issuer
	}
	if p == nil {
		d.Trusted, d.Reason = true, TrustNoPolicy
		return d
	}
	d.Reason, d.Detail = p.refusal(m, endpoint)
	if d.Reason == "" {
		d.Trusted, d.Reason = true, TrustAllowed
	}
	return d
}

func (p *TrustPolicy) refusal(m *Module, endpoint string) (reason, detail string) {
	switch {
	case p.RequireEndpointID && endpoint == "":
		return TrustNoEndpoint, ""
	case p.AllowedEndpointIDs != nil && !slices.Contains(p.AllowedEndpointIDs, endpoint):
		return TrustEndpoint, ""
	case p.AllowedModuleIDs != nil && !slices.Contains(p.AllowedModuleIDs, m.ID):
		return TrustModule, ""
	case p.RequireSignedProvenance && m.Provenance == nil:
		return TrustUnsigned, ""
	}
	issuers := p.AllowedProvenanceIssuers
	if issuers != nil && (m.Provenance == nil || !slices.Contains(issuers, m.Provenance.Issuer)) {
		return TrustIssuer, ""
	}
	if p.RequireVerifiedProvenance {
		key, ok := p.TrustedProvenancePublicKeys[m.Provenance.Issuer]
		if !ok {
			return TrustNoKey, ""
		}
		if err := m.Provenance.VerifySignature(key); err != nil {
			return TrustInvalidSignature, err.Error()
		}
	}
	if p.RequireProvenanceDigestMatch {
		original, rfc8785, err := m.Digests()
		if err != nil {
			return TrustInvalidDigest, err.Error()
		}
		if stated := strings.ToLower(m.Provenance.DigestSHA256); stated != original && stated != rfc8785 {
			return TrustInvalidDigest, "the module's digest is " + rfc8785 + " (RFC 8785) or " + original + " (original form)"
		}
	}
	return "", ""
}
