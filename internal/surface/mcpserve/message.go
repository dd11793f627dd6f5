package mcpserve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/jsonx"
	"github.com/junctor-run/junctor/internal/surface/door"
)

// metaPrefix begins the _meta keys that the protocol keeps for itself.
const metaPrefix = "io.modelcontextprotocol/"

// message is one JSON-RPC message: what the dispatcher decides by, decoded, and
// everything else as the bytes that came.
type message struct {
	batch  bool            // an array; nothing else is set
	id     json.RawMessage // nil in a notification
	method string          // "" in a response
	params params
	// traceparent is the header's.
	traceparent string
	// Of a response: exactly one is set.
	result, failure json.RawMessage
}

// params are the members of "params" that some rule here looks at.
type params struct {
	raw       json.RawMessage
	name      string
	named     bool // name is there and is a string
	arguments json.RawMessage
	cursor    json.RawMessage
	requestID json.RawMessage // of notifications/cancelled
	version   string          // of initialize
	client    string          // clientInfo.name of initialize
	uri       string          // of resources
	abilities json.RawMessage // capabilities of initialize
	// What a modern client answers with (spec section 3.4).
	responses, state json.RawMessage
	meta             meta
}

// meta are the members of params._meta that some rule here looks at.
type meta struct {
	modern       bool // has a key of the protocol's own
	version      string
	versioned    bool
	capabilities json.RawMessage
	client       string
	progress     json.RawMessage // progressToken, nil when absent
	foreign      []byte          // the members that go on to providers: "," and each
	trace        string          // traceparent
}

// read takes the body of a POST in and parses it. A message that cannot be
// parsed may still have an id to answer to.
func (s *Surface) read(w http.ResponseWriter, r *http.Request) ([]byte, message, *fault) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, message{}, &fault{status: http.StatusUnsupportedMediaType, code: codeInvalidRequest, message: "the Content-Type must be application/json"}
	}
	body, err := door.ReadBody(w, r, s.cfg.MaxBody)
	if err != nil {
		status := http.StatusBadRequest
		if capability.CodeOf(err) == capability.CodeTooLarge {
			status = http.StatusRequestEntityTooLarge
		}
		return nil, message{}, &fault{status: status, code: codeInvalidRequest, message: capability.AsError(err).Message}
	}
	m, f := parse(body)
	m.traceparent = r.Header.Get("Traceparent")
	return body, m, f
}

// parse reads one message. Duplicate member names and invalid UTF-8 are refused;
// escaped lone surrogates are let through, since they are valid JSON and change
// nothing here.
func parse(body []byte) (message, *fault) {
	var m message
	text := bytes.TrimLeft(body, " \t\r\n")
	if len(text) > 0 && text[0] == '[' {
		m.batch = true
		return m, nil
	}
	if at := invalidUTF8(body); at >= 0 {
		return m, &fault{status: http.StatusBadRequest, code: codeParse, message: fmt.Sprintf("malformed JSON at byte %d: invalid UTF-8", at)}
	}
	var rawParams, rawID, rawMethod, rawVersion json.RawMessage
	err := members(body, func(name string, value []byte) {
		switch name {
		case "jsonrpc":
			rawVersion = value
		case "id":
			rawID = value
		case "method":
			rawMethod = value
		case "params":
			rawParams = value
		case "result":
			m.result = value
		case "error":
			m.failure = value
		}
	})
	if err != nil {
		return m, malformed(err)
	}
	if rawID != nil {
		if !validID(rawID) {
			return m, badRequest("id must be a string or an integer")
		}
		m.id = rawID
	}
	if v, ok := textOf(rawVersion); !ok || v != "2.0" {
		return m, badRequest(`jsonrpc must be "2.0"`)
	}
	if rawMethod != nil {
		method, ok := textOf(rawMethod)
		if !ok || method == "" {
			return m, badRequest("method must be a string")
		}
		m.method = method
	}
	if rawParams != nil {
		if rawParams[0] != '{' {
			return m, &fault{status: http.StatusBadRequest, code: codeInvalidParams, message: "params must be an object"}
		}
		m.params.read(rawParams)
	}
	return m, nil
}

