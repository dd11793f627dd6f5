package routerserve

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

func TestALargeProviderHasSeveralModules(t *testing.T) {
	t.Parallel()
	for actions, want := range map[int]string{
		1: "junctor.mcp.x 1", 1000: "junctor.mcp.x 1000", 1001: "junctor.mcp.x 1000, junctor.mcp.x-part2 1",
	} {
		m := ownModule{ID: "junctor.mcp.x", Name: "junctor.mcp.x", Actions: make([]ownAction, actions)}
		var got []string
		for _, part := range m.divided() {
			got = append(got, fmt.Sprint(part.ID, " ", len(part.Actions)))
			if part.Name != part.ID {
				t.Errorf("%d actions: got the name %s of %s, want the id", actions, part.Name, part.ID)
			}
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%d actions: got %v, want %s", actions, got, want)
		}
	}
}

func TestWhatOfAMessageBecomesArguments(t *testing.T) {
	t.Parallel()
	const search = `{"properties":{"q":{"type":"string","description":"What"},"limit":{"type":"integer"},"any":true},"required":["q"]}`
	const twice = `{"properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a","b"]}`
	for _, tc := range []struct{ what, schema, params, want string }{
		{"parameters before all else", search, `{"content":{"text":"{\"q\":\"t\"}","q":"c"},"options":{"parameters":{"q":"p"}}}`, `{"q":"p"}`},
		{"null parameters", search, `{"content":{"q":"c"},"options":{"parameters":null}}`, `{"q":"c"}`},
		{"an object as the text", search, `{"content":{"text":"{\"q\":\"t\"}","q":"c"}}`, `{"q":"t"}`},
		{"members with names of parameters alone", search, `{"content":{"q":"c","source":"chat","text":"x"}}`, `{"q":"c"}`},
		{"the text as what is missing", search, `{"content":{"text":"lamp","limit":2}}`, `{"limit":2,"q":"lamp"}`},
		{"a list as the text", search, `{"content":{"text":"[1]"}}`, `{"q":"[1]"}`},
		{"two are missing", twice, `{"content":{"text":"lamp"}}`, `{}`},
		{"what is missing is no text", `{"properties":{"n":{"type":"integer"}},"required":["n"]}`, `{"content":{"text":"7"}}`, `{}`},
		{"required and not described", `{"required":["n"]}`, `{"content":{"text":"7"}}`, `{}`},
		{"a blank text", search, `{"content":{"text":" "}}`, `{}`},
		{"no content", search, `{}`, `{}`},
		{"null content", search, `{"content":null}`, `{}`},
		{"a schema without properties", `{}`, `{"content":{"text":"lamp","q":"c"}}`, `{}`},
	} {
		var shape inputShape
		p, err := parseParams(json.RawMessage(tc.params))
		if err != nil || jsonx.Unmarshal([]byte(tc.schema), &shape) != nil {
			t.Fatalf("%s: the case cannot be read: got %v, want no error", tc.what, err)
		}
		if got, err := shape.arguments(p); err != nil || string(got) != tc.want {
			t.Errorf("%s: got %s, %v; want %s", tc.what, got, err, tc.want)
		}
	}
}

func TestParametersAreTheFormOfElizaOS(t *testing.T) {
	t.Parallel()
	var shape inputShape
	const schema = `{"properties":{"b":true,"z":{"type":"string","description":"Last"},"a":{"description":7}},"required":["z"]}`
	if err := jsonx.Unmarshal([]byte(schema), &shape); err != nil {
		t.Fatalf("the schema: got %v, want no error", err)
	}
	got, err := jsonx.Marshal(shape.parameters())
	const want = `[{"name":"z","description":"Last","required":true,"schema":{"type":"string","description":"Last"}},` +
		`{"name":"a","description":"a","required":false,"schema":{"description":7}},{"name":"b","description":"b","required":false,"schema":{}}]`
	if err != nil || string(got) != want {
		t.Errorf("the parameters: got %s, %v; want %s", got, err, want)
	}
}
