package consoleserve

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/catalog"
	"github.com/junctor-run/junctor/internal/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/catalog/naming"
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
	Scope             *capability.Scope       `json:"scope"`
	Availability      capability.Availability `json:"availability"`
	RequiresSelection bool                    `json:"requiresSelection"`
	InputSchema       jsonx.Raw               `json:"inputSchema"`
	OutputSchema      jsonx.Raw               `json:"outputSchema"`
	Policy            map[string]any          `json:"policy"`
	TelemetryTags     map[string]string       `json:"telemetryTags"`
	Withheld          string                  `json:"withheld,omitempty"`
	Member            string                  `json:"member,omitempty"`
}

// wire is an entry as it is published. requires says whether a call to its
// action would need a selector where it is shown.
func (s *Surface) wire(who capability.Principal, frame *arbitration.Frame, e *catalog.Entry, requires bool) entry {
	c := e.Contribution
	out := entry{
		CapabilityID: e.ID, Kind: c.Kind, CanonicalAction: e.Action, DisplayName: e.DisplayName(), Description: e.Description(),
		ProviderKey: e.Key(), Scope: c.Scope, Availability: c.Availability,
		InputSchema: orNull(e.InputSchema()), OutputSchema: orNull(e.OutputSchema()), TelemetryTags: e.TelemetryTags(),
		RequiresSelection: requires,
	}
	if out.Scope == nil {
		out.Scope = &capability.Scope{}
	}
	if out.Availability.State == "" {
		out.Availability.State = capability.StateReady
	}
	approval := "none"
	if v := s.Policy.Authorize(who, e); v.Consent != "" || frame.Approval(e) {
		approval = "required"
	}
	out.Policy = map[string]any{"effect": e.Effect, "approval": approval, "matchedRules": orEmpty(frame.Matched(e))}
	if !c.Member.IsZero() {
		out.Member = c.Member.String()
	}
	return out
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func orNull(doc []byte) jsonx.Raw {
	if len(doc) == 0 {
		return jsonx.Raw("null")
	}
	return jsonx.Raw(doc)
}

// tool is one action of the agent catalog (catalog spec, section 4.3).
type tool struct {
	Name              string            `json:"name"`
	CanonicalAction   capability.Action `json:"canonicalAction"`
	Title             string            `json:"title"`
	Description       string            `json:"description"`
	InputSchema       jsonx.Raw         `json:"inputSchema"`
	OutputSchema      jsonx.Raw         `json:"outputSchema"`
	Providers         []string          `json:"providers"`
	Entries           []capability.ID   `json:"entries"`
	RequiresSelection bool              `json:"requiresSelection"`
	WireNames         map[string]string `json:"wireNames"`
}

// contextOf reads a context: the body of a POST, or context=key=value of a query.
func contextOf(w http.ResponseWriter, r *http.Request) (*capability.Context, error) {
	c := new(capability.Context)
	if r.Method == http.MethodPost {
		body, err := door.ReadBody(w, r, 1<<20)
		if err != nil {
			return nil, err
		}
		if err := jsonx.UnmarshalStrict(body, c); err != nil {
			return nil, door.BadJSON(err)
		}
		return c, c.Check()
	}
	for _, kv := range r.URL.Query()["context"] {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			return nil, capability.Errorf(capability.CodeInvalidInput, "decode", "context: %q is not key=value", kv)
		}
		if err := c.Set(k, v); err != nil {
			return nil, err
		}
	}
	return c, c.Check()
}

// agentCatalog is what a context may use, as far as the caller's rules permit.
func (s *Surface) agentCatalog(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	c, err := contextOf(w, r)
	if err != nil {
		return err
	}
	agent, permitted, err := s.Engine.Agent(capability.Invocation{Principal: who, Context: c})
	if err != nil {
		return err
	}
	tools, entries := []tool{}, []entry{}
	for a := range agent.Actions() {
		n := *a
		n.Entries = slices.DeleteFunc(slices.Clone(a.Entries), func(e *catalog.Entry) bool { return !permitted(e) })
		if len(n.Entries) == 0 {
			continue
		}
		schema, err := n.InputSchema()
		if err != nil {
			return err
		}
		one := tool{
			Name: n.Name, CanonicalAction: n.Canonical, Title: n.Title, Description: n.Description, InputSchema: jsonx.Raw(schema),
			OutputSchema: orNull(n.OutputSchema()), Providers: n.Providers(), Entries: n.Capabilities(), RequiresSelection: n.RequiresSelection,
			WireNames: map[string]string{"dotted": n.Name, "mcp": agent.Wire(a, naming.MCP, 0), "strict64": agent.Wire(a, naming.Strict64, 0)},
		}
		tools = append(tools, one)
		for _, e := range n.Entries {
			if !n.Alias {
				entries = append(entries, s.wire(who, agent.Frame, e, n.RequiresSelection))
			}
		}
	}
	return s.published(w, r, agent.Snapshot().Generation, map[string]any{"audience": capability.AudienceAgent, "actions": tools, "entries": entries})
}

// internalCatalog is every entry, reachable or not.
func (s *Surface) internalCatalog(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	agent, _, err := s.Engine.Agent(capability.Invocation{Principal: who})
	if err != nil {
		return err
	}
	snap := agent.Snapshot()
	count := make(map[capability.Action]int)
	for e := range snap.Entries() {
		count[e.Action]++
	}
	entries := []entry{}
	for e := range snap.Entries() {
		one := s.wire(who, agent.Frame, e, count[e.Action] > 1)
		one.Withheld = snap.Withheld(e)
		entries = append(entries, one)
	}
	return s.published(w, r, snap.Generation, map[string]any{"audience": capability.AudienceInternal, "entries": entries, "rejected": snap.Rejected()})
}

// published answers a catalog under its strong etag: the SHA-256 of its content
// without the generation (catalog spec, section 19.3).
func (s *Surface) published(w http.ResponseWriter, r *http.Request, generation uint64, body map[string]any) error {
	content, err := jsonx.Marshal(body)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	etag := hex.EncodeToString(sum[:])
	tag := `"` + etag + `"`
	w.Header().Set("Etag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if r.URL.Query().Get("etag") == etag {
		door.WriteJSON(w, http.StatusOK, map[string]any{"audience": body["audience"], "etag": etag, "unchanged": true})
		return nil
	}
	body["generation"], body["etag"] = generation, etag
	door.WriteJSON(w, http.StatusOK, body)
	return nil
}

func (s *Surface) conflicts(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	c, err := contextOf(w, r)
	if err != nil {
		return err
	}
	agent, _, err := s.Engine.Agent(capability.Invocation{Principal: who, Context: c})
	if err != nil {
		return err
	}
	list := append([]catalog.Conflict{}, agent.Snapshot().Conflicts(r.URL.Query().Has("all"))...)
	list = append(list, agent.NameConflicts()...)
	catalog.SortConflicts(list)
	door.WriteJSON(w, http.StatusOK, map[string]any{"conflicts": list})
	return nil
}

func (s *Surface) modules(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	list := []map[string]any{}
	for m := range s.Catalog.Snapshot().Modules() {
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
	agent, _, err := s.Engine.Agent(capability.Invocation{Principal: who})
	if err != nil {
		return err
	}
	snap := agent.Snapshot()
	for m := range snap.Modules() {
		if m.ID != id && m.Extension != id {
			continue
		}
		body := s.moduleHead(m)
		contributions := []entry{}
		for _, e := range snap.ModuleEntries(m.Extension) {
			contributions = append(contributions, s.wire(who, agent.Frame, e, false))
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
