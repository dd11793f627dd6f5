package functions

// This file executes calls on a node. Calls wait in a queue ordered by priority, run on separate
// goroutines so that handlers cannot block the session, and end by their deadline. A panic fails
// only its call. Outcomes of calls with an idempotency key are remembered and not executed again.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	wire "github.com/junctor-run/junctor/protocol/cmp"
)

// Config of an Executor. Functions is required.
type Config struct {
	Node          string // its id, for texts
	Functions     *Registry
	MaxConcurrent int           // 0: DefaultConcurrent
	Queue         int           // calls that wait; 0: DefaultQueue
	Timeout       time.Duration // of calls that name none; 0: DefaultTimeout
	Now           func() time.Time
	// Redact takes secrets out of the texts of errors; nil leaves them.
	Redact func(string) string
	// Panicked receives the panics of handlers. It may be nil.
	Panicked func(function string, value any)
}

// Executor executes calls. Create it with NewExecutor; it is safe for concurrent use.
type Executor struct {
	cfg    Config
	places places
	memory memory
}

// NewExecutor returns an Executor.
func NewExecutor(cfg Config) *Executor {
	cfg.MaxConcurrent, cfg.Queue, cfg.Timeout = cmp.Or(cfg.MaxConcurrent, DefaultConcurrent), cmp.Or(cfg.Queue, DefaultQueue),
		cmp.Or(cfg.Timeout, DefaultTimeout)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Redact == nil {
		cfg.Redact = func(s string) string { return s }
	}
	e := &Executor{cfg: cfg}
	e.places = places{free: cfg.MaxConcurrent, queue: cfg.Queue, active: make(map[string]int), limit: func(name string) int {
		if f, ok := cfg.Functions.Get(name); ok {
			return f.MaxConcurrent
		}
		return 0
	}}
	e.memory = memory{entries: make(map[string]*remembered), now: cfg.Now}
	return e
}

// Request is one call.
type Request struct {
	ID       string
	Function string
	Args     wire.Arguments
	Timeout  time.Duration // time until the caller's deadline; 0: none
	Caller   string        // each caller has separate keys
	Key      string        // idempotency key; "" if the call has none
	// Stream sends chunks one by one to Emit, which must then be set. Emit may wait; its error
	// ends the call.
	Stream bool
	Emit   func(ctx context.Context, chunk json.RawMessage) error
}

// Outcome is the result of a successful call. A streamed call has no Value.
type Outcome struct {
	Value    json.RawMessage
	Streamed bool
	Chunks   int
	Bytes    int64 // of all chunks
	Took     time.Duration
}

// Do executes a call and returns its outcome. A streaming function called without Stream
// returns its chunks as one list; another function called with Stream returns its result.
// Errors: function_not_found, node_overloaded (with
// RetryAfter), timeout, cancelled, execution_failed and the handler's own; conflict
// for a key that was used for another call, or whose outcome is no longer kept.
func (e *Executor) Do(ctx context.Context, r Request) (Outcome, error) {
	if r.Key != "" {
		return e.memory.once(ctx, r, func(r Request) (Outcome, bool, error) { return e.do(ctx, r) })
	}
	out, _, err := e.do(ctx, r)
	return out, err
}

// Load returns how many calls run and how many wait.
func (e *Executor) Load() (active, queued int) { return e.places.load() }

// Close refuses new calls and waits for running ones. If ctx ends first, Close returns its
// error, and the running calls continue.
func (e *Executor) Close(ctx context.Context) error {
	select {
	case <-e.places.close():
		return nil
	case <-ctx.Done():
		return capability.AsError(ctx.Err())
	}
}

// do is Do without idempotency; it also reports whether the handler was called.
func (e *Executor) do(ctx context.Context, r Request) (out Outcome, started bool, err error) {
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, min(r.Timeout, MaxTimeout))
		defer cancel()
	}
	f, ok := e.cfg.Functions.Get(r.Function)
	if !ok {
		return Outcome{}, false, e.notFound(r.Function)
	}
	if err := e.places.take(ctx, r.Function, f.Priority); err != nil {
		if errors.Is(err, errFull) || errors.Is(err, errClosed) {
			return Outcome{}, false, e.overloaded(err)
		}
		return Outcome{}, false, ended(ctx)
	}
	// The function may have changed while the call waited; the current one is called.
	if f, ok = e.cfg.Functions.Get(r.Function); !ok {
		e.places.leave(r.Function)
		return Outcome{}, false, e.notFound(r.Function)
	}
	out, err = e.run(ctx, r, f)
	return out, true, err
}

func (e *Executor) notFound(name string) error {
	names := e.cfg.Functions.Names()
	more := ""
	if len(names) > maxNamed {
		names, more = names[:maxNamed], ", …"
	}
	return wire.Errorf(wire.ReasonFunctionNotFound, "there is no function %.200q on node '%s'; there are %s%s", name, e.cfg.Node,
		strings.Join(names, ", "), more)
}

