package segment

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/junctor-run/junctor/internal/platform/hostfs"
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
	return hostfs.WriteFile(filepath.Join(s.dir, "head"), doc)
}
