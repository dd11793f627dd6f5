// Package files implements fs.list, fs.readText and fs.writeText: access to text files
// below configured roots. Package roots resolves paths; this package decides which
// operations are permitted on a file, and limits their size.
//
// Params and results are those of the capability-router protocol. This package is stricter
// than the protocol's original implementation: it refuses to read a file above the limit
// unless the caller sets maxBytes, writes atomically, and writes neither through a symbolic
// link nor into a git directory.
package files

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/platform/roots"
)

// Config configures Functions.
type Config struct {
	// Roots are the accessible directories; the caller closes the set. If it is nil or
	// empty, the functions are unavailable.
	Roots *roots.Set
}

// Functions returns the functions of the family, to be registered on a host.
func Functions(cfg Config) []host.Function {
	f := &files{roots: cfg.Roots}
	unavailable := ""
	if cfg.Roots.Empty() {
		unavailable = roots.NoneReason
	}
	return []host.Function{
		{
			ID: "fs.list", Action: "fs.list", Effect: capability.EffectRead, Permissions: []string{"filesystem.read"},
			Timeout: handleTimeout, Unavailable: unavailable, Handle: f.list,
		},
		{
			ID: "fs.readText", Action: "fs.readText", Effect: capability.EffectRead, Permissions: []string{"filesystem.read"},
			Timeout: handleTimeout, Unavailable: unavailable, Handle: f.readText,
		},
		{
			ID: "fs.writeText", Action: "fs.writeText", Effect: capability.EffectWrite, Permissions: []string{"filesystem.write"},
			Timeout: handleTimeout, Unavailable: unavailable, Handle: f.writeText,
		},
	}
}

type files struct{ roots *roots.Set }

// fileStat is one entry of a directory in the protocol's form.
type fileStat struct {
	Path       string  `json:"path"`
	Name       string  `json:"name"`
	Kind       string  `json:"kind"`
	Size       float64 `json:"size"`
	ModifiedAt string  `json:"modifiedAt,omitempty"`
}

func stat(path string, info fs.FileInfo) fileStat {
	kind := "other"
	switch mode := info.Mode(); {
	case mode.IsRegular():
		kind = "file"
	case mode.IsDir():
		kind = "directory"
	case mode&fs.ModeSymlink != 0:
		kind = "symlink"
	}
	return fileStat{
		Path: path, Name: info.Name(), Kind: kind, Size: float64(info.Size()),
		ModifiedAt: info.ModTime().UTC().Format("2006-01-02T15:04:05.000Z07:00"),
	}
}

// decode parses the params and ignores unknown members. Error: invalid_input.
func decode(op string, input json.RawMessage, params any) error {
	if err := jsonx.Unmarshal(input, params); err != nil {
		return capability.Errorf(capability.CodeInvalidInput, op, "the input does not fit: %v", err)
	}
	return nil
}

func encode(value any) (capability.Result, error) {
	data, err := jsonx.Marshal(value)
	if err != nil {
		return capability.Result{}, capability.Wrap(capability.CodeFailed, "fs", "the result cannot be written as JSON", err)
	}
	return capability.Result{Value: data}, nil
}

// openRegular opens a file for reading and refuses everything but a regular file. The open
// does not block, not even on a named pipe.
func openRegular(op string, p roots.Place) (*os.File, fs.FileInfo, error) {
	file, err := p.FS.OpenFile(native(p), os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, nil, roots.Explain(op, p.Rel, err)
	}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() {
		return file, info, nil
	}
	_ = file.Close()
	switch {
	case err != nil:
		return nil, nil, roots.Explain(op, p.Rel, err)
	case info.IsDir():
		return nil, nil, capability.Errorf(capability.CodeInvalidInput, op, "%s is a directory", p.Rel).With("is_a_directory",
			"list it with fs.list")
	}
	return nil, nil, capability.Errorf(capability.CodeInvalidInput, op, "%s is not a regular file", p.Rel).With("not_a_file", "")
}

// done returns ctx's error with a code, nil while ctx is active. It is called before work
// that cannot be undone.
func done(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return capability.AsError(err)
	}
	return nil
}
