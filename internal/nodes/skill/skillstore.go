package skill

// This file stores the installed skills of a device as one JSON file each. A file is written under
// a temporary name and then renamed, so that a crash leaves the old or the new version.

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
	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

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

// OpenFiles creates the folder if needed, and removes temporary files left by a crash.
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

// path returns the skill's file, whose name is a hash because skill names contain slashes.
func (f *Files) path(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(f.dir, hex.EncodeToString(sum[:])+ending)
}

// All reads every skill. It renames a file that is not a valid skill, so that one bad file does
// not prevent the others from loading.
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

// Put replaces a skill's file atomically and returns when it is on disk.
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
	if err := hostfs.WriteFile(f.path(s.Record.SkillName), data); err != nil {
		return err
	}
	return hostfs.SyncDir(f.dir)
}

// Delete removes a skill; a missing one is not an error.
func (f *Files) Delete(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := os.Remove(f.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return hostfs.SyncDir(f.dir)
}
