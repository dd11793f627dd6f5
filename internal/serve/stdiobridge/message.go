package stdiobridge

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/junctor-run/junctor/protocol/jsonrpc"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// The codes of the bridge's own errors are outside the range that JSON-RPC and MCP reserve.
const (
	codeUnauthenticated = 401
	codeTooLarge        = 413
	codeOverloaded      = 429
	codeBroken          = 502
	codeUnreachable     = 503
)

// message is a message of the client, with the members that the transport requires.
type message struct {
	body   []byte
	batch  bool
	id     json.RawMessage // nil in a notification and in a response
	method string
	modern bool
	// response is true if the message answers a request of the server
	response bool
	// values of the headers that repeat the body (modern)
	version, name string
	// cancels is the id that notifications/cancelled names
	cancels json.RawMessage
}

// peek reads the members that the transport requires. The server validates the message; only
// malformed JSON is rejected here.
func peek(body []byte) (message, error) {
	m := message{body: body}
	if body[0] == '[' {
		m.batch = true
		if !json.Valid(body) {
			return m, errNotJSON{}
		}
		return m, nil
	}
	var outer struct {
		ID     json.RawMessage `json:"id"`
		Method json.RawMessage `json:"method"`
		Params json.RawMessage `json:"params"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(body, &outer); err != nil {
		return m, errNotJSON{err}
	}
	m.response = outer.Method == nil && (outer.Result != nil || outer.Error != nil)
	if !m.response { // a response does not get an answer, so the error needs no id
		m.id = outer.ID
	}
	_ = json.Unmarshal(outer.Method, &m.method)
	var params struct {
		Name      json.RawMessage `json:"name"`
		URI       json.RawMessage `json:"uri"`
		RequestID json.RawMessage `json:"requestId"`
		Meta      json.RawMessage `json:"_meta"`
	}
	_ = json.Unmarshal(outer.Params, &params)
	m.cancels = params.RequestID
	var meta map[string]json.RawMessage
	_ = json.Unmarshal(params.Meta, &meta)
	for key := range meta {
		m.modern = m.modern || strings.HasPrefix(key, mcpwire.MetaPrefix)
	}
	_ = json.Unmarshal(meta[mcpwire.MetaPrefix+"protocolVersion"], &m.version)
	switch m.method {
	case "tools/call", "prompts/get":
		_ = json.Unmarshal(params.Name, &m.name)
	case "resources/read":
		_ = json.Unmarshal(params.URI, &m.name)
	}
	return m, nil
}

type errNotJSON struct{ cause error }

func (e errNotJSON) Error() string {
	if e.cause == nil {
		return "the line is not JSON"
	}
	return "the line is not a JSON-RPC message: " + e.cause.Error()
}

// modernHeaders sets the headers that repeat version, method and name of the body.
func (m *message) modernHeaders(h http.Header) {
	if m.version != "" {
		h.Set(mcpwire.HeaderVersion, wrap(m.version))
	}
	h.Set(mcpwire.HeaderMethod, wrap(m.method))
	if m.name != "" {
		h.Set(mcpwire.HeaderName, wrap(m.name))
	}
}

// wrap encodes a value that is not valid in a header, or that looks like an encoded one.
func wrap(v string) string {
	plain := strings.TrimSpace(v) == v && !strings.HasPrefix(strings.ToLower(v), mcpwire.WrapOpening)
	for i := range len(v) {
		plain = plain && ' ' <= v[i] && v[i] < 0x7f
	}
	if plain {
		return v
	}
	return mcpwire.WrapHeader(v)
}

// key returns a map key for an id; equal ids have equal keys.
func key(id json.RawMessage) string {
	var s string
	if json.Unmarshal(id, &s) == nil {
		return `"` + s
	}
	return string(id)
}

// answers reports whether data is the response to id.
func answers(data []byte, id json.RawMessage) bool {
	var response struct {
		ID     json.RawMessage `json:"id"`
		Method json.RawMessage `json:"method"`
	}
	return json.Unmarshal(data, &response) == nil && response.Method == nil && key(response.ID) == key(id)
}

// fail answers a request with an error of the bridge. If there is a remedy, fail adds it
// and writes both to Err. Notifications receive no answer.
func (b *bridge) fail(id json.RawMessage, code int, text, remedy string) {
	if remedy != "" {
		b.tell(text + "; " + remedy)
		text += "; " + remedy
	}
	if id == nil {
		if code != jsonrpc.CodeParse && code != codeTooLarge {
			return
		}
	}
	detail, err := json.Marshal(struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{code, text})
	if err != nil {
		return // an int and a string always encode
	}
	b.write(jsonrpc.AppendError(nil, id, detail))
}
