package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/pause"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
)

// shared synchronizes the table with the bucket in which all gateways store the nodes.
type shared struct {
	g      *Gateway
	bucket messaging.Bucket
	codec  fleet.Codec

	mu     sync.Mutex
	rows   map[string]*row // by key
	synced bool            // a snapshot was received completely once
	fresh  []fleet.Record  // new records of the current snapshot
	inside bool            // a snapshot is being received
}

// row is the state of one entry. The table always contains the content of revision,
// because revision is set last.
type row struct {
	node     string
	revision uint64    // 0 if the entry is not known to exist
	written  time.Time // when it was last written or seen
	shown    bool      // it is part of this snapshot
	removing bool      // this gateway is removing it, so its deletion is expected
	writing  int       // this gateway is writing it, so it may be missing in a snapshot
}

// attempts is how often a change is retried after concurrent changes of others.
const attempts = 16

// keyOf returns the key of a node's entry: the escaped id, or a digest if that is too long.
func keyOf(node string) string {
	if key := messaging.Escape(node); len(key) <= 200 {
		return key
	}
	sum := sha256.Sum256([]byte(node))
	return "sha256=" + hex.EncodeToString(sum[:])
}

// open opens the bucket. It retries, because servers that have just formed a cluster may not
// be ready.
func (s *shared) open(ctx context.Context) (err error) {
	for {
		s.bucket, err = s.g.cfg.Broker.Bucket(ctx, messaging.BucketOptions{Name: bucketName})
		if err == nil || ctx.Err() != nil || messaging.Is(err, messaging.ReasonClosed) {
			return err
		}
		s.g.cfg.Logger.Warn("the table of nodes cannot be opened yet", "err", err)
		if err := pause.For(ctx, time.Second); err != nil {
			return err
		}
	}
}

// row returns the row of a node, which it creates if needed. The caller holds s.mu.
func (s *shared) row(node string) *row {
	r := s.rows[keyOf(node)]
	if r == nil {
		r = &row{node: node}
		s.rows[keyOf(node)] = r
	}
	return r
}

func (s *shared) revision(node string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.row(node).revision
}

// know records the revision of an entry that was just written or read.
func (s *shared) know(node string, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.row(node)
	r.revision, r.written, r.shown = revision, s.g.cfg.Fleet.Now(), true
}

func (s *shared) isSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// busy marks a node's entry as being written until done is called.
func (s *shared) busy(node string) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.row(node)
	r.writing++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		r.writing--
		s.tidy(r)
	}
}

// tidy removes a row without information. The caller holds s.mu.
func (s *shared) tidy(r *row) {
	if _, there := s.g.table.Record(r.node); r.writing == 0 && !r.removing && r.revision == 0 && !there && s.rows[keyOf(r.node)] == r {
		delete(s.rows, keyOf(r.node))
	}
}

// write stores a record in the bucket and then in the table. propose is called again if
// another gateway changed the entry first; it returns ok false if nothing needs to be done.
// written receives the record before subscribers are notified; it may be nil.
func (s *shared) write(ctx context.Context, node string, propose func() (r fleet.Record, ok bool, err error),
	written func(fleet.Record),
) error {
	defer s.busy(node)()
	for range attempts {
		// The revision is read first, so that the table contains at least its content and
		// the proposed record is newer.
		revision := s.revision(node)
		rec, ok, err := propose()
		if err != nil || !ok {
			return err
		}
		data, err := s.codec.Encode(&rec, messaging.MaxValue)
		if err != nil {
			return err
		}
		if revision == 0 {
			revision, err = s.bucket.Create(ctx, keyOf(node), data)
		} else {
			revision, err = s.bucket.Update(ctx, keyOf(node), data, revision)
		}
		if messaging.Is(err, messaging.ReasonRevision) {
			_, err = s.learn(ctx, node)
			if err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return s.unavailable(err)
		}
		if written != nil {
			written(rec)
		}
		s.g.change(ctx, func() []fleet.Event { return s.g.table.Take(rec) })
		s.know(node, revision)
		return nil
	}
	return capability.Errorf(capability.CodeUnavailable, "nodes.table", "the entry of the node %s is being changed by others all the time",
		node).With("", "try again in a moment")
}

func (s *shared) unavailable(err error) error {
	return capability.Wrap(capability.CodeUnavailable, "nodes.table", "the table of nodes cannot be written at the moment", err).With("",
		"it is tried again: the message bus has to come back first")
}

// learn reads a node's entry into the table. there is false if the entry does not exist.
func (s *shared) learn(ctx context.Context, node string) (there bool, err error) {
	e, err := s.bucket.Get(ctx, keyOf(node))
	if capability.CodeOf(err) == capability.CodeNotFound && err != nil {
		s.mu.Lock()
		s.row(node).revision = 0
		s.mu.Unlock()
		return false, nil
	}
	if err != nil {
		return false, s.unavailable(err)
	}
	s.take(ctx, e)
	s.know(node, e.Revision)
	return true, nil
}

// take applies the record of an entry to the table. ok is false for an unreadable entry,
// which will be overwritten.
func (s *shared) take(ctx context.Context, e messaging.Entry) (r fleet.Record, ok bool) {
	r, err := s.codec.Decode(e.Value)
	if err != nil || keyOf(r.ID) != e.Key {
		s.g.cfg.Logger.Warn("an entry of the table of nodes is not one of ours", "key", e.Key, "err", err)
		return r, false
	}
	s.g.change(ctx, func() []fleet.Event { return s.g.table.Take(r) })
	return r, true
}

// claim marks a node as being removed; the caller must call remove. It returns false if it
// is marked already.
func (s *shared) claim(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.row(node)
	claimed := !r.removing
	r.removing = true
	return claimed
}

// remove deletes a claimed node from the bucket and then from the table. Of several
// gateways, the event is "ours" in the one that deletes the entry.
func (s *shared) remove(ctx context.Context, d fleet.Due) error {
	s.mu.Lock()
	r := s.row(d.Node)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		r.removing = false
		s.tidy(r)
	}()
	drop := func(ours bool) {
		s.g.change(ctx, func() []fleet.Event { return s.g.table.Drop(d.Node, d.Epoch, d.Reason, ours) })
	}
	for range attempts {
		revision := s.revision(d.Node) // before the table is read, as in write
		n, ok := s.g.table.Get(d.Node)
		if !ok || n.Epoch != d.Epoch {
			return nil // it has joined again, or was removed
		}
		if revision == 0 {
			switch there, err := s.learn(ctx, d.Node); {
			case err != nil:
				return err
			case !there:
				drop(n.Gateway == s.g.instance)
				return nil
			}
			continue
		}
		err := s.bucket.Delete(ctx, keyOf(d.Node), revision)
		if messaging.Is(err, messaging.ReasonRevision) {
			there, err := s.learn(ctx, d.Node)
			if err != nil {
				return err
			}
			if !there {
				drop(false)
				return nil
			}
			continue
		}
		if err != nil {
			s.g.cfg.Logger.Warn("a node that is gone is still in the shared table", "node", d.Node, "err", err)
			return s.unavailable(err)
		}
		s.mu.Lock()
		r.revision = 0
		s.mu.Unlock()
		drop(true)
		return nil
	}
	return capability.Errorf(capability.CodeUnavailable, "nodes.table", "the entry of the node %s is being changed by others all the time",
		d.Node)
}
