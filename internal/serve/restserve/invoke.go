package restserve

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// invocation is the body of POST /api/v1/invocations. Target has the form of the
// command line's TARGET.
type invocation struct {
	Target         string              `json:"target"`
	Input          jsonx.Raw           `json:"input,omitempty"`
	Select         map[string]string   `json:"select,omitempty"`
	Session        string              `json:"session,omitempty"`
	Context        *capability.Context `json:"context,omitempty"`
	Timeout        string              `json:"timeout,omitempty"` // a duration: "30s"
	IdempotencyKey string              `json:"idempotency_key,omitempty"`
	DryRun         bool                `json:"dry_run,omitempty"`
	Stream         bool                `json:"stream,omitempty"`
	// LoadBalancing selects one of several nodes, or all.
	LoadBalancing jsonx.Raw `json:"load_balancing,omitempty"`
}

// invoke runs an invocation and writes its result. With dry_run it writes the plan
// instead, with stream the progress and then the result.
func (s *Surface) invoke(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	body, err := httpapi.ReadBody(w, r, s.MaxInput)
	if err != nil {
		return err
	}
	var req invocation
	if err := jsonx.UnmarshalStrict(body, &req); err != nil {
		return httpapi.BadJSON(err)
	}
	inv, err := req.invocation(who)
	if err != nil {
		return err
	}
	inv.Client = r.UserAgent()
	if req.DryRun {
		return httpapi.Answer(w, explanation(inv, s.Engine.Plan(r.Context(), inv)), nil)
	}
	if req.Stream {
		return s.stream(w, r, inv)
	}
	reply, err := s.Engine.Invoke(r.Context(), inv)
	w.Header().Set("X-Junctor-Invocation", reply.Invocation)
	if err != nil {
		e := capability.AsError(err)
		if e.RetryAfter > 0 {
			w.Header().Set("Retry-After", "1")
		}
		httpapi.WriteJSON(w, e.Code.Row().HTTP, map[string]any{"error": e, "invocation": reply})
		return nil
	}
	return httpapi.Answer(w, success(reply), nil)
}

func success(reply invoke.Reply) map[string]any {
	result := json.RawMessage("null")
	if len(reply.Result) > 0 {
		result = reply.Result
	}
	return map[string]any{"ok": true, "result": jsonx.Raw(result), "invocation": reply}
}

// invocation converts and validates the body. Errors are invalid_input.
func (q invocation) invocation(who capability.Principal) (capability.Invocation, error) {
	target, err := capability.ParseTarget(q.Target)
	if err != nil {
		return capability.Invocation{}, err
	}
	target.Select = q.Select
	inv := capability.Invocation{
		Surface: "http", Principal: who, Audience: audienceFor(who), Session: q.Session, Context: q.Context, Target: target,
		Input: json.RawMessage(q.Input), IdempotencyKey: q.IdempotencyKey,
	}
	if q.Session != "" && !validSession(q.Session) {
		return inv, capability.Errorf(capability.CodeInvalidInput, "decode",
			"session: %q must be 1 to 128 letters, digits, '.', '_', ':', '@' or '-'", q.Session)
	}
	b, err := cmp.ParseBalancing(json.RawMessage(q.LoadBalancing))
	if err != nil {
		return inv, err
	}
	inv.Timeout = b.Timeout
	switch {
	case b.All:
		inv.Target.Select = capability.Selector{"node": "all"}
	case b.On:
		inv.Balance = &capability.Balance{
			Strategy: b.Strategy, Preferred: b.Preferred, Excluded: b.Excluded, Labels: b.Labels, Tags: b.Tags, NeedsGPU: b.NeedsGPU,
			MinMemory: b.MinMemory,
		}
	}
	if q.Timeout != "" {
		if inv.Timeout, err = time.ParseDuration(q.Timeout); err != nil || inv.Timeout <= 0 {
			return inv, capability.Errorf(capability.CodeInvalidInput, "decode", "timeout: %q is not a duration above 0; write 30s or 5m", q.Timeout)
		}
	}
	return inv, nil
}

// validSession reports whether s is a session id: at most 128 ASCII letters, digits and "._:@-".
func validSession(s string) bool {
	if len(s) > 128 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("._:@-", rune(c)) {
			return false
		}
	}
	return true
}

