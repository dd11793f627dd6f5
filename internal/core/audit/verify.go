package audit

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
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
	Anchors  uint64     `json:"anchors"`             // checkpoints of the anchor that agree with the chain
	FirstBad *BadRecord `json:"first_bad,omitempty"` // nil if the chain is complete

	// AnchorsSkipped counts lines of the anchor that name this log and lack the code of its key.
	AnchorsSkipped uint64 `json:"anchors_skipped,omitempty"`
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

// Proofs holds what a chain is checked against besides its own rules. All of it is optional.
type Proofs struct {
	Points CheckpointSource
	// Key is the key of the home. Without it the codes are not checked, only hashes.
	Key []byte
	// Anchors are the lines of the anchor. Without a key all of them have to be of this log.
	Anchors io.Reader
}

// Verify reads the current chain and checks it against the checkpoints, the head and the anchor. Memory
// is bounded; writers are not blocked. It does not add a record: the caller logs
// audit_verified.
func (l *Log) Verify(ctx context.Context) (VerifyReport, error) {
	p := Proofs{Key: l.cfg.Key}
	if l.cfg.Index != nil {
		p.Points = l.cfg.Index
	}
	if l.cfg.Anchor != nil {
		anchors, err := l.cfg.Anchor.Read()
		if err != nil {
			return VerifyReport{}, fmt.Errorf("read the anchor: %w", err)
		}
		if anchors != nil {
			defer anchors.Close()
			p.Anchors = anchors
		}
	}
	return verify(ctx, l.cfg.Segments, l.snapshot, p)
}

// VerifySegments checks a chain without opening a log.
func VerifySegments(ctx context.Context, segs Segments, p Proofs) (VerifyReport, error) {
	return verify(ctx, segs, segs.List, p)
}

// verify checks the segments that snapshot returns against the chain's rules, the checkpoints and
// the head. The first bad record ends it and is part of the report, not an error.
func verify(ctx context.Context, segs Segments, snapshot func() ([]SegmentInfo, error), p Proofs) (rep VerifyReport, err error) {
	rep.Keyed = len(p.Key) > 0
	points := &checkpoints{source: p.Points, key: p.Key}
	// The checkpoints and the head are read before the segments are listed, because a log in use gains
	// records and checkpoints meanwhile.
	forged, err := points.bound(ctx)
	if err != nil {
		return rep, err
	}
	hd := loadHead(segs)
	// The head is written before the checkpoint of the same position, with a code too.
	if !hd.sealed(p.Key) || hd.Seq > 0 && hd.MAC == "" && points.sealed {
		forged = max(hd.Seq, 1)
	}
	if forged > 0 {
		rep.FirstBad = &BadRecord{Seq: forged, Reason: BadPoint}
		return rep, nil
	}
	points.head = Checkpoint{Seq: hd.Seq, Hash: hd.Hash}
	w := walker{mac: newMAC(p.Key), coded: points.coded}
	trails := []*trail{{next: points.next, bad: BadCheckpoint}}
	if p.Anchors != nil {
		read := &anchorReader{lines: bufio.NewReaderSize(p.Anchors, MaxLine), key: p.Key}
		anchors := &trail{next: read.next, bad: BadAnchor}
		trails = append(trails, anchors)
		defer func() { rep.Anchors, rep.AnchorsSkipped = anchors.agreed, read.skipped }()
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
				// After retention, the first checkpoint is the one right before the beginning.
				if !hd.Floor.begins(w.seq, w.prev) && points.lowest != w.seq {
					return bad(ln, 1, BadStart)
				}
				for _, t := range trails {
					if ok, err := t.check(ctx, w.seq, w.prev); err != nil {
						return rep, err
					} else if !ok {
						return bad(ln, 1, BadStart)
					}
				}
			}
			continue
		}
		rep.Records++
		rep.LastSeq, rep.MACs = w.seq, w.macs
		if !points.fits(w.seq, w.prev) {
			return bad(ln, w.seq, BadCheckpoint)
		}
		for _, t := range trails {
			if ok, err := t.check(ctx, w.seq, w.prev); err != nil {
				return rep, err
			} else if !ok {
				return bad(ln, w.seq, t.bad)
			}
		}
	}
	missing := points.head.Seq > w.seq || points.index.Seq > w.seq
	for _, t := range trails {
		more, err := t.peek(ctx)
		if err != nil {
			return rep, err
		}
		missing = missing || more && t.cur.Seq > w.seq
	}
	if missing {
		return bad(last, w.seq+1, BadTail)
	}
	return rep, nil
}

