package routerserve

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/junctor-run/junctor/capability"
)

// params are the top-level members of a call, each as the bytes that came. The
// codec has checked them before: an object without duplicates.
type params struct {
	names  []string
	values []jsontext.Value
	whole  json.RawMessage
}

func parseParams(raw json.RawMessage) (params, error) {
	p := params{whole: raw}
	// What stands inside a value was the codec's to judge; a lone surrogate passes.
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return p, capability.Errorf(capability.CodeInvalidInput, "decode", "params must be an object")
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return p, capability.Wrap(capability.CodeInvalidInput, "decode", "params cannot be read", err)
		}
		p.names = append(p.names, name.String())
		before := dec.InputOffset()
		if err := dec.SkipValue(); err != nil {
			return p, capability.Wrap(capability.CodeInvalidInput, "decode", "params cannot be read", err)
		}
		// The decoder works on our own buffer, so the value can be cut out of it.
		value := raw[before:dec.InputOffset()]
		p.values = append(p.values, jsontext.Value(bytes.TrimLeft(value, ": \t\r\n")))
	}
	return p, nil
}

func (p params) raw(name string) json.RawMessage {
	if i := slices.Index(p.names, name); i >= 0 {
		return json.RawMessage(p.values[i])
	}
	return nil
}

// text is a string member, "" when absent.
func (p params) text(name string) string {
	raw := p.raw(name)
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	s, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return ""
	}
	return string(s)
}

// without is the object less the named members: the very bytes that came when it
// has none of them.
func (p params) without(drop ...string) json.RawMessage {
	if !slices.ContainsFunc(p.names, func(n string) bool { return slices.Contains(drop, n) }) {
		return p.whole
	}
	var out bytes.Buffer
	out.WriteByte('{')
	for i, name := range p.names {
		if slices.Contains(drop, name) {
			continue
		}
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		quoted, _ := jsontext.AppendQuote(nil, name)
		out.Write(quoted)
		out.WriteByte(':')
		out.Write(p.values[i])
	}
	out.WriteByte('}')
	return out.Bytes()
}

// action joins content and options into one input.
func (p params) action() json.RawMessage {
	content, options := p.raw("content"), p.raw("options")
	if len(options) == 0 {
		return content
	}
	inner := bytes.TrimSpace(content)
	if len(inner) < 2 {
		inner = []byte("{}")
	}
	var out bytes.Buffer
	out.WriteString(`{"$options":`)
	out.Write(options)
	if rest := bytes.TrimSpace(inner[1 : len(inner)-1]); len(rest) > 0 {
		out.WriteByte(',')
		out.Write(rest)
	}
	out.WriteByte('}')
	return out.Bytes()
}
