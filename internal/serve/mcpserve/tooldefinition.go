package mcpserve

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
)

// toolDefinition returns the definition of a tool under its name, and whether it has an
// output schema. ok is false if the input is not an object, because a client would refuse
// the whole list.
func toolDefinition(t *compile.Action, name string) (text []byte, output, ok bool) {
	schema, err := t.InputSchema()
	if err != nil {
		return nil, false, false
	}
	input, ok := objectSchema(schema)
	if !ok {
		return nil, false, false
	}
	if len(t.Entries) == 1 && t.Entries[0].Contribution.Definition != nil {
		return renderDefined(t, name), publishable(t.OutputSchema()), true
	}
	title := t.Title
	if title == "" || len(t.Entries) == 1 {
		title = t.Entries[0].DisplayName()
	}
	text = append(text, `{"name":`...)
	text = jsonx.AppendString(text, name)
	text = append(text, `,"title":`...)
	text = jsonx.AppendString(text, title)
	text = append(text, `,"description":`...)
	text = jsonx.AppendString(text, t.Description)
	text = append(text, `,"inputSchema":`...)
	text = append(text, input...)
	if out := t.OutputSchema(); publishable(out) {
		output = true
		text = append(text, `,"outputSchema":`...)
		text = append(text, out...)
	}
	text = append(text, `,"annotations":`...)
	text = append(text, annotations(title, t.Entries)...)
	text = append(text, `,"_meta":`...)
	text = append(text, toolMeta(t.Entries)...)
	return append(text, '}'), output, true
}

// objectSchema returns the schema with "type": "object" added if it names no type.
func objectSchema(doc []byte) ([]byte, bool) {
	doc = bytes.TrimSpace(doc)
	if len(doc) == 0 {
		return []byte(`{"type":"object"}`), true
	}
	kind, found := schemaType(doc)
	switch {
	case doc[0] != '{' || (found && kind != "object"):
		return nil, false
	case found:
		return doc, true
	case len(bytes.TrimSpace(doc[1:])) == 1: // {}
		return []byte(`{"type":"object"}`), true
	}
	return append([]byte(`{"type":"object",`), doc[1:]...), true
}

// publishable reports whether an output schema may be listed: its type is object, and every
// reference in it is local, because some clients fetch or reject others.
func publishable(doc []byte) bool {
	kind, found := schemaType(doc)
	if !found || kind != "object" {
		return false
	}
	for rest := doc; ; {
		i := bytes.Index(rest, []byte(`"$ref"`))
		if i < 0 {
			return true
		}
		rest = rest[i+len(`"$ref"`):]
		if v := bytes.TrimLeft(rest, ": \t\r\n"); !bytes.HasPrefix(v, []byte(`"#`)) {
			return false
		}
	}
}

func schemaType(doc []byte) (kind string, found bool) {
	_ = jsonx.Members(doc, func(name string, value []byte) {
		if name == "type" {
			kind, _ = jsonx.Text(value)
			found = true
		}
	})
	return kind, found
}

// annotations returns the effective hints, which follow from the strongest effect among
// the providers and not from their claims.
func annotations(title string, group []*catalog.Entry) []byte {
	effect := group[0].Effect
	for _, e := range group[1:] {
		if !effect.AtLeast(e.Effect) {
			effect = e.Effect
		}
	}
	reads := effect == capability.EffectRead
	dst := append([]byte(`{"title":`), jsonx.AppendString(nil, title)...)
	for _, h := range []struct {
		name  string
		value bool
	}{
		{"readOnlyHint", reads},
		{"destructiveHint", !reads},
		{"idempotentHint", reads},
		{"openWorldHint", effect.AtLeast(capability.EffectExternal)},
	} {
		dst = append(dst, `,"`+h.name+`":`...)
		dst = strconv.AppendBool(dst, h.value)
	}
	return append(dst, '}')
}

// toolMeta returns the tool's _meta: its action and its provider or providers.
func toolMeta(group []*catalog.Entry) []byte {
	m := map[string]any{"junctor/action": group[0].Action}
	if len(group) == 1 {
		m["junctor/capabilityId"], m["junctor/provider"] = group[0].ID, group[0].Key()
	} else {
		keys := make([]string, len(group))
		for i, e := range group {
			keys[i] = string(e.Key())
		}
		slices.Sort(keys)
		m["junctor/providers"] = keys
	}
	out, err := jsonx.Marshal(m)
	if err != nil {
		return []byte("{}") // strings only: cannot happen
	}
	return out
}
