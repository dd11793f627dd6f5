package mcpwire_test

import (
	"encoding/json"
	"testing"

	"github.com/junctor-run/junctor/protocol/mcpwire"
)

func TestAppOfReadsWhatAToolDeclares(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, definition string
		want             mcpwire.App
	}{
		{"no page", `{"name":"x"}`, mcpwire.App{Model: true, Page: true}},
		{"a page", `{"name":"x","_meta":{"ui":{"resourceUri":"ui://a/b.html"}}}`, mcpwire.App{Resource: "ui://a/b.html", Model: true, Page: true}},
		{"the older form", `{"_meta":{"ui/resourceUri":"ui://a"}}`, mcpwire.App{Resource: "ui://a", Model: true, Page: true}},
		{"for pages only", `{"_meta":{"ui":{"visibility":["app"]}}}`, mcpwire.App{Page: true}},
		{"for models only", `{"_meta":{"ui":{"resourceUri":"ui://a","visibility":["model"]}}}`, mcpwire.App{Resource: "ui://a", Model: true}},
		{"for neither", `{"_meta":{"ui":{"visibility":[]}}}`, mcpwire.App{}},
		{"another scheme", `{"_meta":{"ui":{"resourceUri":"https://a.example/"}}}`, mcpwire.App{Model: true, Page: true}},
		{"other types", `{"_meta":{"ui":{"resourceUri":7,"visibility":"app"}}}`, mcpwire.App{Model: true, Page: true}},
		{"not an object", `{"_meta":{"ui":[1]}}`, mcpwire.App{Model: true, Page: true}},
	} {
		if got := mcpwire.AppOf(json.RawMessage(tt.definition)); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
