package mcpwire

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/junctor-run/junctor/protocol/jsonrpc"
)

// The error codes of MCP. Those of JSON-RPC are in package jsonrpc.
const (
	CodeSessionNotFound    = -32001 // of servers that do not use HTTP 404
	CodeResourceNotFound   = -32002 // before 2026-07-28
	CodeHeaderMismatch     = -32020
	CodeMissingCapability  = -32021 // the client lacks a required capability
	CodeUnsupportedVersion = -32022
	CodeURLElicitation     = -32042
)

// Fault is a protocol error with its HTTP status in the modern protocol. In a session, faults of a
// request are sent with status 200.
type Fault struct {
	Status  int
	Code    int
	Message string
	Data    json.RawMessage
}

// BadRequest returns the error for a malformed message.
func BadRequest(format string, args ...any) *Fault {
	return &Fault{Status: http.StatusBadRequest, Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf(format, args...)}
}

// InvalidParams returns the error for invalid parameters.
func InvalidParams(format string, args ...any) *Fault {
	return &Fault{Status: http.StatusBadRequest, Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// AppendFault appends the error response to id. A nil id is written as null.
func AppendFault(dst []byte, id json.RawMessage, f *Fault) []byte {
	return jsonrpc.AppendFault(dst, id, int64(f.Code), f.Message, f.Data)
}

// Era is the form of a result: modern results have additional members.
type Era struct {
	Modern bool
	Info   []byte // serverInfo
}

// AppendClosing ends a result object that has at least one member. It appends the era's members, then
// _meta with ownMeta, which is JSON members or empty.
func (e Era) AppendClosing(dst, ownMeta []byte) []byte {
	if e.Modern {
		dst = append(dst, `,"resultType":"complete","_meta":{"`+MetaPrefix+`serverInfo":`...)
		dst = append(dst, e.Info...)
		if len(ownMeta) > 0 {
			dst = append(dst, ',')
			dst = append(dst, ownMeta...)
		}
		return append(dst, "}}"...)
	}
	if len(ownMeta) > 0 {
		dst = append(dst, `,"_meta":{`...)
		dst = append(dst, ownMeta...)
		dst = append(dst, '}')
	}
	return append(dst, '}')
}
