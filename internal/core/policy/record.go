package policy

import (
	"context"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
)

// ready refuses changes to tokens, approvals and grants while the audit log
// cannot be written: nobody could tell later who made them.
func (p *Policy) ready() error {
	if p.log == nil {
		return nil
	}
	return p.log.Ready(true)
}

// record writes one security record. A failure is logged and not returned: what
// it tells of has happened, and [Policy.ready] stops the next. A caller that went
// away meanwhile does not keep it from being written.
func (p *Policy) record(ctx context.Context, ev audit.Event, who capability.Principal, ok bool, d audit.Durability, attrs ...audit.Attr) {
	p.write(ctx, audit.Record{
		Event: ev, User: who.ID, Success: audit.OutcomeOf(ok),
		Metadata: audit.Metadata{Principal: audit.Principal{ID: who.ID, Role: who.Role, OnBehalfOf: who.OnBehalfOf}, Attrs: attrs},
	}, d)
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
