package backup

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
)

// Check does everything that [Restore] does except creating the home: it unpacks into a
// folder .junctor-check.part beside the file, verifies it, and removes it.
func Check(ctx context.Context, file string, knows map[string]int64) (Manifest, error) {
	return unpack(ctx, file, filepath.Join(filepath.Dir(file), ".junctor-check.part"), "", knows)
}

// Restore creates a home from a backup. The path home must not exist, or be an empty folder;
// the home appears complete, by one rename, after everything was checked. A kill can leave a
// folder beside it with the suffix .part, which the next restore empties. The map knows
// holds the schema versions of this program, by owner.
//
// Errors: not_found; invalid_input, [ReasonDamaged]; conflict, [ReasonNewer],
// [ReasonOccupied], [ReasonMounted], [ReasonInTheWay] or [ReasonBusy]; failed,
// [ReasonNoRoom].
func Restore(ctx context.Context, file, home string, knows map[string]int64) (Manifest, error) {
	home, err := filepath.Abs(home)
	if err != nil {
		return Manifest{}, err
	}
	if real, err := filepath.EvalSymlinks(home); err == nil {
		home = real // a link remains, and its target is replaced
	}
	if _, err := os.Stat(file); err != nil {
		return Manifest{}, noFile(file, err)
	}
	if err := vacant(home); err != nil {
		return Manifest{}, err
	}
	if err := os.MkdirAll(filepath.Dir(home), 0o700); err != nil {
		return Manifest{}, failed("the folder of the home cannot be made", err)
	}
	return unpack(ctx, file, home+".part", home, knows)
}

func noFile(file string, err error) error {
	return capability.Wrap(capability.CodeNotFound, "restore", "the file "+file+" cannot be opened", err).With("", "name the file of a backup")
}

// vacant returns conflict, reason ReasonOccupied, unless home is missing or an empty folder.
func vacant(home string) error {
	entries, err := os.ReadDir(home)
	if err == nil && len(entries) == 0 {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		if _, err = os.Lstat(home); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	if err != nil {
		return failed(home+" cannot be looked at", err)
	}
	return capability.Errorf(capability.CodeConflict, "restore", "there is something in %s already", home).
		With(ReasonOccupied, "name a new folder with --home, or stop the server and move the old home away")
}

// unpack extracts a backup into the part folder dir, checks it, and renames it to home. If
// home is "", it only checks.
func unpack(ctx context.Context, file, dir, home string, knows map[string]int64) (Manifest, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for its writer
	if err != nil {
		return Manifest{}, noFile(file, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return Manifest{}, damaged(errors.New("it is not a plain file"))
	}
	p, err := openPart(dir)
	if err != nil {
		return Manifest{}, err
	}
	defer p.remove()
	if home != "" {
		if err := p.replaces(home); err != nil {
			return Manifest{}, err
		}
	}
	m, err := read(ctx, f, limits(), nil)
	if err == nil {
		err = known(m.Schemas, knows, m.Version)
	}
	if err == nil {
		err = room(filepath.Dir(dir), m)
	}
	if err != nil {
		return m, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return m, failed("the backup cannot be read", err)
	}
	into := p.path("home")
	if err := os.Mkdir(into, 0o700); err != nil {
		return m, failed("the backup could not be unpacked", err)
	}
	if err := extract(ctx, f, into, m); err != nil {
		return m, failed("the backup could not be unpacked", err)
	}
	if err := inspect(ctx, into, m, knows); err != nil {
		return m, failed("what is in the backup could not be checked", err)
	}
	if home == "" {
		return m, nil
	}
	return m, p.become("home", home) // fails if the folder is no longer empty
}

func known(have, knows map[string]int64, version string) error {
	for _, owner := range slices.Sorted(maps.Keys(have)) {
		if n, ok := knows[owner]; ok && have[owner] > n {
			return capability.Errorf(capability.CodeConflict, "restore",
				"junctor %s made this backup, and its tables of %s have version %d, where this program knows %d", version, owner, have[owner], n).
				With(ReasonNewer, "restore it with the junctor that made it, or a later one")
		}
	}
	return nil
}

// room rejects content that does not fit on the disk, before anything is written.
func room(dir string, m Manifest) error {
	var need int64
	for _, f := range m.Files {
		need += f.Size + 4096
	}
	free, err := hostfs.Free(dir)
	if err != nil {
		return failed("the folder "+dir+" cannot be used", err)
	}
	if need > free {
		return capability.Errorf(capability.CodeFailed, "restore", "what is in the backup needs %d MiB, and %d MiB are free in %s", need>>20,
			free>>20, dir).
			With(ReasonNoRoom, "free space, or name a folder on another disk with --home")
	}
	return nil
}

// extract writes the files. It reads the archive a second time and checks it against the manifest
// again, because the archive may have been replaced.
func extract(ctx context.Context, from io.Reader, dir string, m Manifest) error {
	in, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer in.Close()
	next := 0
	again, err := read(ctx, from, limits(), func(f File, content io.Reader) error {
		if next >= len(m.Files) || m.Files[next].Path != f.Path || m.Files[next].Size != f.Size {
			return damaged(errors.New("it changes while it is read"))
		}
		listed := m.Files[next]
		next++
		return place(in, listed, content)
	})
	if err == nil && !reflect.DeepEqual(again, m) {
		err = damaged(errors.New("it changes while it is read"))
	}
	if err != nil {
		return err
	}
	// Folders get their modes last, the innermost first, because one may be read-only.
	for _, f := range slices.Backward(m.Files) {
		if name, folder := strings.CutSuffix(f.Path, "/"); folder {
			if err := errors.Join(in.Chmod(name, f.Mode|0o700), hostfs.SyncDir(filepath.Join(dir, name))); err != nil {
				return err
			}
		}
	}
	return hostfs.SyncDir(dir)
}

// place writes one file or folder.
func place(in *os.Root, f File, content io.Reader) error {
	name, folder := strings.CutSuffix(f.Path, "/")
	parent := filepath.Dir(name)
	if folder {
		parent = name
	}
	if err := in.MkdirAll(parent, 0o700); err != nil {
		return err
	}
	if !folder {
		out, err := in.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, content)
		if err := errors.Join(err, out.Chmod(f.Mode), out.Sync(), out.Close()); err != nil {
			return err
		}
	}
	if f.UID != 0 && os.Geteuid() == 0 && strings.HasPrefix(name, "extensions/") {
		return in.Lchown(name, f.UID, f.UID)
	}
	return nil
}

// inspect verifies the unpacked database and audit chain.
func inspect(ctx context.Context, dir string, m Manifest, knows map[string]int64) error {
	err := store.Look(filepath.Join(dir, database), func(db *sql.DB) error {
		if err := store.Intact(ctx, db); err != nil {
			return damaged(fmt.Errorf("its database is damaged: %w", err))
		}
		have, err := store.Versions(ctx, db)
		if err != nil {
			return damaged(err)
		}
		return known(have, knows, m.Version)
	})
	if err != nil {
		return err
	}
	segments, err := segment.Open(filepath.Join(dir, "audit"), segment.Config{ReadOnly: true})
	if errors.Is(err, fs.ErrNotExist) && m.Audit == (Chain{}) {
		return nil
	}
	if err != nil {
		return damaged(errors.New("its audit log is missing"))
	}
	defer segments.Close()
	found, err := verify(ctx, segments)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(found, m.Audit) {
		return damaged(errors.New("its audit chain does not hold"))
	}
	return nil
}
