// Package audit implements the log of the calls and changes that junctor made or refused: one
// JSON line per event, in one chain, where each line's hash covers the previous line.
//
// A [Record] goes through three stages. The caller's goroutine redacts and encodes it. Then
// it joins the next batch. A caller that finds the log idle becomes the writer: it assigns a
// number and a hash to every record of the batch and passes the bytes to [Segments] in one
// write. So a single caller avoids a goroutine switch, and many callers share one write. A
// caller that requests [Synced] then waits for a flush to the disk, which is shared in the
// same way. No lock is held during I/O.
//
// The files under audit/ are authoritative. The identical lines in logs/ and the rows of the
// [Index] are copies that are written later and can be rebuilt. The chain reveals that a file
// was edited; the checkpoints in the index and the head file reveal that its end was cut off.
//
// While the log cannot be written, [Log.Ready] rejects calls according to the
// [Mode], records wait in a bounded ring, and [Log.Run] retries.
//
// The package does no I/O: files are internal/store/segment, the database internal/store.
package audit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// Mode is the behavior while the log cannot be written.
type Mode string

// The modes; the empty one is Standard.
const (
	// Strict refuses every call, and makes every append Synced.
	Strict Mode = "strict"
	// Standard rejects effects >= write and stores the records of reads in memory.
	Standard Mode = "standard"
	// BestEffort rejects nothing and stores all records in memory.
	BestEffort Mode = "best_effort"
)

// SegmentInfo describes one segment; IDs increase by one.
type SegmentInfo struct {
	ID   uint64
	Size int64
}

// Segments stores the chain's lines. Append, Rotate and SaveHead are called by
// one goroutine at a time; Sync may run concurrently with Append; the readers at any time.
type Segments interface {
	// Append adds whole lines to the last segment, all or none: after an error, a partial
	// write is removed before the next Append writes.
	Append(lines []byte) error
	// Sync returns when everything appended before the call is on the disk. After
	// a failure the next Sync must write the uncertain bytes again.
	Sync() error
	// Rotate syncs the last segment and begins the next with the given line. It
	// returns the new segment's id.
	Rotate(header []byte) (uint64, error)
	// List returns the segments, oldest first.
	List() ([]SegmentInfo, error)
	// Open reads a segment from a byte offset.
	Open(id uint64, offset int64) (io.ReadCloser, error)
	// Torn returns the number of bytes of an unfinished last line that opening removed.
	Torn() int64
	// LoadHead and SaveHead store one small document beside the segments, durably
	// and atomically. LoadHead returns nil if it does not exist.
	LoadHead() ([]byte, error)
	SaveHead(doc []byte) error
	// Remove deletes the oldest segment.
	Remove(id uint64) error
	Close() error
}

// Mirror stores the copies under logs/, one file for each bit of [Mirrors].
type Mirror interface {
	// Append adds whole lines to a file.
	Append(file Mirrors, lines []byte) error
	// LastLine returns the last whole line of a file, or nil.
	LastLine(file Mirrors) ([]byte, error)
	Close() error
}

// Config configures a [Log]. Only Segments is required.
type Config struct {
	Segments Segments
	Mirror   Mirror // nil: no copies under logs/
	Index    Index  // nil: queries read the segments; no checkpoints
	Anchor   Anchor // nil: checkpoints are stored in the index only
	Gateway  string // metadata.gateway of every record
	// Arguments stores the arguments of calls according to ArgumentMode. If nil, none are kept.
	Arguments    Arguments
	ArgumentMode ArgumentMode // "": digest
	Mode         Mode         // "": Standard

	// Key is the key for the digests of [Log.Digest]: 32 random bytes stored with the
	// other secrets. An empty key still gives digests, but guessable ones.
	Key []byte
	// Home is written as ~ wherever it occurs.
	Home string
	// Redact removes further secrets from a string. It must be fast and safe for
	// concurrent use. It may be nil.
	Redact func(string) string
	// Logger reports failures and recoveries of the log to operators. It may be nil.
	Logger *slog.Logger

	SegmentBytes      int64         // a segment is full beyond this; 0: 64 MiB
	RingRecords       int           // stored while the log is broken; 0: 4096
	SyncEvery         time.Duration // longest time until a Written record is on disk; 0: 100 ms
	CheckpointEvery   time.Duration // 0: 60 s
	CheckpointRecords uint64        // 0: 1000
	Retain            time.Duration // whole segments older than this are removed; 0: never
	RetainArguments   time.Duration // arguments older than this are removed; 0: never
	QueryLimit        int           // records if a query sets no limit; 0: 100
}

