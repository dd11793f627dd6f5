package runner

// This file finds the artifacts of a run: files that were created or changed below
// artifacts/ of its working folder. The folder is untrusted: links are not followed,
// only regular files with one hard link are read, and sizes and numbers are limited.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// ArtifactDir is the folder for what a run leaves, in its working folder.
const ArtifactDir = "artifacts"

// ArtifactsBefore is the state of the artifacts folder before a run.
type ArtifactsBefore struct {
	work  string
	files map[string]stamp
}

type stamp struct {
	size  int64
	at    time.Time
	inode uint64
}

// LookAtArtifacts records the files below artifacts/ of a working folder. A folder that
// cannot be read counts as empty.
func LookAtArtifacts(work string) *ArtifactsBefore {
	b := &ArtifactsBefore{work: work, files: make(map[string]stamp)}
	_ = b.walk(func(_ *os.Root, name string, info fs.FileInfo) error {
		b.files[name] = stampOf(info)
		return nil
	})
	return b
}

// ArtifactFile is one open artifact.
type ArtifactFile struct {
	Name string // relative to artifacts/, '/' between components
	Size int64
	MIME string
	*os.File
}

// Each calls take for every file of the run that was created or changed since LookAtArtifacts, in the
// order of names, and closes the file afterwards. It returns the names that were left out, with the reason:
// too large, several hard links, too many. own reports whether a file is the run's. An error of take ends it.
func (b *ArtifactsBefore) Each(own func(name string) bool, take func(ArtifactFile) error) (omitted []string, err error) {
	n := 0
	err = b.walk(func(root *os.Root, name string, info fs.FileInfo) error {
		if b.files[name] == stampOf(info) || !own(name) {
			return nil
		}
		why := ""
		switch {
		case info.Size() > MaxArtifactSize:
			why = fmt.Sprintf("it has more than %d MiB", MaxArtifactSize>>20)
		case links(info) != 1:
			why = "it has several names"
		case n >= MaxArtifacts:
			why = fmt.Sprintf("a run has at most %d artifacts", MaxArtifacts)
		}
		if why != "" {
			if len(omitted) < MaxArtifacts {
				omitted = append(omitted, name+": "+why)
			}
			return nil
		}
		f, err := openArtifact(root, name, info)
		if err != nil {
			return nil //nolint:nilerr // it was replaced and is no longer an artifact
		}
		defer f.Close()
		kind, err := kindOf(name, f)
		if err != nil {
			return nil //nolint:nilerr // the same
		}
		n++
		return take(ArtifactFile{Name: name, Size: info.Size(), MIME: kind, File: f})
	})
	return omitted, err
}

// walk calls visit for the regular files below artifacts/, at most maxEntries entries
// and maxDepth levels. Unreadable parts are skipped.
func (b *ArtifactsBefore) walk(visit func(root *os.Root, name string, info fs.FileInfo) error) error {
	work, err := os.OpenRoot(b.work)
	if err != nil {
		return nil //nolint:nilerr // the working folder does not exist
	}
	defer work.Close()
	if info, err := work.Lstat(ArtifactDir); err != nil || !info.IsDir() {
		return nil //nolint:nilerr // no artifacts exist
	}
	root, err := work.OpenRoot(ArtifactDir)
	if err != nil {
		return nil //nolint:nilerr // it has just been replaced
	}
	defer root.Close()
	entries := 0
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if entries++; entries > maxEntries {
			return fs.SkipAll
		}
		if err != nil {
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			if strings.Count(name, "/") >= maxDepth {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || !nameable(name) {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // it was removed meanwhile
		}
		return visit(root, name, info)
	})
}

// nameable reports whether a name can be displayed and requested.
func nameable(name string) bool {
	return len(name) <= maxName && utf8.ValidString(name) && !strings.ContainsFunc(name,
		func(r rune) bool { return !unicode.IsPrint(r) || r == '\\' })
}

// openArtifact opens a file, and fails if it is not the file that seen describes.
func openArtifact(root *os.Root, name string, seen fs.FileInfo) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil || !os.SameFile(seen, info) || !info.Mode().IsRegular() || links(info) != 1 {
		return nil, errors.Join(err, f.Close(), errors.New("it has changed"))
	}
	return f, nil
}

// kindOf returns the media type by the name or else by the content.
func kindOf(name string, f *os.File) (string, error) {
	kind := mime.TypeByExtension(path.Ext(name))
	if kind == "" {
		head := make([]byte, 512)
		n, err := f.ReadAt(head, 0)
		if n == 0 && err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		kind = http.DetectContentType(head[:n])
	}
	return kind, nil
}
