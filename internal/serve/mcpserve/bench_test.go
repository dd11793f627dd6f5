package mcpserve

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// BenchmarkDoor is what one request costs between the socket and the provider, the
// engine with its audit included.
func BenchmarkDoor(b *testing.B) {
	st := newStack(b, stackOptions{})
	u := &upstream{}
	st.offer(u.batch("mcp.up", declared("plain", `,"title":"Plain"`)))
	session := st.open(st.agent, mcpwire.Version20251125)
	mux := http.NewServeMux()
	st.surface.Routes(mux)
	for name, tt := range map[string]struct {
		body    string
		headers []string
	}{
		"legacy call": {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"plain","arguments":{"query":"what is in the lab?","limit":10}}}`, []string{mcpwire.HeaderSession, session}},
		"modern call": {
			modernBody("tools/call", `"name":"plain","arguments":{"query":"what is in the lab?","limit":10},`),
			[]string{mcpwire.HeaderVersion, mcpwire.Version20260728, mcpwire.HeaderMethod, "tools/call", mcpwire.HeaderName, "plain"},
		},
		"legacy list": {`{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, []string{mcpwire.HeaderSession, session}},
		"modern list": {modernBody("tools/list", ""), []string{
			mcpwire.HeaderVersion, mcpwire.Version20260728, mcpwire.HeaderMethod,
			"tools/list",
		}},
	} {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(tt.body))
				r.Header.Set("Authorization", "Bearer "+st.agent)
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Accept", "application/json, text/event-stream")
				for i := 0; i < len(tt.headers); i += 2 {
					r.Header.Set(tt.headers[i], tt.headers[i+1])
				}
				w := httptest.NewRecorder()
				mux.ServeHTTP(w, r)
				if w.Code != http.StatusOK || strings.Contains(w.Body.String(), "error") {
					b.Fatalf(`w.Code = %v, w.Body = %v, want w.Code == http.StatusOK && !strings.Contains(w.Body.String(), "error")`, w.Code, w.Body)
				}
			}
		})
	}
}

func BenchmarkCall(b *testing.B) {
	st := newStack(b, stackOptions{})
	id := st.open(st.agent, mcpwire.Version20250618)
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"path":"a/b","text":"` +
		strings.Repeat("x", 200) + `"}}}`
	b.ReportAllocs()
	for b.Loop() {
		req, _ := http.NewRequestWithContext(b.Context(), "POST", st.url, strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+st.agent)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set(mcpwire.HeaderSession, id)
		resp, err := http.DefaultClient.Do(req)
		ok(b, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}
