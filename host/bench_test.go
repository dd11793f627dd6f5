package host_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// sink is a ResponseWriter that keeps the status only.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkEndpointInvoke is an action call through the handler without the
// network: token, both checks and the handler itself.
func BenchmarkEndpointInvoke(b *testing.B) {
	data := map[string]any{"room": "lab", "count": 3, "devices": []string{"lamp-1", "door-2", "cam-3"}}
	ep, err := host.NewEndpoint(host.Module{
		ID: "bench", Name: "bench",
		Actions: []host.Action{{
			Name: "LOOK_UP", Description: "d",
			Handle: func(context.Context, json.RawMessage, json.RawMessage) (host.ActionResult, error) {
				return host.ActionResult{Text: "three devices", Data: data}, nil
			},
		}},
	})
	if err != nil {
		b.Fatal(err)
	}
	handler := ep.Handler(secret.New("t"))
	const body = `{"method":"plugin.action.invoke","params":{"moduleId":"bench","action":"LOOK_UP","content":{"text":"what is in the lab?","room":"lab","limit":10},"options":{"verbose":false}}}`
	r := httptest.NewRequest(http.MethodPost, router.PathInvoke, nil)
	r.Header.Set("Authorization", "Bearer t")
	r.ContentLength = int64(len(body))
	b.ReportAllocs()
	for b.Loop() {
		w := &sink{header: make(http.Header), status: 200}
		r.Body = io.NopCloser(strings.NewReader(body))
		handler.ServeHTTP(w, r)
		if w.status != 200 {
			b.Fatalf("status = %d, want 200", w.status)
		}
	}
}
