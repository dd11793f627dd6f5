package roots

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
)

func open(t *testing.T) (*Set, string) {
	t.Helper()
	base := t.TempDir()
	for _, d := range []string{"a/sub", "b", "outside"} {
		if err := os.MkdirAll(filepath.Join(base, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"a/out": "../outside", "a/in": "sub", "linked": "a"} {
		if err := os.Symlink(to, filepath.Join(base, link)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open([]Root{{ID: "a", Path: filepath.Join(base, "linked")}, {ID: "b", Path: filepath.Join(base, "b"), ReadOnly: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, base
}

func TestResolve(t *testing.T) {
	t.Parallel()
	s, base := open(t)
	tests := []struct {
		name, root, path string
		id, rel          string
		code             capability.Code
		reason           string
	}{
		{"blank is the first root", "", " ", "a", ".", "", ""},
		{"relative", "", "sub/../x", "a", "x", "", ""},
		{"named root", "b", "x", "b", "x", "", ""},
		{"absolute inside the configured path", "", filepath.Join(base, "linked/sub"), "a", "sub", "", ""},
		{"absolute inside the real path", "", filepath.Join(base, "a/sub"), "a", "sub", "", ""},
		{"absolute finds its root", "", filepath.Join(base, "b"), "b", ".", "", ""},
		{"absolute in another root than named", "a", filepath.Join(base, "b"), "", "", capability.CodeDenied, "security_violation"},
		{"absolute outside", "", "/etc/passwd", "", "", capability.CodeDenied, "security_violation"},
		{"sibling with the same prefix", "", filepath.Join(base, "bb"), "", "", capability.CodeDenied, "security_violation"},
		{"traversal", "", "../b", "", "", capability.CodeDenied, "security_violation"},
		{"traversal in the middle", "", "sub/../../b", "", "", capability.CodeDenied, "security_violation"},
		{"NUL", "", "a\x00b", "", "", capability.CodeInvalidInput, "invalid_path"},
		{"too long", "", strings.Repeat("x", maxPath+1), "", "", capability.CodeInvalidInput, "invalid_path"},
		{"unknown root", "c", "x", "", "", capability.CodeNotFound, "unknown_root"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := s.Resolve(tt.root, tt.path)
			if err != nil {
				e := capability.AsError(err)
				if e.Code != tt.code || e.Reason != tt.reason {
					t.Errorf("got %q %q (%v); want e.Code = %v, e.Reason = %v", e.Code, e.Reason, err, tt.code, tt.reason)
				}
				if strings.Contains(e.Error(), base) {
					t.Errorf("the message names a host path: %v; want e.Error() without %v", e, base)
				}
				return
			}
			if tt.code != "" || p.ID != tt.id || p.Rel != tt.rel {
				t.Errorf("got %s:%s, want %s:%s code %q", p.ID, p.Rel, tt.id, tt.rel, tt.code)
			}
		})
	}
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	s, base := open(t)
	real, err := filepath.EvalSymlinks(base)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, path, dir, reason string
	}{
		{"the root", ".", "a", ""},
		{"a link inside", "in", "a/sub", ""},
		{"a link that leads out", "out", "", "security_violation"},
		{"missing", "gone", "", "not_found"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := s.Resolve("", tt.path)
			if err != nil {
				t.Fatal(err)
			}
			dir, root, err := p.Directory()
			if tt.reason != "" {
				if e := capability.AsError(err); e == nil || e.Reason != tt.reason {
					t.Errorf("got %v, want reason %q", err, tt.reason)
				}
				return
			}
			if err != nil || dir != filepath.Join(real, tt.dir) || root != filepath.Join(real, "a") {
				t.Errorf(`got %q, %q, %v; want no error, dir = filepath.Join(real, tt.dir), root = filepath.Join(real, "a")`,
					dir, root, err)
			}
		})
	}
}

func TestNoRoots(t *testing.T) {
	t.Parallel()
	s, err := Open(nil)
	if err != nil || !s.Empty() {
		t.Fatalf("%v; want no error, s.Empty()", err)
	}
	if _, err := s.Resolve("", "x"); capability.CodeOf(err) != capability.CodeUnavailable {
		t.Errorf("got %v; want capability.CodeOf(err) = capability.CodeUnavailable", err)
	}
}

func TestOpenRefusesBadRoots(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, list := range map[string][]Root{
		"no id":     {{Path: dir}},
		"twice":     {{ID: "x", Path: dir}, {ID: "x", Path: dir}},
		"relative":  {{ID: "x", Path: "."}},
		"not there": {{ID: "x", Path: filepath.Join(dir, "gone")}},
	} {
		if _, err := Open(list); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%s: got %v; want capability.CodeOf(err) = capability.CodeInvalidInput", name, err)
		}
	}
}
