package restserve_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/junctor-run/junctor/capability"
)

// TestACatalogIsReadInPages: the pages together are the whole, and a cursor from
// another generation says so instead of leaving something out.
func TestACatalogIsReadInPages(t *testing.T) {
	st := newStack(t, "")
	st.offer("far", "shop", "", capability.StateReady, "a", "b", "c", "d", "e", "f")
	type answer struct {
		Entries []struct{ CapabilityID string }
		Next    string
		Error   struct{ Code, Reason string }
	}
	get := func(query string) (status int, a answer) {
		status = st.do(http.MethodGet, "/api/v1/catalog/internal"+query, capability.RoleAdmin, "", &a)
		return status, a
	}
	_, whole := get("")
	if len(whole.Entries) != 7 || whole.Next != "" {
		t.Fatalf(`%+v; want len(whole.Entries) = 7, whole.Next = ""`, whole)
	}
	var parts []string
	cursor := ""
	for range 4 {
		_, a := get("?limit=2&cursor=" + cursor)
		for _, e := range a.Entries {
			parts = append(parts, e.CapabilityID)
		}
		if cursor = a.Next; cursor == "" {
			break
		}
	}
	if len(parts) != 7 || cursor != "" {
		t.Fatalf(`%v, then %q; want len(parts) = 7, cursor = ""`, parts, cursor)
	}
	for i, e := range whole.Entries {
		if parts[i] != e.CapabilityID {
			t.Errorf("%d: %s, want %s", i, parts[i], e.CapabilityID)
		}
	}
	_, first := get("?limit=2")
	st.offer("near", "shop2", "", capability.StateReady, "z")
	if status, a := get("?limit=2&cursor=" + first.Next); status != http.StatusConflict || a.Error.Reason != "stale_cursor" {
		t.Errorf(`%d %+v; want status = http.StatusConflict, a.Error.Reason = "stale_cursor"`, status, a)
	}
	for _, bad := range []string{
		"?limit=0", "?limit=x", "?limit=10001", "?cursor=1.2", "?limit=2&cursor=x", "?limit=2&cursor=1.-1",
		fmt.Sprintf("?limit=2&cursor=%s", "99999999999999999999.1"),
	} {
		if status, a := get(bad); status != http.StatusBadRequest || a.Error.Code != "invalid_input" {
			t.Errorf(`%s: %d %+v; want status = http.StatusBadRequest, a.Error.Code = "invalid_input"`, bad, status, a)
		}
	}
}
