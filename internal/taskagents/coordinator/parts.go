package coordinator

import (
	"slices"

	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// moved sees to what follows from a change of a thread: parts that have become ready are
// begun, whatever else runs, and the end of the thread is told.
func (c *Coordinator) moved(m threads.Moved) {
	if ready := c.ready(m); len(m.Sessions) > 0 && len(ready) > 0 && !c.starting(m.Thread.ID) {
		c.begin(m.Thread.ID, ready)
		return
	}
	c.closing(m)
}

// ready are the parts of a plan that are to be started and have not been.
func (c *Coordinator) ready(m threads.Moved) (nodes []string) {
	for _, n := range m.Nodes {
		if n.Kind == row.ExecutionNode && n.Status == row.NodeReady && n.AssignedSessionID == "" {
			nodes = append(nodes, n.ID)
		}
	}
	if c.cfg.Begin == nil || len(nodes) > 0 && m.Thread.Held() {
		return nil
	}
	return nodes
}

func (c *Coordinator) starting(thread string) bool {
	return c.cfg.Starting != nil && c.cfg.Starting(thread)
}

// begin has the parts begun beside whatever the sessions do: they may wait for places.
// Where that leaves the same parts ready, it has failed, and is not tried again at once.
func (c *Coordinator) begin(thread string, ready []string) {
	c.beside(func() {
		c.cfg.Begin(c.ctx, thread)
		c.read(thread, func(m threads.Moved) {
			if slices.Equal(c.ready(m), ready) {
				c.closing(m)
			} else {
				c.moved(m)
			}
		})
	})
}

// Conclude is called when no launcher starts parts of a thread any more (Config.Starting): what has
// become ready meanwhile is begun, or the end told, if it has come.
func (c *Coordinator) Conclude(thread string) {
	c.beside(func() { c.read(thread, c.moved) })
}

// beside runs f until it or the coordinator ends.
func (c *Coordinator) beside(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.wg.Go(f)
	}
}

// read hands a thread to f, as the registry has it now.
func (c *Coordinator) read(thread string, f func(threads.Moved)) {
	d, err := c.cfg.Registry.Detail(c.ctx, thread, threads.Selection{Fields: []threads.Field{threads.FieldNodes, threads.FieldSessions}})
	switch {
	case err == nil:
		f(threads.Moved{Thread: d.Thread, Sessions: d.Sessions, Nodes: d.Nodes})
	case c.ctx.Err() == nil:
		c.cfg.Logger.Error("what follows in a thread is not seen to, for it cannot be read", "thread", thread, "err", err)
	}
}
