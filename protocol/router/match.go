package router

import "strings"

// MatchRoute reports whether path is an instance of the declared route path:
// ":name" stands for one segment, ":name*" for all that follow. Parameters are
// matched by the agent's side; an endpoint receives the concrete path.
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
