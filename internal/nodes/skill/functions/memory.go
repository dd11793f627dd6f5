package functions

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	wire "github.com/junctor-run/junctor/protocol/cmp"
)

// remembered is what was done under a key.
type remembered struct {
	key    string
	digest [sha256.Size]byte // of what was asked
	at     time.Time
	done   chan struct{} // closed when the rest is set

	kept    bool // the outcome is here
	outcome Outcome
	chunks  []json.RawMessage
	err     error
	size    int
}

// memory holds outcomes by caller and key.
type memory struct {
	now func() time.Time

	mu      sync.Mutex
	entries map[string]*remembered
	order   []*remembered // oldest first
	bytes   int
}

// once does what is asked unless it was done under the same key; then it repeats
// the outcome, chunks too. What never started is not remembered.
func (m *memory) once(ctx context.Context, r Request, do func(Request) (Outcome, bool, error)) (Outcome, error) {
	asked, err := jsonx.Marshal([]any{r.Function, r.Args, r.Stream})
	if err == nil {
		asked, err = jsonx.Canonical(asked)
	}
	if err != nil {
		return Outcome{}, wire.Errorf(wire.ReasonEncoding, "the arguments: %w", err)
	}
	key := r.Caller + "\x00" + r.Key
	m.mu.Lock()
	m.forget()
	e, known := m.entries[key]
	if !known {
		e = &remembered{key: key, digest: sha256.Sum256(asked), at: m.now(), done: make(chan struct{})}
		m.entries[key] = e
		m.order = append(m.order, e)
	}
	m.mu.Unlock()
	if !known {
		return m.first(r, e, do)
	}
	if e.digest != sha256.Sum256(asked) {
		return Outcome{}, capability.Errorf(capability.CodeConflict, "call",
			"the idempotency key was used for another call").With("idempotency_conflict", "use a new key for a new call")
	}
	select {
	case <-e.done:
	case <-ctx.Done():
		return Outcome{}, ended(ctx)
	}
	return m.again(ctx, r, e)
}

func (m *memory) first(r Request, e *remembered, do func(Request) (Outcome, bool, error)) (Outcome, error) {
	var heard recorder
	if r.Stream {
		heard.emit, r.Emit = r.Emit, heard.take
	}
	out, started, err := do(r)
	chunks, size := heard.end()
	size += len(out.Value)
	m.mu.Lock()
	defer m.mu.Unlock()
	defer close(e.done)
	e.outcome, e.err = out, err
	switch {
	case !started:
		m.drop(e) // its waiters receive the same failure
	case m.entries[e.key] != e:
		e.outcome.Value = nil // it took so long that it is forgotten
	case size > maxKept:
		e.outcome.Value = nil
	default:
		e.kept, e.chunks, e.size = true, chunks, size
		m.bytes += size
	}
	return out, err
}

// recorder receives the chunks of a stream; a handler that was left behind may still
// be about to send one.
type recorder struct {
	emit func(ctx context.Context, chunk json.RawMessage) error

	mu     sync.Mutex
	chunks []json.RawMessage
	size   int
}

func (r *recorder) take(ctx context.Context, chunk json.RawMessage) error {
	r.mu.Lock()
	if r.size += len(chunk); r.size <= maxKept {
		r.chunks = append(r.chunks, bytes.Clone(chunk))
	}
	r.mu.Unlock()
	return r.emit(ctx, chunk)
}

func (r *recorder) end() (chunks []json.RawMessage, size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.chunks[:len(r.chunks):len(r.chunks)], r.size
}

func (m *memory) again(ctx context.Context, r Request, e *remembered) (Outcome, error) {
	m.mu.Lock()
	kept, out, chunks, err := e.kept, e.outcome, e.chunks, e.err
	m.mu.Unlock()
	if err != nil {
		return Outcome{}, err
	}
	if !kept {
		return Outcome{}, capability.Errorf(capability.CodeConflict, "call",
			"the call was carried out under this key, and its outcome is no longer kept").With("outcome_not_kept", "do not send it again")
	}
	for _, chunk := range chunks {
		if err := r.Emit(ctx, chunk); err != nil {
			return Outcome{}, err
		}
	}
	return out, nil
}

// forget makes room: what is old goes, then the oldest; outcomes go before keys.
func (m *memory) forget() {
	for len(m.order) > 0 && (m.now().Sub(m.order[0].at) > KeyTTL || len(m.order) >= MaxKeys) {
		m.drop(m.order[0]) // a call takes an hour at most: the oldest of so many has ended
	}
	for _, e := range m.order {
		if m.bytes <= maxMemory {
			return
		}
		m.bytes -= e.size
		e.kept, e.outcome, e.chunks, e.size = e.kept && e.size == 0, Outcome{Streamed: e.outcome.Streamed}, nil, 0
	}
}

func (m *memory) drop(e *remembered) {
	delete(m.entries, e.key)
	for i, other := range m.order {
		if other == e {
			m.order = append(m.order[:i], m.order[i+1:]...)
			break
		}
	}
	if e.kept {
		m.bytes -= e.size
	}
}
