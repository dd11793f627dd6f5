package gateway

import (
	"time"

	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// maxOutstanding is how much of one node's streams may be on its way to us, all of
// them together.
const maxOutstanding = 4 << 20

// streams are those of one node.
type streams struct {
	open   int
	window int // the sum of theirs
}

// openStream takes a place among the streams, and a window: less where the node has
// many, or where its heartbeats are late because its link is narrow.
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
	// Each of those that may still come must find the least window.
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

// late reports whether a node's heartbeats come late.
func (g *Gateway) late(node string) bool {
	return g.table.Late(node, g.cfg.Heartbeat+g.cfg.Heartbeat/2+100*time.Millisecond)
}

// credit is what a stream's reader has taken and the node may send in its place.
type credit struct {
	window   int
	withheld int64 // while its heartbeats are late, so that no more than MinWindow is on its way
}

// take returns the credit to give for n bytes that were read.
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
