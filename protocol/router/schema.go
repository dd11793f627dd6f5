package router

import "encoding/json"

// ParamsSchema returns the JSON Schema of the method's parameters, derived from
// the same table as the codec. The keys that only route a call (moduleId,
// endpointId, traceSessionId) are left out. Finer rules, such as those of paths,
// are the codec's alone.
func (m Method) ParamsSchema() json.RawMessage { return m.params.schema() }

// ResultSchema returns the JSON Schema of the method's result.
func (m Method) ResultSchema() json.RawMessage { return m.result.schema() }

func (s *shape) schema() json.RawMessage {
	raw, _ := marshal(s.schemaObject(nil)) // maps, slices and strings always encode
	return raw
}

// schemaObject ends a recursion where a shape contains itself.
func (s *shape) schemaObject(above []*shape) map[string]any {
	for _, a := range above {
		if a == s {
			return map[string]any{"type": "object"}
		}
	}
	above = append(above, s)
	properties := make(map[string]any, len(s.fields))
	required := []string{}
	for i := range s.fields {
		f := &s.fields[i]
		switch f.name {
		case "moduleId", "endpointId", "traceSessionId":
			continue
		}
		properties[f.name] = f.schema(above)
		if !f.optional {
			required = append(required, f.name)
		}
	}
	out := map[string]any{"type": "object", "properties": properties}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

func (f *field) schema(above []*shape) map[string]any {
	typed := func(name string) map[string]any {
		if f.null {
			return map[string]any{"type": []string{name, "null"}}
		}
		return map[string]any{"type": name}
	}
	values := func(of any) map[string]any {
		return map[string]any{"type": "object", "additionalProperties": of}
	}
	word := map[string]any{"type": "string"}
	if len(f.enum) > 0 {
		word["enum"] = f.enum
	}
	switch f.kind {
	case text:
		if f.null {
			return typed("string")
		}
		return word
	case number:
		return typed("number")
	case boolean:
		return typed("boolean")
	case object:
		return typed("object")
	case list:
		return typed("array")
	case texts:
		return map[string]any{"type": "array", "items": word}
	case objects:
		return map[string]any{"type": "array", "items": map[string]any{"type": "object"}}
	case textMap, headerMap:
		return values(word)
	case scalarMap:
		return values(map[string]any{"type": []string{"string", "number", "boolean", "null"}})
	case queryMap:
		return values(map[string]any{"anyOf": []any{word, map[string]any{"type": "array", "items": word}}})
	case record:
		return f.sub.schemaObject(above)
	case records:
		return map[string]any{"type": "array", "items": f.sub.schemaObject(above)}
	case recordMap:
		return values(f.sub.schemaObject(above))
	}
	return map[string]any{}
}
