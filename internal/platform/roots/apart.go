package roots

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// ownFolders returns the folders of a home in which a server stores its own files. Other folders of a home
// can be roots, because the user made them.
func ownFolders() []string {
	return []string{
		"agents", "arguments", "audit", "bin", "blobs", "cache", "clients", "config.d", "console", "extensions", "logs", "node", "policy",
		"run", "secrets", "state", "tools", "upstreams", "workspaces",
	}
}

// Apart returns an error if a root would give callers files of the server: if it contains the home or secrets,
// a folder of secrets elsewhere, is one of them, or lies in a part of the home that belongs to the server.
// It compares real paths. Empty paths are ignored.
func Apart(path, home, secrets string) error {
	root, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w", path, err)
	}
	for _, private := range []string{home, secrets} {
		if private == "" {
			continue
		}
		real := realPath(private)
		rel, err := filepath.Rel(root, real)
		if err == nil && filepath.IsLocal(rel) {
			return fmt.Errorf("%s contains %s, with this server's tokens and secrets, which every caller could read: "+
				"name folders beside it, or let the server use another home (--home, JUNCTOR_HOME)", path, private)
		}
		rel, err = filepath.Rel(real, root)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		name, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
		if private == secrets || slices.Contains(ownFolders(), strings.ToLower(name)) {
			return fmt.Errorf("%s belongs to this server, whose files callers must not read: name a folder outside of %s", path, private)
		}
	}
	return nil
}

// realPath returns a path without symbolic links. The home may not exist yet, so it resolves the part
// that does.
func realPath(path string) string {
	path = filepath.Clean(path)
	if real, err := filepath.EvalSymlinks(path); err == nil || path == filepath.Dir(path) {
		return real
	}
	return filepath.Join(realPath(filepath.Dir(path)), filepath.Base(path))
}
