package backup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/hostfs"
)

// part is a folder in which something is made whole before it gets its name. It is
// locked: what is found in one that nobody holds was left by a kill.
type part struct {
	dir  string
	lock *os.File
}

// openPart makes the folder, or empties the one that was left.
func openPart(dir string) (*part, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, failed("no file can be made beside "+dir, err)
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return nil, failed(dir+" is in the way", errors.Join(err, fs.ErrExist))
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, failed(dir+" is in the way", err)
	}
	if err := hostfs.TryLock(f); err != nil {
		return nil, errors.Join(capability.Wrap(capability.CodeConflict, "backup", "another process is at work in "+dir, err).
			With(ReasonBusy, "wait for it"), f.Close())
	}
	p := &part{dir, f}
	entries, err := f.ReadDir(-1)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(p.path(e.Name())))
	}
	if err == nil {
		err = os.Chmod(dir, 0o700)
	}
	if err != nil {
		return nil, errors.Join(failed(dir+" cannot be emptied", err), f.Close())
	}
	return p, nil
}

func (p *part) path(name string) string { return filepath.Join(p.dir, name) }

// become gives the folder its name; it is nobody's to remove from then on.
func (p *part) become(dir string) error {
	if err := os.Rename(p.dir, dir); err != nil {
		return err
	}
	p.dir = ""
	return syncDir(filepath.Dir(dir))
}

// remove takes away what did not become anything.
func (p *part) remove() {
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
	_ = p.lock.Close()
}

// openPlain opens a file beneath a folder; links, pipes and devices are as if they were
// not there.
func openPlain(dir *os.File, name string) (*os.File, error) {
	f, err := openBeneath(dir, name)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, f.Close(), fs.ErrNotExist)
	}
	return f, nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
