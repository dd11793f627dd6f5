package extension_test

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/extensions/archive"
	"github.com/junctor-run/junctor/internal/extensions/extension"
)

var update = flag.Bool("update", false, "write the golden files")

func example(t *testing.T) *extension.Package {
	t.Helper()
	root, err := os.OpenRoot("testdata/postman")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	tree, err := archive.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	p, err := extension.Read(tree, extension.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const treeHash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestTheScreenInWords(t *testing.T) {
	t.Parallel()
	s := extension.NewScreen(example(t), treeHash, "folder", "T3", []string{"postman.explain"})
	s.More = []string{"host *.example.org:443"}
	const name = "testdata/postman.txt"
	if *update {
		if err := os.WriteFile(name, []byte(s.Text()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if d := cmp.Diff(string(want), s.Text()); err != nil || d != "" {
		t.Errorf("err = %v, want nil; diff (-want +got):\n%s", err, d)
	}
}

func TestAPackageCannotWriteOurLines(t *testing.T) {
	t.Parallel()
	p := example(t)
	evil := "nice\n\nIt may\n  nothing\x1b[2J\u202e at all"
	p.Manifest.Description = &evil
	p.Manifest.Author = &evil
	p.Plan.Steps[1].Command = evil
	s := extension.NewScreen(p, treeHash, "folder", "T3", nil)
	text := s.Text()
	if n := strings.Count(text, "\nIt may\n"); n != 1 || strings.ContainsAny(text, "\x1b\u202e") {
		t.Errorf("%d\n%s\nwant n = 1, text without any of \"\\x1b\\u202e\"", n, text)
	}
}

func TestWhatGoesBeyondAYesIsNamed(t *testing.T) {
	t.Parallel()
	p := example(t)
	before := extension.NewScreen(p, treeHash, "folder", "T3", nil)
	given := before.Consent("admin:root", time.Unix(1, 0))
	data, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	var kept extension.Consent
	if err := json.Unmarshal(data, &kept); err != nil || len(kept.Beyond(&before)) != 0 {
		t.Errorf("beyond = %v, err = %v; want nothing", kept.Beyond(&before), err)
	}
	q := example(t)
	q.Permissions = append(q.Permissions, "browser")
	q.Manifest.Version = "0.4.0"
	q.Manifest.Network.Allow = []string{"api.example.com", "evil.test"}
	q.Manifest.ExternalBins = []string{"curl"}
	q.Manifest.Tools[0].SHA256 = strings.Repeat("ab", 32)
	q.Manifest.Env.Secrets["API_TICKET"] = "other"
	q.Manifest.Env.Pass = []string{"EDITOR"}
	q.Commands[0].Actions = q.Commands[0].Actions[:2]
	after := extension.NewScreen(q, strings.Repeat("cd", 32), "folder", "T3", []string{"postman.test"})
	want := []string{
		"permission browser", "host evil.test", "program of this machine curl", "secret API_TICKET=other", "variable EDITOR",
		"tool for agents postman.test",
	}
	if d := cmp.Diff(want, kept.Beyond(&after)); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	changes := extension.CompareScreens(&before, &after)
	if d := cmp.Diff(extension.ScreenChanges{
		From: "0.3.0", To: "0.4.0", FromHash: treeHash, ToHash: strings.Repeat("cd", 32),
		Permissions: extension.Difference{Added: []string{"browser"}},
		Hosts:       extension.Difference{Added: []string{"evil.test"}, Removed: []string{"*.example.org:443"}},
		Binaries: extension.Difference{
			Added:   []string{"postman@" + strings.Repeat("ab", 32), "curl"},
			Removed: []string{"postman@" + p.Manifest.Tools[0].SHA256},
		},
		Commands:   extension.Difference{Removed: []string{"/postman explain"}},
		AgentTools: extension.Difference{Added: []string{"postman.test"}},
	}, changes); d != "" {
		t.Errorf(`d = %q, want ""`, d)
	}
	for was, cases := range map[string]map[string]string{ // what a version that asks so goes beyond
		"always": {"always": "", "first": "each time", "never": "each time", "": "each time"},
		"first":  {"always": "", "first": "", "never": "the first time", "": "the first time"},
		"never":  {"always": "", "first": "", "": ""},
	} {
		for now, less := range cases {
			p, q := example(t), example(t)
			p.Commands[0].Confirm, q.Commands[0].Confirm = "", ""
			p.Commands[0].Actions[0].Confirm, q.Commands[0].Actions[0].Confirm = was, now
			from, to := extension.NewScreen(p, treeHash, "folder", "T3", nil), extension.NewScreen(q, treeHash, "folder", "T3", nil)
			given := from.Consent("admin:root", time.Unix(1, 0))
			var want []string
			if less != "" {
				want = []string{"/postman " + q.Commands[0].Actions[0].ID + " without asking " + less}
			}
			if d := cmp.Diff(want, given.Beyond(&to)); d != "" {
				t.Errorf("from %q to %q (-want +got):\n%s", was, now, d)
			}
			if c := extension.CompareScreens(&from, &to).Confirmed; less != "" && len(c.Removed) != 1 {
				t.Errorf("the changes from %q to %q: got %+v, want one removed", was, now, c)
			}
		}
	}
	p.Permissions, p.Manifest.Env, p.Commands[0].Actions[0].AgentVisible = nil, extension.Env{}, false
	if quiet := extension.NewScreen(p, "", "", "", nil); quiet.Asks() || !before.Asks() {
		t.Error("asks")
	}
}
