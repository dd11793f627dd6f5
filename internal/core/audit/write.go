package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strconv"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// pending is a record between its encoding and its place in the chain.
type pending struct {
	body    []byte // up to and including the error member
	row     EventRow
	durable Durability
	mutates bool
	call    openCall // of a begin or an end

	seq  uint64
	err  error
	wake chan bool // true: the receiver becomes the writer; false: p is done
}

// openCall holds the fields needed to close a begun call after a crash.
type openCall struct {
	Run        string `json:"run"`
	Extension  string `json:"extension,omitempty"`
	Action     string `json:"action,omitempty"`
	Runner     string `json:"runner,omitempty"`
	Session    string `json:"session,omitempty"`
	User       string `json:"user,omitempty"`
	Capability string `json:"capability,omitempty"`
	Effect     string `json:"effect,omitempty"`
	Seq        uint64 `json:"seq"`
}

// place is the position in the chain behind record Seq with hash Hash, at byte Offset of Segment.
type place struct {
	Seq     uint64 `json:"seq"`
	Hash    string `json:"hash"`
	Segment uint64 `json:"segment"`
	Offset  int64  `json:"offset"`
}

// chain is the state of the writer: the end of the chain and its buffers.
type chain struct {
	seq     uint64
	prev    [sha256.Size]byte
	segment uint64
	offset  int64
	digest  hash.Hash
	mac     hash.Hash // nil without a key
	buf     []byte
	ends    []int // end of each line of the batch in buf
}

// newPending encodes a record into a pending from the pool.
func (l *Log) newPending(r *Record, row EventRow, d Durability) *pending {
	p, ok := l.pends.Get().(*pending)
	if !ok {
		p = &pending{wake: make(chan bool, 1)}
	}
	m := &r.Metadata
	p.body = l.enc.encode(p.body[:0], r)
	p.row, p.durable = row, d
	p.mutates = d == Synced || m.Effect != "" && m.Effect.Mutates()
	p.call = openCall{
		Run: m.RunID, Extension: r.Extension, Action: r.Action, Runner: r.Runner, Session: r.Session,
		User: r.User, Capability: m.CapabilityID, Effect: string(m.Effect),
	}
	p.seq, p.err = 0, nil
	return p
}

func (l *Log) release(p *pending) {
	p.call = openCall{}
	l.pends.Put(p)
}

// refuses reports whether the mode forbids the caller of p to continue while the log is broken.
func (l *Log) refuses(p *pending) bool {
	return l.cfg.Mode == Strict || l.cfg.Mode == Standard && p.mutates
}

// submit returns when p is written or has failed; p.seq and p.err are set then. A caller that
// finds the log idle becomes the writer for itself and for concurrent callers.
func (l *Log) submit(p *pending) {
	l.mu.Lock()
	if l.broken.Load() || l.closed.Load() {
		l.shelve(p, l.cause)
		l.mu.Unlock()
		return
	}
	l.queue = append(l.queue, p)
	if l.writing {
		l.mu.Unlock()
		if !<-p.wake {
			return
		}
		l.mu.Lock()
	}
	l.writing = true
	for round := 1; ; round++ {
		batch := l.queue
		l.queue, l.spare = l.spare[:0], nil
		l.mu.Unlock()
		err := l.writeBatch(batch)
		l.mu.Lock()
		l.settle(batch, err)
		for _, q := range batch {
			if q != p {
				q.wake <- false
			}
		}
		clear(batch)
		l.spare = batch[:0]
		if len(l.queue) == 0 {
			l.quit()
			break
		}
		if round >= maxRounds {
			l.queue[0].wake <- true
			break
		}
	}
	l.mu.Unlock()
}

// quit releases the chain. Caller holds mu.
func (l *Log) quit() {
	l.writing = false
	if l.closed.Load() {
		l.synced.Broadcast() // Close waits for the writer
	}
}

