package mcpserve

import (
	"encoding/json"
	"slices"

	"github.com/junctor-run/junctor/internal/jsonx"
	"github.com/junctor-run/junctor/internal/surface/mcpserve/mcpwire"
)

// severities are the levels of RFC 5424 that logging has, the least first.
func severities() []string {
	return []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
}

// severityOf is the severity of the params of notifications/message; one that is
// not known counts as the highest, so that it is not lost.
func severityOf(params json.RawMessage) int {
	level, _ := jsonx.Text(mcpwire.At(params, []string{"level"}))
	if i := slices.Index(severities(), level); i >= 0 {
		return i
	}
	return len(severities())
}

// setLevel notes what a client of a session wants to hear; the SDK answers it.
func (sess *session) setLevel(m *mcpwire.Message) {
	level, _ := jsonx.Text(mcpwire.At(m.Params.Raw, []string{"level"}))
	i := slices.Index(severities(), level)
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
