package routerserve

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/protocol/router"
)

// route finds the declared route that the concrete path is an instance of: the
// literal one first, then the one whose first parameter comes latest, and what
// takes the whole rest only when nothing else fits. Without any, the concrete
// path itself names what is unknown.
func (v *view) route(module, verb, path string) string {
	if name, ok := v.declared(module, verb, path); ok {
		return name
	}
	return verb + " " + path
}

func (v *view) declared(module, verb, path string) (name string, ok bool) {
	best := ""
	for _, candidate := range v.routes[module] {
		method, pattern, _ := strings.Cut(candidate, " ")
		if method != verb || !router.MatchRoute(pattern, path) {
			continue
		}
		if pattern == path {
			return candidate, true
		}
		// Of equal rank the first by name, so that the order of a manifest does
		// not decide who gets a request.
		if rank := specificity(pattern); best == "" || rank > specificity(best) || rank == specificity(best) && pattern < best {
			best, name = pattern, candidate
		}
	}
	return name, best != ""
}

// find is declared for a path as it came in a URL: a literal segment may stand
// unescaped in the manifest. The path returned is the one that fits.
func (v *view) find(module, verb, path string) (name, fits string, ok bool) {
	if name, ok = v.declared(module, verb, path); ok {
		return name, path, true
	}
	if plain, err := url.PathUnescape(path); err == nil && router.CheckLocalPath(plain) == nil {
		if name, ok = v.declared(module, verb, plain); ok {
			return name, plain, true
		}
	}
	return "", path, false
}

// splitRoute takes the URL of a module's route apart.
func splitRoute(r *http.Request) (module, path string, ok bool) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), routeBase), "/")
	module, err := url.PathUnescape(first)
	return module, "/" + rest, err == nil && router.CheckModuleID(module) == nil
}

// specificity orders patterns that match one path: segment by segment a literal
// ("2") goes before a parameter ("1"), and that before the rest ("0").
func specificity(pattern string) string {
	var b strings.Builder
	for segment := range strings.SplitSeq(pattern, "/") {
		switch {
		case !strings.HasPrefix(segment, ":"):
			b.WriteByte('2')
		case strings.HasSuffix(segment, "*"):
			b.WriteByte('0')
		default:
			b.WriteByte('1')
		}
	}
	return b.String()
}

// verbs are those that the path has a declared route for.
func (v *view) verbs(module, path string) []string {
	var out []string
	for _, verb := range routeVerbs() {
		if _, ok := v.declared(module, verb, path); ok {
			out = append(out, verb)
		}
	}
	return out
}

func routeVerbs() []string {
	return []string{http.MethodDelete, http.MethodGet, http.MethodPatch, http.MethodPost, http.MethodPut}
}

// mount is how a module's own paths begin under our router.
func mount(module string) string { return routeBase + url.PathEscape(module) }

// withheld names the request headers that stay here, besides those of the router
// protocol's own list: what proxies say of the caller, the tokens of our own
// pages, and what the operator says.
func (s *Surface) withheld(h http.Header) []string {
	out := []string{"forwarded", "x-csrf-token", "x-real-ip", "accept-encoding", "expect"}
	for name := range h {
		if strings.HasPrefix(strings.ToLower(name), "x-forwarded-") || named(s.WithheldFromRemotes, name) {
			out = append(out, name)
		}
	}
	return out
}

// named reports whether a list holds the header; an item that ends in * holds all
// that begin so.
func named(list []string, header string) bool {
	return slices.ContainsFunc(list, func(item string) bool {
		begin, all := strings.CutSuffix(item, "*")
		return strings.EqualFold(item, header) || all && len(header) >= len(begin) && strings.EqualFold(header[:len(begin)], begin)
	})
}

// answerable are the headers of a remote's answer that may be sent on, in a fixed
// order. What governs our own origin in a browser is ours to say.
func (s *Surface) answerable(r *http.Request, module string, headers map[string]string) [][2]string {
	var out [][2]string
	for name, value := range router.FilterHeaders(headers) {
		switch lower := strings.ToLower(name); {
		case strings.HasPrefix(lower, "access-control-"), strings.HasPrefix(lower, "content-security-policy"),
			strings.HasPrefix(lower, "x-junctor-"),
			named(s.WithheldFromCallers, name):
			continue
		case slices.Contains([]string{
			"x-content-type-options", "strict-transport-security", "clear-site-data", "service-worker-allowed", "www-authenticate",
			"refresh", "alt-svc", "nel", "report-to", "reporting-endpoints", "content-location", "date",
		}, lower):
			continue
		case lower == "location":
			if value = location(r, module, value); value == "" {
				continue
			}
		}
		out = append(out, [2]string{http.CanonicalHeaderKey(name), value})
	}
	slices.SortFunc(out, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	return out
}

// location is where a remote may send the caller: within our origin. A path from
// the root is the module's own and moves under its mount.
func location(r *http.Request, module, value string) string {
	if strings.ContainsFunc(value, func(c rune) bool { return c <= ' ' || c == 0x7f || c == '\\' }) {
		return "" // browsers read these as something else than we do
	}
	to, err := url.Parse(value)
	switch {
	case err != nil, to.Opaque != "", to.User != nil:
		return ""
	case to.Scheme == "" && to.Host == "":
		if strings.HasPrefix(value, "/") && !strings.HasPrefix(value, mount(module)+"/") && !strings.HasPrefix(r.URL.Path, appBase) {
			return mount(module) + value
		}
		return value
	case (to.Scheme == "http" || to.Scheme == "https") && strings.EqualFold(to.Host, r.Host):
		return value
	}
	return ""
}
