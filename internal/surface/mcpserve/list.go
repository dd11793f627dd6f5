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
	"github.com/junctor-run/junctor/internal/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/catalog/compile"
	"github.com/junctor-run/junctor/internal/catalog/naming"
	"github.com/junctor-run/junctor/internal/jsonx"
)

// listTTL is how long a client may keep a list, in milliseconds.
const listTTL = "5000"

// rendered is the tool list of one viewer at one state of the catalog: the tools
// as they go out, joined, so that a page is a slice of them.
type rendered struct {
	generation, epoch uint64

	agent *compile.Agent
	shown []*compile.Action

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
	agent, tools := s.tools(c)
	l := render(tools)
	l.agent = agent
	l.generation, l.epoch = generation, epoch
	s.lists.Store(c.key, l)
	return l
}

// wireLimit is the longest tool name we hand out: clients prepend mcp__<server>__
// and model APIs stop at 64 bytes (decision R12).
const wireLimit = 48

// tool is one action as this principal may use it.
type tool struct {
	*compile.Action
	wire string
}

// tools are the actions of the caller's context without the providers that its
// rules deny.
func (s *Surface) tools(c caller) (*compile.Agent, []tool) {
	agent, permitted, err := s.cfg.Engine.Agent(c.invocation())
	if err != nil {
		return nil, nil // a context of ours is always one
	}
	shown, err := agent.Expose(compile.Limits{View: s.cfg.Exposure, Exposure: agent.Snapshot().Settings().Exposure, ByName: true})
	if err != nil {
		s.cfg.Logger.Error("the catalog's exposure cannot be used", "err", err)
		return agent, nil
	}
	var out []tool
	for _, a := range shown.Direct {
		if a = narrow(agent, a, permitted); a != nil {
			out = append(out, tool{a, spelling().Write(agent, a)})
		}
	}
	slices.SortFunc(out, func(a, b tool) int { return strings.Compare(a.wire, b.wire) })
	return agent, out
}

// spelling is how names are written here (decision R12).
func spelling() compile.Spelling {
	return compile.Spelling{Dialect: naming.Strict64, Limit: wireLimit}
}

// lease is under whose name it is kept what names meant (decision R14).
func (c caller) lease() compile.LeaseKey {
	if c.session != "" {
		return compile.LeaseKey{Session: c.session}
	}
	return compile.LeaseKey{Token: c.key, View: c.who.View}
}

// narrow is the action without the entries the principal may not use; nil when
// none is left.
func narrow(agent *compile.Agent, a *compile.Action, permitted func(*catalog.Entry) bool) *compile.Action {
	usable := func(e *catalog.Entry) bool { return e.Provider != nil && permitted(e) }
	if !slices.ContainsFunc(a.Entries, func(e *catalog.Entry) bool { return !usable(e) }) {
		return a
	}
	n := *a
	n.Entries = slices.DeleteFunc(slices.Clone(a.Entries), func(e *catalog.Entry) bool { return !usable(e) })
	if len(n.Entries) == 0 {
		return nil
	}
	_, err := agent.Select(arbitration.Request{Action: a.Canonical, Denied: func(e *catalog.Entry) bool { return !usable(e) }})
	n.RequiresSelection = err != nil
	return &n
}

// render writes the tools out, in order of their names.
func render(tools []tool) *rendered {
	l := &rendered{output: make(map[string]bool)}
	for _, t := range tools {
		text, output, ok := renderTool(t)
		if !ok {
			continue
		}
		if len(l.joined) > 0 {
			l.joined = append(l.joined, ',')
		}
		l.joined = append(l.joined, text...)
		l.ends = append(l.ends, len(l.joined))
		l.names = append(l.names, t.wire)
		l.shown = append(l.shown, t.Action)
		if output {
			l.output[t.wire] = true
		}
	}
	l.hash = sha256.Sum256(l.joined)
	return l
}

// renderTool is one tool definition. ok is false for one whose input is not an
// object: a client would refuse the whole list because of it.
func renderTool(t tool) (text []byte, output, ok bool) {
	schema, err := t.InputSchema()
	if err != nil {
		return nil, false, false
	}
	input, ok := objectSchema(schema)
	if !ok {
		return nil, false, false
	}
	title := t.Title
	if title == "" || len(t.Entries) == 1 {
		title = t.Entries[0].DisplayName()
	}
	text = append(text, `{"name":`...)
	text = appendString(text, t.wire)
	text = append(text, `,"title":`...)
	text = appendString(text, title)
	text = append(text, `,"description":`...)
	text = appendString(text, t.Description)
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
	if l.agent != nil {
		s.leases.Record(c.lease(), l.agent, spelling(), l.shown)
	}
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
