package audit

import (
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
)

// VerifyReport is the outcome of a verification.
type VerifyReport struct {
	Records  uint64     `json:"records"`             // good ones, before the first bad one
	Segments int        `json:"segments"`            // read
	FirstSeq uint64     `json:"first_seq"`           // number of the first stored record
	LastSeq  uint64     `json:"last_seq"`            // number of the last good record
	MACs     uint64     `json:"macs"`                // good records with a code
	Keyed    bool       `json:"keyed"`               // the codes were checked; without the key only hashes are
	FirstBad *BadRecord `json:"first_bad,omitempty"` // nil if the chain is complete
}

// BadRecord is the first place where verification fails.
type BadRecord struct {
	Seq     uint64 `json:"seq"` // the number it has, or should have
	Segment uint64 `json:"segment"`
	Offset  int64  `json:"offset"`
	Reason  string `json:"reason"` // one of the Bad constants
}

// CheckpointSource is the part of an [Index] that a verification reads.
type CheckpointSource interface {
	Checkpoints(ctx context.Context, after uint64, limit int) ([]Checkpoint, error)
	// Position returns the end of the indexed part of the log.
	Position(ctx context.Context) (Position, error)
}

// Verify reads the current chain and checks it against the checkpoints and the head. Memory
// is bounded; writers are not blocked. It does not add a record: the caller logs
// audit_verified.
func (l *Log) Verify(ctx context.Context) (VerifyReport, error) {
	var points CheckpointSource
	if l.cfg.Index != nil {
		points = l.cfg.Index
	}
	return verify(ctx, l.cfg.Segments, l.snapshot, points, l.cfg.Key)
}

// VerifySegments checks a chain without opening a log. If points is nil, it uses files only. If key
// is empty, it does not check the codes of records.
func VerifySegments(ctx context.Context, segs Segments, points CheckpointSource, key []byte) (VerifyReport, error) {
	return verify(ctx, segs, segs.List, points, key)
}

// verify checks the segments that snapshot returns against the chain's rules, the checkpoints and
// the head. The first bad record ends it and is part of the report, not an error.
func verify(ctx context.Context, segs Segments, snapshot func() ([]SegmentInfo, error), source CheckpointSource,
	key []byte,
) (VerifyReport, error) {
	rep := VerifyReport{Keyed: len(key) > 0}
	w := walker{mac: newMAC(key)}
	hd := loadHead(segs)
	points := &checkpoints{source: source, head: Checkpoint{Seq: hd.Seq, Hash: hd.Hash}}
	// The checkpoints are read before the segments are listed, because a log in use gains
	// records and checkpoints meanwhile.
	if err := points.bound(ctx); err != nil {
		return rep, err
	}
	list, err := snapshot()
	if err != nil {
		return rep, err
	}
	last := line{}
	bad := func(ln line, seq uint64, reason string) (VerifyReport, error) {
		rep.FirstBad = &BadRecord{Seq: seq, Segment: ln.segment, Offset: ln.offset, Reason: reason}
		return rep, nil
	}
	var before uint64 // id of the segment before
	var from uint64
	if len(list) > 0 {
		from = list[0].ID
	}
	for ln, err := range lines(segs, list, from, 0) {
		if errors.Is(err, errLongLine) {
			return bad(ln, w.seq+1, BadLine)
		}
		if errors.Is(err, fs.ErrNotExist) { // a writer lists what it wrote, also if the file was deleted since
			return bad(ln, w.seq+1, BadGap)
		}
		if err != nil {
			return rep, err
		}
		if err := ctx.Err(); err != nil {
			return rep, err
		}
		last = line{segment: ln.segment, offset: ln.end()}
		if ln.header() {
			rep.Segments++
			if before != 0 && ln.segment != before+1 {
				return bad(ln, w.seq+1, BadGap)
			}
			before = ln.segment
		}
		if reason := w.step(ln); reason != "" {
			seq := w.seq + 1
			if k, ok := parseLink(ln.data); ok && reason == BadHash {
				seq = k.seq
			}
			return bad(ln, seq, reason)
		}
		if ln.header() {
			if rep.FirstSeq == 0 {
				rep.FirstSeq = w.seq + 1
				same, err := points.check(ctx, w.seq, w.prev)
				if err != nil {
					return rep, err
				}
				// After retention, the first checkpoint is the one right before the beginning.
				if !hd.Floor.begins(w.seq, w.prev) && points.lowest != w.seq || !same {
					return bad(ln, 1, BadStart)
				}
			}
			continue
		}
		rep.Records++
		rep.LastSeq, rep.MACs = w.seq, w.macs
		ok, err := points.check(ctx, w.seq, w.prev)
		if err != nil {
			return rep, err
		}
		if !ok {
			return bad(ln, w.seq, BadCheckpoint)
		}
	}
	beyond, err := points.beyond(ctx, w.seq)
	if err != nil {
		return rep, err
	}
	if beyond {
		return bad(last, w.seq+1, BadTail)
	}
	return rep, nil
}

// checkpoints reads a source page by page while the chain is read.
type checkpoints struct {
	source CheckpointSource
	head   Checkpoint
	index  Position
	page   []Checkpoint
	after  uint64
	upTo   uint64 // number of the last one to check
	done   bool
	lowest uint64 // number of the first one
}

// bound sets upTo and lowest to the last and first checkpoints that exist now.
func (c *checkpoints) bound(ctx context.Context) error {
	if c.source != nil {
		var err error
		if c.index, err = c.source.Position(ctx); err != nil {
			return err
		}
	}
	for c.source != nil {
		page, err := c.source.Checkpoints(ctx, c.upTo, checkpointPage)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		if c.upTo == 0 {
			c.lowest = page[0].Seq
		}
		c.upTo = page[len(page)-1].Seq
	}
	return nil
}

const checkpointPage = 500

// next returns the next checkpoint without consuming it, or false after the last.
func (c *checkpoints) next(ctx context.Context) (Checkpoint, bool, error) {
	if len(c.page) == 0 && !c.done && c.source != nil {
		page, err := c.source.Checkpoints(ctx, c.after, checkpointPage)
		if err != nil {
			return Checkpoint{}, false, err
		}
		c.page, c.done = page, len(page) < checkpointPage
		if len(page) > 0 {
			c.after = page[len(page)-1].Seq
		}
	}
	if len(c.page) == 0 || c.page[0].Seq > c.upTo {
		return Checkpoint{}, false, nil
	}
	return c.page[0], true, nil
}

// check reports whether the checkpoint of record seq, if any, agrees with its hash.
func (c *checkpoints) check(ctx context.Context, seq uint64, hash [hexLen / 2]byte) (bool, error) {
	if seq > 0 && (c.head.Seq == seq && c.head.Hash != hex.EncodeToString(hash[:]) ||
		c.index.Seq == seq && c.index.Hash != hex.EncodeToString(hash[:])) {
		return false, nil
	}
	for {
		p, ok, err := c.next(ctx)
		if err != nil || !ok || p.Seq > seq {
			return true, err
		}
		c.page = c.page[1:]
		if p.Seq == seq && p.Hash != hex.EncodeToString(hash[:]) {
			return false, nil
		}
	}
}

// beyond reports whether a checkpoint proves a record after seq.
func (c *checkpoints) beyond(ctx context.Context, seq uint64) (bool, error) {
	if c.head.Seq > seq || c.index.Seq > seq {
		return true, nil
	}
	for {
		p, ok, err := c.next(ctx)
		if err != nil || !ok {
			return false, err
		}
		if p.Seq > seq {
			return true, nil
		}
		c.page = c.page[1:]
	}
}
