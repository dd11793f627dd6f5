package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// offers is the list of resources that one connection of an upstream offers.
type offers struct {
	read  chan struct{} // closed when it is complete
	at    time.Time
	calls int // that the connection had made
	uris  map[string]struct{}
}

// Offering returns the modules whose upstreams offer a resource to the caller that the catalog does
// not have: on a connection of the caller's own, or because it was added a moment ago. Upstreams
// whose definitions wait for an approval are left out.
func (r *Registry) Offering(ctx context.Context, by Caller, uri string) (modules []string) {
	for _, u := range r.all() {
		if u.record.Trust != record.Trusted || u.record.Kind != record.KindMCP {
			continue
		}
		key := u.keyOf(by)
		u.mu.Lock()
		c := u.conns[key]
		if key == "" {
			if c = u.current; c != nil && !c.noticed && c.calls == 0 {
				c = nil // the catalog has its list
			}
		}
		if c == nil || c.lost {
			u.mu.Unlock()
			continue
		}
		c.busy++
		u.mu.Unlock()
		if u.offered(ctx, c, uri) {
			modules = append(modules, extensionID(u.record.Origin(), u.record.Name))
		}
		u.release(c)
	}
	return modules
}

// offered reports whether a connection lists the resource. It reads the list again after a notice
// of the upstream, after a call, which may have made a resource, and else at most once in
// offersInterval.
func (u *upstream) offered(ctx context.Context, c *conn, uri string) bool {
	select {
	case <-c.ready:
	case <-ctx.Done():
		return false
	}
	if c.err != nil || !c.client.Has("resources") {
		return false
	}
	now := u.reg.cfg.Now()
	u.mu.Lock()
	list := c.offers
	fresh := list == nil || list.calls != c.calls || c.key != "" && now.Sub(list.at) > offersInterval
	if fresh {
		list = &offers{read: make(chan struct{}), at: now, calls: c.calls, uris: make(map[string]struct{})}
		c.offers = list
	}
	u.mu.Unlock()
	if fresh {
		u.readOffers(context.WithoutCancel(ctx), c, list) // others may wait for it
	}
	select {
	case <-list.read:
	case <-ctx.Done():
		return false
	}
	_, found := list.uris[uri]
	return found
}

// readOffers reads the resources of a connection. A list that breaks off is used as far as it came.
func (u *upstream) readOffers(ctx context.Context, c *conn, list *offers) {
	defer close(list.read)
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	_, err := c.client.List(ctx, ingest.Resource, func(definition json.RawMessage) error {
		var d struct {
			URI string `json:"uri"`
		}
		if json.Unmarshal(definition, &d) == nil && d.URI != "" && len(d.URI) <= ingest.MaxURI {
			list.uris[d.URI] = struct{}{}
		}
		if len(list.uris) >= maxOffers {
			return errors.New("the list is too long")
		}
		return nil
	})
	if err != nil {
		u.reg.cfg.Logger.Debug("the resources of a connection were not listed", "upstream", u.record.Name, "err", err)
	}
}
