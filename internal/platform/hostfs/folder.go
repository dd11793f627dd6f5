package hostfs

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// The errors of a folder that exceeds a bound.
var (
	ErrTooManyFiles = errors.New("the folder has too many files")
	ErrTooLarge     = errors.New("the files of the folder are too large")
)

// Folder is a folder of small files that people write, such as policies.
type Folder struct {
	Dir      string
	Pattern  string // of filepath.Match
	MaxFiles int
	MaxBytes int64 // of all files together
}

// File is one file of a Folder.
type File struct {
	Name string // without the folder
	Text []byte
}

// Read returns the files in the order of their names. It returns nil if the folder does not exist, and
// an empty list if it has none.
func (f Folder) Read() ([]File, error) {
	entries, err := os.ReadDir(f.Dir) // sorted
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	files, left := []File{}, f.MaxBytes
	for _, e := range entries {
		if ok, err := filepath.Match(f.Pattern, e.Name()); err != nil {
			return nil, err
		} else if !ok {
			continue
		}
		if len(files) == f.MaxFiles {
			return nil, ErrTooManyFiles
		}
		text, err := ReadRegular(filepath.Join(f.Dir, e.Name()), left)
		if err != nil {
			return nil, err
		}
		left -= int64(len(text))
		files = append(files, File{Name: e.Name(), Text: text})
	}
	return files, nil
}

// ReadRegular reads a file of at most max bytes; the error of a larger one is ErrTooLarge. Other files
// than regular ones, such as a named pipe, are an error and not waited for.
func ReadRegular(name string, max int64) ([]byte, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|NonBlocking, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s is not a regular file", name))
	}
	text, err := io.ReadAll(io.LimitReader(file, max+1))
	if err == nil && int64(len(text)) > max {
		err = ErrTooLarge
	}
	return text, err
}

// Sum returns a digest of names and contents.
func Sum(files []File) [sha256.Size]byte {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%q %d\n", f.Name, len(f.Text))
		h.Write(f.Text)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
