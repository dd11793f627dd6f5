// Package providertest is the contract of capability.Provider and
// capability.Source as a test: every provider kind runs it, so that the engine
// may rely on the same manners whichever way a call goes.
package providertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
)

// callTimeout is how long a provider may take to do what it must do promptly; far
// more than any needs, so that a loaded machine does not fail the suite.
const callTimeout = 10 * time.Second

// Harness is one instance of a provider kind, with the functions the suite
// calls. The calls name their target; the suite fills the rest.
type Harness struct {
	// Source is fresh and offers all of the following through one provider.
	Source capability.Source
	// Echo returns its input unchanged.
	Echo capability.Call
	// Block runs until its context ends and returns then.
	Block capability.Call
	// Chatty reports progress at least twice. Late, when not nil, makes it try to
	// report once more after its call has returned.
	Chatty capability.Call
	Late   func()
	// Unknown names a function that is not there.
	Unknown capability.Call
	// Change makes the source publish again, with other contributions.
	Change func()
}

// Run runs the suite; setup is called once for every part of it and should
// register its own clean-up with t. Parts run one after the other, because each
// looks for goroutines it leaked.
func Run(t *testing.T, setup func(t *testing.T) Harness) {
	t.Helper()
	parts := []struct {
		name string
		run  func(t *testing.T, s *session)
	}{
		{"key is stable and of three parts", keyIsStable},
		{"contributions name published providers", contributionsAreWhole},
		{"concurrent calls do not mix", concurrentCalls},
		{"cancel and deadline end a call", callsEnd},
		{"an ended context starts nothing", endedContext},
		{"an unknown function has its code", unknownFunction},
		{"input is neither changed nor kept", inputIsBorrowed},
		{"progress ends with the call", progressEnds},
		{"source publishes again after a change", republishes},
	}
	for _, part := range parts {
		t.Run(part.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			h := setup(t)
			s := start(t, h)
			part.run(t, s)
			s.stop()
			if err := goleak.Find(before); err != nil {
				t.Errorf("after the source has stopped: %v", err)
			}
		})
	}
}

// session is a running source with its latest batch.
type session struct {
	Harness
	t       *testing.T
	cancel  context.CancelFunc
	batches chan capability.Batch
	done    chan error
	first   capability.Batch
}

func start(t *testing.T, h Harness) *session {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &session{Harness: h, t: t, cancel: cancel, batches: make(chan capability.Batch, 64), done: make(chan error, 1)}
	go func() { // ended and awaited by stop
		s.done <- h.Source.Run(ctx, func(b capability.Batch) error {
			select {
			case s.batches <- b:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	s.first = s.next()
	if len(s.first.Providers) == 0 || len(s.first.Modules) == 0 {
		t.Fatalf("the first batch holds %d providers and %d modules", len(s.first.Providers), len(s.first.Modules))
	}
	return s
}

func (s *session) next() capability.Batch {
	s.t.Helper()
	select {
	case b := <-s.batches:
		return b
	case err := <-s.done:
		s.t.Fatalf("the source ended by itself: %v", err)
	case <-time.After(callTimeout):
		s.t.Fatal("the source published nothing")
	}
	return capability.Batch{}
}

func (s *session) stop() {
	s.t.Helper()
	s.cancel()
	select {
	case err := <-s.done:
		if err != nil && !errors.Is(err, context.Canceled) {
			s.t.Errorf("the source ended with %v", err)
		}
	case <-time.After(callTimeout):
		s.t.Error("the source did not end with its context")
	}
}

// provider returns the one that carries the call's target.
func (s *session) provider(c capability.Call) capability.Provider {
	key := s.first.Providers[0].Key()
	for _, m := range s.first.Modules {
		for _, k := range m.Contributions {
			if (c.Member != capability.Member{} && k.Member == c.Member) || (c.Action != "" && k.Action == c.Action) {
				key = k.Provider
			}
		}
	}
	for _, p := range s.first.Providers {
		if p.Key() == key {
			return p
		}
	}
	s.t.Fatalf("no provider %s was published", key)
	return nil
}

func (s *session) invoke(ctx context.Context, c capability.Call) (capability.Result, error) {
	if c.Input == nil {
		c.Input = json.RawMessage(`{}`)
	}
	if c.Progress == nil {
		c.Progress = func(capability.Chunk) {}
	}
	return s.provider(c).Invoke(ctx, c)
}

func keyIsStable(t *testing.T, s *session) {
	for _, p := range s.first.Providers {
		key := p.Key()
		if domain, kind, instance := key.Parts(); domain == "" || kind == "" || instance == "" {
			t.Errorf("key %q lacks a part", key)
		}
		if _, err := s.invoke(t.Context(), s.Echo); err != nil {
			t.Error(err)
		}
		if p.Key() != key {
			t.Errorf("key %q became %q", key, p.Key())
		}
	}
}

func contributionsAreWhole(t *testing.T, s *session) {
	var keys []capability.ProviderKey
	for _, p := range s.first.Providers {
		if slices.Contains(keys, p.Key()) {
			t.Errorf("provider %s is published twice", p.Key())
		}
		keys = append(keys, p.Key())
	}
	if s.first.Source == "" {
		t.Error("the batch has no source")
	}
	for _, m := range s.first.Modules {
		seen := make(map[string]bool)
		for _, c := range m.Contributions {
			if m.Extension == "" || c.ID == "" || c.Kind == "" || c.Effect == "" {
				t.Errorf("module %q, contribution %q: an empty extension, id, kind or effect", m.Extension, c.ID)
			}
			if seen[c.ID+"@"+string(c.Provider)] {
				t.Errorf("contribution %s is published twice", c.ID)
			}
			seen[c.ID+"@"+string(c.Provider)] = true
			if !slices.Contains(keys, c.Provider) {
				t.Errorf("contribution %s names provider %s, which is not published", c.ID, c.Provider)
			}
		}
	}
}

func concurrentCalls(t *testing.T, s *session) {
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			c := s.Echo
			c.Input = fmt.Appendf(nil, `{"n":%d}`, i)
			r, err := s.invoke(t.Context(), c)
			if err != nil || !sameJSON(r.Value, c.Input) {
				t.Errorf("sent %s, got %s, %v", c.Input, r.Value, err)
			}
		})
	}
	wg.Wait()
}

func callsEnd(t *testing.T, s *session) {
	cancelled, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	expired, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	for ctx, want := range map[context.Context]capability.Code{cancelled: capability.CodeCancelled, expired: capability.CodeTimeout} {
		began := time.Now()
		_, err := s.invoke(ctx, s.Block)
		if took := time.Since(began); took > callTimeout {
			t.Errorf("the call ended after %v", took)
		}
		if got := capability.CodeOf(err); got != want {
			t.Errorf("code %q (%v), want %q", got, err, want)
		}
	}
}

func endedContext(t *testing.T, s *session) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.invoke(ctx, s.Echo); capability.CodeOf(err) != capability.CodeCancelled {
		t.Errorf("got %v", err)
	}
}

