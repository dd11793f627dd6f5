package overlay

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// place is a file below a folder. All access goes through root, so that no link leads out of the
// folder.
type place struct {
	root     *os.Root
	rootPath string // without symbolic links
	rel      string // without symbolic links
}

// openPlace resolves path below root and opens root. With own, path must not contain symbolic links.
// Without it, links within root are followed. Errors: denied, reason overlay_outside, for a
// path that leads out of root; invalid_input for a relative one.
func openPlace(root, path string, own bool) (*place, error) {
	if !filepath.IsAbs(root) || !filepath.IsAbs(path) {
		return nil, capability.Errorf(capability.CodeInvalidInput, "overlay.apply", "%q in %q: both must be absolute", path,
			root).With("overlay_invalid", "")
	}
	realRoot, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, failed(path, err)
	}
	rel, err := filepath.Rel(filepath.Clean(root), filepath.Clean(path))
	if err != nil || rel == "." || !filepath.IsLocal(rel) {
		return nil, outside(path)
	}
	plain := filepath.Join(realRoot, rel)
	full, err := follow(plain)
	if own {
		full, err = follow(filepath.Dir(plain))
		full = filepath.Join(full, filepath.Base(plain))
	}
	if err != nil || own && full != plain {
		return nil, outside(path)
	}
	if rel, err = filepath.Rel(realRoot, full); err != nil || rel == "." || !filepath.IsLocal(rel) {
		return nil, outside(path)
	}
	opened, err := os.OpenRoot(realRoot)
	if err != nil {
		return nil, failed(path, err)
	}
	return &place{root: opened, rootPath: realRoot, rel: rel}, nil
}

// follow resolves symbolic links in the existing part of a path.
func follow(path string) (string, error) {
	full, err := filepath.EvalSymlinks(path)
	if err == nil {
		return full, nil
	}
	if _, there := os.Lstat(path); there == nil || filepath.Dir(path) == path {
		return "", err // a dangling or circular link
	}
	dir, err := follow(filepath.Dir(path))
	return filepath.Join(dir, filepath.Base(path)), err
}

func (p *place) close() { _ = p.root.Close() }

// missing returns the parent folders of the file that do not exist, outermost first.
func (p *place) missing() (dirs []string) {
	for dir := filepath.Dir(p.rel); dir != "."; dir = filepath.Dir(dir) {
		if _, err := p.root.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		dirs = append([]string{dir}, dirs...)
	}
	return dirs
}

func (p *place) makeFolders(dirs []string) error {
	for _, dir := range dirs {
		if err := p.root.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// removeTree removes the folder with its content. It leaves a file or link in its place.
func (p *place) removeTree() error {
	if info, err := p.root.Lstat(p.rel); err != nil || !info.IsDir() {
		return err
	}
	return hostfs.RemoveTree(p.root, p.rel)
}

// state is the content and the attributes of a file when it was read.
type state struct {
	existed bool
	data    []byte
	info    fs.FileInfo
}

// read returns the state of the file; a missing file is not an error. Errors: conflict, reason
// overlay_special, if it is not a regular file; too_large beyond MaxFile.
func (p *place) read() (s state, err error) {
	full := filepath.Join(p.rootPath, p.rel)
	// Without O_NONBLOCK, opening a pipe in the file's place would block forever.
	f, err := p.root.OpenFile(p.rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, nil
	}
	if err != nil {
		return state{}, failed(full, err)
	}
	defer f.Close()
	if s.info, err = f.Stat(); err != nil {
		return state{}, failed(full, err)
	}
	if !s.info.Mode().IsRegular() {
		return state{}, capability.Errorf(capability.CodeConflict, "overlay.apply", "%s is not a regular file", full).With("overlay_special", "")
	}
	if s.data, err = io.ReadAll(io.LimitReader(f, MaxFile+1)); err != nil {
		return state{}, failed(full, err)
	}
	if len(s.data) > MaxFile {
		return state{}, capability.Errorf(capability.CodeTooLarge, "overlay.apply", "%s is larger than %d bytes", full, MaxFile)
	}
	s.existed = true
	return s, nil
}

// replace writes the file by rename, with the previous file's mode and owner, and syncs the folder.
func (p *place) replace(data []byte, before state) error {
	mode := fs.FileMode(0o600)
	if before.existed {
		mode = before.info.Mode().Perm()
	}
	temp := filepath.Join(filepath.Dir(p.rel), "."+filepath.Base(p.rel)+"."+rand.Text()+".tmp")
	err := p.create(temp, data, mode)
	if uid, gid, other := otherOwner(before.info); other && err == nil {
		err = p.root.Lchown(temp, uid, gid)
	}
	if err == nil {
		err = p.root.Rename(temp, p.rel)
	}
	if err != nil {
		_ = p.root.Remove(temp)
		return err
	}
	return syncFolder(filepath.Dir(filepath.Join(p.rootPath, p.rel)))
}

func (p *place) create(rel string, data []byte, mode fs.FileMode) error {
	f, err := p.root.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && mode != 0o600 {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) { // some file systems do not support it
		return err
	}
	return nil
}

// lock locks the file in the same way as the agents' own programs, by a folder beside it: Claude
// Code and Gemini CLI use a library that refreshes the folder while it holds the lock, and
// takes over a lock that was not refreshed for ten seconds. After 20 s, or when ctx ends, the
// error is conflict, reason overlay_busy.
func (p *place) lock(ctx context.Context) (unlock func(), err error) {
	name := p.rel + ".lock"
	limit, cancel := context.WithTimeout(ctx, 2*staleTimeout)
	defer cancel()
	for {
		err := p.root.Mkdir(name, 0o700)
		if err == nil {
			return func() { _ = p.root.Remove(name) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, failed(filepath.Join(p.rootPath, p.rel), err)
		}
		if info, serr := p.root.Lstat(name); serr == nil && info.IsDir() && time.Since(info.ModTime()) > staleTimeout {
			_ = p.root.Remove(name)
			continue
		}
		select {
		case <-limit.Done():
			return nil, capability.Errorf(capability.CodeConflict, "overlay.apply", "another program holds %s for too long",
				strings.TrimSuffix(filepath.Join(p.rootPath, name), ".lock")).
				With("overlay_busy", "remove the folder of the same name with .lock behind it if no program is using it")
		case <-time.After(lookInterval):
		}
	}
}
