package hostfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
)

// RemoveTree removes the entry name of root with its content, without following links. The program
// that wrote it may have removed permissions, or nested folders deeper than there are file
// descriptors; deep folders are first moved up beside name. It returns nil if name does not exist.
func RemoveTree(root *os.Root, name string) error {
	moved := []string{name}
	for n := 0; n < len(moved); n++ {
		lift := remover(func(at string) error {
			to := name + "-deep-" + strconv.Itoa(len(moved))
			moved = append(moved, to)
			return root.Rename(at, to)
		})
		if err := lift.remove(root, moved[n], moved[n], 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// RemoveAll is RemoveTree for a path, whose parent the program could not replace.
func RemoveAll(name string) error {
	root, err := os.OpenRoot(filepath.Dir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(RemoveTree(root, filepath.Base(name)), root.Close())
}

// remover removes a tree level by level. It moves a folder, named from the root, out of the tree.
type remover func(at string) error

// remove removes the entry name of dir, whose path from the root is at. A folder beyond maxLevels
// is lifted out of the tree instead.
func (lift remover) remove(dir *os.Root, name, at string, level int) error {
	err := dir.Remove(name) // a file, a link, an empty folder
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	info, e := dir.Lstat(name)
	if e != nil || !info.IsDir() {
		return err
	}
	if info.Mode().Perm()&0o700 != 0o700 {
		_ = dir.Chmod(name, 0o700)
	}
	if level == maxLevels {
		return lift(at)
	}
	inside, err := dir.OpenRoot(name)
	if err != nil {
		return err
	}
	err = lift.empty(inside, at, level)
	if err := errors.Join(err, inside.Close()); err != nil {
		return err
	}
	return dir.Remove(name)
}

func (lift remover) empty(dir *os.Root, at string, level int) error {
	list, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer list.Close()
	for {
		names, err := list.Readdirnames(1000)
		for _, name := range names {
			if err := lift.remove(dir, name, path.Join(at, name), level+1); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if err != nil || len(names) == 0 {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
	}
}
