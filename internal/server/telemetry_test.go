package server_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collectortrace "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// TestCallsReachTheCollector makes a call on a server with otel.endpoint, and reads its spans.
func TestCallsReachTheCollector(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	names := map[string]int{}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		plain, err := gzip.NewReader(r.Body)
		if err != nil || r.URL.Path != "/v1/traces" {
			return
		}
		data, err := io.ReadAll(plain)
		var in collectortrace.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(data, &in) != nil {
			t.Errorf("an export: got %v, want a request of OTLP", err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range in.GetResourceSpans() {
			for _, ss := range rs.GetScopeSpans() {
				for _, s := range ss.GetSpans() {
					names[s.GetName()]++
				}
			}
		}
	}))
	t.Cleanup(collector.Close)
	n := serve(t, t.TempDir(), "JUNCTOR_OTEL_ENDPOINT="+collector.URL)
	n.must(t, http.MethodPost, "/api/v1/invocations", map[string]any{"target": "catalog.search", "input": map[string]any{"query": "files"}}, nil)
	eventually(t, "the call is exported", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return names["execute_tool catalog.search"] == 1 && names["executing"] == 1 && names["validating"] == 1
	})
}
