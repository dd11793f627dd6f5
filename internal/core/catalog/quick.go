package catalog

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// quick accepts inputs that obviously fit. Most schemas of tools are objects of a few
// strings and numbers, and most inputs fit them, whereas the validator builds a tree of the
// input and fractions of its numbers to determine that. quick never rejects: any
// unsupported part of the schema or the input goes to the validator, whose error the caller
// receives.
type quick struct {
	kind       string // a type of JSON Schema; "" for any value except objects and arrays
	properties map[string]*quick
	needed     uint64 // bit i: the property with number i is required
	number     int    // of a property, from 1; 0 if it is not required
	closed     bool   // additionalProperties: false
	items      *quick
	enum       []string
	atLeast    int64 // of a number, or of the number of characters or items
	atMost     int64
}

// errUnlike stops the iteration over an array at an element that quick cannot accept.
var errUnlike = errors.New("does not plainly fit")

// deepest is the maximum depth of nested schemas.
const deepest = 8

// exact bounds the integers that every JSON parser reads exactly.
const exact = 1 << 53

// newQuick compiles a decoded schema. It returns nil for a schema with unsupported parts.
func newQuick(schema any, depth int) *quick {
	object, ok := schema.(map[string]any)
	if !ok || depth > deepest {
		return nil
	}
	q := &quick{atLeast: math.MinInt64, atMost: math.MaxInt64}
	kind, named := object["type"].(string)
	q.kind = kind
	for key, value := range object {
		fits := true
		switch key {
		case "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment":
		case "$schema":
			fits = value == "https://json-schema.org/draft/2020-12/schema"
		case "type":
			fits = named && slices.Contains([]string{"object", "array", "string", "integer", "number", "boolean", "null"}, kind)
		case "properties", "required":
			fits = kind == "object" // read below, together
		case "additionalProperties":
			allowed, isBool := value.(bool)
			q.closed, fits = !allowed, isBool && kind == "object"
		case "items":
			q.items = newQuick(value, depth+1)
			fits = q.items != nil && kind == "array"
		case "enum":
			q.enum, fits = texts(value)
			fits = fits && kind == "string"
		case "minimum":
			q.atLeast, fits = bound(value)
			fits = fits && (kind == "integer" || kind == "number")
		case "maximum":
			q.atMost, fits = bound(value)
			fits = fits && (kind == "integer" || kind == "number")
		case "minLength":
			q.atLeast, fits = bound(value)
			fits = fits && kind == "string"
		case "maxLength":
			q.atMost, fits = bound(value)
			fits = fits && kind == "string"
		case "minItems":
			q.atLeast, fits = bound(value)
			fits = fits && kind == "array"
		case "maxItems":
			q.atMost, fits = bound(value)
			fits = fits && kind == "array"
		default:
			fits = false
		}
		if !fits {
			return nil
		}
	}
	if !q.readProperties(object, depth) {
		return nil
	}
	return q
}

// readProperties compiles the properties and the required list of an object schema. It
// returns false if a part is unsupported.
func (q *quick) readProperties(object map[string]any, depth int) bool {
	properties, _ := object["properties"].(map[string]any)
	q.properties = make(map[string]*quick, len(properties))
	for name, schema := range properties {
		p := newQuick(schema, depth+1)
		if p == nil {
			return false
		}
		q.properties[name] = p
	}
	if object["required"] == nil {
		return true
	}
	names, ok := texts(object["required"])
	if !ok || len(names) > 63 {
		return false
	}
	for i, name := range names {
		p := q.properties[name]
		if p == nil || p.number != 0 {
			return false
		}
		p.number = i + 1
		q.needed |= 1 << p.number
	}
	return true
}

// texts returns the elements of a decoded list. ok is false unless all are strings.
func texts(list any) (out []string, ok bool) {
	values, ok := list.([]any)
	for _, v := range values {
		s, isText := v.(string)
		if !isText || strings.ContainsRune(s, utf8.RuneError) {
			return nil, false
		}
		out = append(out, s)
	}
	return out, ok
}

// bound returns an integer of a decoded schema. ok is false for any other value.
func bound(value any) (int64, bool) {
	n, ok := value.(json.Number)
	if !ok {
		return 0, false
	}
	i, err := strconv.ParseInt(string(n), 10, 64)
	return i, err == nil && -exact < i && i < exact
}

// accepts reports whether the value certainly matches the schema. It returns false for
// malformed JSON.
func (q *quick) accepts(raw []byte) bool {
	if len(raw) == 0 {
		return false
	}
	switch q.kind {
	case "object":
		return q.acceptsObject(raw)
	case "array":
		return q.acceptsArray(raw)
	case "string":
		return q.acceptsText(raw)
	case "boolean":
		return string(raw) == "true" || string(raw) == "false"
	case "null":
		return string(raw) == "null"
	case "integer", "number":
		n, whole := integer(raw)
		return whole && q.atLeast <= n && n <= q.atMost
	}
	return plain(raw)
}

func (q *quick) acceptsObject(raw []byte) bool {
	fits, seen := true, uint64(0)
	err := jsonx.Members(raw, func(name string, value []byte) {
		p := q.properties[name]
		switch {
		case !fits:
		case p != nil:
			seen |= 1 << p.number
			fits = p.accepts(value)
		default:
			fits = !q.closed && plain(value)
		}
	})
	return err == nil && fits && seen&q.needed == q.needed
}

func (q *quick) acceptsArray(raw []byte) bool {
	n := int64(0)
	err := jsonx.Elements(raw, func(value []byte) error {
		if n++; q.items != nil && q.items.accepts(value) || q.items == nil && plain(value) {
			return nil
		}
		return errUnlike
	})
	return err == nil && q.atLeast <= n && n <= q.atMost
}

func (q *quick) acceptsText(raw []byte) bool {
	text, ok := jsonx.Text(raw)
	if !ok {
		return false
	}
	if q.enum != nil && !slices.Contains(q.enum, text) {
		return false
	}
	if q.atLeast <= 0 && q.atMost == math.MaxInt64 {
		return true
	}
	n := int64(utf8.RuneCountInString(text))
	return q.atLeast <= n && n <= q.atMost
}

// plain reports whether a value of any type needs no further check: it is neither an object
// nor an array, nor a number that may be too long.
func plain(raw []byte) bool {
	switch raw[0] {
	case '"', 't', 'f', 'n':
		return true
	}
	_, whole := integer(raw)
	return whole
}

// integer parses a number without fraction and exponent, within ±2^53.
func integer(raw []byte) (int64, bool) {
	if len(raw) == 0 || len(raw) > 17 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil && -exact < n && n < exact
}
