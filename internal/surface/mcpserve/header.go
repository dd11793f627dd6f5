package mcpserve

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// headerParam is an argument that a modern client repeats in a header, because the
// tool's schema marks it with x-mcp-header.
type headerParam struct {
	header string // the whole name: Mcp-Param-…
	path   []string
}

const (
	paramHeader  = "Mcp-Param-"
	maxParams    = 64
	maxParamPath = 16
)

// headerParams reads the marks of a definition's input schema.
func headerParams(definition json.RawMessage) (out []headerParam) {
	if len(definition) == 0 || !strings.Contains(string(definition), "x-mcp-header") {
		return nil
	}
	_ = members(definition, func(name string, value []byte) {
		if name == "inputSchema" {
			out = appendMarked(out, value, nil)
		}
	})
	return out
}

func appendMarked(out []headerParam, schema []byte, path []string) []headerParam {
	if len(schema) == 0 || schema[0] != '{' || len(path) > maxParamPath {
		return out
	}
	_ = members(schema, func(name string, value []byte) {
		switch {
		case name == "x-mcp-header" && len(path) > 0 && len(out) < maxParams:
			if header, ok := textOf(value); ok && header != "" {
				out = append(out, headerParam{paramHeader + header, slices.Clone(path)})
			}
		case name == "properties" && value[0] == '{':
			_ = members(value, func(property string, schema []byte) {
				out = appendMarked(out, schema, append(slices.Clone(path), property))
			})
		}
	})
	return out
}

// checkParams compares the marked arguments of a call with their headers.
func checkParams(h http.Header, marked []headerParam, arguments json.RawMessage) *fault {
	for _, p := range marked {
		value := at(arguments, p.path)
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

// at is the value under the path in an object, nil when there is none.
func at(object json.RawMessage, path []string) json.RawMessage {
	for _, part := range path {
		if len(object) == 0 || object[0] != '{' {
			return nil
		}
		var next json.RawMessage
		_ = members(object, func(name string, value []byte) {
			if name == part {
				next = value
			}
		})
		object = next
	}
	return object
}

// sameValue compares a header's text with a string, a boolean or an integer.
func sameValue(text string, value json.RawMessage) bool {
	if s, ok := textOf(value); ok {
		return s == text
	}
	if text == string(value) {
		return true
	}
	if text == "true" || text == "false" {
		return false
	}
	// As numbers: 1e2 and 100 are the same. Beyond 2^53 only equal digits are.
	const exact = 1 << 53
	a, errA := strconv.ParseFloat(text, 64)
	b, errB := strconv.ParseFloat(string(value), 64)
	return errA == nil && errB == nil && a == b && a < exact && a > -exact
}
