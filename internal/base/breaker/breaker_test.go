package breaker_test

import (
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/base/breaker"
)

func at(seconds int) time.Time { return time.Unix(1000+int64(seconds), 0) }

func fail(b *breaker.Breaker, c breaker.Config, n, second int) (opened bool) {
	for range n {
		opened = b.Fail(c, at(second))
	}
	return opened
}

func TestBreakerAdmitsOneTrialPerTimeout(t *testing.T) {
	t.Parallel()
	c := breaker.Config{Failures: 5, Open: 30 * time.Second, Trials: 1, TrialTimeout: 30 * time.Second}
	var b breaker.Breaker
	if fail(&b, c, 4, 0) || !b.Admit(c, at(0)) {
		t.Error("four failures opened it")
	}
	if !fail(&b, c, 1, 0) || b.Admit(c, at(29)) || b.Wait(at(10)) != 20*time.Second {
		t.Errorf("the fifth failure: Wait() = %s, want 20s and no admission", b.Wait(at(10)))
	}
	if fail(&b, c, 3, 31) {
		t.Error("late failures of earlier calls opened it again")
	}
	if !b.Admit(c, at(31)) || b.Admit(c, at(60)) || !b.Admit(c, at(61)) {
		t.Error("it does not admit one trial in 30 seconds")
	}
	if !fail(&b, c, 1, 62) || b.Wait(at(62)) != 30*time.Second {
		t.Errorf("after a failed trial Wait() = %s, want 30s", b.Wait(at(62)))
	}
	if b.Reset(); !b.Closed() || !b.Admit(c, at(62)) {
		t.Error("Reset did not close it")
	}
}

func TestBreakerCountsTrials(t *testing.T) {
	t.Parallel()
	c := breaker.Config{Failures: 2, Open: time.Minute, Trials: 2, Extend: true}
	var b breaker.Breaker
	fail(&b, c, 2, 0)
	if fail(&b, c, 1, 30); b.Wait(at(30)) != time.Minute {
		t.Errorf("after a late failure Wait() = %s, want 1m", b.Wait(at(30)))
	}
	for i := range 3 {
		if got, want := b.Admit(c, at(90+i)), i < 2; got != want {
			t.Errorf("Admit(trial %d) = %v, want %v", i+1, got, want)
		}
	}
	if !b.Refuses(c, at(1000)) {
		t.Error("Refuses() = false after two trials, want true")
	}
	if b.Abandon(); !b.Admit(c, at(1000)) {
		t.Error("an abandoned trial keeps its place")
	}
}

func TestBreakerOpensForTwiceAsLong(t *testing.T) {
	t.Parallel()
	c := breaker.Config{Failures: 3, Open: time.Second, MaxOpen: 3 * time.Second}
	var b breaker.Breaker
	now := 0
	fail(&b, c, 2, now)
	for _, want := range []time.Duration{1, 2, 3, 3} {
		if !b.Fail(c, at(now)) || b.Fail(c, at(now)) || b.Wait(at(now)) != want*time.Second {
			t.Errorf("Wait() = %s, want %ds", b.Wait(at(now)), want)
		}
		now += 10
	}
}
