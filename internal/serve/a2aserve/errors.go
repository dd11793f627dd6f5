package a2aserve

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/core/tasks"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
)

// fault is an error of A2A: a JSON-RPC code, or an HTTP status with a google.rpc.Status,
// and in both cases a google.rpc.ErrorInfo with the reason.
type fault struct {
	code    int
	http    int
	rpc     string // google.rpc.Code
	reason  string
	message string
	meta    map[string]string
}

func (f *fault) Error() string { return f.message }

// kindOf returns the JSON-RPC code, HTTP status and google.rpc code that A2A v1.0 assigns to
// an error. The reasons are the SDK's constants.
func kindOf(err error) (code, status int, rpc string) {
	for _, row := range []struct {
		kind         error
		code, status int
		rpc          string
	}{
		{a2a.ErrParseError, jsonrpc.CodeParse, http.StatusBadRequest, "INVALID_ARGUMENT"},
		{a2a.ErrInvalidRequest, jsonrpc.CodeInvalidRequest, http.StatusBadRequest, "INVALID_ARGUMENT"},
		{a2a.ErrMethodNotFound, jsonrpc.CodeMethodNotFound, http.StatusNotImplemented, "UNIMPLEMENTED"},
		{a2a.ErrInvalidParams, jsonrpc.CodeInvalidParams, http.StatusBadRequest, "INVALID_ARGUMENT"},
		{a2a.ErrTaskNotFound, -32001, http.StatusNotFound, "NOT_FOUND"},
		{a2a.ErrTaskNotCancelable, -32002, http.StatusConflict, "FAILED_PRECONDITION"},
		{a2a.ErrPushNotificationNotSupported, -32003, http.StatusBadRequest, "FAILED_PRECONDITION"},
		{a2a.ErrUnsupportedOperation, -32004, http.StatusBadRequest, "FAILED_PRECONDITION"},
		{a2a.ErrUnsupportedContentType, -32005, http.StatusUnsupportedMediaType, "INVALID_ARGUMENT"},
		{a2a.ErrInvalidAgentResponse, -32006, http.StatusBadGateway, "INTERNAL"},
		{a2a.ErrExtendedCardNotConfigured, -32007, http.StatusBadRequest, "FAILED_PRECONDITION"},
		{a2a.ErrExtensionSupportRequired, -32008, http.StatusBadRequest, "FAILED_PRECONDITION"},
		{a2a.ErrVersionNotSupported, -32009, http.StatusBadRequest, "FAILED_PRECONDITION"},
	} {
		if errors.Is(err, row.kind) {
			return row.code, row.status, row.rpc
		}
	}
	return jsonrpc.CodeInternal, http.StatusInternalServerError, "INTERNAL"
}

// refuse returns a fault of one of the SDK's kinds.
func refuse(kind error, message string) *fault {
	code, status, rpc := kindOf(kind)
	return &fault{code: code, http: status, rpc: rpc, reason: a2a.ErrorReason(kind), message: message}
}

// notFound returns the error for a missing task and for one of another owner.
func notFound(id string) *fault {
	if len(id) > 64 {
		id = id[:64]
	}
	return refuse(a2a.ErrTaskNotFound, "there is no task "+strings.ToValidUTF8(id, "?")+" of yours")
}

// faultOf converts any error to a fault.
func faultOf(err error) *fault {
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	e := capability.AsError(err)
	message := e.Message
	if e.Hint != "" {
		message += "; " + e.Hint
	}
	kind := a2a.ErrInternalError
	switch e.Code {
	case capability.CodeInvalidInput, capability.CodeTooLarge:
		kind = a2a.ErrInvalidParams
	case capability.CodeNotFound:
		kind = a2a.ErrTaskNotFound
		if e.Reason != tasks.ReasonNotFound {
			kind = a2a.ErrInvalidParams
		}
	case capability.CodeConflict:
		kind = a2a.ErrUnsupportedOperation
	}
	f := refuse(kind, message)
	if f.code == jsonrpc.CodeInternal && e.Code != capability.CodeInternal {
		f.code, f.http, f.reason = jsonrpc.CodeServer, e.Code.Row().HTTP, strings.ToUpper(string(e.Code))
		f.rpc = "UNAVAILABLE"
	}
	if e.Reason != "" {
		f.meta = map[string]string{"reason": e.Reason}
	}
	return f
}

// details returns the list with the ErrorInfo.
func (f *fault) details() []any {
	meta := map[string]string{"timestamp": time.Now().UTC().Format(time.RFC3339)}
	for k, v := range f.meta {
		meta[k] = v
	}
	return []any{map[string]any{
		"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": f.reason, "domain": a2a.ProtocolDomain, "metadata": meta,
	}}
}

func (f *fault) jsonrpc() map[string]any {
	return map[string]any{"code": f.code, "message": f.message, "data": f.details()}
}

func (f *fault) rest() map[string]any {
	return map[string]any{"error": map[string]any{"code": f.http, "status": f.rpc, "message": f.message, "details": f.details()}}
}
