// Package jsonrpc reads and writes the envelope of JSON-RPC 2.0 messages. It handles
// bytes only: [Decode] splits a message into its members without decoding them, and the
// Append functions write one around values that are JSON already. Numbers beyond 2^53,
// unknown members of values and the order of members therefore survive. Which kinds of
// message, ids and parameters are accepted differs between protocols, so that each
// caller validates the members itself.
package jsonrpc

import (
	"encoding/json"
	"strconv"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Version is the value of the member jsonrpc.
const Version = "2.0"

// The error codes of JSON-RPC 2.0.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
	// CodeServer is the first of the codes that servers may define.
	CodeServer = -32000
)

// Message holds the members of one message as the bytes received. A member that is
// absent is nil; one that is null holds the four bytes of null.
type Message struct {
	Version json.RawMessage
	ID      json.RawMessage
	Method  json.RawMessage
	Params  json.RawMessage
	Result  json.RawMessage
	Error   json.RawMessage
}

// Decode splits one JSON object into its members, which are parts of raw. It returns an
// error for malformed JSON, for duplicate names at any depth, for data after the object,
// and [jsonx.ErrNotObject] for another kind of value. Unknown members are ignored.
// Invalid UTF-8 inside of strings is accepted.
func Decode(raw []byte) (Message, error) {
	var m Message
	err := jsonx.Members(raw, func(name string, value []byte) {
		switch name {
		case "jsonrpc":
			m.Version = value
		case "id":
			m.ID = value
		case "method":
			m.Method = value
		case "params":
			m.Params = value
		case "result":
			m.Result = value
		case "error":
			m.Error = value
		}
	})
	if err != nil {
		return Message{}, err
	}
	return m, nil
}

// HasVersion reports whether the member jsonrpc is "2.0".
func (m *Message) HasVersion() bool {
	v, ok := jsonx.Text(m.Version)
	return ok && v == Version
}

// MethodName returns the member method. It returns false if that is not a string with
// at least one character.
func (m *Message) MethodName() (string, bool) {
	name, ok := jsonx.Text(m.Method)
	return name, ok && name != ""
}

// AppendRequest appends a request, or a notification if id is nil. params is written
// unless it is empty.
func AppendRequest(dst, id []byte, method string, params []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0",`...)
	if id != nil {
		dst = append(append(dst, `"id":`...), id...)
		dst = append(dst, ',')
	}
	dst = jsonx.AppendString(append(dst, `"method":`...), method)
	if len(params) > 0 {
		dst = append(append(dst, `,"params":`...), params...)
	}
	return append(dst, '}')
}

// AppendResult appends a response with a result.
func AppendResult(dst, id, result []byte) []byte {
	return append(append(AppendResultHead(dst, id), result...), '}')
}

// AppendResultHead appends the part of a response before its result. The caller writes
// the result and a closing brace.
func AppendResultHead(dst, id []byte) []byte {
	return append(appendID(dst, id), `,"result":`...)
}

// AppendError appends a response with an error object.
func AppendError(dst, id, object []byte) []byte {
	dst = append(appendID(dst, id), `,"error":`...)
	return append(append(dst, object...), '}')
}

// AppendFault appends a response with an error of these members. data is written unless it is nil.
func AppendFault(dst, id []byte, code int64, message string, data []byte) []byte {
	dst = append(appendID(dst, id), `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, code, 10)
	dst = jsonx.AppendString(append(dst, `,"message":`...), message)
	if data != nil {
		dst = append(append(dst, `,"data":`...), data...)
	}
	return append(dst, "}}"...)
}

// appendID begins a response. An id that is nil is written as null.
func appendID(dst, id []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	if id == nil {
		return append(dst, "null"...)
	}
	return append(dst, id...)
}
