package workspace

import (
	"errors"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/secret"
)

// failed converts git's failure to an error with the first relevant line of its output, without
// internal paths and credentials. Known messages get a specific code and reason.
func (m *Manager) failed(op string, result sandbox.Result) error {
	said := result.Stderr.Text()
	if strings.TrimSpace(said) == "" {
		said = result.Stdout.Text()
	}
	line := ""
	for l := range strings.Lines(said) {
		l = strings.TrimSpace(l)
		if line == "" || strings.HasPrefix(line, "warning:") || strings.HasPrefix(line, "Cloning") || strings.HasPrefix(line, "remote:") &&
			strings.HasPrefix(l, "fatal:") {
			line = l
		}
	}
	line = strings.ReplaceAll(strings.ReplaceAll(line, m.base, "<workspaces>"), m.state, "<state>")
	line = text.ShortenBytes(secret.MaskTokens(line), 300)
	e := capability.Wrap(capability.CodeFailed, op, "git failed: "+line, errors.New(secret.MaskTokens(said))).With("git_failed", "")
	has := func(texts ...string) bool {
		for _, t := range texts {
			if strings.Contains(said, t) {
				return true
			}
		}
		return false
	}
	switch {
	case has("Authentication failed", "could not read Username", "could not read Password", "Permission denied (publickey",
		"The requested URL returned error: 403", "The requested URL returned error: 401"):
		return e.With("invalid_credentials", "give a token that may use this repository")
	case has("[rejected]", "stale info", "non-fast-forward"):
		e.Code = capability.CodeConflict
		return e.With("push_rejected", "the branch has changed at the remote: fetch and merge, or push with force")
	case has("not found", "does not appear to be a git repository", "does not exist"):
		e.Code = capability.CodeNotFound
		return e.With("repo_not_found", "check the name, and that the credential may see it")
	case has("Could not resolve host", "Connection refused", "Failed to connect", "Connection timed out", "unable to access"):
		e.Code = capability.CodeUnavailable
		return e.With("remote_unreachable", "try again later")
	case has("No space left on device"):
		return e.With("no_space", "free some space")
	}
	return e
}
