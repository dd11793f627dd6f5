// Package push notifies agents of their tasks: each address registered for a task receives a
// POST for every change of it. Addresses are stored together with the last delivered version
// of the task, so that a restart loses only intermediate steps.
//
// Delivery is at least once and in order per task: one change is tried up to five times before the
// next one, and given up then. Each body has an event id, the same in every attempt, by which a
// receiver detects a repetition. Because the addresses are untrusted, each connection is checked:
// only https to public addresses is allowed, unless the operator permits others.
package push

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/queue"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/store"
)

//go:embed migrations/*.sql migrations/postgres/*.sql
var migrations embed.FS

// Tables returns the package's tables.
func Tables() store.Tables { return store.Tables{Owner: "a2a_push", Files: migrations} }

// Config is one address that is notified of one task.
type Config struct {
	ID, Task, Owner     string
	URL                 string
	Token               string // sent as X-A2A-Notification-Token
	Scheme, Credentials string // sent as Authorization
	Legacy              bool   // uses A2A 0.3
	delivered           int64
}

// Options configures a [Sender]. Database, Bodies and Task are required.
type Options struct {
	Database store.Database
	// Bodies returns the documents that describe a change; before is nil for a receiver that
	// has not been notified yet.
	Bodies func(before, now *tasks.Task, legacy bool) [][]byte
	// Task returns a task of any owner.
	Task func(ctx context.Context, id string) (tasks.Task, bool, error)
	// Addresses are ranges outside the public ones that may be notified, also by plain http.
	Addresses []netip.Prefix
	Logger    *slog.Logger
	// Pause waits before the n-th retry, from 1; nil: 1 s, 4 s, 16 s, 64 s.
	Pause func(ctx context.Context, n int) error
}

// Sender stores addresses and notifies them. It is safe for concurrent use.
type Sender struct {
	opts   Options
	post   poster
	places *queue.Shares // of requests, by the owner of their task

	mu    sync.Mutex
	wants map[string]bool // tasks with addresses
	queue map[string][]tasks.Task
	busy  map[string]string // owners of the tasks that are delivered
	tasks map[string]int    // number of those of each owner
	wake  chan struct{}
	last  map[string]*tasks.Task // last delivered, in this process
}

// Open migrates the table and reads its content; [Sender.Run] delivers.
func Open(ctx context.Context, o Options) (*Sender, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Pause == nil {
		o.Pause = pause
	}
	s := &Sender{
		opts: o, post: newPoster(o.Addresses), places: queue.NewShares(maxRequests, maxOwnerRequests),
		wants: make(map[string]bool), queue: make(map[string][]tasks.Task),
		busy: make(map[string]string), tasks: make(map[string]int), wake: make(chan struct{}, 1), last: make(map[string]*tasks.Task),
	}
	if err := Tables().Migrate(ctx, o.Database); err != nil {
		return nil, fmt.Errorf("open the push configurations: %w", err)
	}
	return s, nil
}

