// Package jsonx is the one place that names the JSON library. It is strict
// where a stranger writes: duplicate and case-folded member names, invalid
// UTF-8 and trailing data are refused. It becomes encoding/json/v2 by changing
// this package alone.
package jsonx

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Raw is one JSON value as bytes; the same type as encoding/json.RawMessage's
// layout but not its type, so convert at exported borders.
type Raw = jsontext.Value

// Unmarshal decodes exactly one JSON value; unknown members are ignored.
func Unmarshal(data []byte, v any) error { return explain(json.Unmarshal(data, v)) }

// UnmarshalStrict decodes exactly one JSON value; an unknown member is an error
// that names it.
func UnmarshalStrict(data []byte, v any) error {
	return explain(json.Unmarshal(data, v, json.RejectUnknownMembers(true)))
}

// Marshal encodes v deterministically. A Raw inside v is written as the bytes it
// is, whatever a stranger put into its strings.
func Marshal(v any) ([]byte, error) { return json.Marshal(v, json.Deterministic(true), rawAsItIs()) }

// MarshalIndent encodes v for people.
func MarshalIndent(v any) ([]byte, error) {
	return json.Marshal(v, json.Deterministic(true), rawAsItIs(), jsontext.WithIndent("  "))
}

// Answer is Marshal for what our HTTP API answers: every [time.Time] in it is in UTC
// and has milliseconds, 2026-01-02T15:04:05.000Z.
func Answer(v any) ([]byte, error) {
	return json.Marshal(v, json.Deterministic(true), rawAsItIs(), stamped)
}

// stamped is made once: the library keeps what it finds out for it.
var stamped = json.WithMarshalers(json.MarshalToFunc(func(e *jsontext.Encoder, t time.Time) error {
	return e.WriteToken(jsontext.String(Stamp(t)))
}))

// Stamp is a time as [Answer] writes it.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

func rawAsItIs() json.Options {
	return json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true), jsontext.PreserveRawStrings(true))
}

// Canonical returns the RFC 8785 form of one JSON value. data is not changed.
func Canonical(data []byte) ([]byte, error) {
	v := jsontext.Value(append([]byte(nil), data...))
	if err := v.Canonicalize(); err != nil {
		return nil, explain(err)
	}
	return v, nil
}

// Pruned is a decoded JSON value without empty strings, lists, objects and nulls, at any
// depth; nil when nothing is left. v is not changed.
func Pruned(v any) any {
	switch v := v.(type) {
	case string:
		if v == "" {
			return nil
		}
	case []any:
		var out []any
		for _, one := range v {
			if one = Pruned(one); one != nil {
				out = append(out, one)
			}
		}
		if out == nil {
			return nil
		}
		return out
	case map[string]any:
		out := make(map[string]any)
		for k, one := range v {
			if one = Pruned(one); one != nil {
				out[k] = one
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	}
	return v
}

// Sorted is Canonical, but with every number as it was written: RFC 8785 makes
// floats of them, so that integers beyond 2^53 fall together.
func Sorted(data []byte) ([]byte, error) {
	v := jsontext.Value(append([]byte(nil), data...))
	if err := v.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)); err != nil {
		return nil, explain(err)
	}
	return v, nil
}

// Mended is one JSON value with U+FFFD for invalid Unicode in its strings: bytes that
// are not UTF-8, and halves of characters. Everything else stays as strict.
func Mended(data []byte) ([]byte, error) {
	v := jsontext.Value(append([]byte(nil), data...))
	if err := v.Format(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(false), jsontext.PreserveRawStrings(false)); err != nil {
		return nil, explain(err)
	}
	return v, nil
}

// Cut takes the member name out of an object: value is its bytes, nil when it is
// not there, and rest the object without it, every other byte as it was. data is
// not changed.
func Cut(data []byte, name string) (value, rest []byte, err error) {
	if !bytes.Contains(data, []byte(name)) && !bytes.Contains(data, []byte(`\u`)) {
		return nil, data, nil // the common case
	}
	d := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return nil, nil, &TypeError{Msg: "is not an object"}
	}
	for first := true; d.PeekKind() == '"'; first = false {
		from := d.InputOffset()
		member, err := d.ReadToken()
		if err != nil {
			return nil, nil, explain(err)
		}
		found := member.String() == name
		v, err := d.ReadValue()
		if err != nil {
			return nil, nil, explain(err)
		}
		if !found {
			continue
		}
		value = bytes.Clone(v)
		head, tail := data[:from], data[d.InputOffset():]
		if first { // the comma of the next member goes too
			tail = bytes.TrimLeft(tail, " \t\r\n")
			tail = bytes.TrimPrefix(tail, []byte(","))
		}
		return value, append(append(make([]byte, 0, len(head)+len(tail)), head...), tail...), nil
	}
	return nil, data, nil
}

// Valid reports whether data is exactly one JSON value.
func Valid(data []byte) bool { return jsontext.Value(data).IsValid() }

// SyntaxError is a malformed document; Offset counts bytes from its start.
type SyntaxError struct {
	Offset  int64
	Pointer string
	Msg     string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("malformed JSON at byte %d: %s", e.Offset, e.Msg)
}

// TypeError is a well-formed document with a member of the wrong shape or an
// unknown name; Pointer is its RFC 6901 path.
type TypeError struct {
	Pointer string
	Msg     string
}

func (e *TypeError) Error() string {
	if e.Pointer == "" {
		return e.Msg
	}
	return fmt.Sprintf("%s: %s", e.Pointer, e.Msg)
}

func explain(err error) error {
	if err == nil {
		return nil
	}
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return &SyntaxError{Offset: s.ByteOffset, Pointer: string(s.JSONPointer), Msg: s.Err.Error()}
	}
	if s, ok := errors.AsType[*json.SemanticError](err); ok {
		msg := "has the wrong type"
		switch {
		case errors.Is(err, json.ErrUnknownName):
			msg = "is not a known field"
		case s.JSONKind != 0 && s.GoType != nil:
			msg = fmt.Sprintf("is a JSON %s where %s is needed", kindName(s.JSONKind), goTypeName(s.GoType))
		case s.Err != nil:
			msg = s.Err.Error()
		}
		return &TypeError{Pointer: string(s.JSONPointer), Msg: msg}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &SyntaxError{Msg: "the document ends too early"}
	}
	return err
}

func kindName(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "boolean"
	case '"':
		return "string"
	case '0':
		return "number"
	case '{':
		return "object"
	case '[':
		return "array"
	}
	return "value"
}

func goTypeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return goTypeName(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a number"
}
