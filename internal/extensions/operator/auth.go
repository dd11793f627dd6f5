package operator

import (
	"cmp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
)

type integration struct {
	*declaration.Auth
	ext, contribution string
}

// AuthChoice is the selected sign-in method; its integration supplies discovery order,
// onboarding, refresh and hooks.
type AuthChoice struct {
	Runtime     string                 `json:"runtimeId"`
	Method      declaration.AuthMethod `json:"method"`
	Integration *declaration.Auth      `json:"integration"`
}

// SelectAuth returns the provider by id, else by alias, and its method: the requested one
// or, if method is "", the one of highest rank. An unknown method is an error. preferred
// is the operator's order of runtime ids.
func (c *Catalog) SelectAuth(provider, method string, preferred []string) (AuthChoice, error) {
	want := lower(provider)
	match := func(by func(a *integration) bool) (out []*integration) {
		for _, a := range c.auth {
			if by(a) {
				out = append(out, a)
			}
		}
		return out
	}
	found := match(func(a *integration) bool { return lower(a.ProviderID) == want })
	if len(found) == 0 {
		found = match(func(a *integration) bool {
			return slices.ContainsFunc(a.Aliases, func(alias string) bool { return lower(alias) == want })
		})
	}
	if len(found) == 0 {
		return AuthChoice{}, capability.Errorf(capability.CodeNotFound, "operator.auth", "no integration signs in to %q", provider).
			With("auth_provider_unknown", "see them with: junctor catalog operator")
	}
	var choices []AuthChoice
	var known []string
	for _, a := range found {
		for _, m := range a.Methods {
			known = append(known, m.ID)
			if method == "" || lower(m.ID) == lower(method) {
				choices = append(choices, AuthChoice{a.ext + "/" + a.contribution, m, a.Auth})
			}
		}
	}
	if len(choices) == 0 {
		return AuthChoice{}, capability.Errorf(capability.CodeNotFound, "operator.auth", "%s has no way %q to sign in", provider, method).
			With("auth_method_unknown", "use one of: "+strings.Join(known, ", "))
	}
	place := func(runtime string) int {
		if i := slices.Index(preferred, runtime); i >= 0 {
			return i
		}
		return len(preferred)
	}
	return slices.MinFunc(choices, func(a, b AuthChoice) int {
		return cmp.Or(cmp.Compare(b.Method.Rank, a.Method.Rank), cmp.Compare(place(a.Runtime), place(b.Runtime)),
			cmp.Compare(a.Runtime, b.Runtime), cmp.Compare(a.Method.ID, b.Method.ID))
	}), nil
}
