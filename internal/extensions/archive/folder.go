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

// ReadDir reads a folder by the rules of ReadZip, without a top folder .git. The root
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

// OpenRegular opens a regular file in a folder that another process may be changing. It
// fails if the file is or becomes anything else, and does not block on a FIFO.
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

// OpenPackage reads an installed package as a tree, without WorkDir and MadeDir.
func OpenPackage(root *os.Root) (*Tree, error) { return readDir(root, WorkDir, MadeDir) }

// TreeHash returns the hash of an installed package as it is on disk: the SHA-256, in lower-case
// hex, over path, mode and SHA-256 of each file, sorted by path, without WorkDir and MadeDir.
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

// treeHash computes a tree's hash; files must be added in the order of their paths.
type treeHash struct{ sum hash.Hash }

func newTreeHash() *treeHash { return &treeHash{sha256.New()} }

func (t *treeHash) add(p string, executable bool, sum []byte) {
	// Names contain neither NUL nor newline, so different lists give different texts.
	fmt.Fprintf(t.sum, "%s\x00%04o\x00%x\n", p, modeOf(executable), sum)
}

func (t *treeHash) hex() string { return hex.EncodeToString(t.sum.Sum(nil)) }
