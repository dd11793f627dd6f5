package nodeserve

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestStrangersHoldNoConnectionsWithoutNumber: one address is refused what is too
// much, others are not, and who has been let in counts no more.
func TestStrangersHoldNoConnectionsWithoutNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		end := make(chan struct{})
		h := s.bounded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
		var all sync.WaitGroup
		defer all.Wait()
		defer close(end)
		connect := func(from string) int {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/nodes/connect", nil)
			r.RemoteAddr = from
			done := make(chan struct{})
			all.Go(func() { defer close(done); h.ServeHTTP(w, r) })
			synctest.Wait()
			select {
			case <-done:
				return w.Code
			default:
				return 0 // it is held open
			}
		}
		for range maxUnproven {
			if got := connect("192.0.2.1:1000"); got != 0 {
				t.Fatalf(`connect("192.0.2.1:1000") = %v, want 0`, got)
			}
		}
		if got := connect("192.0.2.1:2000"); got != http.StatusTooManyRequests {
			t.Errorf(`connect("192.0.2.1:2000") = %v, want http.StatusTooManyRequests`, got)
		}
		if got := connect("[::ffff:192.0.2.1]:2000"); got != http.StatusTooManyRequests {
			t.Errorf("the same address, written as one of version 6: %v; want got = http.StatusTooManyRequests", got)
		}
		if got := connect("192.0.2.2:1000"); got != 0 {
			t.Errorf(`connect("192.0.2.2:1000") = %v, want 0`, got)
		}
		for i := range maxUnproven {
			if got := connect("[2001:db8:0:1::" + string("0123456789abcdef"[i%16]) + "]:1"); got != 0 {
				t.Fatalf("connect = %v, want 0", got)
			}
		}
		if got := connect("[2001:db8:0:1::ffff]:1"); got != http.StatusTooManyRequests {
			t.Errorf("another address of the same network: %v; want got = http.StatusTooManyRequests", got)
		}
		time.Sleep(proofTimeout)
		synctest.Wait()
		if got := connect("192.0.2.1:3000"); got != 0 {
			t.Errorf("after those before have proven themselves: %v; want got = 0", got)
		}
	})
}
