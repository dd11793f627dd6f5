package reference

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
)

// files serves the fs family beneath one directory. os.Root resolves every name
// inside it, so that neither ".." nor a symbolic link leads out.
type files struct {
	root *os.Root
	host string // the directory as the host names it, for absolute paths
}

func openFiles(dir string) (*files, error) {
	host, err := filepath.Abs(dir)
	if err != nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, "reference", "the root directory has no absolute path", err)
	}
	root, err := os.OpenRoot(host)
	if err != nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, "reference", "the root directory cannot be opened", err)
	}
	return &files{root: root, host: host}, nil
}

func (f *files) register(e *Endpoint) {
	on(e, "fs.list", "", "", f.list)
	on(e, "fs.readText", "", "", f.readText)
	on(e, "fs.writeText", "", "", f.writeText)
}

// local maps a path of the wire to one beneath the root. Blank is the root,
// absolute paths count when they lie under the root's own.
func (f *files) local(p string) (string, error) {
	if strings.ContainsRune(p, 0) {
		return "", invalid("the path holds a NUL character")
	}
	if strings.TrimSpace(p) == "" || p == "/" {
		return ".", nil
	}
	if filepath.IsAbs(p) {
		rel, err := filepath.Rel(f.host, p)
		if err != nil || !filepath.IsLocal(rel) {
			return "", outside(p)
		}
		return rel, nil
	}
	clean := filepath.Clean(filepath.FromSlash(p))
	if !filepath.IsLocal(clean) {
		return "", outside(p)
	}
	return clean, nil
}

func outside(p string) error {
	return capability.Errorf(capability.CodeUnavailable, "", "%q is outside the directory this endpoint serves", p).
		With("outside_root", "use a path relative to the endpoint's root")
}

// refused states what the operating system objected to, without host paths.
func refused(verb, name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return capability.Errorf(capability.CodeNotFound, "", "%s does not exist", name)
	case errors.Is(err, fs.ErrExist):
		return capability.Errorf(capability.CodeConflict, "", "%s exists already", name)
	case errors.Is(err, fs.ErrPermission):
		return capability.Wrap(capability.CodeDenied, "", "the host does not permit to "+verb+" "+name, err)
	}
	return capability.Wrap(capability.CodeFailed, "", "the host could not "+verb+" "+name, err)
}

type listParams struct {
	Path          string   `json:"path"`
	Limit         *float64 `json:"limit"`
	IncludeHidden bool     `json:"includeHidden"`
	Ignore        []string `json:"ignore"`
}

func (f *files) list(ctx context.Context, p listParams) (any, error) {
	name, err := f.local(p.Path)
	if err != nil {
		return nil, err
	}
	ignore, err := globs(p.Ignore)
	if err != nil {
		return nil, err
	}
	limit := maxEntries
	if p.Limit != nil {
		limit = int(min(max(*p.Limit, 1), maxEntries))
	}
	entries, err := fs.ReadDir(f.root.FS(), filepath.ToSlash(name)) // sorted by name
	if err != nil {
		return nil, refused("list", slashed(name), err)
	}
	list := []object{}
	total := 0
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return nil, capability.AsError(err)
		}
		at := path.Join(slashed(name), entry.Name())
		if !p.IncludeHidden && strings.HasPrefix(entry.Name(), ".") || ignored(ignore, entry.Name(), at) || !utf8.ValidString(at) {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone since the directory was read
		}
		if err != nil {
			return nil, refused("list", at, err)
		}
		if total++; total <= limit {
			list = append(list, object{
				"path": at, "name": entry.Name(), "kind": kindOf(info.Mode()), "size": info.Size(), "modifiedAt": stamp(info.ModTime()),
			})
		}
	}
	return object{
		"root": object{"id": "root", "path": "."}, "path": slashed(name), "entries": list,
		"truncated": total > limit, "totalAfterIgnore": total,
	}, nil
}

func slashed(name string) string { return filepath.ToSlash(name) }

func kindOf(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "file"
	case m.IsDir():
		return "directory"
	case m&fs.ModeSymlink != 0:
		return "symlink"
	}
	return "other"
}

// globs compiles ignore patterns: * within a segment, ** across, ? one
// character other than '/'.
func globs(patterns []string) ([]*regexp.Regexp, error) {
	if len(patterns) > 100 {
		return nil, invalid("at most 100 ignore patterns are allowed")
	}
	var out []*regexp.Regexp
	for _, p := range patterns {
		expr := regexp.QuoteMeta(p)
		expr = strings.NewReplacer(`\*\*`, ".*", `\*`, "[^/]*", `\?`, "[^/]").Replace(expr)
		re, err := regexp.Compile("^(?s:" + expr + ")$")
		if err != nil {
			return nil, invalid("the ignore pattern %q is not usable", p)
		}
		out = append(out, re)
	}
	return out, nil
}

func ignored(globs []*regexp.Regexp, name, at string) bool {
	for _, g := range globs {
		if g.MatchString(name) || g.MatchString(at) {
			return true
		}
	}
	return false
}

type readParams struct {
	Path     string   `json:"path"`
	MaxBytes *float64 `json:"maxBytes"`
}

// readText refuses a file over the limit unless the caller named a limit of its
// own, in which case the text is cut between two characters.
func (f *files) readText(_ context.Context, p readParams) (any, error) {
	name, err := f.local(p.Path)
	if err != nil {
		return nil, err
	}
	// Looked at before it is opened: opening a named pipe would wait for a writer.
	info, err := f.root.Stat(name)
	if err != nil {
		return nil, refused("read", slashed(name), err)
	}
	if !info.Mode().IsRegular() {
		return nil, invalid("%s is not a regular file", slashed(name))
	}
	file, err := f.root.Open(name)
	if err != nil {
		return nil, refused("read", slashed(name), err)
	}
	defer file.Close()
	limit := int64(maxRead)
	if p.MaxBytes != nil {
		limit = int64(min(max(*p.MaxBytes, 0), maxRead))
	} else if info.Size() > limit {
		return nil, capability.Errorf(capability.CodeTooLarge, "", "%s has %d bytes, the limit is %d", slashed(name), info.Size(), limit).
			With("", "name maxBytes to read the beginning")
	}
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, refused("read", slashed(name), err)
	}
	truncated := int64(len(data)) > limit
	if truncated {
		data = data[:limit]
		for i := 0; i < utf8.UTFMax-1 && len(data) > 0; i++ {
			if r, n := utf8.DecodeLastRune(data); r != utf8.RuneError || n != 1 {
				break
			}
			data = data[:len(data)-1]
		}
	}
	if !utf8.Valid(data) {
		return nil, capability.Errorf(capability.CodeFailed, "", "%s is not UTF-8 text", slashed(name)).With("not_text", "")
	}
	return object{"path": slashed(name), "text": string(data), "size": max(info.Size(), int64(len(data))), "truncated": truncated}, nil
}
