package gateway

import (
	"context"
	"iter"

	"github.com/junctor-run/junctor/internal/nodes/fleet"
)

// The kinds of a Sight that are not events of the fleet.
const (
	SightReset  = "fleet.reset"  // a snapshot begins and replaces everything before
	SightNode   = "fleet.node"   // a node of the snapshot
	SightSynced = "fleet.synced" // the snapshot is complete
	sightLost   = "fleet.lost"
)

// Sight is one step of Watch. Kind is one of the above, or that of Event.
type Sight struct {
	Kind  string
	Event fleet.Event
	// Node is the node right after the change; zero if it has left.
	Node fleet.Node
}

// show sends an event to the watchers. The caller holds g.telling.
func (g *Gateway) show(e fleet.Event) {
	s := Sight{Kind: e.Kind, Event: e}
	if e.Kind != fleet.NodeLeft && e.Kind != fleet.NodeSuperseded {
		s.Node, _ = g.table.Get(e.Node)
	}
	g.feed.Publish(s)
}

// Watch yields a snapshot of the fleet including suspects, then every change in order, and
// last ctx's error. A reader that is too slow receives a new snapshot instead of the missed
// changes; it never blocks the gateway.
func (g *Gateway) Watch(ctx context.Context) iter.Seq2[Sight, error] {
	return func(yield func(Sight, error) bool) {
		for {
			turn, cancel := context.WithCancel(ctx)
			g.telling.Lock()
			nodes := g.table.List(fleet.Filter{Suspect: true})
			changes := g.feed.Read(turn)
			g.telling.Unlock()
			goOn := g.turn(nodes, changes, yield)
			cancel()
			if !goOn {
				return
			}
		}
	}
}

// turn yields one snapshot and the changes after it, and reports whether another snapshot
// is needed.
func (g *Gateway) turn(nodes []fleet.Node, changes iter.Seq2[Sight, error], yield func(Sight, error) bool) (another bool) {
	if !yield(Sight{Kind: SightReset}, nil) {
		return false
	}
	for _, n := range nodes {
		if !yield(Sight{Kind: SightNode, Node: n}, nil) {
			return false
		}
	}
	if !yield(Sight{Kind: SightSynced}, nil) {
		return false
	}
	for s, err := range changes {
		if s.Kind == sightLost {
			return true
		}
		if !yield(s, err) || err != nil {
			return false
		}
	}
	return false
}
