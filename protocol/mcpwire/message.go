// Package mcpwire handles MCP's JSON-RPC messages and headers, as far as one request is
// concerned: it splits messages without decoding the parts that are only passed on, writes
// responses and faults, and checks the metadata of a modern request (2026-07-28) and the
// arguments repeated in headers. It does not handle sessions, callers or the catalog.
package mcpwire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
)

// MetaPrefix is the prefix of the _meta keys that the protocol reserves.
const MetaPrefix = "io.modelcontextprotocol/"

// Message is one JSON-RPC message. The members needed for dispatching are decoded; all others keep the
// bytes that arrived.
type Message struct {
	Batch  bool            // an array; nothing else is set
	ID     json.RawMessage // nil in a notification
	Method string          // "" in a response
	Params Params
	// Traceparent is the value of the header.
	Traceparent string
	Result      json.RawMessage // of a response without error
}

// Params holds the members of "params" that this package or its callers check.
type Params struct {
	Raw       json.RawMessage
	Name      string
	Named     bool // name is a string
	Arguments json.RawMessage
	Cursor    json.RawMessage
	RequestID json.RawMessage // of notifications/cancelled
	Version   string          // of initialize
	Client    string          // clientInfo.name of initialize
	URI       string          // of resources
	Abilities json.RawMessage // capabilities of initialize
	// The answers of a modern client to questions.
	Responses, State json.RawMessage
	Meta             Meta
}

// Meta holds the members of params._meta that this package or its callers check.
type Meta struct {
	modern       bool // has a reserved key
	version      string
	versioned    bool
	Capabilities json.RawMessage
	Client       string
	Progress     json.RawMessage // progressToken, or nil
	foreign      []byte          // the members passed on to providers, each preceded by ","
	trace        string          // traceparent
}

// Parse parses one message. Malformed JSON, duplicate member names and invalid UTF-8 are errors.
// Escaped lone surrogates are accepted, because they are valid JSON.
func Parse(body []byte) (Message, *Fault) {
	var m Message
	text := bytes.TrimLeft(body, " \t\r\n")
	if len(text) > 0 && text[0] == '[' {
		m.Batch = true
		return m, nil
	}
	if at := invalidUTF8(body); at >= 0 {
		return m, &Fault{
			Status: http.StatusBadRequest, Code: jsonrpc.CodeParse,
			Message: fmt.Sprintf("malformed JSON at byte %d: invalid UTF-8", at),
		}
	}
	raw, err := jsonrpc.Decode(body)
	if err != nil {
		return m, malformed(err)
	}
	m.Result = raw.Result
	if raw.ID != nil {
		if !validID(raw.ID) {
			return m, BadRequest("id must be a string or an integer")
		}
		m.ID = raw.ID
	}
	if !raw.HasVersion() {
		return m, BadRequest(`jsonrpc must be "2.0"`)
	}
	if raw.Method != nil {
		method, ok := raw.MethodName()
		if !ok {
			return m, BadRequest("method must be a string")
		}
		m.Method = method
	}
	if raw.Params != nil {
		if raw.Params[0] != '{' {
			return m, InvalidParams("params must be an object")
		}
		m.Params.Read(raw.Params)
	}
	return m, nil
}

// Read sets p from a "params" object, which must have been checked with its message.
func (p *Params) Read(raw json.RawMessage) {
	p.Raw = raw
	// The object was checked with its message, so this cannot fail.
	_ = jsonx.Members(raw, func(name string, value []byte) {
		switch name {
		case "name":
			p.Name, p.Named = jsonx.Text(value)
		case "arguments":
			p.Arguments = value
		case "cursor":
			p.Cursor = value
		case "requestId":
			p.RequestID = value
		case "protocolVersion":
			p.Version, _ = jsonx.Text(value)
		case "clientInfo":
			p.Client = nameIn(value)
		case "uri":
			p.URI, _ = jsonx.Text(value)
		case "capabilities":
			p.Abilities = value
		case "inputResponses":
			p.Responses = value
		case "requestState":
			p.State = value
		case "_meta":
			p.Meta.read(value)
		}
	})
}

// read sets m from a "_meta" object. Keys with the prefix junctor/ are dropped.
func (m *Meta) read(raw json.RawMessage) {
	if len(raw) == 0 || raw[0] != '{' {
		return
	}
	_ = jsonx.Members(raw, func(name string, value []byte) {
		own, ok := strings.CutPrefix(name, MetaPrefix)
		m.modern = m.modern || ok
		switch {
		case ok && own == "protocolVersion":
			m.version, m.versioned = jsonx.Text(value)
		case ok && own == "clientCapabilities":
			m.Capabilities = value
		case ok && own == "clientInfo":
			m.Client = nameIn(value)
		case name == "progressToken" && validID(value):
			m.Progress = value
		case !ok && !strings.HasPrefix(name, "junctor/") && name != "progressToken":
			if name == "traceparent" {
				m.trace, _ = jsonx.Text(value)
			}
			m.foreign = append(append(jsonx.AppendString(append(m.foreign, ','), name), ':'), value...)
		}
	})
}

// PassOn sets Meta and Trace of an invocation: the client's own _meta, and the trace id from _meta or
// the traceparent header.
func (m *Meta) PassOn(inv *capability.Invocation, header string) {
	foreign, trace := m.foreign, m.trace
	if trace == "" && header != "" {
		trace = header
		foreign = jsonx.AppendString(append(foreign, `,"traceparent":`...), trace)
	}
	if len(foreign) > 0 {
		inv.Meta = append(append([]byte{'{'}, foreign[1:]...), '}')
	}
	inv.Trace, inv.TraceParent = traceID(trace)
}

// traceID returns the ids of trace and span in a traceparent (W3C trace context), or "" if it is
// malformed.
func traceID(traceparent string) (trace, span string) {
	id := func(s string, length int) bool {
		return len(s) == length && strings.Trim(s, "0123456789abcdef") == "" && strings.Trim(s, "0") != ""
	}
	parts := strings.Split(traceparent, "-")
	if len(parts) < 4 || !id(parts[1], 32) {
		return "", ""
	}
	if id(parts[2], 16) {
		span = parts[2]
	}
	return parts[1], span
}

// nameIn returns the member "name" of an object, shortened because it is recorded.
func nameIn(raw []byte) string {
	var name string
	if len(raw) > 0 && raw[0] == '{' {
		_ = jsonx.Members(raw, func(member string, value []byte) {
			if member == "name" {
				name, _ = jsonx.Text(value)
			}
		})
	}
	return text.ClipBytes(name, 128)
}

// malformed returns the error for malformed JSON, with the offset.
func malformed(err error) *Fault {
	if errors.Is(err, jsonx.ErrNotObject) {
		return BadRequest("a message must be a JSON object")
	}
	text := "the document ends too early"
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		text = fmt.Sprintf("malformed JSON at byte %d: %s", s.ByteOffset, s.Err)
	}
	return &Fault{Status: http.StatusBadRequest, Code: jsonrpc.CodeParse, Message: text}
}

// invalidUTF8 returns the offset of the first byte that is not valid UTF-8, or -1.
func invalidUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

func validID(raw []byte) bool {
	if len(raw) == 0 || len(raw) > maxID {
		return false
	}
	return raw[0] == '"' || raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9'
}

// IDKey returns a map key that is equal for equal ids, even if their strings are escaped differently.
func IDKey(raw json.RawMessage) string {
	if s, ok := jsonx.Text(raw); ok {
		return `"` + s
	}
	return string(raw)
}
