package arbitration

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
)

// Explanation is the record of one choice, successful or not. Each entry of the
// action is in it once: as Selected, in Composed, or in the Rejected of one
// step. With the snapshot of its generation, Inputs reproduce the choice. It is
// immutable and shares nothing with the snapshot but strings.
type Explanation struct {
	ID            string            `json:"id,omitempty"`
	Action        capability.Action `json:"action"`
	Caller        Caller            `json:"caller"`
	Generation    uint64            `json:"generation"`
	ContextEtag   string            `json:"contextEtag"`
	DecidedAtStep int               `json:"decidedAtStep"`
	DecidedBy     string            `json:"decidedBy"` // "" if the choice failed
	Selected      *Named            `json:"selected"`
	Composed      []Named           `json:"composed,omitempty"` // in the order they run
	Fallback      bool              `json:"fallback"`
	Reasons       []FallbackReason  `json:"fallbackReasons"`
	Steps         []ExplainedStep   `json:"steps"`
	Error         *ExplainedError   `json:"error"`
	Inputs        *Inputs           `json:"inputs,omitempty"` // nil in the planner's view
}

// Named is one provider's capability.
type Named struct {
	Capability capability.ID          `json:"capabilityId,omitempty"`
	Provider   capability.ProviderKey `json:"providerKey"`
}

// ExplainedStep is the result of one step. In and Out are absent if the step was skipped or
// ended the choice.
type ExplainedStep struct {
	Step     int               `json:"step"`
	Name     string            `json:"name"`
	Outcome  string            `json:"outcome"` // kept, narrowed, passed, skipped, selected, composed, failed
	In       *int              `json:"in,omitempty"`
	Out      *int              `json:"out,omitempty"`
	Evidence map[string]string `json:"evidence,omitempty"`
	Rejected []RejectedEntry   `json:"rejected,omitempty"`
}

// RejectedEntry is a rejected entry, with the reason and the rule that denied it.
type RejectedEntry struct {
	Named
	Reason string `json:"reason"`
	Rule   string `json:"ruleId,omitempty"`
}

// ExplainedError is the reason why no provider was chosen.
type ExplainedError struct {
	Code        string   `json:"code"`
	Cause       string   `json:"cause,omitempty"` // code of the slot error behind it
	Message     string   `json:"message"`
	Candidates  []string `json:"candidates"` // provider keys, sorted
	WouldSelect string   `json:"wouldSelect,omitempty"`
	Remediation string   `json:"remediation,omitempty"`
}

// Inputs holds the values that the choice depended on besides the snapshot.
type Inputs struct {
	Context  *capability.Context `json:"context"`
	Selector capability.Selector `json:"selector,omitempty"`
	Audience capability.Audience `json:"audience"`
	Only     []capability.ID     `json:"only,omitempty"`   // the requested entries, if not an action
	Denied   []capability.ID     `json:"denied,omitempty"` // entries that the caller may not use for reasons outside the catalog
	Awake    []capability.ID     `json:"awake,omitempty"`  // entries that were tried although marked unavailable
}

// Request reconstructs the request of the record on a snapshot, which should have the
// record's generation. Entries that no longer exist are left out.
func (in *Inputs) Request(s *catalog.Snapshot, action capability.Action, caller Caller) Request {
	req := Request{Action: action, Selector: in.Selector, Caller: caller, Audience: in.Audience}
	for _, id := range in.Only {
		if e, ok := s.Capability(id); ok {
			req.Only = append(req.Only, e)
		}
	}
	if len(in.Denied) > 0 {
		req.Denied = func(e *catalog.Entry) bool { return slices.Contains(in.Denied, e.ID) }
	}
	if len(in.Awake) > 0 {
		req.Awake = func(e *catalog.Entry) bool { return slices.Contains(in.Awake, e.ID) }
	}
	return req
}

func stepName(step int) string {
	return [...]string{
		"candidates", "explicit-selector", "session-binding", "route-binding", "adapter-support", "policy-forced-default",
		"ranked-default", "deterministic-fallback",
	}[step]
}

