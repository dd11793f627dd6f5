package consoleserve

import (
	"net/http"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/catalog"
	"github.com/junctor-run/junctor/internal/catalog/actions"
	"github.com/junctor-run/junctor/internal/catalog/compile"
	"github.com/junctor-run/junctor/internal/surface/door"
)

// agentOf is the compiled catalog of the request's context.
func (s *Surface) agentOf(w http.ResponseWriter, r *http.Request, who capability.Principal) (*compile.Agent, error) {
	c, err := contextOf(w, r)
	if err != nil {
		return nil, err
	}
	agent, _, err := s.Engine.Agent(capability.Invocation{Principal: who, Context: c})
	return agent, err
}

func (s *Surface) slots(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	agent, err := s.agentOf(w, r, who)
	if err != nil {
		return err
	}
	c := agent.Frame.Context
	list := []catalog.SlotChoice{}
	for _, slot := range []string{catalog.SlotContextEngine, catalog.SlotMemory} {
		list = append(list, agent.Snapshot().Slot(slot, c.Workspace, c.Agent))
	}
	door.WriteJSON(w, http.StatusOK, map[string]any{"slots": list})
	return nil
}

func (s *Surface) backends(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	snap := s.Catalog.Snapshot()
	list := []map[string]any{}
	for _, e := range snap.Backends() {
		list = append(list, map[string]any{
			"runtimeId": e.Runtime, "providerKey": e.Key(), "backend": e.Contribution.Backend, "rank": snap.RankOf(e),
			"availability": e.Contribution.Availability, "withheld": snap.Withheld(e),
		})
	}
	blocking := append([]catalog.BlockingIssue{}, snap.Blocking()...)
	door.WriteJSON(w, http.StatusOK, map[string]any{"backends": list, "blocking": blocking})
	return nil
}

// actions is the registry of canonical actions.
func (s *Surface) actions(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	door.WriteJSON(w, http.StatusOK, map[string]any{"actions": actions.Rows()})
	return nil
}

func (s *Surface) lint(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	agent, err := s.agentOf(w, r, who)
	if err != nil {
		return err
	}
	door.WriteJSON(w, http.StatusOK, map[string]any{"findings": append([]compile.Finding{}, agent.Lint()...)})
	return nil
}

func (s *Surface) operatorCatalog(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	snap := s.Catalog.Snapshot()
	return s.published(w, r, snap.Generation, map[string]any{"audience": capability.AudienceOperator, "rows": s.Operator(snap)})
}

func (s *Surface) staticCatalog(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	name := r.PathValue("name")
	rows, ok, err := s.Static(r.Context(), name)
	if err != nil {
		return err
	}
	if !ok {
		return capability.Errorf(capability.CodeNotFound, "catalog", "there is no static catalog %q; use install, onboarding, channels or cli", name)
	}
	return s.published(w, r, s.Catalog.Snapshot().Generation, map[string]any{"audience": "static/" + name, "rows": rows})
}
