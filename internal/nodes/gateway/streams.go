package gateway

import (
	"time"

	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// streams counts the open streams of one node.
type streams struct {
	open   int
	window int // sum of their windows
}

// openStream reserves a stream of a node and returns its window in bytes, which is smaller
// if the node has many streams or late heartbeats. The caller calls leave at the end. At the
// limit of streams the error is node_overloaded.
func (g *Gateway) openStream(node string) (window int, leave func(), err error) {
	late := g.late(node)
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.streams[node]
	if s == nil {
		s = &streams{}
	}
	switch {
	case g.total >= g.cfg.TotalStreams:
		return 0, nil, cmp.Errorf(cmp.ReasonOverloaded, "Gateway stream capacity exceeded. active=%d, limit=%d", g.total, g.cfg.TotalStreams)
	case s.open >= g.cfg.NodeStreams:
		return 0, nil, cmp.Errorf(cmp.ReasonOverloaded, "Node '%s' cannot accept new stream workload: %d streams are open", node, s.open)
	}
	// Each further stream of the node must be able to get MinWindow.
	window = min(g.cfg.Window, maxOutstanding-s.window-(g.cfg.NodeStreams-s.open-1)*wire.MinWindow)
	if late {
		window = min(window, wire.MinWindow)
	}
	window = max(window, min(g.cfg.Window, wire.MinWindow))
	g.streams[node] = s
	g.total++
	s.open++
	s.window += window
	return window, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.total--
		s.window -= window
		if s.open--; s.open == 0 && g.streams[node] == s {
			delete(g.streams, node)
		}
	}, nil
}

// late reports whether a node's heartbeats are late, which indicates a slow link.
func (g *Gateway) late(node string) bool {
	return g.table.Late(node, g.cfg.Heartbeat+g.cfg.Heartbeat/2+100*time.Millisecond)
}

// credit computes the bytes that a node may send for those that a reader has consumed.
type credit struct {
	window   int
	withheld int64 // not granted while heartbeats are late, so that at most MinWindow is outstanding
}

// take returns the credit to grant after n bytes were consumed.
func (c *credit) take(n int64, late bool) int64 {
	most := int64(max(c.window-wire.MinWindow, 0))
	if !late {
		n += c.withheld
		c.withheld = max(n-wire.MaxWindow, 0)
		return n - c.withheld
	}
	keep := min(n, most-c.withheld)
	c.withheld += keep
	return n - keep
}
