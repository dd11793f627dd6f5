package overlay_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/overlay"
)

// ground is a home, a workspace and a folder of ours.
type ground struct {
	t                    *testing.T
	top, home, work, own string
	journal              string
}

func newGround(t *testing.T) *ground {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g := &ground{t: t, top: top, home: filepath.Join(top, "home"), work: filepath.Join(top, "work"), own: filepath.Join(top, "own")}
	g.journal = filepath.Join(top, "journal")
	for _, dir := range []string{g.home, g.work, g.own} {
		g.must(os.Mkdir(dir, 0o700))
	}
	return g
}

func (g *ground) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *ground) write(path, text string, mode fs.FileMode) {
	g.t.Helper()
	g.must(os.MkdirAll(filepath.Dir(path), 0o700))
	g.must(os.WriteFile(path, []byte(text), mode))
	g.must(os.Chmod(path, mode))
}

func (g *ground) read(path string) string {
	g.t.Helper()
	data, err := os.ReadFile(path)
	g.must(err)
	return string(data)
}

// tree is everything below top: modes, contents and targets of links.
func (g *ground) tree() map[string]string {
	g.t.Helper()
	all := make(map[string]string)
	g.must(filepath.WalkDir(g.top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			text += " " + g.read(path)
		case info.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(path)
			text += " -> " + to
		}
		all[strings.TrimPrefix(path, g.top)] = text
		return nil
	}))
	return all
}

func (g *ground) apply(changes ...overlay.Change) {
	g.t.Helper()
	g.must(overlay.Apply(g.t.Context(), g.journal, "pty-1-ab", changes))
}

func (g *ground) undo() {
	g.t.Helper()
	g.must(overlay.Undo(g.t.Context(), g.journal))
}

func (g *ground) same(want map[string]string) {
	g.t.Helper()
	if diff := cmp.Diff(want, g.tree()); diff != "" {
		g.t.Errorf("not as it was (-before +after):\n%s\nwant diff = \"\"", diff)
	}
}

func set(value string, keys ...string) overlay.Edit {
	return overlay.Edit{Keys: keys, Value: json.RawMessage(value)}
}

func add(value string, keys ...string) overlay.Edit {
	return overlay.Edit{Keys: keys, Value: json.RawMessage(value), Append: true}
}

const settings = "{\n\t\"numStartups\": 7.0,\n\t\"projects\": { \"/else\":{\"hasTrustDialogAccepted\":true} },\n\t\"hooks\" : [ 1,\n  2 ]\n}\n\n"

// all is one change of each kind, on files of which some exist.
func (g *ground) all() []overlay.Change {
	g.write(filepath.Join(g.home, ".claude.json"), settings, 0o640)
	g.write(filepath.Join(g.work, "CLAUDE.md"), "the project's\nown text", 0o644)
	g.must(exec.Command("git", "-C", g.work, "init", "-q").Run())
	in := func(root string, names ...string) (string, string) {
		return root, filepath.Join(append([]string{root}, names...)...)
	}
	change := func(kind overlay.Kind, root, path string) overlay.Change {
		return overlay.Change{Kind: kind, Root: root, Path: path, Text: "ours"}
	}
	own, secret := in(g.own, "a", "b", "secret.json")
	_, folder := in(g.own, "codex-home")
	_, link := in(g.own, "auth.json")
	home, claude := in(g.home, ".claude.json")
	_, missing := in(g.home, ".gemini", "trustedFolders.json")
	work, memory := in(g.work, "CLAUDE.md")
	_, fresh := in(g.work, "docs", "AGENTS.md")
	list := []overlay.Change{
		change(overlay.Private, own, secret), change(overlay.Folder, own, folder), change(overlay.Link, own, link),
		change(overlay.Merge, home, claude), change(overlay.Merge, home, missing),
		change(overlay.Block, work, memory), change(overlay.Block, work, fresh),
		{Kind: overlay.Ignore, Root: g.work, Path: g.work, Text: ".task-agents/"},
	}
	list[2].Target = filepath.Join(g.home, "auth.json")
	list[3].Edits = []overlay.Edit{
		set(`true`, "projects", g.work, "hasTrustDialogAccepted"), set(`9`, "numStartups"), add(`"x"`, "hooks"),
		add(`"k"`, "made", "approved"),
	}
	list[4].Edits = []overlay.Edit{set(`"TRUST_FOLDER"`, g.work)}
	return list
}

