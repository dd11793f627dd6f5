package reference

import (
	"context"
	"crypto/rand"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/junctor-run/junctor/capability"
)

type writeParams struct {
	Path              string `json:"path"`
	Text              string `json:"text"`
	CreateDirectories *bool  `json:"createDirectories"`
	Overwrite         *bool  `json:"overwrite"`
}

// writeText writes beside the target and moves the file into place, so that a
// reader sees the old text or the new one. Missing parents are created unless
// createDirectories is false.
func (f *files) writeText(_ context.Context, p writeParams) (any, error) {
	name, err := f.local(p.Path)
	if err != nil {
		return nil, err
	}
	if name == "." {
		return nil, invalid("a file name is needed")
	}
	exclusive := p.Overwrite != nil && !*p.Overwrite
	mode := fs.FileMode(0o644)
	if info, err := f.root.Lstat(name); err == nil {
		switch {
		case exclusive:
			return nil, refused("write", slashed(name), fs.ErrExist)
		case info.Mode()&fs.ModeSymlink != 0:
			return nil, capability.Errorf(capability.CodeDenied, "", "%s is a symbolic link and is not written through", slashed(name))
		case !info.Mode().IsRegular():
			return nil, invalid("%s is not a regular file", slashed(name))
		}
		mode = info.Mode().Perm()
	}
	dir := filepath.Dir(name)
	if dir != "." && (p.CreateDirectories == nil || *p.CreateDirectories) {
		if err := f.root.MkdirAll(dir, 0o755); err != nil {
			return nil, refused("create", slashed(dir), err)
		}
	}
	temp := filepath.Join(dir, ".write-"+rand.Text())
	if err := f.fill(temp, p.Text, mode); err != nil {
		_ = f.root.Remove(temp) // it may not exist; the first error counts
		return nil, refused("write", slashed(name), err)
	}
	if exclusive {
		// A link fails where a file has appeared meanwhile; a rename would not.
		err = f.root.Link(temp, name)
		_ = f.root.Remove(temp)
	} else if err = f.root.Rename(temp, name); err != nil {
		_ = f.root.Remove(temp)
	}
	if err != nil {
		return nil, refused("write", slashed(name), err)
	}
	return object{"path": slashed(name), "bytesWritten": len(p.Text)}, nil
}

func (f *files) fill(name, text string, mode fs.FileMode) error {
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if _, err = file.WriteString(text); err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}
