package mcpclient

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// message is one JSON-RPC message of the server, with the received bytes of its members. A
// response has a result or a fault, any other message a method.
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

// parse decodes one message. Duplicate member names are refused at any depth; invalid
// UTF-8 and lone surrogates are accepted.
func parse(raw []byte) (message, error) {
	in, err := jsonrpc.Decode(raw)
	if err != nil {
		return message{}, err
	}
	if !in.HasVersion() {
		return message{}, errNotMessage
	}
	m := message{id: in.ID, result: in.Result}
	if string(m.id) == "null" {
		m.id = nil
	}
	if in.Method != nil {
		name, ok := in.MethodName()
		if !ok || m.result != nil || in.Error != nil || len(m.id) > maxID {
			return message{}, errNotMessage
		}
		if len(in.Params) > 0 && in.Params[0] != '{' && string(in.Params) != "null" {
			return message{}, errNotMessage
		}
		if len(in.Params) > 0 && in.Params[0] == '{' {
			m.params = in.Params
		}
		m.method = name
		return m, nil
	}
	if (m.result == nil) == (in.Error == nil) {
		return message{}, errNotMessage
	}
	if in.Error != nil {
		m.fault = readFault(in.Error)
	}
	return m, nil
}

// readFault decodes an error, however malformed. Without a code it gets that of internal errors.
func readFault(raw []byte) *fault {
	f := &fault{code: jsonrpc.CodeInternal}
	if raw[0] != '{' {
		return f
	}
	_ = jsonx.Members(raw, func(name string, value []byte) {
		switch name {
		case "code":
			if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
				f.code = n
			}
		case "message":
			f.message, _ = jsonx.Text(value)
		case "data":
			f.data = value
		}
	})
	return f
}

// parseAll decodes a message or, as MCP 2025-03-26 allows, an array of 1 to maxBatch, all or none.
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
	err := jsonx.Elements(raw, func(value []byte) error {
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

// isObject reports whether raw is exactly one JSON object.
func isObject(raw []byte) bool { return jsonx.Members(raw, func(string, []byte) {}) == nil }

// isValue reports whether raw is exactly one JSON value; invalid UTF-8 is accepted.
func isValue(raw []byte) bool { return jsontext.Value(raw).IsValid(jsontext.AllowInvalidUTF8(true)) }

// member returns one member of an object; nil if it is missing or raw is not an object.
func member(raw []byte, name string) []byte { return mcpwire.At(raw, []string{name}) }

// text returns a string member of an object, cut to limit bytes.
func text(raw []byte, name string, limit int) string {
	s, _ := jsonx.Text(member(raw, name))
	return cut(s, limit)
}

// cut makes untrusted text safe for an error or a log line, and cuts it to limit bytes.
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

// oneLine replaces the line breaks of a message with spaces, for a line-based transport.
// JSON strings contain no line breaks.
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

// headerValue encodes a value that is not valid in a header.
func headerValue(s string) string {
	plain := !strings.HasPrefix(s, mcpwire.WrapOpening) || !strings.HasSuffix(s, mcpwire.WrapClosing)
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			plain = false
		}
	}
	if plain && strings.Trim(s, " \t") == s {
		return s
	}
	return mcpwire.WrapHeader(s)
}

func setStandard(h http.Header, version, method, name string, extra http.Header) {
	h.Set(mcpwire.HeaderVersion, version)
	h.Set(mcpwire.HeaderMethod, method)
	if name != "" {
		h.Set(mcpwire.HeaderName, headerValue(name))
	}
	for key, values := range extra {
		if len(key) > len(mcpwire.ParamPrefix) && strings.EqualFold(key[:len(mcpwire.ParamPrefix)], mcpwire.ParamPrefix) && len(values) > 0 {
			h.Set(key, headerValue(values[0]))
		}
	}
}
