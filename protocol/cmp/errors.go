package cmp

import (
	"maps"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// The reasons of a capability.Error that come from nodes.
const (
	ReasonNodeNotFound     = "node_not_found"
	ReasonNodeLost         = "node_lost"
	ReasonOverloaded       = "node_overloaded"
	ReasonFunctionNotFound = "function_not_found"
	ReasonNoNodes          = "no_available_nodes"
	ReasonAmbiguous        = "selection_ambiguous"
	ReasonConnection       = "connection_failed"
	ReasonTimeout          = "timeout"
	ReasonCancelled        = "cancelled"
	ReasonEncoding         = "bad_encoding"
	ReasonTooLarge         = "payload_too_large"
	ReasonExecution        = "execution_failed"
	ReasonParams           = "invalid_params"
	ReasonPayload          = "invalid_payload"
	ReasonSchema           = "unsupported_schema"
	ReasonVersion          = "unsupported_version"
	ReasonDuplicateAlias   = "duplicate_alias"
	ReasonCodeTooLarge     = "code_too_large"
	ReasonDigest           = "digest_mismatch"
	ReasonLanguage         = "unsupported_language"
	ReasonUnknownAction    = "unknown_action"
	ReasonBinding          = "bad_code_binding"
	ReasonCodeDisabled     = "code_transfer_disabled"
	ReasonConsentDenied    = "consent_denied"
	ReasonReserved         = "reserved_function"
	ReasonDenied           = "denied"
	ReasonConsentRequired  = "consent_required"
	ReasonInstalling       = "install_in_progress"
)

// Retry states whether the same call may be sent again.
type Retry int

// The values of Retry.
const (
	RetryNo Retry = iota
	RetryYes
	RetryIdempotent // only calls that may run twice, or with an idempotency key
)

// ErrorRow describes one reason: the error class that the original's clients match, the code, and
// whether to retry.
type ErrorRow struct {
	Reason string
	Type   string // "" if the original has no class
	Code   capability.Code
	Retry  Retry
}

// Errors returns the table of reasons.
func Errors() []ErrorRow {
	const value, key, permission, encoding, execution = "ValueError", "KeyError", "PermissionError", "SerializationError",
		"RemoteExecutionError"
	return []ErrorRow{
		{ReasonNodeNotFound, "NodeNotFoundError", capability.CodeNotFound, RetryNo},
		{ReasonNodeLost, "NodeNotFoundError", capability.CodeFailed, RetryIdempotent},
		{ReasonOverloaded, execution, capability.CodeOverloaded, RetryYes},
		{ReasonFunctionNotFound, "FunctionNotFoundError", capability.CodeUnknownCapability, RetryNo},
		{ReasonNoNodes, "NoAvailableNodesError", capability.CodeUnavailable, RetryYes},
		{ReasonAmbiguous, "NoAvailableNodesError", capability.CodeSelectionRequired, RetryNo},
		{ReasonConnection, "ConnectionError", capability.CodeUnavailable, RetryYes}, // before sending; after sending the code is failed
		{ReasonTimeout, "TimeoutError", capability.CodeTimeout, RetryIdempotent},
		{ReasonCancelled, "", capability.CodeCancelled, RetryNo},
		{ReasonEncoding, encoding, capability.CodeInvalidInput, RetryNo},
		{ReasonTooLarge, encoding, capability.CodeTooLarge, RetryNo},
		{ReasonExecution, execution, capability.CodeFailed, RetryNo},
		{ReasonParams, value, capability.CodeInvalidInput, RetryNo},
		{ReasonPayload, value, capability.CodeInvalidInput, RetryNo},
		{ReasonSchema, value, capability.CodeInvalidInput, RetryNo},
		{ReasonVersion, value, capability.CodeInvalidInput, RetryNo},
		{ReasonDuplicateAlias, value, capability.CodeInvalidInput, RetryNo},
		{ReasonCodeTooLarge, value, capability.CodeTooLarge, RetryNo},
		{ReasonDigest, value, capability.CodeInvalidInput, RetryNo},
		{ReasonLanguage, value, capability.CodeInvalidInput, RetryNo},
		{ReasonUnknownAction, key, capability.CodeInvalidInput, RetryNo},
		{ReasonBinding, key, capability.CodeInvalidInput, RetryNo},
		{ReasonCodeDisabled, permission, capability.CodeDenied, RetryNo},
		{ReasonConsentDenied, permission, capability.CodeDenied, RetryNo},
		{ReasonReserved, permission, capability.CodeDenied, RetryNo},
		{ReasonDenied, permission, capability.CodeDenied, RetryNo},
		{ReasonConsentRequired, permission, capability.CodeApprovalRequired, RetryNo}, // after consent only
		{ReasonInstalling, "", capability.CodeConflict, RetryYes},
	}
}

func rowOf(reason string) (ErrorRow, bool) {
	for _, r := range Errors() {
		if r.Reason == reason {
			return r, true
		}
	}
	return ErrorRow{}, false
}

// Errorf returns an error with a reason of the table, and the code of its row.
func Errorf(reason, format string, args ...any) *capability.Error {
	row, ok := rowOf(reason)
	if !ok {
		row.Code = capability.CodeInternal
	}
	return capability.Errorf(row.Code, "cmp", format, args...).With(reason, "")
}

// WireError is a failure in the form of the protocol. Code is a reason of the table, Type the
// original's error class.
type WireError struct {
	Code       string         `json:"code"`
	Message    string         `json:"message"`
	Type       string         `json:"type,omitzero"`
	NodeID     string         `json:"node_id,omitzero"`
	Function   string         `json:"function,omitzero"`
	Retryable  bool           `json:"retryable"`
	RetryAfter int64          `json:"retry_after_ms,omitzero"`
	Details    map[string]any `json:"details,omitzero"`
}

// FromError converts any error to the form of the protocol; nil results in nil. An error whose reason
// is not in the table gets the nearest one by its code, and its own reason as the detail reason.
// idempotent states that the call may run twice. Details must not contain values of arguments.
func FromError(err error, node, function string, idempotent bool) *WireError {
	e := capability.AsError(err)
	if e == nil {
		return nil
	}
	row, ok := rowOf(e.Reason)
	if !ok {
		row, _ = rowOf(nearest(e.Code))
	}
	w := &WireError{
		Code: row.Reason, Type: row.Type, Message: clip(e.Message), NodeID: node, Function: function,
		Retryable: row.Retry == RetryYes || row.Retry == RetryIdempotent && idempotent, RetryAfter: e.RetryAfter.Milliseconds(),
		Details: e.Details,
	}
	if row.Reason == ReasonConnection && e.Code == capability.CodeFailed {
		w.Retryable = idempotent // it was sent
	}
	if !ok && e.Reason != "" {
		w.Details = maps.Clone(e.Details)
		if w.Details == nil {
			w.Details = make(map[string]any)
		}
		w.Details["reason"] = e.Reason
	}
	if w.Message == "" {
		w.Message = e.Code.Row().Meaning
	}
	return w
}

// nearest returns the reason of the table for a code.
func nearest(code capability.Code) string {
	switch code {
	case capability.CodeUnauthenticated, capability.CodeDenied:
		return ReasonDenied
	case capability.CodeApprovalRequired:
		return ReasonConsentRequired
	case capability.CodeInvalidInput, capability.CodeNotFound:
		return ReasonParams
	case capability.CodeTooLarge:
		return ReasonTooLarge
	case capability.CodeUnknownCapability:
		return ReasonFunctionNotFound
	case capability.CodeOverloaded:
		return ReasonOverloaded
	case capability.CodeUnavailable:
		return ReasonNoNodes
	case capability.CodeTimeout:
		return ReasonTimeout
	case capability.CodeCancelled:
		return ReasonCancelled
	}
	return ReasonExecution
}

// Capability converts a node's error to a *capability.Error. A code that is not in the table becomes
// execution_failed, so that a node cannot use other codes.
func (w *WireError) Capability() *capability.Error {
	row, ok := rowOf(w.Code)
	if !ok {
		row, _ = rowOf(ReasonExecution)
	}
	e := capability.Errorf(row.Code, "node", "%s", clip(w.Message)).With(row.Reason, "")
	e.Target = clip(w.Function)
	if row.Reason == ReasonConnection && !w.Retryable {
		e.Code = capability.CodeFailed
	}
	if data, err := jsonx.Marshal(w.Details); err == nil && len(data) <= MaxMessage {
		e.Details = w.Details
	}
	e.RetryAfter = min(max(time.Duration(min(w.RetryAfter, int64(maxRetryDelay/time.Millisecond)))*time.Millisecond, 0), maxRetryDelay)
	return e
}

func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= MaxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:MaxMessage-len("…")], "") + "…"
}
