package restserve

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/policyfiles"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// PolicyFiles is the folder of policy files.
type PolicyFiles interface {
	Change(ctx context.Context, by capability.Principal, c policy.Change, dry bool) (policyfiles.Changed, error)
	Fault() error
}

// ruling is the decision of the rules about one principal and one capability.
type ruling struct {
	Decision string        `json:"decision"` // allow, ask or deny
	Rules    []policy.Rule `json:"rules"`    // those that decided; the text is left out
	// Because explains a decision that no rule made.
	Because string `json:"because,omitempty"`
}

// policyRules handles GET /api/v1/policy.
func (s *Surface) policyRules(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	body := struct {
		Rules   []policy.Rule     `json:"rules"`
		Fault   *capability.Error `json:"fault,omitempty"` // why the files on disk are not in force
		Unknown []policy.Name     `json:"unknown"`
	}{Rules: append([]policy.Rule{}, s.Policy.Rules()...), Unknown: append([]policy.Name{}, s.Policy.Unknown(s.Catalog.Snapshot())...)}
	if err := s.PolicyFiles.Fault(); err != nil {
		body.Fault = capability.AsError(err)
	}
	return httpapi.Answer(w, body, nil)
}

// checkPolicy handles POST /api/v1/policy/check: it reports what is wrong with one file,
// without using it. A rule about a name that the catalog does not have is an error too.
func (s *Surface) checkPolicy(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	var req struct {
		Name string `json:"name"`
		Text string `json:"text"`
	}
	if err := httpapi.Decode(w, r, &req); err != nil {
		return err
	}
	if len(req.Text) > maxPolicyBytes {
		return capability.Errorf(capability.CodeTooLarge, "policy.check", "the policy has more than %d bytes", maxPolicyBytes)
	}
	rules, err := policy.CheckAgainst(policy.Document{Name: req.Name, Text: []byte(req.Text)}, s.Catalog.Snapshot())
	return httpapi.Answer(w, map[string]any{"ok": true, "rules": rules}, err)
}

// testPolicy handles POST /api/v1/policy/test: the decision about one call that is not made.
func (s *Surface) testPolicy(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	var req struct {
		As     string          `json:"as"`
		Target string          `json:"target"`
		Input  json.RawMessage `json:"input,omitempty"`
	}
	if err := httpapi.Decode(w, r, &req); err != nil {
		return err
	}
	who, err := s.principal(req.As)
	if err != nil {
		return err
	}
	entries, err := s.targets(req.Target)
	if err != nil {
		return err
	}
	type tested struct {
		Capability capability.ID          `json:"capability"`
		Tool       string                 `json:"tool"`
		Provider   capability.ProviderKey `json:"provider"`
		ruling
		InputError string `json:"input_error,omitempty"`
	}
	out := []tested{}
	for _, e := range entries {
		one := tested{Capability: e.ID, Tool: nameInRules(e), Provider: e.Key(), ruling: s.rule(who, e)}
		if schema, err := e.Schema(); err == nil && schema != nil && len(req.Input) > 0 {
			if err := schema.Check(req.Input); err != nil {
				one.InputError = capability.AsError(err).Message
			}
		}
		out = append(out, one)
	}
	return httpapi.Answer(w, map[string]any{"principal": who, "results": out}, nil)
}

// changePolicy handles POST /api/v1/policy/changes. With dry_run nothing is written.
func (s *Surface) changePolicy(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	var req struct {
		policy.Change
		DryRun bool `json:"dry_run,omitempty"`
	}
	if err := httpapi.Decode(w, r, &req); err != nil {
		return err
	}
	req.Change = s.namedAsInRules(req.Change)
	if err := req.Check(s.Catalog.Snapshot()); err != nil {
		return err
	}
	tokens, err := s.Policy.Tokens(r.Context())
	if err != nil {
		return err
	}
	if err := req.CheckFor(tokens, time.Now()); err != nil {
		return err
	}
	done, err := s.PolicyFiles.Change(r.Context(), who, req.Change, req.DryRun)
	return httpapi.Answer(w, done, err)
}

// namedAsInRules returns a change with the name that rules have for its target. If a rule about the
// target as it was given exists, the change is about that rule.
func (s *Surface) namedAsInRules(c policy.Change) policy.Change {
	found := s.find(c.Target)
	exists := slices.ContainsFunc(s.Policy.Rules(), func(r policy.Rule) bool { return r.ID == c.ID() })
	if len(found) > 0 && !exists {
		c.Target = nameInRules(found[0])
	}
	return c
}

