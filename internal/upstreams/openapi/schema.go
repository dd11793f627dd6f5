package openapi

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/junctor-run/junctor/internal/base/text"
)

const component = "#/components/schemas/"

// schemas converts schemas of a document to JSON Schema 2020-12.
type schemas struct {
	doc   *openapi3.T
	old   bool // the dialect of OpenAPI 3.0
	known map[string]converted
	made  map[*openapi3.SchemaRef]converted
}

// converted is a schema with the names of the components that it refers to.
type converted struct {
	schema any
	refs   []string
	size   int // bytes of the schema in the document
}

func newSchemas(doc *openapi3.T) *schemas {
	return &schemas{doc, strings.HasPrefix(doc.OpenAPI, "3.0"), make(map[string]converted), make(map[*openapi3.SchemaRef]converted)}
}

// of returns a schema in the new dialect, with references into $defs, and the names of those. One
// that is too large accepts anything. The caller must not change the schema, which is shared by
// all operations.
func (s *schemas) of(ref *openapi3.SchemaRef) converted {
	if c, ok := s.made[ref]; ok {
		return c
	}
	c := converted{schema: true}
	data, err := json.Marshal(ref)
	var v any
	if ref != nil && err == nil && len(data) <= maxSchema && json.Unmarshal(data, &v) == nil {
		c.size, c.schema = len(data), s.convert(v, 0, &c.refs)
	}
	s.made[ref] = c
	return c
}

// component returns a schema of the components.
func (s *schemas) component(name string) converted {
	c, ok := s.known[name]
	if !ok {
		if ref := s.doc.Components.Schemas[unescape(name)]; ref != nil {
			c = s.of(ref)
		} else {
			c.schema = true
		}
		s.known[name] = c
	}
	return c
}

func unescape(name string) string { return strings.NewReplacer("~1", "/", "~0", "~").Replace(name) }

// convert changes a schema, which may be nested in others, in place.
func (s *schemas) convert(v any, depth int, refs *[]string) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v != false
	}
	if depth > maxNested {
		return true
	}
	if ref, ok := m["$ref"].(string); ok {
		name := strings.TrimPrefix(ref, component)
		if name == ref || strings.Contains(name, "/") || s.doc.Components == nil {
			return true // a place that is not a schema of the components
		}
		*refs = append(*refs, name)
		return map[string]any{"$ref": "#/$defs/" + name}
	}
	for key, value := range m {
		switch key {
		case "example", "examples", "xml", "externalDocs", "discriminator", "deprecated",
			"$schema", "$id", "$anchor", "$dynamicRef", "$dynamicAnchor":
			delete(m, key)
		case "enum", "const", "default", "required", "type", "dependentRequired":
		case "properties", "patternProperties", "$defs", "dependentSchemas":
			if of, ok := value.(map[string]any); ok {
				for name, schema := range of {
					of[name] = s.convert(schema, depth+1, refs)
				}
			}
		case "description", "title":
			if long, ok := value.(string); ok {
				m[key] = text.ShortenBytes(long, 1<<10)
			}
		default:
			switch value := value.(type) {
			case map[string]any:
				m[key] = s.convert(value, depth+1, refs)
			case []any:
				for i := range value {
					if _, ok := value[i].(map[string]any); ok {
						value[i] = s.convert(value[i], depth+1, refs)
					}
				}
			}
			if strings.HasPrefix(key, "x-") {
				delete(m, key)
			}
		}
	}
	if s.old {
		modern(m)
	}
	return m
}

// modern replaces the keywords of OpenAPI 3.0 that JSON Schema does not have.
func modern(m map[string]any) {
	for exclusive, limit := range map[string]string{"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"} {
		if on, ok := m[exclusive].(bool); ok {
			delete(m, exclusive)
			if bound, ok := m[limit]; on && ok {
				m[exclusive] = bound
				delete(m, limit)
			}
		}
	}
	if nullable, _ := m["nullable"].(bool); nullable {
		if kind, ok := m["type"].(string); ok {
			m["type"] = []any{kind, "null"}
		}
		if list, ok := m["enum"].([]any); ok && !slices.Contains(list, nil) {
			m["enum"] = append(list, nil)
		}
	}
	delete(m, "nullable")
}

