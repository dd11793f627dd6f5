package mcpwire

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// The JSON-RPC and MCP error codes used here.
const (
	codeParse              = -32700
	CodeInvalidRequest     = -32600
	CodeMethodNotFound     = -32601
	CodeInvalidParams      = -32602
	CodeInternal           = -32603
	codeHeaderMismatch     = -32020
	codeUnsupportedVersion = -32022
)

// Fault is a protocol error and the HTTP status that carries it in the modern
// protocol; inside a session faults of a request travel with status 200.
type Fault struct {
	Status  int
	Code    int
	Message string
	Data    json.RawMessage
}

// BadRequest is a message that is none.
func BadRequest(format string, args ...any) *Fault {
	return &Fault{Status: http.StatusBadRequest, Code: CodeInvalidRequest, Message: fmt.Sprintf(format, args...)}
}

// InvalidParams is a request whose parameters cannot be meant.
func InvalidParams(format string, args ...any) *Fault {
	return &Fault{Status: http.StatusBadRequest, Code: CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// AppendFault appends the error response to id; nil is answered with null.
func AppendFault(dst []byte, id json.RawMessage, f *Fault) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	if id == nil {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, id...)
	}
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(f.Code), 10)
	dst = append(dst, `,"message":`...)
	dst = jsonx.AppendString(dst, f.Message)
	if f.Data != nil {
		dst = append(dst, `,"data":`...)
		dst = append(dst, f.Data...)
	}
	return append(dst, "}}"...)
}

// AppendResponse appends the response that carries result, a whole JSON object.
func AppendResponse(dst []byte, id json.RawMessage, result []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"result":`...)
	dst = append(dst, result...)
	return append(dst, '}')
}

// WriteFault answers with a fault and its status; id is nil where none was readable.
func WriteFault(w http.ResponseWriter, id json.RawMessage, f *Fault) {
	WriteJSON(w, f.Status, AppendFault(nil, id, f))
}

// WriteJSON answers with a whole JSON document.
func WriteJSON(w http.ResponseWriter, status int, data []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(data)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(data)
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