// find returns the entries that a name in any of its forms means; see [invoke.Find].
func (s *Surface) find(name string) []*catalog.Entry {
	if name == "" {
		return nil
	}
	agent, _, err := s.Engine.Agent(capability.Invocation{})
	if err != nil {
		return nil
	}
	return invoke.Find(agent, name)
}

// tool is one entry in the answer of GET /api/v1/tools.
type tool struct {
	Name        string                 `json:"name"` // as the principal's clients see it; "" if it is not listed
	Tool        string                 `json:"tool"` // as policies name it
	Provider    capability.ProviderKey `json:"provider"`
	Description string                 `json:"description,omitempty"` // at most 200 characters
	Effect      capability.Effect      `json:"effect"`
	State       capability.State       `json:"state"`
	App         *mcpwire.App           `json:"app,omitempty"` // of a tool of an MCP server that declares a page, or who may call it
	ruling
}

// tools handles GET /api/v1/tools?as=PRINCIPAL: every tool of the catalog, whether and under
// which name tools/list shows it to the principal, and the decision about a call of it.
//
// as may also be "agent", for an agent without rules of its own. The parameters q (words in the name
// or the provider), server (an MCP server or A2A agent), effect and decision filter. With limit (1
// to 1,000) the answer is a page in the order of names, with the total that the filters leave and
// next, the parameter after of the page that follows.
func (s *Surface) tools(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	query := r.URL.Query()
	if as := query.Get("as"); as != "" {
		var err error
		if who, err = s.principal(as); err != nil {
			return err
		}
	}
	limit, err := httpapi.Number(r, "limit", 0, 1, maxTools)
	if err != nil {
		return err
	}
	names, listed := make(map[capability.ID]string), 0
	for name, entries := range s.Listed(who) {
		listed++
		for _, e := range entries {
			names[e.ID] = name
		}
	}
	entries := s.matching(strings.Fields(strings.ToLower(query.Get("q"))), capability.Effect(query.Get("effect")), names)
	if server := query.Get("server"); server != "" {
		entries = slices.DeleteFunc(entries, func(e named) bool { return policy.ServerOf(e.entry) != server })
	}
	if decision := query.Get("decision"); decision != "" {
		entries = slices.DeleteFunc(entries, func(e named) bool { return s.rule(who, e.entry).Decision != decision })
	}
	body := map[string]any{"principal": who, "listed": listed, "total": len(entries)}
	if limit > 0 {
		after := query.Get("after")
		from, _ := slices.BinarySearchFunc(entries, after, func(e named, after string) int {
			if e.order <= after && after != "" {
				return -1
			}
			return 1
		})
		entries = entries[from:]
		if len(entries) > limit {
			entries = entries[:limit]
			body["next"] = entries[limit-1].order
		}
	}
	out := make([]tool, len(entries))
	for i, e := range entries {
		out[i] = tool{
			names[e.entry.ID], e.name, e.entry.Key(), text.CutRunes(text.OneLine(e.entry.Contribution.Description), 200), e.entry.Effect,
			e.entry.Contribution.Availability.State, appOf(e.entry), s.rule(who, e.entry),
		}
	}
	if limit == 0 {
		body["deferred"] = deferred(out)
	}
	body["tools"] = out
	return httpapi.Answer(w, body, nil)
}

// appOf returns what a tool declares of its page, or nil for nothing.
func appOf(e *catalog.Entry) *mcpwire.App {
	app := mcpwire.AppOf(e.Contribution.Definition)
	if app == mcpwire.AppOf(nil) {
		return nil
	}
	return &app
}

// named is an entry with its name in rules and its place in lists.
type named struct {
	entry       *catalog.Entry
	name, order string
	where       string // name and provider in lower case
}

// toolOrder holds the entries that agents may see in the order of their names, for the last snapshot.
type toolOrder struct {
	mu   sync.Mutex
	snap *catalog.Snapshot
	list []named
}

