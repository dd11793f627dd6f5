package plan_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/plan"
)

func local() *plan.HTTPFetcher {
	return plan.NewHTTPFetcher(plan.FetchConfig{Allow: netip.Addr.IsLoopback, Pause: func(context.Context, int) error { return nil }})
}

func get(t *testing.T, c *plan.HTTPFetcher, address string, limit int64) (string, error) {
	t.Helper()
	var b bytes.Buffer
	err := c.Fetch(t.Context(), address, &b, limit, func() error { b.Reset(); return nil })
	return b.String(), err
}

func server(t *testing.T) *httptest.Server {
	t.Helper()
	var busy atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "content") })
	mux.HandleFunc("/busy", func(w http.ResponseWriter, _ *http.Request) {
		if busy.Add(1) < 4 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "at last")
	})
	mux.HandleFunc("/down", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	mux.HandleFunc("/gone", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	mux.HandleFunc("/meta", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
	})
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
	})
	mux.HandleFunc("/hop/", func(w http.ResponseWriter, r *http.Request) {
		n := len(r.URL.Path) - len("/hop/")
		if n == 0 {
			fmt.Fprint(w, "there")
			return
		}
		http.Redirect(w, r, r.URL.Path[:len(r.URL.Path)-1], http.StatusFound)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func TestFetch(t *testing.T) {
	t.Parallel()
	s := server(t)
	for path, want := range map[string]string{"/ok": "content", "/busy": "at last", "/hop/xxxxx": "there"} {
		if got, err := get(t, local(), s.URL+path, 100); err != nil || got != want {
			t.Errorf("%s: %q %v; want no error, got = %v", path, got, err, want)
		}
	}
	for _, path := range []string{"/down", "/gone", "/meta", "/file", "/hop/xxxxxx"} {
		if _, err := get(t, local(), s.URL+path, 100); capability.CodeOf(err) != capability.CodeFailed ||
			capability.AsError(err).Reason != "download_failed" {
			t.Errorf(`%s: %v; want capability.CodeOf(err) = capability.CodeFailed, capability.AsError(err).Reason = "download_failed"`,
				path, err)
		}
	}
	if _, err := get(t, local(), s.URL+"/ok", 6); capability.CodeOf(err) != capability.CodeTooLarge {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeTooLarge", err)
	}
	if err := local().Check(t.Context(), s.URL+"/ok"); err != nil {
		t.Error(err)
	}
	if err := local().Check(t.Context(), s.URL+"/gone"); capability.AsError(err).Reason != "verification_failed" {
		t.Errorf(`%v; want capability.AsError(err).Reason = "verification_failed"`, err)
	}
}

func TestOnlyPublicAddressesAreReached(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := plan.NewHTTPFetcher(plan.FetchConfig{})
	for _, address := range []string{
		s.URL + "/ok", "https://127.0.0.1:1/", "https://[::1]:1/", "https://10.0.0.1/", "https://169.254.169.254/",
		"https://[::ffff:127.0.0.1]/", "https://100.64.0.1/", "https://0.0.0.0/",
		"https://[64:ff9b::7f00:1]/", "https://user@example.com/", "ftp://example.com/", "http://example.com/", "https:///x", ":",
		"https://localhost:1/",
	} {
		if _, err := get(t, c, address, 10); capability.CodeOf(err) != capability.CodeFailed {
			t.Errorf("%s: %v; want capability.CodeOf(err) = capability.CodeFailed", address, err)
		}
	}
}
