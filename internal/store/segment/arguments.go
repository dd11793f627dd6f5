package segment

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// argumentsName is the length of a name in characters.
const argumentsName = 64

// Arguments stores sealed arguments as one file each, in a folder for each two first characters of
// their names. It implements [audit.Arguments]; it does not flush to the disk.
type Arguments struct{ dir string }

var _ audit.Arguments = (*Arguments)(nil)

// NewArguments returns the store in dir, which the first Put creates.
func NewArguments(dir string) *Arguments { return &Arguments{dir} }

func (a *Arguments) path(name string) (string, error) {
	if _, err := hex.DecodeString(name); err != nil || len(name) != argumentsName {
		return "", fmt.Errorf("%.80q is not a name of arguments", name)
	}
	return filepath.Join(a.dir, name[:2], name), nil
}

// Put implements audit.Arguments.
func (a *Arguments) Put(name string, sealed []byte) error {
	path, err := a.path(name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return err
	}
	return hostfs.ReplaceFile(path, sealed)
}

// Get implements audit.Arguments.
func (a *Arguments) Get(name string) ([]byte, error) {
	path, err := a.path(name)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// Remove implements audit.Arguments.
func (a *Arguments) Remove(name string) error {
	path, err := a.path(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Sweep implements audit.Arguments.
func (a *Arguments) Sweep(before time.Time) error {
	var failures []error
	err := filepath.WalkDir(a.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		if name := d.Name(); len(name) != argumentsName && !strings.HasPrefix(name, ".tmp-") {
			return nil
		}
		info, err := d.Info()
		if err == nil && info.ModTime().Before(before) {
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failures = append(failures, err)
		}
		return nil
	})
	return errors.Join(append(failures, err)...)
}
