package mcpclient

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// params returns the parameters of a call: the caller's bytes without reserved members,
// with _meta and, for a modern server, the answers to its questions. Parameters that are
// not an object are invalid_input.
func (c *Client) params(k *conn, id int64, r *Request, responses, state json.RawMessage) (json.RawMessage, error) {
	raw := json.RawMessage(bytes.TrimSpace(r.Params))
	reserved, empty := false, true
	if err := jsonx.Members(raw, func(name string, _ []byte) {
		empty = false
		reserved = reserved || name == "_meta" || name == "inputResponses" || name == "requestState"
	}); err != nil {
		return nil, capability.Errorf(capability.CodeInvalidInput, op, "the parameters must be a JSON object without duplicate members")
	}
	if reserved {
		for _, name := range []string{"_meta", "inputResponses", "requestState"} {
			_, rest, err := jsonx.Cut(raw, name)
			if err != nil {
				return nil, err
			}
			raw = rest
		}
		empty = true
		_ = jsonx.Members(raw, func(string, []byte) { empty = false })
	}
	var token int64
	if r.Progress != nil {
		token = id
	}
	var meta []byte
	if k.server.Modern() {
		meta = c.modernMeta(r.Meta, token, c.capabilities(r))
	} else {
		meta = appendForeign([]byte{'{'}, r.Meta)
		if token != 0 {
			meta = jsonx.AppendMember(meta, "progressToken", strconv.AppendInt(nil, token, 10))
		}
		meta = append(meta, '}')
	}
	out := make([]byte, 0, len(raw)+len(meta)+len(responses)+len(state)+64)
	out = append(out, raw[:len(raw)-1]...)
	add := func(name string, value []byte) {
		if len(value) == 0 || string(value) == "{}" && name == "_meta" {
			return
		}
		if !empty {
			out = append(out, ',')
		}
		empty = false
		out = append(append(append(out, `"`+name...), `":`...), value...)
	}
	if k.server.Modern() {
		for _, part := range [][]byte{responses, state} {
			if len(part) > 0 && !isValue(part) {
				return nil, capability.Errorf(capability.CodeInvalidInput, op, "an answer to a question must be JSON")
			}
		}
		add("inputResponses", responses)
		add("requestState", state)
	}
	if r.Task && !k.server.Modern() {
		add("task", []byte("{}"))
	}
	add("_meta", meta)
	return append(out, '}'), nil
}

// capabilities returns what a modern server may ask during this call: what the caller can
// answer, restricted to what the operator allows.
func (c *Client) capabilities(r *Request) json.RawMessage {
	switch {
	case r.Relay != nil:
		out := []byte{'{'}
		if v := member(r.Relay.Capabilities, "elicitation"); len(v) > 0 && v[0] == '{' {
			out = jsonx.AppendMember(out, "elicitation", v)
		}
		if v := member(r.Relay.Capabilities, "sampling"); c.cfg.Sampling && len(v) > 0 && v[0] == '{' {
			out = jsonx.AppendMember(out, "sampling", v)
		}
		if mcpwire.At(r.Relay.Capabilities, []string{"extensions", mcpwire.ExtensionApps}) != nil {
			out = jsonx.AppendMember(out, "extensions", []byte(mcpwire.ClientApps))
		}
		return append(out, '}')
	case r.Ask != nil && c.cfg.Sampling:
		return json.RawMessage(`{"elicitation":{"form":{},"url":{}},"sampling":{}}`)
	case r.Ask != nil:
		return json.RawMessage(`{"elicitation":{"form":{},"url":{}}}`)
	}
	return json.RawMessage("{}")
}

// modernMeta returns the _meta of a modern request: the caller's members, and those of the
// protocol, which callers cannot set.
func (c *Client) modernMeta(foreign json.RawMessage, token int64, capabilities json.RawMessage) []byte {
	if capabilities == nil {
		capabilities = json.RawMessage("{}")
	}
	out := appendForeign([]byte{'{'}, foreign)
	if token != 0 {
		out = jsonx.AppendMember(out, "progressToken", strconv.AppendInt(nil, token, 10))
	}
	out = jsonx.AppendMember(out, mcpwire.MetaPrefix+"protocolVersion", []byte(`"`+mcpwire.Version20260728+`"`))
	out = jsonx.AppendMember(out, mcpwire.MetaPrefix+"clientInfo", []byte(clientInfo))
	out = jsonx.AppendMember(out, mcpwire.MetaPrefix+"clientCapabilities", capabilities)
	c.mu.Lock()
	level := member(c.level, "level")
	c.mu.Unlock()
	if len(level) > 0 && level[0] == '"' {
		out = jsonx.AppendMember(out, mcpwire.MetaPrefix+"logLevel", level)
	}
	return append(out, '}')
}

// appendForeign appends the members of meta except those of the protocol.
func appendForeign(dst []byte, meta json.RawMessage) []byte {
	if len(meta) == 0 || meta[0] != '{' {
		return dst
	}
	from := len(dst)
	err := jsonx.Members(meta, func(name string, value []byte) {
		if name != "progressToken" && !strings.HasPrefix(name, mcpwire.MetaPrefix) {
			dst = jsonx.AppendMember(dst, name, value)
		}
	})
	if err != nil {
		return dst[:from] // a malformed object is omitted entirely
	}
	return dst
}
