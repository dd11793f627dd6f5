package endpoint

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/router"
)

// TrustUnreadable is the reason why a module is refused whose endpoint has a saved policy
// that cannot be decoded. Ignoring the policy would admit the module.
const TrustUnreadable = "unreadable-policy"

// ParseTrustPolicy decodes a policy from a request, a file or the store. A field of the
// wrong type is an error that names it; null counts as missing. Unknown fields are listed in
// warnings: requests may ignore them, but a saved policy with unknown fields must not be used.
func ParseTrustPolicy(raw []byte) (p *router.TrustPolicy, warnings []string, err error) {
	var members map[string]jsonx.Raw
	if err := jsonx.Unmarshal(raw, &members); err != nil || members == nil {
		return nil, nil, badPolicy("trustPolicy must be a JSON object")
	}
	p = new(router.TrustPolicy)
	lists := map[string]*[]string{
		"allowedEndpointIds": &p.AllowedEndpointIDs, "allowedModuleIds": &p.AllowedModuleIDs,
		"allowedProvenanceIssuers": &p.AllowedProvenanceIssuers,
	}
	flags := map[string]*bool{
		"requireEndpointId": &p.RequireEndpointID, "requireSignedProvenance": &p.RequireSignedProvenance,
		"requireVerifiedProvenance": &p.RequireVerifiedProvenance, "requireProvenanceDigestMatch": &p.RequireProvenanceDigestMatch,
		"allowSharedModelTypes": &p.AllowSharedModelTypes, "strictNames": &p.StrictNames,
	}
	for name, value := range members {
		switch list, flag := lists[name], flags[name]; {
		case list != nil:
			if *list, err = ParseNames("trustPolicy."+name, value); err != nil {
				return nil, nil, err
			}
		case flag != nil:
			if value.Kind() != 't' && value.Kind() != 'f' {
				return nil, nil, badPolicy("trustPolicy.%s must be true or false", name)
			}
			*flag = value.Kind() == 't'
		case name == "trustedProvenancePublicKeys":
			if p.TrustedProvenancePublicKeys, err = parseKeys(value); err != nil {
				return nil, nil, err
			}
		default:
			warnings = append(warnings, fmt.Sprintf("ignored: trustPolicy.%s is not a known field", name))
		}
	}
	slices.Sort(warnings)
	p.Normalise()
	return p, warnings, nil
}

// ParseNames decodes a JSON list of strings, trims them and removes duplicates. It refuses
// a list without any name, because an operator hardly means "admit nothing" by it.
func ParseNames(what string, raw []byte) ([]string, error) {
	var list []*string
	if err := jsonx.Unmarshal(raw, &list); err != nil || list == nil || slices.Contains(list, nil) {
		return nil, badPolicy("%s must be a list of strings", what)
	}
	out := []string{}
	for _, s := range list {
		if name := strings.TrimSpace(*s); name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		return nil, badPolicy("%s is an empty list, which would connect nothing; leave it out to allow all", what)
	}
	return out, nil
}

// parseKeys decodes the public keys by issuer. It refuses empty issuers and keys, and keys
// that checkKey refuses.
func parseKeys(raw []byte) (map[string]string, error) {
	var keys map[string]*string
	if err := jsonx.Unmarshal(raw, &keys); err != nil || keys == nil {
		return nil, badPolicy("trustPolicy.trustedProvenancePublicKeys must be an object of issuer and PEM public key")
	}
	out := make(map[string]string, len(keys))
	for issuer, key := range keys {
		issuer = strings.TrimSpace(issuer)
		if issuer == "" || key == nil || strings.TrimSpace(*key) == "" {
			return nil, badPolicy("trustPolicy.trustedProvenancePublicKeys: the key of %q must be a PEM public key", issuer)
		}
		if err := checkKey(*key); err != nil {
			return nil, badPolicy("trustPolicy.trustedProvenancePublicKeys: the key of %q cannot be used: %w", issuer, err)
		}
		out[issuer] = *key
	}
	return out, nil
}

// checkKey fails if text is not exactly one Ed25519 public key in PEM form, so that an
// unusable key is refused with the policy and not found at the first module.
func checkKey(text string) error {
	block, rest := pem.Decode([]byte(strings.TrimSpace(text)))
	switch {
	case block == nil:
		return errors.New("it is not a PEM block")
	case len(bytes.TrimSpace(rest)) > 0:
		return errors.New("there is more in it than one PEM block")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return errors.New("it is not a SubjectPublicKeyInfo")
	}
	if _, ok := key.(ed25519.PublicKey); !ok {
		return fmt.Errorf("it is a %T, not an Ed25519 public key", key)
	}
	return nil
}

