package offered

// This file determines which names a remote module claims (module names, actions,
// services, routes, views and others) and whether two modules can coexist.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/router"
)

// claim is one name that a module claims: its kind, and the key that no other module may claim.
type claim struct{ kind, key string }

// The kinds of claims whose names are not always exclusive.
const (
	kindAction   = "action"
	kindProvider = "provider"
	kindEvent    = "event"
	kindModel    = "model type"
)

// Claimant is a module with its claims and with its endpoint's policy for shared names.
// [ClaimantOf] and [LocalClaimant] return one.
type Claimant struct {
	Source string // "endpoint/one" or "local"
	Module string
	// Shared allows several modules with models of one type; Strict forbids equal action,
	// provider and event names. Either takes effect if one of two modules has it set, so that
	// the order of connecting does not matter.
	Shared, Strict bool

	claims []claim
}

// String returns the module and its source, for people.
func (c *Claimant) String() string { return fmt.Sprintf("module %s (%s)", c.Module, c.Source) }

// Collide returns the first collision of incoming modules with themselves, each other, or
// existing modules as an error; nil without any.
func Collide(incoming, existing []Claimant) error {
	taken := make(map[claim][]*Claimant)
	for i := range existing {
		for _, c := range existing[i].claims {
			taken[c] = append(taken[c], &existing[i])
		}
	}
	for i := range incoming {
		in := &incoming[i]
		for n, c := range in.claims {
			if path, ok := strings.CutPrefix(c.key, "STATIC "); ok && c.kind == "route" {
				return collision(c, in, in, fmt.Sprintf("%s declares the STATIC route %q, which cannot be served from afar", in, path),
					"declare it as a GET route")
			}
			if slices.Contains(in.claims[:n], c) {
				return collision(c, in, in, fmt.Sprintf("%s declares the %s %q twice", in, c.kind, c.key), "correct the module's manifest")
			}
			for _, other := range taken[c] {
				if !exclusive(c.kind, in, other) {
					continue
				}
				hint := "disconnect one of the two, leave the module out with an allow-list, or rename it at its source"
				if c.kind == kindModel {
					hint += "; a trust policy with allowSharedModelTypes stacks them by priority"
				}
				return collision(c, in, other, fmt.Sprintf("the %s %q of %s is already taken by %s", c.kind, c.key, in, other), hint)
			}
		}
		for _, c := range in.claims {
			taken[c] = append(taken[c], in)
		}
	}
	return nil
}

func exclusive(kind string, a, b *Claimant) bool {
	switch kind {
	case kindAction, kindProvider, kindEvent:
		return a.Strict || b.Strict
	case kindModel:
		return !a.Shared && !b.Shared
	}
	return true
}

func collision(c claim, in, other *Claimant, message, hint string) error {
	return capability.Errorf(capability.CodeConflict, "endpoints.connect", "%s", message).With("registration_conflict", hint).
		Detail("kind", c.kind).Detail("key", c.key).Detail("owners", []string{in.String(), other.String()})
}

// ClaimantOf returns a module of the source with the claims of its manifest.
func ClaimantOf(source string, m *router.Module) Claimant {
	return Claimant{Source: source, Module: m.ID, claims: claimsOf(m)}
}

// claimsOf returns the names that a manifest claims, in the order of its members.
func claimsOf(m *router.Module) []claim {
	var out []claim
	add := func(kind, key string) { out = append(out, claim{kind, key}) }
	add("module name", m.Name)
	for _, a := range m.Actions {
		add(kindAction, a.Name)
	}
	for _, p := range m.Providers {
		add(kindProvider, p.Name)
	}
	for _, e := range m.Events {
		add(kindEvent, e.EventName)
	}
	for _, e := range m.Evaluators {
		add("evaluator", e.Name)
	}
	for _, e := range m.ResponseHandlerEvaluators {
		add("response-handler evaluator", e.Name)
	}
	for _, f := range m.ResponseHandlerFieldEvaluators {
		add("response-handler field evaluator", f.Name)
	}
	for _, s := range m.Services {
		add("service type", s.ServiceType)
	}
	for _, model := range m.Models {
		add(kindModel, model.ModelType)
	}
	for _, r := range m.Routes {
		add("route", strings.ToUpper(r.Method)+" /"+strings.TrimLeft(r.Path, "/"))
	}
	for _, v := range m.Views {
		kind := "gui" // and everything else that is not a terminal's
		if v.ViewType == "tui" {
			kind = "tui"
		}
		add("view", kind+":"+v.ID)
	}
	for _, w := range m.Widgets {
		plugin := w.PluginID
		plugin = cmp.Or(plugin, m.Name)
		add("widget", plugin+"/"+w.ID)
	}
	if m.App != nil {
		for _, tab := range m.App.NavTabs {
			add("nav tab", tab.ID)
		}
	}
	for _, s := range AppSlugs(m) {
		add("app bridge", s)
	}
	return out
}

// AppSlugs returns the names under which the routes of a module's app bridge hang in elizaOS,
// /api/apps/<slug>/…: one for each identifier of the app.
func AppSlugs(m *router.Module) []string {
	if m.AppBridge == nil {
		return nil
	}
	identifiers := []string{m.Name}
	if m.App != nil {
		identifiers = append(identifiers, m.App.RuntimePlugin, m.App.DisplayName)
	}
	var out []string
	for i, id := range identifiers {
		// A repeated identifier counts once; different identifiers with the same slug are a
		// collision of the module with itself.
		if strings.TrimSpace(id) != "" && !slices.Contains(identifiers[:i], id) {
			out = append(out, slug(id))
		}
	}
	return out
}

// slug returns the key for an app's routes: the identifier without a scope, and without
// app- or plugin- unless nothing would remain.
func slug(identifier string) string {
	s := strings.TrimSpace(identifier)
	if scope, rest, ok := strings.Cut(s, "/"); ok && len(scope) > 1 && scope[0] == '@' {
		s = rest
	}
	for _, prefix := range []string{"app-", "plugin-"} {
		if cut, ok := strings.CutPrefix(s, prefix); ok && cut != "" {
			return cut
		}
	}
	return s
}

// LocalClaimant returns a module of this machine with the claims of its manifest, or, if
// it has none, of its published members.
func LocalClaimant(m *capability.Module) Claimant {
	c := Claimant{Source: m.Origin, Module: m.ID}
	if parsed, err := router.ParseModule(m.Manifest); len(m.Manifest) > 0 && err == nil {
		c.claims = claimsOf(&parsed)
		return c
	}
	c.claims = []claim{{"module name", m.Name}}
	for _, one := range m.Contributions {
		kind, name := one.Member.Kind, one.Member.Name
		switch kind {
		case "action", "provider", "event", "route":
		case "model":
			kind = kindModel
		case "service":
			kind, name = "service type", cutLast(name)
		case "evaluator":
			name = cutLast(name)
		case "responseHandlerEvaluator":
			kind, name = "response-handler evaluator", cutLast(name)
		case "responseHandlerFieldEvaluator":
			kind, name = "response-handler field evaluator", cutLast(name)
		default:
			continue
		}
		if one := (claim{kind, name}); !slices.Contains(c.claims, one) {
			c.claims = append(c.claims, one)
		}
	}
	return c
}

// cutLast removes the operation from a member's name: NAME.shouldRun becomes NAME.
func cutLast(name string) string {
	if i := strings.LastIndexByte(name, '.'); i > 0 {
		return name[:i]
	}
	return name
}
