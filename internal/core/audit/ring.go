package audit

import (
	"strconv"
	"time"
)

// fail marks the log broken and wakes the callers that wait for a flush. Caller holds mu.
func (l *Log) fail(err error) {
	l.failures++
	l.synced.Broadcast()
	if l.broken.Load() {
		return
	}
	l.cause, l.since = err, time.Now()
	l.broken.Store(true)
}

// shelve sets the error that p's caller receives and stores a copy of p in the ring. A begin that
// the mode refuses is not stored, and a full ring drops its oldest record. Caller holds mu.
func (l *Log) shelve(p *pending, cause error) {
	if cause == nil {
		cause = errClosed
	}
	p.err, p.seq = cause, 0
	if l.refuses(p) && p.row.Event == CapabilityStarted {
		return
	}
	if len(l.ring)+l.draining >= l.cfg.RingRecords {
		l.lost++
		l.lostNow++
		if len(l.ring) == 0 { // all others are being written
			return
		}
		l.ring = append(l.ring[:0], l.ring[1:]...)
	}
	kept := *p
	kept.wake, p.body = nil, nil // p returns to the pool, its bytes remain
	l.ring = append(l.ring, &kept)
}

// recovery tries to repair a broken log: it writes the bytes of the last failed flush, then a
// record that describes the failure, then the ring. It does nothing if the log is in use.
func (l *Log) recovery() {
	l.mu.Lock()
	if !l.broken.Load() || l.writing || l.syncing {
		l.mu.Unlock()
		return
	}
	l.writing = true
	l.mu.Unlock()
	if err := l.drain(); err != nil {
		l.mu.Lock()
		l.cause = err
		l.quit()
		l.mu.Unlock()
	}
}

// drain writes the ring to the chain. When everything is on the disk, it marks the log as working
// and releases the chain. After an error the rest stays in the ring, and the caller must
// release the chain.
func (l *Log) drain() error {
	if err := l.cfg.Segments.Sync(); err != nil {
		return err
	}
	noted := false
	for {
		l.mu.Lock()
		batch, lost, since, cause := l.ring, l.lostNow, l.since, l.cause
		if noted && len(batch) == 0 && lost == 0 {
			l.broken.Store(false)
			l.cause = nil
			l.quit()
			l.mu.Unlock()
			l.cfg.Logger.Info("audit log recovered")
			return nil
		}
		l.ring, l.draining = nil, len(batch)
		l.mu.Unlock()
		kept := batch
		if !noted || lost > 0 {
			batch = append([]*pending{l.degraded(lost, len(batch), since, cause)}, batch...)
		}
		if err := l.writeBatch(batch); err != nil {
			l.mu.Lock()
			l.ring, l.draining = append(kept, l.ring...), 0 // the next attempt writes its own audit_degraded record
			l.mu.Unlock()
			return err
		}
		noted = true
		l.mu.Lock()
		l.lostNow -= lost
		l.draining = 0
		l.settle(batch, nil)
		target := l.end.seq
		l.mu.Unlock()
		if err := l.cfg.Segments.Sync(); err != nil {
			return err
		}
		l.mu.Lock()
		l.syncedTo = max(l.syncedTo, target)
		l.mu.Unlock()
	}
}

// degraded returns an encoded audit_degraded record about a failure of the log.
func (l *Log) degraded(lost uint64, kept int, since time.Time, cause error) *pending {
	r := Record{
		Time: time.Now(), Level: Error, Logger: "audit", Event: AuditDegraded,
		Metadata: Metadata{Reason: "log_broken", Attrs: []Attr{
			{"lost", strconv.FormatUint(lost, 10)},
			{"kept", strconv.Itoa(kept)},
			{"since", since.UTC().Format(timeLayout)},
		}},
	}
	if cause != nil {
		r.Error = cause.Error()
	}
	return l.newPending(&r, l.events[AuditDegraded], Synced)
}