// checkPolicy fails if one of the policy's keys cannot be used.
func checkPolicy(p *router.TrustPolicy) error {
	if p == nil {
		return nil
	}
	for _, issuer := range slices.Sorted(maps.Keys(p.TrustedProvenancePublicKeys)) {
		if err := checkKey(p.TrustedProvenancePublicKeys[issuer]); err != nil {
			return badPolicy("trustPolicy.trustedProvenancePublicKeys: the key of %q cannot be used: %w", issuer, err)
		}
	}
	return nil
}

func badPolicy(format string, args ...any) error {
	return capability.Errorf(capability.CodeInvalidInput, "endpoints.connect", format, args...)
}

// effectivePolicy returns the policy for one endpoint: the request's policy with its
// allow-list, restricted to modules of this endpoint.
func effectivePolicy(req Request) *router.TrustPolicy {
	var p router.TrustPolicy
	if req.TrustPolicy != nil {
		p = *req.TrustPolicy
	}
	p.RequireEndpointID = true
	if p.AllowedEndpointIDs == nil {
		p.AllowedEndpointIDs = []string{req.ID}
	}
	if req.AllowedModules != nil {
		p.AllowedModuleIDs = req.AllowedModules
	}
	p.Normalise()
	return &p
}

func (ep *Endpoint) decide(m *router.Module) router.TrustDecision {
	d := ep.policy.Decide(m, ep.id)
	if ep.distrust != "" {
		d.Trusted, d.Reason, d.Detail = false, TrustUnreadable, ep.distrust
	}
	return d
}

// refused returns the first decision that fails a connect as an error. Modules outside the
// allow-list do not fail it; they are only left out.
func refused(decisions []router.TrustDecision) error {
	for _, d := range decisions {
		if d.Trusted || d.Reason == router.TrustModule {
			continue
		}
		message := fmt.Sprintf("module %s of endpoint %s is not trusted: %s", d.ModuleID, d.EndpointID, d.Reason)
		if d.Detail != "" {
			message += " (" + d.Detail + ")"
		}
		return capability.Errorf(capability.CodeDenied, "endpoints.connect", "%s", message).
			With("module_not_trusted", "change the trust policy, or leave the module out with an allow-list").Detail("trustDecision", d)
	}
	return nil
}

// judge removes from o the modules that the endpoint's policy refuses and returns the changes from
// before, which may be nil. With keep, modules that the endpoint no longer lists stay if the policy
// still accepts them. Decisions list the accepted modules first. judge itself applies nothing.
func (ep *Endpoint) judge(o, before *offering, keep bool) Synced {
	s := Synced{
		Registered: []string{}, Reloaded: []string{}, Unloaded: []string{}, Skipped: []string{},
		TrustDecisions: []router.TrustDecision{},
	}
	if before == nil {
		before = &offering{}
	}
	if keep {
		for _, old := range before.modules {
			if !slices.ContainsFunc(o.modules, func(m router.Module) bool { return m.ID == old.ID }) {
				o.modules = append(o.modules, old)
				o.digests[old.ID] = before.digests[old.ID]
			}
		}
	}
	var rejected []router.TrustDecision
	kept := o.modules[:0:0]
	for _, m := range o.modules {
		d := ep.decide(&m)
		if !d.Trusted {
			rejected = append(rejected, d)
			delete(o.digests, m.ID) // so that it counts as new if it is accepted later
			continue
		}
		s.TrustDecisions = append(s.TrustDecisions, d)
		kept = append(kept, m)
		switch before.digests[m.ID] {
		case "":
			s.Registered = append(s.Registered, m.Name)
		case o.digests[m.ID]:
			s.Skipped = append(s.Skipped, m.Name)
		default:
			s.Reloaded = append(s.Reloaded, m.Name)
		}
	}
	for _, old := range before.modules {
		if !slices.ContainsFunc(kept, func(m router.Module) bool { return m.ID == old.ID }) {
			s.Unloaded = append(s.Unloaded, old.Name)
		}
	}
	for _, d := range rejected {
		if !slices.Contains(s.Unloaded, d.PluginName) && !slices.Contains(s.Skipped, d.PluginName) {
			s.Skipped = append(s.Skipped, d.PluginName)
		}
	}
	s.TrustDecisions = append(s.TrustDecisions, rejected...)
	o.modules, o.decisions = kept, s.TrustDecisions
	if ep.distrust != "" {
		o.availability.Capabilities = router.Capabilities{} // its own families are denied too
	}
	return s
}
