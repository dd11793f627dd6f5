package archive

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"slices"
)

// ReadDir reads a folder as ReadZip reads an archive, by the same rules. A
// version control folder .git at the top is left out: it is never packed. The root
// must stay open as long as the tree is used.
func ReadDir(root *os.Root) (*Tree, error) { return readDir(root, ".git") }

func readDir(root *os.Root, without ...string) (*Tree, error) {
	t, seen, entries := &Tree{}, newNames(), 0
	err := fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return because(broken("the folder cannot be read"), err)
		case p == ".":
			return nil
		case slices.Contains(without, p) && d.IsDir():
			return fs.SkipDir
		}
		if entries++; entries > MaxEntries {
			return large("the folder has more than %d members", MaxEntries)
		}
		if !d.IsDir() && !d.Type().IsRegular() {
			return refused("%s is neither a file nor a directory", shown(p))
		}
		if err := seen.check(p, !d.IsDir()); err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return because(broken("%s cannot be read", shown(p)), err)
		}
		t.members = append(t.members, Member{Path: p, Executable: info.Mode()&0o111 != 0, packed: -1, open: func() (io.ReadCloser, error) {
			return OpenRegular(root, p)
		}})
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(t.members, func(a, b Member) int { return cmp.Compare(a.Path, b.Path) })
	return t, nil
}

// OpenRegular opens a regular file in a folder that another process may be writing
// in: one that has become something else since it was listed is an error, and a
// fifo does not hold the caller.
func OpenRegular(root *os.Root, p string) (*os.File, error) {
	before, err := root.Lstat(p)
	if err != nil {
		return nil, err
	}
	f, err := root.OpenFile(p, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	after, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	if !before.Mode().IsRegular() || !os.SameFile(before, after) {
		f.Close()
		return nil, fmt.Errorf("%s is not a regular file any more", p)
	}
	return f, nil
}

// OpenPackage reads an installed package as a tree, without what its plan made and
// what the extension has written since.
func OpenPackage(root *os.Root) (*Tree, error) { return readDir(root, WorkDir, MadeDir) }

// TreeHash is the hash of an installed package as it is on disk now: SHA-256, in
// lower-case hex, over path, mode and SHA-256 of each file, sorted by path. What
// was made there is left out.
func TreeHash(ctx context.Context, root *os.Root) (string, error) {
	t, err := OpenPackage(root)
	if err != nil {
		return "", err
	}
	all, w := newTreeHash(), writer{ctx: ctx}
	for i := range t.members {
		m, sum := &t.members[i], sha256.New()
		if err := w.inflate(m, sum); err != nil {
			return "", err
		}
		all.add(m.Path, m.Executable, sum.Sum(nil))
	}
	return all.hex(), nil
}

// treeHash takes the files in the order of their paths.
type treeHash struct{ sum hash.Hash }

func newTreeHash() *treeHash { return &treeHash{sha256.New()} }

func (t *treeHash) add(p string, executable bool, sum []byte) {
	// No name holds a NUL or a newline, so no two lists are written alike.
	fmt.Fprintf(t.sum, "%s\x00%04o\x00%x\n", p, modeOf(executable), sum)
}

func (t *treeHash) hex() string { return hex.EncodeToString(t.sum.Sum(nil)) }
