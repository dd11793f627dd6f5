package livereport_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/conformance"
	"github.com/junctor-run/junctor/conformance/livereport"
	"github.com/junctor-run/junctor/internal/endpoints/reference"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

var observed = time.Date(2026, 3, 1, 13, 0, 0, 123456789, time.FixedZone("", 3600))

// live runs conformance against the reference endpoint and reports on it.
func live(t *testing.T) livereport.Report {
	t.Helper()
	ep, err := reference.New(reference.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(router.Handler(router.RequireToken(secret.New("a-token"), ep), router.HandlerOptions{}))
	t.Cleanup(func() { server.Close(); ep.Close() })
	const id = "home-machine-live"
	opts := conformance.Options{EndpointID: id, BaseURL: server.URL, Token: secret.New("a-token"), OnlyOriginal: true}
	report, err := conformance.Run(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	client, err := router.NewClient(router.ClientConfig{ID: id, BaseURL: server.URL, Token: secret.New("a-token")})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdle()
	modules, err := client.Modules(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	policy := router.TrustPolicy{AllowedModuleIDs: report.ModuleIDs}
	out := livereport.Report{
		Kind: "provider", EndpointID: id, ObservedAt: observed, Provider: "home-machine", EndpointURL: server.URL,
		Conformance: report, Modules: modules, LocalPlugins: 3, LocalCounts: map[string]int{"actionCount": 20},
	}
	for i := range modules {
		out.Decisions = append(out.Decisions, policy.Decide(&modules[i], id))
	}
	return out
}

func options(kind string) livereport.Options {
	return livereport.Options{Kind: kind, MaxAge: time.Hour, MaxFuture: time.Minute, RequireFileIdentity: true, Now: observed.Add(time.Minute)}
}

func TestAWrittenReportValidates(t *testing.T) {
	t.Parallel()
	provider := live(t)
	env := map[string]string{
		"GITHUB_RUN_ID": "12", "GITHUB_RUN_ATTEMPT": "1", "GITHUB_WORKFLOW": "live", "GITHUB_EVENT_NAME": "schedule",
		"GITHUB_REPOSITORY": "o/r", "GITHUB_SHA": strings.Repeat("a", 40), "GITHUB_REF": "refs/heads/main",
	}
	provider.CI = livereport.CIFrom(func(name string) string { return env[name] })
	cloud := live(t)
	cloud.Kind, cloud.Provider, cloud.EndpointURL = "cloud", "", ""
	cloud.AgentID, cloud.CloudAPIBase = "agent-1", "https://api.example.com"
	sandbox := live(t)
	sandbox.Provider = "e2b"
	for name, report := range map[string]livereport.Report{"home-machine": provider, "cloud": cloud, "e2b": sandbox} {
		dir := t.TempDir()
		path, err := livereport.Write(dir, report)
		if err != nil || path != filepath.Join(dir, name+".json") {
			t.Fatalf(`%s: %q, %v; want no error, path = filepath.Join(dir, name+".json")`, name, path, err)
		}
		opts := options(report.Kind)
		if report.CI != nil {
			opts.RequireCI, opts.GitHub = true, env
		}
		if n, problems := livereport.Files([]string{dir}, opts, livereport.Set{MinCount: 1, MaxCount: 1}); n != 1 || len(problems) > 0 {
			t.Errorf("%s: %v; want n = 1, len(problems) at most 0", name, problems)
		}
		was, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(was), `"observedAt": "2026-03-01T12:00:00.123Z"`) {
			t.Errorf(`%s: the time is not exact to the millisecond; want string(was) with "\"observedAt\": \"2026-03-01T12:00:00.123Z\""`,
				name)
		}
		if _, err := livereport.Write(dir, report); capability.CodeOf(err) != capability.CodeConflict {
			t.Errorf("%s: a second time: %v; want capability.CodeOf(err) = capability.CodeConflict", name, err)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != string(was) {
			t.Errorf("%s: the report was overwritten: %v; want no error, string(now) = %v", name, err, string(was))
		}
	}
	if livereport.CIFrom(func(string) string { return "" }) != nil {
		t.Error("a run outside of a workflow has a CI block")
	}
}

func TestWithoutAFolderNoReportIsWritten(t *testing.T) {
	t.Parallel()
	if path, err := livereport.Write("", livereport.Report{}); path != "" || err != nil {
		t.Errorf(`%q, %v; want path = "", no error`, path, err)
	}
}

func TestAReportThatDoesNotHoldIsNotWritten(t *testing.T) {
	t.Parallel()
	base := live(t)
	for _, tt := range []struct {
		name   string
		change func(*livereport.Report)
		want   string
	}{
		{"kind", func(r *livereport.Report) { r.Kind = "laptop" }, "cloud or provider"},
		{"provider name", func(r *livereport.Report) { r.Provider = "../evil" }, "lower-case"},
		{"no provider", func(r *livereport.Report) { r.Provider = "" }, "lower-case"},
		{"provider with an agent", func(r *livereport.Report) { r.AgentID = "a" }, "no agent id"},
		{"cloud with a provider", func(r *livereport.Report) { r.Kind = "cloud" }, "no provider"},
		{"cloud without an agent", func(r *livereport.Report) {
			r.Kind, r.Provider, r.EndpointURL = "cloud", "", ""
		}, "agentId"},
		{"URL with credentials", func(r *livereport.Report) { r.EndpointURL = "https://user:word@example.com" }, "credentials"},
		{"other endpoint", func(r *livereport.Report) { r.EndpointID = "another" }, "endpointId"},
		{"other runtime", func(r *livereport.Report) { r.EndpointRuntime = "laptop" }, "endpointRuntime"},
		{"other modules", func(r *livereport.Report) { r.Modules = r.Modules[:1] }, "are not those"},
		{"no decision", func(r *livereport.Report) { r.Decisions = nil }, "sync.registered"},
		{"failed run", func(r *livereport.Report) {
			r.Conformance.Failures = []conformance.Fault{{Where: "auth", Message: "open"}}
		}, "auth: open"},
		{"skipped without a refusal", func(r *livereport.Report) { r.Skipped = []string{"@x/y"} }, "sync.trustDecisions"},
		{"secret in a result", func(r *livereport.Report) {
			r.Conformance.ModelResult = []byte(`{"result":"Bearer abcdefghijklm"}`)
		}, "credential"},
		{"CI", func(r *livereport.Report) { r.CI = &livereport.CI{RunID: "x"} }, "ci.runId"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			report := base
			tt.change(&report)
			dir := t.TempDir()
			_, err := livereport.Write(dir, report)
			if capability.CodeOf(err) != capability.CodeInvalidInput || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v does not say %q; want capability.CodeOf(err) = capability.CodeInvalidInput, err.Error() with %v",
					err, tt.want, tt.want)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("%s was written; want len(left) at most 0", left[0].Name())
			}
		})
	}
	if _, err := livereport.Write(filepath.Join(t.TempDir(), "none"), base); capability.CodeOf(err) != capability.CodeFailed ||
		!errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v; want capability.CodeOf(err) = capability.CodeFailed, err is os.ErrNotExist", err)
	}
}

