package router

import (
	"slices"
	"strings"
)

// TrustPolicy decides which modules of an endpoint are trusted. A nil list permits all. The caller that
// reads a policy must reject an empty list, which would permit nothing.
type TrustPolicy struct {
	AllowedEndpointIDs           []string          `json:"allowedEndpointIds,omitempty"`
	AllowedModuleIDs             []string          `json:"allowedModuleIds,omitempty"`
	AllowedProvenanceIssuers     []string          `json:"allowedProvenanceIssuers,omitempty"`
	TrustedProvenancePublicKeys  map[string]string `json:"trustedProvenancePublicKeys,omitempty"` // issuer → PEM SPKI
	RequireEndpointID            bool              `json:"requireEndpointId,omitempty"`
	RequireSignedProvenance      bool              `json:"requireSignedProvenance,omitempty"`
	RequireVerifiedProvenance    bool              `json:"requireVerifiedProvenance,omitempty"`
	RequireProvenanceDigestMatch bool              `json:"requireProvenanceDigestMatch,omitempty"`
	// AllowSharedModelTypes orders models of one type by priority instead of rejecting the
	// later module. The original does not have it.
	AllowSharedModelTypes bool `json:"allowSharedModelTypes,omitempty"`
	// StrictNames rejects actions, context providers and events whose name another module
	// has. The original does not have it.
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

// TrustDecision is the decision about a module, with its reason.
type TrustDecision struct {
	ModuleID         string `json:"moduleId"`
	PluginName       string `json:"pluginName"`
	EndpointID       string `json:"endpointId,omitempty"`
	ProvenanceIssuer string `json:"provenanceIssuer,omitempty"`
	Trusted          bool   `json:"trusted"`
	Reason           string `json:"reason"`
	// Detail describes the mismatch for operators.
	Detail string `json:"detail,omitempty"`
}

// Normalise trims and de-duplicates the lists and sets implied requirements: verified or matching
// provenance requires a signature, and verified provenance also requires a matching digest,
// because the signature covers only the digest of the content.
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

// Decide returns the decision about one module of the endpoint. A nil policy trusts every module. The
// order of the checks is fixed, and the first failure decides.
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

// refusal returns the reason why the module is not trusted, or "".
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
