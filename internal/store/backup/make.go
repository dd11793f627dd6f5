package backup

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/store"
)

// attempts is the maximum number of copies of a home that changes meanwhile.
const attempts = 5

// Options configures [Make]. Home, File and Version are required.
type Options struct {
	Home    string
	File    string // path of the backup, outside of the home
	Force   bool   // replace a file of that name
	Version string // of this program
	Shared  string // see [Manifest]
	Now     time.Time
}

// Make writes a backup of a home, whether a server runs on it or not, and reads it back. It
// creates File last, so that a failure or a kill never leaves a new file of that name. It
// fills a folder .junctor-backup.part beside the file, which a kill can leave and the next
// backup empties.
//
// Errors: not_found, [ReasonNoHome]; conflict, [ReasonExists], [ReasonInTheWay],
// [ReasonBusy] or [ReasonChanging]; too_large if a backup could not be restored; failed.
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
			return m, capability.Wrap(capability.CodeConflict, "backup",
				fmt.Sprintf("the home changed each of %d times while it was copied: %v", attempts, err), err).
				With(ReasonChanging, "try again when no extension is being installed or removed")
		}
	}
}

func failed(what string, err error) error {
	if e, ok := errors.AsType[*capability.Error](err); ok {
		return e
	}
	return capability.Errorf(capability.CodeFailed, "backup", "%s: %w", what, err).With("",
		"look at the disk and at who may read and write there")
}

// within reports whether dir is root or below it, after resolving symbolic links.
func within(root, dir string) bool {
	for _, p := range []*string{&root, &dir} {
		if real, err := filepath.EvalSymlinks(*p); err == nil {
			*p = real
		}
	}
	rel, err := filepath.Rel(root, dir)
	return err == nil && filepath.IsLocal(rel)
}

// publish renames the archive to its final name and makes that durable.
func publish(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return failed("the backup could not be made", err)
	}
	if err := errors.Join(f.Sync(), f.Close(), os.Rename(from, to), hostfs.SyncDir(filepath.Dir(to))); err != nil {
		return failed("the backup could not be given its name", err)
	}
	return nil
}

// attempt writes one archive, or reports that the copied parts are inconsistent.
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

// packages returns the state of the database that the files of extensions belong to.
func packages(ctx context.Context, db *sql.DB, schemas map[string]int64) (state string, err error) {
	if schemas["extensions"] == 0 {
		return "", nil
	}
	err = db.QueryRowContext(ctx, `SELECT (SELECT value FROM extension_meta WHERE key = 'generation') || ' ' ||
		(SELECT count(*) FROM extension_installs) || ' ' ||
		(SELECT coalesce(group_concat(install_id || status || current_step || progress),
		'') FROM extension_installs WHERE status IN ('INSTALLING', 'UNINSTALLING'))`).Scan(&state)
	return state, err
}

// vanished treats the error of a removed file as a change of the home.
func vanished(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", errChanged, err)
	}
	return err
}
