package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/platform/roots"
)

const (
	opRead  = "fs.readText"
	opWrite = "fs.writeText"
)

type readParams struct {
	Path     string   `json:"path"`
	RootID   string   `json:"rootId"`
	MaxBytes *float64 `json:"maxBytes"`
}

type readResult struct {
	Path      string  `json:"path"`
	Text      string  `json:"text"`
	Size      float64 `json:"size"`
	Truncated bool    `json:"truncated"`
}

// readText reads a whole file or, if maxBytes is set, at most that many bytes, cut at a
// character boundary.
func (f *files) readText(ctx context.Context, c capability.Call) (capability.Result, error) {
	var p readParams
	if err := decode(opRead, c.Input, &p); err != nil {
		return capability.Result{}, err
	}
	limit, mayCut := int64(maxText), p.MaxBytes != nil
	if mayCut {
		if !(*p.MaxBytes >= 1) {
			return capability.Result{}, capability.Errorf(capability.CodeInvalidInput, opRead, "maxBytes must be at least 1")
		}
		limit = int64(min(maxCut, *p.MaxBytes))
	}
	place, err := f.named(opRead, p.RootID, p.Path)
	if err != nil {
		return capability.Result{}, err
	}
	file, info, err := openRegular(opRead, place)
	if err != nil {
		return capability.Result{}, err
	}
	defer file.Close()
	tooLarge := func() error {
		return capability.Errorf(capability.CodeTooLarge, opRead, "%s is larger than %d bytes", place.Rel, maxText).
			With("file_too_large", "give maxBytes to read its beginning")
	}
	if info.Size() > limit && !mayCut {
		return capability.Result{}, tooLarge()
	}
	if err := done(ctx); err != nil {
		return capability.Result{}, err
	}
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return capability.Result{}, roots.Explain(opRead, place.Rel, err)
	}
	truncated := int64(len(data)) > limit
	if truncated {
		if !mayCut { // the file grew while it was read
			return capability.Result{}, tooLarge()
		}
		data = cutAtRune(data[:limit])
	}
	if !utf8.Valid(data) {
		return capability.Result{}, capability.Errorf(capability.CodeInvalidInput, opRead, "%s is not UTF-8 text", place.Rel).
			With("not_text", "only text files can be read")
	}
	return encode(readResult{Path: place.Rel, Text: string(data), Size: float64(max(info.Size(), int64(len(data)))), Truncated: truncated})
}

// cutAtRune removes an incomplete character from the end. It keeps bytes that cannot begin a
// character, so that the caller refuses them as not being text.
func cutAtRune(data []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(data); i++ {
		if tail := data[len(data)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return data[:len(data)-i]
			}
			break
		}
	}
	return data
}

type writeParams struct {
	Path              string `json:"path"`
	RootID            string `json:"rootId"`
	Text              string `json:"text"`
	CreateDirectories bool   `json:"createDirectories"`
	Overwrite         *bool  `json:"overwrite"`
}

type writeResult struct {
	Path         string `json:"path"`
	BytesWritten int    `json:"bytesWritten"`
}

// writeText replaces a file atomically: readers see the old text or the new one.
func (f *files) writeText(ctx context.Context, c capability.Call) (capability.Result, error) {
	var p writeParams
	if err := decode(opWrite, c.Input, &p); err != nil {
		return capability.Result{}, err
	}
	if len(p.Text) > maxText {
		return capability.Result{}, capability.Errorf(capability.CodeTooLarge, opWrite, "the text is larger than %d bytes",
			maxText).With("text_too_large", "")
	}
	place, err := f.named(opWrite, p.RootID, p.Path)
	if err != nil {
		return capability.Result{}, err
	}
	if place.ReadOnly {
		return capability.Result{}, capability.Errorf(capability.CodeDenied, opWrite, "the root %s is read-only", place.ID).With("read_only", "")
	}
	if err := checkWritePath(place); err != nil {
		return capability.Result{}, err
	}
	if err := done(ctx); err != nil {
		return capability.Result{}, err
	}
	if p.CreateDirectories {
		if err := place.FS.MkdirAll(filepath.FromSlash(path.Dir(place.Rel)), 0o700); err != nil {
			return capability.Result{}, roots.Explain(opWrite, path.Dir(place.Rel), err)
		}
	}
	if err := replace(place, p.Text, p.Overwrite == nil || *p.Overwrite); err != nil {
		return capability.Result{}, err
	}
	return encode(writeResult{Path: place.Rel, BytesWritten: len(p.Text)})
}

