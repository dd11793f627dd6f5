package openapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/upstreams/openapi"
)

const secretValue = "s3cret-value"

// shop is an API that records the last request.
type shop struct {
	*httptest.Server
	method, uri, body string
	header            http.Header
	answer            func(http.ResponseWriter)
}

func newShop(t testing.TB) *shop {
	s := &shop{answer: func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"ok":true}`)
	}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.method, s.uri, s.body, s.header = r.Method, r.RequestURI, string(body), r.Header.Clone()
		s.answer(w)
	}))
	t.Cleanup(s.Close)
	return s
}

// open returns the API that a document describes.
func open(t testing.TB, document, base string) *openapi.API {
	t.Helper()
	name := filepath.Join(t.TempDir(), "api.yaml")
	if err := os.WriteFile(name, []byte(document), 0o600); err != nil {
		t.Fatalf("write: got %v, want no error", err)
	}
	a, err := openapi.New(openapi.Config{
		Document: name, Base: base, Local: true, HTTP: http.DefaultClient, Fetch: http.DefaultClient,
		Secret: func() (string, error) { return secretValue, nil },
	})
	if err != nil {
		t.Fatalf("New: got %v, want no error", err)
	}
	return a
}

// definitions returns the tools of a document by name.
func definitions(t testing.TB, a *openapi.API) map[string]json.RawMessage {
	t.Helper()
	info, err := a.Load(t.Context())
	if err != nil {
		t.Fatalf("Load: got %v, want no error", err)
	}
	out := make(map[string]json.RawMessage)
	for _, d := range info.Definitions {
		var of struct{ Name string }
		if err := json.Unmarshal(d, &of); err != nil {
			t.Fatalf("definition: got %v, want JSON", err)
		}
		out[of.Name] = d
	}
	return out
}

// one returns a document of version with one operation at a path.
func one(version, path, method, operation string) string {
	return fmt.Sprintf(`openapi: %s
info: {title: Shop, version: "1"}
components:
  securitySchemes:
    header: {type: apiKey, in: header, name: X-Key}
    query: {type: apiKey, in: query, name: key}
    cookie: {type: apiKey, in: cookie, name: sid}
    basic: {type: http, scheme: basic}
    oauth: {type: oauth2, flows: {}}
  schemas:
    Item: {type: object, properties: {name: {type: string}, parent: {$ref: '#/components/schemas/Item'}}}
paths:
  %s:
    %s: {operationId: op, responses: {'200': {description: ok}}, %s}
`, version, path, method, operation)
}

func TestInputsBecomeRequests(t *testing.T) {
	t.Parallel()
	par := func(in, rest, schema string) string {
		return `parameters: [{name: v, in: ` + in + rest + `, schema: ` + schema + `}]`
	}
	const list, object = `{type: array, items: {type: string}}`, `{type: object}`
	type sent struct{ URI, Body, Type, Header string }
	for name, c := range map[string]struct {
		path, method, operation, input string
		want                           sent
	}{
		"path":                 {"/i/{v}", "get", par("path", ", required: true", "{type: string}"), `{"v":"a/b c"}`, sent{URI: "/v2/i/a%2Fb%20c"}},
		"path, not declared":   {"/i/{v}/x", "get", "summary: x", `{"v":"a"}`, sent{URI: "/v2/i/a/x"}},
		"large number":         {"/i/{v}", "get", par("path", "", "{type: integer}"), `{"v":12345678901234567890}`, sent{URI: "/v2/i/12345678901234567890"}},
		"label":                {"/i/{v}", "get", par("path", ", style: label", list), `{"v":["a","b"]}`, sent{URI: "/v2/i/.a,b"}},
		"matrix, exploded":     {"/i/{v}", "get", par("path", ", style: matrix, explode: true", list), `{"v":["a","b"]}`, sent{URI: "/v2/i/;v=a;v=b"}},
		"object in path":       {"/i/{v}", "get", par("path", "", object), `{"v":{"x":1,"a":"b"}}`, sent{URI: "/v2/i/a,b,x,1"}},
		"form list":            {"/i", "get", par("query", "", list), `{"v":["a&b","c"]}`, sent{URI: "/v2/i?v=a%26b&v=c"}},
		"form list, one":       {"/i", "get", par("query", ", explode: false", list), `{"v":["a","b"]}`, sent{URI: "/v2/i?v=a,b"}},
		"spaces":               {"/i", "get", par("query", ", style: spaceDelimited, explode: false", list), `{"v":["a","b"]}`, sent{URI: "/v2/i?v=a%20b"}},
		"pipes":                {"/i", "get", par("query", ", style: pipeDelimited, explode: false", list), `{"v":["a","b"]}`, sent{URI: "/v2/i?v=a%7Cb"}},
		"form object":          {"/i", "get", par("query", "", object), `{"v":{"b":2,"a":true}}`, sent{URI: "/v2/i?a=true&b=2"}},
		"deep object":          {"/i", "get", par("query", ", style: deepObject, explode: true", object), `{"v":{"a":1}}`, sent{URI: "/v2/i?v%5Ba%5D=1"}},
		"left out":             {"/i", "get", par("query", "", "{type: string}"), `{}`, sent{URI: "/v2/i"}},
		"content":              {"/i", "get", `parameters: [{name: v, in: query, content: {application/json: {schema: {type: object}}}}]`, `{"v":{"a":1}}`, sent{URI: "/v2/i?v=%7B%22a%22%3A1%7D"}},
		"header":               {"/i", "get", par("header", "", list), `{"v":["a","b"]}`, sent{URI: "/v2/i", Header: "a,b"}},
		"JSON":                 {"/i", "post", `requestBody: {content: {text/plain: {}, application/json: {schema: {$ref: '#/components/schemas/Item'}}}}`, `{"body":{"name":"x"}}`, sent{"/v2/i", `{"name":"x"}`, "application/json", ""}},
		"merge patch":          {"/i", "patch", `requestBody: {content: {application/merge-patch+json: {schema: {type: object}}}}`, `{"body":{"a":null}}`, sent{"/v2/i", `{"a":null}`, "application/merge-patch+json", ""}},
		"form":                 {"/i", "post", `requestBody: {content: {application/x-www-form-urlencoded: {schema: {type: object}}}}`, `{"body":{"b":["x","y"],"a":"&"}}`, sent{"/v2/i", "a=%26&b=x&b=y", "application/x-www-form-urlencoded", ""}},
		"text":                 {"/i", "put", `requestBody: {content: {text/plain: {schema: {type: string}}}}`, `{"body":"hi"}`, sent{"/v2/i", "hi", "text/plain", ""}},
		"bytes":                {"/i", "put", `requestBody: {content: {image/png: {schema: {type: string, format: binary}}}}`, `{"body":"AAE="}`, sent{"/v2/i", "\x00\x01", "image/png", ""}},
		"a parameter body":     {"/i", "post", `parameters: [{name: body, in: query, schema: {type: string}}], requestBody: {content: {text/plain: {}}}`, `{"body":"b","body_query":"q"}`, sent{"/v2/i?body=q", "b", "text/plain", ""}},
		"one name, two places": {"/i/{v}", "get", `parameters: [{name: v, in: path, required: true, schema: {}}, {name: v, in: query, schema: {}}]`, `{"v":"p","v_query":"q"}`, sent{URI: "/v2/i/p?v=q"}},
		"key in header":        {"/i", "get", `security: [{header: []}]`, `{}`, sent{URI: "/v2/i", Header: secretValue}},
		"key in query":         {"/i", "get", `security: [{query: []}]`, `{}`, sent{URI: "/v2/i?key=" + secretValue}},
		"no security":          {"/i", "get", `security: []`, `{}`, sent{URI: "/v2/i"}},
	} {
		for _, version := range []string{"3.0.3", "3.1.0"} {
			t.Run(name+" "+version, func(t *testing.T) {
				t.Parallel()
				s := newShop(t)
				a := open(t, one(version, c.path, c.method, c.operation), s.URL+"/v2")
				if _, err := a.Call(t.Context(), definitions(t, a)["op"], json.RawMessage(c.input)); err != nil {
					t.Fatalf("Call: got %v, want no error", err)
				}
				got := sent{s.uri, s.body, s.header.Get("Content-Type"), s.header.Get("V") + s.header.Get("X-Key")}
				if d := cmp.Diff(c.want, got); d != "" || s.method != strings.ToUpper(c.method) {
					t.Errorf("the request: got %s, want %s; (-want +got):\n%s", s.method, c.method, d)
				}
			})
		}
	}
}

func TestSecretsAreSentAsTheSchemeAsks(t *testing.T) {
	t.Parallel()
	for scheme, want := range map[string][2]string{
		"basic": {"Authorization", "Basic czNjcmV0LXZhbHVl"}, "oauth": {"Authorization", "Bearer " + secretValue}, "cookie": {"Cookie", "sid=" + secretValue},
	} {
		s := newShop(t)
		a := open(t, one("3.1.0", "/i", "get", `security: [{`+scheme+`: []}]`), s.URL)
		d := definitions(t, a)["op"]
		if _, err := a.Call(t.Context(), d, json.RawMessage(`{}`)); err != nil {
			t.Errorf("%s: got %v, want no error", scheme, err)
		}
		if got := s.header.Get(want[0]); got != want[1] {
			t.Errorf("%s: got %s %q, want %q", scheme, want[0], got, want[1])
		}
		if strings.Contains(string(d), secretValue) {
			t.Errorf("%s: got the secret in the definition, want none", scheme)
		}
	}
}

func TestInputsThatDoNotFitAreRefusedBeforeARequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string][3]string{
		"a path that leaves its segment": {"/i/{v}", `parameters: [{name: v, in: path, schema: {}}]`, `{"v":".."}`},
		"a path that is missing":         {"/i/{v}", `parameters: [{name: v, in: path, schema: {}}]`, `{}`},
		"a header with two lines":        {"/i", `parameters: [{name: v, in: header, schema: {}}]`, `{"v":"a\r\nHost: b"}`},
		"bytes that are none":            {"/i", `requestBody: {content: {image/png: {}}}`, `{"body":"%"}`},
		"text that is a number":          {"/i", `requestBody: {content: {text/plain: {}}}`, `{"body":1}`},
		"a list":                         {"/i", `description: x`, `[]`},
		"a second key in the query":      {"/i", `security: [{query: []}], parameters: [{name: v, in: query, schema: {}}]`, `{"v":{"key":"mine"}}`},
		"a second key in a cookie":       {"/i", `security: [{cookie: []}], parameters: [{name: v, in: cookie, schema: {}}]`, `{"v":{"sid":"mine"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			a := open(t, one("3.0.0", c[0], "post", c[1]), s.URL)
			_, err := a.Call(t.Context(), definitions(t, a)["op"], json.RawMessage(c[2]))
			if capability.CodeOf(err) != capability.CodeInvalidInput || s.method != "" {
				t.Errorf("got %v and the request %q, want invalid_input and none", err, s.uri)
			}
		})
	}
}

