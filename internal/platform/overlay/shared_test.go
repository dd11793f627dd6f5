package overlay_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/platform/overlay"
)

// Two sessions of one program need the same values in the user's file. The file returns to what it
// was, whichever session ends first, and no session loses a value before its own end.
func TestAValueStaysWhileASessionNeedsIt(t *testing.T) {
	t.Parallel()
	key := add(`"key"`, "customApiKeyResponses", "approved")
	trust := func(folder string) overlay.Edit { return set("true", "projects", folder, "trusted") }
	for name, c := range map[string]struct {
		before  string // "": the file does not exist
		edits   [][]overlay.Edit
		endings []int // sessions in the order in which they end
		between []string
	}{
		"the first ends first": {settings, [][]overlay.Edit{{trust("/a"), key}, {trust("/b"), key}}, []int{0, 1}, []string{`"key"`, `"/b"`}},
		"the last ends first":  {settings, [][]overlay.Edit{{trust("/a"), key}, {trust("/b"), key}}, []int{1, 0}, []string{`"key"`, `"/a"`}},
		"both need the same":   {settings, [][]overlay.Edit{{trust("/a"), key}, {trust("/a"), key}}, []int{0, 1}, []string{`"key"`, `"/a"`}},
		"three in a row":       {settings, [][]overlay.Edit{{key}, {key}, {key}}, []int{0, 1, 2}, []string{`"key"`}},
		"a new file":           {"", [][]overlay.Edit{{key}, {trust("/b"), key}}, []int{0, 1}, []string{`"key"`, `"/b"`}},
		"a value that the user had": {
			`{"customApiKeyResponses":{"approved":["key"]}}`, [][]overlay.Edit{{key}, {key}}, []int{0, 1}, []string{`"key"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			file := filepath.Join(g.home, ".claude.json")
			if c.before != "" {
				g.write(file, c.before, 0o600)
			}
			before := g.tree()
			journal := func(i int) string { return filepath.Join(filepath.Dir(g.journal), string(rune('a'+i))+".json") }
			for i, edits := range c.edits {
				g.must(overlay.Apply(t.Context(), journal(i), string(rune('a'+i)), []overlay.Change{
					{Kind: overlay.Merge, Root: g.home, Path: file, Edits: edits},
				}))
			}
			for n, i := range c.endings {
				g.must(overlay.Undo(t.Context(), journal(i)))
				if n == len(c.endings)-1 {
					break
				}
				for _, part := range c.between {
					if got := g.read(file); !strings.Contains(got, part) {
						t.Errorf("after %d of %d ended: the file is %s, want it with %s", n+1, len(c.endings), got, part)
					}
				}
			}
			g.same(before)
		})
	}
}