func TestEverythingIsUndoneToTheByte(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	changes := g.all()
	before := g.tree()
	g.apply(changes...)
	g.must(os.WriteFile(filepath.Join(g.own, "codex-home", "made by the program"), nil, 0o600))

	if got := g.read(filepath.Join(g.home, ".claude.json")); got != "{\n\t\"numStartups\": 9,\n\t\"projects\": { \"/else\":{\"hasTrustDialogAccepted\":true}, "+
		"\""+g.work+"\":{\"hasTrustDialogAccepted\": true} },\n\t\"hooks\" : [ 1,\n  2,\n  \"x\" ],\n\t\"made\" : {\"approved\": [\"k\"]}\n}\n\n" {
		t.Errorf("%s", got)
	}
	if got := g.read(filepath.Join(g.work, "CLAUDE.md")); !strings.HasPrefix(got, "the project's\nown text\n<!-- junctor pty-1-ab") ||
		!strings.Contains(got, "\nours\n<!--") {
		t.Errorf(`%s; want got beginning with "the project's\nown text\n<!-- junctor pty-1-ab", got with "\nours\n<!--"`, got)
	}
	for path, mode := range map[string]fs.FileMode{
		filepath.Join(g.own, "a"): fs.ModeDir | 0o700, filepath.Join(g.own, "a", "b", "secret.json"): 0o600,
		filepath.Join(g.own, "codex-home"):    fs.ModeDir | 0o700,
		filepath.Join(g.home, ".claude.json"): 0o640, filepath.Join(g.home, ".gemini", "trustedFolders.json"): 0o600,
		filepath.Join(g.work, "CLAUDE.md"): 0o644, g.journal: 0o600,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v %v; want no error, info.Mode() = %v", path, info.Mode(), err, mode)
		}
	}
	if out, err := exec.Command("git", "-C", g.work, "check-ignore", ".task-agents/x").Output(); err != nil || len(out) == 0 {
		t.Errorf("git does not ignore it: %v; want no error, len(out) other than 0", err)
	}

	g.undo()
	g.same(before)
	g.undo() // once more
	g.same(before)
}

// TestACrashAnywhereIsUndone lets the program die between the journal's line and its change,
// and within the line.
func TestACrashAnywhereIsUndone(t *testing.T) {
	t.Parallel()
	for n := range 8 {
		for _, torn := range []bool{false, true} {
			g := newGround(t)
			changes := g.all()
			before := g.tree()
			if n > 0 {
				g.apply(changes[:n]...)
			} else {
				g.write(g.journal, "", 0o600)
			}
			after := g.tree()
			lines := g.read(g.journal)
			if err := os.Remove(g.journal); err != nil {
				t.Fatal(err)
			}
			g.undoOf(changes[n], &lines, after, torn)
			g.undo()
			g.same(before)
		}
	}
}

// undoOf adds the journal's lines of one more change without the change.
func (g *ground) undoOf(c overlay.Change, lines *string, after map[string]string, torn bool) {
	g.t.Helper()
	other := filepath.Join(g.t.TempDir(), "journal")
	g.must(overlay.Apply(g.t.Context(), other, "pty-1-ab", []overlay.Change{c}))
	more := g.read(other)
	g.must(overlay.Undo(g.t.Context(), other))
	delete(after, "/journal")
	g.same(after)
	if torn {
		more = more[:len(more)-2]
	}
	g.write(g.journal, *lines+more, 0o600)
}

