package httpapi_test

import (
	"net/http/httptest"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

func TestQueryParametersAreWithinTheirBounds(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]int{
		"": 7, "?n=": 7, "?n=2": 2, "?n=9": 9, "?n=1": -1, "?n=10": -1, "?n=-3": -1, "?n=x": -1, "?n=9223372036854775808": -1,
	} {
		got, err := httpapi.Number(httptest.NewRequest("GET", "/"+query, nil), "n", 7, 2, 9)
		if want < 0 {
			if e := capability.AsError(err); err == nil || e.Code != capability.CodeInvalidInput || e.Reason != "bad_query" {
				t.Errorf("Number of %q: %d %v; want an error with the reason bad_query", query, got, err)
			}
		} else if got != want || err != nil {
			t.Errorf("Number of %q: got %d %v, want %d", query, got, err, want)
		}
	}
	for query, want := range map[string]bool{"": false, "?f=": false, "?f=0": false, "?f=true": true, "?f=1": true} {
		if got, err := httpapi.Flag(httptest.NewRequest("GET", "/"+query, nil), "f"); got != want || err != nil {
			t.Errorf("Flag of %q: got %t %v, want %t", query, got, err, want)
		}
	}
	if got, err := httpapi.Flag(httptest.NewRequest("GET", "/?f=yes", nil), "f"); err == nil {
		t.Errorf("Flag of yes: got %t, want an error", got)
	}
}
