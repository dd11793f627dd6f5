package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

const (
	ending = ".json"
	broken = ".broken"
)

var recordIDForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,99}$`)

// RecordFolder stores records of one type in files named after their ids, which consist of
// lower-case letters, digits and hyphens. It is safe for concurrent use by one process.
type RecordFolder[T any] struct {
	dir string
	mu  sync.Mutex
}

// OpenRecords creates the folder if needed, removes temporary files of a crash, and returns the
// records by id. A malformed file is renamed, and its name is in the last result, so that it
// does not prevent the use of the others.
func OpenRecords[T any](dir string) (*RecordFolder[T], map[string]T, []string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, nil, fmt.Errorf("folder of records: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("folder of records: %w", err)
	}
	all := make(map[string]T)
	var bad []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), ".") && strings.HasSuffix(e.Name(), ".tmp") {
			if err := os.Remove(path); err != nil {
				return nil, nil, nil, fmt.Errorf("folder of records: %w", err)
			}
			continue
		}
		id, ok := strings.CutSuffix(e.Name(), ending)
		if !ok {
			continue
		}
		record, err := read[T](path)
		if err != nil || !recordIDForm.MatchString(id) {
			bad = append(bad, e.Name())
			if err := os.Rename(path, path+broken); err != nil {
				return nil, nil, nil, fmt.Errorf("set aside a record: %w", err)
			}
			continue
		}
		all[id] = record
	}
	return &RecordFolder[T]{dir: dir}, all, bad, nil
}

func read[T any](path string) (record T, err error) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxFile {
		return record, errors.New("no ordinary file, or a large one")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return record, err
	}
	return record, jsonx.Unmarshal(data, &record)
}

// Put replaces a record atomically and syncs it to disk. A record has at most 256 KiB.
func (f *RecordFolder[T]) Put(id string, record T) error {
	data, err := jsonx.Marshal(record)
	switch {
	case err != nil:
		return fmt.Errorf("record %s: %w", id, err)
	case !recordIDForm.MatchString(id):
		return fmt.Errorf("%q is not an id of a record", id)
	case len(data) > maxFile:
		return fmt.Errorf("record %s has %d bytes; the limit is %d", id, len(data), maxFile)
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
		err = os.Rename(tmp.Name(), filepath.Join(f.dir, id+ending))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("record %s: %w", id, err), os.Remove(tmp.Name()))
	}
	return f.sync()
}

// Delete removes a record; a missing one is not an error.
func (f *RecordFolder[T]) Delete(id string) error {
	if !recordIDForm.MatchString(id) {
		return fmt.Errorf("%q is not an id of a record", id)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := os.Remove(filepath.Join(f.dir, id+ending)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return f.sync()
}

// sync syncs the folder's entries to disk.
func (f *RecordFolder[T]) sync() error {
	d, err := os.Open(f.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
