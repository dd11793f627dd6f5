package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/command"
)

// Name is a name of the catalog that a rule mentions.
type Name struct {
	Rule string // its id
	Type string // Action, Module, Server or Tool
	ID   string
	Near []string // names of the catalog that are similar
	// Away is true if the catalog has nothing of the server or extension of the name, as after its removal.
	Away bool `json:"-"`
}

// entityTypes returns the types of the entities of a request, and of their parents.
func entityTypes() []string {
	return []string{"Principal", "Role", "Action", "Capability", "Module", "Provider", "Server", "Tool"}
}

// scopeTypes returns the entity types that may stand in each part of a rule's head.
func scopeTypes(part string) []string {
	switch part {
	case "principal":
		return []string{"Principal", "Role"}
	case "action":
		return []string{"Action"}
	}
	return []string{"Capability", "Module", "Provider", "Server", "Tool"}
}

// ServerOf returns the name of the MCP server or A2A agent that provides an entry, as the
// operator added it, or "" for an entry of another kind. Only the operator chooses these
// names, so that no provider can take another one's.
func ServerOf(e *catalog.Entry) string {
	if origin := e.Module.Origin; origin != "mcp" && origin != "a2a" {
		return ""
	}
	return e.Module.Name
}

// ToolOf returns the name by which rules refer to a tool of an MCP server or A2A agent,
// SERVER/TOOL, or "" for an entry that is not such a tool. It does not depend on the names
// that agents see.
func ToolOf(e *catalog.Entry) string {
	server := ServerOf(e)
	if server == "" || e.Contribution.Tool == "" {
		return ""
	}
	return server + "/" + e.Contribution.Tool
}

