package policy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
)

// Name is a name of the catalog that a rule mentions.
type Name struct {
	Rule string // its id
	Type string // Action or Module
	ID   string
}

// entityTypes returns the types of the entities of a request, and of their parents.
func entityTypes() []string {
	return []string{"Principal", "Role", "Action", "Capability", "Module", "Provider"}
}

// attributes returns the attributes of each part of a request; see principalEntity and
// entryEntities.
func attributes(of string) []string {
	switch of {
	case "principal":
		return []string{"role", "labels"}
	case "resource":
		return []string{"action", "effect", "module", "provider", "origin", "permissions", "tags"}
	}
	return nil
}

// spoken holds the names used by one rule.
type spoken struct {
	fault string // the first name that no request can contain
	names []Name
}

// speaks collects the names that a rule uses. A rule about entities that never occur in a request
// would look effective, but either have no effect or deny everything; s.fault describes it.
func speaks(id string, p *cedar.Policy) (spoken, error) {
	raw, err := p.MarshalJSON()
	if err != nil {
		return spoken{}, err
	}
	var doc any
	if err := json.Unmarshal(raw, &doc); err != nil {
		return spoken{}, err
	}
	var s spoken
	s.walk(id, doc)
	return s, nil
}

// walk collects the names in a decoded JSON form of the rule.
func (s *spoken) walk(id string, node any) {
	switch n := node.(type) {
	case []any:
		for _, x := range n {
			s.walk(id, x)
		}
	case map[string]any:
		kind, typed := n["type"].(string)
		name, named := n["id"].(string)
		if typed && named && len(n) == 2 {
			s.entity(id, kind, name)
			return
		}
		if kind, ok := n["entity_type"].(string); ok {
			s.known("the type", kind, entityTypes())
		}
		for _, key := range []string{".", "has"} {
			if access, ok := n[key].(map[string]any); ok {
				s.attribute(access)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(n)) { // the same fault each time
			s.walk(id, n[key])
		}
	}
}

func (s *spoken) entity(rule, kind, id string) {
	switch kind {
	case "Role":
		roles := make([]string, 0, len(capability.Roles()))
		for _, r := range capability.Roles() {
			roles = append(roles, string(r))
		}
		s.known("the role", id, roles)
	case "Action", "Module":
		s.names = append(s.names, Name{rule, kind, id})
	default:
		s.known("the type", kind, entityTypes())
	}
}

func (s *spoken) attribute(access map[string]any) {
	left, _ := access["left"].(map[string]any)
	of, ok := left["Var"].(string)
	attr, said := access["attr"].(string)
	if ok && said {
		s.known("the attribute "+of+".", attr, attributes(of))
	}
}

// known sets s.fault if the name is not in the list, unless it is set already.
func (s *spoken) known(what, name string, list []string) {
	if slices.Contains(list, name) || s.fault != "" {
		return
	}
	there := "there are none"
	if len(list) > 0 {
		there = "there are " + strings.Join(list, ", ")
	}
	if !strings.HasSuffix(what, ".") {
		what += " "
	}
	s.fault = "no request has " + what + name + "; " + there
}

// Unknown returns the actions and modules that rules mention and the catalog does not have,
// because they are misspelt, or their provider is disconnected.
func (p *Policy) Unknown(snap *catalog.Snapshot) (list []Name) {
	names := p.rules.Load().names
	if len(names) == 0 {
		return nil
	}
	there := make(map[Name]bool)
	for _, c := range []capability.Effect{capability.EffectRead, capability.EffectWrite, capability.EffectExternal, capability.EffectAdmin} {
		there[Name{Type: "Action", ID: string(c)}] = true
	}
	for e := range snap.Entries() {
		there[Name{Type: "Action", ID: string(e.Action)}] = true
		there[Name{Type: "Module", ID: e.Module.Extension}] = true
	}
	for _, n := range names {
		if _, row := actions.Lookup(capability.Action(n.ID)); !there[Name{Type: n.Type, ID: n.ID}] && (n.Type != "Action" || !row) {
			list = append(list, n)
		}
	}
	return list
}
