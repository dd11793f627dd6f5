package policy

import (
	"context"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
)

// ready rejects changes to tokens, approvals and grants while the audit log cannot be
// written, because their author could not be established later.
func (p *Policy) ready() error {
	if p.log == nil {
		return nil
	}
	return p.log.Ready(true)
}

// record writes one security record. A failure is logged and not returned, because the
// recorded event has already happened, and [Policy.ready] stops the next. The record is
// written even if the caller has disconnected.
func (p *Policy) record(ctx context.Context, ev audit.Event, who capability.Principal, ok bool, d audit.Durability, attrs ...audit.Attr) {
	p.write(ctx, audit.Record{
		Event: ev, User: who.ID, Success: audit.OutcomeOf(ok),
		Metadata: audit.Metadata{Principal: audit.Principal{ID: who.ID, Role: who.Role, OnBehalfOf: who.OnBehalfOf}, Attrs: attrs},
	}, d)
	if name := feedEvent(ev); name != "" && p.publish != nil {
		data := map[string]string{"by": who.ID}
		for _, a := range attrs {
			data[a.Key] = a.Value
		}
		p.publish(name, data)
	}
}

// The events of the live feed about approvals.
const (
	EventApprovalAsked   = "approval.asked"
	EventApprovalDecided = "approval.decided"
	EventApprovalExpired = "approval.expired"
)

// EventTokenRevoked is the event of the live feed after a token was revoked.
const EventTokenRevoked = "token.revoked"

// feedEvent returns the event of the live feed for a record, or "" if it has none. Its data are
// the attributes of the record, which contain no values of calls.
func feedEvent(ev audit.Event) string {
	switch ev {
	case audit.ConfirmationRequested:
		return EventApprovalAsked
	case audit.ConfirmationAnswered:
		return EventApprovalDecided
	case audit.GrantCreated:
		return "grant.created"
	case audit.GrantRevoked:
		return "grant.revoked"
	case audit.TokenCreated:
		return "token.created"
	case audit.TokenRevoked:
		return EventTokenRevoked
	case audit.PolicyChanged:
		return "policy.changed"
	}
	return ""
}

func (p *Policy) write(ctx context.Context, rec audit.Record, d audit.Durability) {
	if p.log == nil {
		return
	}
	rec.Logger = "policy"
	if _, err := p.log.Append(context.WithoutCancel(ctx), rec, d); err != nil {
		p.logger.Error("audit record not written", "event", string(rec.Event), "err", err)
	}
}
