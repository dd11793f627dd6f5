package consoleserve

import (
	"net/http"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/catalog"
	"github.com/junctor-run/junctor/internal/jsonx"
	"github.com/junctor-run/junctor/internal/surface/door"
)

// entry is the wire form of a catalog entry: the 13 fields of the catalog spec,
// section 4.2, and where it can be addressed.
type entry struct {
	CapabilityID      capability.ID           `json:"capabilityId"`
	Kind              string                  `json:"kind"`
	CanonicalAction   capability.Action       `json:"canonicalAction"`
	DisplayName       string                  `json:"displayName"`
	Description       string                  `json:"description"`
	ProviderKey       capability.ProviderKey  `json:"providerKey"`
	Scope             map[string]any          `json:"scope"`
	Availability      capability.Availability `json:"availability"`
	RequiresSelection bool                    `json:"requiresSelection"`
	InputSchema       jsonx.Raw               `json:"inputSchema"`
	OutputSchema      jsonx.Raw               `json:"outputSchema"`
	Policy            map[string]any          `json:"policy"`
	TelemetryTags     map[string]string       `json:"telemetryTags"`
	Tool              string                  `json:"tool,omitempty"`
	Member            string                  `json:"member,omitempty"`
}

func (s *Surface) wire(who capability.Principal, e *catalog.Entry) entry {
	c := e.Contribution
	out := entry{
		CapabilityID: e.ID, Kind: c.Kind, CanonicalAction: e.Action, DisplayName: e.DisplayName(), Description: e.Description(),
		ProviderKey: e.Key(), Scope: map[string]any{}, Availability: c.Availability, Tool: e.WireName,
		InputSchema: orNull(e.InputSchema()), OutputSchema: orNull(e.OutputSchema()), TelemetryTags: e.TelemetryTags(),
		RequiresSelection: requiresSelection(s.Catalog.Snapshot(), e),
	}
	if out.Availability.State == "" {
		out.Availability.State = capability.StateReady
	}
	approval := "none"
	if v := s.Policy.Authorize(who, e); v.Consent != "" {
		approval = "required"
	}
	out.Policy = map[string]any{"effect": e.Effect, "approval": approval}
	if !c.Member.IsZero() {
		out.Member = c.Member.String()
	}
	return out
}

// requiresSelection reports whether a call without a selector would be refused
// for want of one.
func requiresSelection(snap *catalog.Snapshot, e *catalog.Entry) bool {
	_, err := catalog.Select(capability.Target{Action: e.Action}, snap.Action(e.Action), nil)
	return capability.CodeOf(err) == capability.CodeSelectionRequired
}

func orNull(doc []byte) jsonx.Raw {
	if len(doc) == 0 {
		return jsonx.Raw("null")
	}
	return jsonx.Raw(doc)
}

func (s *Surface) catalog(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	audience := capability.Audience(r.PathValue("audience"))
	var roles []capability.Role
	switch audience {
	case capability.AudienceAgent:
	case capability.AudienceOperator, capability.AudienceInternal:
		roles = []capability.Role{capability.RoleAdmin, capability.RoleOperator}
	default:
		return capability.Errorf(capability.CodeNotFound, "catalog", "there is no catalog %q; use agent, operator or internal", audience)
	}
	if roles != nil {
		if err := s.Policy.Require(r.Context(), who, "catalog "+string(audience), roles...); err != nil {
			return err
		}
	}
	snap := s.Catalog.Snapshot()
	tag := `"` + snap.Etag + `"`
	w.Header().Set("Etag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if r.URL.Query().Get("etag") == snap.Etag {
		door.WriteJSON(w, http.StatusOK, map[string]any{"audience": audience, "etag": snap.Etag, "unchanged": true})
		return nil
	}
	entries := []entry{}
	for _, e := range s.Engine.List(who, audience) {
		entries = append(entries, s.wire(who, e))
	}
	door.WriteJSON(w, http.StatusOK, map[string]any{
		"audience": audience, "generation": snap.Generation, "etag": snap.Etag, "entries": entries,
	})
	return nil
}

func (s *Surface) conflicts(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	conflicts := s.Catalog.Snapshot().Conflicts
	if conflicts == nil {
		conflicts = []catalog.Conflict{}
	}
	door.WriteJSON(w, http.StatusOK, map[string]any{"conflicts": conflicts})
	return nil
}

func (s *Surface) modules(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	list := []map[string]any{}
	for _, m := range s.Catalog.Snapshot().Modules {
		list = append(list, s.moduleHead(m))
	}
	door.WriteJSON(w, http.StatusOK, map[string]any{"modules": list})
	return nil
}

func (s *Surface) moduleHead(m *capability.Module) map[string]any {
	head := map[string]any{
		"id": m.ID, "extension": m.Extension, "name": m.Name, "version": m.Version, "origin": m.Origin,
		"endpoint": m.Endpoint, "digest": m.Digest, "contributions": len(m.Contributions),
	}
	if m.Endpoint != "" && s.Trust != nil {
		if decision := s.Trust(m.Endpoint, m.ID); decision != nil {
			head["trust"] = decision
		}
	}
	return head
}

func (s *Surface) module(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	id := r.PathValue("id")
	snap := s.Catalog.Snapshot()
	for _, m := range snap.Modules {
		if m.ID != id && m.Extension != id {
			continue
		}
		body := s.moduleHead(m)
		contributions := []entry{}
		for _, e := range snap.Entries {
			if e.Module == m {
				contributions = append(contributions, s.wire(who, e))
			}
		}
		body["contributions"] = contributions
		if len(m.Manifest) > 0 {
			body["manifest"] = m.Manifest
		}
		door.WriteJSON(w, http.StatusOK, body)
		return nil
	}
	return capability.Errorf(capability.CodeNotFound, "modules.show", "no module %q", id).With("module_not_found", "list them with: junctor modules list")
}
