// Package jsonx wraps the JSON library, so that only this package must change for
// encoding/json/v2. Decoding is strict: duplicate member names, names in another case,
// invalid UTF-8 and trailing data are errors.
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

// Raw is one JSON value as bytes. It is not the type encoding/json.RawMessage, so exported
// functions convert it.
type Raw = jsontext.Value

// Unmarshal decodes exactly one JSON value; unknown members are ignored.
func Unmarshal(data []byte, v any) error { return explain(json.Unmarshal(data, v)) }

// UnmarshalStrict decodes exactly one JSON value; an unknown member is an error
// that names it.
func UnmarshalStrict(data []byte, v any) error {
	return explain(json.Unmarshal(data, v, json.RejectUnknownMembers(true)))
}

// Marshal encodes v deterministically. A Raw inside v is written unchanged, even if its
// strings are not valid Unicode.
func Marshal(v any) ([]byte, error) { return json.Marshal(v, json.Deterministic(true), rawAsItIs()) }

// MarshalIndent is like Marshal with indentation.
func MarshalIndent(v any) ([]byte, error) {
	return json.Marshal(v, json.Deterministic(true), rawAsItIs(), jsontext.WithIndent("  "))
}

// Answer is like Marshal for responses of the HTTP API: every [time.Time] is written in UTC with
// milliseconds, 2026-01-02T15:04:05.000Z.
func Answer(v any) ([]byte, error) {
	return json.Marshal(v, json.Deterministic(true), rawAsItIs(), stamped)
}

// stamped is shared, because the library caches data for it.
var stamped = json.WithMarshalers(json.MarshalToFunc(func(e *jsontext.Encoder, t time.Time) error {
	return e.WriteToken(jsontext.String(Stamp(t)))
}))

// Stamp returns a time in the form that [Answer] writes.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

func rawAsItIs() json.Options {
	return json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true), jsontext.PreserveRawStrings(true))
}

// Canonical returns the RFC 8785 form of one JSON value. data is unchanged.
func Canonical(data []byte) ([]byte, error) {
	v := jsontext.Value(append([]byte(nil), data...))
	if err := v.Canonicalize(); err != nil {
		return nil, explain(err)
	}
	return v, nil
}

// Pruned returns a decoded JSON value without empty strings, lists, objects and nulls at any
// depth, or nil if nothing is left. v is unchanged.
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

// Sorted is like Canonical, but keeps every number as written. RFC 8785 converts numbers to
// floats, so that different integers beyond 2^53 become equal.
func Sorted(data []byte) ([]byte, error) {
	v := jsontext.Value(append([]byte(nil), data...))
	if err := v.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)); err != nil {
		return nil, explain(err)
	}
	return v, nil
}

// Mended returns one JSON value with invalid Unicode in its strings (bytes that are not UTF-8,
// and lone surrogates) replaced by U+FFFD. All other errors are still returned.
func Mended(data []byte) ([]byte, error) {
	v := jsontext.Value(append([]byte(nil), data...))
	if err := v.Format(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(false), jsontext.PreserveRawStrings(false)); err != nil {
		return nil, explain(err)
	}
	return v, nil
}

// Cut removes a member from an object. value is the member's value, or nil if it is missing;
// rest is the object without it, with every other byte unchanged. data is unchanged.
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
		if first { // the next member's comma is removed too
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

// explain converts an error of the library to a *SyntaxError or *TypeError.
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
