package forge

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
)

func TestWhatMayBeCloned(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"git/a.git", "git2/b.git"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"git/out.git": "git2/b.git", "in.git": "git/a.git"} {
		if err := os.Symlink(filepath.Join(dir, to), filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	p := Policy{
		Hosts:            []string{"git.corp.example", "Forge.example:8443"},
		OperatorPrefixes: []string{filepath.Join(dir, "git"), "http://127.0.0.1:7000/git/", "ftp://127.0.0.1/"},
	}
	tests := []struct{ text, url, owner, name, reason string }{
		{"acme/widget", "https://github.com/acme/widget.git", "acme", "widget", ""},
		{" https://github.com/acme/widget/ ", "https://github.com/acme/widget.git", "acme", "widget", ""},
		{"https://GitHub.com/acme/widget.git", "https://github.com/acme/widget.git", "acme", "widget", ""},
		{"https://gitlab.com/group/sub/widget", "https://gitlab.com/group/sub/widget.git", "group/sub", "widget", ""},
		{"git@bitbucket.org:acme/widget.git", "ssh://git@bitbucket.org/acme/widget.git", "acme", "widget", ""},
		{"ssh://git@github.com/acme/widget", "ssh://git@github.com/acme/widget.git", "acme", "widget", ""},
		{"https://git.corp.example/a/b", "https://git.corp.example/a/b", "a", "b", ""},
		{"https://forge.example:8443/a/b.git", "https://forge.example:8443/a/b.git", "a", "b", ""},
		{filepath.Join(dir, "git/a.git"), filepath.Join(dir, "git/a.git"), "", "a", ""},
		{filepath.Join(dir, "in.git"), filepath.Join(dir, "git/a.git"), "", "a", ""},
		{"http://127.0.0.1:7000/git/acme/w.git", "http://127.0.0.1:7000/git/acme/w.git", "acme", "w", ""},

		{"", "", "", "", "missing_repo"},
		{"https://example.com/a/b", "", "", "", "invalid_repo_domain"},
		{"https://github.com.example.com/a/b", "", "", "", "invalid_repo_domain"},
		{"https://github.com:8443/a/b", "", "", "", "invalid_repo_domain"},
		{"https://forge.example/a/b", "", "", "", "invalid_repo_domain"},
		{"git@example.com:a/b", "", "", "", "invalid_repo_domain"},
		{"https:///a/b", "", "", "", "invalid_repo_domain"},
		{"https://user:secret@github.com/a/b", "", "", "", "invalid_repo"},
		{"https://token@github.com/a/b", "", "", "", "invalid_repo"},
		{"ssh://git:pw@github.com/a/b", "", "", "", "invalid_repo"},
		{"ssh://-oProxyCommand=x@github.com/a/b", "", "", "", "invalid_repo"},
		{"ssh://-oProxyCommand=x/a/b", "", "", "", "invalid_repo_domain"},
		{"http://github.com/a/b", "", "", "", "invalid_repo"},
		{"git://github.com/a/b", "", "", "", "invalid_repo"},
		{"ext::sh -c touch% x", "", "", "", "invalid_repo"},
		{"ext::x", "", "", "", "invalid_repo"},
		{"file:///etc", "", "", "", "invalid_repo"},
		{"-u", "", "", "", "invalid_repo"},
		{"https://github.com/a", "", "", "", "invalid_repo"},
		{"https://github.com/a/../b", "", "", "", "invalid_repo"},
		{"https://github.com/a/-b", "", "", "", "invalid_repo"},
		{"https://github.com/a/%2e%2e", "", "", "", "invalid_repo"},
		{"https://github.com/a/b%2Fc", "", "", "", "invalid_repo"},
		{"https://github.com/a/b?x=1", "", "", "", "invalid_repo"},
		{"https://github.com/a/b#x", "", "", "", "invalid_repo"},
		{"https://github.com/a/b c", "", "", "", "invalid_repo"},
		{"https://github.com\\@evil/a/b", "", "", "", "invalid_repo"},
		{"https://github.com/" + strings.Repeat("a/", 1100), "", "", "", "invalid_repo"},
		{"https://github.com/a/" + strings.Repeat("b", 256), "", "", "", "invalid_repo"},
		{filepath.Join(dir, "git2/b.git"), "", "", "", "invalid_repo"},
		{filepath.Join(dir, "git/out.git"), "", "", "", "invalid_repo"},
		{dir + "/git/../git2/b.git", "", "", "", "invalid_repo"},
		{"http://127.0.0.1:7000/git/../x", "", "", "", "invalid_repo"},
		{"http://127.0.0.1:7000/gitx/a", "", "", "", "invalid_repo"},
		{"ftp://127.0.0.1/a/b", "", "", "", "invalid_repo"},
	}
	for _, tt := range tests {
		r, err := p.Parse(tt.text)
		if e := capability.AsError(err); tt.reason != "" && (e == nil || e.Reason != tt.reason || e.Code != capability.CodeInvalidInput) ||
			tt.reason == "" && err != nil {
			t.Errorf("%q: got %v, want reason %q", tt.text, err, tt.reason)
			continue
		}
		if r.URL != tt.url || r.Owner != tt.owner || r.Name != tt.name {
			t.Errorf("%q: %+v; want r.URL = %v, r.Owner = %v, r.Name = %v", tt.text, r, tt.url, tt.owner, tt.name)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"a/b", "git@github.com:a/b", "https://github.com/a/b", "ssh://git@gitlab.com/a/b/c", "ext::x",
		"https://github.com:443/a/b", "http://127.0.0.1:1/a",
	} {
		f.Add(s)
	}
	p := Policy{OperatorPrefixes: []string{"http://127.0.0.1:1"}}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := p.Parse(text)
		if err != nil {
			return
		}
		ours := slices.ContainsFunc([]string{"https://github.com/", "https://gitlab.com/", "https://bitbucket.org/", "http://127.0.0.1:1/"},
			func(b string) bool { return strings.HasPrefix(r.URL, b) })
		if _, rest, ssh := strings.Cut(r.URL, "ssh://"); ssh {
			_, host, _ := strings.Cut(rest, "@")
			if host == "" {
				host = rest
			}
			host, _, _ = strings.Cut(host, "/")
			ours = slices.Contains([]string{"github.com", "gitlab.com", "bitbucket.org"}, host)
		}
		if !ours || strings.ContainsAny(r.URL, " \n\r\t\x00\\?#%") || strings.Contains(r.URL, "::") || strings.Contains(r.URL, "/-") ||
			strings.Contains(r.URL, "/../") {
			t.Errorf(`%q gave %q; want ours = true, r.URL without any of " \n\r\t\x00\\?#%%", r.URL without "::", r.URL without `+
				`"/-", r.URL without "/../"`, text, r.URL)
		}
		again, err := p.Parse(r.URL)
		if err != nil || again != r {
			t.Errorf("%q: %+v, then %+v, %v; want no error, again = %v", text, r, again, err, r)
		}
	})
}