func TestCountsFollowTheManifest(t *testing.T) {
	t.Parallel()
	hooks := func(names ...string) *router.Hooks { return &router.Hooks{Hooks: names} }
	for _, tt := range []struct {
		name   string
		module router.Module
		want   int
	}{
		{"nothing", router.Module{}, 0},
		{"a bridge alone", router.Module{AppBridge: hooks("stopRun")}, 2},
		{"hooks alone", router.Module{Lifecycle: hooks("init", "applyConfig")}, 2},
		{"both", router.Module{AppBridge: hooks("stopRun"), Lifecycle: hooks("init", "applyConfig")}, 3},
	} {
		if got := livereport.Counts(&tt.module)["lifecycleCount"]; got != tt.want {
			t.Errorf("%s: %d functions, want %d", tt.name, got, tt.want)
		}
	}
	modules := live(t).Modules
	got := livereport.Counts(&modules[0])
	want := map[string]int{
		"actionCount": 2, "providerCount": 1, "evaluatorCount": 0, "responseHandlerEvaluatorCount": 1, "responseHandlerFieldEvaluatorCount": 1,
		"routeCount": 0, "modelCount": 1, "eventCount": 1, "serviceCount": 1, "appCount": 1, "appBridgeCount": 1, "lifecycleCount": 3,
		"widgetCount": 1, "componentTypeCount": 0, "viewCount": 0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
}

func TestTheFingerprintIsOfTheURLAsBrowsersWriteIt(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://example.com":                   "https://example.com/",
		"  HTTPS://Example.COM:443//?a=b#c  ":   "https://example.com/",
		"http://example.com:80/a/b//":           "http://example.com/a/b",
		"http://example.com:8080/a/../b%20c/":   "http://example.com:8080/b%20c",
		"http://[2001:DB8:0:0:0:0:0:1]:81/":     "http://[2001:db8::1]:81/",
		"http://127.0.0.1:7000/v?token=ignored": "http://127.0.0.1:7000/v",
	} {
		sum := sha256.Sum256([]byte(want))
		if got, err := livereport.URLHash(raw); err != nil || got != hex.EncodeToString(sum[:]) {
			t.Errorf("%q is not taken for %q: %v; want no error, got = hex.EncodeToString(sum[:])", raw, want, err)
		}
	}
	for _, raw := range []string{"", "example.com", "ftp://example.com/", "http://u@example.com/", "http:///x", "http://exämple.com/"} {
		if _, err := livereport.URLHash(raw); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%q: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", raw, err)
		}
	}
}
