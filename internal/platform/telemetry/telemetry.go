// Package telemetry sets up the structured log and the Prometheus registry behind /metrics.
// Metrics contain actions and codes, never inputs, principals or secrets. Label values come
// from fixed sets or are names of installed modules. Both metrics and calls can be exported to an
// OpenTelemetry collector; the spans of calls name the principal.
package telemetry

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/invoke"
)

// NewLogger returns a logger writing to w. level is debug, info, warn or error;
// format is text or json.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q: %w", level, err)
	}
	opts := &slog.HandlerOptions{Level: l}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return slog.New(slog.NewTextHandler(w, opts)), nil
}

// Metrics counts finished invocations. It implements invoke.Observer.
type Metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	overhead *prometheus.HistogramVec
	runs     *prometheus.HistogramVec
	exporter *exporter // nil: nothing is exported
	known    sync.Map  // series → *meters; a cache, because looking up a metric costs more than counting
}

// series holds the label values that an invocation is counted under.
type series struct {
	surface, provider string
	effect            capability.Effect
	state             invoke.State
	code              capability.Code
}

type meters struct {
	calls              prometheus.Counter
	duration, overhead prometheus.Observer
}

// NewMetrics returns metrics with the process and Go collectors registered.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "junctor_invocations_total", Help: "Finished invocations.",
		}, []string{"surface", "provider", "effect", "state", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "junctor_invocation_seconds", Help: "Whole duration of an invocation.",
			NativeHistogramBucketFactor: 1.1, Buckets: prometheus.DefBuckets,
		}, []string{"surface", "provider"}),
		overhead: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "junctor_overhead_seconds", Help: "Duration of an invocation outside its provider.",
			NativeHistogramBucketFactor: 1.1, Buckets: prometheus.ExponentialBuckets(10e-6, 2, 12),
		}, []string{"surface"}),
	}
	m.runs = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "junctor_run_seconds", Help: "Duration of the runs of extensions.",
		NativeHistogramBucketFactor: 1.1, Buckets: prometheus.DefBuckets,
	}, []string{"extension", "runner", "outcome", "sandbox"})
	m.registry.MustRegister(m.calls, m.duration, m.overhead, m.runs,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Finished implements invoke.Observer.
func (m *Metrics) Finished(e invoke.Ended) {
	if m.exporter != nil {
		m.exporter.add(e)
	}
	at := series{e.Surface, e.ProviderKind, e.Effect, e.State, e.Code}
	code := cmp.Or(string(e.Code), "ok")
	found, ok := m.known.Load(at)
	if !ok {
		provider, effect := cmp.Or(e.ProviderKind, "none"), cmp.Or(string(e.Effect), "none")
		found, _ = m.known.LoadOrStore(at, &meters{
			calls:    m.calls.WithLabelValues(e.Surface, provider, effect, string(e.State), code),
			duration: m.duration.WithLabelValues(e.Surface, provider), overhead: m.overhead.WithLabelValues(e.Surface),
		})
	}
	if k, ok := found.(*meters); ok {
		k.calls.Inc()
		k.duration.Observe(e.Duration.Seconds())
		k.overhead.Observe((e.Duration - e.Provider).Seconds())
	}
	if e.Runner != "" {
		m.runs.WithLabelValues(e.Extension, e.Runner, code, e.Sandbox).Observe(e.Duration.Seconds())
	}
}

// Gauge registers a gauge junctor_<name> whose value is read at scrape time.
func (m *Metrics) Gauge(name, help string, read func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "junctor_" + strings.TrimPrefix(name, "junctor_"), Help: help,
	}, read))
}

// Handler serves the registry in the Prometheus text formats.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
