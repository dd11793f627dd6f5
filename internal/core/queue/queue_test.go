package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/queue"
)

// line lets jobs enter in order and says in which order they got in.
type line struct {
	*testing.T
	q *queue.Queue

	mu    sync.Mutex
	order []string
	leave map[string]func()
	wg    sync.WaitGroup
}

func newLine(t *testing.T, l queue.Limits) *line {
	return &line{T: t, q: queue.New(l), leave: make(map[string]func())}
}

// enter begins a job and returns when it is in or waits.
func (l *line) enter(name string, job queue.Job) {
	l.wg.Go(func() {
		leave, err := l.q.Enter(l.Context(), job)
		l.mu.Lock()
		defer l.mu.Unlock()
		if err != nil {
			l.order = append(l.order, name+": "+capability.AsError(err).Reason)
			return
		}
		l.order = append(l.order, name)
		l.leave[name] = leave
	})
	synctest.Wait()
}

// done ends a job and returns when what it let in is in.
func (l *line) done(name string) {
	l.mu.Lock()
	leave := l.leave[name]
	l.mu.Unlock()
	if leave == nil {
		l.Fatalf("%s is not in", name)
	}
	leave()
	leave() // a second time is nothing
	synctest.Wait()
}

func (l *line) want(names ...string) {
	l.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.order, names) {
		l.Errorf("%v, want %v", l.order, names)
	}
}

func TestWhoWaitsAndWhoGetsIn(t *testing.T) {
	t.Parallel()
	job := func(user string, p queue.Priority) queue.Job { return queue.Job{User: user, Priority: p} }
	for name, test := range map[string]func(l *line){
		"first come among equals": func(l *line) {
			l.enter("a", job("u", queue.Normal))
			l.enter("b", job("v", queue.Normal))
			l.enter("c", job("w", queue.Normal))
			l.want("a")
			l.done("a")
			l.want("a", "b")
			l.done("b")
			l.want("a", "b", "c")
		},
		"the higher priority first": func(l *line) {
			l.enter("a", job("u", queue.Normal))
			l.enter("low", job("v", queue.Low))
			l.enter("critical", job("w", queue.Critical))
			l.enter("high", job("x", queue.High))
			for _, n := range []string{"a", "critical", "high"} {
				l.done(n)
			}
			l.want("a", "critical", "high", "low")
		},
		"waiting is worth priority": func(l *line) {
			l.enter("a", job("u", queue.Normal))
			l.enter("low", job("v", queue.Low))
			time.Sleep(70 * time.Second) // two steps and a bit
			l.enter("normal", job("w", queue.Normal))
			l.done("a")
			l.want("a", "low")
		},
		"who is held back by an own limit blocks nobody": func(l *line) {
			l.q = queue.New(queue.Limits{Global: 2, PerUser: 1, Wait: time.Hour})
			l.enter("a", job("u", queue.Normal))
			l.enter("b", job("u", queue.Critical))
			l.enter("c", job("v", queue.Low))
			l.want("a", "c")
			l.done("a")
			l.want("a", "c", "b")
		},
		"an extension and a session have limits of their own": func(l *line) {
			l.q = queue.New(queue.Limits{Global: 10, PerExtension: 2, Wait: time.Hour})
			one := queue.Job{User: "u", Extension: "x", Session: "s"}
			l.enter("a", one)
			l.enter("b", queue.Job{User: "v", Extension: "y", Session: "s"})
			l.enter("c", queue.Job{User: "v", Extension: "x", Session: "t"})
			l.enter("d", queue.Job{User: "w", Extension: "x", Session: "r"})
			l.enter("e", queue.Job{User: "u", Extension: "y", Session: "q"})
			l.want("a", "c", "e")
			l.done("c")
			l.want("a", "c", "e", "d")
			l.done("d")
			l.done("e")
			l.done("a")
			l.want("a", "c", "e", "d", "b")
		},
		"one user leaves a place of an extension, and one of all, to others": func(l *line) {
			l.q = queue.New(queue.Limits{Global: 4, PerExtension: 3, Wait: time.Hour})
			l.enter("a", queue.Job{User: "u", Extension: "x"})
			l.enter("b", queue.Job{User: "u", Extension: "x"})
			l.enter("c", queue.Job{User: "u", Extension: "x"})
			l.enter("d", queue.Job{User: "v", Extension: "x"})
			l.want("a", "b", "d")
			l.done("d")
			l.enter("e", queue.Job{User: "u", Extension: "y"})
			l.enter("f", queue.Job{User: "u", Extension: "z"})
			l.enter("g", queue.Job{User: "v", Extension: "z"})
			l.want("a", "b", "d", "e", "g")
		},
		"one user fills at most half of the queue": func(l *line) {
			l.q = queue.New(queue.Limits{Global: 1, Length: 4, Wait: time.Hour})
			for _, name := range []string{"a", "b", "c", "d"} {
				l.enter(name, job("u", queue.Normal))
			}
			l.enter("e", job("v", queue.Low))
			l.want("a", "d: queue_full")
			l.done("a")
			l.done("b")
			l.done("c")
			l.want("a", "d: queue_full", "b", "c", "e")
		},
		"no more than may wait": func(l *line) {
			l.q = queue.New(queue.Limits{Global: 1, Length: 1, Wait: time.Hour})
			l.enter("a", job("u", queue.Normal))
			l.enter("b", job("v", queue.Normal))
			l.enter("c", job("w", queue.Critical))
			l.want("a", "c: queue_full")
			l.done("a")
			l.want("a", "c: queue_full", "b")
		},
		"no longer than one may wait": func(l *line) {
			l.q = queue.New(queue.Limits{Global: 1, Wait: time.Minute})
			l.enter("a", job("u", queue.Normal))
			l.enter("b", job("v", queue.Normal))
			time.Sleep(time.Minute + time.Second)
			l.want("a", "b: queue_timeout")
			l.done("a")
			l.enter("c", job("v", queue.Normal))
			l.want("a", "b: queue_timeout", "c")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, queue.Limits{Global: 1, Wait: time.Hour})
				test(l)
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				_ = l.q.Close(ctx) // sends away who still waits
				synctest.Wait()
				l.wg.Wait()
				for _, leave := range l.leave {
					leave()
				}
				if s := l.q.Stats(); s != (queue.Stats{}) {
					t.Errorf("%+v is left; want s = (queue.Stats{})", s)
				}
			})
		})
	}
}

func TestGivingUpGivesUpThePlaceToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queue.New(queue.Limits{Global: 1})
		leave, err := q.Enter(t.Context(), queue.Job{User: "a"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := q.Enter(ctx, queue.Job{User: "b"})
			ended <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%v; want err is context.Canceled", err)
		}
		if _, err := q.Enter(ctx, queue.Job{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v; want err is context.Canceled", err)
		}
		leave()
		if s := q.Stats(); s != (queue.Stats{}) {
			t.Errorf("%+v; want s = (queue.Stats{})", s)
		}
	})
}

func TestAStopWaitsForWhatRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queue.New(queue.Limits{Global: 1})
		leave, err := q.Enter(t.Context(), queue.Job{})
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		go func() { closed <- q.Close(t.Context()) }()
		synctest.Wait()
		if _, err := q.Enter(t.Context(), queue.Job{}); capability.AsError(err).Reason != "stopping" {
			t.Errorf(`%v; want capability.AsError(err).Reason = "stopping"`, err)
		}
		select {
		case <-closed:
			t.Fatal("it did not wait")
		default:
		}
		leave()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		other := queue.New(queue.Limits{})
		if _, err := other.Enter(t.Context(), queue.Job{}); err != nil {
			t.Fatal(err)
		}
		if err := other.Close(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v; want err is context.DeadlineExceeded", err)
		}
	})
}

// TestLimitsHoldUnderLoad: many at once, some of whom give up.
func TestLimitsHoldUnderLoad(t *testing.T) {
	t.Parallel()
	limits := queue.Limits{Global: 5, PerUser: 2, PerExtension: 3, PerSession: 1, Length: 1000}
	q := queue.New(limits)
	var mu sync.Mutex
	now := make(map[string]int)
	count := func(job queue.Job, n int) {
		mu.Lock()
		defer mu.Unlock()
		for key, most := range map[string]int{"": 5, "u" + job.User: 2, "e" + job.Extension: 3, "s" + job.Session: 1} {
			if now[key] += n; now[key] > most {
				t.Errorf("%d of %q at once; want now[key] at most %v", now[key], key, most)
			}
		}
	}
	var wg sync.WaitGroup
	for i := range 400 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			job := queue.Job{
				User: fmt.Sprint(rng.IntN(4)), Extension: fmt.Sprint(rng.IntN(3)), Session: fmt.Sprint(rng.IntN(8)),
				Priority: queue.Priority(rng.IntN(4)),
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if rng.IntN(4) == 0 {
				go cancel()
			}
			leave, err := q.Enter(ctx, job)
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%v; want err is context.Canceled", err)
				}
				return
			}
			count(job, 1)
			count(job, -1)
			leave()
		})
	}
	wg.Wait()
	if s := q.Stats(); s != (queue.Stats{}) {
		t.Errorf("%+v is left; want s = (queue.Stats{})", s)
	}
}

