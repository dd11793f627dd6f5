package mcpserve

import (
	"bytes"
	"encoding/json"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/catalog/compile"
)

const selectorMember = "selector"

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

// cutSelector takes the selector out of the arguments of an action, and leaves
// the arguments as the very bytes that came when there is none.
func cutSelector(a *compile.Action, arguments json.RawMessage) (json.RawMessage, capability.Selector, error) {
	single := len(a.Entries) == 1 && a.Entries[0].Minted() // there is nothing to select among
	if single || !bytes.Contains(arguments, []byte(`"`+selectorMember+`"`)) || ownsSelector(a.Entries[0].InputSchema()) {
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
