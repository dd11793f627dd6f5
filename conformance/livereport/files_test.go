package livereport

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSetRules(t *testing.T) {
	t.Parallel()
	write := func(dir, name string, change func(object)) {
		report := sound()
		change(report)
		data, err := json.Marshal(report)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	write(dir, "home-machine.json", func(object) {})
	write(dir, "twin.json", func(object) {})
	write(dir, "broken.json", func(o object) { o["schemaVersion"] = 9.0 })
	count, problems := Files([]string{dir}, options, Set{MinCount: 4, AllowedProviders: []string{"e2b"}, RequiredProviders: []string{"e2b"}})
	if count != 3 {
		t.Errorf("%d files; want count = 3", count)
	}
	var lines []string
	for _, p := range problems {
		lines = append(lines, p.String())
	}
	text := strings.Join(lines, "\n")
	for _, want := range []string{
		"broken.json: schemaVersion must be 1", "there are 3 reports, at least 4", "the endpoint home-machine is reported twice",
		"the provider home-machine is reported twice", "two reports are of the same URL", "home-machine is not allowed",
		"no report of the provider e2b",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing says %q in:\n%s\nwant text with %v", want, text, want)
		}
	}
	if _, problems := Files([]string{filepath.Join(dir, "home-machine.json")}, options, Set{MinCount: 1, MaxCount: 1}); len(problems) > 0 {
		t.Errorf("a sound file: %v; want len(problems) at most 0", problems)
	}
	if _, problems := Files([]string{t.TempDir()}, options, Set{}); len(problems) != 1 {
		t.Errorf("an empty folder: %v; want len(problems) = 1", problems)
	}
}
