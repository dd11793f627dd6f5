package natsbus

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
)

type bucket struct {
	b  *Broker
	o  messaging.BucketOptions
	kv jetstream.KeyValue
}

// Bucket opens a bucket, and creates it if needed.
func (b *Broker) Bucket(ctx context.Context, o messaging.BucketOptions) (messaging.Bucket, error) {
	if err := errors.Join(ctx.Err(), messaging.CheckBucket(o)); err != nil {
		return nil, err
	}
	k := &bucket{b: b, o: o}
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	for {
		err := k.open(ctx)
		if err == nil {
			return k, nil
		}
		// Servers that have just met have no leader, and do not answer.
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrNoResponders) {
			return nil, k.fault(o.Name, err)
		}
		select {
		case <-time.After(retryDelay):
		case <-ctx.Done():
		}
	}
}

func (k *bucket) open(ctx context.Context) error {
	if err := k.b.own.Usable("bucket"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, bucketTimeout)
	defer cancel()
	marker := markerTTL
	if k.o.TTL > 0 {
		marker = min(marker, max(k.o.TTL, time.Second))
	}
	kv, err := k.b.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: k.o.Name, TTL: k.o.TTL, LimitMarkerTTL: marker, MaxValueSize: messaging.MaxValue,
		Storage: jetstream.FileStorage, Replicas: k.b.replicas,
	})
	if err != nil {
		return err
	}
	if k.kv == nil {
		k.kv = kv
	}
	return nil
}

// fault translates what the library says.
func (k *bucket) fault(key string, err error) error {
	var known *capability.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.Is(err, jetstream.ErrKeyNotFound), errors.Is(err, jetstream.ErrKeyDeleted):
		return messaging.ErrKeyAbsent(key)
	case wrongRevision(err):
		return messaging.ErrRevision(key)
	case errors.Is(err, jetstream.ErrBucketNotFound), errors.Is(err, jetstream.ErrStreamNotFound),
		errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return capability.Wrap(capability.CodeUnavailable, "bus.bucket", "the bucket is not there right now",
			err).With(messaging.ReasonDisconnected, "it is created again, or its servers come back")
	}
	return k.b.own.Fault("bucket", key, err)
}

func wrongRevision(err error) bool {
	return errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch)
}

// begin checks what every method checks.
func (k *bucket) begin(ctx context.Context, key string, value []byte) (context.Context, context.CancelFunc, error) {
	if err := errors.Join(ctx.Err(), messaging.CheckEntry(key, value), k.b.own.Usable("bucket")); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, bucketTimeout)
	return ctx, cancel, nil
}

func (k *bucket) Get(ctx context.Context, key string) (messaging.Entry, error) {
	ctx, cancel, err := k.begin(ctx, key, nil)
	if err != nil {
		return messaging.Entry{}, err
	}
	defer cancel()
	e, err := k.kv.Get(ctx, key)
	if err != nil {
		return messaging.Entry{}, k.fault(key, err)
	}
	return messaging.Entry{Key: key, Value: e.Value(), Revision: e.Revision()}, nil
}

func (k *bucket) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	return k.write(ctx, key, value, func(ctx context.Context) (uint64, error) { return k.kv.Put(ctx, key, value) })
}

func (k *bucket) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	return k.write(ctx, key, value, func(ctx context.Context) (uint64, error) { return k.kv.Create(ctx, key, value) })
}

func (k *bucket) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if revision == 0 {
		return 0, messaging.ErrRevision(key) // to the server it would mean Create
	}
	return k.write(ctx, key, value, func(ctx context.Context) (uint64, error) { return k.kv.Update(ctx, key, value, revision) })
}

func (k *bucket) write(ctx context.Context, key string, value []byte, do func(context.Context) (uint64, error)) (uint64, error) {
	ctx, cancel, err := k.begin(ctx, key, value)
	if err != nil {
		return 0, err
	}
	defer cancel()
	made := k.b.bucketsMade()
	revision, err := do(ctx)
	if err != nil && k.filesGone() && k.remake(made) == nil {
		ctx, cancel := context.WithTimeout(k.b.ctx, bucketTimeout)
		defer cancel()
		revision, err = do(ctx)
	}
	return revision, k.fault(key, err)
}

// filesGone reports whether another process has removed the files of a bucket of the embedded
// server, which does not answer then what it cannot keep.
func (k *bucket) filesGone() bool {
	if !k.b.embedded {
		return false
	}
	_, err := os.Stat(filepath.Join(k.b.dir, "jetstream", account, "streams", "KV_"+k.o.Name, "msgs"))
	return errors.Is(err, fs.ErrNotExist)
}

// bucketsMade is closed when a bucket of the embedded server is created again.
func (b *Broker) bucketsMade() chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.made
}

