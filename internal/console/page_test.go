package console

import (
	"regexp"
	"strings"
	"testing"
)

// The limits of what a browser loads, in bytes of gzip: the page before it shows anything, a page whose
// code is loaded with it, and the terminal. All files together are in the program uncompressed.
const (
	maxShell    = 60_000
	maxChunk    = 25_000
	maxTerminal = 130_000
	maxTree     = 1_200_000
)

func TestThePageStaysSmall(t *testing.T) {
	f, err := openFiles()
	if err != nil {
		t.Fatalf("opening the page: %v", err)
	}
	if !f.built {
		t.Skip("this build has no page (make console)")
	}
	imported := regexp.MustCompile(`(?:from|import)\s*"\./([^"]+)"`) // not import(), which loads later
	shell := map[string]bool{}
	var load func(name string)
	load = func(name string) {
		if one, ok := f.all[name]; ok && !shell[name] {
			shell[name] = true
			for _, m := range imported.FindAllSubmatch(one.data, -1) {
				load("assets/" + string(m[1]))
			}
		}
	}
	load("index.html")
	for _, m := range regexp.MustCompile(`/console/(assets/[^"]+)`).FindAllSubmatch(f.all["index.html"].data, -1) {
		load(string(m[1]))
	}
	sum, tree := 0, 0
	for name, one := range f.all {
		size := len(one.data)
		tree += size
		if z := one.zipped(); z != nil {
			size = len(z)
		}
		switch {
		case shell[name]:
			sum += size
		case strings.HasPrefix(name, "assets/xterm") && size > maxTerminal:
			t.Errorf("the terminal %s has %d bytes of gzip, want at most %d", name, size, maxTerminal)
		case strings.HasPrefix(name, "assets/") && !strings.HasPrefix(name, "assets/xterm") && size > maxChunk:
			t.Errorf("the page %s has %d bytes of gzip, want at most %d", name, size, maxChunk)
		}
	}
	if len(shell) < 3 || sum > maxShell {
		t.Errorf("the page begins with %d files and %d bytes of gzip, want its script and styles in at most %d", len(shell), sum, maxShell)
	}
	if tree > maxTree {
		t.Errorf("all files of the page have %d bytes, want at most %d", tree, maxTree)
	}
}