func (c *Config) defaults() {
	c.SegmentBytes = cmp.Or(max(c.SegmentBytes, 0), 64<<20)
	c.RingRecords = cmp.Or(max(c.RingRecords, 0), 4096)
	c.SyncEvery = cmp.Or(max(c.SyncEvery, 0), 100*time.Millisecond)
	c.CheckpointEvery = cmp.Or(max(c.CheckpointEvery, 0), time.Minute)
	c.CheckpointRecords = cmp.Or(max(c.CheckpointRecords, 0), 1000)
	c.QueryLimit = cmp.Or(max(c.QueryLimit, 0), 100)
	if c.Mode == "" {
		c.Mode = Standard
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Validate returns an error that names the first invalid setting, or nil.
func (c Config) Validate() error {
	if c.Segments == nil {
		return capability.Errorf(capability.CodeInvalidInput, "audit.open", "the audit needs its segments")
	}
	switch c.Mode {
	case "", Strict, Standard, BestEffort:
		return nil
	}
	return capability.Errorf(capability.CodeInvalidInput, "audit.open", "audit.mode %q is not one of strict, standard, best_effort", c.Mode)
}

// Health is the state of a log for an operator.
type Health struct {
	Broken  bool   `json:"broken"`          // records wait in memory
	Cause   string `json:"cause,omitempty"` // why
	Waiting int    `json:"waiting"`         // records in the ring
	Lost    uint64 `json:"lost"`            // records that did not fit into the ring since the log was opened
	Seq     uint64 `json:"seq"`             // last record in the chain
	Hash    string `json:"hash"`            // of that record, hex

	Anchored    uint64 `json:"anchored,omitempty"`     // last record whose checkpoint the anchor has
	AnchorCause string `json:"anchor_cause,omitempty"` // why the last checkpoint could not be written there
}

// Log is the audit log. All methods are safe for concurrent use.
type Log struct {
	cfg    Config
	enc    encoder
	events map[Event]EventRow
	macs   sync.Pool // of hash.Hash, keyed
	pends  sync.Pool // of *pending
	broken atomic.Bool
	closed atomic.Bool

	// mu guards the fields below; never held across I/O.
	mu       sync.Mutex
	synced   *sync.Cond // on mu: syncedSeq advanced or failures rose
	queue    []*pending // waiting for a writer
	spare    []*pending // second slice of the double buffer
	writing  bool       // a goroutine owns chain
	syncing  bool       // a goroutine is in Segments.Sync
	open     map[string]openCall
	dirtyTo  uint64 // last Written record
	syncedTo uint64 // last record flushed to the disk
	end      tail   // last record passed to the operating system
	failures uint64 // times the log broke
	cause    error  // error that broke the log
	since    time.Time
	ring     []*pending
	draining int    // taken from the ring and not yet written
	lost     uint64 // by the ring, since the log was opened
	lostNow  uint64 // by the ring, since the log broke
	seen     uint64 // end at the last turn of Run
	watchers map[chan struct{}]struct{}

	anchored anchored

	chain    chain           // belongs to the goroutine that set writing
	coded    uint64          // as in Checkpoint; set by Open
	mirror   *mirrors        // nil without a Mirror
	warned   map[string]bool // messages of upkeep whose error lasts; guarded by keeping
	keeping  chan struct{}   // holds a token during upkeep; guards marked, floor
	marked   mark
	swept    time.Time // last sweep of arguments; guarded by keeping
	floor    floor
	indexing chan struct{} // holds a token while the index is caught up
	indexed  atomic.Uint64 // lower bound of the last record in the index
}

// Digest returns the keyed digest of data for the hash members of a record, because
// plain hashes of short secrets could be guessed.
func (l *Log) Digest(data []byte) string {
	h := l.macs.Get().(hash.Hash)
	h.Reset()
	_, _ = h.Write(data)
	var sum [sha256.Size]byte
	out := hex.EncodeToString(h.Sum(sum[:0]))
	l.macs.Put(h)
	return out
}

// Ready returns an error if a call may not start; mutates is [capability.Effect.Mutates].
// It costs two atomic loads. The error has code unavailable and reason
// audit_unavailable.
func (l *Log) Ready(mutates bool) error {
	if l.closed.Load() {
		return unavailable("the audit log is closed", nil)
	}
	if !l.broken.Load() || l.cfg.Mode == BestEffort || l.cfg.Mode == Standard && !mutates {
		return nil
	}
	return unavailable("the audit log cannot be written, so the call was not started", nil)
}

// Health returns the state of the log.
func (l *Log) Health() Health {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := Health{
		Broken: l.broken.Load(), Waiting: len(l.ring) + l.draining, Lost: l.lost, Seq: l.end.seq,
		Hash: hex.EncodeToString(l.end.hash[:]), Anchored: l.anchored.seq,
	}
	if l.anchored.cause != nil {
		h.AnchorCause = l.anchored.cause.Error()
	}
	if l.cause != nil {
		h.Cause = l.cause.Error()
	}
	return h
}

func unavailable(message string, cause error) error {
	return capability.Wrap(capability.CodeUnavailable, "audit.append", message, cause).
		With("audit_unavailable", "see: junctor doctor; the disk may be full")
}

// Append adds r to the chain and returns when durability d is reached. If ctx ends before the
// record has joined a batch, Append returns its error; from then on the record is written.
//
// An error means that the caller must not continue with (or, at the end of a write, must not
// report the success of) the recorded operation: the log is broken and the mode rejects it.
// The record is then stored in memory and written when the log recovers, unless it is a
// begin, because that call will not happen.
func (l *Log) Append(ctx context.Context, r Record, d Durability) (Receipt, error) {
	if err := ctx.Err(); err != nil && r.Event == CapabilityStarted {
		return Receipt{}, capability.AsError(err)
	}
	if l.closed.Load() {
		return Receipt{}, unavailable("the audit log is closed", nil)
	}
	if l.cfg.Mode == Strict {
		d = Synced
	}
	row, ok := l.events[r.Event]
	if !ok {
		return Receipt{}, capability.Errorf(capability.CodeInternal, "audit.append", "%q is not an audit event", r.Event)
	}
	switch r.Level {
	case Debug, Info, Warning, Error:
	default:
		r.Level = row.Level
	}
	if r.Time.IsZero() {
		r.Time = time.Now()
	}
	p := l.newPending(&r, row, d)
	l.submit(p)
	err, seq := p.err, p.seq
	refused := err != nil && l.refuses(p)
	l.release(p)
	if err != nil {
		if refused {
			return Receipt{}, unavailable("the audit log cannot be written", err)
		}
		return Receipt{}, nil
	}
	if d == Synced {
		if err := l.waitSynced(seq); err != nil && l.cfg.Mode != BestEffort {
			return Receipt{seq}, unavailable("the audit log cannot be flushed to the disk", err)
		}
	}
	return Receipt{seq}, nil
}
