package telemetry

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collectormetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	metricspb "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/secret"
)

// collector is an OTLP receiver. answer decides about the n-th request, from 0; 0 takes it.
type collector struct {
	*httptest.Server
	mu      sync.Mutex
	spans   []*tracepb.Span
	metrics map[string]*metricspb.Metric
	n       int
	tokens  []string
	answer  func(n int, w http.ResponseWriter) (done bool)
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{metrics: make(map[string]*metricspb.Metric)}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(func() {
		c.CloseClientConnections()
		c.Close()
	})
	return c
}

func (c *collector) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	n, answer := c.n, c.answer
	c.n++
	c.tokens = append(c.tokens, r.Header.Get("Authorization"))
	c.mu.Unlock()
	if answer != nil && answer(n, w) {
		return
	}
	plain, err := gzip.NewReader(r.Body)
	if err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	data, err := io.ReadAll(plain)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r.URL.Path {
	case "/base/v1/traces":
		var in collectortrace.ExportTraceServiceRequest
		if err := proto.Unmarshal(data, &in); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for _, rs := range in.GetResourceSpans() {
			for _, ss := range rs.GetScopeSpans() {
				c.spans = append(c.spans, ss.GetSpans()...)
			}
		}
	case "/base/v1/metrics":
		var in collectormetrics.ExportMetricsServiceRequest
		if err := proto.Unmarshal(data, &in); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for _, rm := range in.GetResourceMetrics() {
			for _, sm := range rm.GetScopeMetrics() {
				for _, m := range sm.GetMetrics() {
					c.metrics[m.GetName()] = m
				}
			}
		}
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// run exports to c until stop.
func (c *collector) run(t *testing.T, logs io.Writer) (m *Metrics, stop func()) {
	t.Helper()
	m = NewMetrics()
	m.Export(ExportConfig{
		Endpoint: c.URL + "/base/", Version: "1.2.3", Instance: "g", Logger: slog.New(slog.NewTextHandler(logs, nil)),
		Token: func() (secret.Value, error) { return secret.New("collector-token"), nil },
	})
	m.exporter.spans, m.exporter.gather = 5*time.Millisecond, 20*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	return m, stop
}

// within waits until ok, for a time that a slow machine meets.
func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30s: %s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

func (c *collector) received() []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spans
}

func call(id string, more func(*invoke.Ended)) invoke.Ended {
	at := time.Unix(1_700_000_000, 0)
	e := invoke.Ended{
		ID: id, Surface: "mcp", Action: "fs.readText", ProviderKind: "local", Effect: capability.EffectRead, State: invoke.StateCompleted,
		Duration: 4 * time.Millisecond, Principal: "agent:a", Capability: "local/fs.readText", Provided: "fs:local:local",
		History: []invoke.Transition{
			{State: invoke.StateCreated, At: at},
			{State: invoke.StateValidating, At: at},
			{State: invoke.StateExecuting, At: at.Add(time.Millisecond)},
			{State: invoke.StateProcessing, At: at.Add(3 * time.Millisecond)},
			{State: invoke.StateCompleted, At: at.Add(4 * time.Millisecond)},
		},
	}
	if more != nil {
		more(&e)
	}
	return e
}