func TestAFailureUndoesWhatCameBefore(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	changes := g.all()
	g.write(filepath.Join(g.home, "broken.json"), `{"a": 1,, }`, 0o600)
	before := g.tree()
	err := overlay.Apply(t.Context(), g.journal, "s", append(changes,
		overlay.Change{Kind: overlay.Merge, Root: g.home, Path: filepath.Join(g.home, "broken.json"), Edits: []overlay.Edit{set("1", "b")}}))
	if e := capability.AsError(err); e == nil || e.Reason != "overlay_broken" {
		t.Errorf(`%v; want e not nil, e.Reason = "overlay_broken"`, err)
	}
	g.same(before)
}

func TestNobodyElsesFilesAreReached(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		prepare func(*ground)
		change  func(*ground) overlay.Change
		reason  string
	}{
		"a path outside": {nil, func(g *ground) overlay.Change {
			return overlay.Change{Kind: overlay.Private, Root: g.own, Path: filepath.Join(g.own, "..", "work", "x")}
		}, "overlay_outside"},
		"a memory file that leads out": {func(g *ground) {
			g.write(filepath.Join(g.home, "notes"), "private", 0o600)
			g.must(os.Symlink("../home/notes", filepath.Join(g.work, "CLAUDE.md")))
		}, func(g *ground) overlay.Change {
			return overlay.Change{Kind: overlay.Block, Root: g.work, Path: filepath.Join(g.work, "CLAUDE.md"), Text: "x"}
		}, "overlay_outside"},
		"a folder that leads out": {func(g *ground) {
			g.must(os.Symlink(g.home, filepath.Join(g.work, ".claude")))
		}, func(g *ground) overlay.Change {
			return overlay.Change{
				Kind: overlay.Merge, Root: g.work, Path: filepath.Join(g.work, ".claude", "settings.json"),
				Edits: []overlay.Edit{set("1", "a")},
			}
		}, "overlay_outside"},
		"a link that leads nowhere": {func(g *ground) {
			g.must(os.Symlink("nowhere", filepath.Join(g.work, "CLAUDE.md")))
		}, func(g *ground) overlay.Change {
			return overlay.Change{Kind: overlay.Block, Root: g.work, Path: filepath.Join(g.work, "CLAUDE.md"), Text: "x"}
		}, "overlay_outside"},
		"a file of ours that is there": {
			func(g *ground) { g.write(filepath.Join(g.work, "TASK"), "somebody's", 0o600) },
			func(g *ground) overlay.Change {
				return overlay.Change{Kind: overlay.Private, Root: g.work, Path: filepath.Join(g.work, "TASK"), Text: "x"}
			}, "overlay_exists",
		},
		"a pipe": {func(g *ground) { g.must(syscall.Mkfifo(filepath.Join(g.work, "CLAUDE.md"), 0o600)) }, func(g *ground) overlay.Change {
			return overlay.Change{Kind: overlay.Block, Root: g.work, Path: filepath.Join(g.work, "CLAUDE.md"), Text: "x"}
		}, "overlay_special"},
		"an array": {func(g *ground) { g.write(filepath.Join(g.home, "a.json"), "[]", 0o600) }, func(g *ground) overlay.Change {
			return overlay.Change{Kind: overlay.Merge, Root: g.home, Path: filepath.Join(g.home, "a.json"), Edits: []overlay.Edit{set("1", "a")}}
		}, "overlay_broken"},
		"text in place of an object": {
			func(g *ground) { g.write(filepath.Join(g.home, "a.json"), `{"a":{"b":"c"}}`, 0o600) },
			func(g *ground) overlay.Change {
				return overlay.Change{
					Kind: overlay.Merge, Root: g.home, Path: filepath.Join(g.home, "a.json"),
					Edits: []overlay.Edit{set("1", "a", "b", "c")},
				}
			}, "overlay_broken",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			if tt.prepare != nil {
				tt.prepare(g)
			}
			before := g.tree()
			err := overlay.Apply(t.Context(), g.journal, "s", []overlay.Change{tt.change(g)})
			if e := capability.AsError(err); e == nil || e.Reason != tt.reason {
				t.Errorf("%v, want %s", err, tt.reason)
			}
			g.same(before)
		})
	}
}

