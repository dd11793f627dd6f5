package openapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/upstreams/openapi"
)

// Parts of the answer to introspection.
const (
	graphString = `{"kind":"SCALAR","name":"String"}`
	graphID     = `{"kind":"NON_NULL","ofType":{"kind":"SCALAR","name":"ID"}}`
	graphOrder  = `{"kind":"OBJECT","name":"Order"}`
)

func graphSchema(types ...string) string {
	return `{"data":{"__schema":{"queryType":{"name":"Query"},"mutationType":{"name":"Mutation"},"types":[` + strings.Join(types, ",") + `]}}}`
}

func graphShop() string {
	return graphSchema(
		`{"kind":"OBJECT","name":"Query","fields":[
			{"name":"order","description":"One order.","args":[{"name":"id","type":`+graphID+`}],"type":`+graphOrder+`},
			{"name":"find","args":[{"name":"filter","type":{"kind":"INPUT_OBJECT","name":"Filter"}},
				{"name":"tags","description":"All of them.","type":{"kind":"LIST","ofType":{"kind":"NON_NULL","ofType":`+graphString+`}}}],
				"type":{"kind":"LIST","ofType":{"kind":"UNION","name":"Found"}}},
			{"name":"now","args":[],"type":`+graphString+`},
			{"name":"bad name }","args":[],"type":`+graphString+`},
			{"name":"evil","args":[{"name":"a","type":{"kind":"SCALAR","name":"Int) { x } query b("}}],"type":`+graphString+`}]}`,
		`{"kind":"OBJECT","name":"Mutation","fields":[
			{"name":"order","args":[{"name":"count","defaultValue":"1","type":{"kind":"NON_NULL","ofType":{"kind":"SCALAR","name":"Int"}}}],"type":`+graphOrder+`}]}`,
		`{"kind":"OBJECT","name":"Order","fields":[
			{"name":"customer","args":[],"type":{"kind":"OBJECT","name":"Customer"}},
			{"name":"id","args":[],"type":`+graphID+`},
			{"name":"status","args":[],"type":{"kind":"ENUM","name":"Status"}},
			{"name":"price","args":[{"name":"currency","type":{"kind":"NON_NULL","ofType":`+graphString+`}}],"type":`+graphString+`}]}`,
		`{"kind":"OBJECT","name":"Customer","fields":[
			{"name":"orders","args":[],"type":{"kind":"LIST","ofType":`+graphOrder+`}},
			{"name":"name","args":[],"type":`+graphString+`}]}`,
		`{"kind":"ENUM","name":"Status","enumValues":[{"name":"OPEN"},{"name":"PAID"}]}`,
		`{"kind":"UNION","name":"Found"}`,
		`{"kind":"INPUT_OBJECT","name":"Filter","inputFields":[
			{"name":"status","type":{"kind":"NON_NULL","ofType":{"kind":"ENUM","name":"Status"}}},
			{"name":"or","type":{"kind":"LIST","ofType":{"kind":"INPUT_OBJECT","name":"Filter"}}}]}`,
	)
}

func openGraph(t testing.TB, s *shop) *openapi.API {
	t.Helper()
	a, err := openapi.New(openapi.Config{
		GraphQL: true, Base: s.URL + "/graphql", Local: true, HTTP: http.DefaultClient, Secret: func() (string, error) { return secretValue, nil },
	})
	if err != nil {
		t.Fatalf("New: got %v, want no error", err)
	}
	return a
}

func answers(s *shop, text string) {
	s.answer = func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	}
}