// Explain makes the record of a selection. contextEtag is the etag of the agent catalog that
// the call was made against, or "". It calls Request.Denied and Request.Awake again, which
// must return the same results as before.
func Explain(s *Selection, contextEtag string) *Explanation {
	x := &Explanation{
		Action: s.Request.Action, Caller: s.Request.Caller, Generation: s.Frame.Snapshot.Generation, ContextEtag: contextEtag,
		DecidedAtStep: s.Step, DecidedBy: s.DecidedBy, Fallback: s.Fallback, Reasons: slices.Clone(s.Reasons), Inputs: s.inputs(),
	}
	if x.Reasons == nil {
		x.Reasons = []FallbackReason{}
	}
	if x.Action == "" && len(s.Request.Only) > 0 {
		x.Action = s.Request.Only[0].Action
	}
	if s.Entry != nil {
		x.Selected = &Named{s.Entry.ID, s.Entry.Key()}
	}
	for _, e := range s.Composed {
		x.Composed = append(x.Composed, Named{e.ID, e.Key()})
	}
	x.Steps = make([]ExplainedStep, s.Step+1)
	for step := range x.Steps {
		x.Steps[step] = s.explained(step)
	}
	var counts [len(s.marks)]int
	for i := range s.Rejected {
		counts[s.Rejected[i].Step]++
	}
	for i := range s.Rejected {
		r := &s.Rejected[i]
		st := &x.Steps[r.Step]
		if st.Rejected == nil {
			st.Rejected = make([]RejectedEntry, 0, counts[r.Step])
		}
		st.Rejected = append(st.Rejected, RejectedEntry{Named{r.Entry.ID, r.Entry.Key()}, r.Reason, r.Rule})
	}
	if s.Err != nil {
		x.Error = explainedError(s)
	}
	return x
}

func explainedError(s *Selection) *ExplainedError {
	out := &ExplainedError{Code: s.Err.Reason, Message: s.Err.Message, Candidates: []string{}, Remediation: s.Err.Hint}
	if slot := catalog.AsSlotError(s.Err); slot != nil && slot.Code != out.Code {
		out.Cause = slot.Code
	}
	if keys, ok := s.Err.Details["candidates"].([]string); ok && keys != nil {
		out.Candidates = slices.Clone(keys)
	}
	if s.Would != nil {
		out.WouldSelect = string(s.Would.Key())
	}
	return out
}

// inputs collects the values that reproduce the selection.
func (s *Selection) inputs() *Inputs {
	in := &Inputs{Context: s.Frame.Context, Selector: maps.Clone(s.Request.Selector), Audience: s.Request.Audience}
	for _, e := range s.Request.Only {
		in.Only = append(in.Only, e.ID)
	}
	for _, r := range s.Rejected {
		if r.Step == 0 && r.Reason == ReasonDenied && s.Request.Denied != nil && s.Request.Denied(r.Entry) {
			in.Denied = append(in.Denied, r.Entry.ID)
		}
	}
	if s.Request.Awake != nil {
		awake := func(e *catalog.Entry) {
			if !e.Contribution.Unsupported && !e.Eligible() && s.Request.Awake(e) {
				in.Awake = append(in.Awake, e.ID)
			}
		}
		for _, r := range s.Rejected {
			awake(r.Entry)
		}
		for _, e := range append(slices.Clone(s.Composed), s.Entry) {
			if e != nil {
				awake(e)
			}
		}
	}
	return in
}

// explained returns the record of a step without its rejections.
func (s *Selection) explained(step int) ExplainedStep {
	m := s.marks[step]
	out := ExplainedStep{Step: step, Name: stepName(step), Outcome: m.outcome, Evidence: s.evidence(step)}
	last := step == s.Step
	switch {
	case last && s.Err != nil:
		out.Outcome = "failed"
		if step != 0 {
			return out
		}
	case last && s.DecidedBy == "composed":
		out.Outcome = "composed"
	case !m.seen:
		out.Outcome = "skipped"
	}
	in, left := m.in, m.out
	switch {
	case step == 0: // a failure has overwritten the counts in the mark
		in, left = s.offered()
	case out.Outcome == "skipped" || out.Outcome == "selected":
		return out
	}
	out.In, out.Out = &in, &left
	return out
}

// offered returns the number of entries of the action, and the number of candidates.
func (s *Selection) offered() (all, candidates int) {
	fallen := 0
	for _, r := range s.Rejected {
		if r.Step == 0 && r.Reason != RejectedUndecided {
			fallen++
		}
	}
	all = len(s.Rejected) + len(s.Composed)
	if s.Entry != nil {
		all++
	}
	return all, all - fallen
}