func TestLinksInsideAreFollowedAndStay(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.write(filepath.Join(g.home, "dotfiles", "claude.json"), "{}", 0o600)
	g.must(os.Symlink(filepath.Join(g.home, "dotfiles", "claude.json"), filepath.Join(g.home, ".claude.json")))
	before := g.tree()
	g.apply(overlay.Change{
		Kind: overlay.Merge, Root: g.home, Path: filepath.Join(g.home, ".claude.json"),
		Edits: []overlay.Edit{set("true", "a")},
	})
	if got := g.read(filepath.Join(g.home, "dotfiles", "claude.json")); got != `{"a": true}` {
		t.Errorf(`%s; want got = "{\"a\": true}"`, got)
	}
	g.undo()
	g.same(before)
}

// TestWhatIsNoLongerOursStays: an agent can put anything where our files were.
func TestWhatIsNoLongerOursStays(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.write(filepath.Join(g.work, "important"), "", 0o600)
	task, memory, folder := filepath.Join(g.work, "t", "TASK"), filepath.Join(g.work, "CLAUDE.md"), filepath.Join(g.work, "tmp")
	g.apply(
		overlay.Change{Kind: overlay.Private, Root: g.work, Path: task, Text: "x"},
		overlay.Change{Kind: overlay.Block, Root: g.work, Path: memory, Text: "x"},
		overlay.Change{Kind: overlay.Folder, Root: g.work, Path: folder},
	)
	for _, path := range []string{task, memory, folder} {
		g.must(os.Remove(path))
		g.must(os.Symlink(filepath.Join(g.work, "important"), path))
	}
	want := g.tree()
	delete(want, "/journal")
	g.undo()
	g.same(want)
}

func TestAWorktreeIgnoresInItsRepository(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	git := func(dir string, args ...string) {
		t.Helper()
		if out, err := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.org"},
			args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	git(g.home, "init", "-q")
	git(g.home, "commit", "-q", "--allow-empty", "-m", "x")
	tree := filepath.Join(g.work, "tree")
	git(g.home, "worktree", "add", "-q", tree)
	before := g.tree()
	g.apply(overlay.Change{Kind: overlay.Ignore, Root: g.work, Path: tree, Text: "*.ours\n"})
	git(tree, "check-ignore", "-q", "x.ours")
	g.undo()
	g.same(before)
}

// TestARepositoryThatDoesNotKnowTheFolderStays: any caller can write a .git file.
func TestARepositoryThatDoesNotKnowTheFolderStays(t *testing.T) {
	t.Parallel()
	for name, gitdir := range map[string]string{"its folder": ".git", "a worktree's": ".git/worktrees/x", "nothing": "nowhere"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			g.write(filepath.Join(g.home, ".git", "HEAD"), "ref: x", 0o600)
			g.write(filepath.Join(g.home, ".git", "worktrees", "x", "gitdir"), filepath.Join(g.home, "elsewhere", ".git"), 0o600)
			g.write(filepath.Join(g.home, ".git", "worktrees", "x", "commondir"), "../..", 0o600)
			g.write(filepath.Join(g.work, ".git"), "gitdir: "+filepath.Join(g.home, gitdir)+"\n", 0o600)
			before := g.tree()
			g.apply(overlay.Change{Kind: overlay.Ignore, Root: g.work, Path: g.work, Text: "x"})
			g.must(os.Remove(g.journal))
			g.same(before)
		})
	}
}

