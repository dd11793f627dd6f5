package server

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/publish"
	"github.com/junctor-run/junctor/internal/extensions/eval"
	"github.com/junctor-run/junctor/internal/extensions/manifest"
	"github.com/junctor-run/junctor/internal/extensions/operator"
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

// operatorRows are the operator catalog on a snapshot: what the packages in the
// home declare, and the state of what runs. A package is declared by lying there;
// nothing of it is started.
func (s *Server) operatorRows(ctx context.Context, snap *catalog.Snapshot) (rows any, err error) {
	all, err := s.static.Build(ctx)
	if err != nil {
		return nil, err
	}
	declared := slices.Clone(all.Extensions)
	for i := range declared {
		declared[i].Stage = capability.StageDeclared
	}
	resolved := manifest.Resolve(declared, snap.Settings().Owners)
	view, err := operator.New(resolved).View(snap, resolved.Conflicts...)
	return view.Rows, err
}

// staticRows is a static catalog by name.
func (s *Server) staticRows(ctx context.Context, name string) (rows any, ok bool, err error) {
	all, err := s.static.Build(ctx)
	if err != nil {
		return nil, false, err
	}
	switch name {
	case "install":
		return all.Install.Rows, true, nil
	case "onboarding":
		return all.Onboarding.Rows, true, nil
	case "channels":
		return all.Channels.Rows, true, nil
	case "cli":
		return all.CLI.Rows, true, nil
	}
	return nil, false, nil
}

// evaluate runs scenarios without this server's own catalog.
func evaluate(fixtures, scenarios []byte, out io.Writer) (ok bool, err error) {
	var shared eval.Fixtures
	if len(fixtures) > 0 {
		if shared, err = eval.ParseFixtures(fixtures); err != nil {
			return false, err
		}
	}
	return eval.RunFiles(shared, []eval.File{{Name: "scenarios", Data: scenarios}}, out)
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