func pause(ctx context.Context, n int) error {
	t := time.NewTimer(time.Second << (2 * (n - 1)))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Check reports what is wrong with an address: code invalid_input. Names are checked when
// they are dialled.
func (s *Sender) Check(c *Config) error {
	bad := func(format string, args ...any) error {
		return capability.Errorf(capability.CodeInvalidInput, "push", format, args...).With("push_refused", "")
	}
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || len(c.URL) > MaxURL || u.Host == "" || u.User != nil || u.Fragment != "":
		return bad("the address is not a plain URL of at most %d bytes", MaxURL)
	case len(c.Token) > MaxSecret || len(c.Credentials) > MaxSecret || len(c.Scheme) > 64 || len(c.ID) > 128:
		return bad("token and credentials have %d bytes at most, the id 128", MaxSecret)
	case strings.ContainsFunc(c.Token+c.Scheme+c.Credentials, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return bad("token and credentials hold no control characters")
	case u.Scheme != "https" && (u.Scheme != "http" || len(s.opts.Addresses) == 0):
		return bad("only https addresses are told")
	}
	if reason := s.post.refused(u); reason != "" {
		return bad("the address cannot be told: %s", reason)
	}
	return nil
}

const columns = `task, id, owner, url, token, scheme, credentials, legacy, delivered`

// Set stores an address for t, and replaces one with the same id. The address is notified of
// all later changes. Errors: invalid_input, overloaded.
func (s *Sender) Set(ctx context.Context, c Config, t *tasks.Task) error {
	if err := s.Check(&c); err != nil {
		return err
	}
	legacy := 0
	if c.Legacy {
		legacy = 1
	}
	full := false
	err := s.opts.Database.InTx(ctx, "a2a_push "+t.ID, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM a2a_push WHERE task = ? AND id = ?`, t.ID, c.ID); err != nil {
			return err
		}
		var n int
		if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM a2a_push WHERE task = ?`, t.ID).Scan(&n); err != nil {
			return err
		}
		if full = n >= MaxPerTask; full {
			return nil
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO a2a_push (`+columns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			t.ID, c.ID, t.Owner, c.URL, c.Token, c.Scheme, c.Credentials, legacy, t.Version)
		return err
	})
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "push", "the address could not be kept", err)
	}
	if full {
		return capability.Errorf(capability.CodeOverloaded, "push", "a task has %d addresses at most", MaxPerTask)
	}
	s.mu.Lock()
	s.wants[t.ID] = true
	s.mu.Unlock()
	// The task may have changed during the write.
	if now, ok, err := s.opts.Task(ctx, t.ID); err == nil && ok && now.Version > t.Version {
		s.Changed(now)
	}
	return nil
}

// Changed reports that a task has a new version. It never blocks.
func (s *Sender) Changed(t tasks.Task) {
	s.mu.Lock()
	if !s.wants[t.ID] || len(s.queue[t.ID]) >= maxQueue {
		s.mu.Unlock()
		return
	}
	s.queue[t.ID] = append(s.queue[t.ID], t)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run delivers until ctx ends, starting with the notifications left by an earlier process.
func (s *Sender) Run(ctx context.Context) error {
	s.catchUp(ctx)
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	var work sync.WaitGroup
	defer work.Wait()
	for {
		for _, id := range s.ready() {
			work.Go(func() { s.deliver(ctx, id) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-tick.C:
			s.catchUp(ctx)
		}
	}
}

// ready returns the tasks with pending notifications that are not being delivered and may be.
func (s *Sender) ready() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, q := range s.queue {
		if _, busy := s.busy[id]; busy || len(q) == 0 || s.tasks[q[0].Owner] == maxOwnerTasks {
			continue
		}
		s.busy[id] = q[0].Owner
		s.tasks[q[0].Owner]++
		ids = append(ids, id)
	}
	return ids
}

// catchUp reads all addresses: those that have not received their task's last version are
// notified, and those of tasks that were removed are deleted.
func (s *Sender) catchUp(ctx context.Context) {
	all, err := collect(s.opts.Database.SQL().QueryContext(ctx, `SELECT `+columns+` FROM a2a_push ORDER BY task, id`))
	if err != nil {
		if ctx.Err() == nil {
			s.opts.Logger.Error("push configurations cannot be read", "err", err)
		}
		return
	}
	seen := make(map[string]bool)
	for _, c := range all {
		if seen[c.Task] {
			continue
		}
		t, ok, err := s.opts.Task(ctx, c.Task)
		switch {
		case err != nil:
			continue
		case !ok:
			_ = s.exec(ctx, c.Task, `DELETE FROM a2a_push WHERE task = ?`, c.Task)
			s.forget(c.Task)
			continue
		}
		s.mu.Lock()
		s.wants[c.Task] = true
		_, waiting := s.busy[c.Task]
		waiting = waiting || len(s.queue[c.Task]) > 0
		s.mu.Unlock()
		if t.Version > c.delivered && !waiting {
			seen[c.Task] = true
			s.Changed(t)
		}
	}
}

func (s *Sender) forget(task string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.wants, task)
	delete(s.last, task)
	delete(s.queue, task)
}

// deliver sends the changes of one task, in order.
func (s *Sender) deliver(ctx context.Context, id string) {
	defer func() {
		s.mu.Lock()
		owner := s.busy[id]
		delete(s.busy, id)
		if s.tasks[owner]--; s.tasks[owner] == 0 {
			delete(s.tasks, owner)
		}
		s.mu.Unlock()
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}()
	for ctx.Err() == nil {
		s.mu.Lock()
		q := s.queue[id]
		if len(q) == 0 {
			delete(s.queue, id)
			s.mu.Unlock()
			return
		}
		now, before := q[0], s.last[id]
		s.queue[id] = q[1:]
		s.mu.Unlock()
		list, err := s.List(ctx, now.Owner, id)
		if err != nil {
			return
		}
		var all sync.WaitGroup
		for _, c := range list {
			if now.Version > c.delivered {
				all.Go(func() { s.tell(ctx, &c, before, &now) })
			}
		}
		all.Wait()
		if ctx.Err() != nil {
			return // the next process sends it again
		}
		s.mu.Lock()
		s.last[id] = &now
		if now.State.Terminal() || len(list) == 0 {
			delete(s.last, id)
		}
		s.mu.Unlock()
	}
}

// send sends one body once it has a place among the requests.
func (s *Sender) send(ctx context.Context, c *Config, event string, body []byte) error {
	release, err := s.places.Take(ctx, c.Owner)
	if err != nil {
		return err
	}
	defer release()
	return s.post.send(ctx, c, event, body)
}

// tell sends one change to one address, and records the delivery or the failure.
func (s *Sender) tell(ctx context.Context, c *Config, before, now *tasks.Task) {
	for i, body := range s.opts.Bodies(before, now, c.Legacy) {
		event := now.ID + "-" + strconv.FormatInt(now.Version, 10) + "-" + strconv.Itoa(i)
		for n := 1; ; n++ {
			err := s.send(ctx, c, event, body)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return
			}
			if n == Attempts || permanent(err) {
				s.opts.Logger.Warn("a push was given up", "task", c.Task, "config", c.ID, "event", event, "attempts", n, "err", err)
				break
			}
			if s.opts.Pause(ctx, n) != nil {
				return
			}
		}
	}
	if err := s.exec(ctx, c.Task, `UPDATE a2a_push SET delivered = ? WHERE task = ? AND id = ? AND delivered < ?`, now.Version, c.Task, c.ID,
		now.Version); err != nil && ctx.Err() == nil {
		s.opts.Logger.Error("a push cannot be remembered", "task", c.Task, "err", err)
	}
}
