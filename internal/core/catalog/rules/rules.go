// Package rules implements the operator's rules on which actions a context publishes: deny,
// allow and approve, in layers that are intersected, so that a lower layer can only narrow.
// Rules do not depend on the principal; whether a principal may call is decided by Cedar
// policies.
package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

// Rule is one rule of the operator. Match patterns are anchored globs over the
// canonical action, or, with a prefix, over "provider:", "ext:", "tag:",
// "effect:"; "group:" and "profile:" expand to a list.
type Rule struct {
	ID        string   `json:"id,omitempty"`
	Layer     string   `json:"layer,omitempty"` // global (default), workspace, agent, account, session
	Workspace string   `json:"workspace,omitempty"`
	Agent     string   `json:"agent,omitempty"`
	Account   string   `json:"account,omitempty"` // <kind>:<account>, or an account of any kind
	Session   string   `json:"session,omitempty"`
	Effect    string   `json:"effect"` // deny, allow, approve
	Match     []string `json:"match"`
}

// Facts holds the attributes of an entry that rules match.
type Facts struct {
	Action    string
	Provider  string
	Extension string
	Effect    capability.Effect
	Tags      []string
}

// Verdict is the result of the rules for an entry in a context.
type Verdict struct {
	Denied   bool
	Approval bool
	Rule     string   // the rule that denied it; for a layer whose allow-list lacks it, the layer's first rule
	Matched  []string // ids of the rules that matched, sorted
}

// Set is a compiled list of rules. It is immutable and safe for concurrent use.
type Set struct {
	rules []compiled
	known []Pattern
}

type compiled struct {
	Rule
	id       string
	patterns []matcher
}

type matcher struct{ field, glob string }

// Pattern is one pattern as the operator wrote it, with the rule that contains it.
type Pattern struct {
	Rule, Text string
	Allow      bool
	expanded   []matcher
}

const (
	maxRules   = 1024
	maxMatches = 256
)

// Compile checks and compiles the rules. It returns an error that names the rule if there are
// more than 1,024 rules or 256 patterns in one, if a layer, effect, prefix, group or profile
// is unknown, or if a layer's value is missing.
func Compile(rules []Rule) (*Set, error) {
	if len(rules) > maxRules {
		return nil, bad("there are %d catalog rules; the limit is %d", len(rules), maxRules)
	}
	s := &Set{}
	for i, r := range rules {
		id := r.ID
		if id == "" {
			id = fmt.Sprintf("r%d", i+1)
		}
		r.Layer = cmp.Or(r.Layer, "global")
		needs := map[string]string{"global": "-", "workspace": r.Workspace, "agent": r.Agent, "account": r.Account, "session": r.Session}
		value, known := needs[r.Layer]
		switch {
		case !known:
			return nil, bad("rule %s: %q is not a layer; use global, workspace, agent, account or session", id, r.Layer)
		case value == "":
			return nil, bad("rule %s: a rule of layer %s names its %s", id, r.Layer, r.Layer)
		case r.Effect != "deny" && r.Effect != "allow" && r.Effect != "approve":
			return nil, bad("rule %s: the effect is deny, allow or approve, not %q", id, r.Effect)
		case len(r.Match) == 0 || len(r.Match) > maxMatches:
			return nil, bad("rule %s: match has 1 to %d patterns", id, maxMatches)
		}
		c := compiled{Rule: r, id: id}
		for _, text := range r.Match {
			list, err := expand(text, 0)
			if err != nil {
				return nil, bad("rule %s: %s", id, err)
			}
			c.patterns = append(c.patterns, list...)
			s.known = append(s.known, Pattern{Rule: id, Text: text, Allow: r.Effect == "allow", expanded: list})
		}
		s.rules = append(s.rules, c)
	}
	return s, nil
}

func bad(format string, args ...any) error {
	return capability.Errorf(capability.CodeInvalidInput, "catalog.rules", format, args...).With("invalid_rule", "")
}

// expand parses a pattern and replaces groups and profiles by their patterns, up to three
// levels deep.
func expand(text string, depth int) ([]matcher, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, fmt.Errorf("a pattern is blank")
	}
	prefix, rest, found := strings.Cut(text, ":")
	if !found {
		return []matcher{{"action", text}}, nil
	}
	switch prefix {
	case "provider", "ext", "tag", "effect":
		return []matcher{{prefix, rest}}, nil
	case "group", "profile":
		names := groups()[text]
		if names == nil || depth > 2 {
			return nil, fmt.Errorf("there is no %s", text)
		}
		var out []matcher
		for _, name := range names {
			list, err := expand(name, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, list...)
		}
		return out, nil
	}
	return nil, fmt.Errorf("%q has an unknown prefix; use one of provider:, ext:, tag:, effect:, group: and profile: in front", text)
}

