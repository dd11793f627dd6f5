package audit

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
)

// indexBatch is the number of records added to the index in one transaction.
const indexBatch = 2000

var errStale = errors.New("the audit index does not fit the segments")

// catchUp adds the records logged since the last call to the index. An index that does not match
// the segments is emptied and filled again.
func (l *Log) catchUp(ctx context.Context) error {
	select {
	case l.indexing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-l.indexing }()
	if l.tail().seq == l.indexed.Load() && l.indexed.Load() != 0 {
		return nil
	}
	err := l.fillIndex(ctx)
	if errors.Is(err, errStale) {
		if err = l.cfg.Index.Reset(ctx); err == nil {
			err = l.fillIndex(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("catch up the audit index: %w", err)
	}
	return nil
}

func (l *Log) resetIndex(ctx context.Context) error {
	l.indexing <- struct{}{}
	defer func() { <-l.indexing }()
	l.indexed.Store(0)
	return l.cfg.Index.Reset(ctx)
}

// fillIndex adds the records after the index's position, in batches. It returns errStale if the
// position does not exist in the segments.
func (l *Log) fillIndex(ctx context.Context) error {
	pos, err := l.cfg.Index.Position(ctx)
	if err != nil {
		return err
	}
	list, err := l.snapshot()
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return nil
	}
	if pos.Seq > 0 {
		i := slices.IndexFunc(list, func(s SegmentInfo) bool { return s.ID == pos.Segment })
		if i < 0 || pos.Offset > list[i].Size || len(pos.Hash) != hexLen || !l.stillThere(pos) {
			return errStale
		}
	}
	entries := make([]Entry, 0, indexBatch)
	for ln, err := range lines(l.cfg.Segments, list, pos.Segment, pos.Offset) {
		if err != nil && !errors.Is(err, errLongLine) {
			return err
		}
		var v view
		// Queries omit lines that fail verification; Verify reports them.
		k, ok := parseLink(ln.data)
		if err == nil && ok && !ln.header() && v.read(ln.data) == nil && k.seq > pos.Seq {
			entries = append(entries, v.entry(ln, k.seq))
			pos = Position{Seq: k.seq, Hash: hex.EncodeToString(k.hash[:]), Segment: ln.segment, Offset: ln.end()}
		}
		if len(entries) == indexBatch {
			if err := l.cfg.Index.Add(ctx, entries, pos); err != nil {
				return err
			}
			entries = entries[:0]
		}
	}
	if len(entries) > 0 {
		if err := l.cfg.Index.Add(ctx, entries, pos); err != nil {
			return err
		}
	}
	l.indexed.Store(pos.Seq)
	return nil
}

// stillThere reports whether the segments still hold the last indexed record at its position. They
// may have been replaced by a backup.
func (l *Log) stillThere(pos Position) bool {
	at := max(0, pos.Offset-chainRoom)
	data, err := l.readAt(pos.Segment, at, int(pos.Offset-at))
	if err != nil {
		return false
	}
	k, ok := parseLink(bytes.TrimSuffix(data, []byte("\n")))
	return ok && k.seq == pos.Seq && hex.EncodeToString(k.hash[:]) == pos.Hash
}

func (l *Log) readAt(segment uint64, offset int64, n int) ([]byte, error) {
	f, err := l.cfg.Segments.Open(segment, offset)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, n)
	_, err = io.ReadFull(f, data)
	return data, err
}

// snapshot returns the segments, with sizes up to the last record published so far.
func (l *Log) snapshot() ([]SegmentInfo, error) {
	end := l.tail()
	list, err := l.cfg.Segments.List()
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(s SegmentInfo) bool { return s.ID > end.segment && end.segment != 0 })
	if n := len(list); n > 0 && list[n-1].ID == end.segment {
		list[n-1].Size = end.offset
	}
	return list, nil
}

