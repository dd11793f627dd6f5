package restserve

import (
	"net/http"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// entry is a catalog entry with its 13 fields, and its member address.
type entry struct {
	compile.EntryJSON
	Member   string `json:"member,omitempty"`
	Withheld string `json:"withheld,omitempty"`
}

// wire returns an entry for the caller; its approval is "required" if the caller's rules
// require consent.
func (s *Surface) wire(who capability.Principal, doc compile.EntryJSON, e *catalog.Entry) entry {
	out := entry{EntryJSON: doc}
	if s.Policy.Authorize(who, e).Consent != "" {
		out.Policy.Approval = "required"
	}
	if m := e.Contribution.Member; !m.IsZero() {
		out.Member = m.String()
	}
	return out
}

// contextOf decodes and checks a context: the body of a POST, or else the query
// parameters context=key=value.
func contextOf(w http.ResponseWriter, r *http.Request) (*capability.Context, error) {
	c := new(capability.Context)
	if r.Method == http.MethodPost {
		body, err := httpapi.ReadBody(w, r, 1<<20)
		if err != nil {
			return nil, err
		}
		if err := jsonx.UnmarshalStrict(body, c); err != nil {
			return nil, httpapi.BadJSON(err)
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

// agentCatalog writes the actions that a context may use and the caller's rules permit.
func (s *Surface) agentCatalog(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	c, err := contextOf(w, r)
	if err != nil {
		return err
	}
	agent, permitted, err := s.Engine.Agent(capability.Invocation{Principal: who, Context: c})
	if err != nil {
		return err
	}
	shown, err := agent.Expose(compile.Limits{Exposure: agent.Snapshot().Settings().Exposure})
	if err != nil {
		return err
	}
	page, err := pageOf(r, agent.Snapshot().Generation)
	if err != nil {
		return err
	}
	actions, entries, only := []compile.ActionJSON{}, []entry{}, r.URL.Query().Get("action")
	for a := range agent.Actions() {
		named := only == "" || a.Name == only || string(a.Canonical) == only ||
			slices.ContainsFunc(a.Entries, func(e *catalog.Entry) bool { return nameInRules(e) == only })
		if !named || !page.takes() {
			continue
		}
		n := *a
		n.Entries = slices.DeleteFunc(slices.Clone(a.Entries), func(e *catalog.Entry) bool { return !permitted(e) })
		if len(n.Entries) == 0 {
			continue
		}
		one, err := agent.ActionJSON(&n, shown.Shows(n.Name))
		if err != nil {
			return err
		}
		actions = append(actions, one)
		for _, e := range n.Entries {
			if n.Alias {
				break
			}
			doc, err := agent.EntryJSON(&n, e)
			if err != nil {
				return err
			}
			entries = append(entries, s.wire(who, doc, e))
		}
	}
	return httpapi.WriteCatalog(w, r, agent.Snapshot().Generation,
		page.mark(map[string]any{"audience": capability.AudienceAgent, "actions": actions, "entries": entries}))
}

// internalCatalog writes every entry, including those that cannot be called.
func (s *Surface) internalCatalog(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	snap := s.Catalog.Snapshot()
	count := make(map[capability.Action]int)
	for e := range snap.Entries() {
		count[e.Action]++
	}
	page, err := pageOf(r, snap.Generation)
	if err != nil {
		return err
	}
	entries := []entry{}
	for e := range snap.Entries() {
		if !page.takes() {
			continue
		}
		one := s.wire(who, compile.InternalJSON(e, count[e.Action] > 1), e)
		one.Withheld = snap.Withheld(e)
		entries = append(entries, one)
	}
	return httpapi.WriteCatalog(w, r, snap.Generation, page.mark(map[string]any{
		"audience": capability.AudienceInternal, "entries": entries,
		"rejected": snap.Rejected(),
	}))
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
	return httpapi.Answer(w, map[string]any{"conflicts": list}, nil)
}

func (s *Surface) modules(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	list := []map[string]any{}
	for m := range s.Catalog.Snapshot().Modules() {
		list = append(list, s.moduleHead(m))
	}
	return httpapi.Answer(w, map[string]any{"modules": list}, nil)
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

// module writes the module with that id or extension id, its entries and its manifest.
func (s *Surface) module(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	id := r.PathValue("id")
	snap := s.Catalog.Snapshot()
	for m := range snap.Modules() {
		if m.ID != id && m.Extension != id {
			continue
		}
		body := s.moduleHead(m)
		contributions := []entry{}
		for _, e := range snap.ModuleEntries(m.Extension) {
			contributions = append(contributions, s.wire(who, compile.InternalJSON(e, false), e))
		}
		body["contributions"] = contributions
		if len(m.Manifest) > 0 {
			body["manifest"] = m.Manifest
		}
		return httpapi.Answer(w, body, nil)
	}
	return capability.Errorf(capability.CodeNotFound, "modules.show", "no module %q", id).With("module_not_found",
		"list them with: junctor modules list")
}
