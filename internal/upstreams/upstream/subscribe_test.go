package upstream_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/junctor-run/junctor/internal/upstreams/upstream"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
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
	go func() { _, err := r.Subscribe(ctx, "far", "file:///a", func() {}); first <- err }() // ends below
	<-asked
	go func() { // ends below
		stop, err := r.Subscribe(t.Context(), "far", "file:///a", func() {})
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
