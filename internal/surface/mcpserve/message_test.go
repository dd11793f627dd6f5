package mcpserve

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":"\ud800"},"_meta":{"progressToken":1}}}`))
	f.Add([]byte(modernBody("tools/list", `"cursor":"x",`)))
	f.Add([]byte(`[]`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1e5,"method":"\u0061","params":{"arguments" : [1 , 2] }}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, fault := parse(body)
		if fault != nil {
			if !json.Valid(appendFault(nil, m.id, fault)) {
				t.Errorf("the refusal is no JSON: %s", appendFault(nil, m.id, fault))
			}
			return
		}
		if m.batch {
			return
		}
		if !json.Valid(body) {
			t.Fatalf("taken for JSON: %q", body)
		}
		for _, part := range []json.RawMessage{m.id, m.params.raw, m.params.arguments, m.params.meta.progress} {
			if part != nil && (!json.Valid(part) || !bytes.Contains(body, part)) {
				t.Errorf("%q is not a value of %q", part, body)
			}
		}
		if f := checkModern(http.Header{}, &m); f == nil {
			t.Error("no headers, and taken for right")
		}
	})
}

func BenchmarkCall(b *testing.B) {
	st := newStack(b, stackOptions{})
	id := st.open(st.agent, version20250618)
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"path":"a/b","text":"` + strings.Repeat("x", 200) + `"}}}`
	b.ReportAllocs()
	for b.Loop() {
		req, _ := http.NewRequestWithContext(b.Context(), "POST", st.url, strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+st.agent)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set(headerSession, id)
		resp, err := http.DefaultClient.Do(req)
		ok(b, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

func BenchmarkParse(b *testing.B) {
	body := []byte(modernBody("tools/call", `"name":"echo","arguments":{"text":"`+strings.Repeat("x", 1000)+`"},`))
	b.ReportAllocs()
	for b.Loop() {
		if _, f := parse(body); f != nil {
			b.Fatal(f)
		}
	}
}
