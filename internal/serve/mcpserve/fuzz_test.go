package mcpserve

import (
	"encoding/json"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/junctor-run/junctor/protocol/mcpwire"
)

func valid(data []byte) bool {
	return jsontext.Value(data).IsValid(jsontext.AllowInvalidUTF8(true))
}

// FuzzDeclared holds that what strangers declare is read without harm.
func FuzzDeclared(f *testing.F) {
	f.Add([]byte(`{"elicitation":{"form":{}},"sampling":{},"execution":{"taskSupport":"required"}}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if !valid(doc) {
			return // it was judged before it got here
		}
		_ = mcpwire.TaskOnly(doc)
		_ = readAbilities(json.RawMessage(doc))
		_ = declaresTasks(doc)
	})
}
