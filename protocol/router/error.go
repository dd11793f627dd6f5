package router

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// The three codes of the protocol.
const (
	CodeUnavailable   = "CAPABILITY_UNAVAILABLE"
	CodeDecodeFailed  = "CAPABILITY_DECODE_FAILED"
	CodeRequestFailed = "CAPABILITY_REQUEST_FAILED"
)

// Reasons of errors created by this package.
const (
	reasonDecode  = "decode_failed"
	reasonConnect = "connection_failed"
)

// Error is a failure in the form of the protocol. Code is one of the three codes. Capability is
// the family (fs, pty, git, model, plugin) and may be empty. Method is the RPC method, for
// decode errors followed by a dotted path without indexes, and for transport errors the URL
// path. Details is any JSON value or nil. Status is the HTTP status of the response; 0 means
// 200, as for failures of a capability, in contrast to errors of the transport.
type Error struct {
	Code       string
	Message    string
	Capability string
	Method     string
	Details    json.RawMessage
	Status     int
}

func (e *Error) Error() string { return e.Message }

// wireError is the form of the member "error".
type wireError struct {
	Code       string          `json:"code"`
	Message    string          `json:"message"`
	Capability string          `json:"capability,omitempty"`
	Method     string          `json:"method,omitempty"`
	Details    json.RawMessage `json:"details,omitempty"`
}

// MarshalJSON encodes the member "error" of the envelope. Absent members are omitted and never
// null.
func (e *Error) MarshalJSON() ([]byte, error) {
	return jsonx.Marshal(wireError{e.Code, e.Message, e.Capability, e.Method, e.Details})
}

// envelope encodes the whole failure response.
func (e *Error) envelope() []byte {
	body, err := jsonx.Marshal(e)
	if err != nil { // details that are not JSON, or a message that is not UTF-8
		body, _ = jsonx.Marshal(wireError{Code: CodeRequestFailed, Message: "the error could not be encoded"})
	}
	return append(append([]byte(`{"ok":false,"error":`), body...), '}')
}

// wireDetails holds the members of details that junctor's own endpoints set.
type wireDetails struct {
	Code       capability.Code `json:"code"`
	Reason     string          `json:"reason"`
	Hint       string          `json:"hint"`
	RetryAfter int64           `json:"retry_after_ms"`
}

func detailsOf(code capability.Code, reason string) json.RawMessage {
	m := map[string]any{"code": code}
	if reason != "" {
		m["reason"] = reason
	}
	raw, _ := jsonx.Marshal(m) // strings always encode
	return raw
}

// FromCapability converts an error to the form of the protocol: the code by the table of codes,
// and the reason, hint and details as members of details. method may be empty. It returns nil
// for nil.
func FromCapability(err *capability.Error, method string) *Error {
	if err == nil {
		return nil
	}
	details := make(map[string]any, len(err.Details)+4)
	for k, v := range err.Details {
		details[k] = v
	}
	details["code"] = err.Code
	if err.Reason != "" {
		details["reason"] = err.Reason
	}
	if err.Hint != "" {
		details["hint"] = err.Hint
	}
	if err.RetryAfter > 0 {
		details["retry_after_ms"] = err.RetryAfter.Milliseconds()
	}
	raw, mErr := jsonx.Marshal(details)
	if mErr != nil {
		raw = detailsOf(err.Code, err.Reason)
	}
	out := &Error{Code: err.Code.Row().Router, Message: err.Message, Method: method, Details: raw}
	if out.Message == "" {
		out.Message = err.Code.Row().Meaning
	}
	if m, ok := Lookup(method); ok && out.Code != CodeDecodeFailed {
		out.Capability = string(m.Family)
	}
	return out
}

// asWire returns any error in the form of the protocol.
func asWire(err error, method string) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return FromCapability(capability.AsError(err), method)
}

// ToCapability converts a failure of an endpoint or of the client to a *capability.Error. Its code
// is details.code if that is one of the sixteen codes; else UNAVAILABLE becomes unavailable,
// DECODE_FAILED invalid_input (the endpoint rejected the request) and REQUEST_FAILED failed. For
// a response that the client could not decode, the client has set details: failed, reason
// decode_failed.
func (e *Error) ToCapability(op string) *capability.Error {
	out := &capability.Error{Op: op, Message: e.Message, Target: e.Method, Err: e}
	switch e.Code {
	case CodeUnavailable:
		out.Code = capability.CodeUnavailable
	case CodeDecodeFailed:
		out.Code = capability.CodeInvalidInput
	default:
		out.Code = capability.CodeFailed
		if e.Status == http.StatusGatewayTimeout {
			out.Code = capability.CodeTimeout
		}
	}
	var known wireDetails
	var all map[string]any
	if len(e.Details) == 0 || jsonx.Unmarshal(e.Details, &all) != nil {
		return out
	}
	if jsonx.Unmarshal(e.Details, &known) == nil && known.Code.Row().Code == known.Code {
		out.Code, out.Reason, out.Hint = known.Code, known.Reason, known.Hint
		out.RetryAfter = time.Duration(min(max(known.RetryAfter, 0), maxRetryAfter)) * time.Millisecond
		for _, k := range []string{"code", "reason", "hint", "retry_after_ms"} {
			delete(all, k)
		}
	}
	if len(all) > 0 {
		out.Details = all
	}
	return out
}
