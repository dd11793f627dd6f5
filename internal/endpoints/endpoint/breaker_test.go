package endpoint_test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint"
)

// clock is a time that the test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// An endpoint that answers when asked and breaks when called is left alone; the
// others are not touched.
func TestAnEndpointThatBreaksCallsIsLeftAlone(t *testing.T) {
	t.Parallel()
	now := &clock{now: time.Now()}
	r := newRig(t, func(c *endpoint.Config) { c.Now = now.Now })
	h, _ := scripted(t, manifest("m", `"services":[{"serviceType":"s","methods":["run"]}]`))
	other, _ := scripted(t, manifest("other", oneAction))
	inner := h.handler
	var breaks atomic.Bool
	var calls atomic.Int64
	h.stop()
	h.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost {
			body, _ := readAll(req)
			if strings.Contains(string(body), "plugin.service.call") {
				calls.Add(1)
				if breaks.Load() {
					panic(http.ErrAbortHandler)
				}
			}
			req.Body = readCloser{strings.NewReader(string(body))}
		}
		inner.ServeHTTP(w, req)
	})
	h.start()
	r.connect("e", h)
	r.connect("o", other)
	call := func() error { _, err := r.call("m:service:s.run", `{"args":[]}`); return err }
	breaks.Store(true)
	for range 4 {
		fails(t, call(), capability.CodeFailed, "connection_failed")
	}
	breaks.Store(false)
	if err := call(); err != nil {
		t.Fatal(err)
	}
	breaks.Store(true)
	for range 5 { // the answer in between closed the count
		if r.state("e") != capability.StateReady {
			t.Fatalf(`%s; want r.state("e") = capability.StateReady`, r.state("e"))
		}
		fails(t, call(), capability.CodeFailed, "connection_failed")
	}
	if st, _ := r.Show("e"); st.State != capability.StateUnavailable || !strings.Contains(st.Reason, "circuit open") ||
		r.events(audit.EndpointDown) != 1 {
		t.Errorf(`%+v; want st.State = capability.StateUnavailable, st.Reason with "circuit open", r.events(audit.EndpointDown) = 1`,
			st)
	}
	n := calls.Load()
	for range 20 {
		if e := fails(t, call(), capability.CodeUnavailable, "provider_unavailable"); !strings.Contains(e.Message, "circuit open") {
			t.Errorf(`e.Message = %q, want it to contain "circuit open"`, e.Message)
		}
	}
	if calls.Load() != n {
		t.Errorf("it was called; want calls.Load() = %v", n)
	}
	r.must("other:action:GO", `{}`)
	// Half-open: the next call decides. Lost, it is open for longer.
	now.move(1500 * time.Millisecond)
	fails(t, call(), capability.CodeFailed, "connection_failed")
	now.move(1500 * time.Millisecond)
	fails(t, call(), capability.CodeUnavailable, "provider_unavailable")
	now.move(time.Second)
	breaks.Store(false)
	if err := call(); err != nil {
		t.Fatal(err)
	}
	r.eventually("it is ready", func() bool { return r.state("e") == capability.StateReady })
	breaks.Store(true)
	for range 4 { // closed: the count begins again
		fails(t, call(), capability.CodeFailed, "connection_failed")
	}
	if r.state("e") != capability.StateReady {
		t.Errorf(`r.state("e") = %q, want capability.StateReady`, r.state("e"))
	}
}
