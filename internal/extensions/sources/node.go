package sources

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
	"github.com/junctor-run/junctor/internal/extensions/manifest"
)

// Node is a joined process as it describes itself (CMP; nodes spec, sections 5.4
// and 15.1).
type Node struct {
	ID           string
	Tags         []string // its capability labels
	Availability capability.Availability
	Functions    []NodeFunction
}

// NodeFunction is one function of a node.
type NodeFunction struct {
	Name         string          `json:"name"`
	Description  string          `json:"description,omitempty"`
	Tags         []string        `json:"tags,omitempty"`
	InputSchema  json.RawMessage `json:"input_schema,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	Effect       string          `json:"effect,omitempty"` // read, write, execute, administer, or ours
	Consent      bool            `json:"requires_consent,omitempty"`
}

// reserved are CMP's own functions and the families they are (decision R16).
func reserved() map[string]capability.Action {
	return map[string]capability.Action{
		"device.install_remote_skill":       "device.skill.install",
		"device.uninstall_remote_skill":     "device.skill.uninstall",
		"device.list_installed_skills":      "device.skill.list",
		"device.list_node_functions":        "device.function.list",
		"device.get_capability_host_status": "device.status.get",
	}
}

// CMPNode maps a node to extension node.<id>: its reserved functions and the
// generic call to the device family, every other function to the action
// fn.<function>. Nodes that offer a function with the same input schema share that
// action; where schemas differ the catalog keeps each node's function a tool of
// its own. The provider is always node/<id>, so that a selector can name it.
func CMPNode(n Node) (manifest.Extension, []string, error) {
	var r report
	x := manifest.Extension{ID: naming.ExtensionID("node.", n.ID), Name: n.ID, Label: label(n.ID), Origin: "remote"}
	provider := &manifest.Provider{Kind: "node", Instances: []manifest.Instance{{ID: n.ID}}}
	available := manifest.Availability{Availability: n.Availability}
	doubled := twice(n.Functions, func(f NodeFunction) string { return f.Name })
	families := []capability.Action{}
	var kept []NodeFunction
	for _, f := range n.Functions {
		action, own := reserved()[f.Name]
		switch {
		case !validName(f.Name) || len(f.Name) > maxName-3 || strings.ContainsFunc(f.Name, func(c rune) bool { return c > '~' || !naming.IDByte(byte(c)) }):
			r.add("function %s is dropped: a name has 1 to %d of A-Z, a-z, 0-9, '.', '_' and '-'", shown(f.Name), maxName-3)
		case doubled[f.Name]:
			r.add("function %s is dropped: it is listed more than once", shown(f.Name))
		case own:
			families = append(families, action)
		case len(f.InputSchema) > 0 && !objectSchema(f.InputSchema):
			r.add("function %s is dropped: its input schema is not that of an object within %d bytes", shown(f.Name), maxDefinition)
		case len(kept) == maxDefinitions/2:
			r.add("there are more than %d functions", maxDefinitions/2)
		default:
			kept = append(kept, f)
		}
	}
	if len(kept) > 0 {
		families = append(families, "device.function.invoke")
	}
	slices.Sort(families)
	tags := tagsOf(&r, n.Tags)
	if len(families) > 0 {
		x.Contributions = append(x.Contributions, manifest.Contribution{
			ID: "device", Kind: "capability.agent-tool", Title: title(n.ID), Actions: families, Provider: provider, Tags: tags, Availability: available,
		})
	}
	ids := naming.ContributionIDs("", names(kept, func(f NodeFunction) string { return f.Name }))
	for _, f := range kept {
		c := manifest.Contribution{
			ID: ids[f.Name], Kind: "capability.agent-tool", Title: title(f.Name), Description: text(f.Description), Actions: []capability.Action{capability.Action("fn." + f.Name)},
			Tool:     &manifest.Tool{Name: f.Name, Effect: nodeEffect(f.Effect), InputSchema: f.InputSchema, Approval: f.Consent},
			Provider: provider, Tags: tagsOf(&r, append(slices.Clone(n.Tags), f.Tags...)), Availability: available,
		}
		if objectSchema(f.OutputSchema) {
			c.Tool.OutputSchema = f.OutputSchema
		}
		if c.ID == "device" {
			c.ID = "device-" + naming.Mark(f.Name)
		}
		x.Contributions = append(x.Contributions, c)
	}
	return finish(x, &r)
}

// nodeEffect reads CMP's words for effects; what nobody knows is external.
func nodeEffect(effect string) capability.Effect {
	switch effect {
	case "read":
		return capability.EffectRead
	case "write":
		return capability.EffectWrite
	case "administer", "admin":
		return capability.EffectAdmin
	}
	return capability.EffectExternal
}

// tagsOf keeps the tags that a contribution may have.
func tagsOf(r *report, tags []string) []string {
	var out []string
	for _, tag := range tags {
		if !validName(tag) || len(tag) > 64 {
			r.add("tag %s is dropped", shown(tag))
			continue
		}
		out = append(out, tag)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) > 16 {
		r.add("%d tags are more than 16: the rest is dropped", len(out))
		out = out[:16]
	}
	return out
}
