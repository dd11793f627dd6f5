package skill

// This file keeps the skills that are installed on a device: one JSON file each in
// a folder of its own, written beside and then put in its place, so that a crash
// leaves the old one or the new one.

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// maxFile bounds one file, in bytes: payloads of all layers and the code that came
// by reference.
const maxFile = 64 << 20

const (
	ending = ".json"
	broken = ".broken"
)

// Files is a skill.Store. It is safe for concurrent use by one process.
type Files struct {
	dir string
	mu  sync.Mutex
}

var _ Store = (*Files)(nil)

// OpenFiles makes the folder if it is not there, and removes what a crash left half
// written.
func OpenFiles(dir string) (*Files, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("folder of skills: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*.tmp"))
	for _, name := range left {
		err = errors.Join(err, os.Remove(name))
	}
	return &Files{dir: dir}, err
}

// path is the skill's file: a hash, since names hold slashes.
func (f *Files) path(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(f.dir, hex.EncodeToString(sum[:])+ending)
}

// All reads every skill. A file that cannot be read as one is set aside under
// another name, so that one bad file does not keep the others from starting.
func (f *Files) All(ctx context.Context) ([]Stored, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, fmt.Errorf("folder of skills: %w", err)
	}
	var out []Stored
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if e.IsDir() || !strings.HasSuffix(e.Name(), ending) {
			continue
		}
		path := filepath.Join(f.dir, e.Name())
		s, err := f.read(path)
		if err != nil {
			if err := os.Rename(path, path+broken); err != nil {
				return nil, fmt.Errorf("set aside a file of a skill: %w", err)
			}
			continue
		}
		out = append(out, s)
	}
	return out, nil
}

func (f *Files) read(path string) (Stored, error) {
	var s Stored
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxFile {
		return s, errors.New("no ordinary file, or a large one")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	if err := jsonx.Unmarshal(data, &s); err != nil {
		return s, err
	}
	if s.Record.SkillName == "" || f.path(s.Record.SkillName) != path {
		return s, errors.New("it is another skill's file")
	}
	return s, nil
}

// Put writes a skill whole, and returns when it is on disk.
func (f *Files) Put(_ context.Context, s Stored) error {
	data, err := jsonx.Marshal(s)
	if err != nil {
		return err
	}
	if len(data) > maxFile {
		return fmt.Errorf("the skill has %d bytes; the limit is %d", len(data), maxFile)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	tmp, err := os.CreateTemp(f.dir, ".*.tmp") // 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), f.path(s.Record.SkillName))
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return f.sync()
}

// Delete removes a skill; a missing one is not an error.
func (f *Files) Delete(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := os.Remove(f.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return f.sync()
}

// sync makes the folder's entries last.
func (f *Files) sync() error {
	d, err := os.Open(f.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
