package openapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

var graphName = regexp.MustCompile(`^[_A-Za-z][_0-9A-Za-z]{0,199}$`)

// graph makes the definitions of one schema.
type graph struct {
	cfg   *Config
	types map[string]*graphType
}

// loadGraphQL returns the fields of queries and mutations as tools.
func (a *API) loadGraphQL(ctx context.Context) (Info, error) {
	p := plan{Method: http.MethodPost, URL: a.cfg.Base, GraphQL: introspection(), Security: &security{How: "bearer"}}
	req, err := p.request(ctx, nil)
	if err != nil {
		return Info{}, err
	}
	if _, err := a.authorize(ctx, req, p.Security); err != nil {
		return Info{}, err
	}
	data, err := fetch(a.http, req)
	if err != nil {
		return Info{}, err
	}
	var doc graphAnswer
	if err := jsonx.Unmarshal(data, &doc); err != nil || len(doc.Data.Schema.Types) == 0 {
		return Info{}, invalidGraph("it does not answer introspection, which some servers switch off", err)
	}
	g := &graph{&a.cfg, make(map[string]*graphType, len(doc.Data.Schema.Types))}
	for i := range doc.Data.Schema.Types {
		t := &doc.Data.Schema.Types[i]
		g.types[t.Name] = t
	}
	info, taken, size := Info{OpenAPI: "introspection", Title: "GraphQL"}, make(map[string]bool), 0
	for i, root := range []*graphType{doc.Data.Schema.Query, doc.Data.Schema.Mutation} {
		if root == nil || g.types[root.Name] == nil {
			continue
		}
		for _, f := range g.types[root.Name].Fields {
			if ctx.Err() != nil {
				return Info{}, capability.AsError(ctx.Err())
			}
			d, ok := g.definition(&f, i == 1, taken)
			if size += len(d); size > maxTools || len(info.Definitions) == maxOperations {
				return Info{}, invalidGraph("its tools are more than 5000 or take more than 64 MiB", nil)
			}
			if ok {
				info.Definitions = append(info.Definitions, d)
			}
		}
	}
	if len(info.Definitions) == 0 {
		return Info{}, invalidGraph("it has no field that can be called", nil)
	}
	return info, nil
}

// definition returns the tool of a field. ok is false for a field that cannot be called.
func (g *graph) definition(f *graphField, mutation bool, taken map[string]bool) (out json.RawMessage, ok bool) {
	word := "query"
	if mutation {
		word = "mutation"
	}
	var variables, arguments []string
	properties, required, defs := make(map[string]any), []string{}, make(map[string]any)
	for _, a := range f.Args {
		declared, fine := written(a.Type)
		if !fine || !graphName.MatchString(a.Name) {
			return nil, false
		}
		if a.Default != nil { // without a value for its variable the argument has its default (GraphQL: All Variable Usages Are Allowed)
			declared = strings.TrimSuffix(declared, "!")
		}
		variables, arguments = append(variables, "$"+a.Name+": "+declared), append(arguments, a.Name+": $"+a.Name)
		properties[a.Name] = described(g.schema(a.Type, defs, 0), a.Description)
		if a.required() {
			required = append(required, a.Name)
		}
	}
	fields := maxFields
	selection, fine := g.selection(f.Type, nil, &fields)
	if !fine || !graphName.MatchString(f.Name) {
		return nil, false
	}
	name := strings.Trim(f.Name, "_")
	if key := strings.ToLower(name); name == "" || taken[key] || len(name) > maxName {
		name = strings.TrimSuffix(name[:min(len(name), maxName-9)], "_") + "_" + digest(word+" "+f.Name)
	}
	taken[strings.ToLower(name)] = true
	p := plan{Method: http.MethodPost, URL: g.cfg.Base, Security: &security{How: "bearer"}}
	p.GraphQL = word + listed(variables) + " { " + f.Name + listed(arguments) + selection + " }"
	schema := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	if len(defs) > 0 {
		schema["$defs"] = defs
	}
	out, err := jsonx.Marshal(mcpwire.Tool{
		Name: name, Description: text.ShortenBytes(strings.TrimSpace(f.Description+"\nGraphQL "+word+" "+f.Name+selection), 4<<10),
		Annotations: map[string]bool{"readOnlyHint": !mutation, "destructiveHint": false, "idempotentHint": !mutation, "openWorldHint": true},
		InputSchema: schema, Meta: meta{p},
	})
	return out, err == nil
}

