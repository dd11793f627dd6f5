package conformance_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/conformance"
	"github.com/junctor-run/junctor/internal/endpoints/reference"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func endpoint(t *testing.T, token string) *httptest.Server {
	t.Helper()
	ep, err := reference.New(reference.Config{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(router.Handler(router.RequireToken(secret.New(token), ep), router.HandlerOptions{}))
	t.Cleanup(func() { server.Close(); ep.Close() })
	return server
}

func TestReferenceEndpointConforms(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"", "a-token"} {
		server := endpoint(t, token)
		var report conformance.Report
		for _, dialect := range dialects {
			var err error
			report, err = conformance.Run(t.Context(), conformance.Options{BaseURL: server.URL, Token: secret.New(token), Dialect: dialect})
			if err != nil || len(report.Warnings) > 0 {
				t.Fatalf("token %q, dialect %s:\n%v\n%v\nwant no error, len(report.Warnings) at most 0",
					token, dialect, err, report.Warnings)
			}
		}
		var driven []string
		for surface := range report.Exercised {
			driven = append(driven, surface)
		}
		slices.Sort(driven)
		want := conformance.Surfaces()
		slices.Sort(want)
		if diff := cmp.Diff(want, driven); diff != "" {
			t.Errorf("diff (-want +got):\n%s", diff)
		}
		if report.ModuleCount != 2 || len(report.RPCCalls) < 18 {
			t.Errorf("modules %d, calls %d; want report.ModuleCount = 2, len(report.RPCCalls) at least 18",
				report.ModuleCount, len(report.RPCCalls))
		}
	}
}

func TestWrongOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]conformance.Options{
		"surface": {BaseURL: "http://127.0.0.1:1", Required: []string{"views"}}, "dialect": {BaseURL: "http://127.0.0.1:1", Dialect: "x"},
		"URL": {BaseURL: "ftp://x"},
	} {
		if _, err := conformance.Run(t.Context(), opts); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%s: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", name, err)
		}
	}
}

// TestUnionWarnsOfWhatOthersRefuse: a refusal of one generation is not a fault for
// our own router, but it is said.
func TestUnionWarnsOfWhatOthersRefuse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		how   breakage
		where string
		says  string
	}{
		{"public route without a reason", item("routes", "public", true), "dialect n", "routes[0].publicReason"},
		{"old slot", item("widgets", "slot", "wallet"), "dialect n", "widgets[0].slot"},
		{"xr view", item("views", "viewType", "xr"), "dialect s", "views[0].viewType"},
		{"developers in the new spelling only", item("widgets", "viewKind", "developer"), "dialect s", "widgets[0].viewKind"},
		{"developers in the new spelling only, of an app", item("app", "viewKind", "developer"), "dialect s", "app.viewKind"},
		{"a tab for developers in the old spelling only", item("app", "navTabs",
			[]any{object{"id": "a", "label": "a", "path": "/a", "developerOnly": true}}), "dialect n", "app.navTabs[0].developerOnly"},
		{"signed", item("", "provenance", object{
			"issuer": "i", "subject": "s", "digestSha256": strings.Repeat("0", 64),
			"signatureAlgorithm": "ed25519", "signature": "x",
		}), "dialect s", "provenance"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ep, err := reference.New(reference.Config{})
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(tt.how(router.Handler(router.RequireToken(secret.Value{}, ep), router.HandlerOptions{})))
			defer server.Close()
			report, err := conformance.Run(t.Context(), conformance.Options{BaseURL: server.URL, OnlyOriginal: true})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(report.Warnings, func(f conformance.Fault) bool {
				return f.Where == tt.where &&
					strings.Contains(f.Message, tt.says)
			}) {
				t.Errorf("no warning of %s: %v", tt.says, report.Warnings)
			}
		})
	}
}

// An endpoint that only our further checks find fault with passes for elizaOS, with warnings.
func TestTheProfileOfElizaOSMakesOurFurtherChecksWarnings(t *testing.T) {
	t.Parallel()
	ep, err := reference.New(reference.Config{})
	if err != nil {
		t.Fatalf("the reference endpoint: got %v, want no error", err)
	}
	sound := router.Handler(router.RequireToken(secret.New("right"), ep), router.HandlerOptions{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer right" {
			http.Error(w, "who are you", http.StatusForbidden) // the harness of elizaOS does not look at this
			return
		}
		sound.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	opts := conformance.Options{BaseURL: server.URL, Token: secret.New("right")}
	strict, err := conformance.Run(t.Context(), opts)
	if err == nil || len(strict.Failures) == 0 {
		t.Fatalf("without a profile: got %v with %v, want failures", err, strict.Failures)
	}
	opts.Profile = conformance.ProfileElizaOS
	report, err := conformance.Run(t.Context(), opts)
	if err != nil || len(report.Failures) > 0 || len(report.Warnings) < len(strict.Failures) {
		t.Errorf("profile elizaos: got %v, failures %v and %d warnings; want no failure and the %d failures as warnings", err, report.Failures,
			len(report.Warnings), len(strict.Failures))
	}
	opts.Profile = "eliza"
	if _, err := conformance.Run(t.Context(), opts); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("an unknown profile: got %v, want invalid_input", err)
	}
}

func TestWrongTokenIsNamed(t *testing.T) {
	t.Parallel()
	server := endpoint(t, "right")
	_, err := conformance.Run(t.Context(), conformance.Options{BaseURL: server.URL, Token: secret.New("wrong")})
	if err == nil {
		t.Fatal("a wrong token passes; want an error")
	}
}

// TestEveryMethodIsExercised holds the harness to the method table: a new plugin
// method that no driver calls fails here by name.
func TestEveryMethodIsExercised(t *testing.T) {
	t.Parallel()
	server := endpoint(t, "")
	report, err := conformance.Run(t.Context(), conformance.Options{BaseURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range router.Methods() {
		if m.Family != router.FamilyPlugin || m.Name == "plugin.modules.list" {
			continue
		}
		if !slices.ContainsFunc(report.RPCCalls, func(c conformance.RPC) bool { return c.Method == m.Name }) {
			t.Errorf("conformance never calls %s", m.Name)
		}
	}
}
