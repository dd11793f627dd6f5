package gateway

import (
	"context"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

const (
	barrierPrefix = "barrier-" // of ids that do not belong to a call
	// barrierTimeout bounds the wait: that a node is gone must be known at once.
	barrierTimeout = 20 * time.Millisecond
)

// caughtUp returns when the replies that were on their way have been handed to their
// calls: a message to ourselves comes after them. Word that a session has ended takes
// another way, and may overtake the last answers of its node.
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

// passed takes a message of caughtUp and reports whether it was one. Nodes know no
// such id; one that guessed it would let a gateway wait less.
func (g *Gateway) passed(id string) bool {
	if !strings.HasPrefix(id, barrierPrefix) {
		return false
	}
	if seen, ok := g.barriers.LoadAndDelete(id); ok {
		close(seen.(chan struct{}))
	}
	return true
}
