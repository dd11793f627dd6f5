package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/jsonx"
	"github.com/junctor-run/junctor/internal/store"
)

// attempts is how often a home is copied that changes meanwhile.
const attempts = 5

// Options of [Make]; Home, File and Version are required.
type Options struct {
	Home    string
	File    string // where the backup goes; not in the home
	Force   bool   // replace a file of that name
	Version string // of this program
	Shared  string // see [Manifest]
	Now     time.Time
}

// Make writes a backup of a home, whether a server runs on it or not, reads it back, and
// gives it its name last: on failure, and after a kill, there is no file of that name
// that was not there before. It fills a folder .junctor-backup.part beside the file,
// which a kill can leave and the next backup empties.
//
// Errors: not_found, [ReasonNoHome]; conflict, [ReasonExists], [ReasonBusy] or
// [ReasonChanging]; too_large where a backup could not be restored; failed.
func Make(ctx context.Context, o Options) (Manifest, error) {
	if _, err := os.Stat(filepath.Join(o.Home, database)); err != nil {
		return Manifest{}, capability.Wrap(capability.CodeNotFound, "backup", "there is no home of a server in "+o.Home, err).
			With(ReasonNoHome, "name it with --home, or JUNCTOR_HOME")
	}
	file, err := filepath.Abs(o.File)
	if err != nil {
		return Manifest{}, err
	}
	if within(o.Home, filepath.Dir(file)) {
		return Manifest{}, capability.Errorf(capability.CodeInvalidInput, "backup", "the backup would be in the home that it is of").
			With("", "name a file elsewhere, best on another disk")
	}
	if info, err := os.Lstat(file); err == nil && (!o.Force || !info.Mode().IsRegular()) {
		return Manifest{}, capability.Errorf(capability.CodeConflict, "backup", "%s is there already", o.File).
			With(ReasonExists, "name another file, or replace it with --force")
	}
	part, err := openPart(filepath.Join(filepath.Dir(file), ".junctor-backup.part"))
	if err != nil {
		return Manifest{}, err
	}
	defer part.remove()
	for n := 1; ; n++ {
		m, err := attempt(ctx, o, part.path("archive"), part.path("junctor.db"))
		switch {
		case err == nil:
			return m, publish(part.path("archive"), file)
		case ctx.Err() != nil:
			return m, capability.AsError(ctx.Err())
		case !errors.Is(err, errChanged):
			return m, failed("the backup could not be made", err)
		case n == attempts:
			return m, capability.Wrap(capability.CodeConflict, "backup", fmt.Sprintf("the home changed each of %d times while it was copied: %v", attempts, err), err).
				With(ReasonChanging, "try again when no extension is being installed or removed")
		}
	}
}

func failed(what string, err error) error {
	if e, ok := errors.AsType[*capability.Error](err); ok {
		return e
	}
	return capability.Errorf(capability.CodeFailed, "backup", "%s: %w", what, err).With("", "look at the disk and at who may read and write there")
}

// within reports whether dir is root or below it, whatever links lead there.
func within(root, dir string) bool {
	for _, p := range []*string{&root, &dir} {
		if real, err := filepath.EvalSymlinks(*p); err == nil {
			*p = real
		}
	}
	rel, err := filepath.Rel(root, dir)
	return err == nil && filepath.IsLocal(rel)
}

// publish makes the archive durable under its name.
func publish(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return failed("the backup could not be made", err)
	}
	if err := errors.Join(f.Sync(), f.Close(), os.Rename(from, to), syncDir(filepath.Dir(to))); err != nil {
		return failed("the backup could not be given its name", err)
	}
	return nil
}

