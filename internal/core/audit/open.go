package audit

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

var errClosed = errors.New("the audit log is closed")

// head is the document beside the segments. It makes the next opening faster and reveals missing
// records at the end. If it contradicts the segments, the segments apply.
type head struct {
	place
	Open  []openCall `json:"open"` // calls begun but not ended at that position
	Floor floor      `json:"floor"`
	Coded uint64     `json:"coded,omitempty"` // as in Checkpoint
	Keyed bool       `json:"keyed,omitempty"` // earlier versions: records behind this position have codes
	MAC   string     `json:"mac,omitempty"`   // of the document without this member; earlier versions wrote none
}

// sealed reports whether the head has the code that key makes of it, or none, or key is empty.
func (h head) sealed(key []byte) bool {
	return h.MAC == "" || len(key) == 0 || hmac.Equal([]byte(h.MAC), []byte(h.code(key)))
}

func (h head) code(key []byte) string {
	h.MAC = ""
	doc, err := jsonx.Marshal(h)
	if err != nil {
		return ""
	}
	return codeOf(key, "junctor audit head", doc)
}

// Open reads the end of the chain and closes the calls that the last process left open.
//
// It reads from the position in the head document, which is at most one checkpoint
// (1000 records or 60 s) before the end. Without a usable head it reads all segments once,
// and completes the copies under logs/ from them, so deleting head and logs/ recreates the
// copies. Every begin without an end gets a capability_failed with reason interrupted. The
// segments remove a torn last line; an audit_degraded record reports that, and also missing
// records that the head includes, and an end of the chain that fails verification. In the
// last case nothing is removed: the chain continues after the last complete record, in a new
// segment, and [Log.Verify] reports the bad one from then on.
//
// The log owns Segments and Mirror from here on and closes them.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.defaults()
	l := &Log{
		cfg: cfg, enc: encoder{newRedactor(cfg.Home, cfg.Redact), cfg.Gateway},
		events: make(map[Event]EventRow), open: make(map[string]openCall),
		watchers: make(map[chan struct{}]struct{}), indexing: make(chan struct{}, 1), keeping: make(chan struct{}, 1),
		anchored: anchored{wake: make(chan struct{}, 1)},
	}
	for _, row := range EventTable() {
		l.events[row.Event] = row
	}
	key := slices.Clone(cfg.Key)
	l.macs.New = func() any { return hmac.New(sha256.New, key) }
	l.synced = sync.NewCond(&l.mu)
	l.chain.digest, l.chain.mac = sha256.New(), newMAC(key)
	if cfg.Mirror != nil {
		l.mirror = newMirrors(cfg.Mirror)
	}
	notes, err := l.restore(ctx)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	if l.chain.mac != nil && l.coded == 0 {
		l.coded = l.chain.seq + 1
	}
	for _, r := range notes {
		// A full disk at the start means a broken log, not a failed start. The mode decides,
		// and the records wait in the ring.
		_, _ = l.Append(ctx, r, Buffered)
	}
	if len(notes) > 0 {
		_ = l.waitSynced(l.tail().seq)
	}
	l.marked = mark{l.tail().seq, time.Now()}
	if cfg.Anchor != nil {
		l.marked = mark{} // the first checkpoint is made at once, so that a new anchor is never without one
	}
	return l, nil
}

