package routerserve

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// guard authorizes calls of the connect API, whose errors have the form of elizaOS: the
// message is "error", and our members stand beside it.
func (s *Surface) guard(h httpapi.Handler) http.Handler {
	return s.guardAs(h, capability.RoleAdmin, capability.RoleOperator)
}

// guardAs is guard for the given roles; without any, for every token.
func (s *Surface) guardAs(h httpapi.Handler, roles ...capability.Role) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		failure, status := new(recorder), 0
		s.Door.Guard(func(_ http.ResponseWriter, r *http.Request, who capability.Principal) error {
			err := h(w, r, who)
			if own, ok := err.(statusError); ok { //nolint:errorlint // made by the handler itself
				status = own.status
			}
			return err
		}, roles...).ServeHTTP(failure, r)
		if failure.status == 0 {
			return // the handler has answered
		}
		if status != 0 {
			failure.status = status
		}
		failure.replay(w)
	})
}

// statusError is a failure whose status is not that of its code.
type statusError struct {
	error
	status int
}

// Unwrap returns the failure.
func (e statusError) Unwrap() error { return e.error }

// badConnect returns the error of a failed connect. Its status is 400 for every cause, as
// clients of elizaOS expect, except for a body that is too large and a server that stops.
func badConnect(err error) error {
	e := capability.AsError(err)
	if e.Code == capability.CodeTooLarge && e.Op == "read" || e.Reason == capability.ReasonServiceUnavailable ||
		e.Code == capability.CodeInternal {
		return err
	}
	return statusError{e, http.StatusBadRequest}
}

// recorder takes what the door writes about a failure, so that its form can be
// changed.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (r *recorder) Header() http.Header {
	if r.header == nil {
		r.header = make(http.Header)
	}
	return r.header
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) { r.status = status }

// Write implements http.ResponseWriter.
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

func (r *recorder) replay(w http.ResponseWriter) {
	var doc struct {
		Error map[string]json.RawMessage `json:"error"`
	}
	out := doc.Error
	if err := json.Unmarshal(r.body.Bytes(), &doc); err == nil {
		out = doc.Error
	}
	if out == nil {
		out = map[string]json.RawMessage{"message": json.RawMessage(`"something broke inside junctor"`)}
	}
	out["error"] = out["message"]
	delete(out, "message")
	for name, values := range r.header {
		if name != "Content-Length" {
			w.Header()[name] = values
		}
	}
	httpapi.WriteJSON(w, r.status, out)
}
