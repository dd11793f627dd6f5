package upstream_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/upstreams/upstream"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

func TestSharedSubscriptionOutlivesItsFirstSubscriber(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	asked, left := make(chan struct{}, 8), make(chan struct{})
	r.far.set(func() {
		r.far.features = []string{"tools", "resources", "resources.subscribe"}
		r.far.lists[ingest.Resource] = []string{`{"uri":"file:///a","name":"a"}`}
		r.far.answer = func(ctx context.Context, q upstream.Request) (json.RawMessage, error) {
			if q.Method == "resources/subscribe" {
				asked <- struct{}{}
				<-left
				return json.RawMessage(`{}`), ctx.Err()
			}
			return json.RawMessage(`{}`), nil
		}
	})
	r.add("far", nil)
	ctx, leave := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { _, err := r.Subscribe(ctx, upstream.Caller{}, "far", "file:///a", func() {}); first <- err }() // ends below
	<-asked
	go func() { // ends below
		stop, err := r.Subscribe(t.Context(), upstream.Caller{}, "far", "file:///a", func() {})
		if err == nil {
			stop()
		}
		second <- err
	}()
	r.eventually("the second waits", func() bool { return r.Listeners("far", "file:///a") == 2 })
	leave()
	close(left)
	if err := <-first; err == nil {
		t.Error("the first Subscribe = nil after its context ended, want an error")
	}
	if err := <-second; err != nil {
		t.Errorf("the second Subscribe = %v, want nil", err)
	}
}

func TestSubscriptionsFollowTheConnectionOfTheirCaller(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.set(func() { r.far.features = []string{"tools", "resources", "resources.subscribe"} })
	r.far.offer(ingest.Tool, def("a", ""))
	r.add("far", func(rec *record.Record) { rec.Isolation = record.PerPrincipal })
	updated := make(chan string, 8)
	for _, who := range []string{"agent:one", "agent:two"} {
		if _, err := r.Subscribe(t.Context(), upstream.Caller{Principal: who}, "far", "file:///a", func() { updated <- who }); err != nil {
			t.Fatalf("Subscribe(%s): got %v, want no error", who, err)
		}
	}
	r.far.mu.Lock()
	clients := r.far.live()
	r.far.mu.Unlock()
	if len(clients) != 3 {
		t.Fatalf("%d connections, want the main one and one of each principal", len(clients))
	}
	for _, c := range clients {
		c.cfg.Updated("file:///a")
	}
	got := []string{<-updated, <-updated}
	if slices.Sort(got); !slices.Equal(got, []string{"agent:one", "agent:two"}) || len(updated) != 0 {
		t.Errorf("notified %v and %d more, want each principal once, by its own connection", got, len(updated))
	}
	// Lost connections are made again for their subscriptions, which may have missed a change.
	r.far.crash(nil)
	got = []string{<-updated, <-updated}
	if slices.Sort(got); !slices.Equal(got, []string{"agent:one", "agent:two"}) {
		t.Errorf("notified after the loss %v, want each principal", got)
	}
}

func TestConnectionWithSubscriptionIsNotIdle(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(cfg *upstream.Config) { cfg.Idle = time.Millisecond })
	r.far.set(func() { r.far.features = []string{"tools", "resources", "resources.subscribe"} })
	r.far.offer(ingest.Tool, def("a", ""))
	r.add("far", func(rec *record.Record) { rec.Isolation = record.PerPrincipal })
	stop, err := r.Subscribe(t.Context(), upstream.Caller{Principal: "agent:one"}, "far", "file:///a", func() {})
	if err != nil {
		t.Fatalf("Subscribe: got %v, want no error", err)
	}
	if _, _, err := r.call("agent:two", "", "tool", "a", `{}`); err != nil {
		t.Fatalf("a call of another principal: got %v, want no error", err)
	}
	live := func(want int) func() bool { return func() bool { _, n, _ := r.far.counts(); return n == want } }
	r.eventually("the connection without a subscription is closed", live(2))
	stop()
	r.eventually("the other one is closed after its subscription", live(1))
}

func TestLinkedResourcesAreReadUnlessTheyWaitForAnApproval(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.set(func() { r.far.features = []string{"tools", "resources"} })
	r.far.offer(ingest.Tool, def("a", ""))
	r.far.offer(ingest.Resource, `{"uri":"file:///listed","name":"l"}`)
	r.far.offer(ingest.Template, `{"uriTemplate":"file:///notes/{name}","name":"n"}`)
	r.add("far", func(rec *record.Record) { rec.Trust = record.Untrusted })
	read := func(uri string) error {
		_, _, err := r.call("agent:one", "", "resource-read", "read", `{"uri":"`+uri+`"}`)
		return err
	}
	r.eventually("the lists are read", func() bool { s, err := r.Show("far"); return err == nil && s.Counts.Quarantined == 3 })
	if err := read("file:///linked"); err != nil {
		t.Errorf("read of a linked resource: got %v, want no error", err)
	}
	for _, uri := range []string{"file:///listed", "file:///notes/x", "", "x:" + strings.Repeat("y", ingest.MaxURI)} {
		if err := read(uri); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("read of %.40q: got %v, want %s", uri, err, capability.CodeInvalidInput)
		}
	}
	if got := r.Offering(t.Context(), upstream.Caller{Principal: "agent:one"}, "file:///listed"); len(got) != 0 {
		t.Errorf("Offering(a resource that waits for an approval) = %v, want none", got)
	}
}
