package telemetry

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/junctor-run/junctor/internal/base/pause"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/secret"
)

// ExportConfig configures the export of calls and metrics to an OpenTelemetry collector.
type ExportConfig struct {
	// Endpoint is the URL of an OTLP receiver over HTTP, without v1/traces; "" exports nothing.
	Endpoint string
	// Token returns what is sent as Authorization: Bearer; nil: nothing.
	Token func() (secret.Value, error)
	// Version and Instance are those of the server.
	Version, Instance string
	Logger            *slog.Logger
}

// exporter sends finished calls as spans, and the metrics, as OTLP/HTTP in binary protobuf. A
// collector that is slow or down delays no call.
type exporter struct {
	cfg     ExportConfig
	metrics *Metrics
	http    *http.Client
	queue   chan invoke.Ended
	dropped atomic.Uint64
	failure atomic.Pointer[string] // of the last request; nil: the collector took it
	began   time.Time
	spans   time.Duration // the interval; tests shorten it
	gather  time.Duration
}

// Export makes m send what it counts to a collector while [Metrics.Run] runs. It must be called
// before calls are counted.
func (m *Metrics) Export(cfg ExportConfig) {
	if cfg.Endpoint == "" {
		return
	}
	cfg.Endpoint = strings.TrimSuffix(cfg.Endpoint, "/")
	m.exporter = &exporter{
		cfg: cfg, metrics: m, queue: make(chan invoke.Ended, maxQueue), began: time.Now(), spans: spanInterval, gather: metricsInterval,
		http: &http.Client{
			Timeout: exportTimeout, Transport: http.DefaultTransport.(*http.Transport).Clone(),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	m.Gauge("otel_dropped", "Calls that were not exported, because the collector was slower than the calls.",
		func() float64 { return float64(m.exporter.dropped.Load()) })
}

// Run exports until ctx ends, and then what is left, for a few seconds.
func (m *Metrics) Run(ctx context.Context) {
	if m.exporter != nil {
		m.exporter.run(ctx)
	}
}

// add queues a finished call, or drops it.
func (e *exporter) add(ended invoke.Ended) {
	select {
	case e.queue <- ended:
	default:
		e.dropped.Add(1)
	}
}

func (e *exporter) run(ctx context.Context) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { // what is being sent, and what is left, has some time
		if pause.For(life, flushTimeout) == nil {
			cancel()
		}
	})()
	spans, metrics := time.NewTicker(e.spans), time.NewTicker(e.gather)
	defer spans.Stop()
	defer metrics.Stop()
	for {
		select {
		case <-spans.C:
			e.flush(life)
		case <-metrics.C:
			e.sendMetrics(life)
		case <-ctx.Done():
			e.flush(life)
			e.sendMetrics(life)
			return
		}
	}
}

// flush sends the calls that wait.
func (e *exporter) flush(ctx context.Context) {
	for ctx.Err() == nil {
		var batch []invoke.Ended
		for len(batch) < maxBatch {
			select {
			case ended := <-e.queue:
				batch = append(batch, ended)
				continue
			default:
			}
			break
		}
		if len(batch) == 0 {
			return
		}
		if !e.send(ctx, "/v1/traces", traces(e.resource(), batch)) {
			e.dropped.Add(uint64(len(batch)))
		}
	}
}

func (e *exporter) sendMetrics(ctx context.Context) {
	families, err := e.metrics.registry.Gather()
	if err != nil {
		e.cfg.Logger.Warn("metrics cannot be gathered", "err", err)
		return
	}
	e.send(ctx, "/v1/metrics", points(e.resource(), families, e.began, time.Now()))
}

// send makes a request, and repeats it where the protocol permits that. It reports whether the
// collector took it. The first failure and the end of failures are logged.
func (e *exporter) send(ctx context.Context, path string, message proto.Message) bool {
	body, err := encode(message)
	if err == nil {
		err = e.attempt(ctx, path, body)
	}
	if err == nil {
		if e.failure.Swap(nil) != nil {
			e.cfg.Logger.Info("the OpenTelemetry collector takes exports again")
		}
		return true
	}
	why := err.Error()
	if e.failure.Swap(&why) == nil {
		e.cfg.Logger.Warn("the OpenTelemetry collector did not take an export", "err", err)
	}
	return false
}

// Checks returns the finding about the collector, if there is one.
func (m *Metrics) Checks() []httpapi.Check {
	if m.exporter == nil {
		return nil
	}
	c := httpapi.Check{Name: "OpenTelemetry", OK: true, Detail: "the collector takes what is exported"}
	if why := m.exporter.failure.Load(); why != nil {
		c.OK, c.Detail = false, "the last export failed: "+*why
		c.Remedy = "see that the collector takes OTLP over HTTP at otel.endpoint, and the token that otel.token_secret names; calls go on without it"
	}
	return []httpapi.Check{c}
}

func encode(message proto.Message) ([]byte, error) {
	data, err := proto.Marshal(message)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	return out.Bytes(), err
}

func (e *exporter) attempt(ctx context.Context, path string, body []byte) error {
	delay := firstDelay
	for attempt := 1; ; attempt++ {
		wait, err := e.post(ctx, path, body)
		if err == nil || wait < 0 || attempt == maxAttempts || len(e.queue) > maxQueue/2 {
			return err
		}
		if pause.For(ctx, min(max(wait, delay/2+rand.N(delay/2)), maxDelay)) != nil { //nolint:gosec // spreads attempts
			return err
		}
		delay *= 2
	}
}

// post makes one request. A pause of less than 0 means that it must not be repeated. Errors do not
// contain the URL, which may hold a credential.
func (e *exporter) post(ctx context.Context, path string, body []byte) (wait time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.cfg.Endpoint+path, bytes.NewReader(body))
	if err != nil {
		return -1, fmt.Errorf("%s: the URL cannot be used", path)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "gzip")
	req.Header.Set("User-Agent", "junctor/"+cmp.Or(e.cfg.Version, "dev"))
	if e.cfg.Token != nil {
		token, err := e.cfg.Token()
		if err != nil {
			return -1, fmt.Errorf("the token of the collector is not stored: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+token.Reveal())
	}
	res, err := e.http.Do(req)
	if err != nil {
		return 0, fmt.Errorf("%s: the collector cannot be reached, or does not answer", path)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // so that the connection is used again
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		return time.Duration(min(max(seconds, 0), 3600)) * time.Second, fmt.Errorf("%s: the collector answered %s", path, res.Status)
	}
	if res.StatusCode/100 != 2 {
		return -1, fmt.Errorf("%s: the collector answered %s", path, res.Status)
	}
	return 0, nil
}
