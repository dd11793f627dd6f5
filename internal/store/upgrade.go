package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pressly/goose/v3"

	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// The suffixes of the copies that an upgrade stores beside a file. Until [DB.Upgraded] the
// copy has the second one, which shows that the file may be partly upgraded, and that the
// copy is the last complete state.
const (
	beforeUpgrade = ".before-upgrade"
	unfinished    = beforeUpgrade + ".unfinished"
)

// upgrade migrates the tables of one owner in a file completely or not at all. Each migration is a
// transaction. If a later one fails, the file is restored to its content before the first
// migration of any owner, even if an earlier process was killed between two of them.
func (d *DB) upgrade(ctx context.Context, owner string, p *goose.Provider) error {
	have, know, err := p.GetVersions(ctx)
	switch {
	case err != nil:
		return err
	case have > know:
		return newer(owner, have, know)
	case have == know:
		return nil
	}
	if !d.kept {
		if d.kept, err = d.half(ctx); err == nil && !d.kept && have > 0 { // the tables of a new owner do not change existing ones
			err = d.keep(ctx)
			d.kept = err == nil
		}
		if err != nil {
			return fmt.Errorf("keep a copy of the database before it is changed: %w", err)
		}
	}
	if _, err = p.Up(ctx); err != nil && d.kept {
		// Even if ctx has ended, because a partial upgrade must not remain.
		if back := d.putBack(context.WithoutCancel(ctx)); back != nil {
			return errors.Join(err, fmt.Errorf("the database could not be put back as it was; it is in %s: %w", d.path+unfinished, back))
		}
		d.kept = false
		_ = os.Remove(d.path + unfinished) // a leftover copy is harmless, see half
	}
	return err
}

// Upgraded confirms that the tables of every owner are migrated. If a SQLite file was changed
// for it, by this process or by one that was killed, the copy gets its final name, and
// the copy of the previous upgrade is removed.
func (d *DB) Upgraded() error {
	if d.pg != nil {
		return nil
	}
	err := os.Rename(d.path+unfinished, d.path+beforeUpgrade)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	d.kept = d.kept && err != nil
	if err == nil {
		err = hostfs.SyncDir(filepath.Dir(d.path))
	}
	if err != nil {
		return fmt.Errorf("name the copy of the database from before it was changed: %w", err)
	}
	return nil
}

// half reports whether an earlier process left the file between two steps of an upgrade, with
// the copy of the state before. The file itself shows that: some of its tables are newer than
// those of the copy. Otherwise the copy belongs to an upgrade that was undone, and must not
// be restored, because data may have been written since.
func (d *DB) half(ctx context.Context) (bool, error) {
	var before map[string]int64
	err := Look(d.path+unfinished, func(copied *sql.DB) (err error) {
		before, err = Versions(ctx, copied)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("the one of an upgrade that was not finished, %s, cannot be read; move it away: %w", d.path+unfinished, err)
	}
	now, err := Versions(ctx, d.sql)
	for owner, n := range before {
		if now[owner] > n {
			return true, err
		}
	}
	return false, err
}

// keep copies the current content of the file durably beside it.
func (d *DB) keep(ctx context.Context) error {
	tmp := d.path + beforeUpgrade + ".tmp"
	for _, end := range []string{"", "-journal", "-wal", "-shm"} { // a leftover journal would be applied to the copy
		if err := os.Remove(tmp + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := Copy(ctx, d.path, tmp, func() error { return nil }); err != nil {
		return err
	}
	if err := os.Rename(tmp, d.path+unfinished); err != nil {
		return err
	}
	return hostfs.SyncDir(filepath.Dir(d.path)) // the copy must be durable before anything is changed
}

// putBack restores the file from the copy.
func (d *DB) putBack(ctx context.Context) error {
	conn, err := d.sql.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(c any) error {
		b, err := c.(backuper).NewRestore(file(d.path+unfinished, "mode=ro"))
		if err != nil {
			return err
		}
		return steps(ctx, b)
	})
}