func (e *Executor) overloaded(err error) error {
	text := fmt.Sprintf("Execution queue is full on node '%s'. Please retry later.", e.cfg.Node)
	if errors.Is(err, errClosed) {
		text = fmt.Sprintf("Node '%s' is shutting down. Please retry later.", e.cfg.Node)
	}
	out := wire.Errorf(wire.ReasonOverloaded, "%s", text)
	out.RetryAfter = time.Second
	return out
}

// run calls the handler on a separate goroutine. Its slot is released when the handler
// returns, which may be after the call has ended.
func (e *Executor) run(ctx context.Context, r Request, f *Registered) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(f.Timeout, e.cfg.Timeout))
	defer cancel()
	s := &sink{stream: r.Stream, forward: func(chunk json.RawMessage) error { return r.Emit(ctx, chunk) }}
	type end struct {
		value json.RawMessage
		err   error
	}
	ends := make(chan end, 1)
	began := e.cfg.Now()
	finished := f.Began(began)
	go func() { // ends with the handler
		defer e.places.leave(r.Function)
		value, err := e.contained(ctx, f, Call{ID: r.ID, Caller: r.Caller, Args: r.Args, Emit: s.emit})
		s.close()
		finished(e.cfg.Now().Sub(began), err != nil)
		ends <- end{value, err}
	}()
	select {
	case got := <-ends:
		out := Outcome{Took: e.cfg.Now().Sub(began)}
		switch {
		case got.err != nil && ctx.Err() != nil:
			return Outcome{}, ended(ctx)
		case got.err != nil:
			return Outcome{}, e.failure(got.err)
		}
		return s.outcome(out, f.Stream, got.value)
	case <-ctx.Done():
		s.close()
		return Outcome{}, ended(ctx)
	}
}

// ended returns the error for a context that has ended: timeout or cancelled.
func ended(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return wire.Errorf(wire.ReasonTimeout, "the call took longer than it may")
	}
	return wire.Errorf(wire.ReasonCancelled, "the call was cancelled")
}

func (e *Executor) contained(ctx context.Context, f *Registered, c Call) (value json.RawMessage, err error) {
	defer func() {
		if p := recover(); p != nil {
			if e.cfg.Panicked != nil {
				e.cfg.Panicked(f.Name, p)
			}
			value, err = nil, wire.Errorf(wire.ReasonExecution, "the function %s broke down", f.Name)
		}
	}()
	return f.Handle(ctx, c)
}

// failure keeps a handler's own error; the text of one without a code is kept too,
// as execution_failed.
func (e *Executor) failure(err error) error {
	if known, ok := errors.AsType[*capability.Error](err); ok {
		out := *known
		out.Message = e.cfg.Redact(known.Message)
		return &out
	}
	return wire.Errorf(wire.ReasonExecution, "%s", e.cfg.Redact(err.Error()))
}

// sink receives the chunks of one call.
type sink struct {
	stream  bool
	forward func(chunk json.RawMessage) error

	mu     sync.Mutex // held while a chunk is forwarded: they are in order
	state  sync.Mutex
	closed bool
	list   []json.RawMessage
	chunks int
	bytes  int64
}

var errOver = errors.New("the call has ended")

func (s *sink) emit(_ context.Context, chunk json.RawMessage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !jsonx.Valid(chunk) {
		return wire.Errorf(wire.ReasonEncoding, "a chunk is not a JSON value")
	}
	s.state.Lock()
	if s.closed {
		s.state.Unlock()
		return errOver
	}
	s.chunks++
	s.bytes += int64(len(chunk))
	if !s.stream {
		defer s.state.Unlock()
		if s.bytes > MaxResult || s.chunks > MaxChunks {
			return wire.Errorf(wire.ReasonTooLarge, "a stream that is collected has at most %d chunks and %d bytes: call it as a stream", MaxChunks,
				MaxResult)
		}
		s.list = append(s.list, bytes.Clone(chunk))
		return nil
	}
	s.state.Unlock()
	return s.forward(chunk)
}

// close refuses further chunks; it does not wait for a chunk that is being forwarded.
func (s *sink) close() {
	s.state.Lock()
	defer s.state.Unlock()
	s.closed = true
}

func (s *sink) outcome(out Outcome, streams bool, value json.RawMessage) (Outcome, error) {
	s.state.Lock()
	defer s.state.Unlock()
	if streams || s.chunks > 0 {
		out.Chunks, out.Bytes, out.Streamed = s.chunks, s.bytes, s.stream
		if s.stream {
			return out, nil
		}
		list, err := jsonx.Marshal(s.list)
		if err != nil {
			return Outcome{}, wire.Errorf(wire.ReasonEncoding, "the chunks are not JSON: %w", err)
		}
		out.Value = list
		return out, nil
	}
	if len(value) == 0 {
		value = json.RawMessage("null")
	}
	switch {
	case len(value) > MaxResult:
		return Outcome{}, wire.Errorf(wire.ReasonTooLarge, "the result has %d bytes; the limit is %d", len(value), MaxResult)
	case !jsonx.Valid(value):
		return Outcome{}, wire.Errorf(wire.ReasonEncoding, "the result is not a JSON value")
	}
	out.Value = value
	return out, nil
}
