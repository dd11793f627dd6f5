package routerserve

import (
	"net/http"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/protocol/router"
)

// PublicRoute identifies a route that may be called without a token by its endpoint, module,
// method and declared path.
type PublicRoute struct{ Endpoint, Module, Method, Path string }

// publicID is the principal of callers without a token. Principals of tokens contain a
// colon, so none has this id.
const publicID = "public"

// stranger is the caller of a public route: at most what an agent may do of
// itself, and less where the rules say so of Principal::"public".
func stranger() capability.Principal {
	return capability.Principal{ID: publicID, Role: capability.RoleAgent}
}

// withoutToken returns the handler for requests without a token to public routes.
func (s *Surface) withoutToken() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.dispatch(w, r, stranger()); err != nil {
			httpapi.WriteError(w, err)
		}
	})
}

// isPublic reports whether a request needs no token: it brings none, the operator
// has opened the route, the module still declares it public with a reason, and
// the rules permit it to a stranger without any caller's approval. Strangers ask
// no user for approvals, or they could flood those who answer.
func (s *Surface) isPublic(r *http.Request) bool {
	if len(s.Public) == 0 || r.Header.Get("Authorization") != "" {
		return false
	}
	module, path, ok := splitRoute(r)
	if !ok {
		return false
	}
	view := s.view()
	name, _, ok := view.find(module, r.Method, path)
	member := capability.Member{Module: module, Kind: "route", Name: name}
	// Were there two of the name, the one that was opened need not be the one asked.
	if !ok || !view.open[member] || len(view.snap.Member(member)) != 1 {
		return false
	}
	plan := s.Engine.Plan(r.Context(), capability.Invocation{
		Surface: "http", Principal: stranger(), Audience: capability.AudienceInternal, Target: capability.Target{Member: member},
	})
	return plan.Err == nil && plan.Verdict.Permitted && plan.Verdict.Consent == ""
}

// openRoutes are those of s.Public that a module of the endpoint declares public now. Without a
// reason, and for what writes without saying so, the declaration does not count.
func (s *Surface) openRoutes(modules []*capability.Module) map[capability.Member]bool {
	out := make(map[capability.Member]bool)
	for _, m := range modules {
		var declared []router.Route // read once a module that is named is there
		for _, p := range s.Public {
			if p.Endpoint != m.Endpoint || p.Module != m.ID {
				continue
			}
			if declared == nil {
				manifest, err := router.ParseModule(m.Manifest)
				if err != nil {
					break
				}
				declared = manifest.Routes
			}
			for _, d := range declared {
				writes := d.Method != http.MethodGet && strings.TrimSpace(d.PublicWrite) == ""
				if d.Method == p.Method && d.Path == p.Path && d.Public && strings.TrimSpace(d.PublicReason) != "" && !writes {
					out[capability.Member{Module: m.ID, Kind: "route", Name: d.Method + " " + d.Path}] = true
				}
			}
		}
	}
	return out
}
