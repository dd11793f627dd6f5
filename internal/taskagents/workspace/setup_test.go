package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

func TestTheSetupOfACheckoutIsRead(t *testing.T) {
	t.Parallel()
	s, source := checkout(t)
	if got, err := s.m.SetupOf(source); got != nil || err != nil {
		t.Errorf("SetupOf(no file) = %v, %v; want nil, no error", got, err)
	}
	for name, tt := range map[string]struct {
		text, run string
		bad       bool
	}{
		"a setup":               {"copy: [.env]\nrun:\n  - npm ci\nchecks: [npm test]\nminutes: 5\n", "npm ci", false},
		"an empty one":          {"# nothing\n{}\n", "", false},
		"an unknown member":     {"runs: [x]\n", "", true},
		"not lists":             {"run: x\n", "", true},
		"an empty command":      {"run: ['']\n", "", true},
		"too many":              {"run: [" + strings.Repeat("x, ", maxSetupList+1) + "]\n", "", true},
		"too long":              {"run: [x]\n#" + strings.Repeat("x", maxSetupFile), "", true},
		"too late":              {"minutes: 61\n", "", true},
		"a digest of its own":   {"digest: x\n", "", true},
		"two documents":         {"run: [x]\n---\nrun: [y]\n", "", true},
		"an alias in an alias":  {"a: &a [x]\nrun: *b\n", "", true},
		"bytes that are not it": {"\x00\xff", "", true},
	} {
		s.write("own/"+SetupFile, tt.text)
		got, err := s.m.SetupOf(source)
		if tt.bad {
			if reason(err) != "invalid_setup" {
				t.Errorf("%s: SetupOf() = %+v, %v; want invalid_setup", name, got, err)
			}
			continue
		}
		if err != nil || strings.Join(got.Run, "") != tt.run || got.Text != tt.text || len(got.Digest) != 64 {
			t.Errorf("%s: SetupOf() = %+v, %v; want run %q, the text and a digest", name, got, err, tt.run)
		}
	}
	outside := filepath.Join(s.dir, "outside.yaml")
	s.write("outside.yaml", "run: [x]\n")
	file := filepath.Join(s.dir, "own", SetupFile)
	if err := os.Remove(file); err != nil {
		t.Fatalf("remove: got %v, want no error", err)
	}
	if err := os.Symlink(outside, file); err != nil {
		t.Fatalf("link: got %v, want no error", err)
	}
	if got, err := s.m.SetupOf(source); reason(err) != "invalid_setup" {
		t.Errorf("SetupOf(a link out of the checkout) = %v, %v; want invalid_setup", got, err)
	}
}

func TestAWorktreeIsSetUpConfined(t *testing.T) {
	t.Parallel()
	s, source := checkout(t)
	box := sandbox.NewForHome(s.dir, nil, nil)
	if facts := box.Facts(); facts.NoT2 != "" && facts.NoT3 != "" {
		t.Skip("this machine has no sandbox: " + facts.NoT2)
	}
	s.m.cfg.Box = box
	s.write("own/.gitignore", "*.log\n.env\n")
	s.write("own/.env", "KEY=1\n")
	s.write("own/big.log", "not wanted")
	s.write("secret", "of the user")
	setup := &Setup{
		Copy: []string{".env"},
		Run: []string{
			`test "$(cat .env)" = KEY=1 && echo "in $(basename "$PWD")" > made.log && mkdir -p sub && echo x > sub/made.txt`,
			`cat ` + s.dir + `/secret 2>&1 || true; echo "home $HOME"; touch "$HOME/cache"; echo done`,
		},
	}
	w, err := s.m.ProvisionPart(t.Context(), PartRequest{
		Source: source, Task: "thr_1", Part: "a", Branch: "junctor/job/a", Label: "a", Start: source.Head, Setup: setup,
	})
	if err != nil {
		t.Fatalf("ProvisionPart: got %v %v, want no error", err, capability.AsError(err).Details)
	}
	if len(w.Setup) != 2 || w.Setup[0].Exit != 0 || !strings.HasSuffix(w.Setup[1].Output, "done\n") ||
		strings.Contains(w.Setup[1].Output, "of the user") || strings.Contains(w.Setup[1].Output, "home "+os.Getenv("HOME")+"\n") {
		t.Errorf("steps = %+v; want two that ended well, without the user's file and home", w.Setup)
	}
	for name, want := range map[string]bool{".env": true, "made.log": true, "sub/made.txt": true, "big.log": false} {
		info, err := os.Lstat(filepath.Join(w.Path, name))
		if (err == nil) != want {
			t.Errorf("%s: there = %v, want %v", name, err == nil, want)
		}
		if err == nil && foreign(info) {
			t.Errorf("%s belongs to another user, want the server's", name)
		}
	}
	if kept, err := s.m.Get(w.ID); err != nil || len(kept.Setup) != 2 {
		t.Errorf("Get().Setup = %+v, %v; want the two steps", kept.Setup, err)
	}

	setup.Run = []string{"echo why; exit 3", "touch never"}
	before, _ := os.ReadDir(s.cfg.Base)
	_, err = s.m.ProvisionPart(t.Context(), PartRequest{
		Source: source, Task: "thr_1", Part: "b", Branch: "junctor/job/b", Label: "b", Start: source.Head, Setup: setup,
	})
	if e := capability.AsError(err); reason(err) != "setup_failed" || e.Details["output"] != "why\n" || e.Details["exit_code"] != 3 {
		t.Errorf("ProvisionPart(failing setup) = %v %v; want setup_failed with the output and exit code 3", err, capability.AsError(err).Details)
	}
	after, _ := os.ReadDir(s.cfg.Base)
	if branches := s.own("branch", "--list", "junctor/job/b"); len(after) != len(before) || branches != "" {
		t.Errorf("after a failed setup: %d folders and branches %q, want %d and none", len(after), branches, len(before))
	}
}

func TestASetupWithoutASandboxIsRefused(t *testing.T) {
	t.Parallel()
	s, source := checkout(t)
	_, err := s.m.ProvisionPart(t.Context(), PartRequest{
		Source: source, Task: "thr_1", Part: "a", Branch: "junctor/job/a", Label: "a", Start: source.Head, Setup: &Setup{Run: []string{"true"}},
	})
	wantReason(t, err, "sandbox_unavailable")
}
