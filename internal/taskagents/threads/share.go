package threads

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// TargetKind is the kind of a target.
type TargetKind string

// The kinds.
const (
	ArtifactURI  TargetKind = "artifact_uri"
	ArtifactPath TargetKind = "artifact_path"
	PreviewURL   TargetKind = "preview_url"
	Workspace    TargetKind = "workspace"
)

// Target is one address or path that can be shared. It has a URI or a Path.
type Target struct {
	Kind     TargetKind `json:"kind"`
	Title    string     `json:"title"`
	URI      string     `json:"uri,omitzero"`
	Path     string     `json:"path,omitzero"`
	MimeType string     `json:"mimeType,omitzero"`
	Source   string     `json:"source"` // artifact:<id> or session:<id>
	session  string
}

// ShareRoots holds the folders whose files may be shared.
type ShareRoots struct {
	// Allowed holds absolute paths.
	Allowed []string
	// Resolve resolves links and fails for a missing path, like filepath.EvalSymlinks.
	Resolve func(path string) (string, error)
}

// FindTargets returns the targets that can be shared, without duplicates: artifacts, the newest
// first, then the addresses in the summaries of sessions and their working directories, the last
// registered first. found holds the ones that are not artifacts yet, as artifacts with an id that
// is derived from thread and target.
func FindTargets(thread row.Thread, artifacts []row.Artifact, sessions []row.Session,
	roots ShareRoots,
) (targets []Target, found []row.Artifact) {
	roots = roots.resolved()
	seen := make(map[string]bool)
	add := func(t Target) bool {
		key := t.URI + "\x00" + t.Path
		if len(targets) >= MaxTargets || seen[key] {
			return false
		}
		seen[key] = true
		targets = append(targets, t)
		return true
	}
	for _, a := range slices.Backward(artifacts) {
		if t, ok := ofArtifact(a, roots); ok {
			add(t)
		}
	}
	for _, s := range slices.Backward(sessions) {
		for _, t := range ofSession(s, roots) {
			if add(t) {
				found = append(found, record(thread.ID, t))
			}
		}
	}
	return targets, found
}

func ofArtifact(a row.Artifact, roots ShareRoots) (Target, bool) {
	t := Target{Kind: ArtifactURI, Title: cmp.Or(a.Title, a.URI, filepath.Base(a.Path)), MimeType: a.MimeType, Source: "artifact:" + a.ID}
	if uri, preview, ok := address(a.URI); ok {
		if t.URI = uri; preview || a.ArtifactType == string(PreviewURL) {
			t.Kind = PreviewURL
		}
		return t, true
	}
	path, ok := roots.within(a.Path)
	if t.Path, t.Kind = path, ArtifactPath; a.ArtifactType == string(Workspace) {
		t.Kind = Workspace
	}
	return t, ok
}

// addresses matches URLs in prose, Markdown or HTML.
var addresses = regexp.MustCompile(`(?i)\bhttps?://[^\s<>"'` + "`" + `\\^{}|]+`)

func ofSession(s row.Session, roots ShareRoots) (targets []Target) {
	for _, raw := range addresses.FindAllString(s.CompletionSummary, maxFound) {
		if uri, preview, ok := address(trimmed(raw)); ok {
			t := Target{Kind: ArtifactURI, Title: uri, URI: uri, Source: "session:" + s.SessionID, session: s.SessionID}
			if preview {
				t.Kind = PreviewURL
			}
			targets = append(targets, t)
		}
	}
	if path, ok := roots.within(s.Workdir); ok {
		targets = append(targets, Target{
			Kind: Workspace, Title: cmp.Or(s.Label, filepath.Base(path)), Path: path,
			Source: "session:" + s.SessionID, session: s.SessionID,
		})
	}
	return targets
}

// trimmed returns a URL without the punctuation of the sentence around it.
func trimmed(s string) string {
	for s != "" {
		last := s[len(s)-1]
		switch {
		case strings.IndexByte(".,;:!?*_~", last) >= 0:
		case last == ')' && strings.Count(s, "(") < strings.Count(s, ")"):
		case last == ']' && strings.Count(s, "[") < strings.Count(s, "]"):
		default:
			return s
		}
		s = s[:len(s)-1]
	}
	return s
}

// address parses a plain http or https URL; preview reports that its host is this machine.
func address(s string) (uri string, preview, ok bool) {
	u, err := url.Parse(s)
	if err != nil || len(s) > maxAddress || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		u.Opaque != "" {
		return "", false, false
	}
	host := strings.ToLower(u.Hostname())
	ip, err := netip.ParseAddr(host)
	preview = host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && (ip.IsLoopback() || ip.IsUnspecified())
	return u.String(), preview, true
}

// resolved returns the roots with links resolved, without missing ones.
func (r ShareRoots) resolved() ShareRoots {
	out := ShareRoots{Resolve: r.Resolve}
	for _, root := range r.Allowed {
		if real, err := r.Resolve(root); err == nil && filepath.IsAbs(real) {
			out.Allowed = append(out.Allowed, real)
		}
	}
	return out
}

// within returns the resolved path, and whether it is in a root.
func (r ShareRoots) within(path string) (string, bool) {
	if !filepath.IsAbs(path) || strings.IndexByte(path, 0) >= 0 {
		return "", false
	}
	real, err := r.Resolve(path)
	if err != nil {
		return "", false
	}
	for _, root := range r.Allowed {
		if rel, err := filepath.Rel(root, real); err == nil && filepath.IsLocal(rel) {
			return real, true
		}
	}
	return "", false
}

// record returns a target as an artifact. The same target always has the same id.
func record(thread string, t Target) row.Artifact {
	sum := sha256.Sum256([]byte(thread + "\x00" + t.URI + "\x00" + t.Path))
	a := row.Artifact{
		ID: "art_" + hex.EncodeToString(sum[:16]), ThreadID: thread, SessionID: t.session, ArtifactType: string(t.Kind),
		Title: text.ClipBytes(t.Title, row.MaxName), URI: t.URI, Path: t.Path,
	}
	return a
}
