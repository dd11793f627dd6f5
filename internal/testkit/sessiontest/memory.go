package sessiontest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/junctor-run/junctor/internal/core/session"
)

// Memory is a session.Store that is gone with the process.
type Memory struct {
	mu       sync.Mutex
	sessions map[session.Owner]*conversation
	results  map[resultKey]*kept
	bytes    int64
	uses     int64 // counts uses, which is their order whatever the clock does
	seq      int64
}

type conversation struct {
	created, active time.Time
	order           int64
	messages        []session.Message
}

type resultKey struct {
	session.Owner
	extension string
}

type kept struct {
	session.Result
	used, saved int64
}

var _ session.Store = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{sessions: make(map[session.Owner]*conversation), results: make(map[resultKey]*kept)}
}

// AppendMessage implements [session.Store].
func (s *Memory) AppendMessage(_ context.Context, o session.Owner, m session.Message, b session.Bounds) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	m.Seq, m.Metadata = s.seq, slices.Clone(m.Metadata)
	c := s.sessions[o]
	if c == nil {
		c = &conversation{created: m.Time}
		s.sessions[o] = c
	}
	c.active, c.order = m.Time, s.seq
	c.messages = append(c.messages, m)
	if n := len(c.messages) - b.Messages; n > 0 {
		c.messages = slices.Delete(c.messages, 0, n)
	}
	mine := s.of(o.Principal)
	for _, idle := range mine[min(b.Sessions, len(mine)):] {
		s.drop(idle)
	}
	return m.Seq, nil
}

// of lists a principal's sessions, the last active first.
func (s *Memory) of(principal string) []session.Owner {
	var mine []session.Owner
	for o := range s.sessions {
		if o.Principal == principal {
			mine = append(mine, o)
		}
	}
	slices.SortFunc(mine, func(a, b session.Owner) int { return cmp.Compare(s.sessions[b].order, s.sessions[a].order) })
	return mine
}

func (s *Memory) drop(o session.Owner) bool {
	found := s.sessions[o] != nil
	delete(s.sessions, o)
	for key := range s.results {
		if key.Owner == o {
			s.forget(key)
			found = true
		}
	}
	return found
}

func (s *Memory) forget(key resultKey) {
	s.bytes -= int64(len(s.results[key].Text))
	delete(s.results, key)
}

// Messages implements [session.Store].
func (s *Memory) Messages(_ context.Context, o session.Owner, after int64, limit int) ([]session.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.sessions[o]
	if c == nil {
		return nil, nil
	}
	from, _ := slices.BinarySearchFunc(c.messages, after+1, func(m session.Message, seq int64) int { return cmp.Compare(m.Seq, seq) })
	return copied(c.messages[from:min(from+limit, len(c.messages))]), nil
}

// RecentMessages implements [session.Store].
func (s *Memory) RecentMessages(_ context.Context, o session.Owner, limit int) ([]session.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.sessions[o]
	if c == nil {
		return nil, nil
	}
	return copied(c.messages[max(len(c.messages)-limit, 0):]), nil
}

func copied(list []session.Message) []session.Message {
	out := slices.Clone(list)
	for i := range out {
		out[i].Metadata = slices.Clone(out[i].Metadata)
	}
	return out
}

// Sessions implements [session.Store].
func (s *Memory) Sessions(_ context.Context, principal string, limit int) ([]session.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []session.Info
	for _, o := range s.of(principal) {
		if c := s.sessions[o]; len(out) < limit {
			out = append(out, session.Info{Session: o.Session, Messages: len(c.messages), Created: c.created, Active: c.active})
		}
	}
	return out, nil
}

// DeleteSession implements [session.Store].
func (s *Memory) DeleteSession(_ context.Context, o session.Owner) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drop(o), nil
}

// SweepSessions implements [session.Store].
func (s *Memory) SweepSessions(_ context.Context, before time.Time) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for o, c := range s.sessions {
		if c.active.Before(before) {
			s.drop(o)
			n++
		}
	}
	return n, nil
}

// PutResult implements [session.Store].
func (s *Memory) PutResult(_ context.Context, o session.Owner, r session.Result, most session.ResultBounds) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := resultKey{o, r.Extension}
	if s.results[key] != nil {
		s.forget(key)
	}
	s.uses++
	s.results[key] = &kept{r, s.uses, s.uses}
	s.bytes += int64(len(r.Text))
	for (s.bytes > most.Bytes || len(s.results) > most.Entries) && len(s.results) > 1 {
		var oldest resultKey
		var used int64
		for k, e := range s.results {
			if k != key && (used == 0 || e.used < used) {
				oldest, used = k, e.used
			}
		}
		s.forget(oldest)
	}
	return nil
}

// LastResult implements [session.Store].
func (s *Memory) LastResult(_ context.Context, o session.Owner, extension string, before, _ time.Time) (session.Result, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var last *kept
	for key, e := range s.results {
		if key.Owner != o || extension != "" && key.extension != extension || e.Saved.Before(before) {
			continue
		}
		if last == nil || e.saved > last.saved {
			last = e
		}
	}
	if last == nil {
		return session.Result{}, false, nil
	}
	s.uses++
	last.used = s.uses
	return last.Result, true, nil
}

// ClearResults implements [session.Store].
func (s *Memory) ClearResults(_ context.Context, o session.Owner) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.results {
		if key.Owner == o {
			s.forget(key)
		}
	}
	return nil
}

// SweepResults implements [session.Store].
func (s *Memory) SweepResults(_ context.Context, before time.Time) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for key, e := range s.results {
		if e.Saved.Before(before) {
			s.forget(key)
			n++
		}
	}
	return n, nil
}

// ResultStats implements [session.Store].
func (s *Memory) ResultStats(context.Context) (int, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.results), s.bytes, nil
}