// input collects the schema of a tool's input.
type input struct {
	*schemas
	properties map[string]any
	required   []string
	defs       map[string]any
	direct     []string // names of defs that properties refer to
	size       int      // bytes of all schemas in the document
}

// add puts a property under name, or under another name if that is taken, and returns it.
func (in *input) add(name, place string, required bool, c converted, description string) string {
	for in.properties[name] != nil || name == "body" && place != "body" {
		name += "_" + place
	}
	in.size, in.direct = in.size+c.size, append(in.direct, c.refs...)
	for refs := slices.Clone(c.refs); len(refs) > 0 && in.size <= maxSchema; {
		next := refs[0]
		if refs = refs[1:]; in.defs[next] == nil {
			d := in.component(next)
			in.defs[next] = d.schema
			in.size += d.size
			refs = append(refs, d.refs...)
		}
	}
	schema := c.schema
	if m, ok := schema.(map[string]any); ok && description != "" && m["description"] == nil {
		m = maps.Clone(m)
		m["description"] = text.ShortenBytes(description, 1<<10)
		schema = m
	} else if schema == true {
		schema = map[string]any{"description": text.ShortenBytes(description, 1<<10)}
	}
	in.properties[name] = schema
	if required {
		in.required = append(in.required, name)
	}
	return name
}

// parameter adds a parameter and returns its part of the plan.
func (in *input) parameter(p *openapi3.Parameter) parameter {
	out := parameter{Name: p.Name, In: p.In, Style: p.Style}
	if out.Style == "" {
		out.Style = map[string]string{"query": "form", "cookie": "form"}[p.In]
		if out.Style == "" {
			out.Style = "simple"
		}
	}
	out.Explode = out.Style == "form"
	if p.Explode != nil {
		out.Explode = *p.Explode
	}
	ref := p.Schema
	for _, media := range p.Content {
		if out.Style = "json"; media != nil {
			ref = media.Schema
		}
	}
	out.Key = in.add(p.Name, p.In, p.Required || p.In == "path", in.of(ref), p.Description)
	return out
}

// body adds the body and returns its media type: JSON if the operation accepts it, else a form,
// else text, else bytes in base64.
func (in *input) body(b *openapi3.RequestBody) string {
	kinds := []func(string) bool{
		func(t string) bool { return t == "application/json" },
		func(t string) bool { return strings.HasSuffix(t, "+json") || t == "*/*" || t == "application/*" },
		func(t string) bool { return t == typeForm },
		func(t string) bool { return t == typeMultipart },
		func(t string) bool { return strings.HasPrefix(t, "text/") || strings.HasSuffix(t, "xml") },
		func(string) bool { return true },
	}
	var types []string
	for name := range b.Content {
		types = append(types, name)
	}
	slices.Sort(types)
	for _, fits := range kinds {
		for _, name := range types {
			bare := strings.ToLower(strings.TrimSpace(strings.Split(name, ";")[0]))
			if !fits(bare) {
				continue
			}
			if strings.Contains(bare, "*") {
				bare = "application/json"
			}
			c := converted{schema: map[string]any{"type": "string"}}
			switch bodyKind(bare) {
			case bodyJSON, bodyForm, bodyMultipart:
				if media := b.Content[name]; media != nil {
					c = in.of(media.Schema)
				}
			case bodyBytes:
				c.schema = map[string]any{"type": "string", "contentEncoding": "base64"}
			}
			in.add("body", "body", b.Required, c, b.Description)
			return bare
		}
	}
	return ""
}

// schema returns the schema of the whole input. One that is too large accepts anything where it
// refers to components.
func (in *input) schema() any {
	out := map[string]any{"type": "object", "properties": in.properties, "additionalProperties": false}
	if len(in.required) > 0 {
		out["required"] = in.required
	}
	if len(in.defs) == 0 {
		return out
	}
	out["$defs"] = in.defs
	if data, err := json.Marshal(out); in.size > maxSchema || err != nil || len(data) > maxSchema {
		clear(in.defs)
		for _, name := range in.direct {
			in.defs[name] = true
		}
	}
	return out
}
