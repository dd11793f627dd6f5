package telemetry_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/platform/telemetry"
)

func TestLogger(t *testing.T) {
	var out bytes.Buffer
	l, err := telemetry.NewLogger(&out, "warn", "json")
	if err != nil {
		t.Fatal(err)
	}
	l.Info("quiet")
	l.Warn("loud", "n", 1)
	if got := out.String(); strings.Contains(got, "quiet") || !strings.HasPrefix(got, `{"time":`) ||
		!strings.Contains(got, `"msg":"loud","n":1`) {
		t.Errorf(`%s; want got without "quiet", got beginning with "{\"time\":", got with "\"msg\":\"loud\",\"n\":1"`, got)
	}
	if _, err := telemetry.NewLogger(&out, "shout", "text"); err == nil {
		t.Error("an unknown level is taken; want an error")
	}
}

func TestMetrics(t *testing.T) {
	m := telemetry.NewMetrics()
	m.Gauge("junctor_things", "How many things.", func() float64 { return 3 })
	m.Finished(invoke.Ended{
		Surface: "http", ProviderKind: "node", Effect: capability.EffectRead, State: invoke.StateCompleted,
		Duration: time.Millisecond,
	})
	m.Finished(invoke.Ended{Surface: "mcp", State: invoke.StateFailed, Code: capability.CodeDenied})
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{
		`junctor_invocations_total{code="ok",effect="read",provider="node",state="completed",surface="http"} 1`,
		`junctor_invocations_total{code="denied",effect="none",provider="none",state="failed",surface="mcp"} 1`,
		`junctor_invocation_seconds_count{provider="node",surface="http"} 1`,
		`junctor_overhead_seconds_count{surface="http"} 1`,
		"junctor_things 3",
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("lacks %s; want w.Body.String() with %v", want, want)
		}
	}
}