// stream runs inv and sends each progress chunk as an event "progress" and the result or
// error as the event "end".
func (s *Surface) stream(w http.ResponseWriter, r *http.Request, inv capability.Invocation) error {
	out := httpapi.NewStream(w, r)
	var mu sync.Mutex // progress comes from the provider's goroutine
	inv.Progress = func(c capability.Chunk) {
		data, err := json.Marshal(map[string]any{"progress": c})
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		_ = out.Send("", "progress", data)
	}
	reply, err := s.Engine.Invoke(r.Context(), inv)
	last := success(reply)
	if err != nil {
		last = map[string]any{"error": capability.AsError(err), "invocation": reply}
	}
	data, err := jsonx.Answer(last)
	if err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	_ = out.Send("", "end", data)
	return nil
}

func (s *Surface) cancel(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	id := r.PathValue("id")
	if !s.Engine.Cancel(id) {
		return capability.Errorf(capability.CodeNotFound, "invocations.cancel", "no running invocation %q", id)
	}
	return httpapi.Answer(w, map[string]any{"ok": true}, nil)
}

func (s *Surface) explain(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	target, err := capability.ParseTarget(r.URL.Query().Get("action"))
	if err != nil {
		return err
	}
	for _, kv := range r.URL.Query()["select"] {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			return capability.Errorf(capability.CodeInvalidInput, "decode", "select: %q is not key=value", kv)
		}
		if target.Select == nil {
			target.Select = make(capability.Selector)
		}
		target.Select[k] = v
	}
	context, err := contextOf(w, r)
	if err != nil {
		return err
	}
	inv := capability.Invocation{Principal: who, Audience: audienceFor(who), Context: context, Target: target}
	plan := s.Engine.Plan(r.Context(), inv)
	if capability.CodeOf(plan.Err) == capability.CodeUnknownCapability {
		return plan.Err
	}
	return httpapi.Answer(w, explanation(inv, plan), nil)
}

// rejection is the reason why a provider was not selected.
type rejection struct {
	Capability capability.ID          `json:"capabilityId"`
	Provider   capability.ProviderKey `json:"providerKey"`
	Step       int                    `json:"step"`
	Reason     string                 `json:"reason"`
}

// explanation returns the response of explain and --dry-run: the selected provider with
// the reason, and for each other provider the step that rejected it.
func explanation(inv capability.Invocation, p invoke.Plan) map[string]any {
	name := inv.Target.String()
	out := map[string]any{"target": name, "dry_run": true, "ok": p.Err == nil}
	if p.Err != nil {
		out["error"] = capability.AsError(p.Err)
	}
	if e := p.Entry; e != nil {
		name = nameInRules(e)
		out["tool"] = name
		verdict := map[string]any{"permitted": p.Verdict.Permitted, "policies": p.Verdict.Policies}
		if p.Verdict.Consent != "" {
			verdict["consent"] = p.Verdict.Consent
		}
		out["selected"] = map[string]any{"capability_id": e.ID, "provider": e.Key(), "effect": e.Effect}
		out["selection"] = map[string]any{"step": p.Selection.Step, "decided_by": p.Selection.DecidedBy}
		out["decision"] = verdict
	}
	rejected := []rejection{}
	if p.Selection != nil {
		for _, r := range p.Selection.Rejected {
			if r.Reason != arbitration.ReasonDenied { // denied ones are not shown
				rejected = append(rejected, rejection{r.Entry.ID, r.Entry.Key(), r.Step, r.Reason})
			}
		}
	}
	for _, e := range p.Denied {
		rejected = append(rejected, rejection{Capability: e.ID, Provider: e.Key(), Reason: arbitration.ReasonDenied})
	}
	out["rejected"] = rejected
	if p.Selection != nil {
		record := arbitration.Explain(p.Selection, p.Agent.Etag())
		if inv.Principal.Role != capability.RoleAdmin && inv.Principal.Role != capability.RoleOperator {
			record = record.ForPlanner()
		}
		out["explanation"], out["text"] = record, record.TextFor(name)
	}
	return out
}