// evidence returns the values that decided a step, by name.
func (s *Selection) evidence(step int) map[string]string {
	m := s.marks[step]
	out := make(map[string]string)
	switch step {
	case 1:
		if len(s.Request.Selector) > 0 {
			out["selector"] = Format(s.Request.Selector)
		} else if len(s.Request.Only) == 1 {
			out["capability"] = string(s.Request.Only[0].ID)
		}
	case 2:
		if key := s.pin(2); key != "" {
			out["binding"] = string(key)
		}
	case 3:
		if r := s.Frame.Context.Route; r != nil {
			out["route"] = r.Ref()
			if key := s.pin(3); key != "" {
				out["provider"] = string(key)
			}
		}
	case 4:
		if a := s.Frame.Context.Through(); a != nil && m.outcome != "skipped" {
			out["adapter"] = strings.TrimSuffix(a.Kind+":"+a.Account, ":")
		}
	case 5:
		if m.outcome == "selected" && s.Entry != nil {
			out["forcedDefault"] = string(s.Entry.Key())
		} else if m.evidence != "" {
			out["forcedDefault"] = m.evidence
		}
	case 6:
		s.rankEvidence(out)
	}
	if key, note, found := strings.Cut(m.evidence, ": "); found && (step == 2 || step == 3) {
		if _, known := out["provider"]; !known && step == 3 {
			out["provider"] = key
		}
		out["note"] = note
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// rankEvidence adds the evidence of step 6: the slot and its requested holder, or the rank.
func (s *Selection) rankEvidence(out map[string]string) {
	standing := s.Entry // one of those that had the rank
	for i := 0; standing == nil && i < len(s.Rejected); i++ {
		if s.Rejected[i].Step >= 6 && s.Rejected[i].Reason != rejectedLowerRank {
			standing = s.Rejected[i].Entry
		}
	}
	if s.DecidedBy == "slot_default" || s.Err != nil && s.Step == 6 {
		family := standing
		if family == nil && len(s.Rejected) > 0 {
			family = s.Rejected[0].Entry
		}
		if family != nil && family.Family.Slot != "" {
			choice := s.Frame.Snapshot.Slot(family.Family.Slot, s.Frame.Context.Workspace, s.Frame.Context.Agent)
			out["slot"], out["holder"] = choice.Slot, choice.Requested
			return
		}
	}
	if standing != nil {
		out["rank"] = strconv.Itoa(s.Frame.Snapshot.RankOf(standing))
	}
}

// pin returns the provider to which the session (step 2) or the conversation (step 3) is bound.
func (s *Selection) pin(step int) capability.ProviderKey {
	var e *catalog.Entry
	switch {
	case s.Entry != nil:
		e = s.Entry
	case len(s.Rejected) > 0:
		e = s.Rejected[0].Entry
	default:
		return ""
	}
	if step == 2 {
		return s.Frame.binding(e.Action)
	}
	return s.Frame.RouteKey(e.Family)
}

// ForPlanner returns a copy without the information that a model must not receive: the
// providers that step 0 rejected, their number, and the rules. Other providers keep their
// keys and lose their ids. x is unchanged.
func (x *Explanation) ForPlanner() *Explanation {
	out := *x
	out.Inputs = nil
	hidden := make(map[capability.ProviderKey]bool)
	out.Steps = slices.Clone(x.Steps)
	for i := range out.Steps {
		st := &out.Steps[i]
		kept := make([]RejectedEntry, 0, len(st.Rejected))
		for _, r := range st.Rejected {
			if st.Step == 0 && r.Reason != RejectedUndecided {
				hidden[r.Provider] = true
				continue
			}
			r.Capability, r.Rule = "", ""
			kept = append(kept, r)
		}
		if st.Rejected = kept; len(kept) == 0 {
			st.Rejected = nil
		}
		if st.Step == 0 {
			if st.In = st.Out; st.Outcome == "narrowed" {
				st.Outcome = "kept"
			}
		}
	}
	for i := range out.Steps { // a key that another visible candidate shares is not secret
		for _, r := range out.Steps[i].Rejected {
			delete(hidden, r.Provider)
		}
	}
	if x.Selected != nil {
		delete(hidden, x.Selected.Provider)
	}
	out.hide(hidden)
	return &out
}

// hide removes providers from steps, fallbacks and the error.
func (x *Explanation) hide(hidden map[capability.ProviderKey]bool) {
	x.Reasons = slices.Clone(x.Reasons)
	for i := range x.Reasons {
		if hidden[x.Reasons[i].Provider] {
			x.Reasons[i].Provider, x.Reasons[i].Reason = "", ReasonUnavailable
		}
	}
	for i := range x.Steps {
		st := &x.Steps[i]
		for field, value := range st.Evidence {
			if !hidden[capability.ProviderKey(value)] {
				continue
			}
			st.Evidence = maps.Clone(st.Evidence)
			delete(st.Evidence, field)
			delete(st.Evidence, "note")
			break
		}
	}
	if x.Error == nil {
		return
	}
	e := *x.Error
	if e.Code == "no_provider" && e.Cause == "" {
		e.Message = "no provider of " + string(x.Action) + " can be used here" // nor whether there are any
	}
	for key := range hidden {
		if strings.Contains(e.Message, string(key)) {
			e.Message = "the provider that this would go to may not be used here"
		}
		e.Candidates = slices.DeleteFunc(slices.Clone(e.Candidates), func(k string) bool { return k == string(key) })
	}
	x.Error = &e
}
