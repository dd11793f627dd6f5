package segment

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// LoadHead returns the content of the file head, or nil if it does not exist.
func (s *Segments) LoadHead() ([]byte, error) {
	doc, err := os.ReadFile(filepath.Join(s.dir, "head"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return doc, err
}

// SaveHead replaces the file head atomically.
func (s *Segments) SaveHead(doc []byte) error {
	return replaceFile(filepath.Join(s.dir, "head"), doc)
}

// replaceFile writes and flushes a temporary file and renames it to path.
func replaceFile(path string, data []byte) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = datasync(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return os.Rename(tmp, path)
}
