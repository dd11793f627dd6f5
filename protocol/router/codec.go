package router

import (
	"encoding/json"
	"strconv"

	"github.com/junctor-run/junctor/capability"
)

// DecodeParams checks the parameters of a call and returns them without unknown members. If
// it finds none to remove, it returns raw itself, so the result may alias raw. Missing parameters,
// and a value that is not an object, become {}. The old name root of git's cwd is renamed.
// The client uses it before sending and the endpoint after receiving.
//
// Errors are *Error: UNAVAILABLE for an unknown method, else DECODE_FAILED.
func DecodeParams(method string, raw json.RawMessage) (json.RawMessage, error) {
	m, ok := Lookup(method)
	if !ok {
		return nil, unknownMethod(method)
	}
	first := firstByte(raw)
	if first == 0 {
		raw = json.RawMessage("{}")
	} else if first != '{' {
		// It must be valid JSON; malformed text is not an empty object.
		sc := newScanner(raw, maxNesting)
		if _, err := sc.value(); err != nil || sc.end() != nil {
			return nil, (&decoder{}).refuse(method, "the parameters are not JSON")
		}
		raw = json.RawMessage("{}")
	}
	d := decoder{}
	out, err := d.root(m.params, raw, method)
	if err != nil {
		e := asWire(err, method)
		e.Details = detailsOf(capability.CodeInvalidInput, "")
		return nil, e
	}
	if out == nil {
		return raw, nil
	}
	return out, nil
}

func (d *decoder) refuse(at, msg string) error {
	e := asWire(d.fail(at, "%s", msg), at)
	e.Details = detailsOf(capability.CodeInvalidInput, "")
	return e
}

// DecodeResult checks the result of a call and returns it without unknown members. If there are
// none, it returns raw itself, so the result may alias raw. nil means a missing result. For
// model.status it adds the member raw with the whole object. A manifest must respect
// [DefaultLimits].
//
// Errors are *Error whose details have code failed and reason decode_failed, because the
// result is invalid and not the call.
func DecodeResult(method string, raw json.RawMessage) (json.RawMessage, error) {
	return decodeResult(method, raw, decoder{})
}

// VerifyResult checks a result like DecodeResult, without rewriting it. The side that produced
// the result uses it, so that a faulty handler is reported there.
func VerifyResult(method string, raw json.RawMessage) error {
	_, err := decodeResult(method, raw, decoder{asIs: true})
	return err
}

// decodeResult implements DecodeResult and VerifyResult with the given decoder.
func decodeResult(method string, raw json.RawMessage, d decoder) (json.RawMessage, error) {
	m, ok := Lookup(method)
	if !ok {
		return nil, unknownMethod(method)
	}
	if method == methodModulesList {
		d.limits = d.limits.orDefault()
		if n := d.limits.ManifestBytes; n > 0 && len(raw) > n {
			return nil, asAnswer(d.fail(method, "the manifest has %d bytes, the limit is %d", len(raw), n), method)
		}
	}
	if firstByte(raw) == 0 {
		return nil, asAnswer(d.fail(method, "the result is missing"), method)
	}
	out, err := d.root(m.result, raw, method)
	if err != nil {
		return nil, asAnswer(err, method)
	}
	if out == nil {
		return raw, nil
	}
	return out, nil
}

const methodModulesList = "plugin.modules.list"

func asAnswer(err error, method string) error {
	e := asWire(err, method)
	e.Details = detailsOf(capability.CodeFailed, reasonDecode)
	return e
}

func unknownMethod(method string) *Error {
	return &Error{
		Code: CodeUnavailable, Method: method, Message: "the protocol has no method " + strconv.Quote(method),
		Details: detailsOf(capability.CodeUnknownCapability, ""),
	}
}

func firstByte(raw []byte) byte {
	sc := scanner{data: raw}
	return sc.peek()
}

// paramText returns a top-level string member of a valid object, or "".
func paramText(raw []byte, name string) string {
	v := paramRaw(raw, name)
	if len(v) == 0 || v[0] != '"' {
		return ""
	}
	return unquote(v)
}

// paramRaw returns the value of a top-level member of an object, or nil.
func paramRaw(raw []byte, name string) []byte {
	if firstByte(raw) != '{' {
		return nil
	}
	var found []byte
	sc := newScanner(raw, maxNesting)
	sc.space()
	if err := sc.object(func(n []byte, escaped bool, v []byte) error {
		if string(unescapeIf(n, escaped)) == name {
			found = v
		}
		return nil
	}); err != nil {
		return nil
	}
	return found
}
