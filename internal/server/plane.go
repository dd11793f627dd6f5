package server

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/publish"
	"github.com/junctor-run/junctor/internal/core/intake"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/policyfiles"
	"github.com/junctor-run/junctor/internal/platform/telemetry"
	"github.com/junctor-run/junctor/internal/platform/toolnames"
)

// plane is the core that every wing and surface uses: catalog, policy, engine and audit log.
type plane struct {
	logger *slog.Logger
	log    *audit.Log
	policy *policy.Policy
	// policyFiles is the folder that the rules of policy come from.
	policyFiles *policyfiles.Files
	deployment  policy.Deployment
	names       *toolnames.Names
	catalog     *catalog.Catalog
	compiler    *compile.Compiler
	intake      *intake.Pipeline
	engine      *invoke.Engine
	choices     arbitration.Explanations
	notices     *publish.Publisher
	recent      publish.Recent // telemetry for the API
	told        *publish.Queue // telemetry for the records
	metrics     *telemetry.Metrics
}

// explain stores the explanation of a choice and returns its id.
func (p *plane) explain(inv *capability.Invocation, agent *compile.Agent, sel *arbitration.Selection) string {
	id := p.choices.Put(arbitration.Explain(sel, agent.Etag()))
	p.notices.Telemetry.Selected(sel, publish.Call{Correlation: inv.ID, Explanation: id})
	return id
}

// vetoed reports a call that a route augmenter stopped to telemetry.
func (p *plane) vetoed(inv *capability.Invocation, e *catalog.Entry, by, _ string) {
	p.notices.Telemetry.Vetoed(p.catalog.Snapshot().Generation, inv.Context, publish.VetoPayload{
		Action: string(e.Action), ProviderKey: e.Key(), By: by, ReasonCode: "vetoed", Phase: "invoke",
	}, publish.Call{Correlation: inv.ID})
}

// toldQueue is the number of events that may wait to be recorded. Further ones are dropped and counted.
const toldQueue = 1024

// recordTelemetry writes audit records for telemetry events, except conflicts of contributions, which
// package intake records.
func (p *plane) recordTelemetry(e publish.Telemetry) {
	rec := audit.Record{Logger: "catalog"}
	add := func(key, value string) {
		if value != "" {
			rec.Metadata.Attrs = append(rec.Metadata.Attrs, audit.Attr{Key: key, Value: value})
		}
	}
	switch about := e.Payload.(type) {
	case publish.NamePayload:
		rec.Event = audit.CapabilityNameDisambiguated
		add("declared", about.DeclaredName)
		add("public", about.PublicName)
		add("resolution", about.Resolution)
		add("members", strings.Join(about.Members, " "))
	case publish.SlotPayload:
		rec.Event = audit.CapabilitySlotSelected
		add("slot", about.Slot)
		add("requested", about.Requested)
		add("source", about.Source)
		add("winner", about.Winner)
		add("error", about.Error)
	case publish.VetoPayload:
		rec.Event, rec.Action = audit.CapabilityRouteVetoed, about.Action
		add("by", about.By)
		add("phase", about.Phase)
		add("provider", string(about.ProviderKey))
	default:
		p.logger.Debug(e.Event, "generation", e.Generation, "payload", e.Payload)
		return
	}
	add("workspace", e.WorkspaceID)
	add("agent", e.AgentID)
	if _, err := p.log.Append(context.Background(), rec, audit.Buffered); err != nil {
		p.logger.Error("audit record not written", "event", string(rec.Event), "err", err)
	}
}

// checkCatalog finds conflicts that withhold parts of the catalog until the operator decides.
func (p *plane) checkCatalog() httpapi.Check {
	snap := p.catalog.Snapshot()
	c := httpapi.Check{Name: "catalog", OK: true, Detail: fmt.Sprintf("%d entries of %d modules", snap.Len(), snap.ModuleCount())}
	for _, f := range p.compiler.Compile(&capability.Context{}).Lint() {
		switch f.Code {
		case "unresolved_conflict", "slot", "backend", "withheld", "pattern_unknown":
			c.OK, c.Detail, c.Remedy = false, f.Message, "decide it in catalog.yaml; all findings: junctor catalog lint"
			return c
		}
	}
	return c
}

