package arbitration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Text describes the record in English: the request, one sentence for each step, and the
// outcome. It uses only the record, so that a client can describe a server's explanation.
func (x *Explanation) Text() string { return x.TextFor(string(x.Action)) }

// TextFor is Text with another name of the action.
func (x *Explanation) TextFor(action string) string {
	var b strings.Builder
	who := ""
	if x.Caller == Runtime {
		who = ", asked by code" // for which a provider may be guessed
	}
	fmt.Fprintf(&b, "For %s%s:\n", action, who)
	for i := range x.Steps {
		st := &x.Steps[i]
		fmt.Fprintf(&b, "  %d  %s\n", st.Step, x.sentence(st))
	}
	b.WriteString(x.result())
	return b.String()
}

func (x *Explanation) result() string {
	switch {
	case x.Error != nil:
		s := "Nothing is called: " + x.Error.Message + " (" + x.Error.Code + ").\n"
		if x.Error.WouldSelect != "" {
			s += "Code would have got " + x.Error.WouldSelect + ".\n"
		}
		if x.Error.Remediation != "" {
			s += "What to do: " + x.Error.Remediation + ".\n"
		}
		return s
	case x.DecidedBy == "composed":
		list := make([]string, 0, len(x.Composed))
		for _, n := range x.Composed {
			list = append(list, string(n.Provider))
		}
		return "All of them run, in this order: " + strings.Join(list, ", ") + ".\n"
	case x.Selected == nil:
		return ""
	}
	s := "The call goes to " + string(x.Selected.Provider)
	if x.Selected.Capability != "" {
		s += ", as " + string(x.Selected.Capability)
	}
	s += ".\n"
	if x.Fallback {
		for _, r := range x.Reasons {
			s += "This is a fallback: " + x.fallback(r) + ".\n"
		}
	}
	return s
}

func (x *Explanation) fallback(r FallbackReason) string {
	key := string(r.Provider)
	key = cmp.Or(key, "the provider it should have been")
	switch r.Step {
	case 2:
		return "the session is bound to " + key + ", but " + word(r.Reason)
	case 3:
		return "the conversation belongs to " + key + ", but " + word(r.Reason)
	case 5:
		return "the operator's default is " + key + ", which cannot serve now"
	}
	return "nothing but the alphabetical order of ids told the providers apart"
}

// sentence describes one step.
func (x *Explanation) sentence(st *ExplainedStep) string {
	failed := st.Outcome == "failed"
	switch st.Step {
	case 0:
		return x.candidates(st)
	case 1:
		return x.explicit(st)
	case 2:
		return x.bound(st, "The session is bound to ", st.Evidence["binding"], "The session is bound to no provider for this.")
	case 3:
		none := "There is no current conversation."
		if route := st.Evidence["route"]; route != "" {
			none = "The call comes from " + route + ", which has no say in this."
		}
		return x.bound(st, "The call comes from "+st.Evidence["route"]+", which belongs to ", st.Evidence["provider"], none)
	case 4:
		return x.support(st)
	case 5:
		return x.forced(st)
	case 6:
		return x.rank(st)
	}
	if failed {
		return fmt.Sprintf("Only the order of ids is left to tell %s apart, and a model must not be guessed for.", list(st.Rejected))
	}
	return fmt.Sprintf("Nothing else tells them apart, so the first in the order of ids is taken: %s before %s.", x.selected(),
		list(st.Rejected))
}

func (x *Explanation) selected() string {
	if x.Selected == nil {
		return "nobody"
	}
	return string(x.Selected.Provider)
}

func (x *Explanation) candidates(st *ExplainedStep) string {
	in, out := 0, 0
	if st.In != nil && st.Out != nil {
		in, out = *st.In, *st.Out
	}
	var fallen []RejectedEntry
	for _, r := range st.Rejected {
		if r.Reason != RejectedUndecided {
			fallen = append(fallen, r)
		}
	}
	var s string
	switch {
	case in == 0:
		return "No provider offers it."
	case in == out && in == 1:
		s = "One provider offers it and may be used here"
	case in == out:
		s = fmt.Sprintf("%d providers offer it and all may be used here", in)
	case out == 0 && in == 1:
		s = "One provider offers it, and it may not be used here"
	case out == 0:
		s = fmt.Sprintf("%d providers offer it, and none may be used here", in)
	default:
		s = fmt.Sprintf("%d providers offer it, %d of them may be used here", in, out)
	}
	return s + tail(fallen) + "."
}

