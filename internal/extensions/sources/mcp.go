package sources

import (
	"encoding/json"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
	"github.com/junctor-run/junctor/internal/extensions/manifest"
)

// MCPServer is what an MCP server lists.
type MCPServer struct {
	ID    string // the operator's, [A-Za-z0-9._-]+
	Label string // "" is the id
	// TrustReadOnly says that the server's readOnlyHint is believed; otherwise every
	// tool's effect is external (decision R22).
	TrustReadOnly bool
	Availability  capability.Availability
	Tools         []MCPTool
	Prompts       []MCPPrompt
	Resources     []MCPResource
}

// MCPTool is one tool as listed.
type MCPTool struct {
	Name         string          `json:"name"`
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Annotations  struct {
		Title           string `json:"title,omitempty"`
		ReadOnlyHint    bool   `json:"readOnlyHint,omitempty"`
		DestructiveHint *bool  `json:"destructiveHint,omitempty"`
	} `json:"annotations,omitzero"`
}

// MCPPrompt is one prompt as listed.
type MCPPrompt struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
}

// MCPResource is one resource, or resource template, as listed.
type MCPResource struct {
	URI         string `json:"uri"`
	Name        string `json:"name,omitempty"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
}

// MCP maps a server to extension mcp.<id>: tools to agent tools, prompts to
// interactions that nobody sees unless asked, resources to context augmenters. A
// destructiveHint is always believed: it only asks for more approvals. The outcome
// does not depend on the order of the lists (scenario R11).
func MCP(s MCPServer) (manifest.Extension, []string, error) {
	var r report
	x := manifest.Extension{ID: naming.ExtensionID("mcp.", s.ID), Name: s.ID, Label: label(s.Label, s.ID), Origin: "config"}
	available := manifest.Availability{Availability: s.Availability}
	var tools []MCPTool
	doubled := twice(s.Tools, func(t MCPTool) string { return t.Name })
	for _, t := range s.Tools {
		switch {
		case !validName(t.Name):
			r.add("tool %s is dropped: its name is empty, longer than %d bytes or holds characters that are not shown", shown(t.Name), maxName)
		case doubled[t.Name]:
			r.add("tool %s is dropped: it is listed more than once", shown(t.Name))
		case !objectSchema(t.InputSchema):
			r.add("tool %s is dropped: its input schema is not that of an object within %d bytes", shown(t.Name), maxDefinition)
		case len(t.InputSchema)+len(t.OutputSchema)+len(t.Description) > maxDefinition:
			r.add("tool %s is dropped: its definition is larger than %d bytes", shown(t.Name), maxDefinition)
		case len(tools) == maxDefinitions:
			r.add("there are more than %d tools", maxDefinitions)
		default:
			tools = append(tools, t)
		}
	}
	ids := naming.ContributionIDs("", names(tools, func(t MCPTool) string { return t.Name }))
	taken := make(map[string]bool)
	for _, t := range tools {
		c := manifest.Contribution{
			ID: ids[t.Name], Kind: "capability.agent-tool", Title: title(t.Title, t.Annotations.Title, t.Name), Description: text(t.Description), Availability: available,
			Tool: &manifest.Tool{
				Name: t.Name, Effect: capability.EffectExternal, InputSchema: t.InputSchema, Approval: t.Annotations.DestructiveHint != nil && *t.Annotations.DestructiveHint,
			},
		}
		if objectSchema(t.OutputSchema) {
			c.Tool.OutputSchema = t.OutputSchema
		}
		if t.Annotations.ReadOnlyHint && s.TrustReadOnly && !c.Tool.Approval { // destroying nothing is the least of reading
			c.Tool.Effect = capability.EffectRead
		}
		taken[c.ID] = true
		x.Contributions = append(x.Contributions, c)
	}
	for _, c := range append(prompts(s.Prompts, &r), resources(s.Resources, &r)...) {
		if taken[c.ID] {
			c.ID += "-" + naming.Mark(c.Kind)
		}
		c.Availability = available
		x.Contributions = append(x.Contributions, c)
	}
	return finish(x, &r)
}

func prompts(list []MCPPrompt, r *report) []manifest.Contribution {
	doubled := twice(list, func(p MCPPrompt) string { return p.Name })
	var kept []MCPPrompt
	for _, p := range list {
		if !validName(p.Name) || doubled[p.Name] || len(kept) == maxDefinitions/4 {
			r.add("prompt %s is dropped: its name is no name, or is listed more than once, or there are too many", shown(p.Name))
			continue
		}
		kept = append(kept, p)
	}
	ids := naming.ContributionIDs("prompt.", names(kept, func(p MCPPrompt) string { return p.Name }))
	var out []manifest.Contribution
	for _, p := range kept {
		out = append(out, manifest.Contribution{
			ID: ids[p.Name], Kind: "capability.interaction", Title: title(p.Title, p.Name), Description: text(p.Description), Visibility: capability.VisibleNone,
			Tool: &manifest.Tool{Name: p.Name, Effect: capability.EffectRead},
		})
	}
	return out
}

func resources(list []MCPResource, r *report) []manifest.Contribution {
	doubled := twice(list, func(m MCPResource) string { return m.URI })
	var out []manifest.Contribution
	for _, m := range list {
		if m.URI == "" || len(m.URI) > 2048 || doubled[m.URI] || len(out) == maxDefinitions/4 {
			r.add("resource %s is dropped: its address is empty, too long or listed more than once, or there are too many", shown(m.URI))
			continue
		}
		out = append(out, manifest.Contribution{
			ID: "resource." + naming.Mark(m.URI) + naming.Mark("again "+m.URI), Kind: "capability.context-augmenter", Title: title(m.Title, m.Name, m.URI), Description: text(m.Description),
		})
	}
	return out
}

func names[T any](list []T, name func(T) string) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = name(list[i])
	}
	return out
}
