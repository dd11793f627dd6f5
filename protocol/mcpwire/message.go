// Package mcpwire is MCP's JSON-RPC as bytes and headers, the rules of the transport that
// one request can be judged by, and no more: messages cut out of a body without decoding
// what only passes, responses and faults put together, what a modern request (2026-07-28)
// says about itself, and arguments that are repeated in headers. Nothing here knows
// sessions, callers or the catalog.
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

// MetaPrefix begins the _meta keys that the protocol keeps for itself.
const MetaPrefix = "io.modelcontextprotocol/"

// Message is one JSON-RPC message: what the dispatcher decides by, decoded, and
// everything else as the bytes that came.
type Message struct {
	Batch  bool            // an array; nothing else is set
	ID     json.RawMessage // nil in a notification
	Method string          // "" in a response
	Params Params
	// Traceparent is the header's.
	Traceparent string
	Result      json.RawMessage // of a response that carries no error
}

// Params are the members of "params" that some rule here looks at.
type Params struct {
	Raw       json.RawMessage
	Name      string
	Named     bool // name is there and is a string
	Arguments json.RawMessage
	Cursor    json.RawMessage
	RequestID json.RawMessage // of notifications/cancelled
	Version   string          // of initialize
	Client    string          // clientInfo.name of initialize
	URI       string          // of resources
	Abilities json.RawMessage // capabilities of initialize
	// What a modern client answers with.
	Responses, State json.RawMessage
	Meta             Meta
}

// Meta are the members of params._meta that some rule here looks at.
type Meta struct {
	modern       bool // has a key of the protocol's own
	version      string
	versioned    bool
	Capabilities json.RawMessage
	Client       string
	Progress     json.RawMessage // progressToken, nil when absent
	foreign      []byte          // the members that go on to providers: "," and each
	trace        string          // traceparent
}

// Parse reads one message. Duplicate member names and invalid UTF-8 are refused;
// escaped lone surrogates are let through, since they are valid JSON and change
// nothing here.
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

// Read takes a "params" object in, which was checked with the message around it.
func (p *Params) Read(raw json.RawMessage) {
	p.Raw = raw
	// The object was checked with the message around it: no error is possible.
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

// PassOn gives the call what its provider may see beside the arguments: the client's
// own _meta, and the trace that it or the transport names.
func (m *Meta) PassOn(inv *capability.Invocation, header string) {
	foreign, trace := m.foreign, m.trace
	if trace == "" && header != "" {
		trace = header
		foreign = jsonx.AppendString(append(foreign, `,"traceparent":`...), trace)
	}
	if len(foreign) > 0 {
		inv.Meta = append(append([]byte{'{'}, foreign[1:]...), '}')
	}
	inv.Trace = traceID(trace)
}

// traceID is the id of the trace in a traceparent (W3C trace context), "" if it
// has none.
func traceID(traceparent string) string {
	parts := strings.Split(traceparent, "-")
	if len(parts) < 4 || len(parts[1]) != 32 || strings.Trim(parts[1], "0123456789abcdef") != "" || strings.Trim(parts[1], "0") == "" {
		return ""
	}
	return parts[1]
}

// nameIn is the member "name" of an object, bounded: it goes into the audit.
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

// malformed names the byte at which the text stops being JSON.
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

// invalidUTF8 is the offset of the first byte that is not UTF-8, or -1.
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

// maxID bounds ids and progress tokens: they are echoed and kept as map keys.
const maxID = 512

func validID(raw []byte) bool {
	if len(raw) == 0 || len(raw) > maxID {
		return false
	}
	return raw[0] == '"' || raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9'
}

// IDKey returns equal keys for equal ids, however a string is escaped.
func IDKey(raw json.RawMessage) string {
	if s, ok := jsonx.Text(raw); ok {
		return `"` + s
	}
	return string(raw)
}
