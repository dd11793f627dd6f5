package inproc

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/junctor-run/junctor/internal/nodes/messaging"
)

// maxPending is how many changes wait for a slow watcher before it gets a new
// snapshot instead.
const maxPending = 1024

// bucket is guarded by the broker's lock.
type bucket struct {
	b        *Broker
	o        messaging.BucketOptions
	entries  map[string]*stored
	revision uint64
	watchers map[*watcher]struct{}
}

type stored struct {
	value    []byte
	revision uint64
	expire   *time.Timer // nil without a TTL
}

type watcher struct {
	wake    chan struct{}
	pending []messaging.Change
	reset   bool // a snapshot is due, in place of what is pending
}

func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Bucket opens a bucket. Options other than those it was made with take its
// place for what is written from now on.
func (b *Broker) Bucket(ctx context.Context, o messaging.BucketOptions) (messaging.Bucket, error) {
	if err := errors.Join(ctx.Err(), messaging.CheckBucket(o)); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.own.usable("bucket"); err != nil {
		return nil, err
	}
	k := b.buckets[o.Name]
	if k == nil {
		k = &bucket{b: b, entries: make(map[string]*stored), watchers: make(map[*watcher]struct{})}
		b.buckets[o.Name] = k
	}
	k.o = o
	return k, nil
}

// begin checks what every method checks, and locks when all is well.
func (k *bucket) begin(ctx context.Context, key string, value []byte) (unlock func(), err error) {
	if err := errors.Join(ctx.Err(), messaging.CheckEntry(key, value)); err != nil {
		return nil, err
	}
	k.b.mu.Lock()
	if err := k.b.own.usable("bucket"); err != nil {
		k.b.mu.Unlock()
		return nil, err
	}
	return k.b.mu.Unlock, nil
}

func (k *bucket) Get(ctx context.Context, key string) (messaging.Entry, error) {
	unlock, err := k.begin(ctx, key, nil)
	if err != nil {
		return messaging.Entry{}, err
	}
	defer unlock()
	e := k.entries[key]
	if e == nil {
		return messaging.Entry{}, messaging.ErrKeyAbsent(key)
	}
	return messaging.Entry{Key: key, Value: e.value, Revision: e.revision}, nil
}

func (k *bucket) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	unlock, err := k.begin(ctx, key, value)
	if err != nil {
		return 0, err
	}
	defer unlock()
	return k.write(key, value), nil
}

func (k *bucket) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	unlock, err := k.begin(ctx, key, value)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if k.entries[key] != nil {
		return 0, messaging.ErrRevision(key)
	}
	return k.write(key, value), nil
}

func (k *bucket) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	unlock, err := k.begin(ctx, key, value)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if e := k.entries[key]; e == nil || e.revision != revision {
		return 0, messaging.ErrRevision(key)
	}
	return k.write(key, value), nil
}

func (k *bucket) Delete(ctx context.Context, key string, revision uint64) error {
	unlock, err := k.begin(ctx, key, nil)
	if err != nil {
		return err
	}
	defer unlock()
	e := k.entries[key]
	switch {
	case revision > 0 && (e == nil || e.revision != revision):
		return messaging.ErrRevision(key)
	case e != nil:
		k.erase(key)
	}
	return nil
}

// write stores an entry; the lock is held.
func (k *bucket) write(key string, value []byte) uint64 {
	if old := k.entries[key]; old != nil && old.expire != nil {
		old.expire.Stop()
	}
	k.revision++
	e := &stored{value: bytes.Clone(value), revision: k.revision}
	if k.o.TTL > 0 {
		e.expire = time.AfterFunc(k.o.TTL, func() {
			k.b.mu.Lock()
			defer k.b.mu.Unlock()
			if k.entries[key] == e {
				k.erase(key)
			}
		})
	}
	k.entries[key] = e
	k.tell(messaging.Change{Kind: messaging.Put, Entry: messaging.Entry{Key: key, Value: e.value, Revision: e.revision}})
	return e.revision
}

// erase removes an entry that is there; the lock is held.
func (k *bucket) erase(key string) {
	if e := k.entries[key]; e.expire != nil {
		e.expire.Stop()
	}
	delete(k.entries, key)
	k.revision++
	k.tell(messaging.Change{Kind: messaging.Deleted, Entry: messaging.Entry{Key: key, Revision: k.revision}})
}

func (k *bucket) tell(c messaging.Change) {
	for w := range k.watchers {
		if len(w.pending) >= maxPending {
			w.reset, w.pending = true, nil
		}
		if !w.reset {
			w.pending = append(w.pending, c)
		}
		w.signal()
	}
}

// reset has every watcher take a new snapshot; the lock is held.
func (k *bucket) reset() {
	for w := range k.watchers {
		w.reset, w.pending = true, nil
		w.signal()
	}
}

// close stops the clocks and ends the watches; the lock is held.
func (k *bucket) close() {
	for _, e := range k.entries {
		if e.expire != nil {
			e.expire.Stop()
		}
	}
	for w := range k.watchers {
		w.signal()
	}
}

func (k *bucket) Watch(ctx context.Context) iter.Seq2[messaging.Change, error] {
	return func(yield func(messaging.Change, error) bool) {
		w := &watcher{wake: make(chan struct{}, 1), reset: true}
		k.b.mu.Lock()
		k.watchers[w] = struct{}{}
		k.b.mu.Unlock()
		defer func() {
			k.b.mu.Lock()
			defer k.b.mu.Unlock()
			delete(k.watchers, w)
		}()
		for {
			batch, err := k.next(w)
			for _, c := range batch {
				if !yield(c, nil) {
					return
				}
			}
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(messaging.Change{}, err)
				return
			}
			if len(batch) > 0 {
				continue
			}
			select {
			case <-w.wake:
			case <-ctx.Done():
			}
		}
	}
}

// next takes what waits for w.
func (k *bucket) next(w *watcher) ([]messaging.Change, error) {
	k.b.mu.Lock()
	defer k.b.mu.Unlock()
	if k.b.closed {
		return nil, messaging.ErrClosed("watch")
	}
	if !k.b.own.up {
		return nil, nil // it comes back with a snapshot
	}
	if !w.reset {
		batch := w.pending
		w.pending = nil
		return batch, nil
	}
	w.reset, w.pending = false, nil
	batch := []messaging.Change{{Kind: messaging.Reset}}
	for _, key := range slices.Sorted(maps.Keys(k.entries)) {
		e := k.entries[key]
		batch = append(batch, messaging.Change{Kind: messaging.Put, Entry: messaging.Entry{Key: key, Value: e.value, Revision: e.revision}})
	}
	return append(batch, messaging.Change{Kind: messaging.Synced}), nil
}
