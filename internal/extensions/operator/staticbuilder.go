package operator

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"github.com/junctor-run/junctor/internal/extensions/declaration"
)

// FileName is the manifest inside a package's own directory.
const FileName = "extension.json"

// Dir is a directory of manifests: every *.json file in it, and the [FileName] of every
// directory in it. Its Origin replaces the origin that a manifest declares.
type Dir struct {
	Path   string
	Origin string // config, workspace, global or bundled
}

// StaticConfig configures a [StaticBuilder].
type StaticConfig struct {
	Dirs []Dir
	// Open opens a directory for reading. If nil, [os.OpenRoot] is used, which does
	// not follow links out of it. A missing directory counts as empty.
	Open func(path string) (fs.FS, func() error, error)
	// Channels are those of the server itself.
	Channels []declaration.Channel
	// Now is the clock; nil is [time.Now].
	Now func() time.Time
}

// StaticBuilder reads manifests, compiles their catalogs and caches the parsed files. It
// is safe for concurrent use; concurrent builds may read a file twice.
type StaticBuilder struct {
	cfg StaticConfig

	known atomic.Pointer[map[string]known] // by path; replaced, never modified
}

// known is a cached manifest, valid for one path, size, modification time and content.
type known struct {
	size     int64
	modified time.Time
	sum      [sha256.Size]byte
	racy     bool // it may change again without a new modification time
	ext      declaration.Extension
	dropped  []string
	failed   error
}

// NewStaticBuilder returns a builder with an empty cache.
func NewStaticBuilder(cfg StaticConfig) *StaticBuilder {
	if cfg.Open == nil {
		cfg.Open = func(path string) (fs.FS, func() error, error) {
			root, err := os.OpenRoot(path)
			if err != nil {
				return nil, nil, err
			}
			return root.FS(), root.Close, nil
		}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	b := &StaticBuilder{cfg: cfg}
	b.known.Store(&map[string]known{})
	return b
}

// Build compiles the catalogs of the manifests that are in the directories now. A
// malformed or unreadable manifest becomes a diagnostic. Files with unchanged size and
// time are not read again. The error is ctx's, or that of encoding a catalog.
func (b *StaticBuilder) Build(ctx context.Context) (*StaticCatalogs, error) {
	was := *b.known.Load()
	r := run{cfg: b.cfg, was: was, fresh: make(map[string]known, len(was)), now: b.cfg.Now()}
	for _, dir := range b.cfg.Dirs {
		if err := r.dir(ctx, dir); err != nil {
			return nil, err
		}
	}
	b.known.Store(&r.fresh)
	c, err := CompileStatic(r.found, b.cfg.Channels...)
	if err != nil {
		return nil, err
	}
	c.Diagnostics = append(c.Diagnostics, r.dropped...)
	slices.Sort(c.Diagnostics)
	return c, nil
}

// run is one Build.
type run struct {
	cfg     StaticConfig
	was     map[string]known
	fresh   map[string]known
	now     time.Time
	found   []declaration.Extension
	dropped []string
	looked  int
	files   int
}

func (r *run) drop(format string, args ...any) {
	if len(r.dropped) < maxDropped {
		r.dropped = append(r.dropped, fmt.Sprintf(format, args...))
	}
}

func (r *run) dir(ctx context.Context, dir Dir) error {
	files, closeDir, err := r.cfg.Open(dir.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		r.drop("directory %s cannot be opened: %v", dir.Path, err)
		return nil
	}
	defer closeDir() //nolint:errcheck // nothing was written
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		r.drop("directory %s cannot be read: %v", dir.Path, err)
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if r.looked++; r.looked > maxEntries || r.files >= maxManifests {
			r.drop("there are more manifests than %d: what follows %s in %s is not listed", maxManifests, e.Name(), dir.Path)
			return nil
		}
		name, info, err := look(files, e)
		switch {
		case err != nil:
			r.drop("%s cannot be read: %v", path.Join(dir.Path, name), err)
		case info == nil:
		case !info.Mode().IsRegular():
			r.drop("%s is not a file", path.Join(dir.Path, name))
		default:
			r.files++
			r.file(dir, files, name, info)
		}
	}
	return nil
}

// look returns the manifest file of a directory entry, or a nil FileInfo if it has none.
// Links that lead out of the directory are not followed.
func look(files fs.FS, e fs.DirEntry) (string, fs.FileInfo, error) {
	name := e.Name()
	if name == "" || name[0] == '.' {
		return name, nil, nil
	}
	info, err := e.Info()
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		info, err = fs.Stat(files, name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return name, nil, nil // removed since it was listed, or a dangling link
	}
	if err != nil {
		return name, nil, err
	}
	if info.IsDir() {
		name = path.Join(name, FileName)
		info, err = fs.Stat(files, name)
		if errors.Is(err, fs.ErrNotExist) {
			return name, nil, nil
		}
		return name, info, err
	}
	if path.Ext(name) != ".json" {
		return name, nil, nil
	}
	return name, info, nil
}

func (r *run) file(dir Dir, files fs.FS, name string, info fs.FileInfo) {
	at := path.Join(dir.Path, name)
	k, had := r.was[at]
	if !had || k.racy || k.size != info.Size() || !k.modified.Equal(info.ModTime()) {
		k = r.read(files, name, info, k)
	}
	r.fresh[at] = k
	if k.failed != nil {
		r.drop("%s: %v", at, k.failed)
		return
	}
	for _, d := range k.dropped {
		r.drop("%s: %s", at, d)
	}
	x := k.ext
	if x.Origin != "" && x.Origin != dir.Origin {
		r.drop("%s: its origin is %s, where it lies, not %s", at, dir.Origin, x.Origin)
	}
	x.Origin = dir.Origin
	r.found = append(r.found, x)
}

// read reads and parses a manifest; if the content is that of was, it reuses the result.
func (r *run) read(files fs.FS, name string, info fs.FileInfo, was known) known {
	k := known{size: info.Size(), modified: info.ModTime(), racy: r.now.Sub(info.ModTime()) < mtimeGrace}
	if k.size > declaration.MaxBytes {
		k.failed = fmt.Errorf("it has %d bytes; the limit is %d", k.size, declaration.MaxBytes)
		return k
	}
	f, err := files.Open(name)
	if err != nil {
		k.failed, k.racy = err, true // it may be readable next time
		return k
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, declaration.MaxBytes+1))
	if err != nil {
		k.failed, k.racy = err, true
		return k
	}
	k.sum = sha256.Sum256(data)
	if k.sum == was.sum && was.failed == nil {
		k.ext, k.dropped = was.ext, was.dropped
		return k
	}
	k.ext, k.dropped, k.failed = declaration.Parse(data)
	return k
}
