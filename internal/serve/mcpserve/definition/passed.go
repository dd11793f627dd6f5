package definition

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

// trustedHints is the tag of contributions whose own hints are believed.
const trustedHints = "hints:trusted"

// renderDefined is the definition of an upstream's tool: the bytes that came, with
// our name, the effective hints and our own _meta.
func renderDefined(t *compile.Action, name string) []byte {
	e := t.Entries[0]
	dst := jsonx.AppendString([]byte(`{"name":`), name)
	var hints, meta []byte
	_ = jsonx.Members(e.Contribution.Definition, func(member string, value []byte) { // it was read before it was pinned
		switch member {
		case "name":
		case "annotations":
			hints = value
		case "_meta":
			meta = value
		default:
			dst = AppendMember(dst, member, value)
		}
	})
	if a := effectiveHints(hints, e); len(a) > 2 {
		dst = AppendMember(dst, "annotations", a)
	}
	dst = AppendMember(dst, "_meta", mergedMeta(meta, e))
	return append(dst, '}')
}

// AppendMember appends a member to an object that is open.
func AppendMember(dst []byte, name string, value []byte) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	dst = jsonx.AppendString(dst, name)
	return append(append(dst, ':'), value...)
}

// Member is the definition as it came, under the name, with our _meta.
func Member(e *catalog.Entry, name string) []byte {
	dst := []byte{'{'}
	var meta []byte
	_ = jsonx.Members(e.Contribution.Definition, func(member string, value []byte) {
		switch {
		case member == "_meta":
			meta = value
		case member == "name" && name != "":
			dst = AppendMember(dst, member, jsonx.AppendString(nil, name))
		default:
			dst = AppendMember(dst, member, value)
		}
	})
	dst = AppendMember(dst, "_meta", mergedMeta(meta, e))
	return append(dst, '}')
}

// effectiveHints are an upstream's annotations as they hold: a claim of it may make
// us more cautious, never less, unless its claims are believed.
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
			dst = AppendMember(dst, name, value)
		}
	})
	for _, name := range []string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} {
		if value := cautious[name]; value != "" {
			dst = AppendMember(dst, name, []byte(value))
		}
	}
	return append(dst, '}')
}

// mergedMeta is the _meta of a definition: the upstream's without what the protocol
// keeps for itself and what says it is ours, then ours.
func mergedMeta(theirs []byte, e *catalog.Entry) []byte {
	dst := []byte{'{'}
	if len(theirs) > 0 && theirs[0] == '{' {
		dst = appendForeign(dst, theirs)
	}
	ours := toolMeta([]*catalog.Entry{e})
	_ = jsonx.Members(ours, func(name string, value []byte) { dst = AppendMember(dst, name, value) })
	return append(dst, '}')
}

// appendForeign appends the members of somebody else's _meta that may pass: the
// keys of the protocol are each hop's own, so that neither side can pose as the
// other.
func appendForeign(dst, meta []byte) []byte {
	_ = jsonx.Members(meta, func(name string, value []byte) {
		if !strings.HasPrefix(name, mcpwire.MetaPrefix) && !strings.HasPrefix(name, "junctor/") {
			dst = AppendMember(dst, name, value)
		}
	})
	return dst
}

// Passes reports whether results of the provider are results of MCP already.
func Passes(key capability.ProviderKey) bool {
	_, kind, _ := key.Parts()
	return kind == "mcp" || kind == "a2a"
}

// AppendPassed appends an upstream's result object as it came, in the form of the era:
// with the type of the result where that belongs, and with our own _meta. more are
// members that come first, skip the names of members to leave out.
func AppendPassed(dst []byte, result json.RawMessage, e mcpwire.Era, ownMeta []byte, skip ...string) ([]byte, bool) {
	dst = append(dst, '{')
	var meta []byte
	err := jsonx.Members(result, func(name string, value []byte) {
		switch {
		case name == "_meta":
			meta = value
		case name == "resultType" || slices.Contains(skip, name):
		default:
			dst = AppendMember(dst, name, value)
		}
	})
	if err != nil {
		return dst, false
	}
	if e.Modern {
		dst = AppendMember(dst, "resultType", []byte(`"complete"`))
	}
	own := []byte{'{'}
	if len(meta) > 0 && meta[0] == '{' {
		own = appendForeign(own, meta)
	}
	if e.Modern {
		own = AppendMember(own, mcpwire.MetaPrefix+"serverInfo", e.Info)
	}
	if len(ownMeta) > 0 {
		if len(own) > 1 {
			own = append(own, ',')
		}
		own = append(own, ownMeta...)
	}
	if len(own) > 1 {
		dst = AppendMember(dst, "_meta", append(own, '}'))
	}
	return append(dst, '}'), true
}
