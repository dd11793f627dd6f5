package arbitration

import (
	"cmp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
)

// Caller is the kind of caller: a model, for which a provider must not be guessed, or code.
type Caller string

// The callers.
const (
	Planner Caller = "planner"
	Runtime Caller = "runtime"
)

// Request is the call for which a provider is chosen.
type Request struct {
	Action   capability.Action
	Only     []*catalog.Entry // instead of Action: the entries a capability id or a member names
	Selector capability.Selector
	Caller   Caller              // "" is Planner
	Audience capability.Audience // "" is agent
	// Denied reports entries that the caller may not use for reasons outside the
	// catalog (Cedar); they are not candidates. It may be nil.
	Denied func(*catalog.Entry) bool
	// Awake reports whether an entry that is marked unavailable may be tried anyway, because
	// its provider has just responded. If nil, none may.
	Awake func(*catalog.Entry) bool
}

// Rejection is the step and the reason of an entry's rejection.
type Rejection struct {
	Entry  *catalog.Entry
	Step   int
	Reason string
	Rule   string // id of the rule that denied it
}

// Selection is a choice or, if Err is set, the state in which it failed.
type Selection struct {
	Request  Request
	Frame    *Frame
	Entry    *catalog.Entry // nil when the choice failed
	Composed []*catalog.Entry
	Step     int
	// explicit_selector, session_binding, route_binding, current_adapter, only_supported, policy_forced_default,
	// slot_default, ranked_default, deterministic_fallback, composed
	DecidedBy string
	Fallback  bool
	Reasons   []FallbackReason
	Rest      []*catalog.Entry // eligible in this context, in order of preference: the fallbacks of a ranked call
	Rejected  []Rejection      // every other entry of the action, in order of steps
	Would     *catalog.Entry   // the choice for code, if a planner has to choose itself
	Err       *capability.Error

	marks [8]stepMark
}

// FallbackReason is the reason why the bound or preferred provider was not chosen.
type FallbackReason struct {
	Step     int                    `json:"step"`
	Provider capability.ProviderKey `json:"providerKey,omitempty"`
	Reason   string                 `json:"reason"`
}

// stepMark is the recorded outcome of a step.
type stepMark struct {
	seen     bool
	outcome  string
	in, out  int
	evidence string
}

// choosing is a selection in progress.
type choosing struct {
	*Selection
	f        *Frame
	family   *actions.Row
	all      []*catalog.Entry
	excluded []*catalog.Entry // by the explicit selector
	left     []*catalog.Entry
}

// Select chooses the provider of the request. The selection is never nil. On failure the error
// contains a hint and the keys of possible providers, and the selection the steps taken.
func (f *Frame) Select(req Request) (*Selection, error) {
	req.Caller = cmp.Or(req.Caller, Planner)
	req.Audience = cmp.Or(req.Audience, capability.AudienceAgent)
	c := &choosing{Selection: &Selection{Request: req, Frame: f}, f: f}
	for _, step := range []func() bool{c.candidates, c.explicit, c.session, c.route, c.support, c.forced, c.ranked, c.last} {
		if step() {
			break
		}
	}
	if c.Err != nil {
		for _, e := range c.left {
			c.reject(e, c.Step, RejectedUndecided)
		}
		return c.Selection, c.Err
	}
	return c.Selection, nil
}

// Reasons why a permitted entry was not chosen, as used in explanations.
const (
	RejectedUndecided = "undecided" // the choice ended with an error
	rejectedOutranked = "outranked" // another was chosen at an earlier step
	rejectedLowerRank = "lower_rank"
	rejectedTieBreak  = "tie_break"
)

func (s *Selection) reject(e *catalog.Entry, step int, reason string) {
	s.Rejected = append(s.Rejected, Rejection{Entry: e, Step: step, Reason: reason})
}

func (s *Selection) mark(step int, outcome string, in, out int, evidence string) {
	s.marks[step] = stepMark{true, outcome, in, out, evidence}
}

// choose ends the selection with e, rejects the remaining entries, and sets the fallbacks of a
// ranked family. It returns true.
func (c *choosing) choose(e *catalog.Entry, step int, by string) bool {
	c.mark(step, "selected", len(c.left), 1, "")
	c.Entry, c.Step, c.DecidedBy = e, step, by
	reason := rejectedOutranked
	if step == 7 {
		reason = rejectedTieBreak
	}
	for _, other := range c.left {
		if other != e {
			c.reject(other, step, reason)
		}
	}
	if step >= 4 && c.family.Mode == actions.ModeRanked {
		c.rest(e)
	}
	c.left = nil
	return true
}

// rest sets Rest, the providers to which a ranked call may fall back if the chosen one did not
// start it.
func (c *choosing) rest(chosen *catalog.Entry) {
	for _, r := range c.Rejected {
		if r.Entry != chosen && (r.Reason == rejectedOutranked || r.Reason == rejectedLowerRank || r.Reason == rejectedTieBreak) {
			c.Rest = append(c.Rest, r.Entry)
		}
	}
	slices.SortStableFunc(c.Rest, func(a, b *catalog.Entry) int {
		return cmp.Or(cmp.Compare(c.f.Snapshot.RankOf(b), c.f.Snapshot.RankOf(a)), compare(a, b))
	})
}

