package inproc

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/secret"
)

// TestClocksAreThoseOfTheTest: leases, pauses and requests pass in no time, and
// no goroutine is left, or synctest would say so.
func TestClocksAreThoseOfTheTest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var letIn atomic.Bool
		b := New(func(context.Context, messaging.Credential) (messaging.Identity, error) {
			if !letIn.Load() {
				return messaging.Identity{}, errors.New("not yet")
			}
			return messaging.Identity{ID: "n1", Subscribe: []string{"_INBOX.n1.>"}, Publish: []string{"v1.gw.n1.>"}}, nil
		})
		defer b.Close()
		began := time.Now()
		c, err := b.Dial(t.Context(), messaging.DialOptions{Inbox: "_INBOX.n1", Token: secret.New("token")})
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Hour, func() { letIn.Store(true) })
		for e, err := range c.Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == messaging.Connected {
				break
			}
		}
		if took := time.Since(began); took < time.Hour || took > time.Hour+450*time.Second {
			t.Errorf("it came in after %s, let in after an hour, tried every 300 s ± half; want took at least time.Hour, took "+
				"at most time.Hour + 450*time.Second", took)
		}

		k, err := b.Bucket(t.Context(), messaging.BucketOptions{Name: "leases", TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Put(t.Context(), "n1", nil); err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		for change, err := range k.Watch(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if change.Kind == messaging.Deleted {
				break
			}
		}
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("a lease of 30 s ended after %s; want took = 30 * time.Second", took)
		}

		sub, err := b.Conn().Subscribe(t.Context(), messaging.SubscribeOptions{Pattern: "v1.gw.*.join"})
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		began = time.Now()
		if _, err := c.Request(ctx, messaging.Message{Subject: "v1.gw.n1.join"}); capability.CodeOf(err) != capability.CodeTimeout {
			t.Errorf("a request nobody answers: %v; want capability.CodeOf(err) = capability.CodeTimeout", err)
		}
		if took := time.Since(began); took != 15*time.Second {
			t.Errorf("it ended after %s; want took = 15 * time.Second", took)
		}
	})
}

// TestASessionThatComesBackMayDoOnlyWhatItMayNow: permissions are asked for at
// each connection.
func TestASessionThatComesBackMayDoOnlyWhatItMayNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var allowed atomic.Value
		allowed.Store([]string{"a.>", "b.>"})
		b := New(func(context.Context, messaging.Credential) (messaging.Identity, error) {
			return messaging.Identity{ID: "n1", Subscribe: allowed.Load().([]string)}, nil
		})
		defer b.Close()
		c, err := b.Dial(t.Context(), messaging.DialOptions{Inbox: "_INBOX.n1", Token: secret.New("token")})
		if err != nil {
			t.Fatal(err)
		}
		kept, err := c.Subscribe(t.Context(), messaging.SubscribeOptions{Pattern: "a.x"})
		if err != nil {
			t.Fatal(err)
		}
		gone, err := c.Subscribe(t.Context(), messaging.SubscribeOptions{Pattern: "b.x"})
		if err != nil {
			t.Fatal(err)
		}
		allowed.Store([]string{"a.>"})
		events := c.Events(t.Context())
		b.Interrupt()
		for e, err := range events {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == messaging.Refused {
				break
			}
		}
		for _, subject := range []string{"a.x", "b.x"} {
			if err := b.Conn().Publish(t.Context(), messaging.Message{Subject: subject}); err != nil {
				t.Fatal(err)
			}
		}
		if m, err := kept.Next(t.Context()); err != nil || m.Subject != "a.x" {
			t.Errorf(`got %s, %v; want no error, m.Subject = "a.x"`, m.Subject, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if m, err := gone.Next(ctx); err == nil {
			t.Errorf("%s was still delivered; want an error", m.Subject)
		}
	})
}
