package secret

import (
	"regexp"
	"strings"
)

var credentialName = regexp.MustCompile(`(?i)(token|secret|password|passwd|passphrase|credential|authorization|cookie|api[_-]?key|access[_-]?key|private[_-]?key|[_-]key|[_-]pat|[_-]dsn)$|^(key|pat|auth|dsn|database_url)$`)

// NamesCredential reports whether the name of a variable, header or member is usual for a credential.
func NamesCredential(name string) bool { return credentialName.MatchString(name) }

// IsCredential reports whether a setting seems to hold a credential, by its name, the form of its
// value, or a password within a URL.
func IsCredential(name, value string) bool {
	if value == "" {
		return false
	}
	if NamesCredential(name) || len(FindTokens(value)) > 0 {
		return true
	}
	_, rest, isURL := strings.Cut(value, "://")
	user, _, hasUser := strings.Cut(rest, "@")
	return isURL && hasUser && strings.Contains(user, ":") && !strings.Contains(user, "/")
}
