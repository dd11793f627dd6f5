package mcpserve

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/catalog"
	"github.com/junctor-run/junctor/internal/jsonx"
	"github.com/junctor-run/junctor/internal/surface/mcpserve/mcpwire"
)

func valid(data []byte) bool {
	return jsontext.Value(data).IsValid(jsontext.AllowInvalidUTF8(true))
}

// FuzzStates holds that nothing but what was sealed here opens.
func FuzzStates(f *testing.F) {
	s := newSealer([]byte("a key"), time.Now)
	good := s.seal(state{Kind: stateRelayed, Who: "w", Call: "c", Of: "o", Inner: []byte(`"theirs"`)})
	f.Add(good)
	f.Add([]byte(`""`))
	f.Add([]byte(`"AAAA"`))
	f.Add(good[:len(good)/2])
	f.Fuzz(func(t *testing.T, raw []byte) {
		if st, ok := newSealer([]byte("a key"), time.Now).open(raw, "w", "c"); ok && (st.Of != "o" || string(st.Inner) != `"theirs"`) {
			t.Errorf("%q opens", raw)
		}
	})
}

// FuzzCursors holds that a cursor is one of ours, for this caller and this list.
func FuzzCursors(f *testing.F) {
	s := &Surface{cfg: Config{CursorKey: []byte("a key")}}
	c := caller{key: "one"}
	good := jsonx.AppendString(nil, s.makeCursor(c, "tools/list", 7, "last"))
	f.Add(good)
	f.Add([]byte(`7`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, ok := s.openCursor(c, "tools/list", raw); ok && !bytes.Equal(raw, good) {
			t.Errorf("%q opens", raw)
		}
		for _, other := range []string{"prompts/list", "tools/lis"} {
			if _, ok := s.openCursor(c, other, raw); ok {
				t.Errorf("%q opens for %s", raw, other)
			}
		}
	})
}

// FuzzPassed holds that what an upstream sends leaves as JSON, with its own bytes, and
// without the keys that are each hop's own.
func FuzzPassed(f *testing.F) {
	f.Add([]byte(`{"content":[{"type":"odd","n":9007199254740993}],"_meta":{"io.modelcontextprotocol/x":1,"a":1.10},"resultType":"task","isError":true}`))
	f.Add([]byte(`{"_meta":{}}`))
	f.Add([]byte(`{"_meta":7,"structuredContent":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, e := range []mcpwire.Era{{}, {Modern: true, Info: []byte(`{"name":"junctor"}`)}} {
			out, ok := appendPassed(nil, raw, e, []byte(`"junctor/invocation":"run_1"`))
			if !ok {
				continue
			}
			if !valid(out) {
				t.Fatalf("%s becomes %s", raw, out)
			}
			if content := mcpwire.At(raw, []string{"content"}); content != nil && !bytes.Equal(content, mcpwire.At(out, []string{"content"})) {
				t.Errorf("%s is not in %s", content, out)
			}
			if kind, _ := jsonx.Text(mcpwire.At(out, []string{"resultType"})); kind != map[bool]string{true: "complete"}[e.Modern] {
				t.Errorf("result type %q", kind)
			}
		}
	})
}

// FuzzDefinitions holds the same of definitions.
func FuzzDefinitions(f *testing.F) {
	f.Add([]byte(`{"name":"a","inputSchema":{"type":"object","properties":{"x":{"type":"string","x-mcp-header":"X","properties":{"y":{"x-mcp-header":"Y"}}}}},"annotations":{"readOnlyHint":true},"_meta":{"junctor/provider":1}}`))
	f.Fuzz(func(t *testing.T, definition []byte) {
		if !valid(definition) || definition[0] != '{' || jsonx.Members(definition, func(string, []byte) {}) != nil {
			return // it was judged before it got here
		}
		e := &catalog.Entry{Effect: capability.EffectExternal, Contribution: &capability.Contribution{Definition: definition}, Module: &capability.Module{}}
		if out := renderMember(e, "named"); !valid(out) {
			t.Errorf("%s becomes %s", definition, out)
		}
		_ = taskOnly(definition)
		_ = readAbilities(json.RawMessage(definition))
		_ = declaresTasks(definition)
	})
}
