package endpoint

import (
	"context"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint/offered"
	"github.com/junctor-run/junctor/protocol/router"
)

func (r *Registry) record(ctx context.Context, ev audit.Event, id string, by capability.Principal, reason string) {
	rec := audit.Record{Logger: "endpoint", Event: ev, Runner: "endpoint", User: by.ID, Error: reason}
	rec.Metadata.Principal = audit.Principal{ID: by.ID, Role: by.Role}
	rec.Metadata.Attrs = []audit.Attr{{Key: "endpoint", Value: id}}
	r.append(ctx, rec)
}

func (r *Registry) recordTrust(ctx context.Context, by capability.Principal, decisions []router.TrustDecision) {
	for _, d := range decisions {
		r.append(ctx, audit.Record{
			Logger: "endpoint", Event: audit.TrustDecided, Runner: "endpoint", User: by.ID, Success: audit.OutcomeOf(d.Trusted),
			Extension: offered.ExtensionID(d.ModuleID),
			Metadata:  audit.Metadata{Attrs: []audit.Attr{{Key: "endpoint", Value: d.EndpointID}, {Key: "trust_reason", Value: d.Reason}}},
			Error:     d.Detail,
		})
	}
}

func (r *Registry) append(ctx context.Context, rec audit.Record) {
	if r.cfg.Log == nil {
		return
	}
	if _, err := r.cfg.Log.Append(context.WithoutCancel(ctx), rec, audit.Written); err != nil {
		r.cfg.Logger.Error("audit record not written", "event", string(rec.Event), "err", err)
	}
}