func (o *toolOrder) of(snap *catalog.Snapshot) []named {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.snap == snap {
		return o.list
	}
	o.snap, o.list = snap, nil
	for e := range snap.Entries() {
		if e.VisibleTo(capability.AudienceAgent) {
			name := nameInRules(e)
			o.list = append(o.list, named{e, name, name + "\x00" + string(e.ID), strings.ToLower(name + " " + string(e.Key()))})
		}
	}
	slices.SortFunc(o.list, func(a, b named) int { return strings.Compare(a.order, b.order) })
	return o.list
}

// matching returns the entries that agents may see, whose names or providers contain all words and
// whose effect is the given one unless that is "". They are in the order of their names. listed are
// the names in tools/list.
func (s *Surface) matching(words []string, effect capability.Effect, listed map[capability.ID]string) []named {
	var out []named
	for _, e := range s.order.of(s.Catalog.Snapshot()) {
		if effect != "" && e.entry.Effect != effect {
			continue
		}
		if len(words) > 0 {
			name := strings.ToLower(listed[e.entry.ID])
			if slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(e.where, word) && !strings.Contains(name, word) }) {
				continue
			}
		}
		out = append(out, e)
	}
	return out
}

// deferred returns the number of usable tools that tools/list leaves out. The tools that call
// others are listed only if there are such tools.
func deferred(all []tool) (n int) {
	cut := false
	for _, t := range all {
		cut = cut || t.Name != "" && t.Tool == string(compile.ActionCall)
		if t.Name == "" && t.Decision != "deny" && (capability.Availability{State: t.State}).Eligible() {
			n++
		}
	}
	if !cut {
		return 0
	}
	return n
}

// nameInRules returns the name by which "junctor policy" refers to an entry.
func nameInRules(e *catalog.Entry) string {
	if tool := policy.ToolOf(e); tool != "" {
		return tool
	}
	return string(e.Action)
}

// principal returns the principal with this id, or for "agent" an agent without a name. Error: not_found if no token makes it.
func (s *Surface) principal(id string) (capability.Principal, error) {
	if id == string(capability.RoleAgent) {
		return capability.Principal{ID: id, Role: capability.RoleAgent}, nil
	}
	who, ok := s.Policy.Find(id)
	if !ok {
		return capability.Principal{}, capability.Errorf(capability.CodeNotFound, "policy", "no valid token has the principal %q", id).
			With("principal_not_found", "see the names with: junctor tokens list")
	}
	return who, nil
}

// targets returns the entries that a name of a tool, an action or a capability means.
func (s *Surface) targets(name string) ([]*catalog.Entry, error) {
	if found := s.find(name); len(found) > 0 {
		return found, nil
	}
	return nil, policy.UnknownTarget("policy.test", name, s.Catalog.Snapshot())
}

// rule returns the decision about calls of an entry by a principal, as the path of a call
// makes it.
func (s *Surface) rule(who capability.Principal, e *catalog.Entry) ruling {
	v := s.Policy.Authorize(who, e)
	out := ruling{Decision: "deny", Rules: []policy.Rule{}}
	for _, rule := range s.Policy.Rules() {
		if slices.Contains(v.Policies, rule.ID) {
			rule.Text = ""
			out.Rules = append(out.Rules, rule)
		}
	}
	person := who.Role == capability.RoleAdmin || who.Role == capability.RoleOperator
	switch {
	case v.Fault != "":
		out.Because = "the rule cannot be evaluated: " + v.Fault
	case len(v.Withheld) > 0:
		out.Because = "the deployment mode withholds a permission of the extension"
	case !v.Permitted && len(v.Policies) == 0:
		out.Because = "no rule permits it"
	case !v.Permitted:
	case v.Consent != "":
		out.Decision = "ask"
	case e.Approval() && !v.Waives && !person:
		out.Decision, out.Because = "ask", "the tool declares that it is destructive"
	default:
		out.Decision = "allow"
	}
	if out.Decision != "ask" {
		return out
	}
	channel := cmp.Or(v.Consent, policy.ChannelOperator)
	if g, ok := s.Policy.StandingGrant(policy.Asked{Principal: who, Entry: e, Channel: channel, Exact: v.Consent == ""}); ok {
		until := "until it is revoked"
		if !g.Expires.IsZero() {
			until = "until " + g.Expires.UTC().Format(time.RFC3339)
		}
		if g.ContentHash != "" {
			until += " or its provider changes"
		}
		out.Decision = "allow"
		out.Because = fmt.Sprintf("the grant %s of %s permits it with any input, %s", g.ID, g.GrantedBy, until)
	}
	return out
}
