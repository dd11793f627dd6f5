package server

import (
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// strict decodes a body; none is {}.
func strict(body []byte, v any) error {
	if len(body) == 0 {
		body = []byte("{}")
	}
	if err := jsonx.UnmarshalStrict(body, v); err != nil {
		return httpapi.BadJSON(err)
	}
	return nil
}