func (p *params) read(raw json.RawMessage) {
	p.raw = raw
	// The object was checked with the message around it: no error is possible.
	_ = members(raw, func(name string, value []byte) {
		switch name {
		case "name":
			p.name, p.named = textOf(value)
		case "arguments":
			p.arguments = value
		case "cursor":
			p.cursor = value
		case "requestId":
			p.requestID = value
		case "protocolVersion":
			p.version, _ = textOf(value)
		case "clientInfo":
			p.client = nameIn(value)
		case "uri":
			p.uri, _ = textOf(value)
		case "capabilities":
			p.abilities = value
		case "inputResponses":
			p.responses = value
		case "requestState":
			p.state = value
		case "_meta":
			p.meta.read(value)
		}
	})
}

func (m *meta) read(raw json.RawMessage) {
	if len(raw) == 0 || raw[0] != '{' {
		return
	}
	_ = members(raw, func(name string, value []byte) {
		own, ok := strings.CutPrefix(name, metaPrefix)
		m.modern = m.modern || ok
		switch {
		case ok && own == "protocolVersion":
			m.version, m.versioned = textOf(value)
		case ok && own == "clientCapabilities":
			m.capabilities = value
		case ok && own == "clientInfo":
			m.client = nameIn(value)
		case name == "progressToken" && validID(value):
			m.progress = value
		case !ok && !strings.HasPrefix(name, "junctor/") && name != "progressToken":
			if name == "traceparent" {
				m.trace, _ = textOf(value)
			}
			m.foreign = append(append(appendString(append(m.foreign, ','), name), ':'), value...)
		}
	})
}

// passOn gives the call what its provider may see beside the arguments: the client's
// own _meta, and the trace that it or the transport names.
func (m *meta) passOn(inv *capability.Invocation, header string) {
	foreign, trace := m.foreign, m.trace
	if trace == "" && header != "" {
		trace = header
		foreign = appendString(append(foreign, `,"traceparent":`...), trace)
	}
	if len(foreign) > 0 {
		inv.Meta = append(append([]byte{'{'}, foreign[1:]...), '}')
	}
	inv.Trace = traceID(trace)
}

// traceID is the id of the trace in a traceparent (W3C trace context), "" where there
// is none.
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
		_ = members(raw, func(member string, value []byte) {
			if member == "name" {
				name, _ = textOf(value)
			}
		})
	}
	if len(name) > 128 {
		name = strings.ToValidUTF8(name[:128], "")
	}
	return name
}

// members is [jsonx.Members].
func members(raw []byte, each func(name string, value []byte)) error {
	return jsonx.Members(raw, each)
}

// malformed names the byte at which the text stops being JSON.
func malformed(err error) *fault {
	if errors.Is(err, jsonx.ErrNotObject) {
		return badRequest("a message must be a JSON object")
	}
	text := "the document ends too early"
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		text = fmt.Sprintf("malformed JSON at byte %d: %s", s.ByteOffset, s.Err)
	}
	return &fault{status: http.StatusBadRequest, code: codeParse, message: text}
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

// textOf is the value of a JSON string; ok is false for another kind of value.
func textOf(raw []byte) (s string, ok bool) { return jsonx.Text(raw) }

// maxID bounds ids and progress tokens: they are echoed and kept as map keys.
const maxID = 512

func validID(raw []byte) bool {
	if len(raw) == 0 || len(raw) > maxID {
		return false
	}
	return raw[0] == '"' || raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9'
}

// idKey makes equal ids equal keys, however a string is escaped.
func idKey(raw json.RawMessage) string {
	if s, ok := textOf(raw); ok {
		return `"` + s
	}
	return string(raw)
}
