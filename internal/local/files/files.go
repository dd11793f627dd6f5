// Package files carries fs.list, fs.readText and fs.writeText: text files beneath
// configured roots. What a path means is decided by package roots; here is what
// may be done with the file there, and how much of it.
//
// Params and results are those of the capability-router wire. Where that wire's
// original was loose we are not: reads above the cap are refused unless the
// caller said where to cut, writes are atomic, and nothing is written through a
// symbolic link or into a git directory.
package files

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/platform/roots"
)

// Limits of the three functions.
const (
	maxEntries    = 1000    // of one answer of fs.list, and its default
	maxNames      = 100_000 // a directory may hold
	maxText       = 5 << 20 // bytes read without maxBytes, or written
	maxCut        = 8 << 20 // the most that maxBytes may ask for
	maxPatterns   = 100     // of ignore
	maxPattern    = 512     // bytes of one
	handleTimeout = time.Minute
)

// Config states where the functions may reach.
type Config struct {
	// Roots is shared and stays the caller's to close. Empty or nil makes the
	// functions unavailable.
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

// FileStat is one entry on the wire.
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

// decode reads the params; unknown members are the wire's business.
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

// openRegular opens a file that is known to be one: a named pipe would block
// the open, a device would act on it.
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

// done turns the end of ctx into an error before work that cannot be undone.
func done(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return capability.AsError(err)
	}
	return nil
}