func TestListsBecomeIssues(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 300)
	tests := []struct {
		name, text string
		want       []Item
	}{
		{"prose", "Please fix the bug.\nIt is bad.", nil},
		{"one number", "1. only this", nil},
		{"numbers", "Do these:\n1. First\n2) Second\n", []Item{{"First", ""}, {"Second", ""}}},
		{"bullets", "- one\n* two\n+ [ ] three\n", []Item{{"one", ""}, {"two", ""}, {"three", ""}}},
		{
			"bullets beneath numbers", "1. First\n   - detail\n   more\n2. Second\n\n   after a gap\n",
			[]Item{{"First", "   - detail\n   more"}, {"Second", "\n   after a gap"}},
		},
		{"bullets beneath bullets", "- a\n  - b\n- c", []Item{{"a", "  - b"}, {"c", ""}}},
		{"what comes after", "- a\n- b\n\nThanks!\n", []Item{{"a", ""}, {"b", ""}}},
		{"code", "1. a\n```\n2. not an item\n```\n2. b", []Item{{"a", "```\n2. not an item\n```"}, {"b", ""}}},
		{"a long one", "- " + long + "\n- b", []Item{{string([]rune(long)[:255]) + "…", long}, {"b", ""}}},
		{"no blank after the mark", "-a\n-b\n1.x\n2.y", nil},
		{"empty entries", "- \n-  \n", nil},
	}
	for _, tt := range tests {
		got := Items(tt.text)
		for i := range tt.want {
			tt.want[i].Body = strings.Trim(tt.want[i].Body, "\n")
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q; want got = %v", tt.name, got, tt.want)
		}
	}
	if got := Items(strings.Repeat("- x\n", 80)); len(got) != 50 {
		t.Errorf("%d items; want len(got) = 50", len(got))
	}
}

func FuzzItems(f *testing.F) {
	f.Add("1. a\n2. b\n")
	f.Add("- a\n```\n- b\n")
	f.Fuzz(func(t *testing.T, text string) {
		items := Items(text)
		if len(items) == 1 || len(items) > maxItems {
			t.Fatalf("%d items; want len(items) other than 1, len(items) at most %v", len(items), maxItems)
		}
		for _, i := range items {
			if i.Title == "" || strings.ContainsAny(i.Title, "\n") || len([]rune(i.Title)) > maxTitle {
				t.Errorf(`%q; want i.Title other than "", i.Title without any of "\n", len([]rune(i.Title)) at most %v`, i, maxTitle)
			}
		}
	})
}
