package roots

import (
	"os"
	"path/filepath"
	"testing"
)

func TestARootThatGivesFilesOfTheServerIsRefused(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	home, secrets := filepath.Join(base, "user", "home"), filepath.Join(base, "vault")
	for _, dir := range []string{"user/home/run", "user/home/state/x", "user/home/files", "user/home/Secrets", "user/other", "vault/x", "beside"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o700); err != nil {
			t.Fatalf("making a directory = %v, want no error", err)
		}
	}
	for name, target := range map[string]string{"above": "user", "tokens": "user/home/run", "link-to-home": "user/home"} {
		if err := os.Symlink(filepath.Join(base, target), filepath.Join(base, "beside", name)); err != nil {
			t.Fatalf("making a link = %v, want no error", err)
		}
	}
	tests := []struct {
		root    string
		refused bool
	}{
		{"user", true},
		{"", true},
		{"user/home", true},
		{"user/home/run", true},
		{"user/home/state/x", true},
		{"user/home/Secrets", true},
		{"vault", true},
		{"vault/x", true},
		{"beside/above", true},
		{"beside/tokens", true},
		{"beside/link-to-home", true},
		{"beside/link-to-home/run", true},
		{"user/home/files", false},
		{"user/other", false},
		{"beside", false},
	}
	for _, tt := range tests {
		for _, at := range []string{home, filepath.Join(base, "beside", "link-to-home")} {
			if err := Apart(filepath.Join(base, tt.root), at, secrets); (err != nil) != tt.refused {
				t.Errorf("Apart(%s, home %s) = %v, want refused = %v", tt.root, at, err, tt.refused)
			}
		}
	}
	if err := Apart(filepath.Join(base, "user"), filepath.Join(base, "user", "new", "home"), ""); err == nil {
		t.Error("Apart(above a home that does not exist yet) = nil, want an error")
	}
	if err := Apart(base, "", ""); err != nil {
		t.Errorf("Apart(without a home) = %v, want no error", err)
	}
}
