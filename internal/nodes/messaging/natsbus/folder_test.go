package natsbus_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsbus"
)

// TestABucketWhoseFilesWereRemovedIsMadeAnew: the server goes on with files that it has
// open, an empty list after a start.
func TestABucketWhoseFilesWereRemovedIsMadeAnew(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "nats")
	b, err := natsbus.Embed(t.Context(), dir, natsbus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	k, err := b.Bucket(t.Context(), messaging.BucketOptions{Name: "nodes"})
	if err == nil {
		_, err = k.Put(t.Context(), "before", []byte("x"))
	}
	b.Close()
	if err == nil {
		b, err = natsbus.Embed(t.Context(), dir, natsbus.Config{})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if k, err = b.Bucket(t.Context(), messaging.BucketOptions{Name: "nodes"}); err != nil {
		t.Fatal(err)
	}
	changes := make(chan messaging.Change, 100)
	go func() { // ends with the test's context
		for c, err := range k.Watch(t.Context()) {
			if err != nil {
				return
			}
			changes <- c
		}
	}()
	until := func(kind messaging.ChangeKind, key string) {
		t.Helper()
		for {
			select {
			case c := <-changes:
				if c.Kind == kind && c.Entry.Key == key {
					return
				}
			case <-time.After(time.Minute):
				t.Fatalf("the watch has not shown %s %s", kind, key)
			}
		}
	}
	until(messaging.Synced, "")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Put(t.Context(), "after", []byte("y")); err != nil {
		t.Fatal(err)
	}
	until(messaging.Reset, "")
	until(messaging.Put, "after")
	if _, err := os.Stat(filepath.Join(dir, "jetstream")); err != nil {
		t.Errorf("its files were not made anew, so this proves nothing: %v", err)
	}
	if _, err := k.Get(t.Context(), "before"); err == nil {
		t.Error("what was lost is there; want an error")
	}
}
