package nodeserve

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// unproven counts connections that may be any caller's.
type unproven struct {
	mu  sync.Mutex
	by  map[netip.Prefix]int
	all int
}

// enter takes a place; leave gives it back, once.
func (u *unproven) enter(from netip.Prefix) (leave func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.by[from] >= maxUnproven || u.all >= maxAllUnproven {
		err := capability.Errorf(capability.CodeOverloaded, "nodes.connect",
			"too many connections have not shown yet whose they are: %d of one address and %d of all are the most", maxUnproven, maxAllUnproven).
			With("node_overloaded", "try again in a few seconds")
		err.RetryAfter = proofTimeout
		return nil, err
	}
	if u.by == nil {
		u.by = make(map[netip.Prefix]int)
	}
	u.by[from]++
	u.all++
	return sync.OnceFunc(func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.all--
		if u.by[from]--; u.by[from] == 0 {
			delete(u.by, from)
		}
	}), nil
}

// bounded keeps strangers from holding connections without number. A token was looked
// at before; a key is proven inside the protocol, and until then it belongs to no node.
func (s *Surface) bounded(next http.Handler) http.Handler {
	var open unproven
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leave, err := open.enter(originOf(r))
		if err != nil {
			httpapi.WriteError(w, err)
			return
		}
		defer leave()
		timer := time.AfterFunc(proofTimeout, leave)
		defer timer.Stop()
		next.ServeHTTP(w, r)
	})
}

// originOf is the address of a request; of version 6 it is the network of one
// customer, who has all the addresses in it.
func originOf(r *http.Request) netip.Prefix {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	addr, bits := at.Addr().Unmap(), 32
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits)
	return p
}
