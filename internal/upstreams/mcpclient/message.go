package mcpclient

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// metaPrefix begins the _meta keys that the protocol keeps for itself.
const metaPrefix = "io.modelcontextprotocol/"

// The error codes used here.
const (
	codeMethodNotFound     = -32601
	codeInvalidParams      = -32602
	codeInternal           = -32603
	codeSessionNotFound    = -32001
	codeURLElicitation     = -32042
	codeHeaderMismatch     = -32020
	codeMissingCapability  = -32021
	codeUnsupportedVersion = -32022
)

const (
	maxID    = 512  // bytes of an id of the server's requests: it is echoed
	maxBatch = 1000 // messages in one array
)

// message is one JSON-RPC message of the server: its members as the bytes that came.
// A response has a result or a fault, everything else a method.
type message struct {
	id     json.RawMessage // nil in a notification
	method string
	params json.RawMessage // nil, or an object
	result json.RawMessage
	fault  *fault
}

// fault is the error of a response.
type fault struct {
	code    int64
	message string
	data    json.RawMessage
}

func (m *message) response() bool { return m.method == "" }

var errNotMessage = errors.New("is not a JSON-RPC message")

// parse reads one message. Duplicate member names are refused at any depth;
// invalid UTF-8 and lone surrogates pass, since they are the server's own affair.
func parse(raw []byte) (message, error) {
	var m message
	var version, method, params, failure []byte
	err := members(raw, func(name string, value []byte) {
		switch name {
		case "jsonrpc":
			version = value
		case "id":
			m.id = value
		case "method":
			method = value
		case "params":
			params = value
		case "result":
			m.result = value
		case "error":
			failure = value
		}
	})
	if err != nil {
		return message{}, err
	}
	if v, ok := textOf(version); !ok || v != "2.0" {
		return message{}, errNotMessage
	}
	if string(m.id) == "null" {
		m.id = nil
	}
	if method != nil {
		name, ok := textOf(method)
		if !ok || name == "" || m.result != nil || failure != nil || len(m.id) > maxID {
			return message{}, errNotMessage
		}
		if len(params) > 0 && params[0] != '{' && string(params) != "null" {
			return message{}, errNotMessage
		}
		if len(params) > 0 && params[0] == '{' {
			m.params = params
		}
		m.method = name
		return m, nil
	}
	if (m.result == nil) == (failure == nil) {
		return message{}, errNotMessage
	}
	if failure != nil {
		m.fault = readFault(failure)
	}
	return m, nil
}

// readFault takes an error as strangers write it: what has no code gets the internal one.
func readFault(raw []byte) *fault {
	f := &fault{code: codeInternal}
	if raw[0] != '{' {
		return f
	}
	_ = members(raw, func(name string, value []byte) {
		switch name {
		case "code":
			if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
				f.code = n
			}
		case "message":
			f.message, _ = textOf(value)
		case "data":
			f.data = value
		}
	})
	return f
}

// parseAll reads a message, or the array of them that 2025-03-26 allowed.
func parseAll(raw []byte) ([]message, error) {
	text := bytes.TrimLeft(raw, " \t\r\n")
	if len(text) == 0 || text[0] != '[' {
		m, err := parse(raw)
		if err != nil {
			return nil, err
		}
		return []message{m}, nil
	}
	var out []message
	err := elements(raw, func(value []byte) error {
		if len(out) == maxBatch {
			return errNotMessage
		}
		m, err := parse(value)
		out = append(out, m)
		return err
	})
	if err == nil && len(out) == 0 {
		err = errNotMessage
	}
	return out, err
}

// members calls each with every member of the object raw, in order, the value as
// the bytes that came. raw must hold the object and nothing more.
func members(raw []byte, each func(name string, value []byte)) error {
	return jsonx.Members(raw, each)
}

// elements calls each with every element of the array raw; its error ends it.
func elements(raw []byte, each func(value []byte) error) error { return jsonx.Elements(raw, each) }

func atEnd(dec *jsontext.Decoder) error {
	_, err := dec.ReadToken()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil:
		return errors.New("data after the value")
	}
	return err
}