// checkAudit reports whether the audit log can be written.
func (p *plane) checkAudit(mode string) httpapi.Check {
	h := p.log.Health()
	c := httpapi.Check{Name: "audit log", OK: !h.Broken, Detail: fmt.Sprintf("%d records, mode %s", h.Seq, mode)}
	if h.Broken {
		c.Detail = fmt.Sprintf("cannot be written (%s); %d records wait in memory, %d are lost", h.Cause, h.Waiting, h.Lost)
		c.Remedy = "free space or fix the permissions of the home's audit folder; writing resumes by itself"
	} else if h.AnchorCause != "" {
		c.OK, c.Detail = false, fmt.Sprintf("its checkpoints after record %d cannot be written to audit.anchor: %s", h.Anchored, h.AnchorCause)
		c.Remedy = "see that the place in audit.anchor can be written; it is tried again by itself"
	}
	return c
}

// checkPolicies loads changed policy files, and reports whether all are in force and name what exists.
func (p *plane) checkPolicies(ctx context.Context) httpapi.Check {
	p.policyFiles.Reload(ctx, capability.Principal{ID: "server", Role: capability.RoleAdmin})
	c := httpapi.Check{Name: "policy rules", OK: true, Detail: fmt.Sprintf("%d rules", len(p.policy.Rules()))}
	if err := p.policyFiles.Fault(); err != nil {
		c.OK, c.Detail = false, "the files in the policy folder cannot be used, so the previous rules stay in force: "+err.Error()
		c.Remedy = "correct the file, which is then loaded at once; junctor policy check FILE finds the place"
		return c
	}
	if unknown := p.policy.Unknown(p.catalog.Snapshot()); len(unknown) > 0 {
		n := unknown[max(0, slices.IndexFunc(unknown, func(n policy.Name) bool { return !n.Away }))]
		c.OK, c.Detail = n.Away, fmt.Sprintf("the rule %s names %s::%q, which does not exist here", n.Rule, n.Type, n.ID)
		c.Remedy = "correct the name or remove the rule (junctor policy reset), unless its provider is only disconnected; junctor policy list shows the file"
		if len(n.Near) > 0 {
			c.Remedy = "did you mean " + strings.Join(n.Near, " or ") + "? " + c.Remedy
		}
	}
	return c
}

// warnUnknownNames logs the names in rules that do not exist, after the start.
func (p *plane) warnUnknownNames() {
	for _, n := range p.policy.Unknown(p.catalog.Snapshot()) {
		p.logger.Warn("policy rule names something that does not exist", "rule", n.Rule, "type", n.Type, "name", n.ID, "near", n.Near)
	}
}

// saveUses stores the use counts of grants periodically, and a last time when ctx ends.
func (p *plane) saveUses(ctx context.Context) error {
	tick := time.NewTicker(saveUsesInterval)
	defer tick.Stop()
	for {
		var over bool
		select {
		case <-tick.C:
		case <-ctx.Done():
			over = true
		}
		if err := p.policy.SaveUses(context.WithoutCancel(ctx)); err != nil {
			p.logger.Error("the uses of grants are not saved", "err", err)
		}
		if over {
			return nil
		}
	}
}

// supersedeApprovals ends the open approvals for extensions that were removed or whose content
// changed. An error is logged.
func (p *plane) supersedeApprovals(change catalog.Change) {
	for _, old := range modulesOf(change.Old) {
		if old.Origin != capability.OriginExtension {
			continue
		}
		content := ""
		if m, ok := change.After.Module(old.Extension); ok {
			content = m.Digest
		}
		if content == old.Digest {
			continue
		}
		if err := p.policy.Supersede(context.Background(), old.Extension, content); err != nil {
			p.logger.Error("the approvals for an extension that was removed or changed stay open", "extension", old.Extension, "err", err)
		}
	}
}

// modulesOf returns the modules of several batches.
func modulesOf(batches map[string]capability.Batch) (list []capability.Module) {
	for _, b := range batches {
		list = append(list, b.Modules...)
	}
	return list
}

// gauges registers metrics of the catalog and the audit log.
func (p *plane) gauges() {
	p.metrics.Gauge("catalog_entries", "Entries in the catalog.", func() float64 { return float64(p.catalog.Snapshot().Len()) })
	p.metrics.Gauge("audit_waiting", "Audit records that wait in memory for a broken log.",
		func() float64 { return float64(p.log.Health().Waiting) })
	p.metrics.Gauge("audit_records", "Number of the last audit record.", func() float64 { return float64(p.log.Health().Seq) })
	p.metrics.Gauge("audit_broken", "1 while the audit log cannot be written.", func() float64 {
		if p.log.Health().Broken {
			return 1
		}
		return 0
	})
}
