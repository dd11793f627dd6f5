// Package arbitration chooses the provider of an action in a context. After a filter (step 0)
// it takes seven steps, whose order is guaranteed: the caller's selector, the session's
// binding, the conversation's provider, ability to serve, the operator's default, rank, and a
// fixed order. If a planner's call has effects and several providers remain, it fails instead
// of guessing. Every choice can be explained: each provider of the action appears once, as
// chosen or with the step and the reason of its rejection. The package does no I/O.
package arbitration

import (
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
)

// Reasons why an entry is not a candidate or not eligible in a context, in the
// order they are tested.
const (
	ReasonSlot         = "slot_not_selected"
	ReasonName         = "planner_name"
	ReasonNotVisible   = "not_visible"
	ReasonOutOfScope   = "out_of_scope"
	ReasonDenied       = "policy_denied"
	ReasonBlocked      = "route_blocked"
	ReasonCrossContext = "cross_context_denied"
	ReasonUnsupported  = "unsupported_by_account"
	ReasonUnavailable  = "unavailable"
)

// Frame is a context bound to a snapshot. It decides for any entry whether it may serve the
// context. It is immutable and safe for concurrent use.
type Frame struct {
	Snapshot *catalog.Snapshot
	Context  *capability.Context
	// Unnamed reports whether the tools of an action are withheld because of their name. If
	// nil, none are.
	Unnamed func(capability.Action) bool

	static, dynamic rules.Bound
}

// NewFrame binds a context to a snapshot. The context must not change afterwards.
func NewFrame(s *catalog.Snapshot, c *capability.Context) *Frame {
	return &Frame{Snapshot: s, Context: c, static: s.Rules().Bind(c, rules.Static), dynamic: s.Rules().Bind(c, rules.Dynamic)}
}

// Standing is the part of the filter that depends only on workspace and agent. Names are
// assigned among the entries that pass it. It returns "", or the reason of the rejection and
// the rule that denied.
func (f *Frame) Standing(e *catalog.Entry, a capability.Audience) (reason, rule string) {
	if reason := f.Snapshot.Withheld(e); reason != "" {
		return reason, ""
	}
	if f.Snapshot.SlotWithholds(e, f.Context.Workspace, f.Context.Agent) {
		return ReasonSlot, ""
	}
	if !e.VisibleTo(a) {
		return ReasonNotVisible, ""
	}
	if s := e.Contribution.Scope; s != nil && !(within(s.Workspace, f.Context.Workspace) && within(s.Agent, f.Context.Agent)) {
		return ReasonOutOfScope, ""
	}
	if !f.static.Empty() {
		if v := f.static.Judge(e.Facts()); v.Denied {
			return ReasonDenied, v.Rule
		}
	}
	return "", ""
}

// Candidate returns "", or the reason why the entry cannot be chosen in the context and the
// rule that denied it. It does not check availability.
func (f *Frame) Candidate(e *catalog.Entry, a capability.Audience) (reason, rule string) {
	if f.Unnamed != nil && f.Unnamed(e.Action) {
		return ReasonName, ""
	}
	if reason, rule := f.Standing(e, a); reason != "" {
		return reason, rule
	}
	return f.Passing(e)
}

// Passing is the part of the filter that depends on session, adapter and conversation. It
// returns "", or the reason of the rejection and the rule that denied.
func (f *Frame) Passing(e *catalog.Entry) (reason, rule string) {
	if !f.inScope(e.Contribution.Scope) {
		return ReasonOutOfScope, ""
	}
	if !f.dynamic.Empty() {
		if v := f.dynamic.Judge(e.Facts()); v.Denied {
			return ReasonDenied, v.Rule
		}
	}
	if f.blocked(e.Action) {
		return ReasonBlocked, ""
	}
	if f.crosses(e) {
		return ReasonCrossContext, ""
	}
	return "", ""
}

// Approval reports whether the rules of the catalog or the source require an approval of calls
// to the entry. If waived, the requirement of the source does not count.
func (f *Frame) Approval(e *catalog.Entry, waived bool) bool {
	return e.Approval() && !waived || !f.static.Empty() && f.static.Judge(e.Facts()).Approval ||
		!f.dynamic.Empty() && f.dynamic.Judge(e.Facts()).Approval
}

// Matched returns the ids of the rules that match the entry.
func (f *Frame) Matched(e *catalog.Entry) []string {
	var out []string
	for _, b := range []rules.Bound{f.static, f.dynamic} {
		if !b.Empty() {
			out = append(out, b.Judge(e.Facts()).Matched...)
		}
	}
	return out
}

// eligibility returns "" or the reason why a candidate cannot serve now.
func eligibility(e *catalog.Entry, awake func(*catalog.Entry) bool) string {
	switch {
	case e.Contribution.Unsupported:
		return ReasonUnsupported
	case !e.Eligible() && (awake == nil || !awake(e)):
		return ReasonUnavailable
	}
	return ""
}

// within reports whether a scope dimension admits a value. An empty list or "*" admits every
// value.
func within(list []string, value string) bool {
	return len(list) == 0 || slices.Contains(list, "*") || value != "" && slices.Contains(list, value)
}

