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

// CheckHeader reports whether name and value may stand in a route call: the
// name is an HTTP token, the value has no CR, LF or NUL.
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

// Forwardable reports whether a header may cross between the agent's own HTTP
// traffic and a remote module, in either direction: credentials never do, and
// neither do hop-by-hop and framing headers, which describe one connection
// only. Names in extra, compared without case, are withheld as well.
func Forwardable(name string, extra ...string) bool {
	switch strings.ToLower(name) {
	case "authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key",
		"x-auth-token", "x-eliza-agent-token", "x-server-token":
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

// FilterHeaders returns the forwardable, well-formed members of h; h is not
// changed.
func FilterHeaders(h map[string]string, extra ...string) map[string]string {
	out := make(map[string]string, len(h))
	for name, value := range h {
		if Forwardable(name, extra...) && CheckHeader(name, value) == nil {
			out[name] = value
		}
	}
	return out
}

// RequestHeaders turns the headers of an incoming request into the form of a
// route call: lower-case names, several values joined with ", ", filtered.
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
