//go:build soak

package natsbus

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/junctor-run/junctor/internal/nodes/messaging"
)

// TestSoakAThousandIdleSessions: a thousand nodes come at once by WebSocket,
// stay silent past two pings, each receive one call, and leave nothing.
func TestSoakAThousandIdleSessions(t *testing.T) {
	const count = 1000
	b := embed(t, anybody)
	url := serveWeb(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	sessions := b.Sessions(ctx)
	left := make(chan error, 1)
	go func() { left <- comeAndGo(sessions, count) }()
	dial := dialer(t, url)
	before := inUse()
	goroutines := runtime.NumGoroutine()
	conns, subs := make([]messaging.Conn, count), make([]messaging.Subscription, count)
	began := time.Now()
	var all errgroup.Group
	for i := range count {
		all.Go(func() error {
			id := fmt.Sprintf("n%d", i)
			c, err := dial(ctx, options(id))
			if err != nil {
				return err
			}
			conns[i] = c
			for e, err := range c.Events(ctx) {
				if err != nil {
					return err
				}
				if e.Kind == messaging.Connected || e.Kind == messaging.Reconnected {
					break
				}
			}
			subs[i], err = c.Subscribe(ctx, messaging.SubscribeOptions{Pattern: "v1.host." + id + ".call", Pending: 16})
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d sessions after %s", count, time.Since(began))
	t.Logf("%d KiB and %.1f goroutines for each, both ends and the client in one process", (inUse()-before)/count>>10,
		float64(runtime.NumGoroutine()-goroutines)/count)
	<-time.After(15 * time.Second)
	for i, sub := range subs {
		id := fmt.Sprintf("n%d", i)
		if err := b.own.Publish(ctx, messaging.Message{Subject: "v1.host." + id + ".call", Data: []byte(id)}); err != nil {
			t.Fatal(err)
		}
		if m, err := sub.Next(ctx); err != nil || string(m.Data) != id {
			t.Fatalf("%s heard %q, %v; want no error, string(m.Data) = %v", id, m.Data, err, id)
		}
	}
	for _, c := range conns {
		c.Close()
	}
	if err := <-left; err != nil {
		t.Error(err)
	}
}

// comeAndGo reads until as many sessions came as went.
func comeAndGo(sessions iter.Seq2[messaging.SessionEvent, error], count int) error {
	opened, closed := 0, 0
	for e, err := range sessions {
		switch {
		case err != nil:
			return fmt.Errorf("%d were told to come and %d to go: %w", opened, closed, err)
		case e.Kind == messaging.SessionOpened:
			opened++
		case e.Kind == messaging.SessionClosed:
			closed++
		default:
			return fmt.Errorf("events were lost after %d came and %d went", opened, closed)
		}
		if closed == opened && closed >= count {
			return nil
		}
	}
	return nil
}

func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
