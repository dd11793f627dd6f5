package mcpwire

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// The MCP revisions.
const (
	Version20260728 = "2026-07-28"
	Version20251125 = "2025-11-25"
	Version20250618 = "2025-06-18"
	Version20250326 = "2025-03-26"
	Version20241105 = "2024-11-05" // only used with upstreams
)

// Versions returns the MCP revisions that are served, newest first. 2024-11-05 is not among them.
func Versions() []string {
	return []string{Version20260728, Version20251125, Version20250618, Version20250326}
}

// IsModern reports whether a request belongs to a revision without sessions. This includes
// initialize: a modern client that calls a removed method must get an error and no handshake. A
// request that names an older version and has no modern _meta is not modern, even with the new
// headers.
func IsModern(h http.Header, m *Message) bool {
	if !m.Params.Meta.modern && slices.Contains(Versions()[1:], h.Get(HeaderVersion)) {
		return false
	}
	return h.Get(HeaderVersion) >= Version20260728 || h.Get(HeaderMethod) != "" || m.Params.Meta.modern
}

// Unsupported returns the error for an unsupported version, with the supported ones.
func Unsupported(requested string, supported []string) *Fault {
	f := BadRequest("protocol version %q is not served here", requested)
	f.Code = CodeUnsupportedVersion
	data, err := jsonx.Marshal(map[string]any{"supported": slices.Clone(supported), "requested": strings.ToValidUTF8(requested, "\uFFFD")})
	if err == nil {
		f.Data = json.RawMessage(data)
	}
	return f
}
