package mcpwire

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// The headers of the transport.
const (
	HeaderSession = "Mcp-Session-Id"
	HeaderVersion = "Mcp-Protocol-Version"
	HeaderMethod  = "Mcp-Method"
	HeaderName    = "Mcp-Name"
	HeaderEvent   = "Last-Event-Id"
	// ParamPrefix is the prefix of headers that repeat an argument.
	ParamPrefix = "Mcp-Param-"
)

// CheckModern checks the members that every modern request must have, and that headers and body
// agree.
func CheckModern(h http.Header, m *Message) *Fault {
	header, meta := h.Get(HeaderVersion), &m.Params.Meta
	if header != "" && meta.versioned && header != meta.version {
		return mismatch("the header MCP-Protocol-Version says %q and _meta says %q", header, meta.version)
	}
	requested := header
	requested = cmp.Or(requested, meta.version)
	switch {
	case requested != "" && requested != Version20260728:
		return Unsupported(requested, Versions())
	case !meta.versioned:
		return InvalidParams("params._meta needs %sprotocolVersion", MetaPrefix)
	case header == "":
		return mismatch("the header MCP-Protocol-Version is missing")
	case len(meta.Capabilities) == 0 || meta.Capabilities[0] != '{':
		return InvalidParams("params._meta needs %sclientCapabilities, an object", MetaPrefix)
	}
	if got := h.Get(HeaderMethod); got != m.Method {
		return mismatch("the header Mcp-Method says %q and the body %q", got, m.Method)
	}
	var named string
	switch m.Method {
	case "tools/call", "prompts/get":
		named = m.Params.Name
	case "resources/read":
		named = m.Params.URI
	case "tasks/get", "tasks/update", "tasks/cancel":
		named, _ = jsonx.Text(At(m.Params.Raw, []string{"taskId"}))
	default:
		return nil
	}
	if got, ok := decodeHeader(h.Get(HeaderName)); !ok || got != named || len(h.Values(HeaderName)) == 0 {
		return mismatch("the header Mcp-Name says %q and the body %q", got, named)
	}
	return nil
}

func mismatch(format string, args ...any) *Fault {
	f := BadRequest(format, args...)
	f.Code = CodeHeaderMismatch
	return f
}

// WrapOpening and WrapClosing enclose the base64 form of a value that a header cannot contain
// (SEP-2243).
const (
	WrapOpening = "=?base64?"
	WrapClosing = "?="
)

// WrapHeader encodes a value that a header cannot contain.
func WrapHeader(v string) string {
	return WrapOpening + base64.StdEncoding.EncodeToString([]byte(v)) + WrapClosing
}

// decodeHeader is the inverse of WrapHeader. Other values are returned unchanged. It returns false for
// malformed base64.
func decodeHeader(v string) (string, bool) {
	if len(v) < len(WrapOpening)+len(WrapClosing) || !strings.EqualFold(v[:len(WrapOpening)], WrapOpening) ||
		!strings.HasSuffix(v, WrapClosing) {
		return v, true
	}
	data, err := base64.StdEncoding.DecodeString(v[len(WrapOpening) : len(v)-len(WrapClosing)])
	return string(data), err == nil
}