// isObject reports whether raw is one whole JSON object.
func isObject(raw []byte) bool { return members(raw, func(string, []byte) {}) == nil }

// isValue reports whether raw is one whole JSON value, with whatever in its strings.
func isValue(raw []byte) bool {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowInvalidUTF8(true))
	return dec.SkipValue() == nil && atEnd(dec) == nil
}

// member is one member of an object; nil when it is not there, or raw is none.
func member(raw []byte, name string) []byte {
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	var found []byte
	_ = members(raw, func(n string, value []byte) {
		if n == name {
			found = value
		}
	})
	return found
}

// textOf is the value of a JSON string; ok is false for another kind of value.
func textOf(raw []byte) (s string, ok bool) { return jsonx.Text(raw) }

// text is a string member of an object, cut.
func text(raw []byte, name string, limit int) string {
	s, _ := textOf(member(raw, name))
	return cut(s, limit)
}

// cut makes a stranger's text fit for an error or a line of a log.
func cut(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}

// appendString appends s as a JSON string; invalid UTF-8 becomes U+FFFD.
func appendString(dst []byte, s string) []byte { return jsonx.AppendString(dst, s) }

// appendRequest appends a request, or a notification when id is 0. params is an object,
// or nil.
func appendRequest(dst []byte, id int64, method string, params []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0",`...)
	if id != 0 {
		dst = strconv.AppendInt(append(dst, `"id":`...), id, 10)
		dst = append(dst, ',')
	}
	dst = appendString(append(dst, `"method":`...), method)
	if params != nil {
		dst = append(append(dst, `,"params":`...), params...)
	}
	return append(dst, '}')
}

func appendResult(dst []byte, id, result json.RawMessage) []byte {
	dst = append(append(dst, `{"jsonrpc":"2.0","id":`...), id...)
	dst = append(append(dst, `,"result":`...), result...)
	return append(dst, '}')
}

func appendFault(dst []byte, id json.RawMessage, code int64, text string) []byte {
	dst = append(append(dst, `{"jsonrpc":"2.0","id":`...), id...)
	dst = strconv.AppendInt(append(dst, `,"error":{"code":`...), code, 10)
	dst = appendString(append(dst, `,"message":`...), text)
	return append(dst, "}}"...)
}

// oneLine makes a message fit for a transport of lines. Between tokens a line break
// is a space like any other, and inside of strings there is none.
func oneLine(raw []byte) []byte {
	if bytes.IndexByte(raw, '\n') < 0 && bytes.IndexByte(raw, '\r') < 0 {
		return raw
	}
	raw = bytes.Clone(raw)
	for i, b := range raw {
		if b == '\n' || b == '\r' {
			raw[i] = ' '
		}
	}
	return raw
}

// headerValue wraps what a header cannot carry as it is (MCP 2026-07-28, SEP-2243).
func headerValue(s string) string {
	const prefix, suffix = "=?base64?", "?="
	plain := !strings.HasPrefix(s, prefix) || !strings.HasSuffix(s, suffix)
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			plain = false
		}
	}
	if plain && strings.Trim(s, " \t") == s {
		return s
	}
	return prefix + base64.StdEncoding.EncodeToString([]byte(s)) + suffix
}

// The headers of the transport.
const (
	headerSession   = "Mcp-Session-Id"
	headerVersion   = "Mcp-Protocol-Version"
	headerMethod    = "Mcp-Method"
	headerName      = "Mcp-Name"
	headerLastEvent = "Last-Event-Id"
)

func setStandard(h http.Header, version, method, name string, extra http.Header) {
	h.Set(headerVersion, version)
	h.Set(headerMethod, method)
	if name != "" {
		h.Set(headerName, headerValue(name))
	}
	for key, values := range extra {
		if len(key) > len("Mcp-Param-") && strings.EqualFold(key[:len("Mcp-Param-")], "Mcp-Param-") && len(values) > 0 {
			h.Set(key, headerValue(values[0]))
		}
	}
}
