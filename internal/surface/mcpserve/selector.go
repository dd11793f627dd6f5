package mcpserve

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/catalog"
	"github.com/junctor-run/junctor/internal/jsonx"
)

// maxEnum is how many values a selector field lists; beyond it the field is a
// plain string (catalog spec, section 13.5).
const maxEnum = 50

const selectorMember = "selector"

// withSelector adds the selector property to the schema of an action that more
// than one provider offers here; with a single one there is nothing to choose.
func withSelector(schema []byte, group []*catalog.Entry) []byte {
	_, err := catalog.Select(capability.Target{Action: group[0].Action}, group, nil)
	if (len(group) == 1 && err == nil) || ownsSelector(schema) {
		return schema
	}
	property := selectorSchema(group)
	if property == nil {
		return schema
	}
	schema = insert(schema, "properties", '{', `"`+selectorMember+`":`+string(property), "{", "}")
	if err != nil {
		schema = insert(schema, "required", '[', `"`+selectorMember+`"`, "[", "]")
	}
	return schema
}

// ownsSelector reports whether the action has an argument of that name itself;
// then it is the action's, and never cut out.
func ownsSelector(schema []byte) (owns bool) {
	_ = members(schema, func(name string, value []byte) {
		if name != "properties" || len(value) == 0 || value[0] != '{' {
			return
		}
		_ = members(value, func(name string, _ []byte) { owns = owns || name == selectorMember })
	})
	return owns
}

// insert puts item first into the member of the object doc, or adds the member.
func insert(doc []byte, member string, kind byte, item, opening, closing string) []byte {
	at, empty := -1, false
	_ = members(doc, func(name string, value []byte) {
		if name == member && len(value) > 0 && value[0] == kind {
			// value is a slice of doc, so its place is the difference of the ends.
			at = cap(doc) - cap(value) + 1
			empty = len(bytes.TrimSpace(value[1:len(value)-1])) == 0
		}
	})
	var out []byte
	switch {
	case at >= 0:
		out = append(out, doc[:at]...)
		out = append(out, item...)
		if !empty {
			out = append(out, ',')
		}
		return append(out, doc[at:]...)
	default:
		out = append(out, `{"`+member+`":`+opening+item+closing...)
		if len(bytes.TrimSpace(doc[1:len(doc)-1])) > 0 {
			out = append(out, ',')
		}
		return append(out, doc[1:]...)
	}
}

// selectorSchema lists, for every field that tells the providers apart or names
// one, the values present. nil when no field applies.
func selectorSchema(group []*catalog.Entry) []byte {
	properties := make(map[string]any)
	for _, field := range append([]string{"provider"}, group[0].Row.SelectorFields...) {
		var values []string
		for _, e := range group {
			if v, ok := selectorValue(e, field); ok {
				values = append(values, v)
			}
		}
		if len(values) == 0 {
			continue
		}
		slices.Sort(values)
		values = slices.Compact(values)
		property := map[string]any{"type": "string", "enum": values}
		if len(values) > maxEnum {
			property = map[string]any{"type": "string", "description": "one of many; search the catalog for the values"}
		}
		properties[field] = property
	}
	if len(properties) == 0 {
		return nil
	}
	out, err := jsonx.Marshal(map[string]any{
		"type": "object", "description": "Which provider carries out the call. Every field given must match.",
		"properties": properties, "additionalProperties": false,
	})
	if err != nil {
		return nil // strings only: cannot happen
	}
	return out
}

// selectorValue is what a caller writes into field to reach e; it mirrors
// [catalog.Matches].
func selectorValue(e *catalog.Entry, field string) (string, bool) {
	_, kind, instance := e.Key().Parts()
	value := ""
	switch field {
	case "provider":
		return string(e.Key()), true
	case "extension":
		return e.Module.Extension, e.Module.Extension != ""
	case "channel", "kind", "store":
		value = kind
	case "account", "instance":
		value = instance
	case "endpoint", "node":
		if kind != field {
			return "", false
		}
		value = instance
	}
	if plain, err := url.PathUnescape(value); err == nil {
		value = plain
	}
	return value, value != ""
}

// cutSelector takes the selector out of the arguments of an action, and leaves
// the arguments as the very bytes that came when there is none.
func cutSelector(e *catalog.Entry, arguments json.RawMessage) (json.RawMessage, capability.Selector, error) {
	if e.Row == nil || !bytes.Contains(arguments, []byte(`"`+selectorMember+`"`)) || ownsSelector(e.InputSchema()) {
		return arguments, nil, nil
	}
	var raw []byte
	rest := make([]byte, 0, len(arguments))
	rest = append(rest, '{')
	err := members(arguments, func(name string, value []byte) {
		if name == selectorMember {
			raw = value
			return
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = appendString(rest, name)
		rest = append(rest, ':')
		rest = append(rest, value...)
	})
	if err != nil || raw == nil {
		return arguments, nil, err
	}
	rest = append(rest, '}')
	if string(raw) == "null" {
		return rest, nil, nil
	}
	selector := make(capability.Selector)
	bad := raw[0] != '{'
	if !bad {
		err = members(raw, func(name string, value []byte) {
			text, ok := textOf(value)
			bad = bad || !ok
			selector[name] = text
		})
	}
	if bad || err != nil {
		return nil, nil, capability.Errorf(capability.CodeInvalidInput, "decode", "selector must be an object of strings").
			With("invalid_selector", "the tool's input schema lists its fields and their values")
	}
	return rest, selector, nil
}
