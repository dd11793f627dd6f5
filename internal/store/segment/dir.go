package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/internal/core/audit"
)

func (s *Segments) path(id uint64) string {
	return filepath.Join(s.dir, fmt.Sprintf("%s%08d%s", prefix, id, suffix))
}

// scan returns the segments in the directory, oldest first. Other files are ignored.
func (s *Segments) scan() ([]audit.SegmentInfo, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var list []audit.SegmentInfo
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), prefix)
		name, ok2 := strings.CutSuffix(name, suffix)
		id, err := strconv.ParseUint(name, 10, 64)
		if !ok || !ok2 || err != nil || id == 0 || filepath.Base(s.path(id)) != e.Name() {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		list = append(list, audit.SegmentInfo{ID: id, Size: info.Size()})
	}
	slices.SortFunc(list, func(a, b audit.SegmentInfo) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return list, nil
}

// wholeLines returns the length of the file up to and including its last newline.
func wholeLines(path string, size int64) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	buf := make([]byte, 32<<10)
	for end := size; end > 0; {
		from := max(0, end-int64(len(buf)))
		n, err := f.ReadAt(buf[:end-from], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return from + int64(i) + 1, nil
		}
		end = from
	}
	return 0, nil
}

var errNotOldest = errors.New("only the oldest segment can be removed, and never the last one")

// Remove deletes the oldest segment.
func (s *Segments) Remove(id uint64) error {
	s.mu.Lock()
	oldest := !s.cfg.ReadOnly && len(s.list) > 1 && s.list[0].ID == id
	if oldest {
		s.list = slices.Delete(s.list, 0, 1)
	}
	s.mu.Unlock()
	if !oldest {
		return errNotOldest
	}
	return os.Remove(s.path(id))
}
