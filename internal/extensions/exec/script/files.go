package script

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// files gives host calls access to the files of the working folder. Programs of the
// same extension may change the folder at any time, so every access goes through an
// [os.Root], and links are not followed.
type files struct {
	dir  string
	most int64 // bytes
	uid  int   // owner of new files, if the server is root
	used int64 // bytes at the first write, plus all bytes written since
	seen bool
}

var errNoFile = errors.New("there is no such file in the working folder")

// with opens the folder and runs f. It fails if name is not a clean relative path or
// passes through something that is not a folder, for example a link.
func (x *files) with(name string, f func(root *os.Root) error) error {
	if !filepath.IsLocal(name) || path.Clean(name) != name || len(name) > 240 {
		return fmt.Errorf("the name %.80q is not one in the working folder", name)
	}
	root, err := os.OpenRoot(x.dir)
	if err != nil {
		return errors.New("the extension has no working folder")
	}
	defer root.Close()
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if st, err := root.Lstat(dir); err == nil && !st.IsDir() {
			return fmt.Errorf("%.80q is not a folder", dir)
		}
	}
	return f(root)
}

// read returns a regular UTF-8 file of at most MaxFile bytes. All other failures are errNoFile.
func (x *files) read(name string) (text string, err error) {
	err = x.with(name, func(root *os.Root) error {
		st, err := root.Lstat(name)
		if err != nil || !st.Mode().IsRegular() {
			return errNoFile
		}
		f, err := root.OpenFile(name, os.O_RDONLY|noWait, 0)
		if err != nil {
			return errNoFile
		}
		defer f.Close()
		if now, err := f.Stat(); err != nil || !os.SameFile(st, now) {
			return errNoFile // it was replaced since Lstat
		}
		data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
		switch {
		case err != nil:
			return errNoFile
		case len(data) > MaxFile:
			return fmt.Errorf("the file has more than %d bytes", MaxFile)
		case !utf8.Valid(data):
			return errors.New("the file is not UTF-8 text")
		}
		text = string(data)
		return nil
	})
	return text, err
}

// write creates or replaces a text file, and creates missing folders above it. It fails
// if the text exceeds MaxFile or the folder its limit, or if name is not a file.
func (x *files) write(name, text string) error {
	if len(text) > MaxFile {
		return fmt.Errorf("the text has %d bytes; a file may have %d", len(text), MaxFile)
	}
	return x.with(name, func(root *os.Root) error {
		if err := x.room(root, int64(len(text))); err != nil {
			return err
		}
		if dir := path.Dir(name); dir != "." {
			if err := x.folders(root, dir); err != nil {
				return fmt.Errorf("the folder %.80q cannot be made", dir)
			}
		}
		if st, err := root.Lstat(name); err == nil && !st.Mode().IsRegular() {
			return fmt.Errorf("%.80q is there, and is not a file", name)
		}
		// The new file replaces the name, so that other hard links of the old file keep
		// its content.
		next := name + ".new"
		_ = root.Remove(next)
		f, err := root.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL|noWait, 0o644)
		if err != nil {
			return fmt.Errorf("%.80q cannot be written", name)
		}
		_, err = io.WriteString(f, text)
		if err == nil && os.Geteuid() == 0 { // the extension's programs own it
			err = f.Chown(x.uid, x.uid)
		}
		if err = errors.Join(err, f.Close()); err == nil {
			err = root.Rename(next, name)
		}
		if err != nil {
			_ = root.Remove(next)
			return fmt.Errorf("%.80q cannot be written", name)
		}
		return nil
	})
}

// folders creates a folder and its parents.
func (x *files) folders(root *os.Root, dir string) error {
	if parent := path.Dir(dir); parent != "." {
		if err := x.folders(root, parent); err != nil {
			return err
		}
	}
	err := root.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil && os.Geteuid() == 0 {
		err = root.Chown(dir, x.uid, x.uid)
	}
	return err
}

// room adds more bytes to the use of the folder, and fails if that exceeds the limit.
// The first call measures the folder.
func (x *files) room(root *os.Root, more int64) error {
	most := x.most
	if most <= 0 {
		most = defaultDisk
	}
	if !x.seen {
		x.seen = true
		_ = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
			if strings.Count(name, "/") >= hostfs.MaxDepth {
				x.used = most + 1
				return fs.SkipAll
			}
			if err != nil {
				return nil
			}
			if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
				x.used += info.Size()
			}
			if x.used > most {
				return fs.SkipAll
			}
			return nil
		})
	}
	if x.used += more; x.used > most {
		return fmt.Errorf("the working folder would hold more than its %d bytes", most)
	}
	return nil
}