// compare is the order of the last step.
func compare(a, b *catalog.Entry) int {
	return cmp.Or(
		cmp.Compare(a.Module.Extension, b.Module.Extension), cmp.Compare(a.Contribution.ID, b.Contribution.ID), cmp.Compare(a.Key(), b.Key()),
	)
}

// fail ends the selection with an error and returns true. candidates are the providers that the
// caller may name instead.
func (c *choosing) fail(step int, code capability.Code, reason string, candidates []*catalog.Entry, format string, args ...any) bool {
	c.Step = step
	c.mark(step, reason, len(c.left), 0, "")
	keys := Keys(candidates)
	c.Err = capability.Errorf(code, "arbitrate", format, args...).With(reason, "").Detail("candidates", keys).Detail("step", step)
	c.Err.Hint = howToName(candidates)
	return true
}

// Keys returns the provider keys of entries, sorted and without repetitions.
func Keys(entries []*catalog.Entry) []string {
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, string(e.Key()))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (c *choosing) target() string {
	if c.Request.Action != "" {
		return string(c.Request.Action)
	}
	if len(c.all) > 0 {
		return c.all[0].Name()
	}
	return "this"
}

// candidates is step 0. It drops the entries that may not be used in the context, checks the
// selector, and ends the selection for a composed family.
func (c *choosing) candidates() bool {
	c.all = c.Request.Only
	if c.all == nil {
		c.all = c.f.Snapshot.Action(c.Request.Action)
	}
	if len(c.all) == 0 {
		return c.fail(0, capability.CodeUnavailable, "no_provider", nil, "no provider offers %s", c.target())
	}
	c.family = c.all[0].Family
	for _, e := range c.all {
		reason, rule := c.f.Candidate(e, c.Request.Audience)
		if reason == "" && c.Request.Denied != nil && c.Request.Denied(e) {
			reason = ReasonDenied
		}
		if reason != "" {
			c.Rejected = append(c.Rejected, Rejection{e, 0, reason, rule})
			continue
		}
		if c.left == nil && len(c.all) > 1 {
			c.left = make([]*catalog.Entry, 0, len(c.all))
		}
		c.left = append(c.left, e)
	}
	c.mark(0, outcome(len(c.all), len(c.left)), len(c.all), len(c.left), "")
	if bad := checkSelector(c.Request.Selector); bad != nil {
		c.Step, c.Err = 1, bad.Detail("step", 1)
		c.mark(1, "invalid_selector", len(c.left), 0, "")
		return true
	}
	if c.family.Address == actions.AddressCurrent && c.f.Context.Route == nil && len(c.Request.Selector) == 0 && c.Request.Only == nil {
		return c.fail(3, capability.CodeUnavailable, "no_current_conversation", nil, "%s acts on the current conversation, and there is none",
			c.target())
	}
	if len(c.left) == 0 {
		return c.noCandidates()
	}
	if c.family.Mode == actions.ModeComposed && c.Request.Only == nil {
		c.compose()
		return true
	}
	return false
}

// noCandidates ends the selection with no_provider and the error of the slot, if any.
func (c *choosing) noCandidates() bool {
	c.fail(0, capability.CodeUnavailable, "no_provider", nil, "no provider of %s can be used here", c.target())
	if slot := c.all[0].SlotOf(); slot != "" {
		choice := c.f.Snapshot.Slot(slot, c.f.Context.Workspace, c.f.Context.Agent)
		if choice.Err != nil {
			c.Err.Err, c.Err.Message, c.Err.Hint = choice.Err, c.Err.Message+": "+choice.Err.Error(), choice.Err.Remediation
			c.Err.Details["slot_error"] = choice.Err.Code
		}
	}
	return true
}

func outcome(in, out int) string {
	if in == out {
		return "kept"
	}
	return "narrowed"
}

// compose ends the selection of a composed family with all entries that can serve, by
// descending priority.
func (c *choosing) compose() {
	for _, e := range c.left {
		if reason := eligibility(e, c.Request.Awake); reason != "" {
			c.reject(e, 0, reason)
			continue
		}
		c.Composed = append(c.Composed, e)
	}
	priority := func(e *catalog.Entry) int {
		if a := e.Contribution.Arbitration; a != nil {
			return a.ComposePriority
		}
		return 0
	}
	slices.SortStableFunc(c.Composed, func(a, b *catalog.Entry) int {
		return cmp.Or(cmp.Compare(priority(b), priority(a)), compare(a, b))
	})
	c.DecidedBy, c.left = "composed", nil
}

