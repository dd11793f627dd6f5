package router

import "strings"

// MatchRoute reports whether path matches the declared route path: ":name" matches one segment,
// ":name*" all further segments. The router matches; an endpoint receives the concrete path.
func MatchRoute(declared, path string) bool {
	want, have := strings.Split(declared, "/"), strings.Split(path, "/")
	for i, w := range want {
		if strings.HasPrefix(w, ":") && strings.HasSuffix(w, "*") {
			return true
		}
		if i >= len(have) {
			return false
		}
		if strings.HasPrefix(w, ":") {
			if have[i] == "" {
				return false
			}
			continue
		}
		if w != have[i] {
			return false
		}
	}
	return len(want) == len(have)
}
