package secret

import "regexp"

var credentialName = regexp.MustCompile(`(?i)(token|secret|password|passwd|passphrase|credential|authorization|cookie|api[_-]?key|access[_-]?key|private[_-]?key|[_-]key|[_-]pat|[_-]dsn)$|^(key|pat|auth|dsn|database_url)$`)

// NamesCredential reports whether the name of a variable, header or member is usual for a credential.
func NamesCredential(name string) bool { return credentialName.MatchString(name) }
