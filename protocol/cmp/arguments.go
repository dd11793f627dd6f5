package cmp

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Arguments holds the positional and the named arguments of a call.
type Arguments struct {
	Args   []json.RawMessage          `json:"args"`
	Kwargs map[string]json.RawMessage `json:"kwargs"`
}

// ParseArguments converts a JSON value to arguments. An object with __args__ or __kwargs__, or with
// only args and kwargs of the right types, is split into the two. Any other object is named
// arguments, an array positional ones, null none, and any other value one positional argument.
// Errors are invalid_params.
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

// parseObject converts an object to arguments; see ParseArguments.
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
		// Any other name is an argument of the function.
		envelope = envelope && (name == "args" && (falsy(value) || value[0] == '[') || name == "kwargs" && (falsy(value) || value[0] == '{'))
	}
	if envelope {
		return split(members["args"], members["kwargs"])
	}
	out := Arguments{Kwargs: members}
	return out, out.check()
}

// split parses the two parts. Missing and empty ones mean no arguments.
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

// falsy reports whether the original's language treats the value as false.
func falsy(v json.RawMessage) bool {
	return slices.Contains([]string{"", "null", "false", "0", `""`, "[]", "{}"}, string(v))
}

func (a Arguments) check() error {
	if len(a.Args) > MaxArguments || len(a.Kwargs) > MaxArguments {
		return Errorf(ReasonParams, "there are more than %d arguments", MaxArguments)
	}
	return nil
}

// Bind returns the arguments by name. Positional arguments get the first of names in order, at most
// places of them. Errors are invalid_params, for a name that is not in names or is given twice,
// and for too many positional arguments. An argument that is null is omitted.
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

// Bool parses a boolean of the reserved functions: true, false, 1, 0, "true" or "false". nil means
// fallback. Any other value is invalid_params; the message begins with name.
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

// String parses a string; nil means "". Any other value is invalid_params.
func String(v json.RawMessage, name string) (s string, err error) {
	if v == nil {
		return "", nil
	}
	if err := jsonx.Unmarshal(v, &s); err != nil {
		return "", Errorf(ReasonParams, "%s must be text", name)
	}
	return s, nil
}

// CheckJSON returns bad_encoding unless data is exactly one JSON value with unique member names,
// valid UTF-8 and at most MaxDepth levels.
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
