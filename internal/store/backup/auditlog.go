package backup

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
)

// VerifyAudit verifies the audit log of a home without a server: its files, with the key and the
// database of the home if they are there. The error is [fs.ErrNotExist] if the log does not exist.
func VerifyAudit(ctx context.Context, home string) (report audit.VerifyReport, err error) {
	segments, err := segment.Open(filepath.Join(home, "audit"), segment.Config{ReadOnly: true})
	if err != nil {
		return report, err
	}
	defer segments.Close()
	key, err := os.ReadFile(filepath.Join(home, "state", "audit.key"))
	if err != nil || len(key) != 32 {
		key = nil // the report shows that only hashes were checked
	}
	err = store.Look(filepath.Join(home, "state", "junctor.db"), func(db *sql.DB) error {
		var err error
		report, err = audit.VerifySegments(ctx, segments, store.AuditIn(db), key)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		report, err = audit.VerifySegments(ctx, segments, nil, key)
	}
	return report, err
}
