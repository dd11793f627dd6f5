package signin

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/capability"
)

type heard struct {
	mu   sync.Mutex
	list []Event
}

func (h *heard) tell(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, e)
}

func (h *heard) all() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Event(nil), h.list...)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// showing shows one address and waits until a user logs in, or ctx ends.
func showing(started *atomic.Int32, in <-chan error) Flow {
	return func(ctx context.Context, show func(Prompt), _ <-chan string) error {
		started.Add(1)
		show(Prompt{URL: "https://claude.ai/x"})
		select {
		case err := <-in:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestOneLoginOfAName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h heard
		var started atomic.Int32
		in := make(chan error)
		d := New(h.tell, quiet())
		defer d.Close()
		ends := make(chan error, 2)
		for range 2 {
			p, err := d.Begin(t.Context(), "claude", showing(&started, in), func(err error) { ends <- err })
			if err != nil || p != (Prompt{Launched: true, URL: "https://claude.ai/x"}) {
				t.Errorf(`%v %+v; want no error, p = (Prompt{Launched: true, URL: "https://claude.ai/x"})`, err, p)
			}
		}
		if _, err := d.Begin(t.Context(), "codex", showing(&started, in), nil); err != nil {
			t.Error(err)
		}
		if n := started.Load(); n != 2 {
			t.Errorf("%d logins began; want n = 2", n)
		}
		in <- nil
		in <- nil
		synctest.Wait()
		if err := errors.Join(<-ends, <-ends); err != nil {
			t.Error(err)
		}
		var done int
		for _, e := range h.all() {
			if e.Done && e.Err == nil {
				done++
			}
		}
		if done != 2 || len(h.all()) != 4 {
			t.Errorf("%+v; want done = 2, len(h.all()) = 4", h.all())
		}
		// Once it is over there can be another.
		if _, err := d.Begin(t.Context(), "claude", showing(&started, in), nil); err != nil || started.Load() != 3 {
			t.Errorf("%v %d; want no error, started.Load() = 3", err, started.Load())
		}
	})
}

func TestALoginEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h heard
		var started atomic.Int32
		d := New(h.tell, quiet())
		end := make(chan error, 1)
		begun := time.Now()
		if _, err := d.Begin(t.Context(), "claude", showing(&started, nil), func(err error) { end <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-end; capability.AsError(err).Reason != "login_expired" || time.Since(begun) != LoginTTL {
			t.Errorf(`%v after %s; want capability.AsError(err).Reason = "login_expired", time.Since(begun) = %v`,
				err, time.Since(begun), LoginTTL)
		}
		// One that says nothing does not keep any caller waiting.
		silent := func(ctx context.Context, _ func(Prompt), _ <-chan string) error { <-ctx.Done(); return ctx.Err() }
		begun = time.Now()
		if p, err := d.Begin(t.Context(), "codex", silent, nil); err != nil || !p.Launched || time.Since(begun) != maxAddressTimeout {
			t.Errorf("%v %+v after %s; want no error, p.Launched = true, time.Since(begun) = %v",
				err, p, time.Since(begun), maxAddressTimeout)
		}
		refused := capability.Errorf(capability.CodeInvalidInput, "x", "no")
		if _, err := d.Begin(t.Context(), "github", func(context.Context, func(Prompt), <-chan string) error { return refused },
			nil); !errors.Is(err, refused) {
			t.Errorf("%v; want err is %v", err, refused)
		}
		// Closing ends the one that is under way.
		d.Close()
		if _, err := d.Begin(t.Context(), "claude", silent, nil); capability.AsError(err).Reason != "shutting_down" {
			t.Errorf(`%v; want capability.AsError(err).Reason = "shutting_down"`, err)
		}
	})
}

func TestACodeIsTyped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := New(func(Event) {}, quiet())
		defer d.Close()
		reason := func(text string) string {
			_, err := d.Type("claude", text)
			return capability.AsError(err).Reason
		}
		if got := reason("abc"); got != "no_login_running" {
			t.Errorf(`reason("abc") = %q, want "no_login_running"`, got)
		}
		got, next := make(chan string, 2), make(chan bool)
		flow := func(ctx context.Context, show func(Prompt), typed <-chan string) error {
			show(Prompt{URL: "https://claude.ai/x"})
			for range 2 {
				<-next
				got <- <-typed
			}
			return nil
		}
		if _, err := d.Begin(t.Context(), "claude", flow, nil); err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"", "a b", "a\x03", "a\r", strings.Repeat("x", maxTyped+1), "ü"} {
			if got := reason(bad); got != "bad_code" {
				t.Errorf(`%q: %s; want got = "bad_code"`, bad, got)
			}
		}
		if p, err := d.Type("claude", "abc#def"); err != nil || !p.Launched || p.URL == "" {
			t.Errorf(`%v %+v; want no error, p.Launched = true, p.URL other than ""`, err, p)
		}
		if got := reason("another"); got != "busy" {
			t.Errorf(`reason("another") = %q, want "busy"`, got)
		}
		next <- true
		synctest.Wait()
		if _, err := d.Type("claude", "second"); err != nil {
			t.Error(err)
		}
		next <- true
		if a, b := <-got, <-got; a != "abc#def" || b != "second" {
			t.Errorf(`a = %q, want "abc#def"; b = %q, want "second"`, a, b)
		}
	})
}
