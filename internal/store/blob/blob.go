// Package blob stores results that are too large for a response, as files named by their
// digest. A file exists as long as references to it. A reference has an owner, a run, a name
// and an expiry time; the caller decides who may read it. The files are in
// <home>/blobs/sha256, the references in a table.
package blob

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Tables returns the package's tables, which must be migrated before [Open].
func Tables() store.Tables { return store.Tables{Owner: "blob", Files: migrations} }

const (
	// MaxTotal bounds the bytes of all references; the principal with the most loses its oldest first.
	MaxTotal = 4 << 30
	// maxOwned bounds the bytes of the references of one principal.
	maxOwned = 1 << 30
	// idleGrace is how long a file without references is not removed, because a reference may
	// be about to be created.
	idleGrace = 5 * time.Minute
)

// ReasonFull is the reason of a value that is not stored, because its principal or all together have too
// much.
const ReasonFull = "storage_full"

// Ref is one reference.
type Ref struct {
	Principal string    `json:"-"` // "": it counts for all together only
	Run       string    `json:"-"`
	Name      string    `json:"name"`
	Size      int64     `json:"size"`
	SHA256    string    `json:"sha256"`
	MIME      string    `json:"mime"`
	Expires   time.Time `json:"expires"`
}

// Store stores blobs. It is safe for concurrent use.
type Store struct {
	root *os.Root
	db   *sql.DB
	now  func() time.Time
}

// Open opens the folder, which must exist. The caller keeps the ownership of db.
func Open(dir string, db *sql.DB, now func() time.Time) (*Store, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, broken(err)
	}
	return &Store{root, db, now}, nil
}

// Close closes the folder.
func (s *Store) Close() error { return s.root.Close() }

func broken(err error) error {
	return capability.Wrap(capability.CodeFailed, "blob", "large values cannot be kept or read", err).With("storage_failed",
		"look at the server's log; is the disk full?")
}

// Put stores the content of from, at most limit bytes, under ref's owner, run and name until its
// expiry, and returns ref with size and digest. It replaces an existing name of the run. Errors:
// too_large; failed, reason storage_full, if the principal would have more than a GiB or all together have twice
// MaxTotal, or storage_failed. It is never overloaded, because the work whose result is stored is done.
func (s *Store) Put(ctx context.Context, ref Ref, from io.Reader, limit int64) (Ref, error) {
	var own, all int64
	if err := s.db.QueryRowContext(ctx, `SELECT COALESCE(SUM(CASE WHEN principal = ? THEN size END), 0), COALESCE(SUM(size), 0)
		FROM blob_refs WHERE expires > ?`, ref.Principal, s.now().UnixNano()).Scan(&own, &all); err != nil {
		return ref, broken(err)
	}
	full := func() error {
		return capability.Errorf(capability.CodeFailed, "blob", "too many large values are stored: %d MiB of %s, %d MiB of all",
			own>>20, ref.Principal, all>>20).With(ReasonFull, "try again when some have expired")
	}
	if own >= maxOwned && ref.Principal != "" || all >= 2*MaxTotal {
		return ref, full()
	}
	tmp := ".new-" + ids.Text()
	f, err := s.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return ref, broken(err)
	}
	defer s.root.Remove(tmp) //nolint:errcheck // after the rename there is nothing to remove
	sum := sha256.New()
	ref.Size, err = io.Copy(io.MultiWriter(f, sum), io.LimitReader(from, limit+1))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return ref, broken(err)
	}
	if ref.Size > limit {
		return ref, capability.Errorf(capability.CodeTooLarge, "blob", "%s has more than %d bytes", ref.Name, limit)
	}
	ref.SHA256 = hex.EncodeToString(sum.Sum(nil))
	// A file with the same content may exist; replacing it renews its age.
	if err := s.root.Rename(tmp, ref.SHA256); err != nil {
		return ref, broken(err)
	}
	// The bound counts again, with this value and those that were stored meanwhile.
	res, err := s.db.ExecContext(ctx, `INSERT INTO blob_refs (principal, run, name, digest, size, mime, kept, expires)
		SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 WHERE ?1 = '' OR ?5 + (SELECT COALESCE(SUM(size), 0) FROM blob_refs
		WHERE principal = ?1 AND expires > ?7 AND NOT (run = ?2 AND name = ?3)) <= ?9
		ON CONFLICT (run, name) DO UPDATE SET principal = excluded.principal, digest = excluded.digest, size = excluded.size,
		mime = excluded.mime, kept = excluded.kept, expires = excluded.expires`,
		ref.Principal, ref.Run, ref.Name, ref.SHA256, ref.Size, ref.MIME, s.now().UnixNano(), ref.Expires.UnixNano(), maxOwned)
	if err != nil {
		return ref, broken(err)
	}
	if n, err := res.RowsAffected(); err == nil && n == 0 {
		return ref, full()
	}
	return ref, nil
}

// List returns the live references of a run.
func (s *Store) List(ctx context.Context, run string) ([]Ref, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT principal, name, digest, size, mime,
	expires FROM blob_refs WHERE run = ? AND expires > ? ORDER BY id`, run, s.now().UnixNano())
	if err != nil {
		return nil, broken(err)
	}
	defer rows.Close()
	var out []Ref
	for rows.Next() {
		ref, expires := Ref{Run: run}, int64(0)
		if err := rows.Scan(&ref.Principal, &ref.Name, &ref.SHA256, &ref.Size, &ref.MIME, &expires); err != nil {
			return nil, broken(err)
		}
		ref.Expires = time.Unix(0, expires).UTC()
		out = append(out, ref)
	}
	if err := rows.Err(); err != nil {
		return nil, broken(err)
	}
	return out, nil
}

// Read opens the file of a reference. The caller closes it.
func (s *Store) Read(ref Ref) (io.ReadSeekCloser, error) {
	if len(ref.SHA256) != 2*sha256.Size || strings.Trim(ref.SHA256, "0123456789abcdef") != "" {
		return nil, broken(errors.New("no digest"))
	}
	f, err := s.root.Open(ref.SHA256)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, capability.Errorf(capability.CodeNotFound, "blob", "%s is no longer there", ref.Name)
	}
	if err != nil {
		return nil, broken(err)
	}
	return f, nil
}

// Sweep removes expired references, those beyond MaxTotal, and files of at least five minutes without
// a reference. Of references beyond MaxTotal the oldest of the principals with the most bytes go, so that
// a principal with little loses nothing to others. Call it about every ten minutes.
func (s *Store) Sweep(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, `DELETE FROM blob_refs WHERE expires <= ?1 OR id IN
		(SELECT id FROM (SELECT id, SUM(size) OVER (ORDER BY own, id DESC) AS sofar FROM
			(SELECT id, size, SUM(size) OVER (PARTITION BY principal ORDER BY id DESC) AS own FROM blob_refs WHERE expires > ?1))
		WHERE sofar > ?2)`,
		s.now().UnixNano(), int64(MaxTotal))
	if err != nil {
		return broken(err)
	}
	dir, err := s.root.Open(".")
	if err != nil {
		return broken(err)
	}
	defer dir.Close()
	for {
		list, err := dir.ReadDir(256)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return broken(err)
		}
		for _, e := range list {
			info, err := e.Info()
			if err != nil || s.now().Sub(info.ModTime()) < idleGrace {
				continue
			}
			var refs int
			if err := s.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM blob_refs WHERE digest = ?`, e.Name()).Scan(&refs); err != nil {
				return broken(err)
			}
			if refs == 0 {
				if err := s.root.Remove(e.Name()); err != nil {
					return broken(err)
				}
			}
		}
	}
}
