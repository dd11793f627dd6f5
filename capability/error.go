package capability

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Code is the class of a failure. Every surface maps the sixteen codes with one table (see
// [CodeTable]). The Error's Reason is more specific.
type Code string

// The sixteen codes.
const (
	CodeUnauthenticated   Code = "unauthenticated"
	CodeDenied            Code = "denied"
	CodeApprovalRequired  Code = "approval_required"
	CodeInvalidInput      Code = "invalid_input"
	CodeTooLarge          Code = "too_large"
	CodeUnknownCapability Code = "unknown_capability"
	CodeNotFound          Code = "not_found"
	CodeConflict          Code = "conflict"
	CodeSelectionRequired Code = "selection_required"
	CodeSlotConflict      Code = "slot_conflict"
	CodeUnavailable       Code = "unavailable"
	CodeOverloaded        Code = "overloaded"
	CodeTimeout           Code = "timeout"
	CodeCancelled         Code = "cancelled"
	CodeFailed            Code = "failed"
	CodeInternal          Code = "internal"
)

// storedConsentRequired is the spelling of CodeApprovalRequired in errors that were stored before
// it was renamed.
const storedConsentRequired Code = "consent_required"

// CodeRow holds the meaning of one code and its representation on each surface.
type CodeRow struct {
	Code    Code
	Meaning string // one sentence for users
	HTTP    int    // status on /api/v1
	Router  string // code on the capability-router wire
	Exit    int    // exit status of the command line
}

const (
	routerUnavailable = "CAPABILITY_UNAVAILABLE"
	routerDecode      = "CAPABILITY_DECODE_FAILED"
	routerFailed      = "CAPABILITY_REQUEST_FAILED"
)

// CodeTable returns every code; the order is fixed.
func CodeTable() []CodeRow {
	return []CodeRow{
		{CodeUnauthenticated, "The credential is missing, malformed, expired or revoked.", 401, routerUnavailable, 3},
		{CodeDenied, "Policy forbids this caller to do this.", 403, routerUnavailable, 3},
		{CodeApprovalRequired, "The call is allowed once a person who may decide has approved it.", 403, routerUnavailable, 3},
		{CodeInvalidInput, "The request or its arguments do not have the shape they must have.", 400, routerDecode, 2},
		{CodeTooLarge, "The request or the answer exceeds a stated limit.", 413, routerDecode, 2},
		{CodeUnknownCapability, "No capability of that name is visible to this caller.", 404, routerUnavailable, 4},
		{CodeNotFound, "The named thing, other than a capability, does not exist.", 404, routerUnavailable, 4},
		{CodeConflict, "The thing exists already, is in use, or is in the wrong state.", 409, routerFailed, 1},
		{CodeSelectionRequired, "Several providers could do this and the caller must name one.", 409, routerUnavailable, 2},
		{CodeSlotConflict, "The configuration of a slot or a backend contradicts itself.", 409, routerUnavailable, 1},
		{CodeUnavailable, "The work could not be started because its provider is not available.", 503, routerUnavailable, 5},
		{CodeOverloaded, "A limit on concurrency or rate is reached; try again later.", 429, routerUnavailable, 5},
		{CodeTimeout, "The deadline passed before the work was done.", 504, routerFailed, 5},
		{CodeCancelled, "The caller withdrew the request.", 499, routerFailed, 1},
		{CodeFailed, "The work was started and failed.", 502, routerFailed, 1},
		{CodeInternal, "Something broke inside junctor; the incident id leads to the log.", 500, routerFailed, 1},
	}
}

// Row returns the table row of c, or that of internal for an unknown code.
func (c Code) Row() CodeRow {
	var internal CodeRow
	for _, r := range CodeTable() {
		if r.Code == c {
			return r
		}
		if r.Code == CodeInternal {
			internal = r
		}
	}
	return internal
}

// Error is the error type whose meaning is defined across packages. Message and Hint are
// shown to callers and must not contain host paths, secrets or stack traces. Err is the
// cause, for operators only; it never leaves the process.
type Error struct {
	Code       Code
	Reason     string // specific reason below the code, lower_snake; may be empty
	Op         string // the operation that failed, such as "endpoint.connect"
	Message    string
	Hint       string // how the caller can proceed; may be empty
	Target     string // capability, provider or noun concerned; may be empty
	Details    map[string]any
	RetryAfter time.Duration
	Err        error
}

// Errorf returns an Error with a formatted Message. A %w operand becomes the cause, and its
// text is part of Message; use [Wrap] if that text must not be shown to callers.
func Errorf(code Code, op, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Op: op, Message: err.Error(), Err: errors.Unwrap(err)}
}

// Wrap returns an Error with a cause whose text is not part of Message.
func Wrap(code Code, op, message string, cause error) *Error {
	return &Error{Code: code, Op: op, Message: message, Err: cause}
}

// With sets the reason and hint of e and returns e, so that construction stays one
// expression.
func (e *Error) With(reason, hint string) *Error {
	e.Reason, e.Hint = reason, hint
	return e
}

// Detail sets one member of Details and returns e.
func (e *Error) Detail(key string, value any) *Error {
	if e.Details == nil {
		e.Details = make(map[string]any)
	}
	e.Details[key] = value
	return e
}

func (e *Error) Error() string {
	if e.Op == "" {
		return e.Message
	}
	return e.Op + ": " + e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// MarshalJSON encodes code, reason, message, hint, details and retry_after_ms, without
// the cause.
func (e *Error) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Code       Code           `json:"code"`
		Reason     string         `json:"reason,omitempty"`
		Message    string         `json:"message"`
		Hint       string         `json:"hint,omitempty"`
		Details    map[string]any `json:"details,omitempty"`
		RetryAfter int64          `json:"retry_after_ms,omitempty"`
	}{e.Code, e.Reason, e.Message, e.Hint, e.Details, e.RetryAfter.Milliseconds()})
}

// UnmarshalJSON decodes the form written by MarshalJSON.
func (e *Error) UnmarshalJSON(data []byte) error {
	var wire struct {
		Code       Code           `json:"code"`
		Reason     string         `json:"reason"`
		Message    string         `json:"message"`
		Hint       string         `json:"hint"`
		Details    map[string]any `json:"details"`
		RetryAfter int64          `json:"retry_after_ms"`
	}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	if wire.Code == storedConsentRequired {
		wire.Code = CodeApprovalRequired
	}
	*e = Error{
		Code: wire.Code, Reason: wire.Reason, Message: wire.Message, Hint: wire.Hint,
		Details: wire.Details, RetryAfter: time.Duration(wire.RetryAfter) * time.Millisecond,
	}
	return nil
}

// AsError returns err as an *Error: the one in its chain, a cancelled or timeout Error for
// the context errors, else an internal one with err as the cause. It returns nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Wrap(CodeTimeout, "", "the deadline passed before the work was done", err)
	case errors.Is(err, context.Canceled):
		return Wrap(CodeCancelled, "", "the request was cancelled", err)
	}
	return Wrap(CodeInternal, "", "something broke inside junctor", err)
}

// CodeOf returns the code of the Error that [AsError] returns for err, or "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return AsError(err).Code
}
