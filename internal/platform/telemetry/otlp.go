package telemetry

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	collectormetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/invoke"
)

const scopeName = "github.com/junctor-run/junctor"

// resource describes this server.
func (e *exporter) resource() *resourcepb.Resource {
	return &resourcepb.Resource{Attributes: attributes(
		"service.name", "junctor", "service.version", e.cfg.Version, "service.instance.id", e.cfg.Instance)}
}

// attributes returns the pairs of a name and a value that is not "".
func attributes(pairs ...string) (list []*common.KeyValue) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			list = append(list, &common.KeyValue{
				Key: pairs[i], Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: pairs[i+1]}},
			})
		}
	}
	return list
}

// traces returns a request with the spans of calls: one of each call, and below it one of each state
// that the call was in. Names and attributes are those of the semantic conventions for generative AI
// (execute_tool) and MCP (tools/call), where these have one. Inputs and results are left out.
func traces(resource *resourcepb.Resource, calls []invoke.Ended) *collectortrace.ExportTraceServiceRequest {
	var spans []*tracepb.Span
	for i := range calls {
		spans = append(spans, spansOf(&calls[i])...)
	}
	return &collectortrace.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: resource, ScopeSpans: []*tracepb.ScopeSpans{{Scope: &common.InstrumentationScope{Name: scopeName}, Spans: spans}},
	}}}
}

func spansOf(c *invoke.Ended) []*tracepb.Span {
	if len(c.History) == 0 {
		return nil
	}
	trace, parent := traceOf(c)
	tool := cmp.Or(c.Action, text.ShortenRunes(text.Visible(c.Target.String()), 200))
	root := &tracepb.Span{
		TraceId: trace, SpanId: spanID(c.ID), ParentSpanId: parent, Kind: tracepb.Span_SPAN_KIND_SERVER, Name: "execute_tool " + tool,
		StartTimeUnixNano: nanos(c.History[0].At), EndTimeUnixNano: nanos(c.History[0].At.Add(c.Duration)),
		Attributes: attributes("gen_ai.operation.name", "execute_tool", "gen_ai.tool.name", tool, "gen_ai.tool.call.id", c.ID,
			"error.type", string(c.Code), "junctor.surface", c.Surface, "junctor.client", c.Client, "junctor.principal", c.Principal,
			"junctor.capability", c.Capability, "junctor.provider", c.Provided, "junctor.effect", string(c.Effect),
			"junctor.state", string(c.State)),
	}
	if c.Surface == "mcp" {
		root.Name = "tools/call " + tool
		root.Attributes = append(root.Attributes, attributes("mcp.method.name", "tools/call", "mcp.session.id", c.Session)...)
	}
	if c.Code != "" {
		root.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: string(c.Code)}
	}
	spans := []*tracepb.Span{root}
	for i, step := range c.History {
		end := c.History[0].At.Add(c.Duration)
		if i+1 < len(c.History) {
			end = c.History[i+1].At
		}
		if step.State.Terminal() || step.State == invoke.StateCreated {
			continue
		}
		span := &tracepb.Span{
			TraceId: trace, SpanId: spanID(c.ID + string(step.State) + step.At.String()), ParentSpanId: root.SpanId, Name: string(step.State),
			Kind: tracepb.Span_SPAN_KIND_INTERNAL, StartTimeUnixNano: nanos(step.At), EndTimeUnixNano: nanos(end),
		}
		if step.State == invoke.StateExecuting {
			span.Kind, span.Attributes = tracepb.Span_SPAN_KIND_CLIENT, attributes("junctor.provider", c.Provided)
		}
		spans = append(spans, span)
	}
	return spans
}