// writeBatch numbers, hashes and writes the batch. A full segment is rotated first. After a failed
// write the chain's end is unchanged. Only the owner of the chain may call it.
func (l *Log) writeBatch(batch []*pending) error {
	c := &l.chain
	size := 0
	for _, p := range batch {
		size += len(p.body) + chainRoom
	}
	if c.segment == 0 || c.offset+int64(size) > l.cfg.SegmentBytes && c.offset > MaxLine {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	seq, prev := c.seq, c.prev
	c.buf, c.ends = c.buf[:0], c.ends[:0]
	for _, p := range batch {
		c.seq++
		c.link(p.body)
		p.seq = c.seq
		c.ends = append(c.ends, len(c.buf))
	}
	if err := l.cfg.Segments.Append(c.buf); err != nil {
		c.seq, c.prev = seq, prev
		return err
	}
	c.offset += int64(len(c.buf))
	if l.mirror != nil {
		l.mirror.add(batch, c.buf, c.ends)
	}
	return nil
}

// link appends the complete line of the next record to buf. Its hash covers the 32 raw bytes of
// the previous hash and the line up to its hash member. Its code covers the hash.
func (c *chain) link(body []byte) {
	start := len(c.buf)
	c.buf = append(c.buf, body...)
	c.buf = append(c.buf, `, "seq": `...)
	c.buf = strconv.AppendUint(c.buf, c.seq, 10)
	c.buf = append(c.buf, `, "prev_hash": "`...)
	c.buf = hex.AppendEncode(c.buf, c.prev[:])
	c.buf = append(c.buf, '"')
	c.digest.Reset()
	_, _ = c.digest.Write(c.prev[:])
	_, _ = c.digest.Write(c.buf[start:])
	c.digest.Sum(c.prev[:0])
	c.buf = append(c.buf, `, "hash": "`...)
	c.buf = hex.AppendEncode(c.buf, c.prev[:])
	if c.mac != nil {
		c.buf = append(c.buf, `", "mac": "`...)
		c.buf = appendMAC(c.buf, c.mac, &c.prev)
	}
	c.buf = append(c.buf, "\"}\n"...)
}

// rotate begins a new segment with a header.
func (l *Log) rotate() error {
	c := &l.chain
	h := header{Version: headerVersion, FirstSeq: c.seq + 1, PrevHash: hex.EncodeToString(c.prev[:]), Gateway: l.cfg.Gateway}
	line := h.line()
	id, err := l.cfg.Segments.Rotate(line)
	if err != nil {
		return err
	}
	c.segment, c.offset = id, int64(len(line))
	return nil
}

// settle publishes a written batch and updates the open calls. After an error it marks the log
// broken and shelves the batch and all queued records. Caller holds mu and owns the chain.
func (l *Log) settle(batch []*pending, err error) {
	if err != nil {
		l.fail(err)
		for _, p := range batch {
			l.shelve(p, err)
		}
		// Records queued meanwhile must not wait, because no writer will follow.
		for _, p := range l.queue {
			l.shelve(p, err)
			p.wake <- false
		}
		clear(l.queue)
		l.queue = l.queue[:0]
		return
	}
	for _, p := range batch {
		switch {
		case p.row.Event == CapabilityStarted && p.call.Run != "" && len(l.open) < maxOpen:
			p.call.Seq = p.seq
			l.open[p.call.Run] = p.call
		case p.row.Ends:
			delete(l.open, p.call.Run)
		}
		if p.durable == Written {
			l.dirtyTo = p.seq
		}
	}
	l.publish()
}

// publish sets l.end to the chain's end and notifies the readers of Tail. Caller holds mu and owns
// the chain.
func (l *Log) publish() {
	c := &l.chain
	l.end = tail{seq: c.seq, hash: c.prev, segment: c.segment, offset: c.offset}
	for w := range l.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// waitSynced returns when record seq is on the disk, or with the error that broke the log. One
// waiter at a time flushes; the others wait for that flush or the next.
func (l *Log) waitSynced(seq uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	failures := l.failures
	for l.syncedTo < seq {
		if l.failures != failures || l.broken.Load() {
			return l.cause
		}
		if l.syncing {
			l.synced.Wait()
			continue
		}
		l.syncing = true
		target := l.end.seq
		l.mu.Unlock()
		err := l.cfg.Segments.Sync()
		l.mu.Lock()
		l.syncing = false
		if err != nil {
			l.fail(err)
			return err
		}
		l.syncedTo = max(l.syncedTo, target)
		l.synced.Broadcast()
	}
	return nil
}

// Run flushes records, writes copies, checkpoints and anchors, and recovers a broken log, until ctx ends;
// then it returns nil. Without Run, Written records are flushed only with the next Synced one,
// and a broken log does not recover.
func (l *Log) Run(ctx context.Context) error {
	t := time.NewTicker(l.cfg.SyncEvery)
	defer t.Stop()
	if l.cfg.Anchor != nil {
		var anchoring sync.WaitGroup
		anchoring.Go(func() { l.runAnchor(ctx) })
		defer anchoring.Wait()
	}
	wasBroken := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		if b := l.broken.Load(); b != wasBroken {
			wasBroken = b
			if b {
				l.cfg.Logger.Error("audit log cannot be written", "err", l.Health().Cause)
			}
		}
		l.upkeep(ctx)
	}
}

// interrupted returns the record that closes a call which was open when the process ended.
func (o openCall) interrupted() Record {
	return Record{
		Logger: "audit", Event: CapabilityFailed, Extension: o.Extension, Action: o.Action, Runner: o.Runner,
		Session: o.Session, User: o.User, Success: OutcomeFailure, Error: "the process ended before the call did",
		Metadata: Metadata{
			RunID: o.Run, State: "failed", CapabilityID: o.Capability, Effect: capability.Effect(o.Effect),
			Code: capability.CodeFailed, Reason: "interrupted",
		},
	}
}
