package coordinator

import (
	"slices"

	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// moved handles a change of a thread: it starts the parts that became ready or, if there are
// none, reports the end of the thread if it has ended.
func (c *Coordinator) moved(m threads.Moved) {
	if ready := c.ready(m); len(m.Sessions) > 0 && len(ready) > 0 && !c.starting(m.Thread.ID) {
		c.begin(m.Thread.ID, ready)
		return
	}
	c.closing(m)
}

// ready returns the ids of the parts that are ready and have no session. It returns nil if the
// thread is paused or stopped, or Begin is nil.
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

// begin starts the ready parts in a goroutine, because they may wait for slots. If the same
// parts are still ready afterwards, they could not be started and are not retried at once. If no
// other part runs then, they are marked as failed, so that the thread ends.
func (c *Coordinator) begin(thread string, ready []string) {
	c.beside(func() {
		c.cfg.Begin(c.ctx, thread)
		c.read(thread, func(m threads.Moved) {
			if !slices.Equal(c.ready(m), ready) {
				c.moved(m)
				return
			}
			if slices.ContainsFunc(m.Sessions, func(s row.Session) bool { return s.Status.Live() }) {
				return // moved is called when it ends
			}
			for _, node := range ready {
				if now, err := c.cfg.Registry.SetNode(c.ctx, thread, node, row.NodeFailed); err == nil {
					m = now
				}
			}
			c.closing(m)
		})
	})
}

// Conclude must be called when a launcher has stopped starting parts of a thread (see
// Config.Starting). In a goroutine it starts the parts that became ready meanwhile, or reports
// the end of the thread if it has ended.
func (c *Coordinator) Conclude(thread string) {
	c.beside(func() { c.read(thread, c.moved) })
}

// beside runs f in a goroutine that Close waits for. It does nothing if the coordinator is
// closed.
func (c *Coordinator) beside(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.wg.Go(f)
	}
}

// read calls f with the current state of a thread in the registry. It logs a failure.
func (c *Coordinator) read(thread string, f func(threads.Moved)) {
	d, err := c.cfg.Registry.Detail(c.ctx, thread, threads.Selection{Fields: []threads.Field{threads.FieldNodes, threads.FieldSessions}})
	switch {
	case err == nil:
		f(threads.Moved{Thread: d.Thread, Sessions: d.Sessions, Nodes: d.Nodes})
	case c.ctx.Err() == nil:
		c.cfg.Logger.Error("what follows in a thread is not seen to, for it cannot be read", "thread", thread, "err", err)
	}
}
