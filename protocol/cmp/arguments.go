package cmp

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// The bounds of a call's arguments.
const (
	MaxDepth     = 64   // of any JSON value
	MaxArguments = 1024 // positional and by name, each
)

// Arguments are those of a call: by place and by name.
type Arguments struct {
	Args   []json.RawMessage          `json:"args"`
	Kwargs map[string]json.RawMessage `json:"kwargs"`
}

// ParseArguments applies the one rule by which loose JSON becomes arguments: an
// object with __args__ or __kwargs__, or of nothing but args and kwargs of the
// right types, is split; another object is arguments by name, a list by place,
// anything else one by place, and null none. What does not fit is invalid_params.
func ParseArguments(data json.RawMessage) (Arguments, error) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || string(data) == "null" {
		return Arguments{}, nil
	}
	if err := CheckJSON(data); err != nil {
		return Arguments{}, err
	}
	switch data[0] {
	case '[':
		var a Arguments
		if err := jsonx.Unmarshal(data, &a.Args); err != nil {
			return Arguments{}, Errorf(ReasonParams, "the arguments: %w", err)
		}
		return a, a.check()
	case '{':
		return parseObject(data)
	}
	return Arguments{Args: []json.RawMessage{bytes.Clone(data)}}, nil
}

func parseObject(data json.RawMessage) (Arguments, error) {
	var members map[string]json.RawMessage
	if err := jsonx.Unmarshal(data, &members); err != nil {
		return Arguments{}, Errorf(ReasonParams, "the arguments: %w", err)
	}
	const longArgs, longKwargs = "__args__", "__kwargs__"
	_, a := members[longArgs]
	_, k := members[longKwargs]
	if a || k {
		for name := range members {
			if name != longArgs && name != longKwargs {
				return Arguments{}, Errorf(ReasonParams, "beside __args__ and __kwargs__ there is %.80q, which is neither", name)
			}
		}
		return split(members[longArgs], members[longKwargs])
	}
	envelope := len(members) > 0
	for name, value := range members {
		// Anything else is the name of an argument of the function's own.
		envelope = envelope && (name == "args" && (falsy(value) || value[0] == '[') || name == "kwargs" && (falsy(value) || value[0] == '{'))
	}
	if envelope {
		return split(members["args"], members["kwargs"])
	}
	out := Arguments{Kwargs: members}
	return out, out.check()
}

// split reads the two parts; missing and empty ones count as none.
func split(args, kwargs json.RawMessage) (out Arguments, err error) {
	if !falsy(args) {
		if err := jsonx.Unmarshal(args, &out.Args); err != nil {
			return Arguments{}, Errorf(ReasonParams, "args must be a list: %w", err)
		}
	}
	if !falsy(kwargs) {
		if err := jsonx.Unmarshal(kwargs, &out.Kwargs); err != nil {
			return Arguments{}, Errorf(ReasonParams, "kwargs must be an object: %w", err)
		}
	}
	return out, out.check()
}

// falsy reports what the original's language takes for nothing.
func falsy(v json.RawMessage) bool {
	return slices.Contains([]string{"", "null", "false", "0", `""`, "[]", "{}"}, string(v))
}

func (a Arguments) check() error {
	if len(a.Args) > MaxArguments || len(a.Kwargs) > MaxArguments {
		return Errorf(ReasonParams, "there are more than %d arguments", MaxArguments)
	}
	return nil
}

// Bind gives each argument its name: those by place have the first of places names
// in their order. A name that is not among names, one that is given twice, and too
// many by place are invalid_params. An argument that is null counts as not given.
func (a Arguments) Bind(places int, names ...string) (map[string]json.RawMessage, error) {
	if len(a.Args) > places {
		return nil, Errorf(ReasonParams, "there are %d arguments by place; at most %d are taken", len(a.Args), places)
	}
	out := make(map[string]json.RawMessage, len(a.Args)+len(a.Kwargs))
	for i, v := range a.Args {
		out[names[i]] = v
	}
	for name, v := range a.Kwargs {
		if !slices.Contains(names, name) {
			return nil, Errorf(ReasonParams, "there is no argument %.80q; there are %q", name, names)
		}
		if _, twice := out[name]; twice {
			return nil, Errorf(ReasonParams, "the argument %s is given by place and by name", name)
		}
		out[name] = v
	}
	for name, v := range out {
		if string(bytes.TrimSpace(v)) == "null" {
			delete(out, name)
		}
	}
	return out, nil
}

// Bool reads a boolean of the reserved functions: true, false, 1, 0, "true" or
// "false". nil is fallback. Anything else is invalid_params, which name begins.
func Bool(v json.RawMessage, name string, fallback bool) (bool, error) {
	switch string(bytes.TrimSpace(v)) {
	case "":
		return fallback, nil
	case "true", "1", `"true"`:
		return true, nil
	case "false", "0", `"false"`:
		return false, nil
	}
	return false, Errorf(ReasonParams, `%s must be true or false`, name)
}

// String reads a text; nil is "". Anything else is invalid_params.
func String(v json.RawMessage, name string) (s string, err error) {
	if v == nil {
		return "", nil
	}
	if err := jsonx.Unmarshal(v, &s); err != nil {
		return "", Errorf(ReasonParams, "%s must be text", name)
	}
	return s, nil
}

// CheckJSON refuses, as bad_encoding, what is not exactly one JSON value with each
// member name once, valid UTF-8 and at most MaxDepth levels.
func CheckJSON(data []byte) error {
	depth, text := 0, false
	for i := 0; i < len(data); i++ { // before anything recurses
		switch c := data[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return Errorf(ReasonEncoding, "the JSON is more than %d levels deep", MaxDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	if !jsonx.Valid(data) {
		var v jsonx.Raw
		err := jsonx.Unmarshal(data, &v)
		if err == nil {
			return Errorf(ReasonEncoding, "it is not one JSON value")
		}
		return Errorf(ReasonEncoding, "%w", err)
	}
	return nil
}
