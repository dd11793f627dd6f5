package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/pressly/goose/v3"
)

// beforeUpgrade is the end of the name of the copy that an upgrade of a file leaves.
const beforeUpgrade = ".before-upgrade"

// upgrade brings the tables of one owner in a file up to date, whole or not at all:
// each migration is a transaction, and where a later one fails, the file gets the
// content back that it had before the first one, of whichever owner, since [Open].
func (d *DB) upgrade(ctx context.Context, owner string, p *goose.Provider) error {
	have, know, err := p.GetVersions(ctx)
	switch {
	case err != nil:
		return err
	case have > know:
		return newer(owner, have, know)
	case have == know:
		return nil
	case have > 0 && !d.kept: // new tables of an owner who had none change nothing that is there
		if err := d.keep(ctx); err != nil {
			return fmt.Errorf("keep a copy of the database before it is changed: %w", err)
		}
		d.kept = true
	}
	if _, err = p.Up(ctx); err != nil && d.kept {
		// Also when ctx has ended: half an upgrade must not stay.
		if back := d.putBack(context.WithoutCancel(ctx)); back != nil {
			return errors.Join(err, fmt.Errorf("the database could not be put back as it was; it is in %s: %w", d.path+beforeUpgrade, back))
		}
	}
	return err
}

// keep replaces the copy beside the file by what the file holds now.
func (d *DB) keep(ctx context.Context) error {
	tmp := d.path + beforeUpgrade + ".tmp"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := Copy(ctx, d.path, tmp, func() error { return nil }); err != nil {
		return err
	}
	return os.Rename(tmp, d.path+beforeUpgrade)
}

func (d *DB) putBack(ctx context.Context) error {
	conn, err := d.sql.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(c any) error {
		b, err := c.(backuper).NewRestore(file(d.path+beforeUpgrade, "mode=ro"))
		if err != nil {
			return err
		}
		return steps(ctx, b)
	})
}
