package mcpserve

import (
	"slices"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/serve/mcpserve/exchange"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// setLevel stores the log level that the client of a session requests; the SDK answers it.
func (sess *session) setLevel(m *mcpwire.Message) {
	level, _ := jsonx.Text(mcpwire.At(m.Params.Raw, []string{"level"}))
	i := slices.Index(exchange.Severities(), level)
	if i < 0 {
		return // the SDK answers with an error
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
