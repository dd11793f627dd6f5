package mcpserve

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// trustedHints is the tag of contributions whose own hints are used unchanged.
const trustedHints = "hints:trusted"

// renderDefined returns the definition of an upstream's tool: the bytes received, with our
// name, the effective hints and our own _meta.
func renderDefined(t *compile.Action, name string) []byte {
	e := t.Entries[0]
	dst := jsonx.AppendString([]byte(`{"name":`), name)
	var hints, meta []byte
	_ = jsonx.Members(e.Contribution.Definition, func(member string, value []byte) { // it was parsed before it was pinned
		switch member {
		case "name":
		case "annotations":
			hints = value
		case "_meta":
			meta = value
		default:
			dst = jsonx.AppendMember(dst, member, value)
		}
	})
	if a := effectiveHints(hints, e); len(a) > 2 {
		dst = jsonx.AppendMember(dst, "annotations", a)
	}
	dst = jsonx.AppendMember(dst, "_meta", mergedMeta(meta, e))
	return append(dst, '}')
}

// memberDefinition returns an upstream's definition under the name and with our _meta. An
// empty name leaves the definition's own.
func memberDefinition(e *catalog.Entry, name string) []byte {
	dst := []byte{'{'}
	var meta []byte
	_ = jsonx.Members(e.Contribution.Definition, func(member string, value []byte) {
		switch {
		case member == "_meta":
			meta = value
		case member == "name" && name != "":
			dst = jsonx.AppendMember(dst, member, jsonx.AppendString(nil, name))
		default:
			dst = jsonx.AppendMember(dst, member, value)
		}
	})
	dst = jsonx.AppendMember(dst, "_meta", mergedMeta(meta, e))
	return append(dst, '}')
}

// effectiveHints returns an upstream's annotations with the standard hints replaced by those
// that follow from the effect, unless its hints are trusted.
func effectiveHints(claimed []byte, e *catalog.Entry) []byte {
	if len(claimed) == 0 || claimed[0] != '{' {
		claimed = []byte("{}")
	}
	if slices.Contains(e.Contribution.Tags, trustedHints) {
		return claimed
	}
	reads := e.Effect == capability.EffectRead
	cautious := map[string]string{"readOnlyHint": "false", "destructiveHint": "true", "idempotentHint": "false", "openWorldHint": "true"}
	if reads {
		cautious = map[string]string{"readOnlyHint": "true", "destructiveHint": "false"}
	}
	dst := []byte{'{'}
	_ = jsonx.Members(claimed, func(name string, value []byte) {
		if _, ours := cautious[name]; !ours {
			dst = jsonx.AppendMember(dst, name, value)
		}
	})
	for _, name := range []string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} {
		if value := cautious[name]; value != "" {
			dst = jsonx.AppendMember(dst, name, []byte(value))
		}
	}
	return append(dst, '}')
}

// mergedMeta returns the _meta of a definition: the upstream's members without reserved
// ones, then ours.
func mergedMeta(theirs []byte, e *catalog.Entry) []byte {
	dst := []byte{'{'}
	if len(theirs) > 0 && theirs[0] == '{' {
		dst = appendForeign(dst, theirs)
	}
	ours := toolMeta([]*catalog.Entry{e})
	_ = jsonx.Members(ours, func(name string, value []byte) { dst = jsonx.AppendMember(dst, name, value) })
	return append(dst, '}')
}

// appendForeign appends the members of an upstream's _meta without the keys of the protocol
// and of junctor, which are each hop's own, so that neither side can pose as the other.
func appendForeign(dst, meta []byte) []byte {
	_ = jsonx.Members(meta, func(name string, value []byte) {
		if !strings.HasPrefix(name, mcpwire.MetaPrefix) && !strings.HasPrefix(name, "junctor/") {
			dst = jsonx.AppendMember(dst, name, value)
		}
	})
	return dst
}

// returnsMCP reports whether results of the provider are already MCP results.
func returnsMCP(key capability.ProviderKey) bool {
	_, kind, _ := key.Parts()
	return kind == "mcp" || kind == "a2a"
}

// appendUpstreamResult appends an upstream's result object in the form of the era: its own
// bytes, with resultType if the era has it and with our own _meta. skip names members to
// omit.
func appendUpstreamResult(dst []byte, result json.RawMessage, e mcpwire.Era, ownMeta []byte, skip ...string) ([]byte, bool) {
	dst = append(dst, '{')
	var meta []byte
	err := jsonx.Members(result, func(name string, value []byte) {
		switch {
		case name == "_meta":
			meta = value
		case name == "resultType" || slices.Contains(skip, name):
		default:
			dst = jsonx.AppendMember(dst, name, value)
		}
	})
	if err != nil {
		return dst, false
	}
	if e.Modern {
		dst = jsonx.AppendMember(dst, "resultType", []byte(`"complete"`))
	}
	own := []byte{'{'}
	if len(meta) > 0 && meta[0] == '{' {
		own = appendForeign(own, meta)
	}
	if e.Modern {
		own = jsonx.AppendMember(own, mcpwire.MetaPrefix+"serverInfo", e.Info)
	}
	if len(ownMeta) > 0 {
		if len(own) > 1 {
			own = append(own, ',')
		}
		own = append(own, ownMeta...)
	}
	if len(own) > 1 {
		dst = jsonx.AppendMember(dst, "_meta", append(own, '}'))
	}
	return append(dst, '}'), true
}
