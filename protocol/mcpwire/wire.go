package mcpwire

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/junctor-run/junctor/protocol/jsonrpc"
)

// The error codes of MCP. Those of JSON-RPC are in package jsonrpc.
const (
	CodeSessionNotFound    = -32001 // of servers that do not answer with HTTP 404
	CodeResourceNotFound   = -32002 // before 2026-07-28
	CodeHeaderMismatch     = -32020
	CodeMissingCapability  = -32021 // the client would have to declare more
	CodeUnsupportedVersion = -32022
	CodeURLElicitation     = -32042
)

// Fault is a protocol error and the HTTP status that carries it in the modern
// protocol; inside a session faults of a request travel with status 200.
type Fault struct {
	Status  int
	Code    int
	Message string
	Data    json.RawMessage
}

// BadRequest is the error of a malformed message.
func BadRequest(format string, args ...any) *Fault {
	return &Fault{Status: http.StatusBadRequest, Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf(format, args...)}
}

// InvalidParams is a request whose parameters cannot be meant.
func InvalidParams(format string, args ...any) *Fault {
	return &Fault{Status: http.StatusBadRequest, Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// AppendFault appends the error response to id; nil is answered with null.
func AppendFault(dst []byte, id json.RawMessage, f *Fault) []byte {
	return jsonrpc.AppendFault(dst, id, int64(f.Code), f.Message, f.Data)
}

// Era is the form of a result: the modern one says more about itself.
type Era struct {
	Modern bool
	Info   []byte // serverInfo
}

// AppendClosing ends a result object that has at least one member: the era's
// members, then _meta from its own members (already JSON, may be empty).
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
