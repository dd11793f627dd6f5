package router

import (
	"errors"
	"net/http"
	"strings"
)

var (
	errHeaderName  = errors.New("holds a header name that is not an HTTP token")
	errHeaderValue = errors.New("holds a header value with CR, LF or NUL")
)

// CheckHeader returns an error unless name and value may be part of a route call: the name must be
// an HTTP token, and the value must not contain CR, LF or NUL.
func CheckHeader(name, value string) error {
	if name == "" {
		return errHeaderName
	}
	for i := range len(name) {
		if c := name[i]; !isTokenByte(c) {
			return errHeaderName
		}
	}
	if !singleLine(value) {
		return errHeaderValue
	}
	return nil
}

func isTokenByte(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func singleLine(s string) bool { return !strings.ContainsAny(s, "\r\n\x00") }

// Forwardable reports whether a header may be passed between the agent's own HTTP traffic and a
// remote module, in either direction. Credentials, hop-by-hop and framing headers, and the names
// in extra are not. Names are compared without case.
func Forwardable(name string, extra ...string) bool {
	switch strings.ToLower(name) {
	case "authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key",
		"x-auth-token", "x-eliza-agent-token", "x-server-token", "junctor-console", "junctor-verification":
		return false
	case "connection", "transfer-encoding", "content-length", "host", "upgrade", "te", "trailer",
		"keep-alive", "proxy-authenticate", "proxy-connection", "content-encoding":
		return false
	}
	for _, x := range extra {
		if strings.EqualFold(name, x) {
			return false
		}
	}
	return true
}

// FilterHeaders returns the forwardable, well-formed members of h. h is unchanged.
func FilterHeaders(h map[string]string, extra ...string) map[string]string {
	out := make(map[string]string, len(h))
	for name, value := range h {
		if Forwardable(name, extra...) && CheckHeader(name, value) == nil {
			out[name] = value
		}
	}
	return out
}

// RequestHeaders returns the forwardable headers of a request in the form of a route call: with
// lower-case names and several values joined with ", ".
func RequestHeaders(h http.Header, extra ...string) map[string]string {
	// A Connection header may name further headers as hop-by-hop.
	for _, v := range h.Values("Connection") {
		for name := range strings.SplitSeq(v, ",") {
			extra = append(extra[:len(extra):len(extra)], strings.TrimSpace(name))
		}
	}
	out := make(map[string]string, len(h))
	for name, values := range h {
		value := strings.Join(values, ", ")
		if Forwardable(name, extra...) && CheckHeader(name, value) == nil {
			out[strings.ToLower(name)] = value
		}
	}
	return out
}
