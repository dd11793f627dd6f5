package workspace

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

type note struct {
	Text string `json:"text"`
	N    int    `json:"n"`
}

func TestRecordsAreThereAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a/b")
	f, all, bad, err := OpenRecords[note](dir)
	if err != nil || len(all) != 0 || len(bad) != 0 {
		t.Fatalf("err = %v, want nil; len(all) = %v, want 0; len(bad) = %v, want 0; all = %v; bad = %q", err, len(all), len(bad), all, bad)
	}
	var wait sync.WaitGroup
	for i := range 20 {
		wait.Go(func() {
			for n := range 5 {
				if err := f.Put("r-"+strconv.Itoa(i), note{"x", n}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	if err := f.Delete("r-0"); err != nil {
		t.Error(err)
	}
	if err := f.Delete("r-0"); err != nil {
		t.Errorf("twice: %v", err)
	}
	// What a crash and strangers leave.
	for name, text := range map[string]string{
		".123.tmp": "{", "half.json": `{"te`, "Up.json": `{"text":"y"}`, "large.json": strings.Repeat(" ", maxFile+1),
		"twice.json": `{"n":1,"n":2}`, "other.txt": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/hostname", filepath.Join(dir, "link.json")); err != nil {
		t.Fatal(err)
	}
	_, all, bad, err = OpenRecords[note](dir)
	if err != nil || len(all) != 19 || all["r-7"] != (note{"x", 4}) {
		t.Errorf(`%v, %v; want no error, len(all) = 19, all["r-7"] = (note{"x", 4})`, all, err)
	}
	slices.Sort(bad)
	if !slices.Equal(bad, []string{"Up.json", "half.json", "large.json", "link.json", "twice.json"}) {
		t.Errorf("set aside: %v", bad)
	}
	if _, _, bad, err = OpenRecords[note](dir); err != nil || len(bad) != 0 {
		t.Errorf("again: %v, %v; want no error, len(bad) = 0", bad, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "r-1.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want no error, info.Mode().Perm() = 0o600", info, err)
	}
}

func TestWhatIsNoRecord(t *testing.T) {
	t.Parallel()
	f, _, _, err := OpenRecords[note](t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"", "../x", "A", "a/b", "-a", strings.Repeat("a", 101)} {
		if f.Put(id, note{}) == nil || f.Delete(id) == nil {
			t.Errorf("%q was taken for an id; want f.Put(id, note{}) not nil, f.Delete(id) not nil", id)
		}
	}
	if f.Put("a", note{Text: strings.Repeat("x", maxFile)}) == nil {
		t.Error(`a record without bounds; want f.Put("a", note{Text: strings.Repeat("x", maxFile)}) not nil`)
	}
}
