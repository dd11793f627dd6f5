package mcpserve

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/jsonx"
)

// isModern is rule 3 of spec section 2.2. It holds for initialize too: a modern
// client that tries a removed method must be told so, not given a handshake. Only a
// request that names an older version and says nothing of itself is not one, even
// where it has the new headers.
func isModern(h http.Header, m *message) bool {
	if !m.params.meta.modern && slices.Contains(Versions()[1:], h.Get(headerVersion)) {
		return false
	}
	return h.Get(headerVersion) >= version20260728 || h.Get(headerMethod) != "" || m.params.meta.modern
}

// serveModern serves a request that stands alone.
func (s *Surface) serveModern(w http.ResponseWriter, r *http.Request, c caller, body []byte, m *message) {
	if m.method == "" {
		writeFault(w, m.id, badRequest("a response answers no request of ours"))
		return
	}
	if m.id == nil {
		// No notification means anything here: cancelling is closing the response.
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if f := checkModern(r.Header, m); f != nil {
		writeFault(w, m.id, f)
		return
	}
	c.client = m.params.meta.client
	e := era{modern: true, info: s.info}
	c.abilities = readAbilities(m.params.meta.capabilities)
	if s.cfg.Tasks != nil && isTask(m.method) {
		out := s.serveTask(r.Context(), c, m, e)
		writeOutcome(w, m.id, out, e)
		return
	}
	switch m.method {
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list":
		result, f := s.pageOf(c, m.method, m.params.cursor, e)
		if f != nil {
			writeFault(w, m.id, f)
			return
		}
		writePage(w, m.id, result)
	case "tools/call", "prompts/get", "resources/read", "completion/complete":
		if f := checkParams(r.Header, s.listOf(c).params[m.params.name], m.params.arguments); f != nil && m.method == "tools/call" {
			writeFault(w, m.id, f)
			return
		}
		x := newExchange(w, r, m, e)
		out := s.answer(r.Context(), r, c, m, x)
		s.challenge(w, r, out)
		x.end(out)
	case "server/discover", "subscriptions/listen":
		v, done := s.viewer(c)
		defer done()
		r = forSDK(r, v, body)
		if m.method == "subscriptions/listen" {
			out := newBeating(w)
			defer out.stop()
			s.modern.ServeHTTP(out, r)
			return
		}
		s.modern.ServeHTTP(w, r)
	default:
		writeFault(w, m.id, unknownMethod(m.method))
	}
}

// checkModern is spec section 2.3: what every modern request says about itself,
// twice, and the same both times.
func checkModern(h http.Header, m *message) *fault {
	header, meta := h.Get(headerVersion), &m.params.meta
	if header != "" && meta.versioned && header != meta.version {
		return mismatch("the header MCP-Protocol-Version says %q and _meta says %q", header, meta.version)
	}
	requested := header
	if requested == "" {
		requested = meta.version
	}
	switch {
	case requested != "" && requested != version20260728:
		return unsupported(requested, Versions())
	case !meta.versioned:
		return invalidParams("params._meta needs %sprotocolVersion", metaPrefix)
	case header == "":
		return mismatch("the header MCP-Protocol-Version is missing")
	case len(meta.capabilities) == 0 || meta.capabilities[0] != '{':
		return invalidParams("params._meta needs %sclientCapabilities, an object", metaPrefix)
	}
	if got := h.Get(headerMethod); got != m.method {
		return mismatch("the header Mcp-Method says %q and the body %q", got, m.method)
	}
	var named string
	switch m.method {
	case "tools/call", "prompts/get":
		named = m.params.name
	case "resources/read":
		named = m.params.uri
	case "tasks/get", "tasks/update", "tasks/cancel":
		named, _ = textOf(at(m.params.raw, []string{"taskId"}))
	default:
		return nil
	}
	if got, ok := decodeHeader(h.Get(headerName)); !ok || got != named || len(h.Values(headerName)) == 0 {
		return mismatch("the header Mcp-Name says %q and the body %q", got, named)
	}
	return nil
}

func mismatch(format string, args ...any) *fault {
	f := badRequest(format, args...)
	f.code = codeHeaderMismatch
	return f
}

func unsupported(requested string, supported []string) *fault {
	f := badRequest("protocol version %q is not served here", requested)
	f.code = codeUnsupportedVersion
	data, err := jsonx.Marshal(map[string]any{"supported": slices.Clone(supported), "requested": strings.ToValidUTF8(requested, "\uFFFD")})
	if err == nil {
		f.data = json.RawMessage(data)
	}
	return f
}

// decodeHeader undoes the wrapping =?base64?…?= of values that a header cannot
// hold as they are.
func decodeHeader(v string) (string, bool) {
	const opening, closing = "=?base64?", "?="
	if len(v) < len(opening)+len(closing) || !strings.EqualFold(v[:len(opening)], opening) || !strings.HasSuffix(v, closing) {
		return v, true
	}
	data, err := base64.StdEncoding.DecodeString(v[len(opening) : len(v)-len(closing)])
	return string(data), err == nil
}
