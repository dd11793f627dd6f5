package hostfs

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile creates or replaces a file atomically, with mode 0600. The content is on disk when it
// returns, and a crash leaves the old content or the new one.
func WriteFile(path string, data []byte) error { return replace(path, data, true, 0o600) }

// RewriteFile is like [WriteFile] for a file that exists and keeps its mode.
func RewriteFile(path string, data []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return replace(path, data, true, info.Mode().Perm())
}

// ReplaceFile is like [WriteFile], but does not wait for the disk: a loss of power can leave a file
// that is empty.
func ReplaceFile(path string, data []byte) error { return replace(path, data, false, 0o600) }

func replace(path string, data []byte, sync bool, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tmp-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // already gone after the rename
	_, err = tmp.Write(data)
	if mode != 0o600 {
		err = errors.Join(err, tmp.Chmod(mode))
	}
	if sync {
		err = errors.Join(err, tmp.Sync())
	}
	if err := errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// ReadJSON decodes a file that WriteJSON wrote. It leaves v as it is if the file does not exist.
func ReadJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// WriteJSON writes v as JSON with [WriteFile].
func WriteJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return WriteFile(path, data)
}

// SyncDir flushes the entries of a folder to disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
