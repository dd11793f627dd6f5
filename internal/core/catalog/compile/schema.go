package compile

import (
	"encoding/json"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
)

// InputSchema returns the schema for planners: the registry's or the tool's own, with a
// selector if there are several providers. With a single provider the selector is omitted.
func (a *Action) InputSchema() (json.RawMessage, error) {
	base := a.baseSchema()
	if len(a.Entries) < 2 && !a.RequiresSelection {
		return base, nil
	}
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(base, &doc); err != nil || doc == nil {
		return nil, capability.Wrap(capability.CodeFailed, "schema", "the input schema of "+a.Name+" is not an object", err)
	}
	properties := make(map[string]json.RawMessage)
	if raw, ok := doc["properties"]; ok {
		if err := json.Unmarshal(raw, &properties); err != nil {
			return nil, capability.Wrap(capability.CodeFailed, "schema", "the properties of "+a.Name+" are not an object", err)
		}
	}
	if properties == nil { // "properties": null
		properties = make(map[string]json.RawMessage)
	}
	if _, own := properties["selector"]; own {
		return base, nil // the tool has its own argument named selector
	}
	selector, err := jsonx.Marshal(a.selector())
	if err != nil {
		return nil, err
	}
	properties["selector"] = selector
	if doc["properties"], err = jsonx.Marshal(properties); err != nil {
		return nil, err
	}
	if a.RequiresSelection {
		var required []string
		if raw, ok := doc["required"]; ok {
			if err := json.Unmarshal(raw, &required); err != nil {
				return nil, capability.Wrap(capability.CodeFailed, "schema", "the required fields of "+a.Name+" are not a list", err)
			}
		}
		if !slices.Contains(required, "selector") {
			required = append(required, "selector")
		}
		if doc["required"], err = jsonx.Marshal(required); err != nil {
			return nil, err
		}
	}
	return jsonx.Marshal(doc)
}

func (a *Action) baseSchema() json.RawMessage {
	if first := a.Entries[0]; first.Row != nil && len(first.Row.InputSchema) > 0 {
		return first.Row.InputSchema
	}
	if doc := a.Entries[0].InputSchema(); len(doc) > 0 {
		return doc
	}
	return json.RawMessage(`{"type":"object"}`)
}

// OutputSchema returns the registry's or the tool's own schema, or nil if none is declared.
func (a *Action) OutputSchema() json.RawMessage { return a.Entries[0].OutputSchema() }

type property struct {
	Type                 string              `json:"type"`
	Description          string              `json:"description,omitempty"`
	Enum                 []string            `json:"enum,omitempty"`
	Properties           map[string]property `json:"properties,omitempty"`
	AdditionalProperties *bool               `json:"additionalProperties,omitempty"`
}

// selector returns the schema of the selector: the family's fields with their possible values,
// or the provider keys if no field can identify a provider.
func (a *Action) selector() property {
	closed := false
	p := property{
		Type: "object", Description: "Which provider shall do it.", Properties: make(map[string]property), AdditionalProperties: &closed,
	}
	for _, field := range a.Family.SelectorFields {
		var values []string
		for _, e := range a.Entries {
			if v, ok := arbitration.SelectorValue(e, field); ok {
				values = append(values, v)
			}
		}
		slices.Sort(values)
		values = slices.Compact(values)
		switch {
		case len(values) == 0:
		case len(values) > maxEnum:
			p.Properties[field] = property{Type: "string", Description: "There are too many to list; find them with catalog.search."}
		default:
			p.Properties[field] = property{Type: "string", Enum: values}
		}
	}
	if len(p.Properties) == 0 { // the family's fields name none of these providers
		p.Properties["provider"] = property{Type: "string", Enum: a.Providers()}
	}
	return p
}