// explicit is step 1. It keeps the entries that match the selector, and chooses the only one
// if it can serve. If it cannot, or none matches, the selection fails.
func (c *choosing) explicit() bool {
	only := c.Request.Only != nil && len(c.all) == 1
	if len(c.Request.Selector) == 0 && !only {
		c.mark(1, "skipped", len(c.left), len(c.left), "")
		return false
	}
	before := c.left
	kept := make([]*catalog.Entry, 0, len(before))
	want := wantOf(c.Request.Selector)
	for _, e := range before {
		if want.matches(e) {
			kept = append(kept, e)
		} else {
			c.excluded = append(c.excluded, e)
			c.reject(e, 1, "selector_mismatch")
		}
	}
	c.left = kept
	switch len(kept) {
	case 0:
		return c.noMatch(before)
	case 1:
		e := kept[0]
		switch eligibility(e, c.Request.Awake) {
		case "":
			return c.choose(e, 1, "explicit_selector")
		case ReasonUnsupported:
			return c.fail(1, capability.CodeInvalidInput, "unsupported_action", others(c.eligible(before), e), "%s cannot do %s", e.Key(),
				c.target())
		}
		return c.unavailable(e)
	}
	c.mark(1, outcome(len(before), len(kept)), len(before), len(kept), Format(c.Request.Selector))
	return false
}

// unavailable ends the selection with provider_unavailable, or with login_required if a login is missing.
func (c *choosing) unavailable(e *catalog.Entry) bool {
	reason := "provider_unavailable"
	if e.Contribution.Availability.Login != "" {
		reason = "login_required"
	}
	c.fail(1, capability.CodeUnavailable, reason, nil, "%s is not available: %s", e.Key(), stateOf(e))
	c.Err.Hint = remedy(e)
	c.Err.Details["candidates"] = []string{string(e.Key())}
	return true
}

// stateOf describes why an entry accepts no calls.
func stateOf(e *catalog.Entry) string {
	if r := e.Contribution.Availability.Reason; r != "" {
		return r
	}
	return "it is " + string(e.Contribution.Availability.State)
}

// remedy returns the hint for an entry that is not available: configure it, sign in, or list
// the providers of its kind.
func remedy(e *catalog.Entry) string {
	switch e.Contribution.Availability.State {
	case capability.StateUnconfigured:
		return "it is off until it is configured: see junctor config docs"
	case capability.StateUnauthorized:
		return cmp.Or(e.Contribution.Availability.Login, "sign in to it again")
	}
	list := "modules"
	switch _, kind, _ := e.Key().Parts(); kind {
	case "endpoint":
		list = "endpoints"
	case "node":
		list = "nodes"
	case "mcp", "a2a":
		list = "upstreams"
	case "extension":
		list = "extensions"
	}
	return "see what is down with: junctor " + list + " list"
}

// noMatch ends the selection of a selector that matches no candidate: provider_denied,
// unsupported_action, or unknown_provider.
func (c *choosing) noMatch(before []*catalog.Entry) bool {
	named, want := Format(c.Request.Selector), wantOf(c.Request.Selector)
	for _, r := range c.Rejected {
		if r.Step == 0 && want.matches(r.Entry) && !c.unknown(r.Entry) {
			return c.fail(1, capability.CodeDenied, "provider_denied", before, "what %s names may not be used for %s here", named, c.target())
		}
	}
	for e := range c.f.Snapshot.Entries() {
		if e.Family.Domain == c.family.Domain && e.Action != c.all[0].Action && want.matches(e) && len(e.Module.Users) == 0 {
			return c.fail(1, capability.CodeInvalidInput, "unsupported_action", before, "what %s names cannot do %s", named, c.target())
		}
	}
	return c.fail(1, capability.CodeNotFound, "unknown_provider", before, "no provider of %s matches the selector %s", c.target(), named)
}

// unknown reports whether an entry is reserved for certain users and the caller is not one
// of them, so that its existence must stay hidden.
func (c *choosing) unknown(e *catalog.Entry) bool {
	return len(e.Module.Users) > 0 && c.Request.Denied != nil && c.Request.Denied(e)
}

func (c *choosing) eligible(list []*catalog.Entry) []*catalog.Entry {
	var out []*catalog.Entry
	for _, e := range list {
		if eligibility(e, c.Request.Awake) == "" {
			out = append(out, e)
		}
	}
	return out
}

func others(list []*catalog.Entry, but *catalog.Entry) []*catalog.Entry {
	return slices.DeleteFunc(list, func(e *catalog.Entry) bool { return e == but })
}

// Format returns a selector as readable text.
func Format(s capability.Selector) string {
	parts := make([]string, 0, len(s))
	for k, v := range s {
		parts = append(parts, k+"="+v)
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

func (c *choosing) flag(step int, key capability.ProviderKey, reason string) {
	c.Fallback = true
	c.Reasons = append(c.Reasons, FallbackReason{step, key, reason})
}

// slotBacked reports whether the family belongs to a slot.
func (c *choosing) slotBacked() bool { return c.family.Slot != "" }
