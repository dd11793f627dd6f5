package inproc

import "strings"

// covers reports whether everything that matches pattern also matches allowed.
// A subject without wildcards is a pattern that matches itself.
func covers(allowed, pattern string) bool {
	for {
		a, aRest, aMore := strings.Cut(allowed, ".")
		p, pRest, pMore := strings.Cut(pattern, ".")
		switch {
		case a == ">":
			return true
		case p == ">", a != "*" && a != p, aMore != pMore:
			return false
		case !aMore:
			return true
		}
		allowed, pattern = aRest, pRest
	}
}

// coversAny reports whether one of the allowed patterns covers pattern.
func coversAny(allowed []string, pattern string) bool {
	for _, a := range allowed {
		if covers(a, pattern) {
			return true
		}
	}
	return false
}
