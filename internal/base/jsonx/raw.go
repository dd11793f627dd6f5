package jsonx

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrNotObject is the error of [Members] for another JSON value.
var ErrNotObject = errors.New("a JSON object is needed")

// ErrNotArray is the error of [Elements] for another JSON value.
var ErrNotArray = errors.New("a JSON array is needed")

// decoder holds the state for reading raw JSON. Decoders are pooled, because one call reads JSON
// many times.
type decoder struct {
	dec *jsontext.Decoder
	buf bytes.Buffer
}

var decoders = sync.Pool{New: func() any {
	d := new(decoder)
	d.dec = jsontext.NewDecoder(&d.buf, jsontext.AllowInvalidUTF8(true))
	return d
}}

// Members calls each with the name and value of every member of an object, in order. The value is
// a part of raw. raw must contain only the object. Errors: [ErrNotObject]; malformed JSON or
// duplicate names, after each may have been called. Invalid UTF-8 is accepted. each may call
// Members itself.
func Members(raw []byte, each func(name string, value []byte)) error {
	return walk(raw, func(d *decoder) error { return d.members(raw, each) })
}

// Elements is like [Members] for an array. An error of each ends it and is returned.
func Elements(raw []byte, each func(value []byte) error) error {
	return walk(raw, func(d *decoder) error { return d.elements(raw, each) })
}

func walk(raw []byte, over func(*decoder) error) error {
	d, _ := decoders.Get().(*decoder)
	d.buf = *bytes.NewBuffer(raw) // the decoder reads a buffer's bytes without copying
	d.dec.Reset(&d.buf, jsontext.AllowInvalidUTF8(true))
	err := over(d)
	d.buf = bytes.Buffer{}
	d.dec.Reset(&d.buf, jsontext.AllowInvalidUTF8(true)) // releases raw
	decoders.Put(d)
	return err
}

func (d *decoder) members(raw []byte, each func(name string, value []byte)) error {
	dec := d.dec
	switch dec.PeekKind() {
	case '{':
	case '[', '"', '0', 't', 'f', 'n':
		if err := dec.SkipValue(); err != nil {
			return err
		}
		return ErrNotObject
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		member := name.String() // the token is valid until the next read
		from := dec.InputOffset()
		if err := dec.SkipValue(); err != nil {
			return err
		}
		each(member, bytes.TrimLeft(raw[from:dec.InputOffset()], ": \t\r\n"))
	}
	return d.end()
}

func (d *decoder) elements(raw []byte, each func(value []byte) error) error {
	dec := d.dec
	if t, err := dec.ReadToken(); err != nil || t.Kind() != '[' {
		return errors.Join(ErrNotArray, err)
	}
	for dec.PeekKind() != ']' {
		from := dec.InputOffset()
		if err := dec.SkipValue(); err != nil {
			return err
		}
		if err := each(bytes.TrimLeft(raw[from:dec.InputOffset()], ", \t\r\n")); err != nil {
			return err
		}
	}
	return d.end()
}

// end reads the end of the object or array, and returns an error if more data follow.
func (d *decoder) end() error {
	dec := d.dec
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

// Text returns the value of a JSON string. ok is false for another kind of value. A lone surrogate
// becomes U+FFFD.
func Text(raw []byte) (s string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	out, _ := jsontext.AppendUnquote(nil, raw)
	return string(out), true
}

// AppendString appends s as a JSON string; invalid UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	if out, err := jsontext.AppendQuote(dst, s); err == nil {
		return out
	}
	out, _ := jsontext.AppendQuote(dst, string([]rune(s)))
	return out
}

// AppendMember appends a member to an object that is not closed yet.
func AppendMember(dst []byte, name string, value []byte) []byte {
	if len(dst) > 0 && dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	return append(append(AppendString(dst, name), ':'), value...)
}