// attempt writes one archive, or finds that what it copied does not fit together.
func attempt(ctx context.Context, o Options, file, db string) (m Manifest, err error) {
	m = Manifest{Format: format, Version: o.Version, Created: o.Now.UTC().Truncate(time.Second), Shared: o.Shared, LeftOut: []LeftOut{}}
	for _, old := range []string{file, db} {
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return m, err
		}
	}
	var frozen []*chain
	err = store.Copy(ctx, filepath.Join(o.Home, database), db, func() error {
		frozen = nil
		for _, dir := range chains() {
			c, err := freeze(o.Home, dir)
			if err != nil {
				return err
			}
			if c != nil {
				frozen = append(frozen, c)
			}
		}
		return nil
	})
	if err != nil {
		return m, vanished(err)
	}
	var before string
	err = store.Look(db, func(d *sql.DB) (err error) {
		if err = store.Intact(ctx, d); err != nil {
			return capability.Errorf(capability.CodeFailed, "backup", "the database of this home is damaged: %w", err).
				With("", "stop the server, keep a copy of the home, and restore the last good backup into another one")
		}
		if m.Schemas, err = store.Versions(ctx, d); err == nil {
			before, err = packages(ctx, d, m.Schemas)
		}
		return err
	})
	if err != nil {
		return m, err
	}
	for _, c := range frozen {
		if c.dir == "audit" {
			if m.Audit, err = verify(ctx, c); err != nil {
				return m, vanished(err)
			}
		}
	}
	if err := write(ctx, o.Home, file, db, frozen, &m); err != nil {
		return m, err
	}
	err = store.Look(filepath.Join(o.Home, database), func(d *sql.DB) error {
		if after, err := packages(ctx, d, m.Schemas); err != nil || after != before {
			return errors.Join(err, fmt.Errorf("%w: extensions", errChanged))
		}
		return nil
	})
	if err != nil {
		return m, err
	}
	f, err := os.Open(file)
	if err != nil {
		return m, err
	}
	defer f.Close()
	_, err = read(ctx, f, limits(), nil)
	return m, err
}

// packages says which state the files of extensions belong to.
func packages(ctx context.Context, db *sql.DB, schemas map[string]int64) (state string, err error) {
	if schemas["extensions"] == 0 {
		return "", nil
	}
	err = db.QueryRowContext(ctx, `SELECT (SELECT value FROM extension_meta WHERE key = 'generation') || ' ' ||
		(SELECT count(*) FROM extension_installs) || ' ' ||
		(SELECT coalesce(group_concat(install_id || status || current_step || progress), '') FROM extension_installs WHERE status IN ('INSTALLING', 'UNINSTALLING'))`).Scan(&state)
	return state, err
}

// vanished takes a file that went away for a home that changed.
func vanished(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", errChanged, err)
	}
	return err
}

// writer appends files to an archive and notes them in the manifest.
type writer struct {
	ctx   context.Context //nolint:containedctx // of one backup
	tar   *tar.Writer
	home  *os.File
	m     *Manifest
	bytes int64
}

// write makes the archive of what was frozen and of everything else in the home.
func write(ctx context.Context, home, file, db string, frozen []*chain, m *Manifest) (err error) {
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	gz, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return err
	}
	in, err := os.OpenRoot(home)
	if err != nil {
		return err
	}
	defer in.Close()
	folder, err := os.Open(home)
	if err != nil {
		return err
	}
	defer folder.Close()
	w := &writer{ctx: ctx, tar: tar.NewWriter(gz), m: m, home: folder}
	// What belongs to the moment goes in first; the walk passes it over.
	done := map[string]bool{database: true}
	if err := w.copyDatabase(db); err != nil {
		return err
	}
	for _, c := range frozen {
		for _, s := range c.list {
			name := c.file(s.ID)
			done[name] = true
			if err := w.copyFile(name, s.Size); err != nil {
				return vanished(err)
			}
		}
		done[c.dir+"/head"] = true
		if c.head != nil {
			if err := w.add(File{Path: c.dir + "/head", Mode: 0o600, Size: int64(len(c.head))}, bytes.NewReader(c.head)); err != nil {
				return err
			}
		}
	}
	err = fs.WalkDir(in.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed since its folder was read: then it needs not be there
		}
		if err != nil || p == "." {
			return err
		}
		return w.entry(p, d, done[p] || frozenBy(frozen, p))
	})
	if err != nil {
		return err
	}
	data, err := jsonx.Marshal(m)
	if err == nil && len(data) > maxManifest {
		err = tooLarge()
	}
	if err == nil {
		err = w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: root() + manifest, Mode: 0o600, Size: int64(len(data))})
	}
	if err == nil {
		_, err = w.tar.Write(data)
	}
	return errors.Join(err, w.tar.Close(), gz.Close())
}

