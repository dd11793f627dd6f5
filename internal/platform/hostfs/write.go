package hostfs

import (
	"errors"
	"os"
	"path/filepath"
)

// WriteFile creates or replaces a file atomically, with mode 0600. The content is on disk when it
// returns, and a crash leaves the old content or the new one.
func WriteFile(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tmp-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // already gone after the rename
	_, err = tmp.Write(data)
	if err := errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// SyncDir flushes the entries of a folder to disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
