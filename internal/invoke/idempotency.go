package invoke

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
)

const (
	outcomeKeep = 24 * time.Hour
	outcomeMax  = 10_000 // keys per principal
	keyMax      = 200    // bytes of a key
)

// flights are the keyed calls running in this process: a second call with the
// same key waits for the first one's end.
type flights struct {
	mu sync.Mutex
	m  map[flightKey]*flight
}

type flightKey struct{ principal, key string }

type flight struct {
	digest string
	done   chan struct{}
	reply  Reply // set before done is closed
	err    error
}

// claim makes this run the one that does the work of its idempotency key. If the
// key is finished or running, replay is the remembered or awaited end. Otherwise
// [run.finishKey] must be called when the call has ended, whatever its end.
func (r *run) claim(ctx context.Context) (replay *Reply, err error) {
	store := r.engine.cfg.Outcomes
	if store == nil {
		return nil, capability.Errorf(capability.CodeInvalidInput, "idempotency", "this server keeps no idempotency keys")
	}
	if len(r.inv.IdempotencyKey) > keyMax {
		return nil, capability.Errorf(capability.CodeInvalidInput, "idempotency", "the idempotency key has %d bytes; the limit is %d", len(r.inv.IdempotencyKey), keyMax)
	}
	r.digest = callDigest(r.inv)
	key := flightKey{r.inv.Principal.ID, r.inv.IdempotencyKey}
	fs := &r.engine.flights
	fs.mu.Lock()
	if f, ok := fs.m[key]; ok {
		fs.mu.Unlock()
		return r.join(ctx, f)
	}
	f := &flight{digest: r.digest, done: make(chan struct{})}
	fs.m[key] = f
	fs.mu.Unlock()
	land := func() {
		fs.mu.Lock()
		delete(fs.m, key)
		fs.mu.Unlock()
		close(f.done)
	}
	got, claimed, err := store.BeginOutcome(ctx, r.outcome(StateCreated), outcomeKeep, outcomeMax)
	if err != nil {
		f.err = err
		land()
		return nil, err
	}
	if !claimed {
		replay, err := r.remembered(got)
		if replay != nil {
			f.reply = *replay
		}
		f.err = err
		land()
		return replay, err
	}
	r.flight, r.land = f, land
	return nil, nil
}

// join waits for the call that holds the key.
func (r *run) join(ctx context.Context, f *flight) (*Reply, error) {
	if f.digest != r.digest {
		return nil, keyReused(r.inv.IdempotencyKey)
	}
	select {
	case <-f.done:
		reply := f.reply
		reply.Replayed = true
		return &reply, f.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// remembered turns a stored outcome into the answer of this call.
func (r *run) remembered(got Outcome) (*Reply, error) {
	if got.Digest != r.digest {
		return nil, keyReused(r.inv.IdempotencyKey)
	}
	if !got.State.Terminal() {
		return nil, capability.Errorf(capability.CodeConflict, "idempotency", "the call %s with this idempotency key was interrupted; nobody knows whether its work was done", got.Invocation).
			With("interrupted", "look at what it was to change, then call again with a new key")
	}
	reply := &Reply{
		Invocation: got.Invocation, State: got.State, Result: got.Result, Provider: got.Provider,
		Capability: got.Capability, Action: r.entry.Action, Replayed: true,
	}
	if got.Error != nil {
		return reply, got.Error
	}
	return reply, nil
}

// finishKey stores the end of a claimed key, or frees it when the work never
// started, and lets waiting calls go on.
func (r *run) finishKey(ctx context.Context, reply Reply, failure *capability.Error) {
	if r.land == nil {
		return
	}
	store := r.engine.cfg.Outcomes
	var err error
	if r.started {
		o := r.outcome(reply.State)
		o.Result, o.Error, o.Provider, o.Capability = reply.Result, failure, reply.Provider, reply.Capability
		err = store.FinishOutcome(ctx, o)
	} else {
		err = store.DropOutcome(ctx, r.inv.Principal.ID, r.inv.IdempotencyKey)
	}
	if err != nil {
		r.engine.cfg.Logger.Error("idempotency outcome not stored", "inv", r.inv.ID, "err", err)
	}
	r.flight.reply = reply
	if failure != nil {
		r.flight.err = failure
	}
	r.land()
}

func (r *run) outcome(state State) Outcome {
	return Outcome{
		Principal: r.inv.Principal.ID, Key: r.inv.IdempotencyKey, Digest: r.digest,
		Invocation: r.inv.ID, State: state, At: r.engine.cfg.Now().UTC(),
	}
}

func keyReused(key string) error {
	return capability.Errorf(capability.CodeConflict, "idempotency", "the idempotency key %q was used for another call", key).
		With("key_reused", "use a new key for a new call")
}

// callDigest tells whether two calls are the same: target, selector and input.
func callDigest(inv capability.Invocation) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%v\n%s", inv.Target, inv.Target.Select, inputDigest(inv.Input)))
	return hex.EncodeToString(sum[:])
}