// remake creates a bucket again, empty, whose files in the embedded server's directory
// another process has removed while it runs. The watchers start over, and write again
// what they know.
func (k *bucket) remake(made chan struct{}) error {
	b := k.b
	ctx, cancel := context.WithTimeout(b.ctx, defaultTimeout)
	defer cancel()
	b.remaking.Lock()
	defer b.remaking.Unlock()
	if b.bucketsMade() != made { // another goroutine has
		return nil
	}
	b.cfg.Logger.Warn("the files of the message bus are gone: a bucket is created again", "bucket", k.o.Name)
	if err := b.js.DeleteKeyValue(ctx, k.o.Name); err != nil && !errors.Is(err, jetstream.ErrBucketNotFound) &&
		!errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	if err := k.open(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.made)
	b.made = make(chan struct{})
	return nil
}

func (k *bucket) Delete(ctx context.Context, key string, revision uint64) error {
	ctx, cancel, err := k.begin(ctx, key, nil)
	if err != nil {
		return err
	}
	defer cancel()
	if revision == 0 { // what is not there leaves no mark
		_, err := k.kv.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return nil
		}
		if err != nil {
			return k.fault(key, err)
		}
	}
	opts := []jetstream.KVDeleteOpt{jetstream.PurgeTTL(markerTTL)}
	if revision > 0 {
		opts = append(opts, jetstream.LastRevision(revision))
	}
	made := k.b.bucketsMade()
	err = k.kv.Purge(ctx, key, opts...)
	if err != nil && k.filesGone() && k.remake(made) == nil {
		return nil // everything is gone
	}
	return k.fault(key, err)
}

// Watch is a loop around the library's watch: each turn is one snapshot and what
// follows it, until there is a reason to start over.
func (k *bucket) Watch(ctx context.Context) iter.Seq2[messaging.Change, error] {
	return func(yield func(messaging.Change, error) bool) {
		for {
			back, broken, closed := k.b.own.Watch()
			if closed {
				yield(messaging.Change{}, messaging.ErrClosed("watch"))
				return
			}
			select {
			case <-back:
				switch err := k.turn(ctx, broken, yield); {
				case errors.Is(err, errStopped):
					return
				case err != nil:
					k.b.cfg.Logger.Debug("a watch starts again", "bucket", k.o.Name, "err", err)
				}
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				yield(messaging.Change{}, ctx.Err())
				return
			}
			select {
			case <-time.After(retryDelay):
			case <-ctx.Done():
			}
		}
	}
}

var (
	errStopped = errors.New("the reader has stopped")
	errMissed  = errors.New("the bucket has changed and the watch was not told")
)

// turn yields one snapshot and what follows.
func (k *bucket) turn(ctx context.Context, broken <-chan struct{}, yield func(messaging.Change, error) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	made := k.b.bucketsMade()
	if err := k.open(ctx); err != nil { // it may have been lost with its servers
		return err
	}
	w, err := k.kv.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = w.Stop() }()
	if !yield(messaging.Change{Kind: messaging.Reset}, nil) {
		return errStopped
	}
	t := turn{k: k, shown: make(map[string]bool), yield: yield}
	var tick <-chan time.Time
	if !k.b.embedded {
		ticker := time.NewTicker(checkInterval)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case e, ok := <-w.Updates():
			if !ok {
				return errMissed
			}
			if !t.take(e) {
				return errStopped
			}
		case <-made:
			return errMissed
		case <-broken:
			return messaging.ErrDisconnected("watch")
		case <-tick:
			if err := t.compare(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// turn is what is known of one snapshot.
type turn struct {
	k      *bucket
	yield  func(messaging.Change, error) bool
	shown  map[string]bool // in this snapshot; nil once it is complete
	seen   uint64          // last revision
	behind uint64          // what seen was when it was found to be behind
	late   bool
}

func (t *turn) take(e jetstream.KeyValueEntry) bool {
	if e == nil {
		t.shown = nil
		return t.yield(messaging.Change{Kind: messaging.Synced}, nil)
	}
	t.seen = max(t.seen, e.Revision())
	entry := messaging.Entry{Key: e.Key(), Revision: e.Revision()}
	if e.Operation() != jetstream.KeyValuePut {
		if t.shown != nil && !t.shown[e.Key()] {
			return true // the mark of one that was gone before
		}
		return t.yield(messaging.Change{Kind: messaging.Deleted, Entry: entry}, nil)
	}
	if t.shown != nil {
		t.shown[e.Key()] = true
	}
	entry.Value = e.Value()
	return t.yield(messaging.Change{Kind: messaging.Put, Entry: entry}, nil)
}

// compare fails when the bucket is ahead of the watch for two checks in a row,
// or cannot be read.
func (t *turn) compare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkInterval)
	defer cancel()
	status, err := t.k.kv.Status(ctx)
	if err != nil {
		if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		return nil // its servers are choosing a leader; nothing can have changed
	}
	last := status.(*jetstream.KeyValueBucketStatus).StreamInfo().State.LastSeq
	if last <= t.seen {
		t.late = false
		return nil
	}
	if t.late && t.behind == t.seen {
		return errMissed
	}
	t.late, t.behind = true, t.seen
	return nil
}
