package mcpwire

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// modern is a request that says all about itself; members go before _meta.
func modern(method, members string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + members + `"_meta":{"` + MetaPrefix + `protocolVersion":"` +
		Version20260728 + `","` + MetaPrefix + `clientCapabilities":{}}}}`
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":"\ud800"},"_meta":{"progressToken":1}}}`))
	f.Add([]byte(modern("tools/list", `"cursor":"x",`)))
	f.Add([]byte(`[]`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1e5,"method":"\u0061","params":{"arguments" : [1 , 2] }}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, fault := Parse(body)
		if fault != nil {
			if !json.Valid(AppendFault(nil, m.ID, fault)) {
				t.Errorf("the refusal is no JSON: %s; want json.Valid(AppendFault(nil, m.ID, fault))", AppendFault(nil, m.ID, fault))
			}
			return
		}
		if m.Batch {
			return
		}
		if !json.Valid(body) {
			t.Fatalf("taken for JSON: %q; want json.Valid(body)", body)
		}
		for _, part := range []json.RawMessage{m.ID, m.Params.Raw, m.Params.Arguments, m.Params.Meta.Progress} {
			if part != nil && (!json.Valid(part) || !bytes.Contains(body, part)) {
				t.Errorf("%q is not a value of %q; want not (part != nil && (!json.Valid(part) || !bytes.Contains(body, part)))",
					part, body)
			}
		}
		if f := CheckModern(http.Header{}, &m); f == nil {
			t.Error("no headers, and taken for right; want f not nil")
		}
	})
}

func TestTheTraceOfATraceparent(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01": "0af7651916cd43dd8448eb211c80319c",
		"mine": "", "00-00000000000000000000000000000000-b7ad6b7169203331-01": "",
	} {
		got, span := traceID(in)
		if got != want || (span == "b7ad6b7169203331") != (want != "") {
			t.Errorf("%s: got %q and the span %q, want %q", in, got, span, want)
		}
	}
}

// FuzzMarks holds that marks in schemas are read without harm, and not without end.
func FuzzMarks(f *testing.F) {
	f.Add([]byte(`{"name":"a","inputSchema":{"type":"object","properties":{"x":{"type":"string","x-mcp-header":"X","properties":{"y":{"x-mcp-header":"Y"}}}}}}`), []byte(`{"x":"1"}`))
	f.Fuzz(func(t *testing.T, definition, arguments []byte) {
		if !jsontext.Value(definition).IsValid() || !jsontext.Value(arguments).IsValid() {
			return // it was judged before it got here
		}
		marked := HeaderParams(definition)
		if len(marked) > maxParams {
			t.Errorf("%d marks; want len(marked) at most %v", len(marked), maxParams)
		}
		_ = CheckParams(http.Header{}, marked, arguments)
	})
}

func BenchmarkParse(b *testing.B) {
	body := []byte(modern("tools/call", `"name":"echo","arguments":{"text":"`+strings.Repeat("x", 1000)+`"},`))
	b.ReportAllocs()
	for b.Loop() {
		if _, f := Parse(body); f != nil {
			b.Fatalf("Parse(body): f = %v, want nil", f)
		}
	}
}
