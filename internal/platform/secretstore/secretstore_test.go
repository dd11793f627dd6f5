package secretstore

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/secret"
)

func open(t *testing.T) (*Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "secrets")
	s, err := Open(dir, Further{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, dir
}

// TestFurtherFolderIsReadBehindTheHome uses a folder as Kubernetes mounts one: a name is a link
// through ..data to the file.
func TestFurtherFolderIsReadBehindTheHome(t *testing.T) {
	t.Parallel()
	further := t.TempDir()
	if err := os.Mkdir(filepath.Join(further, "..data"), 0o755); err != nil {
		t.Fatalf("Mkdir(..data) = %v, want no error", err)
	}
	for _, name := range []string{"mounted", "both"} {
		if err := os.WriteFile(filepath.Join(further, "..data", name), []byte("of the folder\n"), 0o440); err != nil {
			t.Fatalf("WriteFile(%s) = %v, want no error", name, err)
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(further, name)); err != nil {
			t.Fatalf("Symlink(%s) = %v, want no error", name, err)
		}
	}
	s, err := Open(filepath.Join(t.TempDir(), "secrets"), Further{Dir: further})
	if err != nil {
		t.Fatalf("open with a second folder: got %v, want no error", err)
	}
	defer s.Close()
	if err := s.Set("both", secret.New("of the home")); err != nil {
		t.Fatalf("Set(both) = %v, want no error", err)
	}
	for name, want := range map[string]string{"mounted": "of the folder", "both": "of the home"} {
		if got, err := s.Get(name); err != nil || got.Reveal() != want {
			t.Errorf("Get(%s) = %q, %v; want %q", name, got.Reveal(), err, want)
		}
	}
	for name, want := range map[string]capability.Code{"absent": capability.CodeNotFound, "..data": capability.CodeInvalidInput} {
		if _, err := s.Get(name); capability.CodeOf(err) != want {
			t.Errorf("Get(%s) = %v, want %s", name, err, want)
		}
	}
	for _, dir := range []string{s.dir.Name(), filepath.Join(t.TempDir(), "absent")} {
		if got, err := Look(dir, s.further, "mounted"); err != nil || got.Reveal() != "of the folder" {
			t.Errorf("Look(%s, mounted) = %q, %v; want the file of the folder", dir, got.Reveal(), err)
		}
		if _, err := Look(dir, s.further, "absent"); capability.CodeOf(err) != capability.CodeNotFound {
			t.Errorf("Look(%s, absent) = %v, want not_found", dir, err)
		}
	}
	if list, err := s.List(); err != nil || len(list) != 1 {
		t.Errorf("List() = %v, %v; want the secret of the home only", list, err)
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	for _, value := range []string{"first", "second\n", strings.Repeat("x", MaxValue)} {
		if err := s.Set("forge.token", secret.New(value)); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get("forge.token"); err != nil || got.Reveal() != value {
			t.Errorf("got %d bytes, %v; want no error, got.Reveal() = %v", len(got.Reveal()), err, value)
		}
	}
	if err := s.Set("another", secret.New("value-text")); err != nil {
		t.Fatal(err)
	}
	list, err := s.List()
	if err != nil || len(list) != 2 || list[0].Name != "another" || list[1].Name != "forge.token" || list[0].Updated.IsZero() {
		t.Errorf(`got %v, %v; want no error, len(list) = 2, list[0].Name = "another", list[1].Name = "forge.token", not `+
			"list[0].Updated.IsZero()", list, err)
	}
	if told, _ := json.Marshal(list); strings.Contains(string(told), "value-text") {
		t.Errorf(`the list tells a value: %s; want string(told) without "value-text"`, told)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "another"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("mode %v, want %v", info.Mode().Perm(), want)
		}
	}
	if err := s.Remove("another"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get("another"); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("a removed secret answers %v; want capability.CodeOf(err) = capability.CodeNotFound", err)
	}
	if err := s.Remove("another"); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("removing twice answers %v; want capability.CodeOf(err) = capability.CodeNotFound", err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	for _, name := range []string{"", ".", "..", "a/b", "../x", "a b", "ä", strings.Repeat("x", 121), "a\x00"} {
		if err := s.Set(name, secret.New("x")); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("name %q: got %v; want capability.CodeOf(err) = capability.CodeInvalidInput", name, err)
		}
		if _, err := s.Get(name); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("name %q: got %v; want capability.CodeOf(err) = capability.CodeInvalidInput", name, err)
		}
	}
	if err := s.Set("x", secret.New("")); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("empty value: got %v; want capability.CodeOf(err) = capability.CodeInvalidInput", err)
	}
	if err := s.Set("x", secret.New(strings.Repeat("x", MaxValue+1))); capability.CodeOf(err) != capability.CodeTooLarge {
		t.Errorf("large value: got %v; want capability.CodeOf(err) = capability.CodeTooLarge", err)
	}
}

func TestOpenTightensALooseDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir, Further{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if info, _ := os.Stat(dir); info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v; want info.Mode().Perm() = 0o700", info.Mode().Perm())
	}
}

func TestLinksOutAreNotFollowed(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	target := filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, []byte("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get("link"); err == nil {
		t.Error("a link was followed out of the store; want an error")
	}
	if err := s.Set("link", secret.New("inside")); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(target); string(data) != "outside" {
		t.Errorf(`the file behind a link was changed to %q; want string(data) = "outside"`, data)
	}
}

func TestConcurrentWritersLeaveOneWholeValue(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if err := s.Set("x", secret.New(strings.Repeat(fmt.Sprint(i), 1000))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	v, err := s.Get("x")
	if err != nil || len(v.Reveal()) != 1000 || strings.Trim(v.Reveal(), v.Reveal()[:1]) != "" {
		t.Errorf(`got a mixed value, %v; want no error, len(v.Reveal()) = 1000, strings.Trim(v.Reveal(), v.Reveal()[:1]) = ""`, err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%d files are left; want len(entries) = 1", len(entries))
	}
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		mode       os.FileMode
		want       string
		warns      bool
		code       capability.Code
	}{
		{"private", "token\n", 0o600, "token", false, ""},
		{"other line end", "token\r\n", 0o400, "token", false, ""},
		{"only one line end is dropped", "token\n\n", 0o600, "token\n", false, ""},
		{"readable by others", "token", 0o644, "token", true, ""},
		{"empty", "\n", 0o600, "", false, capability.CodeInvalidInput},
		{"too large", strings.Repeat("x", MaxValue+1), 0o600, "", false, capability.CodeTooLarge},
	}
	dir := t.TempDir()
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(dir, fmt.Sprint(i))
			if err := os.WriteFile(path, []byte(tt.text), tt.mode); err != nil {
				t.Fatal(err)
			}
			v, warning, err := ReadFile(path)
			if v.Reveal() != tt.want || (warning != "") != tt.warns || capability.CodeOf(err) != tt.code {
				t.Errorf(`got %q, %q, %v; want v.Reveal() = %v, (warning != "") = %v, capability.CodeOf(err) = %v`,
					v.Reveal(), warning, err, tt.want, tt.warns, tt.code)
			}
			if err != nil && strings.Contains(err.Error(), dir) {
				t.Errorf("the message names a host path: %v; want not (err != nil && strings.Contains(err.Error(), dir))", err)
			}
		})
	}
	if _, _, err := ReadFile(filepath.Join(dir, "gone")); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("missing file: got %v; want capability.CodeOf(err) = capability.CodeNotFound", err)
	}
	if _, _, err := ReadFile(dir); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("directory: got %v; want capability.CodeOf(err) = capability.CodeInvalidInput", err)
	}
}