func TestASubmoduleIgnoresInItsOwnFolder(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	git := func(dir string, args ...string) {
		t.Helper()
		if out, err := exec.Command("git", append([]string{
			"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.org", "-c",
			"protocol.file.allow=always",
		}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	git(g.home, "init", "-q")
	git(g.home, "commit", "-q", "--allow-empty", "-m", "x")
	git(g.work, "init", "-q")
	git(g.work, "submodule", "--quiet", "add", g.home, "sub")
	before := g.tree()
	g.apply(overlay.Change{Kind: overlay.Ignore, Root: g.work, Path: filepath.Join(g.work, "sub"), Text: "*.ours"})
	git(filepath.Join(g.work, "sub"), "check-ignore", "-q", "x.ours")
	g.undo()
	g.same(before)
}

func TestALockIsRespectedUntilItIsStale(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	path := filepath.Join(g.home, "a.json")
	change := overlay.Change{Kind: overlay.Merge, Root: g.home, Path: path, Edits: []overlay.Edit{set("1", "a")}}
	g.must(os.Mkdir(path+".lock", 0o700))
	ctx, cancel := contextThatEnds(t)
	defer cancel()
	if e := capability.AsError(overlay.Apply(ctx, g.journal, "s", []overlay.Change{change})); e == nil || e.Reason != "overlay_busy" {
		t.Errorf(`%v; want e not nil, e.Reason = "overlay_busy"`, e)
	}
	old := time.Now().Add(-time.Minute)
	g.must(os.Chtimes(path+".lock", old, old))
	g.apply(change)
	g.undo()
}

// TestLinesComeBackBehindTheirAnchor holds the undo of Cut and Insert in a file that was changed since.
func TestLinesComeBackBehindTheirAnchor(t *testing.T) {
	t.Parallel()
	before := "a: 1\nlist:\n    one: 1\n    two: 2\nz: 9\n"
	for now, want := range map[string]string{
		"a: 1\nlist:\n    two: 2\n    own: 3\nz: 10\n": "a: 1\nlist:\n    one: 1\n    two: 2\nz: 10\n",
		"list:\n  own: 3\n  two: 2\n":                  "list:\n  one: 1\n  own: 3\n  two: 2\n", // another form of ours stays
		"z: 10\n":                                      "z: 10\nlist:\n    one: 1\n",
		"list: {}\nz: 10\n":                            "list: {}\nz: 10\n",
	} {
		dir := t.TempDir()
		file, journal := filepath.Join(dir, "file"), filepath.Join(t.TempDir(), "journal")
		if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
			t.Fatalf("writing the file: %v", err)
		}
		if err := overlay.Apply(t.Context(), journal, "x", []overlay.Change{
			{Kind: overlay.Cut, Root: dir, Path: file, Text: "    one: 1\n", Anchor: "list:\n"},
			{Kind: overlay.Insert, Root: dir, Path: file, Text: "    own: 3\n", Anchor: "list:\n"},
		}); err != nil {
			t.Fatalf("applying: %v", err)
		}
		if err := os.WriteFile(file, []byte(now), 0o600); err != nil {
			t.Fatalf("writing the file: %v", err)
		}
		if err := overlay.Undo(t.Context(), journal); err != nil {
			t.Fatalf("undoing: %v", err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("the undo of %q = %q, %v; want %q", now, got, err, want)
		}
	}
	twice := []overlay.Change{{Kind: overlay.Insert, Text: "x\n", Anchor: "a\n"}}
	for _, text := range []string{"", "b\n", "a\na\n"} {
		if got, err := overlay.Preview([]byte(text), "x", twice); err == nil {
			t.Errorf("Preview(%q) = %q, want an error", text, got)
		}
	}
}

// TestRemovedMembersComeBackInTheirOrder holds the undo in files that were changed since.
func TestRemovedMembersComeBackInTheirOrder(t *testing.T) {
	t.Parallel()
	remove := func(name string) overlay.Edit { return overlay.Edit{Keys: []string{"s", name}, Remove: true} }
	table := func(name string) overlay.Change {
		return overlay.Change{Kind: overlay.Cut, Text: "[" + name + "]\nx = 1\n"}
	}
	merge := overlay.Change{Kind: overlay.Merge, Edits: []overlay.Edit{set("0", "s", "own"), remove("a"), remove("b"), remove("c")}}
	const three = `{"s": {"c": 1, "a": 2, "b": 3}}`
	for _, tt := range []struct {
		name, before, now, want string
		changes                 []overlay.Change
	}{
		{"all of them", three, `{"n": 1, "s": {"own": 0}}`, `{"n": 1, "s": {"c": 1, "a": 2, "b": 3}}`, []overlay.Change{merge}},
		{
			"beside one that stays", `{"s": {"c": 1, "z": 9, "a": 2, "b": 3, "y": 8}}`, `{"s":{"z":9,"new":7,"y":8,"own":0},"n":1}`,
			`{"s":{"c":1,"z":9,"a":2,"b":3,"new":7,"y":8},"n":1}`,
			[]overlay.Change{merge},
		},
		{
			"on lines", "{\n  \"s\": {\n    \"c\": 1,\n    \"a\": 2,\n    \"b\": 3\n  }\n}\n",
			"{\n  \"s\": {\n    \"own\": 0,\n    \"new\": 7\n  },\n  \"n\": 1\n}\n",
			"{\n  \"s\": {\n    \"c\": 1,\n    \"a\": 2,\n    \"b\": 3,\n    \"new\": 7\n  },\n  \"n\": 1\n}\n",
			[]overlay.Change{merge},
		},
		{
			"one that is there again", three, `{"s": {"own": 0, "a": 5}}`, `{"s": {"c": 1, "a": 5, "b": 3}}`, []overlay.Change{merge},
		},
		{
			"tables", "k = 1\n[c]\nx = 1\n[a]\nx = 1\n[b]\nx = 1\n[z]\n", "k = 2\n[new]\n[z]\n",
			"k = 2\n[new]\n[c]\nx = 1\n[a]\nx = 1\n[b]\nx = 1\n[z]\n",
			[]overlay.Change{table("a"), table("b"), table("c")},
		},
		{
			"tables at the end", "[c]\nx = 1\n[a]\nx = 1\n[b]\nx = 1\n", "k = 2\n",
			"k = 2\n[c]\nx = 1\n[a]\nx = 1\n[b]\nx = 1\n",
			[]overlay.Change{table("a"), table("b"), table("c")},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			path := filepath.Join(g.home, "settings")
			g.write(path, tt.before, 0o600)
			for i := range tt.changes {
				tt.changes[i].Root, tt.changes[i].Path = g.home, path
			}
			g.apply(tt.changes...)
			g.write(path, tt.now, 0o600)
			g.undo()
			if got := g.read(path); got != tt.want {
				t.Errorf("after the undo: got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestExtendedSessionIsUndoneWhole holds further changes of a session, and one that fails.
func TestExtendedSessionIsUndoneWhole(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	path := filepath.Join(g.home, "settings")
	const before = "a\nb\nc\n"
	g.write(path, before, 0o600)
	cut := func(text string) overlay.Change {
		return overlay.Change{Kind: overlay.Cut, Root: g.home, Path: path, Text: text}
	}
	if err := overlay.Extend(t.Context(), g.journal, "s", []overlay.Change{cut("a\n")}); capability.AsError(err).Reason != "overlay_invalid" {
		t.Errorf("extending without a session: got %v, want overlay_invalid", err)
	}
	g.apply(cut("a\n"))
	f, err := os.OpenFile(g.journal, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(`{"kind":"cut","text":"not whole`) // the process ended while it was written
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatalf("writing half an entry: %v", err)
	}
	err = overlay.Extend(t.Context(), g.journal, "s", []overlay.Change{cut("b\n"), cut("none\n")})
	if got := g.read(path); capability.AsError(err).Reason != "overlay_broken" || got != "b\nc\n" {
		t.Errorf("extending with a change that fails: got %v and %q, want overlay_broken and what was there before", err, got)
	}
	if err := overlay.Extend(t.Context(), g.journal, "s", []overlay.Change{cut("b\n")}); err != nil || g.read(path) != "c\n" {
		t.Errorf("extending: got %v and %q, want c alone", err, g.read(path))
	}
	g.undo()
	if got := g.read(path); got != before {
		t.Errorf("after the undo: got %q, want %q", got, before)
	}
}
