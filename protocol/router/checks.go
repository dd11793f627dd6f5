package router

import (
	"errors"
	"strconv"
	"strings"
)

var (
	errBlank     = errors.New("must not be blank")
	errOneLine   = errors.New("must not be blank and must not hold CR, LF or NUL")
	errStatus    = errors.New("must be an integer from 100 to 599")
	errBase64    = errors.New("must be padded base64 of the standard alphabet without blanks")
	errMethod    = errors.New("must be an identifier of letters, digits, '_' and '$'")
	errReserved  = errors.New("is a name that every object has already")
	errDigest    = errors.New("must be 64 hexadecimal digits")
	errBundleURL = errors.New("must be a local path or an absolute http or https URL without credentials")
)

func notBlank(s string) error {
	if blank(s) {
		return errBlank
	}
	return nil
}

func oneLine(s string) error {
	if blank(s) || !singleLine(s) {
		return errOneLine
	}
	return nil
}

// endpointKey checks an endpointId.
func endpointKey(s string) error { return oneLine(s) }

func httpStatus(s string) error {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || n != float64(int(n)) || n < 100 || n > 599 {
		return errStatus
	}
	return nil
}

// standardBase64 checks base64 like the original's expression: non-canonical trailing bits are
// accepted; line breaks and the URL alphabet are not.
func standardBase64(s string) error {
	if len(s)%4 != 0 {
		return errBase64
	}
	body := strings.TrimSuffix(s, "=")
	if len(body) < len(s) {
		body = strings.TrimSuffix(body, "=")
	}
	for i := range len(body) {
		c := body[i]
		if !isDigit(c) && !('a' <= c && c <= 'z') && !('A' <= c && c <= 'Z') && c != '+' && c != '/' {
			return errBase64
		}
	}
	return nil
}

// serviceMethod checks a method name: an identifier that is not a member of every
// JavaScript object or of the router's proxy.
func serviceMethod(s string) error {
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c == '$' || i > 0 && isDigit(c) {
			continue
		}
		return errMethod
	}
	switch s {
	case "":
		return errMethod
	case "callRemote", "constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable",
		"toLocaleString", "toString", "valueOf", "__defineGetter__", "__defineSetter__",
		"__lookupGetter__", "__lookupSetter__", "__proto__":
		return errReserved
	}
	return nil
}

func sha256Hex(s string) error {
	if len(s) != 64 {
		return errDigest
	}
	for i := range len(s) {
		if !isHex(s[i]) {
			return errDigest
		}
	}
	return nil
}

// bundleURL checks a local path if s starts with '/', else a browser URL.
func bundleURL(s string) error {
	if strings.HasPrefix(s, "/") {
		return CheckLocalPath(s)
	}
	if CheckBrowserURL(s) != nil {
		return errBundleURL
	}
	return nil
}