func TestFieldsOfAGraphQLSchemaAreTools(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	answers(s, graphShop())
	all := definitions(t, openGraph(t, s))
	if got := s.header.Get("Authorization"); got != "Bearer "+secretValue || s.method != http.MethodPost || s.uri != "/graphql" {
		t.Errorf("introspection: got %s %s with %q, want POST /graphql with the secret", s.method, s.uri, got)
	}
	type tool struct {
		InputSchema any             `json:"inputSchema"`
		Annotations map[string]bool `json:"annotations"`
		Meta        struct {
			HTTP struct{ GraphQL string } `json:"junctor.run/http"`
		} `json:"_meta"`
	}
	got, names := make(map[string]tool), []string{}
	for name, d := range all {
		var one tool
		if err := json.Unmarshal(d, &one); err != nil {
			t.Fatalf("%s: %v, want a tool", d, err)
		}
		if strings.HasPrefix(name, "order_") {
			name = "order_"
		}
		got[name], names = one, append(names, name)
	}
	want := map[string]string{
		"order":  "query($id: ID!) { order(id: $id) { __typename id status customer { __typename name } } }",
		"find":   "query($filter: Filter, $tags: [String!]) { find(filter: $filter, tags: $tags) { __typename } }",
		"now":    "query { now }",
		"order_": "mutation($count: Int) { order(count: $count) { __typename id status customer { __typename name } } }",
	}
	if len(names) != len(want) {
		t.Errorf("tools: got %q, want %d, without the fields whose names are not names", names, len(want))
	}
	for name, text := range want {
		if diff := cmp.Diff(text, got[name].Meta.HTTP.GraphQL); diff != "" {
			t.Errorf("the document of %s: %s", name, diff)
		}
		if read := got[name].Annotations["readOnlyHint"]; read != strings.HasPrefix(text, "query") {
			t.Errorf("%s is read-only: got %v, want it for queries only", name, read)
		}
	}
	schema, _ := json.Marshal(got["find"].InputSchema)
	const wanted = `{"$defs":{"Filter":{"additionalProperties":false,"properties":{"or":{"items":{"$ref":"#/$defs/Filter"},"type":"array"},` +
		`"status":{"enum":["OPEN","PAID"],"type":"string"}},"required":["status"],"type":"object"}},"additionalProperties":false,` +
		`"properties":{"filter":{"$ref":"#/$defs/Filter"},"tags":{"description":"All of them.","items":{"type":"string"},"type":"array"}},"type":"object"}`
	if diff := cmp.Diff(wanted, string(schema)); diff != "" {
		t.Errorf("the schema of find: %s", diff)
	}
	if order, _ := json.Marshal(got["order_"].InputSchema); strings.Contains(string(order), "required") {
		t.Errorf("an argument with a default: got %s, want it optional", order)
	}
}

func TestAGraphQLCallSendsItsVariables(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	answers(s, graphShop())
	a := openGraph(t, s)
	order := definitions(t, a)["order"]
	call := func(answer string) string {
		t.Helper()
		answers(s, answer)
		out, err := a.Call(t.Context(), order, json.RawMessage(`{"id":9007199254740993}`))
		if err != nil {
			t.Fatalf("Call: got %v, want no error", err)
		}
		return string(out)
	}
	out := call(`{"data":{"order":{"id":"1","note":"` + secretValue + `"}}}`)
	if strings.Contains(out, `"isError":true`) || !strings.Contains(out, `"structuredContent"`) || strings.Contains(out, secretValue) {
		t.Errorf("an answer: got %s, want its data without the secret", out)
	}
	const want = `{"query":"query($id: ID!) { order(id: $id) { __typename id status customer { __typename name } } }","variables":{"id":9007199254740993}}`
	if diff := cmp.Diff(want, s.body); diff != "" {
		t.Errorf("the request: %s", diff)
	}
	for _, answer := range []string{`{"errors":[{"message":"no such order"}],"data":null}`, `not JSON`} {
		if out := call(answer); !strings.Contains(out, `"isError":true`) {
			t.Errorf("the answer %s: got %s, want an error of the tool", answer, out)
		}
	}
	elsewhere := json.RawMessage(strings.Replace(string(order), s.URL, "https://evil.example", 1))
	if _, err := a.Call(t.Context(), elsewhere, nil); capability.CodeOf(err) != capability.CodeUnavailable {
		t.Errorf("a definition for another host: got %v, want unavailable", err)
	}
}

func TestGraphQLSchemasThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var many []string
	for i := range 5001 {
		many = append(many, fmt.Sprintf(`{"name":"f%d","args":[],"type":%s}`, i, graphString))
	}
	for name, answer := range map[string]string{
		"introspection that is off": `{"errors":[{"message":"introspection is disabled"}]}`,
		"not JSON":                  `<html>`,
		"no field":                  graphSchema(`{"kind":"OBJECT","name":"Query","fields":[]}`),
		"a field without a type":    graphSchema(`{"kind":"OBJECT","name":"Query","fields":[{"name":"a"}]}`),
		"too many fields":           graphSchema(`{"kind":"OBJECT","name":"Query","fields":[` + strings.Join(many, ",") + `]}`),
		"too large":                 `{"data":"` + strings.Repeat("a", 17<<20) + `"}`,
	} {
		answers(s, answer)
		_, err := openGraph(t, s).Load(t.Context())
		if e := capability.AsError(err); e == nil || e.Reason != openapi.ReasonDocument {
			t.Errorf("%s: got %v, want the reason %s", name, err, openapi.ReasonDocument)
		}
	}
	s.answer = func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }
	if _, err := openGraph(t, s).Load(t.Context()); capability.CodeOf(err) != capability.CodeUnavailable {
		t.Errorf("a refused credential: got %v, want unavailable", err)
	}
}