// frozenBy reports whether a file is a segment: one that has come since belongs to a
// later moment.
func frozenBy(frozen []*chain, p string) bool {
	for _, c := range frozen {
		if strings.HasPrefix(p, c.dir+"/audit-") {
			return true
		}
	}
	return false
}

// entry adds what the walk has found.
func (w *writer) entry(p string, d fs.DirEntry, done bool) error {
	in, why := belongs(p)
	switch {
	case why != "":
		w.m.LeftOut = append(w.m.LeftOut, LeftOut{p, why})
	case in && !d.IsDir() && !d.Type().IsRegular() && d.Type()&fs.ModeSocket == 0:
		w.m.LeftOut = append(w.m.LeftOut, LeftOut{p, "a link or no plain file"})
		return nil
	}
	if !in && d.IsDir() {
		return fs.SkipDir
	}
	if !in || done || !d.IsDir() && !d.Type().IsRegular() {
		return nil
	}
	if err := inHome(p); err != nil {
		w.m.LeftOut = append(w.m.LeftOut, LeftOut{p, err.Error()})
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	}
	if d.IsDir() {
		info, err := d.Info()
		if err != nil {
			return passOver(err)
		}
		return w.add(File{Path: p + "/", Mode: mode(p, info.Mode().Perm()), UID: owner(p, info)}, nil)
	}
	return passOver(w.copyFile(p, -1))
}

func passOver(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// copyDatabase adds the copy of the database under its name.
func (w *writer) copyDatabase(from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	return w.copyOf(f, database, -1)
}

// copyFile adds the first size bytes of a file of the home, all for -1.
func (w *writer) copyFile(p string, size int64) error {
	f, err := openPlain(w.home, p)
	if err != nil {
		return err
	}
	defer f.Close()
	return w.copyOf(f, p, size)
}

func (w *writer) copyOf(f *os.File, p string, size int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if size < 0 {
		size = info.Size()
	}
	err = w.add(File{Path: p, Mode: mode(p, info.Mode().Perm()), Size: size, UID: owner(p, info)}, f)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: %s", errChanged, p)
	}
	return err
}

func tooLarge() error {
	return capability.Errorf(capability.CodeTooLarge, "backup", "the home has more than %d files or %d bytes, which is more than a backup holds", maxFiles, int64(maxBytes)).
		With("", "copy the home while its server is stopped")
}

// add writes one entry.
func (w *writer) add(f File, content io.Reader) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if w.bytes += f.Size; w.bytes > maxBytes || len(w.m.Files) == maxFiles {
		return tooLarge()
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: root() + "home/" + f.Path, Mode: int64(f.Mode), Size: f.Size}
	if content == nil {
		h.Typeflag = tar.TypeDir
	}
	if err := w.tar.WriteHeader(h); err != nil {
		return err
	}
	if content != nil {
		sum := sha256.New()
		if _, err := io.CopyN(io.MultiWriter(w.tar, sum), &ending{content, w.ctx}, f.Size); err != nil {
			return err
		}
		f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	}
	w.m.Files = append(w.m.Files, f)
	return nil
}

// ending is a reader that ends with its context.
type ending struct {
	io.Reader
	ctx context.Context //nolint:containedctx // of one backup
}

func (e *ending) Read(p []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	return e.Reader.Read(p)
}
