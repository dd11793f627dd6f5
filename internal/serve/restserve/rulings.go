package restserve

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// agentOf returns the compiled agent catalog of the request's context.
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
	body := s.backendList()
	body["slots"] = list
	return httpapi.Answer(w, body, nil)
}

func (s *Surface) backends(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	return httpapi.Answer(w, s.backendList(), nil)
}

// backendList returns the runtime backends, and the exclusive classes without a holder.
func (s *Surface) backendList() map[string]any {
	snap := s.Catalog.Snapshot()
	list := []map[string]any{}
	for _, e := range snap.Backends() {
		list = append(list, map[string]any{
			"runtimeId": e.Runtime, "providerKey": e.Key(), "backend": e.Contribution.Backend, "rank": snap.RankOf(e),
			"availability": e.Contribution.Availability, "withheld": snap.Withheld(e),
		})
	}
	blocking := append([]catalog.BlockingIssue{}, snap.Blocking()...)
	return map[string]any{"backends": list, "blocking": blocking}
}

// actions writes the registry of canonical actions.
func (s *Surface) actions(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	return httpapi.Answer(w, map[string]any{"actions": actions.Rows()}, nil)
}

// lint writes the findings about the agent catalog of a context, and the policy rules that
// name something unknown.
func (s *Surface) lint(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	agent, err := s.agentOf(w, r, who)
	if err != nil {
		return err
	}
	findings := append([]compile.Finding{}, agent.Lint()...)
	for _, n := range s.Policy.Unknown(s.Catalog.Snapshot()) {
		findings = append(findings, compile.Finding{
			Code: "rule_unknown", Subject: n.Rule, Message: fmt.Sprintf(
				"the rule %s names %s::%q, which is unknown: it is misspelt, or its provider is away", n.Rule, n.Type, n.ID),
		})
	}
	return httpapi.Answer(w, map[string]any{"findings": findings}, nil)
}

// explanation writes the record of a selection, while it is stored.
func (s *Surface) explanation(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	x, ok := s.Explanation(r.PathValue("id"))
	if !ok {
		return capability.Errorf(capability.CodeNotFound, "catalog.explanation", "no explanation %q is kept; the last 1,024 are",
			r.PathValue("id"))
	}
	return httpapi.Answer(w, map[string]any{"explanation": x, "text": x.Text()}, nil)
}

// selectOne handles a dry run of the selection of a provider.
func (s *Surface) selectOne(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	body, err := httpapi.ReadBody(w, r, 1<<20)
	if err != nil {
		return err
	}
	var req struct {
		Action   string              `json:"action"`
		Selector capability.Selector `json:"selector,omitempty"`
		Context  *capability.Context `json:"context,omitempty"`
	}
	if err := jsonx.UnmarshalStrict(body, &req); err != nil {
		return httpapi.BadJSON(err)
	}
	target, err := capability.ParseTarget(req.Action)
	if err != nil {
		return err
	}
	target.Select = req.Selector
	inv := capability.Invocation{Principal: who, Audience: audienceFor(who), Context: req.Context, Target: target}
	plan := s.Engine.Plan(r.Context(), inv)
	if plan.Selection == nil {
		return plan.Err
	}
	return httpapi.Answer(w, explanation(inv, plan), nil)
}

// changes writes the catalog's changes after a generation: as JSON, or, for a client that
// accepts a stream, as events until it disconnects.
func (s *Surface) changes(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	since := s.Catalog.Snapshot().Generation
	if text := r.URL.Query().Get("since"); text != "" {
		var err error
		if since, err = strconv.ParseUint(text, 10, 64); err != nil {
			return capability.Errorf(capability.CodeInvalidInput, "decode", "since: %q is not a generation", text)
		}
	}
	if !strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		return httpapi.Answer(w, map[string]any{"events": s.Feed.Since(since)}, nil)
	}
	out := httpapi.NewStream(w, r)
	ctx, cancel := s.untilStop(r)
	defer cancel()
	for {
		events, err := s.Feed.Wait(ctx, since)
		if err != nil {
			return nil // the client disconnected, or the server stops
		}
		for _, e := range events {
			data, err := json.Marshal(e)
			if err != nil {
				return err
			}
			if out.Send(strconv.FormatUint(e.Generation, 10), "change", data) != nil {
				return nil
			}
			since = e.Generation
		}
	}
}

// untilStop returns the request's context, which also ends when the server begins to
// stop, so that a stream does not delay that.
func (s *Surface) untilStop(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	go func() {
		select {
		case <-s.Stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// agentChanges sends an event when the agent catalog of the request's context has
// changed, at most four times a second.
func (s *Surface) agentChanges(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	c, err := contextOf(w, r)
	if err != nil {
		return err
	}
	ctx, cancel := s.untilStop(r)
	defer cancel()
	now, notices, err := s.Contexts.Subscribe(ctx, invoke.ContextOf(&capability.Invocation{Principal: who, Context: c}))
	if err != nil {
		return err
	}
	out := httpapi.NewStream(w, r)
	for {
		data, err := json.Marshal(now)
		if err != nil {
			return err
		}
		if out.Send(strconv.FormatUint(now.Generation, 10), "catalog", data) != nil {
			return nil
		}
		next, open := <-notices
		if !open {
			return nil
		}
		now = next
	}
}

// telemetry writes the catalog's last events.
func (s *Surface) telemetry(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	return httpapi.Answer(w, map[string]any{"events": s.Telemetry(r.URL.Query().Get("event"))}, nil)
}