func TestAnswersBecomeResults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status       int
		header, body string
		want         string // part of the result
	}{
		"object":      {200, "Content-Type: application/json", `{"a":1}`, `"structuredContent":{"a":1}`},
		"list":        {200, "Content-Type: application/json", `[1]`, `"text":"[1]"`},
		"text":        {200, "Content-Type: text/plain", "hello", `"text":"hello"`},
		"nothing":     {204, "", "", `"text":"HTTP 204, without a body"`},
		"image":       {200, "Content-Type: image/png", "\xff\x00", `"data":"/wA=","mimeType":"image/png"`},
		"bytes":       {200, "Content-Type: application/zip", "\xff\x00", `"blob":"/wA="`},
		"not found":   {404, "", "no such item", `HTTP 404 Not Found\nno such item`},
		"limited":     {429, "Retry-After: 7", "", `HTTP 429 Too Many Requests; try again after 7`},
		"redirect":    {302, "Location: https://elsewhere.example.org/", "", `it leads to https://elsewhere.example.org/, which is not followed`},
		"blank":       {200, "Content-Type: application/json", "\n", `"content":[{"text":"\n","type":"text"}]`},
		"next page":   {200, `Link: </v2/i?v=3&x=1>; rel="next"`, "[]", `For the next page call this again with {\"v\":\"3\"}`},
		"other pages": {200, `Link: <https://elsewhere.example.org/v2/i?v=3>; rel="next"`, "[]", `"content":[{"text":"[]","type":"text"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.answer = func(w http.ResponseWriter) {
				if key, value, ok := strings.Cut(c.header, ": "); ok {
					w.Header().Set(key, value)
				}
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			}
			a := open(t, one("3.1.0", "/i", "get", `parameters: [{name: v, in: query, schema: {}}]`), s.URL+"/v2")
			got, err := a.Call(t.Context(), definitions(t, a)["op"], json.RawMessage(`{}`))
			if err != nil || !strings.Contains(string(got), c.want) {
				t.Errorf("got %s, %v; want %s", got, err, c.want)
			}
			if failed := strings.Contains(string(got), `"isError":true`); failed != (c.status >= 300) {
				t.Errorf("isError of status %d: got %v, want %v", c.status, failed, !failed)
			}
		})
	}
}

func TestFailuresDoNotShowTheSecret(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	a := open(t, one("3.1.0", "/i", "post", `security: [{query: []}]`), s.URL)
	d := definitions(t, a)["op"]
	s.answer = func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	_, err := a.Call(t.Context(), d, nil)
	if capability.CodeOf(err) != capability.CodeFailed || strings.Contains(fmt.Sprintf("%+v", err), secretValue) {
		t.Errorf("an answer that is cut off: got %+v, want failed without the secret, because the request may have arrived", err)
	}
	s.Close()
	_, err = a.Call(t.Context(), d, nil)
	if capability.CodeOf(err) != capability.CodeUnavailable || strings.Contains(err.Error(), secretValue) {
		t.Errorf("a server that is gone: got %v, want unavailable without the secret", err)
	}
	other := newShop(t)
	elsewhere := strings.ReplaceAll(string(d), s.URL, other.URL)
	if _, err = a.Call(t.Context(), json.RawMessage(elsewhere), nil); err == nil || other.method != "" {
		t.Errorf("a definition of another server: got %v and %q, want an error and no request", err, other.method)
	}
}

// An API may repeat what it was sent: in a redirect, a link, an error or an answer.
func TestAnswersDoNotShowTheSecret(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"query", "header", "cookie", "basic", "oauth"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			a := open(t, one("3.1.0", "/i", "get", `security: [{`+scheme+`: []}], parameters: [{name: key, in: query, schema: {}}]`), s.URL)
			d := definitions(t, a)["op"]
			for _, status := range []int{200, 301, 404} {
				s.answer = func(w http.ResponseWriter) {
					w.Header().Set("Location", "/i/?key="+secretValue+strings.Repeat("x", 178)+"&key="+secretValue) // which is cut
					w.Header().Set("Link", `</i?key=`+secretValue+`>; rel="next"`)
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(status)
					fmt.Fprintf(w, `{"uri":%q,"headers":%q}`, s.uri, fmt.Sprint(s.header))
				}
				got, err := a.Call(t.Context(), d, json.RawMessage(`{}`))
				if err != nil || strings.Contains(string(got), secretValue) || strings.Contains(string(got), "czNjcmV0LXZhbHVl") ||
					!json.Valid(got) || !strings.Contains(string(got), "•••") {
					t.Errorf("status %d: got %s, %v; want an answer with dots in place of the secret", status, got, err)
				}
			}
		})
	}
}

// adds a token to each request, as the transport of an upstream with OAuth does.
type adds string

func (a adds) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("X-Seen", req.Header.Get("Authorization"))
	req.Header.Set("Authorization", "Bearer "+string(a))
	return http.DefaultTransport.RoundTrip(req)
}

func TestAnswersDoNotShowTheBearerToken(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	a, err := openapi.New(openapi.Config{
		Document: s.URL + "/api.yaml", Base: s.URL, Local: true, HTTP: &http.Client{Transport: adds("access-token-1")}, Fetch: http.DefaultClient,
		Header: func(context.Context) (http.Header, error) {
			return http.Header{
				"Authorization": {"Bearer " + secretValue}, "X-Key": {"user:other-" + secretValue}, "X-Version": {"2026-01-01"},
			}, nil
		},
		SecretHeaders: []string{"X-Key"},
	})
	if err != nil {
		t.Fatalf("New: got %v, want no error", err)
	}
	s.answer = func(w http.ResponseWriter) { io.WriteString(w, one("3.1.0", "/i", "get", "description: x")) }
	d := definitions(t, a)["op"]
	s.answer = func(w http.ResponseWriter) { fmt.Fprint(w, s.header, " password=other-"+secretValue) }
	got, err := a.Call(t.Context(), d, json.RawMessage(`{}`))
	if text := string(got); err != nil || strings.Contains(text, secretValue) || strings.Contains(text, "access-token") ||
		strings.Contains(text, "other-") || !strings.Contains(text, "•••") ||
		!strings.Contains(text, "2026-01-01") {
		t.Errorf("got %s, %v; want the headers with dots in place of the tokens and the key", got, err)
	}
}

// growing returns a document of 3 MiB whose operations share large parameters.
func growing() string {
	var shared, refs, paths strings.Builder
	for i := range 64 {
		fmt.Fprintf(&shared, "    p%d: {name: p%d, in: query, schema: {type: string, enum: [%s]}}\n", i, i, strings.Repeat("x", 39<<10))
		fmt.Fprintf(&refs, "{$ref: '#/components/parameters/p%d'},", i)
	}
	for i := range 300 {
		fmt.Fprintf(&paths, "  /o%d: {get: {responses: {}, parameters: [%s]}}\n", i, refs.String())
	}
	return "openapi: 3.0.0\ninfo: {title: a, version: '1'}\ncomponents:\n  parameters:\n" + shared.String() + "paths:\n" + paths.String()
}

func TestSchemasThatAreTooLargeAcceptAnything(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	document := `openapi: 3.0.3
info: {title: a, version: "1"}
components:
  schemas:
    Long: {type: string, enum: [` + long + `]}
    Item: {type: object, properties: {a: {$ref: '#/components/schemas/Long'}}}
paths:
  /a: {post: {operationId: whole, responses: {}, requestBody: {content: {text/json: {schema: {enum: [` + long + `]}}}}}}
  /b: {post: {operationId: part, responses: {}, requestBody: {content: {application/json: {schema: {$ref: '#/components/schemas/Item'}}}}}}
`
	list := definitions(t, open(t, document, "https://api.example.org"))
	for name, want := range map[string]string{
		"whole": `{"additionalProperties":false,"properties":{"body":{"description":""}},"type":"object"}`,
		"part": `{"$defs":{"Item":{"properties":{"a":{"$ref":"#/$defs/Long"}},"type":"object"},"Long":true},"additionalProperties":false,` +
			`"properties":{"body":{"$ref":"#/$defs/Item"}},"type":"object"}`,
	} {
		var got struct{ InputSchema any }
		if err := json.Unmarshal(list[name], &got); err != nil {
			t.Fatalf("the definition of %s: got %v, want JSON", name, err)
		}
		if data, err := json.Marshal(got.InputSchema); err != nil || string(data) != want {
			t.Errorf("the schema of %s: got %.500s, want %s", name, data, want)
		}
	}
}

func TestHeadersOfTheConnectionAreNoParameters(t *testing.T) {
	t.Parallel()
	var list strings.Builder
	for _, name := range []string{
		"Host", "Authorization", "X-HTTP-Method-Override", "x-http-method", "Connection", "Transfer-Encoding", "Proxy-Authorization",
		"X-Forwarded-For", "X-Own",
	} {
		fmt.Fprintf(&list, "{name: %s, in: header, schema: {}},", name)
	}
	d := definitions(t, open(t, one("3.0.0", "/i", "get", "parameters: ["+list.String()+"]"), "https://api.example.org"))["op"]
	var got struct {
		InputSchema struct{ Properties map[string]any }
	}
	if err := json.Unmarshal(d, &got); err != nil || len(got.InputSchema.Properties) != 1 || got.InputSchema.Properties["X-Own"] == nil {
		t.Errorf("the parameters: got %v, %v; want only X-Own", got.InputSchema.Properties, err)
	}
}

func TestDocumentsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	const (
		head = "openapi: 3.0.0\ninfo: {title: a, version: '1'}\n"
		with = head + "paths: {/a: {post: {responses: {}, "
	)
	for name, c := range map[string][2]string{
		"version 2":                  {`{"swagger": "2.0", "paths": {}}`, "version 2 (Swagger)"},
		"a version of the future":    {"openapi: 4.0.0\ninfo: {title: a, version: '1'}\npaths: {}", "supported are 3.0 and 3.1"},
		"another document":           {with + "parameters: [{$ref: 'other.yaml#/a'}]}}}", "refers to another document"},
		"a file of this machine":     {with + "requestBody: {$ref: '/etc/passwd'}}}}", "refers to another document"},
		"no operations":              {head + "paths: {}", "no operation"},
		"only operations above":      {head + "paths: {/../a: {get: {responses: {}}}, '/a/%2e%2E': {get: {responses: {}}}, '/a%2f..': {get: {responses: {}}}, '/..\\a': {get: {responses: {}}}, '/a?b': {get: {responses: {}}}}", "no operation on its server"},
		"tools that grow":            {growing(), "more than 64 MiB"},
		"only operations elsewhere":  {head + "paths: {/a: {servers: [{url: 'https://elsewhere.example.org'}], get: {responses: {}}}}", "no operation on its server"},
		"too large":                  {head + "#" + strings.Repeat("x", 16<<20), "larger than 16 MiB"},
		"aliases that grow":          {"a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f,*f]\n", ""},
		"lists in lists, a long way": {strings.Repeat("[", 1<<20), ""},
		"a page of a website":        {"<!doctype html><html><body>Sign in</body></html>", ""},
		"nothing":                    {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := open(t, c[0], "https://api.example.org").Load(t.Context())
			e := capability.AsError(err)
			if err == nil || e.Reason != openapi.ReasonDocument || !strings.Contains(e.Message, c[1]) || len(e.Message) > 1000 {
				t.Errorf("got %v, want invalid_openapi with %q", err, c[1])
			}
		})
	}
}

func TestDefinitionsHaveSchemasAndHints(t *testing.T) {
	t.Parallel()
	document := one("3.0.3", "/i/{id}", "put", `summary: Change an item., deprecated: true,
      parameters: [{name: id, in: path, required: true, description: Its number.,
        schema: {type: integer, minimum: 1, exclusiveMinimum: true, nullable: true, example: 3}}],
      requestBody: {required: true, content: {application/json: {schema: {$ref: '#/components/schemas/Item'}}}}`)
	var got struct {
		Description string
		InputSchema any
		Annotations map[string]bool
	}
	if err := json.Unmarshal(definitions(t, open(t, document, "https://api.example.org"))["op"], &got); err != nil {
		t.Fatalf("definition: got %v, want JSON", err)
	}
	var want any
	if err := json.Unmarshal([]byte(`{"type":"object","additionalProperties":false,"required":["id","body"],
		"properties":{"id":{"type":["integer","null"],"exclusiveMinimum":1,"description":"Its number."},"body":{"$ref":"#/$defs/Item"}},
		"$defs":{"Item":{"type":"object","properties":{"name":{"type":"string"},"parent":{"$ref":"#/$defs/Item"}}}}}`), &want); err != nil {
		t.Fatalf("want: got %v, want JSON", err)
	}
	if d := cmp.Diff(want, got.InputSchema); d != "" {
		t.Errorf("the schema differs (-want +got):\n%s", d)
	}
	if text := "Deprecated.\nChange an item.\nPUT /i/{id}"; got.Description != text {
		t.Errorf("description: got %q, want %q", got.Description, text)
	}
	hints := map[string]bool{"readOnlyHint": false, "destructiveHint": false, "idempotentHint": true, "openWorldHint": true}
	if d := cmp.Diff(hints, got.Annotations); d != "" {
		t.Errorf("the hints differ (-want +got):\n%s", d)
	}
}

func TestAddressesOfAnAPI(t *testing.T) {
	t.Parallel()
	for base, ok := range map[string]bool{
		"https://api.example.org/v2": true, "http://api.example.org": false, "https://u:p@api.example.org": false,
		"https://api.example.org/?a=b": false, "ftp://api.example.org": false, "api.example.org": false, "": false,
	} {
		if _, err := openapi.New(openapi.Config{Document: "/api.yaml", Base: base, HTTP: http.DefaultClient}); (err == nil) != ok {
			t.Errorf("New with %q: got %v, want an error: %v", base, err, !ok)
		}
	}
}

func TestNamesDoNotDependOnTheOrder(t *testing.T) {
	t.Parallel()
	paths := []string{
		"  /a: {get: {operationId: same, responses: {}}}", "  /b: {get: {operationId: Same, responses: {}}}",
		"  /c/{d}.json: {get: {responses: {}}, post: {operationId: 'a b/c', responses: {}}}", "  /" + strings.Repeat("long/", 20) + ": {get: {responses: {}}}",
	}
	names := func(paths ...string) map[string]bool {
		out := make(map[string]bool)
		document := "openapi: 3.1.0\ninfo: {title: a, version: '1'}\npaths:\n" + strings.Join(paths, "\n")
		for name := range definitions(t, open(t, document, "https://api.example.org")) {
			out[name] = true
		}
		return out
	}
	got := names(paths...)
	if d := cmp.Diff(got, names(paths[3], paths[2], paths[1], paths[0])); d != "" {
		t.Errorf("names in another order differ:\n%s", d)
	}
	if len(got) != 5 || !got["get_c_d_json"] || !got["a_b_c"] {
		t.Errorf("names: got %v, want five, with get_c_d_json and a_b_c", got)
	}
	for name := range got {
		if len(name) > 48 {
			t.Errorf("the name %s: got %d bytes, want at most 48", name, len(name))
		}
	}
}

func TestTheServerOfADocumentIsPinned(t *testing.T) {
	t.Parallel()
	var text string
	docs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer x" {
			t.Errorf("the request for the document: got %v, want the upstream's own header", r.Header)
		}
		io.WriteString(w, text)
	}))
	t.Cleanup(docs.Close)
	load := func(servers string) (string, error) {
		text = "openapi: 3.1.0\ninfo: {title: a, version: '1'}\nservers: " + servers + "\npaths: {/a: {get: {operationId: a, responses: {}}}}"
		a, err := openapi.New(openapi.Config{
			Document: docs.URL + "/api/doc", Base: docs.URL + "/api/doc", Local: true, HTTP: http.DefaultClient,
			Header: func(context.Context) (http.Header, error) { return http.Header{"Authorization": {"Bearer x"}}, nil },
		})
		if err != nil {
			t.Fatalf("New: got %v, want no error", err)
		}
		info, err := a.Load(t.Context())
		if err != nil {
			return "", err
		}
		return string(info.Definitions[0]), nil
	}
	for servers, want := range map[string]string{
		"[]": docs.URL + "/a", "[{url: v3}]": docs.URL + "/api/v3/a", "[{url: '/{v}', variables: {v: {default: v4}}}]": docs.URL + "/v4/a",
	} {
		if got, err := load(servers); err != nil || !strings.Contains(got, `"`+want+`"`) {
			t.Errorf("%s: got %s, %v; want %s", servers, got, err, want)
		}
	}
	if _, err := load("[{url: 'https://elsewhere.example.org'}]"); err == nil || !strings.Contains(err.Error(), "--url") {
		t.Errorf("a server elsewhere: got %v, want an error that names --url", err)
	}
}

// large returns a document with n operations.
func large(n int) string {
	var b strings.Builder
	b.WriteString(one("3.0.3", "/first", "get", "summary: x"))
	for i := range n - 1 {
		fmt.Fprintf(&b, "  /r%d/{id}:\n    post: {operationId: op%d, summary: Operation %d., parameters: [{name: id, in: path, required: true, schema: {type: string}}, "+
			"{name: q, in: query, schema: {type: array, items: {type: string}}}], requestBody: {content: {application/json: {schema: {$ref: '#/components/schemas/Item'}}}}, "+
			"responses: {'200': {description: ok, content: {application/json: {schema: {$ref: '#/components/schemas/Item'}}}}}}\n", i, i, i)
	}
	return b.String()
}

func BenchmarkADocumentOf1000Operations(b *testing.B) {
	a := open(b, large(1000), "https://api.example.org")
	for b.Loop() {
		if info, err := a.Load(b.Context()); err != nil || len(info.Definitions) != 1000 {
			b.Fatalf("got %d operations, %v; want 1000, no error", len(info.Definitions), err)
		}
	}
}

func FuzzDocument(f *testing.F) {
	f.Add(large(2))
	f.Add(one("3.1.0", "/i/{v}", "put", `parameters: [{name: v, in: path, schema: {}}], requestBody: {content: {'*/*': {}}}`))
	f.Add(`{"openapi":"3.0.0","paths":{"/a":{"get":null}},"components":{"schemas":{"a":{"$ref":"#/components/schemas/a"}}}}`)
	f.Fuzz(func(t *testing.T, document string) {
		a := open(t, document, "http://127.0.0.1:1/v1")
		info, err := a.Load(t.Context())
		if err != nil {
			return
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, d := range info.Definitions {
			if !json.Valid(d) {
				t.Errorf("definition: got %s, want JSON", d)
			}
			_, _ = a.Call(ctx, d, json.RawMessage(`{"v":"x","id":{"a":[1]},"body":{"a":1}}`))
		}
	})
}
