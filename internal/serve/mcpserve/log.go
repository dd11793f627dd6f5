package mcpserve

import (
	"slices"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/serve/mcpserve/exchange"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// setLevel notes what a client of a session wants to hear; the SDK answers it.
func (sess *session) setLevel(m *mcpwire.Message) {
	level, _ := jsonx.Text(mcpwire.At(m.Params.Raw, []string{"level"}))
	i := slices.Index(exchange.Severities(), level)
	if i < 0 {
		return // the SDK says so
	}
	sess.mu.Lock()
	sess.level = i
	sess.mu.Unlock()
}

func (sess *session) severity() int {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	return sess.level
}
