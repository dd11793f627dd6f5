package compile

import (
	"bytes"
	"encoding/json"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// selectorMember is the argument that names a provider.
const selectorMember = "selector"

// CutSelector removes the selector from a planner's arguments, keeps every other byte, and
// returns both. The arguments are unchanged for a single tool and for an action with an
// argument of that name. A selector that is not an object of strings is invalid_input,
// reason invalid_selector.
func (a *Action) CutSelector(arguments json.RawMessage) (rest json.RawMessage, s capability.Selector, err error) {
	if !bytes.Contains(arguments, []byte(selectorMember)) || len(a.Entries) == 1 && a.Entries[0].Minted() || a.ownsSelector() {
		return arguments, nil, nil
	}
	raw, rest, err := jsonx.Cut(arguments, selectorMember)
	if err != nil || raw == nil || string(raw) == "null" {
		return rest, nil, err
	}
	if err := jsonx.Unmarshal(raw, &s); err != nil {
		return nil, nil, capability.Errorf(capability.CodeInvalidInput, "decode", "selector must be an object of strings").
			With("invalid_selector", "the tool's input schema lists its fields and their values")
	}
	return rest, s, nil
}

// ownsSelector reports whether the action's own schema has an argument named selector.
func (a *Action) ownsSelector() bool {
	var doc struct {
		Properties map[string]jsonx.Raw `json:"properties"`
	}
	base := a.baseSchema()
	if !bytes.Contains(base, []byte(selectorMember)) || jsonx.Unmarshal(base, &doc) != nil {
		return false
	}
	_, own := doc.Properties[selectorMember]
	return own
}