func listed(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return "(" + strings.Join(words, ", ") + ")"
}

func described(schema map[string]any, description string) map[string]any {
	if description != "" {
		schema["description"] = text.ShortenBytes(description, 1<<10)
	}
	return schema
}

// written returns a type as a document names it.
func written(t *graphType) (string, bool) {
	switch {
	case t == nil:
		return "", false
	case t.Kind == graphAlways || t.Kind == graphList:
		inner, ok := written(t.OfType)
		if t.Kind == graphList {
			return "[" + inner + "]", ok
		}
		return inner + "!", ok
	}
	return t.Name, graphName.MatchString(t.Name)
}

// named returns the type without lists and non-null.
func named(t *graphType) *graphType {
	for t != nil && t.OfType != nil {
		t = t.OfType
	}
	return t
}

// schema returns the JSON Schema of an argument. Inputs are in defs.
func (g *graph) schema(t *graphType, defs map[string]any, depth int) map[string]any {
	switch {
	case t == nil || depth > maxNested:
		return map[string]any{}
	case t.Kind == graphAlways:
		return g.schema(t.OfType, defs, depth+1)
	case t.Kind == graphList:
		return map[string]any{"type": "array", "items": g.schema(t.OfType, defs, depth+1)}
	case t.Kind == graphEnum && g.types[t.Name] != nil:
		var values []string
		for _, v := range g.types[t.Name].EnumValues {
			values = append(values, v.Name)
		}
		return map[string]any{"type": "string", "enum": values}
	case t.Kind == graphInput && g.types[t.Name] != nil && graphName.MatchString(t.Name):
		if _, made := defs[t.Name]; !made && len(defs) >= maxInputs {
			return map[string]any{"type": "object"}
		} else if !made {
			properties, required := make(map[string]any), []string{}
			object := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
			defs[t.Name] = object // before its fields, which may refer to it
			for _, f := range g.types[t.Name].InputFields {
				properties[f.Name] = described(g.schema(f.Type, defs, depth+1), f.Description)
				if f.required() {
					required = append(required, f.Name)
				}
			}
			if len(required) > 0 {
				object["required"] = required
			}
		}
		return map[string]any{"$ref": "#/$defs/" + t.Name}
	}
	kind := map[string]any{
		"Int": "integer", "Float": "number", "String": "string", "Boolean": "boolean", "ID": []string{"string", "integer"},
	}[t.Name]
	if kind == nil {
		return map[string]any{} // a scalar of the schema's own
	}
	return map[string]any{"type": kind}
}

// selection returns the fields of a result that need no arguments, to a depth of maxSelected, or "" for
// a scalar. left is the number of fields that may still be selected.
func (g *graph) selection(t *graphType, within []string, left *int) (string, bool) {
	of := named(t)
	if of == nil {
		return "", false
	}
	if of.Kind == graphScalar || of.Kind == graphEnum {
		return "", true
	}
	fields := []string{"__typename"}
	if kind := of.Kind; g.types[of.Name] != nil && kind != graphUnion {
		of = g.types[of.Name]
		path := append(slices.Clone(within), of.Name)
		for _, objects := range []bool{false, true} { // scalars are not crowded out
			for _, f := range of.Fields[:min(len(of.Fields), maxLooked)] {
				inner := named(f.Type)
				needs := slices.ContainsFunc(f.Args, func(a graphField) bool { return a.required() })
				if inner == nil || needs || !graphName.MatchString(f.Name) || *left <= 0 {
					continue
				}
				object := inner.Kind != graphScalar && inner.Kind != graphEnum
				if object != objects || object && (len(path) >= maxSelected || slices.Contains(path, inner.Name)) {
					continue
				}
				*left--
				more, _ := g.selection(f.Type, path, left)
				fields = append(fields, f.Name+more)
			}
		}
	}
	return " { " + strings.Join(fields, " ") + " }", true
}

// failedGraphQL reports whether an answer has errors.
func failedGraphQL(body []byte) bool {
	var answer struct {
		Errors []json.RawMessage `json:"errors"`
	}
	return jsonx.Unmarshal(bytes.TrimSpace(body), &answer) != nil || len(answer.Errors) > 0
}

func invalidGraph(what string, cause error) error {
	return capability.Wrap(capability.CodeInvalidInput, "upstream", "the GraphQL schema cannot be used: "+what, cause).
		With(ReasonDocument, "check the address and the credential")
}
