package httpapi

import (
	"net/http"
	"strconv"

	"github.com/junctor-run/junctor/capability"
)

// Number returns a query parameter that must be a number from least to most, and otherwise if it is
// missing or empty. Error: invalid_input.
func Number[N int | int64 | uint64](r *http.Request, name string, otherwise, least, most N) (N, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < int64(least) || n > int64(most) {
		return 0, capability.Errorf(capability.CodeInvalidInput, "decode", "%s: %q is not a number from %d to %d", name, text,
			least, most).With("bad_query", "")
	}
	return N(n), nil
}

// Flag returns a boolean query parameter, and false if it is missing or empty. Error: invalid_input.
func Flag(r *http.Request, name string) (bool, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return false, nil
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		return false, capability.Errorf(capability.CodeInvalidInput, "decode", "%s: %q is neither true nor false", name,
			text).With("bad_query", "")
	}
	return on, nil
}