func attribute(s *tracepb.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

func TestCallsBecomeSpansOfTheirTrace(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	m, stop := c.run(t, io.Discard)
	const trace, caller = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	m.Finished(call("run_1", func(e *invoke.Ended) { e.Trace, e.TraceParent, e.Session = trace, caller, "s1" }))
	m.Finished(call("run_2", func(e *invoke.Ended) {
		e.Parent, e.Surface, e.State, e.Code = "run_1", "http", invoke.StateFailed, capability.CodeDenied
	}))
	stop() // what is left is sent
	spans := map[string]*tracepb.Span{}
	for _, s := range c.received() {
		spans[attribute(s, "gen_ai.tool.call.id")+s.GetName()] = s
	}
	first, second := spans["run_1tools/call fs.readText"], spans["run_2execute_tool fs.readText"]
	if first == nil || second == nil || len(c.received()) != 8 {
		t.Fatalf("got %d spans %v, want two calls with three states each", len(c.received()), spans)
	}
	if got := fmt.Sprintf("%x %x", first.GetTraceId(), first.GetParentSpanId()); got != trace+" "+caller {
		t.Errorf("the first call: got trace and parent %s, want the caller's", got)
	}
	if !bytes.Equal(second.GetParentSpanId(), first.GetSpanId()) || second.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR ||
		attribute(second, "error.type") != "denied" {
		t.Errorf("the second call: got %v, want a failed one below the first", second)
	}
	for name, want := range map[string]string{
		"gen_ai.operation.name": "execute_tool", "mcp.method.name": "tools/call", "mcp.session.id": "s1", "junctor.principal": "agent:a",
		"junctor.provider": "fs:local:local",
	} {
		if got := attribute(first, name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if got := first.GetEndTimeUnixNano() - first.GetStartTimeUnixNano(); got != uint64(4*time.Millisecond) {
		t.Errorf("duration: got %d ns, want 4 ms", got)
	}
	for _, s := range c.received() {
		if s.GetName() == "executing" && (s.GetKind() != tracepb.Span_SPAN_KIND_CLIENT ||
			s.GetEndTimeUnixNano()-s.GetStartTimeUnixNano() != uint64(2*time.Millisecond)) {
			t.Errorf("the execution: got %v, want a client span of 2 ms", s)
		}
	}
	for _, got := range c.tokens {
		if got != "Bearer collector-token" {
			t.Errorf("authorization: got %q, want the stored token", got)
		}
	}
}

func TestMetricsAreThoseOfThePage(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	m, stop := c.run(t, io.Discard)
	m.Finished(call("run_1", nil))
	m.Finished(call("run_2", nil))
	stop()
	calls := c.metrics["junctor_invocations_total"].GetSum()
	if len(calls.GetDataPoints()) != 1 || calls.GetDataPoints()[0].GetAsDouble() != 2 || !calls.GetIsMonotonic() {
		t.Errorf("calls: got %v, want one counter of 2", calls)
	}
	points := c.metrics["junctor_invocation_seconds"].GetHistogram().GetDataPoints()
	if len(points) != 1 || points[0].GetCount() != 2 || len(points[0].GetBucketCounts()) != len(points[0].GetExplicitBounds())+1 {
		t.Fatalf("durations: got %v, want one histogram with a bucket more than bounds", points)
	}
	var sum uint64
	for _, n := range points[0].GetBucketCounts() {
		sum += n
	}
	if sum != 2 {
		t.Errorf("buckets: got %d calls in them, want 2, since they are not cumulative", sum)
	}
	if c.metrics["junctor_otel_dropped"].GetGauge() == nil || c.metrics["go_goroutines"].GetGauge() == nil {
		t.Errorf("gauges: got %d metrics, want those of the exporter and of the process among them", len(c.metrics))
	}
}

func TestAnExportIsRepeatedWhereTheProtocolPermitsIt(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	c.answer = func(n int, w http.ResponseWriter) bool {
		switch n {
		case 0:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			return false
		}
		return true
	}
	var logs bytes.Buffer
	m, stop := c.run(t, &logs)
	m.Finished(call("run_1", nil))
	within(t, "the call is exported", func() bool { return len(c.received()) == 4 })
	stop()
	if got := m.exporter.dropped.Load(); got != 0 {
		t.Errorf("dropped: got %d, want 0", got)
	}
}

func TestARefusedExportIsNotRepeated(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	c.answer = func(n int, w http.ResponseWriter) bool {
		if n == 0 {
			w.WriteHeader(http.StatusBadRequest)
		}
		return n == 0
	}
	var logs bytes.Buffer
	m, stop := c.run(t, &logs)
	m.Finished(call("run_1", nil))
	within(t, "it is dropped", func() bool { return m.exporter.dropped.Load() == 1 })
	if got := m.Checks(); len(got) != 1 || got[0].OK || !strings.Contains(got[0].Detail, "400 Bad Request") {
		t.Errorf("the finding: got %+v, want the answer of the collector", got)
	}
	m.Finished(call("run_2", nil))
	within(t, "the next is taken", func() bool { return len(c.received()) == 4 })
	within(t, "the finding is gone", func() bool { return m.Checks()[0].OK })
	stop()
	text := logs.String()
	if strings.Count(text, "did not take an export") != 1 || strings.Contains(text, c.URL) || strings.Contains(text, "collector-token") {
		t.Errorf("the log: got %q, want one line without URL and token", text)
	}
}

func TestACollectorThatHangsDelaysNoCall(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	release := make(chan struct{})
	c.answer = func(_ int, w http.ResponseWriter) bool {
		<-release
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	m, stop := c.run(t, io.Discard)
	const calls = 2 * maxQueue
	began := time.Now()
	for i := range calls {
		m.Finished(call(fmt.Sprint("run_", i), nil))
	}
	t.Logf("%d calls in %s", calls, time.Since(began))
	if got := m.exporter.dropped.Load(); got == 0 || got > calls {
		t.Errorf("dropped: got %d of %d, want those that did not fit the queue", got, calls)
	}
	close(release)
	stop()
}

// BenchmarkExport measures what the export of one call costs, without the network.
func BenchmarkExport(b *testing.B) {
	e := &exporter{cfg: ExportConfig{Version: "1", Instance: "g"}}
	batch := make([]invoke.Ended, maxBatch)
	for i := range batch {
		batch[i] = call(fmt.Sprint("run_", i), nil)
	}
	var size int
	b.ReportAllocs()
	for i := 0; i < b.N; i += maxBatch {
		data, err := encode(traces(e.resource(), batch))
		if err != nil {
			b.Fatalf("encode: got %v, want no error", err)
		}
		size = len(data)
	}
	b.ReportMetric(float64(size)/maxBatch, "wire-B/call")
}
