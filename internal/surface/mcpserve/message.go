package mcpserve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/junctor-run/junctor/capability"
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
	meta      meta
}

// meta are the members of params._meta that some rule here looks at.
type meta struct {
	modern       bool // has a key of the protocol's own
	version      string
	versioned    bool
	capabilities json.RawMessage
	client       string
	progress     json.RawMessage // progressToken, nil when absent
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
		}
	})
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

var errNotObject = errors.New("a JSON object is needed")

// members calls each with every member of the object raw, in order, the value as
// the bytes that came. raw must hold the object and nothing more.
func members(raw []byte, each func(name string, value []byte)) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowInvalidUTF8(true))
	switch kind := dec.PeekKind(); kind {
	case '{':
	case '[', '"', '0', 't', 'f', 'n':
		if err := dec.SkipValue(); err != nil {
			return err
		}
		return errNotObject
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		// The token dies with the next read.
		member := name.String()
		from := dec.InputOffset()
		if err := dec.SkipValue(); err != nil {
			return err
		}
		each(member, bytes.TrimLeft(raw[from:dec.InputOffset()], ": \t\r\n"))
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		if err == nil {
			return &jsontext.SyntacticError{ByteOffset: dec.InputOffset(), Err: errors.New("data after the value")}
		}
		return err
	}
	return nil
}

// malformed names the byte at which the text stops being JSON.
func malformed(err error) *fault {
	if errors.Is(err, errNotObject) {
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
func textOf(raw []byte) (s string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	// A lone surrogate becomes U+FFFD and an error; no name of ours has one.
	out, _ := jsontext.AppendUnquote(nil, raw)
	return string(out), true
}

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
