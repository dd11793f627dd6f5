package nodes

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// Bus returns which bus the gateway uses, and whether its session with it is open.
func (s *Service) Bus(ctx context.Context) (name string, open bool) {
	return busName(s.cfg.NATS.URL), s.busOpen(ctx)
}

func (s *Service) busOpen(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	for e, err := range s.bus.Conn().Events(ctx) {
		return err == nil && (e.Kind == messaging.Connected || e.Kind == messaging.Reconnected) // the first event is the current state
	}
	return false
}

// busName returns a name of the bus without the credentials in its addresses.
func busName(addresses string) string {
	if addresses == "" {
		return "inside this process"
	}
	var hosts []string
	for a := range strings.SplitSeq(addresses, ",") {
		if u, err := url.Parse(strings.TrimSpace(a)); err == nil && u.Host != "" {
			hosts = append(hosts, u.Host)
		}
	}
	return "the cluster at " + strings.Join(hosts, ", ")
}

// Checks reports the state of the bus, the gateway and the enrolled devices.
func (s *Service) Checks(ctx context.Context) []httpapi.Check {
	checks := []httpapi.Check{{Name: "message bus", OK: true, Detail: "open, " + busName(s.cfg.NATS.URL)}}
	if !s.busOpen(ctx) {
		checks[0].OK, checks[0].Detail = false, "away: "+busName(s.cfg.NATS.URL)
		checks[0].Remedy = "start the NATS servers of nats.url, or mend the network to them; the session comes back by itself"
		if s.cfg.NATS.URL == "" {
			checks[0].Remedy = "restart the server; its log says why the bus ended"
		}
	}
	count := make(map[fleet.Status]int)
	all := s.gateway.Fleet().List(fleet.Filter{Suspect: true})
	for i := range all {
		count[all[i].Status]++
	}
	checks = append(checks, httpapi.Check{Name: "nodes", OK: true, Detail: fmt.Sprintf(
		"%d connected, %d leaving, %d away; this gateway is %s", count[fleet.Connected], count[fleet.Draining], count[fleet.Disconnected],
		s.gateway.Instance())})
	refused := s.source.Refused()
	for _, id := range slices.Sorted(maps.Keys(refused)) {
		checks = append(checks, httpapi.Check{
			Name: "node " + id, Detail: "its functions are not in the catalog: " + refused[id],
			Remedy: "let the device join by another --id, or: junctor nodes remove " + id,
		})
	}
	return append(checks, s.checkTokens(ctx)...)
}

// checkTokens reports nodes that authenticate with a token that expires soon. Nodes with a
// key are not affected by the expiry of their token.
func (s *Service) checkTokens(ctx context.Context) (checks []httpapi.Check) {
	rows, err := s.admission.List(ctx)
	if err != nil {
		return []httpapi.Check{{Name: "node tokens", Detail: "the list of nodes cannot be read", Remedy: "see the check of the store"}}
	}
	for _, n := range rows {
		t, stands := s.cfg.Policy.StandingToken(n.Token)
		left := time.Until(t.Expires)
		if n.Key != "" || !stands || t.Expires.IsZero() || left > tokenExpiryGrace {
			continue
		}
		c := httpapi.Check{
			Name: "node " + n.ID, Detail: fmt.Sprintf("its token %s ends in %s", t.Name, left.Round(time.Minute)),
			Remedy: "make another one with: junctor tokens create --role node; then: junctor nodes remove " + n.ID + ", and join again",
		}
		if left <= 0 {
			c.Detail = "its token " + t.Name + " has ended"
		}
		checks = append(checks, c)
	}
	return checks
}

// gauges registers metrics of the fleet, without names of nodes.
func (s *Service) gauges() {
	with := func(count func(n *fleet.Node) int) func() float64 {
		return func() (sum float64) {
			all := s.gateway.Fleet().List(fleet.Filter{Suspect: true})
			for i := range all {
				sum += float64(count(&all[i]))
			}
			return sum
		}
	}
	s.cfg.Metrics.Gauge("nodes", "Nodes that are connected.", with(func(n *fleet.Node) int {
		if n.Status == fleet.Connected {
			return 1
		}
		return 0
	}))
	s.cfg.Metrics.Gauge("nodes_away", "Nodes whose session is gone and that may come back.", with(func(n *fleet.Node) int {
		if n.Status == fleet.Disconnected {
			return 1
		}
		return 0
	}))
	s.cfg.Metrics.Gauge("node_calls", "Calls to nodes that this gateway has under way.", with(func(n *fleet.Node) int { return n.InFlight }))
	s.cfg.Metrics.Gauge("nodes_refused", "Nodes whose functions are not in the catalog.",
		func() float64 { return float64(len(s.source.Refused())) })
}
