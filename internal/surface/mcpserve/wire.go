package mcpserve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/junctor-run/junctor/internal/jsonx"
)

// The headers of the transport.
const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
)

// The JSON-RPC and MCP error codes used here.
const (
	codeParse              = -32700
	codeInvalidRequest     = -32600
	codeMethodNotFound     = -32601
	codeInvalidParams      = -32602
	codeInternal           = -32603
	codeHeaderMismatch     = -32020
	codeUnsupportedVersion = -32022
)

// fault is a protocol error and the HTTP status that carries it in the modern
// protocol; inside a session faults of a request travel with status 200.
type fault struct {
	status  int
	code    int
	message string
	data    json.RawMessage
}

func badRequest(format string, args ...any) *fault {
	return &fault{status: http.StatusBadRequest, code: codeInvalidRequest, message: fmt.Sprintf(format, args...)}
}

func invalidParams(format string, args ...any) *fault {
	return &fault{status: http.StatusBadRequest, code: codeInvalidParams, message: fmt.Sprintf(format, args...)}
}

// appendString appends s as a JSON string; invalid UTF-8 becomes U+FFFD.
func appendString(dst []byte, s string) []byte { return jsonx.AppendString(dst, s) }

// appendFault appends the error response to id; nil is answered with null.
func appendFault(dst []byte, id json.RawMessage, f *fault) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	if id == nil {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, id...)
	}
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(f.code), 10)
	dst = append(dst, `,"message":`...)
	dst = appendString(dst, f.message)
	if f.data != nil {
		dst = append(dst, `,"data":`...)
		dst = append(dst, f.data...)
	}
	return append(dst, "}}"...)
}

// appendResponse appends the response that carries result, a whole JSON object.
func appendResponse(dst []byte, id json.RawMessage, result []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"result":`...)
	dst = append(dst, result...)
	return append(dst, '}')
}

func writeFault(w http.ResponseWriter, id json.RawMessage, f *fault) {
	writeJSON(w, f.status, appendFault(nil, id, f))
}

func writeJSON(w http.ResponseWriter, status int, data []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(data)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(data)
}

// era is the form of a result: the modern one says more about itself.
type era struct {
	modern bool
	info   []byte // serverInfo
}

// appendClosing ends a result object that has at least one member: the era's
// members, then _meta from its own members (already JSON, may be empty).
func (e era) appendClosing(dst, ownMeta []byte) []byte {
	if e.modern {
		dst = append(dst, `,"resultType":"complete","_meta":{"`+metaPrefix+`serverInfo":`...)
		dst = append(dst, e.info...)
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