// trail compares checkpoints, in rising order, with the records of the chain.
type trail struct {
	next   func(context.Context) (Checkpoint, bool, error)
	bad    string // the reason of a record that differs
	cur    Checkpoint
	have   bool   // cur was read and not compared yet
	begun  bool   // first is set
	first  uint64 // the record before the chain's first
	agreed uint64 // checkpoints of a record of the chain
}

// peek reports whether a checkpoint is left; it is cur then.
func (t *trail) peek(ctx context.Context) (bool, error) {
	if t.have {
		return true, nil
	}
	var err error
	t.cur, t.have, err = t.next(ctx)
	return t.have, err
}

// check reports whether the checkpoints up to record seq agree with its hash, and none goes back to an
// earlier record: a log that was replaced by an older copy and continued leaves such a trail.
func (t *trail) check(ctx context.Context, seq uint64, hash [hexLen / 2]byte) (bool, error) {
	if !t.begun {
		t.first, t.begun = seq, true
	}
	for {
		more, err := t.peek(ctx)
		if err != nil || !more || t.cur.Seq > seq {
			return true, err
		}
		t.have = false
		switch {
		case t.cur.Seq < t.first: // retention removed its record
		case t.cur.Seq < seq || t.cur.Hash != hex.EncodeToString(hash[:]):
			return false, nil
		default:
			t.agreed++
		}
	}
}

// checkpoints reads a source page by page while the chain is read.
type checkpoints struct {
	source CheckpointSource
	key    []byte
	head   Checkpoint
	index  Position
	page   []Checkpoint
	after  uint64
	upTo   uint64 // number of the last one to check
	done   bool
	lowest uint64 // number of the first one
	coded  uint64 // the lowest first record with a code that one states
	sealed bool   // one has a code, and the key is there
}

// bound sets upTo and lowest to the last and first checkpoints that exist now. It returns the number of
// the first one with another code than the key makes of it, or 0.
func (c *checkpoints) bound(ctx context.Context) (forged uint64, err error) {
	if c.source == nil {
		return 0, nil
	}
	if c.index, err = c.source.Position(ctx); err != nil {
		return 0, err
	}
	for {
		page, err := c.source.Checkpoints(ctx, c.upTo, checkpointPage)
		if err != nil || len(page) == 0 {
			return 0, err
		}
		if c.upTo == 0 {
			c.lowest = page[0].Seq
		}
		c.upTo = page[len(page)-1].Seq
		for _, p := range page {
			if !p.genuine(c.key) || p.MAC == "" && c.sealed {
				return p.Seq, nil
			}
			c.sealed = c.sealed || p.MAC != "" && len(c.key) > 0
			if p.Coded > 0 && (c.coded == 0 || p.Coded < c.coded) {
				c.coded = p.Coded
			}
		}
	}
}

const checkpointPage = 500

// next returns the next checkpoint, or false after the last.
func (c *checkpoints) next(ctx context.Context) (p Checkpoint, ok bool, err error) {
	if len(c.page) == 0 && !c.done && c.source != nil {
		if c.page, err = c.source.Checkpoints(ctx, c.after, checkpointPage); err != nil {
			return p, false, err
		}
		c.done = len(c.page) < checkpointPage
		if n := len(c.page); n > 0 {
			c.after = c.page[n-1].Seq
		}
	}
	if len(c.page) == 0 || c.page[0].Seq > c.upTo {
		return p, false, nil
	}
	p, c.page = c.page[0], c.page[1:]
	return p, true, nil
}

// fits reports whether the head and the end of the index agree with record seq.
func (c *checkpoints) fits(seq uint64, hash [hexLen / 2]byte) bool {
	return (c.head.Seq != seq || c.head.Hash == hex.EncodeToString(hash[:])) &&
		(c.index.Seq != seq || c.index.Hash == hex.EncodeToString(hash[:]))
}
