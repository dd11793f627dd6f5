package server

import (
	"context"
	"fmt"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/publish"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// explain keeps the record of a choice and returns its id.
func (s *Server) explain(inv *capability.Invocation, agent *compile.Agent, sel *arbitration.Selection) string {
	id := s.choices.Put(arbitration.Explain(sel, agent.Etag()))
	s.notices.Telemetry.Selected(sel, publish.Call{Correlation: inv.ID, Explanation: id})
	return id
}

// vetoed tells of a call that a route augmenter stopped.
func (s *Server) vetoed(inv *capability.Invocation, e *catalog.Entry, by, _ string) {
	s.notices.Telemetry.Vetoed(s.catalog.Snapshot().Generation, inv.Context, publish.VetoPayload{
		Action: string(e.Action), ProviderKey: e.Key(), By: by, ReasonCode: "vetoed", Phase: "invoke",
	}, publish.Call{Correlation: inv.ID})
}

// compiledFor tells what a catalog that is shown to somebody had to decide.
func (s *Server) compiledFor(a *compile.Agent) { s.notices.Telemetry.Compiled(a) }

// toldQueue is how many events may wait to be recorded; more are dropped and
// counted.
const toldQueue = 1024

// recordTelemetry writes the events that are records as well (spec/README section
// 7); conflicts of contributions are recorded where they come in.
func (s *Server) recordTelemetry(e publish.Telemetry) {
	rec := audit.Record{Logger: "catalog"}
	add := func(key, value string) {
		if value != "" {
			rec.Metadata.Attrs = append(rec.Metadata.Attrs, audit.Attr{Key: key, Value: value})
		}
	}
	switch p := e.Payload.(type) {
	case publish.NamePayload:
		rec.Event = audit.CapabilityNameDisambiguated
		add("declared", p.DeclaredName)
		add("public", p.PublicName)
		add("resolution", p.Resolution)
		add("members", strings.Join(p.Members, " "))
	case publish.SlotPayload:
		rec.Event = audit.CapabilitySlotSelected
		add("slot", p.Slot)
		add("requested", p.Requested)
		add("source", p.Source)
		add("winner", p.Winner)
		add("error", p.Error)
	case publish.VetoPayload:
		rec.Event, rec.Action = audit.CapabilityRouteVetoed, p.Action
		add("by", p.By)
		add("phase", p.Phase)
		add("provider", string(p.ProviderKey))
	default:
		s.logger.Debug(e.Event, "generation", e.Generation, "payload", e.Payload)
		return
	}
	add("workspace", e.WorkspaceID)
	add("agent", e.AgentID)
	if _, err := s.log.Append(context.Background(), rec, audit.Buffered); err != nil {
		s.logger.Error("audit record not written", "event", string(rec.Event), "err", err)
	}
}

// checkCatalog finds what keeps parts of the catalog from everybody until the
// operator decides.
func (s *Server) checkCatalog() httpapi.Check {
	snap := s.catalog.Snapshot()
	c := httpapi.Check{Name: "catalog", OK: true, Detail: fmt.Sprintf("%d entries of %d modules", snap.Len(), snap.ModuleCount())}
	for _, f := range s.compiler.Compile(&capability.Context{}).Lint() {
		switch f.Code {
		case "unresolved_conflict", "slot", "backend", "withheld", "pattern_unknown":
			c.OK, c.Detail, c.Remedy = false, f.Message, "decide it in catalog.yaml; all findings: junctor catalog lint"
			return c
		}
	}
	return c
}