// inScope reports whether the scope admits the context's session, adapter, conversation and
// model provider.
func (f *Frame) inScope(s *capability.Scope) bool {
	if s == nil {
		return true
	}
	c := f.Context
	var kind, account, conversation, conversationKind string
	if a := c.Through(); a != nil {
		kind, account = a.Kind, a.Account
	}
	if r := c.Route; r != nil {
		kind, account, conversation, conversationKind = r.Kind, r.Account, r.Conversation, r.ConversationKind
	}
	return within(s.Session, c.Session) && within(s.Account, account) && within(s.Channel, kind) && within(s.Conversation, conversation) &&
		within(s.ConversationKind, conversationKind) && within(s.Provider, c.ModelProvider)
}

// blocked reports whether a verdict of a route augmenter blocks the action in the context.
func (f *Frame) blocked(a capability.Action) bool {
	for i := range f.Context.Blocks {
		if slices.ContainsFunc(f.Context.Blocks[i].Actions, func(glob string) bool { return rules.Glob(glob, string(a)) }) {
			return true
		}
	}
	return false
}

// crosses reports whether Settings.CrossContext excludes the entry, because it belongs to
// another adapter or account than the conversation.
func (f *Frame) crosses(e *catalog.Entry) bool {
	limit := f.Snapshot.Settings().CrossContext
	if limit == "" || limit == "any" || !e.Family.RouteAware {
		return false
	}
	through := f.Context.Through()
	if through == nil {
		return false
	}
	_, kind, instance := e.Key().Parts()
	if kind != segment(through.Kind) {
		return true
	}
	return limit == "same-account" && through.Account != "" && instance != segment(through.Account)
}

// segment returns v escaped as a segment of a provider key.
func segment(v string) string {
	_, _, s := capability.NewProviderKey("x", "x", v).Parts()
	return s
}

// binding returns the provider that the session is bound to for an action, or "". The longest
// matching glob decides.
func (f *Frame) binding(a capability.Action) capability.ProviderKey {
	best := -1
	for i := range f.Context.Bindings {
		b := &f.Context.Bindings[i]
		if (best < 0 || len(b.Actions) > len(f.Context.Bindings[best].Actions)) && rules.Glob(b.Actions, string(a)) {
			best = i
		}
	}
	if best < 0 {
		return ""
	}
	return f.Context.Bindings[best].Provider
}

// RouteKey returns the provider key of the current conversation in the family's domain. It
// is "" without a conversation, or if the family does not follow conversations.
func (f *Frame) RouteKey(family *actions.Row) capability.ProviderKey {
	r := f.Context.Route
	if r == nil || !family.RouteAware {
		return ""
	}
	return capability.NewProviderKey(family.Domain, r.Kind, r.Account)
}

// SelectorFields returns the field names that a selector may use.
func SelectorFields() []string {
	return []string{"provider", "channel", "kind", "store", "account", "instance", "endpoint", "node", "extension", "conversation"}
}

// Matches reports whether an entry fits every field of a selector.
func Matches(e *catalog.Entry, s capability.Selector) bool {
	w := wantOf(s)
	return w.matches(e)
}

// want is a parsed selector: the required parts of a provider key, each "" for any value.
type want struct {
	key, kind, instance, extension string
	never                          bool // two fields contradict each other, or one is not a field
}

// wantOf parses a selector. A malformed one results in a want that matches nothing.
func wantOf(s capability.Selector) want {
	var w want
	need := func(part *string, v string) {
		w.never = w.never || *part != "" && *part != v
		*part = v
	}
	for k, v := range s {
		v = strings.TrimSpace(v)
		switch k {
		case "provider":
			need(&w.key, v)
		case "channel", "kind", "store":
			need(&w.kind, segment(v))
		case "account", "instance":
			need(&w.instance, segment(v))
		case "endpoint", "node":
			need(&w.kind, k)
			need(&w.instance, segment(v))
		case "extension":
			need(&w.extension, v)
		case "conversation":
			parts := strings.SplitN(v, ":", 3)
			if len(parts) < 3 {
				return want{never: true}
			}
			need(&w.kind, segment(parts[0]))
			need(&w.instance, segment(parts[1]))
		default:
			return want{never: true}
		}
		if v == "" {
			return want{never: true}
		}
	}
	return w
}

func (w *want) matches(e *catalog.Entry) bool {
	if w.never || w.key != "" && string(e.Key()) != w.key || w.extension != "" && !strings.EqualFold(e.Module.Extension, w.extension) {
		return false
	}
	_, kind, instance := e.Key().Parts()
	return (w.kind == "" || kind == w.kind) && (w.instance == "" || instance == w.instance)
}

// checkSelector returns invalid_input, reason invalid_selector, for an unknown field or a blank
// value.
func checkSelector(s capability.Selector) *capability.Error {
	for k, v := range s {
		if !slices.Contains(SelectorFields(), k) {
			return capability.Errorf(capability.CodeInvalidInput, "arbitrate", "%q is not a selector field", k).
				With("invalid_selector", "use one of: "+strings.Join(SelectorFields(), ", "))
		}
		if strings.TrimSpace(v) == "" {
			return capability.Errorf(capability.CodeInvalidInput, "arbitrate", "the selector %s is blank", k).
				With("invalid_selector", "a blank selector never means any; leave it out or give a value")
		}
	}
	return nil
}

// DynamicGlobs returns globs of the actions that rules of the account or the session may hide.
func (f *Frame) DynamicGlobs() []string { return f.dynamic.Hides() }
