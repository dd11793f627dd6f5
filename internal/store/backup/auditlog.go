package backup

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
)

// QueryAudit returns the lines of the records of a home that match q, without a server, newest first; see
// [audit.SearchSegments]. Nothing is changed. The error is [fs.ErrNotExist] if the log does not exist.
func QueryAudit(ctx context.Context, home string, q audit.Query, denied bool) ([]json.RawMessage, error) {
	segments, err := segment.Open(filepath.Join(home, "audit"), segment.Config{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer segments.Close()
	return audit.SearchSegments(ctx, segments, q, denied)
}

// VerifyAudit verifies the audit log of a home without a server: its files, with the key and the
// database of the home if they are there, and the lines of an anchor, which is the path of a file or
// "". The error is [fs.ErrNotExist] if the log does not exist.
func VerifyAudit(ctx context.Context, home, anchor string) (report audit.VerifyReport, err error) {
	segments, err := segment.Open(filepath.Join(home, "audit"), segment.Config{ReadOnly: true})
	if err != nil {
		return report, err
	}
	defer segments.Close()
	var p audit.Proofs
	if key, err := os.ReadFile(filepath.Join(home, "state", "audit.key")); err == nil && len(key) == 32 {
		p.Key = key // otherwise the report shows that only hashes were checked
	}
	anchors, err := segment.ReadAnchor(anchor)
	if err != nil {
		return report, fmt.Errorf("read the anchor: %w", err)
	}
	if anchors != nil {
		defer anchors.Close()
		p.Anchors = anchors
	}
	err = store.Look(filepath.Join(home, "state", "junctor.db"), func(db *sql.DB) error {
		index, err := store.AuditIn(ctx, db)
		if err == nil {
			p.Points = index
			report, err = audit.VerifySegments(ctx, segments, p)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		report, err = audit.VerifySegments(ctx, segments, p)
	}
	return report, err
}
