package mcpserve

import (
	"net/http"

	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/serve/mcpserve/exchange"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// serveModern serves an independent request.
func (s *Surface) serveModern(w http.ResponseWriter, r *http.Request, c caller, body []byte, m *mcpwire.Message) {
	if m.Method == "" {
		exchange.WriteFault(w, m.ID, mcpwire.BadRequest("a response answers no request of ours"))
		return
	}
	if m.ID == nil {
		// No notification means anything here: cancelling is closing the response.
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if f := mcpwire.CheckModern(r.Header, m); f != nil {
		exchange.WriteFault(w, m.ID, f)
		return
	}
	c.client = m.Params.Meta.Client
	e := mcpwire.Era{Modern: true, Info: s.info}
	c.abilities = readAbilities(m.Params.Meta.Capabilities)
	if s.cfg.Tasks != nil && isTask(m.Method) {
		out := s.serveTask(r.Context(), c, m, e)
		exchange.WriteOutcome(w, m.ID, out, e)
		return
	}
	switch m.Method {
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list":
		result, f := s.pageOf(c, m.Method, m.Params.Cursor, e)
		if f != nil {
			exchange.WriteFault(w, m.ID, f)
			return
		}
		writePage(w, m.ID, result)
	case "tools/call", "prompts/get", "resources/read", "completion/complete":
		if f := mcpwire.CheckParams(r.Header, s.listOf(c).params[m.Params.Name], m.Params.Arguments); f != nil && m.Method == "tools/call" {
			exchange.WriteFault(w, m.ID, f)
			return
		}
		x := exchange.New(w, r, m, e)
		out := s.answer(r.Context(), r, c, m, x)
		s.challenge(w, r, out)
		x.End(out)
	case "server/discover", "subscriptions/listen":
		v, done := s.viewer(c)
		defer done()
		r = forSDK(r, v, body)
		if m.Method == "subscriptions/listen" {
			out := exchange.NewBeating(httpapi.While(w, r))
			defer out.Stop()
			s.modern.ServeHTTP(out, r)
			return
		}
		s.modern.ServeHTTP(w, r)
	default:
		exchange.WriteFault(w, m.ID, unknownMethod(m.Method))
	}
}
