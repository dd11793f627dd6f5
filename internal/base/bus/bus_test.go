package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// take reads n events; the sequence must have them already.
func take(t *testing.T, b *Bus, after uint64, n int) []string {
	t.Helper()
	var got []string
	if n == 0 {
		return nil
	}
	for e, err := range b.Subscribe(t.Context(), after) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%d %s", e.ID, e.Type))
		if len(got) == n {
			break
		}
	}
	return got
}

func TestReplay(t *testing.T) {
	t.Parallel()
	b := New(Config{Replay: 3})
	for i := range 5 {
		b.Publish(fmt.Sprintf("e.%d", i+1), nil)
	}
	tests := []struct {
		name  string
		after uint64
		want  []string
	}{
		{"from the middle", 3, []string{"4 e.4", "5 e.5"}},
		{"the oldest kept is the next", 2, []string{"3 e.3", "4 e.4", "5 e.5"}},
		{"too old", 1, []string{"5 resync"}},
		{"from an earlier process", 77, []string{"5 resync"}},
		{"everything kept", 0, []string{"3 e.3", "4 e.4", "5 e.5"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, take(t, b, tt.after, len(tt.want))); diff != "" {
				t.Errorf("diff (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReplayGoesOnLiveWithoutAGap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{})
		b.Publish("a.made", nil)
		ctx, cancel := context.WithCancel(t.Context())
		var got []uint64
		var end error
		var wg sync.WaitGroup
		wg.Go(func() {
			for e, err := range b.Subscribe(ctx, 0) {
				if end = err; err == nil {
					got = append(got, e.ID)
				}
			}
		})
		synctest.Wait()
		b.Publish("b.made", json.RawMessage(`{"n":1}`))
		b.Publish("c.made", nil)
		time.Sleep(time.Hour)
		b.Publish("d.made", nil)
		synctest.Wait()
		cancel()
		wg.Wait()
		if diff := cmp.Diff([]uint64{1, 2, 3, 4}, got); diff != "" || !errors.Is(end, context.Canceled) {
			t.Errorf(`%s, ended with %v; want diff = "", end is context.Canceled`, diff, end)
		}
	})
}

func TestSlowSubscriberIsToldToResyncAndGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{Lag: 1000})
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		var got []string
		var wg sync.WaitGroup
		wg.Go(func() {
			for e, err := range b.Subscribe(ctx, b.Latest()) {
				if err != nil {
					return
				}
				got = append(got, fmt.Sprintf("%d %s", e.ID, e.Type))
				<-release
			}
		})
		synctest.Wait()
		b.Publish("first.made", nil)
		synctest.Wait() // the subscriber is stuck in its loop now
		data, _ := json.Marshal(strings.Repeat("x", 200))
		for range 10 {
			b.Publish("more.made", data)
		}
		close(release)
		synctest.Wait()
		b.Publish("last.made", nil)
		synctest.Wait()
		cancel()
		wg.Wait()
		if diff := cmp.Diff([]string{"1 first.made", "11 resync", "12 last.made"}, got); diff != "" {
			t.Errorf("diff (-want +got):\n%s", diff)
		}
	})
}

func TestOneLargeEventIsNotLag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{Lag: 100})
		var got string
		var wg sync.WaitGroup
		wg.Go(func() {
			for e, err := range b.Subscribe(t.Context(), 0) {
				if err == nil {
					got = e.Type
				}
				break
			}
		})
		synctest.Wait()
		data, _ := json.Marshal(strings.Repeat("x", 500))
		b.Publish("large.made", data)
		wg.Wait()
		if got != "large.made" {
			t.Errorf(`got %q; want got = "large.made"`, got)
		}
	})
}

func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{})
		var got []string
		var end error
		var wg sync.WaitGroup
		wg.Go(func() {
			for e, err := range b.Subscribe(t.Context(), 0) {
				if end = err; err == nil {
					got = append(got, e.Type)
				}
			}
		})
		synctest.Wait()
		b.Publish("last.made", nil)
		b.Close()
		b.Close()
		wg.Wait()
		if len(got) != 1 || capability.CodeOf(end) != capability.CodeUnavailable {
			t.Errorf("got %v, %v; want len(got) = 1, capability.CodeOf(end) = capability.CodeUnavailable", got, end)
		}
		if id := b.Publish("late.made", nil); id != 0 {
			t.Errorf("published %d after the end; want id = 0", id)
		}
	})
}

func TestPublishKeepsItsOwnCopyAndDropsBadData(t *testing.T) {
	t.Parallel()
	b := New(Config{})
	data := json.RawMessage(`{"a":1}`)
	b.Publish("a.made", data)
	data[2] = 'b'
	b.Publish("b.made", json.RawMessage(`{`))
	b.Publish("c.made", json.RawMessage(`"`+strings.Repeat("x", maxData)+`"`))
	var got []string
	for e := range b.Subscribe(t.Context(), 0) {
		got = append(got, string(e.Data))
		if len(got) == 3 {
			break
		}
	}
	if diff := cmp.Diff([]string{`{"a":1}`, "", ""}, got); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
}

func TestManyPublishersAndSubscribers(t *testing.T) {
	t.Parallel()
	b := New(Config{Replay: 10_000})
	const publishers, each = 4, 500
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			var last uint64
			for e, err := range b.Subscribe(t.Context(), 0) {
				if err != nil || e.ID != last+1 || e.Type == Resync {
					t.Errorf("after %d came %d %s, %v; want no error, e.ID = last + 1, e.Type other than %v",
						last, e.ID, e.Type, err, Resync)
					return
				}
				if last = e.ID; last == publishers*each {
					return
				}
			}
		})
	}
	for range publishers {
		wg.Go(func() {
			for range each {
				b.Publish("x.made", nil)
			}
		})
	}
	wg.Wait()
}

func BenchmarkPublish(b *testing.B) {
	bus := New(Config{})
	b.ReportAllocs()
	for b.Loop() {
		bus.Publish("x.made", nil)
	}
}
