package conformance_test

import (
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/conformance"
	"github.com/junctor-run/junctor/internal/reference"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

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
				t.Fatalf("token %q, dialect %s:\n%v\n%v", token, dialect, err, report.Warnings)
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
			t.Error(diff)
		}
		if report.ModuleCount != 2 || len(report.RPCCalls) < 18 {
			t.Errorf("modules %d, calls %d", report.ModuleCount, len(report.RPCCalls))
		}
	}
}

func TestWrongTokenIsNamed(t *testing.T) {
	t.Parallel()
	server := endpoint(t, "right")
	_, err := conformance.Run(t.Context(), conformance.Options{BaseURL: server.URL, Token: secret.New("wrong")})
	if err == nil {
		t.Fatal("a wrong token passes")
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
