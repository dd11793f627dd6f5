package mcpwire

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// HeaderParam is an argument that a modern client must repeat in a header, because the tool's schema
// marks it with x-mcp-header.
type HeaderParam struct {
	header string // the whole name: Mcp-Param-…
	path   []string
}

// HeaderParams returns the arguments that a definition's input schema marks.
func HeaderParams(definition json.RawMessage) (out []HeaderParam) {
	if len(definition) == 0 || !strings.Contains(string(definition), "x-mcp-header") {
		return nil
	}
	_ = jsonx.Members(definition, func(name string, value []byte) {
		if name == "inputSchema" {
			out = appendMarked(out, value, nil)
		}
	})
	return out
}

// appendMarked appends the marked properties of a schema, recursively within bounds.
func appendMarked(out []HeaderParam, schema []byte, path []string) []HeaderParam {
	if len(schema) == 0 || schema[0] != '{' || len(path) > maxParamPath {
		return out
	}
	_ = jsonx.Members(schema, func(name string, value []byte) {
		switch {
		case name == "x-mcp-header" && len(path) > 0 && len(out) < maxParams:
			if header, ok := jsonx.Text(value); ok && header != "" {
				out = append(out, HeaderParam{ParamPrefix + header, slices.Clone(path)})
			}
		case name == "properties" && value[0] == '{':
			_ = jsonx.Members(value, func(property string, schema []byte) {
				out = appendMarked(out, schema, append(slices.Clone(path), property))
			})
		}
	})
	return out
}

// CheckParams compares the marked arguments of a call with their headers.
func CheckParams(h http.Header, marked []HeaderParam, arguments json.RawMessage) *Fault {
	for _, p := range marked {
		value := At(arguments, p.path)
		got := h.Get(p.header)
		where := strings.Join(p.path, ".")
		if value == nil || string(value) == "null" {
			if got != "" {
				return mismatch("the header %s is there, and the argument %s is not", p.header, where)
			}
			continue
		}
		if got == "" {
			return mismatch("the header %s for the argument %s is missing", p.header, where)
		}
		text, ok := decodeHeader(got)
		if !ok || !sameValue(text, value) {
			return mismatch("the header %s says %q, which is not the argument %s", p.header, got, where)
		}
	}
	return nil
}

// At returns the value under the path in an object, or nil if it is absent.
func At(object json.RawMessage, path []string) json.RawMessage {
	for _, part := range path {
		if len(object) == 0 || object[0] != '{' {
			return nil
		}
		var next json.RawMessage
		_ = jsonx.Members(object, func(name string, value []byte) {
			if name == part {
				next = value
			}
		})
		object = next
	}
	return object
}

// TaskOnly reports whether a tool's definition requires that its calls run as tasks.
func TaskOnly(definition json.RawMessage) bool {
	if !bytes.Contains(definition, []byte(`"taskSupport"`)) {
		return false
	}
	support, _ := jsonx.Text(At(definition, []string{"execution", "taskSupport"}))
	return support == "required"
}

// sameValue reports whether a header's text equals a string, a boolean or a number.
func sameValue(text string, value json.RawMessage) bool {
	if s, ok := jsonx.Text(value); ok {
		return s == text
	}
	if text == string(value) {
		return true
	}
	if text == "true" || text == "false" {
		return false
	}
	// Compared as numbers, 1e2 equals 100. Beyond 2^53 only equal digits are equal.
	const exact = 1 << 53
	a, errA := strconv.ParseFloat(text, 64)
	b, errB := strconv.ParseFloat(string(value), 64)
	return errA == nil && errB == nil && a == b && a < exact && a > -exact
}
