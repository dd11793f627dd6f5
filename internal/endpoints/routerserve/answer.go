package routerserve

import (
	"fmt"
	"mime"
	"net/http"
	"strconv"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/router"
)

// answer is what a module answers to an HTTP request.
type answer struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    jsonx.Raw         `json:"body"`
}

// readHandled reads the answer of handleAppRoutes, which is looser than that of a
// route: header values may be numbers and booleans, and the status may be
// missing.
func readHandled(raw jsonx.Raw) (out answer, handled bool, err error) {
	if raw.Kind() != '{' {
		return out, false, nil
	}
	var members map[string]jsonx.Raw
	if err := jsonx.Unmarshal(raw, &members); err != nil {
		return out, false, err
	}
	if string(members["handled"]) != "true" {
		return out, false, nil
	}
	out = answer{Status: http.StatusOK, Headers: make(map[string]string), Body: members["body"]}
	if status, ok := members["status"]; ok && status.Kind() == '0' {
		n, err := strconv.ParseFloat(string(status), 64)
		if err == nil && n == float64(int(n)) {
			out.Status = int(n)
		}
	}
	var headers map[string]jsonx.Raw
	if members["headers"].Kind() == '{' {
		if err := jsonx.Unmarshal(members["headers"], &headers); err != nil {
			return out, false, err
		}
	}
	for name, value := range headers {
		switch value.Kind() {
		case '"':
			var text string
			if err := jsonx.Unmarshal(value, &text); err != nil {
				return out, false, err
			}
			out.Headers[name] = text
		case '0', 't', 'f':
			out.Headers[name] = string(value)
		default: // no value a header could have
			continue
		}
		if err := router.CheckHeader(name, out.Headers[name]); err != nil {
			return out, false, fmt.Errorf("the answer %w", err)
		}
	}
	return out, true, nil
}

// write sends the answer as one that comes from a stranger: no page of it may
// run as ours, and its length is counted here.
func (s *Surface) write(w http.ResponseWriter, r *http.Request, module string, a answer) error {
	if a.Status < 200 || a.Status > 599 {
		return badAnswer("the module answers with status "+strconv.Itoa(a.Status)+", which is not one from 200 to 599", nil)
	}
	head := w.Header()
	for _, h := range s.answerable(r, module, a.Headers) {
		head.Set(h[0], h[1])
	}
	head.Set("Content-Security-Policy", "sandbox")
	head.Set("X-Content-Type-Options", "nosniff")
	body, kind := []byte(a.Body), "application/json"
	switch {
	case len(body) == 0 || string(body) == "null":
		body = nil
	case body[0] == '"':
		var text string
		if err := jsonx.Unmarshal(body, &text); err != nil {
			return badAnswer("the module's body cannot be read", err)
		}
		body, kind = []byte(text), "text/plain; charset=utf-8"
		if declared := head.Get("Content-Type"); declared != "" {
			kind = declared
		}
	default:
		if declared := head.Get("Content-Type"); declared != "" {
			if parsed, _, err := mime.ParseMediaType(declared); err == nil && isJSON(parsed) {
				kind = declared
			}
		}
	}
	if a.Status == http.StatusNoContent || a.Status == http.StatusNotModified {
		w.WriteHeader(a.Status)
		return nil
	}
	if body != nil {
		head.Set("Content-Type", kind)
	}
	head.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(a.Status)
	_, _ = w.Write(body) // a failed write means the caller is gone
	return nil
}
