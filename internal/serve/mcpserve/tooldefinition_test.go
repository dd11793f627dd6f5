package mcpserve

import (
	"bytes"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// FuzzPassed requires an upstream's result to leave as JSON, with its own bytes and without
// the keys that are each hop's own.
func FuzzPassed(f *testing.F) {
	f.Add([]byte(`{"content":[{"type":"odd","n":9007199254740993}],"_meta":{"io.modelcontextprotocol/x":1,"a":1.10},"resultType":"task","isError":true}`))
	f.Add([]byte(`{"_meta":{}}`))
	f.Add([]byte(`{"_meta":7,"structuredContent":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, e := range []mcpwire.Era{{}, {Modern: true, Info: []byte(`{"name":"junctor"}`)}} {
			out, ok := appendUpstreamResult(nil, raw, e, []byte(`"junctor/invocation":"run_1"`))
			if !ok {
				continue
			}
			if !valid(out) {
				t.Fatalf("%s becomes %s; want valid(out)", raw, out)
			}
			if content := mcpwire.At(raw, []string{"content"}); content != nil && !bytes.Equal(content, mcpwire.At(out, []string{"content"})) {
				t.Errorf(`%s is not in %s; want not (content != nil && !bytes.Equal(content, mcpwire.At(out, []string{"content"})))`,
					content, out)
			}
			if kind, _ := jsonx.Text(mcpwire.At(out, []string{"resultType"})); kind != map[bool]string{true: "complete"}[e.Modern] {
				t.Errorf(`result type %q; want kind = map[bool]string{true: "complete"}[e.Modern]`, kind)
			}
		}
	})
}

// FuzzDefinitions requires a definition to leave as JSON.
func FuzzDefinitions(f *testing.F) {
	f.Add([]byte(`{"name":"a","inputSchema":{"type":"object","properties":{"x":{"type":"string","x-mcp-header":"X","properties":{"y":{"x-mcp-header":"Y"}}}}},"annotations":{"readOnlyHint":true},"_meta":{"junctor/provider":1}}`))
	f.Fuzz(func(t *testing.T, definition []byte) {
		if !valid(definition) || definition[0] != '{' || jsonx.Members(definition, func(string, []byte) {}) != nil {
			return // it was judged before it got here
		}
		e := &catalog.Entry{
			Effect: capability.EffectExternal, Contribution: &capability.Contribution{Definition: definition},
			Module: &capability.Module{},
		}
		if out := memberDefinition(e, "named"); !valid(out) {
			t.Errorf("%s becomes %s; want valid(out)", definition, out)
		}
	})
}
