package gateway

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/internal/testkit/inproc"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

func TestACircuitOpensTriesAndCloses(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	b := newBreaker(BreakerConfig{}, func() time.Time { return now })
	lost := cmp.Errorf(cmp.ReasonNodeLost, "lost")
	fail := func(n int) {
		for range n {
			b.count("a", "f", lost)
		}
	}
	fail(4)
	b.count("a", "f", cmp.Errorf(cmp.ReasonExecution, "the function's own failure"))
	fail(4)
	b.count("a", "f", cmp.Errorf(cmp.ReasonTimeout, "says nothing"))
	if b.open("a", "f") {
		t.Error("open after four in a row")
	}
	fail(1)
	if !b.open("a", "f") || b.enter("a", "f") || b.open("a", "g") || b.open("b", "f") {
		t.Error("not the one circuit is open")
	}
	now = now.Add(61 * time.Second)
	for range 3 {
		if b.open("a", "f") || !b.enter("a", "f") {
			t.Fatal("it is not tried again")
		}
	}
	if !b.open("a", "f") || b.enter("a", "f") {
		t.Error("more than three try it")
	}
	b.abandon("a", "f")
	if !b.enter("a", "f") {
		t.Error("the place of a call that showed nothing is gone")
	}
	b.count("a", "f", lost)
	if !b.open("a", "f") {
		t.Error("a failed trial did not open it again")
	}
	now = now.Add(61 * time.Second)
	b.enter("a", "f")
	b.count("a", "f", nil)
	if fail(4); b.open("a", "f") {
		t.Error("a success did not close it")
	}
	fail(1)
	if b.forget("a"); b.open("a", "f") || len(b.circuits) != 0 {
		t.Errorf(`a node that left is remembered; got len(b.circuits) = %v; want not b.open("a", "f"), len(b.circuits) = 0`,
			len(b.circuits))
	}
}

func TestWhatWaitsForAReaderIsBounded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		size, admitted int
	}{
		"by bytes":  {64 << 10, (wire.DefaultWindow + wire.MaxChunk + wire.MaxInline) / (64 << 10)},
		"by frames": {100, maxFrames},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCall("c", "a", 1, true, 0)
			for range tt.admitted {
				c.push(make([]byte, tt.size))
			}
			if c.err != nil {
				t.Fatalf("c.err = %v, want nil", c.err)
			}
			c.push(make([]byte, tt.size))
			if c.push(nil); c.err == nil || c.err.Reason != cmp.ReasonOverloaded {
				t.Errorf("c.err = %v, want a value and c.err.Reason = cmp.ReasonOverloaded", c.err)
			}
			for i := range tt.admitted { // what came before the end counts
				if data, _, err := c.next(t.Context()); err != nil || len(data) != tt.size {
					t.Fatalf("c.next(t.Context()): err = %v, want nil; len(data) = %v, want %v; i = %v", err, len(data), tt.size, i)
				}
			}
			if _, _, err := c.next(t.Context()); !errors.Is(err, c.err) || c.bytes != 0 {
				t.Errorf("c.next(t.Context()): err = %v, want %v; c.bytes = %v, want 0", err, c.err, c.bytes)
			}
		})
	}
	// One that is read does not grow with what has been read.
	c := newCall("c", "a", 1, true, 0)
	for i := range 10_000 {
		c.push([]byte(fmt.Sprint(i)))
		c.push([]byte(fmt.Sprint(i)))
		for range 2 {
			if data, _, err := c.next(t.Context()); err != nil || string(data) != fmt.Sprint(i) {
				t.Fatalf("c.next(t.Context()): err = %v, want nil; string(data) = %q, want %q", err, string(data), fmt.Sprint(i))
			}
		}
		if i == 0 {
			c.push(nil) // one stays ahead
			_, _, _ = c.next(t.Context())
		}
	}
	if cap(c.frames) > 8 {
		t.Errorf("cap(c.frames) = %v, want at most 8", cap(c.frames))
	}
}

func TestCreditIsWithheldWhileHeartbeatsAreLate(t *testing.T) {
	t.Parallel()
	const chunk = 32 << 10
	c := credit{window: 256 << 10}
	given := func(late bool) int64 { return c.take(chunk, late) }
	if given(false) != chunk {
		t.Errorf("a reader's credit was kept; want given(false) = %v", chunk)
	}
	var kept int64
	for range 20 {
		kept += chunk - given(true)
	}
	if kept != 192<<10 {
		t.Errorf("%d bytes were withheld: 64 KiB must stay; want kept = 192 << 10", kept)
	}
	if n := given(false); n != chunk+kept || given(false) != chunk {
		t.Errorf("%d bytes were given back; want n = chunk + kept, given(false) = %v", n, chunk)
	}
}

func TestManyStreamsShareWhatANodeMayHaveOnItsWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := inproc.New(nil)
		defer b.Close()
		g := New(Config{Broker: b})
		var sum, least int
		var all []func()
		for range 32 {
			window, leave, err := g.openStream("a")
			if err != nil {
				t.Fatal(err)
			}
			sum, least = sum+window, window
			all = append(all, leave)
		}
		if sum > maxOutstanding || least < wire.MinWindow {
			t.Errorf("sum = %v, want at most maxOutstanding; least = %v, want at least wire.MinWindow", sum, least)
		}
		if _, _, err := g.openStream("a"); err == nil {
			t.Error("a 33rd stream was opened; want an error")
		}
		for _, leave := range all {
			leave()
		}
		if window, _, _ := g.openStream("a"); window != wire.DefaultWindow || g.total != 1 || g.streams["a"].open != 1 {
			t.Errorf(`g.openStream("a"): window = %v, want wire.DefaultWindow; g.total = %v, want 1; g.streams["a"].open = %v, want 1`,
				window, g.total, g.streams["a"].open)
		}
	})
}

func TestKeysOfEntriesHaveABound(t *testing.T) {
	t.Parallel()
	if got := keyOf("my.node"); got != "my=2Enode" {
		t.Errorf(`keyOf("my.node") = %q, want "my=2Enode"`, got)
	}
	dots := "a"
	for len(dots) < cmp.MaxName {
		dots += "."
	}
	if k := keyOf(dots); len(k) > 200 || k == keyOf(dots[:len(dots)-1]) {
		t.Errorf("key = %q, want at most 200 bytes, and another one for a shorter name", k)
	}
}