func (x *Explanation) explicit(st *ExplainedStep) string {
	asked := st.Evidence["selector"]
	if asked == "" {
		asked = st.Evidence["capability"]
	}
	switch {
	case st.Outcome == "skipped":
		return "The call names no provider."
	case st.Outcome == "selected":
		return fmt.Sprintf("The call asks for %s, and that is %s: %s.", asked, x.selected(), chosen(st))
	case st.Outcome == "failed" && x.Error.Code == "invalid_selector":
		return fmt.Sprintf("The call asks for %s, which cannot be understood%s.", asked, untried(st))
	case st.Outcome == "failed":
		return fmt.Sprintf("The call asks for %s, and that cannot be had%s.", asked, untried(st))
	}
	return fmt.Sprintf("The call asks for %s, which fits %s%s.", asked, howMany(st.Out), tail(st.Rejected))
}

// bound describes step 2 or 3, the binding of the session or the conversation.
func (x *Explanation) bound(st *ExplainedStep, because, key, none string) string {
	switch {
	case key == "" && st.Outcome == "failed":
		return "The action works on the current conversation, and there is none that it could mean" + untried(st) + "."
	case st.Outcome == "skipped" || key == "":
		return none
	case st.Outcome == "selected":
		return because + key + ": " + chosen(st) + "."
	case st.Outcome == "failed":
		return because + key + "; that cannot serve, and no other may take its place unless the call names it" + untried(st) + "."
	}
	return because + key + ", but " + word(st.Evidence["note"]) + ": others are considered."
}

func (x *Explanation) support(st *ExplainedStep) string {
	fallen := tail(st.Rejected)
	switch {
	case st.Outcome == "failed":
		return "None of them can do it now" + fallen + "."
	case st.Outcome == "selected" && x.DecidedBy == "current_adapter":
		return fmt.Sprintf("The call comes in through %s, and %s is the provider there: %s.", st.Evidence["adapter"], x.selected(), chosen(st))
	case st.Outcome == "selected":
		return fmt.Sprintf("Only %s can do it now: %s.", x.selected(), chosen(st))
	case st.In != nil && st.Out != nil && *st.Out == 0:
		return "None of them can do it now" + fallen + "."
	case st.Outcome == "kept":
		return "All of them can do it now" + fallen + "."
	}
	return fmt.Sprintf("%s can do it now%s.", capital(howMany(st.Out)), fallen)
}

func (x *Explanation) forced(st *ExplainedStep) string {
	key := st.Evidence["forcedDefault"]
	switch {
	case st.Outcome == "selected":
		return "The operator's default is " + key + ": " + chosen(st) + "."
	case key != "":
		return "The operator's default is " + key + ", which is not among those left: others are considered."
	}
	return "The operator has set no default."
}

func (x *Explanation) rank(st *ExplainedStep) string {
	holder := fmt.Sprintf("%q is chosen for the slot %s", st.Evidence["holder"], st.Evidence["slot"])
	switch {
	case st.Outcome == "failed" && st.Evidence["slot"] == "":
		return "The slot that decides this has no provider" + untried(st) + "."
	case st.Outcome == "failed":
		return holder + ", and it cannot serve; another never takes its place" + untried(st) + "."
	case st.Evidence["slot"] != "" && st.Outcome == "selected":
		return holder + ", and that is " + x.selected() + ": " + chosen(st) + "."
	case st.Outcome == "selected":
		return fmt.Sprintf("%s has the highest rank, %s: %s.", x.selected(), st.Evidence["rank"], chosen(st))
	}
	return fmt.Sprintf("%s share the highest rank, %s%s.", capital(howMany(st.Out)), st.Evidence["rank"], tail(st.Rejected))
}

