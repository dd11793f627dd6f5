package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// TestResultsAreWrittenAsTheyCame: a provider's odd bytes must not turn work that
// was done into an internal error.
func TestResultsAreWrittenAsTheyCame(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{`"\ud800"`, `{"b":9007199254740993,"a":1.10}`, `1e400`} {
		w := httptest.NewRecorder()
		httpapi.WriteJSON(w, http.StatusOK, map[string]any{"result": jsonx.Raw(raw)})
		if got, want := w.Body.String(), `{"result":`+raw+`}`; w.Code != http.StatusOK || got != want {
			t.Errorf("%d %s, want %s", w.Code, got, want)
		}
	}
}
