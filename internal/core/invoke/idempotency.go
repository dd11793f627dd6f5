package invoke

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// flights holds the running calls with idempotency keys of this process. A second call with the
// same key waits for the first one's end.
type flights struct {
	mu sync.Mutex
	m  map[flightKey]*flight
}

type flightKey struct{ principal, key string }

type flight struct {
	digest string
	done   chan struct{}
	// Set before done is closed.
	reply Reply
	err   error
	kept  bool // if false, the key is released and the next call may use it
}

// claim reserves the idempotency key for this run and returns nil. If another call with the key
// has finished or is running, it returns that call's outcome, for which it waits if necessary.
// Errors: invalid_input without a store or for a long key; conflict if the key was used for
// another call or its call was interrupted.
func (r *run) claim(ctx context.Context) (replay *Reply, err error) {
	store := r.engine.cfg.Outcomes
	if store == nil {
		return nil, capability.Errorf(capability.CodeInvalidInput, "idempotency", "this server keeps no idempotency keys")
	}
	if len(r.inv.IdempotencyKey) > maxKeyBytes {
		return nil, capability.Errorf(capability.CodeInvalidInput, "idempotency", "the idempotency key has %d bytes; the limit is %d",
			len(r.inv.IdempotencyKey), maxKeyBytes)
	}
	if r.digest == "" {
		r.digest = callDigest(r.inv)
	}
	for {
		other := r.board()
		if other == nil {
			break
		}
		if other.digest != r.digest {
			return nil, keyReused(r.inv.IdempotencyKey)
		}
		select {
		case <-other.done:
			if other.kept {
				reply := other.reply
				return &reply, other.err
			}
		case <-ctx.Done():
			return nil, r.ended(ctx)
		}
	}
	got, claimed, err := store.BeginOutcome(ctx, r.outcome(StateCreated), outcomeTTL, maxOutcomes)
	if err == nil && !claimed && r.engine.cfg.SharedOutcomes {
		got, claimed, err = r.elsewhere(ctx, got)
	}
	if err != nil {
		return nil, capability.AsError(err)
	}
	if !claimed {
		return r.remembered(got)
	}
	r.claimed = true
	return nil, nil
}

// elsewhere polls the store for the outcome of a call that another server may be running, for at
// most elsewhereTimeout.
func (r *run) elsewhere(ctx context.Context, got Outcome) (_ Outcome, claimed bool, err error) {
	until := time.Now().Add(elsewhereTimeout)
	for pause := elsewhereInterval; !got.State.Terminal() && got.Digest == r.digest &&
		time.Now().Before(until); pause = min(2*pause, time.Second) {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return got, false, r.ended(ctx)
		}
		got, claimed, err = r.engine.cfg.Outcomes.BeginOutcome(ctx, r.outcome(StateCreated), outcomeTTL, maxOutcomes)
		if err != nil || claimed {
			break
		}
	}
	return got, claimed, err
}

// board returns the flight of another run with the same key. If none exists, it registers one
// for this run and returns nil.
func (r *run) board() (other *flight) {
	key := flightKey{r.inv.Principal.ID, r.inv.IdempotencyKey}
	fs := &r.engine.flights
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f, ok := fs.m[key]; ok {
		return f
	}
	r.flight = &flight{digest: r.digest, done: make(chan struct{})}
	fs.m[key] = r.flight
	return nil
}

// land removes the run's flight and passes the outcome to the calls that wait for it. It must be
// called at the end of every run, after the outcome is stored.
func (r *run) land(reply Reply, err error) {
	f := r.flight
	if f == nil {
		return
	}
	f.reply, f.err = reply, err
	fs := &r.engine.flights
	fs.mu.Lock()
	delete(fs.m, flightKey{r.inv.Principal.ID, r.inv.IdempotencyKey})
	fs.mu.Unlock()
	close(f.done)
}

// remembered returns a stored outcome as the reply of this call. Errors: conflict if it belongs to
// another call or its call was interrupted; the stored error of a failed call.
func (r *run) remembered(got Outcome) (*Reply, error) {
	if got.Digest != r.digest {
		return nil, keyReused(r.inv.IdempotencyKey)
	}
	if !got.State.Terminal() && r.engine.cfg.SharedOutcomes {
		return nil, capability.Errorf(capability.CodeConflict, "idempotency",
			"the call %s with this idempotency key is under way on another server, or was interrupted with it", got.Invocation).
			With(ReasonInterrupted, "ask again with the same key; if this stays, look at what the call was to change, then use a new key")
	}
	if !got.State.Terminal() {
		return nil, capability.Errorf(capability.CodeConflict, "idempotency",
			"the call %s with this idempotency key was interrupted; whether its work was done is unknown", got.Invocation).
			With(ReasonInterrupted, "look at what it was to change, then call again with a new key")
	}
	reply := &Reply{
		Invocation: got.Invocation, State: got.State, Result: got.Result, Provider: got.Provider, Capability: got.Capability,
	}
	r.flight.kept = true
	if got.Error != nil {
		return reply, got.Error
	}
	return reply, nil
}

// finishKey stores the outcome of a claimed key, or releases the key if the work never started. A
// failure is only logged.
func (r *run) finishKey(ctx context.Context, reply Reply, failure *capability.Error) {
	if !r.claimed {
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
		r.log().Error("idempotency outcome not stored", "err", err)
	}
	r.flight.kept = r.started
}

func (r *run) outcome(state State) Outcome {
	return Outcome{
		Principal: r.inv.Principal.ID, Key: r.inv.IdempotencyKey, Digest: r.digest,
		Invocation: r.inv.ID, State: state, At: r.engine.cfg.Now().UTC(),
	}
}

// ReasonInterrupted is the reason of a call whose process ended while it was made, so that its
// outcome is unknown.
const ReasonInterrupted = "interrupted"

func keyReused(key string) error {
	return capability.Errorf(capability.CodeConflict, "idempotency", "the idempotency key %q was used for another call", key).
		With("key_reused", "use a new key for a new call")
}

// callDigest returns a digest that is equal for equal calls: target, selector, conversation and input.
func callDigest(inv capability.Invocation) string {
	target, _ := jsonx.Marshal(inv.Target) // only strings; if they are not UTF-8, the input decides
	if c := inv.Context; c != nil {
		from, _ := jsonx.Marshal([]any{c.Workspace, c.Route, c.Adapter})
		target = append(target, from...)
	}
	sum := sha256.Sum256(append(append(target, '\n'), inputDigest(inv.Input)...))
	return hex.EncodeToString(sum[:])
}