// restore reads the segments from the head's position and sets the end of the chain, the open calls
// and the mirrors. It returns the records to append first: about damage, and the ends of
// interrupted calls.
func (l *Log) restore(ctx context.Context) ([]Record, error) {
	segs := l.cfg.Segments
	list, err := segs.List()
	if err != nil {
		return nil, err
	}
	var notes []Record
	if n := segs.Torn(); n > 0 {
		notes = append(notes, trouble("torn_line", Attr{"bytes", strconv.FormatInt(n, 10)}))
	}
	if len(list) == 0 {
		return notes, nil
	}
	hd := loadHead(segs)
	w := walker{mac: newMAC(l.cfg.Key)}
	if !hd.sealed(l.cfg.Key) {
		notes = append(notes, trouble(BadPoint, Attr{"document", "head"}))
		// Perhaps the key is another one: then no code would hold, and the numbers must go on nevertheless.
		hd, w.mac = head{}, nil
	}
	l.floor = hd.Floor
	last := list[len(list)-1]
	from := place{Segment: list[0].ID}
	if i := slices.IndexFunc(list, func(s SegmentInfo) bool { return s.ID == hd.Segment }); i >= 0 && hd.Offset <= list[i].Size &&
		hd.Offset > 0 {
		from = hd.place
		w.seq, w.anchor, w.coded = hd.Seq, true, hd.Coded
		if hd.Keyed && w.coded == 0 {
			w.coded = hd.Seq + 1
		}
		_, _ = hex.Decode(w.prev[:], []byte(hd.Hash))
		for _, o := range hd.Open {
			l.open[o.Run] = o
		}
	}
	copied := [2]uint64{}
	if l.mirror != nil {
		if copied, err = l.mirror.last(); err != nil {
			return nil, err
		}
	}
	c := &l.chain
	c.segment, c.offset = last.ID, last.Size
	whole := true
	for ln, err := range lines(segs, list, from.Segment, from.Offset) {
		reason := BadLine
		if err == nil {
			reason = w.step(ln)
		} else if !errors.Is(err, errLongLine) {
			return nil, err
		}
		switch {
		case reason == "" && !ln.header():
			l.replay(ln, w.seq, copied)
		case reason != "":
			if whole {
				notes = append(notes, trouble("chain_broken", Attr{"found", reason},
					Attr{"segment", strconv.FormatUint(ln.segment, 10)}, Attr{"offset", strconv.FormatInt(ln.offset, 10)}))
			}
			whole, w.anchor = false, false // continue with the next line that is valid by itself
			if ln.segment == last.ID {
				c.segment = 0 // begin a new segment
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	if w.seq < hd.Seq {
		notes = append(notes, trouble(BadTail, Attr{"expected_seq", strconv.FormatUint(hd.Seq, 10)},
			Attr{"found_seq", strconv.FormatUint(w.seq, 10)}))
	}
	c.seq, c.prev = w.seq, w.prev
	l.coded = w.coded
	l.mu.Lock()
	l.publish()
	l.syncedTo = 0
	l.mu.Unlock()
	open := make([]openCall, 0, len(l.open))
	for _, o := range l.open {
		open = append(open, o)
	}
	slices.SortFunc(open, func(a, b openCall) int { return int(int64(a.Seq) - int64(b.Seq)) })
	for _, o := range open {
		notes = append(notes, o.interrupted())
	}
	return notes, nil
}

// replay applies a record behind the head: it updates the open calls, and copies the record to the
// mirror files that lack it.
func (l *Log) replay(ln line, seq uint64, copied [2]uint64) {
	var v view
	if v.read(ln.data) != nil {
		return
	}
	row := l.events[v.Event]
	if v.Event == CapabilityStarted && v.Metadata.RunID != "" && len(l.open) < maxOpen {
		l.open[v.Metadata.RunID] = v.call(seq)
	}
	if row.Ends {
		delete(l.open, v.Metadata.RunID)
	}
	if l.mirror == nil {
		return
	}
	for i, f := range mirrorFiles() {
		if row.Mirrors&f != 0 && seq > copied[i] {
			l.mirror.put(f, append(slices.Clip(ln.data), '\n'))
		}
	}
	if l.mirror.full() {
		_ = l.mirror.flush()
	}
}

// loadHead returns the stored head, or the zero head if it is missing or malformed.
func loadHead(segs Segments) head {
	var h head
	doc, err := segs.LoadHead()
	if err != nil || doc == nil || jsonx.Unmarshal(doc, &h) != nil || len(h.Hash) != hexLen {
		return head{}
	}
	return h
}

func trouble(reason string, attrs ...Attr) Record {
	return Record{Level: Error, Logger: "audit", Event: AuditDegraded, Metadata: Metadata{Reason: reason, Attrs: attrs}}
}

// tail is the published end of the chain.
type tail struct {
	seq     uint64
	hash    [sha256.Size]byte
	segment uint64
	offset  int64
}

func (t tail) place() place {
	return place{Seq: t.seq, Hash: hex.EncodeToString(t.hash[:]), Segment: t.segment, Offset: t.offset}
}

func (l *Log) tail() tail {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// mark is the position and the time of the last checkpoint.
type mark struct {
	seq uint64
	at  time.Time
}

// upkeep does the work of one interval of Run.
func (l *Log) upkeep(ctx context.Context) {
	l.keeping <- struct{}{}
	defer func() { <-l.keeping }()
	l.recovery()
	l.mu.Lock()
	dirtyTo, end, busy := l.dirtyTo, l.end.seq, l.end.seq != l.seen
	l.seen = end
	l.mu.Unlock()
	_ = l.waitSynced(dirtyTo) // a failure has marked the log broken
	if l.mirror != nil {
		l.warn("audit copy not written", l.mirror.flush())
	}
	l.sweep()
	fresh := end - l.marked.seq
	if fresh >= l.cfg.CheckpointRecords || fresh > 0 && time.Since(l.marked.at) >= l.cfg.CheckpointEvery {
		err := l.checkpoint(ctx)
		l.warn("audit checkpoint not kept", err)
		if err == nil && l.cfg.Retain > 0 {
			l.warn("old audit segments not removed", l.retain(ctx))
		}
	}
	if !busy && l.cfg.Index != nil && l.indexed.Load() != end {
		if err := l.catchUp(ctx); err == nil || ctx.Err() == nil {
			l.warn("audit index behind", err)
		}
	}
}

// warn logs an error of upkeep once: again only after it has not occurred in between. Caller holds
// keeping.
func (l *Log) warn(message string, err error) {
	if err != nil && !l.warned[message] {
		l.cfg.Logger.Warn(message, "err", err)
	}
	if l.warned == nil {
		l.warned = make(map[string]bool)
	}
	l.warned[message] = err != nil
}

// checkpoint flushes the chain and stores its end in the head and in the index. Caller holds
// keeping.
func (l *Log) checkpoint(ctx context.Context) error {
	l.mu.Lock()
	end := l.end
	h := head{place: end.place(), Floor: l.floor, Coded: l.coded, Open: make([]openCall, 0, len(l.open))}
	for _, o := range l.open {
		h.Open = append(h.Open, o)
	}
	l.mu.Unlock()
	if end.seq == 0 {
		return nil
	}
	if err := l.waitSynced(end.seq); err != nil {
		return err
	}
	slices.SortFunc(h.Open, func(a, b openCall) int { return int(int64(a.Seq) - int64(b.Seq)) })
	h.MAC = h.code(l.cfg.Key)
	doc, err := jsonx.Marshal(h)
	if err == nil && l.mirror != nil {
		err = l.mirror.flush() // the next opening completes the copies only from the head on
	}
	if err == nil {
		err = l.cfg.Segments.SaveHead(doc)
	}
	if l.cfg.Index != nil {
		err = errors.Join(err, l.cfg.Index.AddCheckpoint(ctx, l.proof(h.Seq, h.Hash)))
	}
	if err != nil {
		return err
	}
	l.marked = mark{end.seq, time.Now()}
	if l.cfg.Anchor != nil {
		l.mu.Lock()
		l.anchored.want = l.proof(h.Seq, h.Hash)
		l.mu.Unlock()
		select {
		case l.anchored.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// proof returns a checkpoint of now.
func (l *Log) proof(seq uint64, hash string) Checkpoint {
	c := Checkpoint{Seq: seq, Hash: hash, At: time.Now().Round(0).UTC(), Coded: l.coded}
	c.MAC = c.code(l.cfg.Key)
	return c
}

// Close flushes all records, writes a checkpoint, and closes Segments and Mirror. The caller must
// end Run first. Later appends are rejected; a second Close does nothing.
func (l *Log) Close() error {
	l.keeping <- struct{}{}
	defer func() { <-l.keeping }()
	l.recovery()
	l.mu.Lock()
	if l.closed.Swap(true) {
		l.mu.Unlock()
		return nil
	}
	for l.writing || l.syncing {
		l.synced.Wait()
	}
	end := l.end.seq
	waiting := len(l.ring)
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var errs []error
	if waiting > 0 {
		errs = append(errs, fmt.Errorf("close the audit log: %d records could not be written: %w", waiting, l.cause))
	}
	errs = append(errs, l.waitSynced(end), l.checkpoint(ctx))
	if l.cfg.Anchor != nil {
		l.writeAnchor(ctx)
	}
	if l.mirror != nil {
		errs = append(errs, l.mirror.flush(), l.cfg.Mirror.Close())
	}
	return errors.Join(append(errs, l.cfg.Segments.Close())...)
}