// groups returns the patterns of each group and profile.
func groups() map[string][]string {
	return map[string][]string{
		"group:messaging":   {"message.*", "conversation.*"},
		"group:fs":          {"fs.*"},
		"group:runtime":     {"pty.*", "exec.*"},
		"group:git":         {"git.*"},
		"group:memory":      {"memory.*"},
		"group:task-agent":  {"task-agent.*", "workspace.*"},
		"group:device":      {"device.*"},
		"group:web":         {"web.*", "browser.*"},
		"group:extensions":  {"ext.*", "fn.*"},
		"profile:minimal":   {"session.status", "catalog.*"},
		"profile:messaging": {"group:messaging", "directory.*", "profile:minimal"},
		"profile:coding":    {"group:fs", "group:runtime", "group:git", "group:memory", "group:task-agent", "analyze.*", "profile:minimal"},
		"profile:full":      {"*"},
	}
}

// matches reports whether the glob matches the field of the matcher, or one of the tags.
func (m matcher) matches(f Facts) bool {
	switch m.field {
	case "action":
		return Glob(m.glob, f.Action)
	case "provider":
		return Glob(m.glob, f.Provider)
	case "ext":
		return Glob(m.glob, f.Extension)
	case "effect":
		return Glob(m.glob, string(f.Effect))
	}
	return slices.ContainsFunc(f.Tags, func(tag string) bool { return Glob(m.glob, tag) })
}

// Glob reports whether s matches the anchored pattern: '*' any run of bytes, '?'
// one byte. It costs at most len(pattern)·len(s).
func Glob(pattern, s string) bool {
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p, i = p+1, i+1
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// Part selects layers. Static layers (global, workspace, agent) depend only on workspace and
// agent, and names are assigned among the entries that they allow. Dynamic layers
// (account, session) depend on the call's context.
type Part int

// The parts.
const (
	Static Part = iota
	Dynamic
)

// Bound is the rules that apply in one context.
type Bound struct{ rules []*compiled }

// Empty reports whether no rule applies.
func (b Bound) Empty() bool { return len(b.rules) == 0 }

// Bind returns the rules of a part that apply in the context.
func (s *Set) Bind(c *capability.Context, part Part) Bound {
	var b Bound
	for i := range s.rules {
		r := &s.rules[i]
		ok := false
		switch r.Layer {
		case "global":
			ok = part == Static
		case "workspace":
			ok = part == Static && r.Workspace == c.Workspace
		case "agent":
			ok = part == Static && r.Agent == c.Agent && (r.Workspace == "" || r.Workspace == c.Workspace)
		case "account":
			if a := c.Through(); part == Dynamic && a != nil {
				ok = r.Account == a.Account || r.Account == a.Kind+":"+a.Account
			}
		case "session":
			ok = part == Dynamic && r.Session == c.Session
		}
		if ok {
			b.rules = append(b.rules, r)
		}
	}
	return b
}

// Hides returns globs of the actions that the bound rules may hide: "*" if there is an allow
// rule, or a deny rule that matches more than the action.
func (b Bound) Hides() []string {
	var globs []string
	for _, r := range b.rules {
		if r.Effect == "approve" {
			continue
		}
		for _, m := range r.patterns {
			if r.Effect == "allow" || m.field != "action" {
				return []string{"*"}
			}
			globs = append(globs, m.glob)
		}
	}
	return globs
}

// Judge applies the bound rules to an entry. It is denied if a deny rule matches, or if a layer
// has allow rules and none of them matches. Approval is set if an approve rule matches.
func (b Bound) Judge(f Facts) Verdict {
	var v Verdict
	if len(b.rules) == 0 {
		return v
	}
	type layer struct {
		first   string
		allowed bool
	}
	layers := make(map[string]*layer, 2)
	for _, r := range b.rules {
		hit := slices.ContainsFunc(r.patterns, func(m matcher) bool { return m.matches(f) })
		if hit {
			v.Matched = append(v.Matched, r.id)
		}
		switch r.Effect {
		case "deny":
			if hit && !v.Denied {
				v.Denied, v.Rule = true, r.id
			}
		case "approve":
			v.Approval = v.Approval || hit
		case "allow":
			l := layers[r.Layer]
			if l == nil {
				l = &layer{first: r.id}
				layers[r.Layer] = l
			}
			l.allowed = l.allowed || hit
		}
	}
	if !v.Denied {
		for _, name := range []string{"global", "workspace", "agent", "account", "session"} {
			if l := layers[name]; l != nil && !l.allowed {
				v.Denied, v.Rule = true, l.first
				break
			}
		}
	}
	slices.Sort(v.Matched)
	return v
}

// Layers returns the workspaces, agents, accounts and sessions that the rules name. Contexts
// that differ only in other values get the same verdicts.
func (s *Set) Layers() (workspaces, agents, accounts, sessions map[string]bool) {
	workspaces, agents, accounts, sessions = map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i := range s.rules {
		r := &s.rules[i]
		for value, set := range map[string]map[string]bool{r.Workspace: workspaces, r.Agent: agents, r.Account: accounts, r.Session: sessions} {
			if value != "" {
				set[value] = true
			}
		}
	}
	return workspaces, agents, accounts, sessions
}

// Patterns returns every pattern as written.
func (s *Set) Patterns() []Pattern { return s.known }

// Matches reports whether the pattern matches the entry.
func (p *Pattern) Matches(f Facts) bool {
	return slices.ContainsFunc(p.expanded, func(m matcher) bool { return m.matches(f) })
}
