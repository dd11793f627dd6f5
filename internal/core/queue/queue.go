// Package queue decides when runs of extensions may start: it limits the number of active runs,
// orders the waiting ones, and limits how often a caller may request runs. The caller does the
// work itself.
package queue

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// Priority orders waiting runs.
type Priority int

// The priorities.
const (
	Low Priority = iota
	Normal
	High
	Critical
)

// ParsePriority reads low, normal, high or critical; "" is normal.
func ParsePriority(s string) (Priority, error) {
	switch s {
	case "low":
		return Low, nil
	case "", "normal":
		return Normal, nil
	case "high":
		return High, nil
	case "critical":
		return Critical, nil
	}
	return 0, capability.Errorf(capability.CodeInvalidInput, "queue", "%q is not a priority; use low, normal, high or critical", s)
}

func (l *Limits) fill() {
	for field, def := range map[*int]int{&l.Global: 2, &l.PerUser: 4, &l.PerExtension: 3, &l.PerSession: 1, &l.Length: 100} {
		if *field <= 0 {
			*field = def
		}
	}
	if l.Wait <= 0 {
		l.Wait = time.Minute
	}
	if l.Ageing <= 0 {
		l.Ageing = 30 * time.Second
	}
}

// Job identifies a run to be queued. An empty User, Extension or Session is not limited. One user
// leaves at least one place of an extension, and one of all, to others, unless there is only one.
type Job struct {
	User, Extension, Session string
	Priority                 Priority
}

// Queue assigns slots to jobs. It is safe for concurrent use.
type Queue struct {
	limits Limits

	mu      sync.Mutex
	closed  bool
	running int
	taken   map[place]int
	waiting []*waiter // in order of arrival
	idle    chan struct{}
}

// place is a user, an extension, both or a session, whose active runs are counted.
type place struct{ user, extension, session string }

type waiter struct {
	job   Job
	since time.Time
	ready chan error // capacity 1; nil means that the job has a slot
}

// New returns a queue.
func New(limits Limits) *Queue {
	limits.fill()
	return &Queue{limits: limits, taken: make(map[place]int)}
}

// Enter waits for a slot and returns a function that releases it, which the caller must call.
// Errors: overloaded, reason queue_full, at once if too many jobs wait; overloaded, reason
// queue_timeout, after Limits.Wait; ctx's error if it ends; unavailable once the queue is
// closed.
func (q *Queue) Enter(ctx context.Context, job Job) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return nil, stopping()
	}
	if q.free(job) && !q.rivals(job) {
		q.take(job)
		q.mu.Unlock()
		return q.leaver(job), nil
	}
	own := 0
	for _, w := range q.waiting {
		if job.User != "" && w.job.User == job.User {
			own++
		}
	}
	if n := len(q.waiting); n >= q.limits.Length || own >= max(1, q.limits.Length/2) { // others need the rest
		q.mu.Unlock()
		e := capability.Errorf(capability.CodeOverloaded, "queue", "%d runs are waiting already, %d of them are yours; no more are taken",
			n, own).With("queue_full", "try again later")
		e.RetryAfter = time.Second
		return nil, e
	}
	w := &waiter{job: job, since: time.Now(), ready: make(chan error, 1)}
	q.waiting = append(q.waiting, w)
	q.mu.Unlock()

	timer := time.NewTimer(q.limits.Wait)
	defer timer.Stop()
	select {
	case err = <-w.ready:
	case <-ctx.Done():
		err = q.withdraw(w, ctx.Err())
	case <-timer.C:
		e := capability.Errorf(capability.CodeOverloaded, "queue", "no place became free within %s", q.limits.Wait).With("queue_timeout",
			"try again later, or stop what is running")
		e.RetryAfter = time.Second
		err = q.withdraw(w, e)
	}
	if err != nil {
		return nil, err
	}
	return q.leaver(job), nil
}

func stopping() error {
	return capability.Errorf(capability.CodeUnavailable, "queue", "the server is stopping and takes no more runs").With("stopping", "")
}

// withdraw removes a waiter and returns reason. If the waiter has got a slot or an error
// meanwhile, it returns that result instead.
func (q *Queue) withdraw(w *waiter, reason error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, w); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		return reason
	}
	return <-w.ready // the waiter was decided first
}

// leaver returns a function that releases the job's slot; further calls of it do nothing.
func (q *Queue) leaver(job Job) func() {
	var once sync.Once
	return func() {
		once.Do(func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.running--
			for _, p := range places(job) {
				if q.taken[p]--; q.taken[p] == 0 {
					delete(q.taken, p)
				}
			}
			q.admit()
			if q.running == 0 && q.idle != nil {
				close(q.idle)
				q.idle = nil
			}
		})
	}
}

func places(job Job) []place {
	all := []place{{user: job.User}, {extension: job.Extension}, {session: job.Session}}
	if job.User != "" && job.Extension != "" {
		all = append(all, place{user: job.User, extension: job.Extension})
	}
	return slices.DeleteFunc(all, func(p place) bool { return p == place{} })
}

func (q *Queue) limit(p place) int {
	switch {
	case p.user != "" && p.extension != "":
		return max(1, q.limits.PerExtension-1)
	case p.user != "":
		return min(q.limits.PerUser, max(1, q.limits.Global-1))
	case p.extension != "":
		return q.limits.PerExtension
	}
	return q.limits.PerSession
}

// free reports whether all limits permit the job to start.
func (q *Queue) free(job Job) bool {
	if q.running >= q.limits.Global {
		return false
	}
	for _, p := range places(job) {
		if q.taken[p] >= q.limit(p) {
			return false
		}
	}
	return true
}

// rivals reports whether a waiting job could take the slot instead. Later jobs do not
// overtake, but a waiter that is held back by its own limits does not block others.
func (q *Queue) rivals(job Job) bool {
	return slices.ContainsFunc(q.waiting, func(w *waiter) bool { return q.free(w.job) && w.job.Priority >= job.Priority })
}

func (q *Queue) take(job Job) {
	q.running++
	for _, p := range places(job) {
		q.taken[p]++
	}
}

// admit gives slots to the waiting jobs that may start: highest priority first, which rises while
// they wait, then in order of arrival. The caller holds the lock.
func (q *Queue) admit() {
	now := time.Now()
	rank := func(w *waiter) int { return int(w.job.Priority) + int(now.Sub(w.since)/q.limits.Ageing) }
	order := slices.Clone(q.waiting)
	slices.SortStableFunc(order, func(a, b *waiter) int { return cmp.Compare(rank(b), rank(a)) })
	for _, w := range order {
		if q.running >= q.limits.Global {
			return
		}
		if q.free(w.job) {
			q.take(w.job)
			q.waiting = slices.DeleteFunc(q.waiting, func(x *waiter) bool { return x == w })
			w.ready <- nil
		}
	}
}

// Stats holds the numbers of running and waiting jobs.
type Stats struct {
	Running int `json:"running"`
	Waiting int `json:"waiting"`
}

// Stats returns the current numbers.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Stats{q.running, len(q.waiting)}
}

// Close rejects new and waiting jobs and waits for the running ones. If ctx ends first, it returns
// ctx's error.
func (q *Queue) Close(ctx context.Context) error {
	q.mu.Lock()
	q.closed = true
	for _, w := range q.waiting {
		w.ready <- stopping()
	}
	q.waiting = nil
	if q.running == 0 {
		q.mu.Unlock()
		return nil
	}
	if q.idle == nil {
		q.idle = make(chan struct{})
	}
	idle := q.idle
	q.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
