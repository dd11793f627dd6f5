package messagingtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
)

func (s *suite) bucket(t *testing.T, o messaging.BucketOptions) messaging.Bucket {
	t.Helper()
	k, err := s.Broker.Bucket(within(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func compareAndSet(t *testing.T, s *suite) {
	k, ctx := s.bucket(t, messaging.BucketOptions{Name: "cas"}), within(t)
	key := messaging.Escape("node.1")
	if _, err := k.Get(ctx, key); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("get before create: %v", err)
	}
	first, err := k.Create(ctx, key, []byte("a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Create(ctx, key, []byte("b")); !messaging.Is(err, messaging.ReasonRevision) {
		t.Errorf("create twice: %v", err)
	}
	second, err := k.Update(ctx, key, []byte("c"), first)
	if err != nil || second <= first {
		t.Fatalf("update: %d after %d, %v", second, first, err)
	}
	if _, err := k.Update(ctx, key, []byte("d"), first); !messaging.Is(err, messaging.ReasonRevision) {
		t.Errorf("update of an old revision: %v", err)
	}
	if err := k.Delete(ctx, key, first); !messaging.Is(err, messaging.ReasonRevision) {
		t.Errorf("delete of an old revision: %v", err)
	}
	if e, err := k.Get(ctx, key); err != nil || string(e.Value) != "c" || e.Revision != second || e.Key != key {
		t.Errorf("get: %+v, %v", e, err)
	}
	// Another handle sees the same bucket.
	if e, err := s.bucket(t, messaging.BucketOptions{Name: "cas"}).Get(ctx, key); err != nil || string(e.Value) != "c" {
		t.Errorf("through another handle: %+v, %v", e, err)
	}
	if err := k.Delete(ctx, key, second); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := k.Delete(ctx, key, 0); err != nil {
		t.Errorf("delete of what is not there: %v", err)
	}
	if _, err := k.Get(ctx, key); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("get after delete: %v", err)
	}
	if rev, err := k.Create(ctx, key, []byte("e")); err != nil || rev <= second {
		t.Errorf("create after delete: %d, %v", rev, err)
	}
	if _, err := k.Put(ctx, key, make([]byte, messaging.MaxValue)); err != nil {
		t.Errorf("a value at the limit: %v", err)
	}
	if _, err := k.Put(ctx, key, make([]byte, messaging.MaxValue+1)); !messaging.Is(err, messaging.ReasonTooLarge) {
		t.Errorf("a value above: %v", err)
	}
	if _, err := k.Put(ctx, "a/b c", nil); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("a key that cannot be one: %v", err)
	}
}

// follow watches in the background; the result waits for one change.
func follow(t *testing.T, k messaging.Bucket) func(*testing.T) messaging.Change {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 3*waitTimeout)
	out, done := make(chan messaging.Change, 1000), make(chan struct{})
	go func() {
		defer close(done)
		defer close(out)
		for c, err := range k.Watch(ctx) {
			if err != nil {
				return
			}
			out <- c
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return func(t *testing.T) messaging.Change {
		t.Helper()
		c, ok := <-out
		if !ok {
			t.Fatal("the watch has ended")
		}
		return c
	}
}

func told(t *testing.T, next func(*testing.T) messaging.Change, want ...string) {
	t.Helper()
	for i, w := range want {
		c := next(t)
		got := string(c.Kind)
		if c.Entry.Key != "" {
			got += " " + c.Entry.Key
		}
		if c.Kind == messaging.Put {
			got += "=" + string(c.Entry.Value)
		}
		if got != w {
			t.Fatalf("change %d is %q, want %q", i+1, got, w)
		}
	}
}

func watch(t *testing.T, s *suite) {
	k, ctx := s.bucket(t, messaging.BucketOptions{Name: "watched"}), within(t)
	empty := follow(t, k)
	told(t, empty, "reset", "synced")
	first, err := k.Put(ctx, "a", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	told(t, empty, "put a=1")
	if _, err := k.Put(ctx, "gone", nil); err != nil {
		t.Fatal(err)
	}
	told(t, empty, "put gone=") // else only the deletion might be told
	if err := k.Delete(ctx, "gone", 0); err != nil {
		t.Fatal(err)
	}
	told(t, empty, "deleted gone")
	late := follow(t, k)
	told(t, late, "reset", "put a=1", "synced")
	if _, err := k.Update(ctx, "a", []byte("2"), first); err != nil {
		t.Fatal(err)
	}
	told(t, late, "put a=2")
	told(t, empty, "put a=2")
}

func ttl(t *testing.T, s *suite) {
	k, ctx := s.bucket(t, messaging.BucketOptions{Name: "leases", TTL: time.Second}), within(t)
	changes := follow(t, k)
	told(t, changes, "reset", "synced")
	if _, err := k.Put(ctx, "lease", []byte("1")); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	told(t, changes, "put lease=1", "deleted lease")
	if took := time.Since(began); took < 500*time.Millisecond || took > waitTimeout {
		t.Errorf("forgotten after %s", took)
	}
	if _, err := k.Get(ctx, "lease"); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("get: %v", err)
	}
	if _, err := k.Create(ctx, "lease", nil); err != nil {
		t.Errorf("create after that: %v", err)
	}
}

// watchComesBack breaks every session. A bucket may come back empty; a watch may
// not stay quiet.
func watchComesBack(t *testing.T, s *suite) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*waitTimeout)
	defer cancel()
	k, err := s.Broker.Bucket(ctx, messaging.BucketOptions{Name: "broken"})
	if err != nil {
		t.Error(err)
		return
	}
	changes := make(chan messaging.Change, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for c, err := range k.Watch(ctx) {
			if err != nil {
				return
			}
			changes <- c
		}
	}()
	defer func() { cancel(); <-done }()
	until := func(what string, ok func(messaging.Change) bool) bool {
		for {
			select {
			case c := <-changes:
				if ok(c) {
					return true
				}
			case <-ctx.Done():
				t.Errorf("%s: never told", what)
				return false
			}
		}
	}
	synced := func(c messaging.Change) bool { return c.Kind == messaging.Synced }
	if !until("the first snapshot", synced) {
		return
	}
	for round := range 3 {
		began := time.Now()
		s.Interrupt()
		if !until("a snapshot after an interruption", synced) {
			return
		}
		t.Logf("a new snapshot after %s", time.Since(began))
		value := fmt.Sprint(round)
		for {
			if _, err = k.Put(ctx, "a", []byte(value)); err == nil || ctx.Err() != nil {
				break
			}
		}
		if err != nil {
			t.Errorf("put: %v", err)
			return
		}
		if !until("a change after that", func(c messaging.Change) bool { return c.Kind == messaging.Put && string(c.Entry.Value) == value }) {
			return
		}
	}
}
