package router

import (
	"encoding/json"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// answer holds the raw members of a response's outermost object.
type answer struct {
	ok, result, err json.RawMessage
}

// readEnvelope returns the result of an answer, or its error. The result aliases body;
// nil means an empty body.
func readEnvelope(status int, body []byte, path string) (json.RawMessage, error) {
	if status < 200 || status > 299 {
		return nil, refusal(status, body, path)
	}
	sc := newScanner(body, maxNesting)
	switch c := sc.peek(); c {
	case 0:
		return nil, nil
	case '{':
	default:
		if _, err := sc.value(); err != nil || sc.end() != nil {
			return nil, notJSON(path)
		}
		// Without envelope, the value is the result, which the codec checks.
		return body, nil
	}
	a, err := scanAnswer(&sc)
	switch {
	case err != nil:
		return nil, notJSON(path)
	case string(a.ok) == "false":
		if e := a.failure(body); e != nil {
			return nil, e
		}
		return nil, &Error{
			Code: CodeRequestFailed, Method: path, Message: "the endpoint reported a failure without a known code and message",
			Details: detailsOf(capability.CodeFailed, ""),
		}
	case a.result != nil:
		return a.result, nil
	}
	return body, nil
}

func scanAnswer(sc *scanner) (answer, error) {
	var a answer
	err := sc.object(func(name []byte, escaped bool, value []byte) error {
		switch string(unescapeIf(name, escaped)) {
		case "ok":
			return once(&a.ok, value, "ok")
		case "result":
			return once(&a.result, value, "result")
		case "error":
			return once(&a.err, value, "error")
		}
		return nil
	})
	if err == nil {
		err = sc.end()
	}
	return a, err
}

// failure returns the structured error of a response, or of the older form with its fields at the
// top level. It keeps the message of an unknown code and the code without a message, and returns
// nil if there is neither.
func (a answer) failure(body []byte) *Error {
	source := a.err
	if source == nil {
		source = body
	}
	var w struct {
		Code       string          `json:"code"`
		Message    *string         `json:"message"`
		Capability json.RawMessage `json:"capability"`
		Method     json.RawMessage `json:"method"`
		Details    json.RawMessage `json:"details"`
	}
	if jsonx.Unmarshal(source, &w) != nil || w.Code == "" && w.Message == nil {
		return nil
	}
	message := "the endpoint gives no message"
	if w.Message != nil {
		message = *w.Message
	}
	e := &Error{Code: w.Code, Message: atMost(message, maxMessage), Details: w.Details}
	switch w.Code {
	case CodeUnavailable, CodeDecodeFailed, CodeRequestFailed:
	default: // not a code of the protocol: the message is all that is known
		e.Code = CodeRequestFailed
		if w.Code != "" {
			e.Message = atMost(w.Code, maxName) + ": " + e.Message
		}
	}
	if len(e.Details) > maxDetails {
		e.Details = nil
	}
	// A malformed value must not hide the code.
	if len(w.Capability) > 0 && w.Capability[0] == '"' {
		e.Capability = atMost(unquote(w.Capability), maxName)
	}
	if len(w.Method) > 0 && w.Method[0] == '"' {
		e.Method = atMost(unquote(w.Method), maxName)
	}
	return e
}

// atMost returns at most limit bytes of s, cut between two runes.
func atMost(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

func notJSON(path string) *Error {
	return &Error{
		Code: CodeDecodeFailed, Method: path, Message: "the endpoint's answer is not JSON",
		Details: detailsOf(capability.CodeFailed, reasonDecode),
	}
}

// refusal returns the error for a response with a status outside 2xx: the error of its envelope
// with the status added, else REQUEST_FAILED.
func refusal(status int, body []byte, path string) *Error {
	sc := newScanner(body, maxNesting)
	if sc.peek() == '{' {
		if a, err := scanAnswer(&sc); err == nil && a.err != nil {
			if e := a.failure(body); e != nil {
				e.Status = status
				e.Details = withStatus(e.Details, status)
				return e
			}
		}
	}
	details := map[string]any{"status": status, "code": codeOfStatus(status)}
	switch {
	case len(body) <= maxErrorBody && jsonx.Valid(body):
		details["body"] = json.RawMessage(body)
	case len(body) > 0 && utf8.Valid(body):
		details["body"] = string(body[:min(len(body), maxErrorBody)])
	}
	raw, err := marshal(details)
	if err != nil { // the limit cut a rune
		raw = detailsOf(codeOfStatus(status), "")
	}
	return &Error{
		Code: CodeRequestFailed, Method: path, Status: status, Details: raw,
		Message: "the endpoint refused the request with status " + strconv.Itoa(status),
	}
}

// codeOfStatus returns the code for a status without envelope. 502 and 503 may come from a proxy
// after the work was started, so they do not mean unavailable.
func codeOfStatus(status int) capability.Code {
	switch status {
	case http.StatusUnauthorized:
		return capability.CodeUnauthenticated
	case http.StatusRequestEntityTooLarge:
		return capability.CodeTooLarge
	case http.StatusTooManyRequests:
		return capability.CodeOverloaded
	case http.StatusGatewayTimeout:
		return capability.CodeTimeout
	}
	return capability.CodeFailed
}

// withStatus adds the member status to details. Details that are not an object become its member
// details.
func withStatus(details json.RawMessage, status int) json.RawMessage {
	members := make(map[string]json.RawMessage)
	if len(details) > 0 && jsonx.Unmarshal(details, &members) != nil {
		members = map[string]json.RawMessage{"details": details}
	}
	members["status"] = json.RawMessage(strconv.Itoa(status))
	out, err := marshal(members)
	if err != nil {
		return details
	}
	return out
}
