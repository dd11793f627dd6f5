package httpapi

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// HeaderMissing is the header of responses about the catalog that holds the number of providers
// that were not reached since the server started.
const HeaderMissing = "Junctor-Missing-Providers"

// Startup is the state of a server that starts, serves and stops. It listens before its providers are
// back, so requests that need them are held until then. It is safe for concurrent use.
type Startup struct {
	grace   time.Duration
	missing func() int
	begun   chan struct{} // closed by Begin
	once    sync.Once
	ready   atomic.Bool
	whole   atomic.Bool // every provider was reached
}

// NewStartup returns the state of a server that starts. A request is held for grace at most, and
// missing returns the number of providers that were not reached since the start.
func NewStartup(grace time.Duration, missing func() int) *Startup {
	return &Startup{grace: grace, missing: missing, begun: make(chan struct{})}
}

// Begin releases held requests. The server is ready from then on.
func (s *Startup) Begin() {
	s.once.Do(func() { close(s.begun) })
	s.ready.Store(true)
}

// Begun returns a channel that Begin closes.
func (s *Startup) Begun() <-chan struct{} { return s.begun }

// End marks the server as not ready.
func (s *Startup) End() { s.ready.Store(false) }

// Ready reports whether the server serves and does not stop.
func (s *Startup) Ready() bool { return s.ready.Load() }

// Missing returns the number of providers that were not reached since the start.
func (s *Startup) Missing() int {
	if s.whole.Load() {
		return 0
	}
	n := s.missing()
	if n == 0 && s.Ready() {
		s.whole.Store(true)
	}
	return n
}

// Hold returns a handler that holds requests for the paths with one of the prefixes while the
// server starts. Their responses have [HeaderMissing] if providers are missing.
func (s *Startup) Hold(next http.Handler, prefixes ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.whole.Load() && slices.ContainsFunc(prefixes, func(p string) bool {
			return r.URL.Path == p || strings.HasPrefix(r.URL.Path, p+"/")
		}) {
			s.hold(w, r)
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Startup) hold(w http.ResponseWriter, r *http.Request) {
	select {
	case <-s.begun:
	default:
		timer := time.NewTimer(s.grace)
		defer timer.Stop()
		select {
		case <-s.begun:
		case <-timer.C:
		case <-r.Context().Done():
		}
	}
	if n := s.Missing(); n > 0 {
		w.Header().Set(HeaderMissing, strconv.Itoa(n))
	}
}