// howMany returns the number of candidates that a step left, as the subject of a sentence:
// "one of them", "3 of them", or "some" if n is nil.
func howMany(n *int) string {
	switch {
	case n == nil:
		return "some"
	case *n == 1:
		return "one of them"
	}
	return fmt.Sprintf("%d of them", *n)
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// only returns the entries rejected for one reason; without returns all others.
func only(rejected []RejectedEntry, reason string) []RejectedEntry {
	return slices.DeleteFunc(slices.Clone(rejected), func(r RejectedEntry) bool { return r.Reason != reason })
}

func without(rejected []RejectedEntry, reason string) []RejectedEntry {
	return slices.DeleteFunc(slices.Clone(rejected), func(r RejectedEntry) bool { return r.Reason == reason })
}

// chosen states that the step decided, and names the other providers.
func chosen(st *ExplainedStep) string {
	s := "chosen"
	if over := only(st.Rejected, rejectedOutranked); len(over) > 0 {
		s += " before " + list(over)
	}
	return s + tail(without(st.Rejected, rejectedOutranked))
}

// untried names the providers that were still candidates when the selection failed.
func untried(st *ExplainedStep) string {
	if left := only(st.Rejected, RejectedUndecided); len(left) > 0 {
		return "; not tried: " + list(left)
	}
	return tail(without(st.Rejected, RejectedUndecided))
}

// tail names the rejected providers, grouped by reason.
func tail(rejected []RejectedEntry) string {
	if len(rejected) == 0 {
		return ""
	}
	type group struct {
		why  string
		list []RejectedEntry
	}
	var groups []group
	for _, r := range rejected {
		why := word(r.Reason)
		if r.Rule != "" {
			why = "rule " + r.Rule + " of the catalog policy denies it"
		}
		i := slices.IndexFunc(groups, func(g group) bool { return g.why == why })
		if i < 0 {
			i = len(groups)
			groups = append(groups, group{why: why})
		}
		groups[i].list = append(groups[i].list, r)
	}
	parts := make([]string, 0, len(groups))
	for _, g := range groups {
		parts = append(parts, list(g.list)+" ("+g.why+")")
	}
	return "; not " + strings.Join(parts, ", nor ")
}

// list names the first rejected providers and counts the rest.
func list(rejected []RejectedEntry) string {
	keys := make([]string, 0, len(rejected))
	for _, r := range rejected {
		keys = append(keys, string(r.Provider))
	}
	more := ""
	if len(keys) > maxListed {
		more = fmt.Sprintf(" and %d more", len(keys)-maxListed)
		keys = keys[:maxListed]
	}
	return strings.Join(keys, ", ") + more
}

// word returns a reason in words, or an unknown reason unchanged.
func word(reason string) string {
	if w, ok := words()[reason]; ok {
		return w
	}
	return strings.ReplaceAll(reason, "_", " ")
}

func words() map[string]string {
	return map[string]string{
		ReasonSlot:                  "it does not hold the slot",
		ReasonName:                  "its tool has no name of its own: several insist on the same",
		ReasonNotVisible:            "it is not meant for agents",
		ReasonOutOfScope:            "it is declared for other places than this",
		ReasonDenied:                "it is denied to this caller",
		ReasonBlocked:               "blocked for this conversation",
		ReasonCrossContext:          "it belongs to another channel or account than the conversation, and the operator keeps them apart",
		ReasonUnsupported:           "its account cannot do this",
		ReasonUnavailable:           "it is not available",
		"route_surface_conflict":    "another extension claims the same provider, and no setting decides between them",
		"backend_selector_conflict": "another backend claims the same selector",
		"dependency_missing":        "something it requires is not there",
		"dependency_conflict":       "it cannot stand beside another that is there",
		"selector_mismatch":         "does not fit",
		"not_current_adapter":       "not the adapter of the call",
		rejectedLowerRank:           "lower rank",
		rejectedTieBreak:            "later in the order",
		"unknown_provider":          "it is not known",
	}
}
