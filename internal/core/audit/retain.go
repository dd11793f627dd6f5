package audit

import (
	"context"
	"encoding/hex"
	"errors"
	"strconv"
	"time"
)

// floor is the beginning of the chain after retention removed older segments.
type floor struct {
	FirstSeq uint64 `json:"first_seq"`
	PrevHash string `json:"prev_hash"`
}

// retain removes the segments whose records are all older than Config.Retain. It records the new
// beginning in the chain, the head and the index first, so that [Log.Verify] distinguishes
// retention from tampering. Caller holds keeping.
func (l *Log) retain(ctx context.Context) error {
	list, err := l.cfg.Segments.List()
	if err != nil {
		return err
	}
	limit := time.Now().Add(-l.cfg.Retain)
	gone, first := 0, header{}
	for gone+1 < len(list) { // the last segment is never removed
		h, began, err := l.beginning(list[gone+1])
		if err != nil {
			return err
		}
		if began.IsZero() || began.After(limit) {
			break
		}
		gone, first = gone+1, h
	}
	if gone == 0 {
		return nil
	}
	r := Record{Level: Info, Logger: "audit", Event: AuditDegraded, Metadata: Metadata{Reason: "retention", Attrs: []Attr{
		{"segments", strconv.Itoa(gone)}, {"first_seq", strconv.FormatUint(first.FirstSeq, 10)},
	}}}
	if got, err := l.Append(ctx, r, Synced); err != nil || got.Seq == 0 {
		return err
	}
	l.floor = floor{first.FirstSeq, first.PrevHash}
	if l.cfg.Index != nil {
		if err := l.cfg.Index.AddCheckpoint(ctx, l.proof(first.FirstSeq-1, first.PrevHash)); err != nil {
			return err
		}
	}
	if err := l.checkpoint(ctx); err != nil {
		return err
	}
	for _, s := range list[:gone] {
		if err := l.cfg.Segments.Remove(s.ID); err != nil {
			return err
		}
	}
	if l.cfg.Index != nil {
		return l.cfg.Index.Forget(ctx, first.FirstSeq)
	}
	return nil
}

// beginning reads the header of a segment and the time of its first record.
func (l *Log) beginning(s SegmentInfo) (h header, at time.Time, err error) {
	for ln, err := range lines(l.cfg.Segments, []SegmentInfo{s}, s.ID, 0) {
		if err != nil && !errors.Is(err, errLongLine) {
			return h, at, err
		}
		if ln.header() {
			if h, _, _ = parseHeader(ln.data); h.FirstSeq < 2 {
				return header{}, at, nil
			}
			continue
		}
		var v view
		if v.read(ln.data) == nil {
			at = v.Timestamp
		}
		break
	}
	return h, at, nil
}

// begins reports whether the chain may begin behind record seq with that hash.
func (f floor) begins(seq uint64, prev [hexLen / 2]byte) bool {
	// An interrupted retention leaves segments before the floor.
	return seq == 0 || seq+1 < f.FirstSeq || seq+1 == f.FirstSeq && f.PrevHash == hex.EncodeToString(prev[:])
}
