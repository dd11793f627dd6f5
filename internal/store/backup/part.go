package backup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// part is a folder in which a result is completed before it gets its name. It is locked, so
// an unlocked one was left by a kill. A mark file identifies it as ours; the mark is created
// first and removed last.
type part struct {
	dir  string
	lock *os.File
}

// mark is the name of the mark file.
const mark = ".junctor-part"

// openPart creates the folder, or empties one that a kill left. It never removes a folder or
// a file that others have created under that name.
func openPart(dir string) (*part, error) {
	err := os.Mkdir(dir, 0o700)
	made := err == nil
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, capability.Errorf(capability.CodeFailed, "backup", "the folder %s cannot be made: %w", dir, err).
			With("", "choose a place in a folder that you can write to: of a volume, a new folder inside it")
	}
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return nil, inTheWay(dir, "it is not a folder")
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, inTheWay(dir, "it cannot be opened")
	}
	if err := hostfs.TryLock(f); err != nil {
		return nil, errors.Join(capability.Wrap(capability.CodeConflict, "backup", "another process is at work in "+dir, err).
			With(ReasonBusy, "wait for it"), f.Close())
	}
	p := &part{dir, f}
	if !made { // only then, because some file systems assign new files to another user
		err = p.ours(info)
	}
	if err == nil {
		err = p.begin()
	}
	if err != nil {
		return nil, errors.Join(failed(dir+" cannot be emptied", err), f.Close())
	}
	return p, nil
}

func inTheWay(dir, why string) error {
	return capability.Errorf(capability.CodeConflict, "backup", "%s is in the way: %s", dir, why).
		With(ReasonInTheWay, "move it away, or remove it if an earlier junctor left it; or choose another place")
}

// ours rejects a folder that an earlier attempt cannot have left.
func (p *part) ours(seen fs.FileInfo) error {
	info, err := p.lock.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(seen, info) || !hostfs.Mine(info) {
		return inTheWay(p.dir, "it belongs to another user")
	}
	names, err := p.lock.Readdirnames(-1)
	if err != nil {
		return err
	}
	if info, err := os.Lstat(p.path(mark)); len(names) > 0 && (err != nil || !info.Mode().IsRegular()) {
		return inTheWay(p.dir, "there is something in it that junctor has not put there")
	}
	return p.lock.Chmod(0o700) // before anything is written
}

// begin marks the folder, durably, and empties it.
func (p *part) begin() error {
	f, err := os.OpenFile(p.path(mark), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), hostfs.SyncDir(p.dir), p.empty())
}

func (p *part) empty() error {
	entries, err := os.ReadDir(p.dir)
	for _, e := range entries {
		if e.Name() != mark {
			err = errors.Join(err, os.RemoveAll(p.path(e.Name())))
		}
	}
	return err
}

func (p *part) path(name string) string { return filepath.Join(p.dir, name) }

// remove removes the folder, the mark last.
func (p *part) remove() {
	if p.empty() == nil {
		_ = os.RemoveAll(p.dir)
	}
	_ = p.lock.Close()
}

// replaces checks whether an empty folder can be replaced, by moving it away and back. A mount point
// cannot be replaced.
func (p *part) replaces(dir string) error {
	err := os.Rename(dir, p.path("empty"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.Rename(p.path("empty"), dir)
	}
	if err != nil {
		return capability.Errorf(capability.CodeConflict, "restore",
			"the empty folder %s cannot be replaced, as if a disk were mounted there: %w", dir, err).
			With(ReasonMounted, "name a new folder inside it: --home "+filepath.Join(dir, "home"))
	}
	return nil
}

// become moves the result under name to its final path, which must be missing or an empty folder. It
// uses the system call, because [os.Rename] rejects an existing folder.
func (p *part) become(name, dir string) error {
	err := syscall.Rename(p.path(name), dir)
	for errors.Is(err, syscall.EINTR) {
		err = syscall.Rename(p.path(name), dir)
	}
	if err != nil {
		return failed("the home could not be given its name", &os.LinkError{Op: "rename", Old: p.path(name), New: dir, Err: err})
	}
	return hostfs.SyncDir(filepath.Dir(dir))
}

// openPlain opens a regular file or folder beneath a folder. Links, pipes and devices count as missing.
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