func TestPriorities(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]queue.Priority{
		"low": queue.Low, "": queue.Normal, "normal": queue.Normal, "high": queue.High,
		"critical": queue.Critical,
	} {
		if got, err := queue.ParsePriority(in); err != nil || got != want {
			t.Errorf("%q: %d %v; want no error, got = %v", in, got, err, want)
		}
	}
	if _, err := queue.ParsePriority("urgent"); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeInvalidInput", err)
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	l := queue.NewLimiter(queue.Rates{PerMinute: 60, Burst: 2}, func() time.Time { return now })
	take := func(user, ext string) *capability.Error { return capability.AsError(l.Take(user, ext)) }
	if err := take("u", "x"); err != nil {
		t.Fatalf("Take(u, x) = %v, want nil", err)
	}
	if err := take("u", "x"); err == nil || err.Reason != "rate_limited" || err.RetryAfter.Round(time.Millisecond) != 1333*time.Millisecond {
		t.Fatalf("Take(u, x) beyond the user's share = %+v, want rate_limited with RetryAfter 1.333s", err)
	}
	if err := take("v", "x"); err != nil {
		t.Errorf("Take(v, x) after u took its share = %v, want nil", err)
	}
	if err := take("w", "x"); err == nil || err.RetryAfter != time.Second {
		t.Errorf("Take(w, x) with the extension's bucket empty = %+v, want RetryAfter 1s", err)
	}
	if err := take("w", "y"); err != nil { // a refusal took nothing
		t.Errorf("Take(w, y) = %v, want nil", err)
	}
	if err := take("u", "y"); err != nil {
		t.Errorf("Take(u, y) = %v, want nil", err)
	}
	if err := take("u", "z"); err == nil {
		t.Error("Take(u, z) with the user's bucket empty = nil, want rate_limited")
	}
}

// TestOneUserDoesNotUseUpAnExtension holds that another user is never delayed by one who calls all the time, for a minute.
func TestOneUserDoesNotUseUpAnExtension(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	l := queue.NewLimiter(queue.Rates{}, func() time.Time { return now })
	calls := 0
	for second := range 60 {
		for l.Take("greedy", "x") == nil {
			calls++
		}
		if second%10 == 0 {
			if err := l.Take("modest", "x"); err != nil {
				t.Errorf("Take(modest) after %d s = %v, want nil", second, err)
			}
		}
		now = now.Add(time.Second)
	}
	if calls < 68 || calls > 72 {
		t.Errorf("the greedy user had %d calls in a minute, want about 60 and the burst of 10", calls)
	}
}

func TestTheCache(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	c := queue.NewCache(func() time.Time { return now })
	c.Put("a", []byte("1"), time.Minute)
	c.Put("none", []byte("1"), 0)
	now = now.Add(30 * time.Second)
	if v, age, ok := c.Get("a"); !ok || string(v) != "1" || age != 30*time.Second {
		t.Errorf(`%s %s %v; want ok = true, string(v) = "1", age = 30 * time.Second`, v, age, ok)
	}
	c.Put("a", []byte("2"), time.Minute)
	if v, age, ok := c.Get("a"); !ok || string(v) != "2" || age != 0 {
		t.Errorf(`%s %s %v; want ok = true, string(v) = "2", age = 0`, v, age, ok)
	}
	if _, _, ok := c.Get("none"); ok {
		t.Error("kept without a time")
	}
	now = now.Add(time.Minute)
	if _, _, ok := c.Get("a"); ok {
		t.Error("kept too long")
	}
	big := make([]byte, 4<<20)
	for i := range 20 {
		c.Put(fmt.Sprint(i), big, time.Hour)
		c.Get("0") // the one that is used stays
	}
	if _, _, ok := c.Get("0"); !ok {
		t.Error("what is used goes first")
	}
	if _, _, ok := c.Get("1"); ok {
		t.Error("80 MiB are kept")
	}
	c.Put("huge", make([]byte, 5<<20), time.Hour)
	if _, _, ok := c.Get("huge"); ok {
		t.Error("one result takes a sixteenth of it")
	}
	c.Clear()
	if _, _, ok := c.Get("0"); ok {
		t.Error("cleared, and still there")
	}
}