func unknownFunction(t *testing.T, s *session) {
	_, err := s.invoke(t.Context(), s.Unknown)
	if got := capability.CodeOf(err); got != capability.CodeUnknownCapability && got != capability.CodeUnavailable {
		t.Errorf("code %q (%v), want unknown_capability or unavailable", got, err)
	}
}

func inputIsBorrowed(t *testing.T, s *session) {
	c := s.Echo
	const sent = `{"text":"abc","list":[1,2,3]}`
	c.Input = json.RawMessage(sent)
	r, err := s.invoke(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if string(c.Input) != sent {
		t.Errorf("the input was changed to %s", c.Input)
	}
	copied := bytes.Clone(r.Value)
	r2, err := s.invoke(t.Context(), s.Echo) // whatever was kept would show now
	if err != nil || !sameJSON(r2.Value, []byte(`{}`)) || !bytes.Equal(copied, r.Value) {
		t.Errorf("a later call gave %s (%v) and left %s of the first result", r2.Value, err, r.Value)
	}
}

func progressEnds(t *testing.T, s *session) {
	var mu sync.Mutex
	var steps []float64
	returned, late := false, 0
	c := s.Chatty
	c.Progress = func(k capability.Chunk) {
		mu.Lock()
		defer mu.Unlock()
		steps = append(steps, k.Progress)
		if returned {
			late++
		}
	}
	if _, err := s.invoke(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	returned = true
	mu.Unlock()
	if s.Late != nil {
		s.Late()
	}
	mu.Lock()
	defer mu.Unlock()
	if len(steps) < 2 || !slices.IsSorted(steps) {
		t.Errorf("progress was %v", steps)
	}
	if late > 0 {
		t.Errorf("%d notices came after the answer", late)
	}
}

func republishes(t *testing.T, s *session) {
	s.Change()
	again := s.next()
	if again.Source != s.first.Source {
		t.Errorf("source %q became %q", s.first.Source, again.Source)
	}
	if ids(again) == ids(s.first) {
		t.Errorf("the second batch offers the same: %s", ids(again))
	}
}

func ids(b capability.Batch) string {
	var all []string
	for _, m := range b.Modules {
		for _, c := range m.Contributions {
			all = append(all, fmt.Sprint(m.Extension, "/", c.ID, " ", c.Availability.State))
		}
	}
	slices.Sort(all)
	return fmt.Sprint(all)
}

func sameJSON(a, b []byte) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}