// named resolves the path of a file and refuses a blank path, which would mean the root.
func (f *files) named(op, rootID, p string) (roots.Place, error) {
	if strings.TrimSpace(p) == "" {
		return roots.Place{}, capability.Errorf(capability.CodeInvalidInput, op, "a path is required")
	}
	return f.roots.Resolve(rootID, p)
}

// checkWritePath refuses a symbolic link in any component of the path, although os.Root
// would keep it inside the root, and any git directory, because the next git that a user
// runs could execute files written there.
func checkWritePath(place roots.Place) error {
	steps := strings.Split(place.Rel, "/")
	for i, name := range steps {
		if strings.EqualFold(strings.TrimRight(name, ". "), ".git") {
			return capability.Errorf(capability.CodeDenied, opWrite, "files of a git directory cannot be written").
				With("security_violation", "change the repository with git.command.run")
		}
		so := strings.Join(steps[:i+1], "/")
		info, err := place.FS.Lstat(filepath.FromSlash(so))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the following names are still checked
		}
		if err != nil {
			return roots.Explain(opWrite, so, err)
		}
		last := i == len(steps)-1
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			return capability.Errorf(capability.CodeDenied, opWrite, "%s is a symbolic link", so).
				With("security_violation", "write to the file itself")
		case last && info.IsDir():
			return capability.Errorf(capability.CodeInvalidInput, opWrite, "%s is a directory", so).With("is_a_directory", "")
		case last && !info.Mode().IsRegular():
			return capability.Errorf(capability.CodeInvalidInput, opWrite, "%s is not a regular file", so).With("not_a_file", "")
		case last && info.Mode().Perm()&0o200 == 0: // a rename would ignore the missing write permission
			return capability.Errorf(capability.CodeFailed, opWrite, "%s is write-protected", so).With("permission_denied", "")
		}
	}
	return nil
}

// replace writes a temporary file in the target's directory and renames it to the target.
// Without overwrite it links it instead, which fails if the target exists by then.
func replace(place roots.Place, text string, overwrite bool) (err error) {
	target := native(place)
	mode := fs.FileMode(0o600)
	if info, err := place.FS.Lstat(target); err == nil {
		if !overwrite {
			return exists(place)
		}
		mode = info.Mode().Perm()
	}
	temp := filepath.Join(filepath.Dir(target), ids.Hex(".jct-", 8)+".tmp")
	file, err := place.FS.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return capability.Wrap(capability.CodeNotFound, opWrite, "the directory of "+place.Rel+" does not exist", err).
				With("not_found", "give createDirectories: true to create it")
		}
		return roots.Explain(opWrite, place.Rel, err)
	}
	defer func() {
		if err != nil || !overwrite {
			_ = place.FS.Remove(temp)
		}
	}()
	if err := fill(file, text, mode); err != nil {
		return roots.Explain(opWrite, place.Rel, err)
	}
	if overwrite {
		err = place.FS.Rename(temp, target)
	} else {
		err = place.FS.Link(temp, target)
	}
	if errors.Is(err, fs.ErrExist) && !overwrite {
		return exists(place)
	}
	if err != nil {
		return roots.Explain(opWrite, place.Rel, err)
	}
	syncDirectory(place)
	return nil
}

func exists(place roots.Place) error {
	return capability.Errorf(capability.CodeConflict, opWrite, "%s exists already", place.Rel).
		With("exists", "leave overwrite out to replace it")
}

// fill writes text to a new file, sets its mode, and syncs and closes it in every case.
func fill(file *os.File, text string, mode fs.FileMode) error {
	_, err := io.WriteString(file, text)
	if err == nil && mode != 0o600 {
		err = file.Chmod(mode)
	}
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// syncDirectory syncs the directory so that the new name survives a crash. It ignores
// errors, because not every file system supports this.
func syncDirectory(place roots.Place) {
	if dir, err := place.FS.Open(filepath.Dir(native(place))); err == nil {
		_ = dir.Sync()
		_ = dir.Close()
	}
}
