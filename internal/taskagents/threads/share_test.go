package threads

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

func shown(targets []Target) (out []string) {
	for _, t := range targets {
		out = append(out, strings.Join([]string{string(t.Kind), t.URI + t.Path, t.Source}, " "))
	}
	return out
}

func none(string) (string, error) { return "", os.ErrNotExist }

func TestAddressesAreFoundInProse(t *testing.T) {
	t.Parallel()
	//nolint:lll // a text and its links
	for text, want := range map[string]string{
		"nothing here":                                                  "",
		"See http://localhost:3000.":                                    "preview_url http://localhost:3000",
		"See (https://example.com/a_(b)), then go":                      "artifact_uri https://example.com/a_(b)",
		"[pr](https://example.com/pull/1) **https://example.com/2**":    "artifact_uri https://example.com/pull/1|artifact_uri https://example.com/2",
		`<a href="https://example.com/x?a=1&b=2#c">`:                    "artifact_uri https://example.com/x?a=1&b=2#c",
		"HTTP://127.0.0.1:8080/ http://[::1]:5 http://0.0.0.0:9":        "preview_url http://127.0.0.1:8080/|preview_url http://[::1]:5|preview_url http://0.0.0.0:9",
		"http://app.localhost:1/ http://localhost.evil.example/":        "preview_url http://app.localhost:1/|artifact_uri http://localhost.evil.example/",
		"https://ann:secret@example.com/ https://token@example.com":     "",
		"javascript:alert(1) file:///etc/passwd ftp://x data:text,y":    "",
		"http:// https://: http://%zz/ https:///x":                      "",
		"http://localhost:1/ and again http://localhost:1/":             "preview_url http://localhost:1/",
		"https://example.com/" + strings.Repeat("a", 2<<10):             "",
		"xhttp://localhost:4 and `http://localhost:5/` and http://a\\b": "preview_url http://localhost:5/|artifact_uri http://a",
	} {
		targets, found := FindTargets(row.Thread{ID: "t"}, nil, []row.Session{{SessionID: "s", CompletionSummary: text}},
			ShareRoots{Resolve: none})
		var got []string
		for _, t := range targets {
			got = append(got, string(t.Kind)+" "+t.URI)
		}
		if s := strings.Join(got, "|"); s != want {
			t.Errorf("%.60q: %s, not %s; want s = %v", text, s, want, want)
		}
		if len(found) != len(targets) {
			t.Errorf("%.60q: %d found of %d; want len(found) = %v", text, len(found), len(targets), len(targets))
		}
	}
}

func TestPathsOutsideAreNeverOffered(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"root/work", "rootless", "secret"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"root/out": "../secret", "root/in": "work", "link": "root"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	roots := ShareRoots{Allowed: []string{filepath.Join(dir, "link"), filepath.Join(dir, "gone")}, Resolve: filepath.EvalSymlinks}
	for path, want := range map[string]string{
		"root": "root", "root/work": "root/work", "root/in": "root/work", "link/work": "root/work", "root/../root/work": "root/work",
		"rootless": "", "secret": "", "root/out": "", "root/none": "", "root/../secret": "", "gone": "", "": "",
	} {
		at := path
		if path != "" {
			at = dir + "/" + path
		}
		want := want
		if want != "" {
			want = filepath.Join(dir, want)
		}
		for _, kind := range []TargetKind{ArtifactPath, Workspace} {
			var targets []Target
			if kind == Workspace {
				targets, _ = FindTargets(row.Thread{ID: "t"}, nil, []row.Session{{SessionID: "s", Workdir: at}}, roots)
			} else {
				targets, _ = FindTargets(row.Thread{ID: "t"}, []row.Artifact{{ID: "a", Path: at}}, nil, roots)
			}
			got := ""
			if len(targets) > 0 {
				got = targets[0].Path
			}
			if got != want || got != "" && targets[0].Kind != kind {
				t.Errorf(`%q as %s: %q, not %q; want got = %v, not (got != "" && targets[0].Kind != kind)`, path, kind, got, want, want)
			}
		}
	}
	for _, path := range []string{"work", "../secret", "./root", "/\x00"} {
		if targets, _ := FindTargets(row.Thread{}, []row.Artifact{{ID: "a", Path: path}}, nil,
			ShareRoots{Allowed: []string{"/"}, Resolve: filepath.EvalSymlinks}); len(targets) > 0 {
			t.Errorf("%q: %+v; want len(targets) at most 0", path, targets)
		}
	}
}

