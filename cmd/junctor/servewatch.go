package main

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/server"
)

// watchedEvents returns the audit events that "junctor serve" prints for people, with their words.
func watchedEvents() map[audit.Event]string {
	return map[audit.Event]string{
		audit.EndpointConnected: "connected", audit.EndpointUp: "connected again", audit.EndpointDown: "lost",
		audit.EndpointDisconnected: "removed",
		audit.NodeJoined:           "joined", audit.NodeResumed: "joined again", audit.NodeSuspect: "silent", audit.NodeLeft: "left",
		audit.UpstreamAdded: "connected", audit.UpstreamRecovered: "connected again", audit.UpstreamFailed: "lost",
		audit.UpstreamRemoved: "removed", audit.PinHeld: "held",
		audit.PermissionDenied: "refused", audit.SecurityViolation: "refused", audit.RateLimited: "refused", audit.EgressDenied: "refused",
		audit.LoginFailed: "refused", audit.ConfirmationRequested: "approval", audit.ConfirmationAnswered: "decided",
	}
}

// watchedRow holds the members of an audit record that a line shows.
type watchedRow struct {
	Timestamp time.Time
	Event     audit.Event
	Action    string
	User      string `json:"user_id"`
	Error     string
	Metadata  struct {
		Upstream, Endpoint, Op, Cause, Reason, Approval, State string
		Node                                                   json.RawMessage
	}
}

// watchServer prints the address of a server that runs in this process and a link to its console, and
// then a line for each event that people watch for, until ctx ends.
func (a *app) watchServer(ctx context.Context, line server.ReadyLine) {
	on := *a
	on.home, on.server, on.token = line.Home, line.URL, ""
	on.environ = nil // a token there is for another server
	a.printf("junctor %s serves %s at %s\n", line.Version, line.Home, line.URL)
	var link struct{ URL string }
	if err := on.do(ctx, http.MethodPost, "/api/v1/console/codes", nil, &link); err == nil {
		a.printf("console: %s\nThe link works once; another one: junctor console. Ctrl-C ends the server.\n", link.URL)
	}
	c, err := on.client()
	if err != nil {
		a.warnf("events are not shown: %s", plainText(err.Error()))
		return
	}
	words := watchedEvents()
	for raw, err := range c.Lines(ctx, http.MethodGet, "/api/v1/audit/tail", nil) {
		if err != nil {
			if ctx.Err() == nil {
				a.warnf("further events are not shown: %s", plainText(err.Error()))
			}
			return
		}
		row, err := decode[watchedRow](raw)
		if word := words[row.Event]; err == nil && word != "" {
			a.printf("%s  %-15s  %s\n", row.Timestamp.Local().Format(time.TimeOnly), word, plainText(on.watched(ctx, row)))
		}
	}
}

// watched returns what a record is about, for people.
func (a *app) watched(ctx context.Context, row watchedRow) string {
	m := row.Metadata
	if m.Approval != "" {
		var out struct{ Approval policy.Approval }
		text := m.Approval
		if a.do(ctx, http.MethodGet, "/api/v1/approvals/"+url.PathEscape(m.Approval), nil, &out) == nil && out.Approval.Summary != "" {
			text = out.Approval.Summary
		}
		if row.Event == audit.ConfirmationAnswered {
			return text + ": " + string(out.Approval.State) + " by " + row.User
		}
		return text + "; see: junctor approvals show " + m.Approval
	}
	var node string
	var of struct{ ID string }
	if json.Unmarshal(m.Node, &node) != nil && json.Unmarshal(m.Node, &of) == nil {
		node = of.ID
	}
	text := cmp.Or(m.Upstream, m.Endpoint, node, row.Action, m.Op)
	if word := watchedEvents()[row.Event]; word == "refused" && row.User != "" {
		text = row.User + " to " + text
	}
	if why := cmp.Or(row.Error, m.Cause, m.Reason); why != "" {
		text += ": " + why
	}
	return text
}
