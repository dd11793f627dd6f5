package nodesource

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// manifest returns a capability-router manifest that lists a module's functions as actions.
func manifest(m *capability.Module) json.RawMessage {
	type action struct {
		Name        string    `json:"name"`
		Description string    `json:"description"`
		Parameters  jsonx.Raw `json:"parameters,omitempty"`
	}
	list := []action{}
	for i := range m.Contributions {
		c := &m.Contributions[i]
		if c.Member.Kind != memberKind {
			continue
		}
		a := action{Name: c.Member.Name, Description: c.Description, Parameters: jsonx.Raw(c.InputSchema)}
		a.Description = cmp.Or(a.Description, a.Name)
		list = append(list, a)
	}
	doc, err := jsonx.Marshal(map[string]any{"id": m.ID, "name": m.Name, "actions": list})
	if err != nil {
		return nil // a schema that is not JSON: the catalog refuses that entry
	}
	return doc
}

// skillExtension returns the catalog-wide id of an installed skill. The dots of the skill's
// name are escaped, so that no node can choose a name that collides with another node's.
func skillExtension(node, skill string) string {
	return "skill." + node + "." + strings.ReplaceAll(escape(skill), ".", "~2e")
}

// escape converts a foreign name to the grammar of contribution ids.
func escape(s string) string {
	const hex = "0123456789abcdef"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("._-", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('~')
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
	return b.String()
}