func TestArtifactsComeFirstAndEachThingOnce(t *testing.T) {
	t.Parallel()
	thread := row.Thread{ID: "t"}
	sessions := []row.Session{
		{SessionID: "s1", Label: "one", Workdir: "/w/one", CompletionSummary: "http://localhost:1 https://example.com/a"},
		{SessionID: "s2", Workdir: "/w/two", CompletionSummary: "http://localhost:1"},
	}
	artifacts := []row.Artifact{
		{ID: "a1", Title: "A", URI: "https://example.com/a", MimeType: "text/html"},
		{ID: "a2", Path: "/w/f"},
		{ID: "a3", URI: "javascript:alert(1)", Path: "/etc/passwd"},
	}
	roots := ShareRoots{Allowed: []string{"/w"}, Resolve: func(p string) (string, error) { return p, nil }}
	targets, found := FindTargets(thread, artifacts, sessions, roots)
	want := []string{
		"artifact_path /w/f artifact:a2", "artifact_uri https://example.com/a artifact:a1", "preview_url http://localhost:1 session:s2",
		"workspace /w/two session:s2",
		"workspace /w/one session:s1",
	}
	if diff := cmp.Diff(want, shown(targets)); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
	if len(found) != 3 || found[0].SessionID != "s2" || found[0].ThreadID != "t" || targets[0].Title != "f" || targets[4].Title != "one" {
		t.Errorf(`%+v; want len(found) = 3, found[0].SessionID = "s2", found[0].ThreadID = "t", targets[0].Title = "f", `+
			`targets[4].Title = "one"`, found)
	}
	// What was recorded is not found again, has the same id, and keeps its kind.
	more, again := FindTargets(thread, append(artifacts, found...), sessions, roots)
	if len(again) != 0 || len(more) != len(targets) {
		t.Errorf("len(again) = %v, want 0; len(more) = %v, want %v; shown(more) = %q", len(again), len(more), len(targets), shown(more))
	}
	kinds := map[TargetKind]int{}
	for _, x := range more {
		kinds[x.Kind]++
	}
	if diff := cmp.Diff(map[TargetKind]int{ArtifactPath: 1, ArtifactURI: 1, PreviewURL: 1, Workspace: 2}, kinds); diff != "" {
		t.Errorf(`diff = %q, want ""`, diff)
	}
	if _, third := FindTargets(thread, artifacts, sessions, roots); third[0].ID != found[0].ID {
		t.Error("the id of a find changes; want third[0].ID = found[0].ID")
	}
}

func TestThereIsAnEnd(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 100 {
		fmt.Fprintf(&text, "http://localhost/%d ", i)
	}
	var sessions []row.Session
	for i := range 20 {
		sessions = append(sessions, row.Session{
			SessionID:         fmt.Sprint(i),
			CompletionSummary: strings.ReplaceAll(text.String(), "localhost", fmt.Sprint("h", i, ".example")),
		})
	}
	targets, found := FindTargets(row.Thread{ID: "t"}, nil, sessions, ShareRoots{Resolve: none})
	if len(targets) != MaxTargets || len(found) != MaxTargets || targets[0].URI != "http://h19.example/0" ||
		targets[maxFound].URI != "http://h18.example/0" {
		t.Errorf("%d targets, %d found; want %d each, h19 first, h18 after %d", len(targets), len(found), MaxTargets, maxFound)
	}
}

// FuzzFind: agents write all of it.
func FuzzFind(f *testing.F) {
	f.Add("see http://localhost:1/).", "/w/../x", "https://a:b@c")
	f.Fuzz(func(t *testing.T, text, path, uri string) {
		roots := ShareRoots{Allowed: []string{"/w"}, Resolve: func(p string) (string, error) { return filepath.Clean(p), nil }}
		targets, found := FindTargets(row.Thread{ID: "t"}, []row.Artifact{{ID: "a", Path: path, URI: uri}},
			[]row.Session{{SessionID: "s", CompletionSummary: text, Workdir: path}}, roots)
		for _, x := range targets {
			if x.Path != "" && x.Path != "/w" && !strings.HasPrefix(x.Path, "/w/") {
				t.Errorf(`outside: %q; want not (x.Path != "" && x.Path != "/w" && !strings.HasPrefix(x.Path, "/w/"))`, x.Path)
			}
			if x.URI != "" && !strings.HasPrefix(x.URI, "http://") && !strings.HasPrefix(x.URI, "https://") {
				t.Errorf("no address: %q", x.URI)
			}
		}
		for i := range found {
			found[i].CreatedAt = found[i].CreatedAt.AddDate(2000, 0, 0)
			if err := row.Clean(&found[i]); err != nil {
				t.Error(err)
			}
		}
	})
}
