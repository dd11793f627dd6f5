package mcpserve

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/catalog"
	"github.com/junctor-run/junctor/internal/jsonx"
)

// listTTL is how long a client may keep a list, in milliseconds.
const listTTL = "5000"

// rendered is the tool list of one viewer at one state of the catalog: the tools
// as they go out, joined, so that a page is a slice of them.
type rendered struct {
	generation, epoch uint64

	joined []byte // tool,tool,…
	ends   []int  // end of each tool in joined
	names  []string
	output map[string]bool // tools that promise an object
	hash   [sha256.Size]byte
}

// listOf returns what c may see now, from the cache when nothing has changed.
func (s *Surface) listOf(c caller) *rendered {
	epoch, generation := s.epoch.Load(), s.cfg.Catalog.Snapshot().Generation
	if v, ok := s.lists.Load(c.key); ok {
		if l := v.(*rendered); l.generation == generation && l.epoch == epoch {
			return l
		}
	}
	l := render(s.cfg.Engine.List(c.who, capability.AudienceAgent))
	l.generation, l.epoch = generation, epoch
	s.lists.Store(c.key, l)
	return l
}

// render turns the entries a principal may see into tools, ordered by name. An
// entry that could not be called now is left out; all providers of an action
// share one tool.
func render(entries []*catalog.Entry) *rendered {
	groups := make(map[string][]*catalog.Entry)
	for _, e := range entries {
		if e.WireName != "" && e.Provider != nil && e.Contribution.Availability.Eligible() {
			groups[e.WireName] = append(groups[e.WireName], e)
		}
	}
	l := &rendered{output: make(map[string]bool)}
	for name := range groups {
		l.names = append(l.names, name)
	}
	slices.Sort(l.names)
	kept := l.names[:0]
	for _, name := range l.names {
		tool, output, ok := renderTool(name, groups[name])
		if !ok {
			continue
		}
		if len(l.joined) > 0 {
			l.joined = append(l.joined, ',')
		}
		l.joined = append(l.joined, tool...)
		l.ends = append(l.ends, len(l.joined))
		kept = append(kept, name)
		if output {
			l.output[name] = true
		}
	}
	l.names = kept
	l.hash = sha256.Sum256(l.joined)
	return l
}

// renderTool is one tool definition. ok is false for one whose input is not an
// object: a client would refuse the whole list because of it.
func renderTool(name string, group []*catalog.Entry) (tool []byte, output, ok bool) {
	e := group[0]
	input, ok := objectSchema(e.InputSchema())
	if !ok {
		return nil, false, false
	}
	if e.Row != nil {
		input = withSelector(input, group)
	}
	title := e.DisplayName()
	if len(group) > 1 && e.Row != nil {
		title = e.Row.Title
	}
	tool = append(tool, `{"name":`...)
	tool = appendString(tool, name)
	tool = append(tool, `,"title":`...)
	tool = appendString(tool, title)
	tool = append(tool, `,"description":`...)
	tool = appendString(tool, e.Description())
	tool = append(tool, `,"inputSchema":`...)
	tool = append(tool, input...)
	if out := e.OutputSchema(); publishable(out) {
		output = true
		tool = append(tool, `,"outputSchema":`...)
		tool = append(tool, out...)
	}
	tool = append(tool, `,"annotations":`...)
	tool = append(tool, annotations(title, group)...)
	tool = append(tool, `,"_meta":`...)
	tool = append(tool, toolMeta(group)...)
	return append(tool, '}'), output, true
}

// objectSchema is the document as it is, or the least one that says "an object"
// where there is none or it leaves its type open.
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

// publishable reports whether an output schema may be shown: it promises an
// object, and refers to nothing outside itself, which some clients would fetch
// or choke on.
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
	_ = members(doc, func(name string, value []byte) {
		if name == "type" {
			kind, _ = textOf(value)
			found = true
		}
	})
	return kind, found
}

// annotations are the effective hints: what the class of the strongest effect
// among the providers allows to say, whatever a provider claims.
func annotations(title string, group []*catalog.Entry) []byte {
	effect := group[0].Effect
	for _, e := range group[1:] {
		if !effect.AtLeast(e.Effect) {
			effect = e.Effect
		}
	}
	reads := effect == capability.EffectRead
	dst := append([]byte(`{"title":`), appendString(nil, title)...)
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

// toolMeta says what stands behind the tool; several providers are listed.
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

// page is the result of tools/list.
func (s *Surface) page(c caller, cursor json.RawMessage, e era) ([]byte, *fault) {
	l := s.listOf(c)
	from := 0
	if cursor != nil && string(cursor) != "null" {
		last, ok := s.openCursor(c, cursor)
		if !ok {
			return nil, invalidParams("the cursor is not one of this list; begin again without a cursor")
		}
		i, found := slices.BinarySearchFunc(l.names, last, strings.Compare)
		if from = i; found {
			from = i + 1
		}
	}
	to := min(from+s.cfg.PageSize, len(l.names))
	dst := make([]byte, 0, len(l.joined)+512)
	dst = append(dst, `{"tools":[`...)
	if from < to {
		start := 0
		if from > 0 {
			start = l.ends[from-1] + 1
		}
		dst = append(dst, l.joined[start:l.ends[to-1]]...)
	}
	dst = append(dst, ']')
	if to < len(l.names) {
		dst = append(dst, `,"nextCursor":`...)
		dst = appendString(dst, s.makeCursor(c, l.generation, l.names[to-1]))
	}
	if e.modern {
		dst = append(dst, `,"ttlMs":`+listTTL+`,"cacheScope":"private"`...)
	}
	return e.appendClosing(dst, nil), nil
}
