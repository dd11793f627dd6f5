package elizafile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Config is the content of an eliza.json. This package changes only env.vars; all other
// values and their order are preserved.
type Config struct {
	top, env, vals members
}

// members holds the members of one object, in order.
type members []member

type member struct {
	name  string
	value json.RawMessage
}

// ParseConfig parses one JSON object; blank data is an empty object.
func ParseConfig(data []byte) (*Config, error) {
	c := new(Config)
	if len(bytes.TrimSpace(data)) == 0 {
		return c, nil
	}
	var whole jsonx.Raw // refuses malformed JSON, with its position, and duplicate names
	if err := jsonx.Unmarshal(data, &whole); err != nil {
		return nil, err
	}
	var err error
	if c.top, err = readMembers("the file", data); err != nil {
		return nil, err
	}
	if raw, ok := c.top.get("env"); ok {
		if c.env, err = readMembers("env", raw); err != nil {
			return nil, err
		}
	}
	if raw, ok := c.env.get("vars"); ok {
		if c.vals, err = readMembers("env.vars", raw); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// readMembers parses an object; its error for another type names it by what.
func readMembers(what string, data []byte) (members, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("%s must be a JSON object", what)
	}
	out := members{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		one := member{name: fmt.Sprint(name)}
		if err := dec.Decode(&one.value); err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

func (m members) get(name string) (json.RawMessage, bool) {
	for _, one := range m {
		if one.name == name {
			return one.value, true
		}
	}
	return nil, false
}

// set replaces a member or adds it at the end; a nil value removes it.
func (m *members) set(name string, value json.RawMessage) {
	i := slices.IndexFunc(*m, func(one member) bool { return one.name == name })
	switch {
	case value == nil && i >= 0:
		*m = slices.Delete(*m, i, i+1)
	case value == nil:
	case i >= 0:
		(*m)[i].value = value
	default:
		*m = append(*m, member{name, value})
	}
}

// bytes returns the object as JSON, with the members' values as they were read.
func (m members) bytes() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, one := range m {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := jsonx.Marshal(one.name)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(one.value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Lookup returns the JSON value at a path of names, such as env and PATH. ok is false if the
// value is missing or null.
func (c *Config) Lookup(path ...string) (raw json.RawMessage, ok bool) {
	at := c.top
	for i, name := range path {
		if raw, ok = at.get(name); !ok || jsonx.Raw(raw).Kind() == 'n' {
			return nil, false
		}
		if i == len(path)-1 {
			break
		}
		var err error
		if at, err = readMembers(name, raw); err != nil {
			return nil, false
		}
	}
	return raw, ok
}

// vars calls each for the ELIZA_ members of env.vars. Strings, numbers and booleans are
// values; null means absent; every other type is an error.
func (c *Config) vars(each func(name, value string)) error {
	for _, one := range c.vals {
		if !strings.HasPrefix(one.name, prefix) {
			continue
		}
		switch jsonx.Raw(one.value).Kind() {
		case '"':
			var text string
			if err := jsonx.Unmarshal(one.value, &text); err != nil {
				return fmt.Errorf("env.vars.%s: %w", one.name, err)
			}
			each(one.name, text)
		case '0', 't', 'f':
			each(one.name, string(one.value))
		case 'n':
		default:
			return fmt.Errorf("env.vars.%s must be a text", one.name)
		}
	}
	return nil
}

// Set sets a member of env.vars; an empty value removes it. The name must be that of an
// ELIZA_ variable.
func (c *Config) Set(name, value string) error {
	if !keyGrammar().MatchString(name) || !strings.HasPrefix(name, prefix) {
		return fmt.Errorf("%q is not a variable that may be set", name)
	}
	if value == "" {
		c.vals.set(name, nil)
		return nil
	}
	raw, err := jsonx.Marshal(value)
	if err != nil {
		return err
	}
	c.vals.set(name, json.RawMessage(raw))
	return nil
}

// Bytes returns the content of the file, indented by two spaces. It is plain JSON: no
// comments are lost, because ParseConfig refuses them.
func (c *Config) Bytes() ([]byte, error) {
	vars, err := c.vals.bytes()
	if err != nil {
		return nil, err
	}
	if _, was := c.env.get("vars"); was || len(c.vals) > 0 {
		c.env.set("vars", vars)
	}
	env, err := c.env.bytes()
	if err != nil {
		return nil, err
	}
	if _, was := c.top.get("env"); was || len(c.env) > 0 {
		c.top.set("env", env)
	}
	doc, err := c.top.bytes()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, doc, "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}