// fetch reads the lines of entries. stale reports whether a line is not at its indexed position.
func (l *Log) fetch(found []Entry) (out []json.RawMessage, stale bool, err error) {
	out = make([]json.RawMessage, 0, len(found))
	for _, e := range found {
		if e.Length <= 0 || e.Length > MaxLine {
			return nil, true, errStale
		}
		data, err := l.readAt(e.Segment, e.Offset, e.Length)
		if err != nil {
			return nil, true, err
		}
		if k, ok := parseLink(data); !ok || k.seq != e.Seq {
			return nil, true, errStale
		}
		out = append(out, data)
	}
	return out, false, nil
}

// search implements Query without an index: it reads all segments and returns the last matches,
// newest first.
func (l *Log) search(ctx context.Context, q Query) ([]json.RawMessage, error) {
	return search(ctx, l.cfg.Segments, l.snapshot, q)
}

// SearchSegments returns the lines of the matching records of a log that is not open, newest first: at
// most q.Limit, which must be above 0. denied selects as [Log.Denied] does.
func SearchSegments(ctx context.Context, segs Segments, q Query, denied bool) ([]json.RawMessage, error) {
	find := func(q Query) ([]json.RawMessage, error) { return search(ctx, segs, segs.List, q) }
	if denied {
		return deniedOf(find, q)
	}
	return find(q)
}

func search(ctx context.Context, segs Segments, snapshot func() ([]SegmentInfo, error), q Query) ([]json.RawMessage, error) {
	list, err := snapshot()
	if err != nil || len(list) == 0 {
		return nil, err
	}
	var out []json.RawMessage
	for ln, err := range lines(segs, list, list[0].ID, 0) {
		if err != nil && !errors.Is(err, errLongLine) {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var v view
		k, ok := parseLink(ln.data)
		if !ok || ln.header() || v.read(ln.data) != nil || !q.Match(v.entry(ln, k.seq)) {
			continue
		}
		if out = append(out, slices.Clone(ln.data)); len(out) >= 2*q.Limit {
			out = append(out[:0], out[len(out)-q.Limit:]...)
		}
	}
	slices.Reverse(out)
	return out[:min(len(out), q.Limit)], nil
}

// Tail yields the lines of records with a number >= from as they are written, until ctx
// ends; from 0 begins after the last one. It reads the segments instead of a queue, so that a
// slow reader neither uses memory nor blocks others.
func (l *Log) Tail(ctx context.Context, from uint64) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		wake := make(chan struct{}, 1)
		l.mu.Lock()
		l.watchers[wake] = struct{}{}
		end := l.end
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			delete(l.watchers, wake)
			l.mu.Unlock()
		}()
		at := place{Segment: end.segment, Offset: end.offset}
		if from == 0 {
			from = end.seq + 1
		} else if from <= end.seq {
			var err error
			if at, err = l.seek(from); err != nil {
				yield(nil, err)
				return
			}
		}
		for {
			list, err := l.snapshot()
			if err != nil {
				yield(nil, err)
				return
			}
			for ln, err := range lines(l.cfg.Segments, list, at.Segment, at.Offset) {
				if err != nil && !errors.Is(err, errLongLine) {
					yield(nil, err)
					return
				}
				at.Segment, at.Offset = ln.segment, ln.end()
				if k, ok := parseLink(ln.data); !ok || ln.header() || k.seq < from {
					continue
				}
				if !yield(slices.Clone(ln.data), nil) {
					return
				}
			}
			select {
			case <-wake:
			case <-ctx.Done():
				return
			}
		}
	}
}

// seek returns the start of the segment that holds record seq.
func (l *Log) seek(seq uint64) (place, error) {
	list, err := l.snapshot()
	if err != nil || len(list) == 0 {
		return place{}, err
	}
	at := place{Segment: list[0].ID}
	for _, s := range list {
		for ln, err := range lines(l.cfg.Segments, []SegmentInfo{s}, s.ID, 0) {
			if err != nil {
				return at, err
			}
			if h, _, ok := parseHeader(ln.data); ok && h.FirstSeq <= seq {
				at.Segment = s.ID
			}
			break
		}
	}
	return at, nil
}
