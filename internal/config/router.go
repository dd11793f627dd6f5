package config

import (
	"fmt"
	"regexp"
	"strings"
)

// validate returns an error for the first malformed header name or public route.
func (r *Router) validate() error {
	header := regexp.MustCompile("^[!#$%&'+.^_`|~0-9A-Za-z-]+[*]?$")
	for key, names := range map[string][]string{
		"withheld_request_headers": r.WithheldRequestHeaders,
		"withheld_answer_headers":  r.WithheldAnswerHeaders,
	} {
		for i, name := range names {
			if !header.MatchString(name) {
				return fmt.Errorf("router.%s[%d]: %q is not the name of a header", key, i, name)
			}
		}
	}
	for i, p := range r.PublicRoutes {
		at := fmt.Sprintf("router.public_routes[%d]", i)
		if !endpointID().MatchString(p.Endpoint) {
			return fmt.Errorf("%s.endpoint: %q is not the id of an endpoint", at, p.Endpoint)
		}
		if !regexp.MustCompile(`^[A-Za-z0-9._-]+$`).MatchString(p.Module) {
			return fmt.Errorf("%s.module: %q is not the id of a module", at, p.Module)
		}
		if err := oneOf(at+".method", p.Method, "GET", "POST", "PUT", "PATCH", "DELETE"); err != nil {
			return err
		}
		if !strings.HasPrefix(p.Path, "/") || strings.ContainsAny(p.Path, "?# ") {
			return fmt.Errorf("%s.path: %q is not a path that begins with /", at, p.Path)
		}
	}
	return nil
}

// parsePublicRoutes parses a comma-separated list of endpoint/module:METHOD:/path.
func parsePublicRoutes(s string) ([]any, error) {
	var out []any
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		endpoint, rest, ok := strings.Cut(part, "/")
		module, rest, ok2 := strings.Cut(rest, ":")
		method, path, ok3 := strings.Cut(rest, ":")
		if !ok || !ok2 || !ok3 {
			return nil, fmt.Errorf("%q is not endpoint/module:METHOD:/path", part)
		}
		out = append(out, map[string]any{"endpoint": endpoint, "module": module, "method": method, "path": path})
	}
	return out, nil
}
