package gateway

import (
	"context"
	"strings"

	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

const barrierPrefix = "barrier-" // of ids that do not belong to a call

// caughtUp waits until the replies that were sent before have reached their calls, by
// sending a message to this gateway, which arrives after them. The event that a session has
// ended arrives separately and may overtake the last answers of its node.
func (g *Gateway) caughtUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, barrierTimeout)
	defer cancel()
	id, seen := barrierPrefix+ids.Text(), make(chan struct{})
	g.barriers.Store(id, seen)
	defer g.barriers.Delete(id)
	if g.conn.Publish(ctx, messaging.Message{Subject: wire.SubjectReply("gateway", g.instance, id)}) != nil {
		return
	}
	select {
	case <-seen:
	case <-ctx.Done():
	}
}

// passed handles a message of caughtUp, and reports whether it was one. A node that guessed
// such an id could only shorten the wait.
func (g *Gateway) passed(id string) bool {
	if !strings.HasPrefix(id, barrierPrefix) {
		return false
	}
	if seen, ok := g.barriers.LoadAndDelete(id); ok {
		close(seen.(chan struct{}))
	}
	return true
}