// NameOf returns the name that people read for an entry: for a tool of a server that of rules, such as
// files/write_file, otherwise its own.
func NameOf(e *catalog.Entry) string {
	if tool := ToolOf(e); tool != "" {
		return tool
	}
	return e.Name()
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

// vocabulary is what one rule mentions.
type vocabulary struct {
	fault  string // the first name that no request has
	names  []Name
	tool   bool          // the head names one tool
	policy *cedar.Policy // the rule as it is evaluated; see rewrite
}

// vocabularyOf collects the vocabulary of a rule. A rule about entities that never occur in a
// request would look effective, but either have no effect or deny everything.
func vocabularyOf(id string, p *cedar.Policy) (vocabulary, error) {
	raw, err := p.MarshalJSON()
	if err != nil {
		return vocabulary{}, err
	}
	var doc map[string]any
	if err := json.Unmarshal(raw, &doc); err != nil {
		return vocabulary{}, err
	}
	var s vocabulary
	for _, part := range []string{"principal", "action", "resource"} {
		s.scope(part, doc[part])
	}
	s.collect(id, doc)
	groups := slices.ContainsFunc(s.names, func(n Name) bool { return n.Type == "Tool" || n.Type == "Server" })
	if _, approval := p.Annotations()["approval"]; !groups && !approval {
		s.policy = p // the usual case; decoding the JSON form again takes most of the time
		return s, nil
	}
	rewrite(doc)
	if raw, err = json.Marshal(doc); err != nil {
		return vocabulary{}, err
	}
	s.policy = new(cedar.Policy)
	return s, s.policy.UnmarshalJSON(raw)
}

// scope checks the type of the entity in one part of a rule's head, because the parser
// accepts any type there and a rule with a wrong one would never match.
func (s *vocabulary) scope(part string, node any) {
	head, _ := node.(map[string]any)
	list, _ := head["entities"].([]any)
	if entity, ok := head["entity"]; ok {
		list = append(list, entity)
	}
	for _, x := range list {
		entity, _ := x.(map[string]any)
		kind, _ := entity["type"].(string)
		id, _ := entity["id"].(string)
		if kind == "Tool" && part == "resource" {
			s.tool = true
		}
		if !slices.Contains(entityTypes(), kind) || slices.Contains(scopeTypes(part), kind) || s.fault != "" {
			continue
		}
		s.fault = fmt.Sprintf("%s cannot be %s::%q", part, kind, id)
		switch {
		case slices.Contains(scopeTypes("resource"), kind):
			s.fault += fmt.Sprintf("; write resource == %s::%q", kind, id)
		case kind == "Action":
			s.fault += fmt.Sprintf("; write action == %s::%q", kind, id)
		default:
			s.fault += fmt.Sprintf("; write principal in %s::%q", kind, id)
		}
	}
}

// rewrite turns a comparison with a Tool or Server into a test of membership, and a forbid
// with @approval into a permit. A capability has one identity in a request and its tool and
// server are its parents, so that "resource == Tool" would never hold.
func rewrite(doc map[string]any) {
	if head, ok := doc["resource"].(map[string]any); ok && head["op"] == "==" {
		if entity, ok := head["entity"].(map[string]any); ok && isGroup(entity) {
			head["op"] = "in"
		}
	}
	if notes, ok := doc["annotations"].(map[string]any); ok && notes["approval"] != nil {
		doc["effect"] = "permit"
	}
	rewriteNode(doc["conditions"])
}

func rewriteNode(node any) {
	switch n := node.(type) {
	case []any:
		for _, x := range n {
			rewriteNode(x)
		}
	case map[string]any:
		for _, op := range []string{"==", "!="} {
			sides, _ := n[op].(map[string]any)
			if sides == nil {
				continue
			}
			left, right := sides["left"], sides["right"]
			if isGroupValue(left) {
				left, right = right, left
			}
			if !isGroupValue(right) {
				continue
			}
			delete(n, op)
			member := map[string]any{"left": left, "right": right}
			if op == "==" {
				n["in"] = member
			} else {
				n["!"] = map[string]any{"arg": map[string]any{"in": member}}
			}
		}
		for _, x := range n {
			rewriteNode(x)
		}
	}
}

// isGroup reports whether an entity in the JSON form of a rule is a Tool or a Server.
func isGroup(entity map[string]any) bool {
	return entity["type"] == "Tool" || entity["type"] == "Server"
}

func isGroupValue(node any) bool {
	n, _ := node.(map[string]any)
	value, _ := n["Value"].(map[string]any)
	entity, _ := value["__entity"].(map[string]any)
	return isGroup(entity)
}

// collect appends the actions, modules, servers and tools that node mentions to s.names, and sets
// s.fault, unless set, to the first role, type or attribute that no request has. node is a part of
// the decoded JSON form of the rule id.
func (s *vocabulary) collect(id string, node any) {
	switch n := node.(type) {
	case []any:
		for _, x := range n {
			s.collect(id, x)
		}
	case map[string]any:
		kind, typed := n["type"].(string)
		name, named := n["id"].(string)
		if typed && named && len(n) == 2 {
			s.entity(id, kind, name)
			return
		}
		if kind, ok := n["entity_type"].(string); ok {
			s.known("the type", kind, []string{"Principal", "Action", "Capability"}) // the others are groups of these
		}
		for _, key := range []string{".", "has"} {
			if access, ok := n[key].(map[string]any); ok {
				s.attribute(access)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(n)) { // the same fault each time
			s.collect(id, n[key])
		}
	}
}

func (s *vocabulary) entity(rule, kind, id string) {
	switch kind {
	case "Role":
		roles := make([]string, 0, len(capability.Roles()))
		for _, r := range capability.Roles() {
			roles = append(roles, string(r))
		}
		s.known("the role", id, roles)
	case "Action", "Module", "Server", "Tool":
		s.names = append(s.names, Name{Rule: rule, Type: kind, ID: id})
	default:
		s.known("the type", kind, entityTypes())
	}
}

func (s *vocabulary) attribute(access map[string]any) {
	left, _ := access["left"].(map[string]any)
	of, ok := left["Var"].(string)
	attr, said := access["attr"].(string)
	if ok && said {
		s.known("the attribute "+of+".", attr, attributes(of))
	}
}

// known sets s.fault if the name is not in the list, unless it is set already.
func (s *vocabulary) known(what, name string, list []string) {
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

// Unknown returns the actions, modules, servers and tools that rules mention and the catalog
// does not have, because they are misspelt, or their provider is disconnected.
func (p *Policy) Unknown(snap *catalog.Snapshot) (list []Name) {
	names := p.rules.Load().names
	if len(names) == 0 {
		return nil
	}
	known := namesOf(snap)
	for _, n := range names {
		if _, found := slices.BinarySearch(known[n.Type], n.ID); !found {
			n.Near, n.Away = command.Nearest(n.ID, known[n.Type]), away(n, known)
			list = append(list, n)
		}
	}
	return list
}

// away reports whether a name that is not known belongs to a server or an extension of which nothing is.
func away(n Name, known map[string][]string) bool {
	of := strings.LastIndexByte(n.ID, '.')
	switch {
	case n.Type == "Server":
		return true
	case n.Type == "Tool":
		server, _, _ := strings.Cut(n.ID, "/")
		return !slices.Contains(known["Server"], server)
	case n.Type != "Action" || !strings.HasPrefix(n.ID, "ext."):
		return false
	}
	return !slices.ContainsFunc(known["Action"], func(name string) bool { return strings.HasPrefix(name, n.ID[:of+1]) })
}