// traceOf returns the trace and the parent of a call: those that the caller named, else those of the
// call that made it, else a new trace.
func traceOf(c *invoke.Ended) (trace, parent []byte) {
	if c.Trace != "" {
		trace, _ = hex.DecodeString(c.Trace)
		parent, _ = hex.DecodeString(c.TraceParent)
	}
	if strings.HasPrefix(c.Parent, "run_") {
		parent = spanID(c.Parent)
	}
	if len(trace) != 16 {
		sum := sha256.Sum256([]byte(cmp.Or(c.Parent, c.ID)))
		trace = sum[:16]
	}
	if len(parent) != 8 {
		parent = nil
	}
	return trace, parent
}

func spanID(of string) []byte {
	sum := sha256.Sum256([]byte("span " + of))
	return sum[:8]
}

func nanos(t time.Time) uint64 { return uint64(max(0, t.UnixNano())) } //nolint:gosec // not negative

// points returns a request with the metrics of /metrics, under the same names.
func points(resource *resourcepb.Resource, families []*dto.MetricFamily, began, now time.Time,
) *collectormetrics.ExportMetricsServiceRequest {
	var list []*metricspb.Metric
	for _, f := range families {
		m := &metricspb.Metric{Name: f.GetName(), Description: f.GetHelp()}
		switch f.GetType() {
		case dto.MetricType_COUNTER:
			m.Data = &metricspb.Metric_Sum{Sum: &metricspb.Sum{
				AggregationTemporality: metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE, IsMonotonic: true,
				DataPoints: numbers(f, began, now, func(x *dto.Metric) float64 { return x.GetCounter().GetValue() }),
			}}
		case dto.MetricType_GAUGE:
			m.Data = &metricspb.Metric_Gauge{Gauge: &metricspb.Gauge{
				DataPoints: numbers(f, began, now, func(x *dto.Metric) float64 { return x.GetGauge().GetValue() }),
			}}
		case dto.MetricType_HISTOGRAM:
			h := &metricspb.Histogram{AggregationTemporality: metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE}
			for _, x := range f.GetMetric() {
				h.DataPoints = append(h.DataPoints, histogram(x, began, now))
			}
			m.Data = &metricspb.Metric_Histogram{Histogram: h}
		default:
			continue // summaries of the Go runtime are not exported
		}
		list = append(list, m)
	}
	return &collectormetrics.ExportMetricsServiceRequest{ResourceMetrics: []*metricspb.ResourceMetrics{{
		Resource: resource, ScopeMetrics: []*metricspb.ScopeMetrics{{Scope: &common.InstrumentationScope{Name: scopeName}, Metrics: list}},
	}}}
}

func labels(x *dto.Metric) []*common.KeyValue {
	var pairs []string
	for _, l := range x.GetLabel() {
		pairs = append(pairs, l.GetName(), l.GetValue())
	}
	return attributes(pairs...)
}

func numbers(f *dto.MetricFamily, began, now time.Time, value func(*dto.Metric) float64) (list []*metricspb.NumberDataPoint) {
	for _, x := range f.GetMetric() {
		list = append(list, &metricspb.NumberDataPoint{
			Attributes: labels(x), StartTimeUnixNano: nanos(began), TimeUnixNano: nanos(now),
			Value: &metricspb.NumberDataPoint_AsDouble{AsDouble: value(x)},
		})
	}
	return list
}

// histogram returns a point whose buckets are not cumulative, as OTLP has them.
func histogram(x *dto.Metric, began, now time.Time) *metricspb.HistogramDataPoint {
	h := x.GetHistogram()
	sum := h.GetSampleSum()
	p := &metricspb.HistogramDataPoint{
		Attributes: labels(x), StartTimeUnixNano: nanos(began), TimeUnixNano: nanos(now), Count: h.GetSampleCount(), Sum: &sum,
	}
	var before uint64
	for _, b := range h.GetBucket() {
		p.ExplicitBounds = append(p.ExplicitBounds, b.GetUpperBound())
		p.BucketCounts = append(p.BucketCounts, b.GetCumulativeCount()-before)
		before = b.GetCumulativeCount()
	}
	p.BucketCounts = append(p.BucketCounts, h.GetSampleCount()-before)
	return p
}
