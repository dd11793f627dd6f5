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

// Bounds of one look.
const (
	MaxTargets = 64      // the newest artifacts first
	maxAddress = 2 << 10 // bytes
	maxFound   = 16      // addresses in the texts of one session
)

// TargetKind states how a target is shown.
type TargetKind string

// The kinds.
const (
	ArtifactURI  TargetKind = "artifact_uri"
	ArtifactPath TargetKind = "artifact_path"
	PreviewURL   TargetKind = "preview_url"
	Workspace    TargetKind = "workspace"
)

// Target is one thing that can be shown. It has a URI or a Path.
type Target struct {
	Kind     TargetKind `json:"kind"`
	Title    string     `json:"title"`
	URI      string     `json:"uri,omitzero"`
	Path     string     `json:"path,omitzero"`
	MimeType string     `json:"mimeType,omitzero"`
	Source   string     `json:"source"` // artifact:<id> or session:<id>
	session  string
}

// ShareRoots are the folders that may be shown.
type ShareRoots struct {
	// Allowed are absolute paths.
	Allowed []string
	// Resolve follows links and fails where nothing is: filepath.EvalSymlinks.
	Resolve func(path string) (string, error)
}

// FindTargets returns what can be shown: artifacts first, the newest first of them, then what
// sessions mention and where they worked, the last registered first. Each thing is there
// once. found are those that are not artifacts yet, as they would be recorded: with an id
// that follows from the thread and the thing.
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

// addresses ends where no address goes on in prose, Markdown or HTML.
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

// trimmed is an address without what belongs to the sentence around it.
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

// address is a plain address of the web; preview reports that it is of this machine.
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

// resolved are the roots with their own links followed, without those that are gone.
func (r ShareRoots) resolved() ShareRoots {
	out := ShareRoots{Resolve: r.Resolve}
	for _, root := range r.Allowed {
		if real, err := r.Resolve(root); err == nil && filepath.IsAbs(real) {
			out.Allowed = append(out.Allowed, real)
		}
	}
	return out
}

// within is where a path leads, if that is in a root.
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

// record is a find as an artifact: found twice, it is the same one.
func record(thread string, t Target) row.Artifact {
	sum := sha256.Sum256([]byte(thread + "\x00" + t.URI + "\x00" + t.Path))
	a := row.Artifact{
		ID: "art_" + hex.EncodeToString(sum[:16]), ThreadID: thread, SessionID: t.session, ArtifactType: string(t.Kind),
		Title: text.ClipBytes(t.Title, row.MaxName), URI: t.URI, Path: t.Path,
	}
	return a
}
