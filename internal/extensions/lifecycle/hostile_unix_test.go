//go:build unix

package lifecycle_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
)

func TestAHostileWorkingFolderIsCopiedWithoutBeingFollowed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.must(r.install(sample("1.0.0"), lifecycle.Options{}))
	work := filepath.Join(r.cfg.Dir, "tools.sample", "work")
	precious := filepath.Join(r.home, "precious")
	for _, err := range []error{
		os.WriteFile(precious, []byte("p"), 0o600), syscall.Mkfifo(filepath.Join(work, "pipe"), 0o600),
		os.Symlink(precious, filepath.Join(work, "file")), os.Symlink("/", filepath.Join(work, "root")),
		os.Mkdir(filepath.Join(work, "locked"), 0o000), os.WriteFile(filepath.Join(work, "setuid"), nil, 0o600),
		os.Chmod(filepath.Join(work, "setuid"), 0o755|os.ModeSetuid),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r.must(r.install(sample("2.0.0"), lifecycle.Options{}))
	if _, err := os.Lstat(filepath.Join(work, "pipe")); err == nil {
		t.Error("a pipe was copied; want an error")
	}
	if info, err := os.Lstat(filepath.Join(work, "file")); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("Lstat = %v, %v; want a symbolic link", info, err)
	}
	if info, err := os.Lstat(filepath.Join(work, "setuid")); err != nil || info.Mode()&os.ModeSetuid != 0 {
		t.Errorf(`os.Lstat(filepath.Join(work, "setuid")): err = %v, want nil; info = %+v, want info.Mode()&os.ModeSetuid = 0`, err, info)
	}
	if _, err := r.Uninstall(t.Context(), admin(), "tools.sample", lifecycle.Removal{}); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(precious); string(data) != "p" {
		t.Errorf(`%v; want string(data) = "p"`, err)
	}
	// The working folder itself may have been made a link to another's.
	r.must(r.install(sample("1.0.0").with("manifest.json", "tools.sample", "tools.other"), lifecycle.Options{}))
	r.must(r.install(sample("1.0.0"), lifecycle.Options{}))
	if err := os.RemoveAll(work); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../tools.other/work", work); err != nil {
		t.Fatal(err)
	}
	if rec, err := r.install(sample("2.0.0"), lifecycle.Options{}); err == nil || r.row("tools.sample").Version != "1.0.0" {
		t.Errorf(`a link was followed %v; want an error, r.row("tools.sample").Version = "1.0.0"`, rec)
	}
	if _, err := r.SetConfig(t.Context(), admin(), "tools.sample", []byte(`{"x":1}`)); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(filepath.Join(r.cfg.Dir, "tools.other", "work", "config.json")); string(data) != `{"mode":"1.0.0"}` {
		t.Errorf("os.ReadFile: string(data) = %q, want \"{\\\"mode\\\":\\\"1.0.0\\\"}\"; err = %v", string(data), err)
	}
	if _, err := r.Uninstall(t.Context(), admin(), "tools.sample", lifecycle.Removal{}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(r.cfg.Dir, "tools.other", "work", "two")); err != nil {
		t.Error("another's files are gone")
	}
	if list, err := r.Records(t.Context(), "tools.sample", 100); err != nil || len(list) != 6 || list[0].Extension != "tools.sample" {
		t.Errorf("%d extensions, err = %v; want 6, tools.sample first", len(list), err)
	}
}
