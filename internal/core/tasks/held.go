package tasks

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// States of a held call.
const (
	HeldWaiting   = "held"
	HeldRunning   = "running"
	HeldDone      = "done"
	HeldFailed    = "failed"
	HeldExpired   = "expired"
	HeldCancelled = "cancelled"
)

// HeldCall is one held call.
type HeldCall struct {
	ID         string            `json:"id"` // hld_…
	Node       string            `json:"node_id"`
	Function   string            `json:"function"`
	Arguments  json.RawMessage   `json:"-"`
	Principal  string            `json:"principal"`
	Timeout    time.Duration     `json:"-"` // of the call itself; 0: the default
	State      string            `json:"state"`
	Created    time.Time         `json:"created"`
	Expires    time.Time         `json:"expires"`
	Claimed    time.Time         `json:"-"`
	Ended      time.Time         `json:"ended,omitzero"`
	Invocation string            `json:"invocation,omitempty"`
	Result     json.RawMessage   `json:"result,omitzero"`
	Error      *capability.Error `json:"error,omitempty"`
}

// HeldStore stores held calls.
type HeldStore interface {
	// HoldCall adds c. ok is false if mostOf calls of the principal or mostFor calls for the
	// node wait already.
	HoldCall(ctx context.Context, c HeldCall, mostOf, mostFor int) (ok bool, err error)
	// HeldCall returns one call; ok is false if it does not exist.
	HeldCall(ctx context.Context, id string) (c HeldCall, ok bool, err error)
	// HeldCalls returns at most limit calls of a principal for a node, the newest first,
	// without their results. "" selects all principals or nodes.
	HeldCalls(ctx context.Context, principal, node string, limit int) ([]HeldCall, error)
	// ClaimCall claims the oldest call that waits for a node and has not expired, or whose
	// delivery was claimed before giveUp. Each call is claimed by one caller.
	ClaimCall(ctx context.Context, node string, now, giveUp time.Time) (c HeldCall, ok bool, err error)
	// EndCall stores the outcome of c. ok is false if the stored state is not was.
	EndCall(ctx context.Context, c HeldCall, was string) (ok bool, err error)
	// SweepCalls expires calls that waited too long and removes calls that ended before forget.
	SweepCalls(ctx context.Context, now, forget time.Time) error
	// WaitingNodes returns the nodes for which calls wait.
	WaitingNodes(ctx context.Context) ([]string, error)
}

// HeldConfig configures a [HeldKeeper]. All fields except Logger and Now are required.
type HeldConfig struct {
	Store HeldStore
	// Present reports whether a node can be called now.
	Present func(node string) bool
	// Invoke runs a call as its principal. The error is unauthenticated if the principal no
	// longer exists.
	Invoke func(ctx context.Context, c HeldCall) (result json.RawMessage, invocation string, err error)
	Logger *slog.Logger
	Now    func() time.Time
}

// HeldKeeper holds calls and delivers them. It is safe for concurrent use.
type HeldKeeper struct {
	cfg   HeldConfig
	wake  chan struct{}
	mu    sync.Mutex
	ready map[string]bool // nodes to deliver to
}

// NewHeldKeeper returns a HeldKeeper. [HeldKeeper.Run] delivers.
func NewHeldKeeper(cfg HeldConfig) *HeldKeeper {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &HeldKeeper{cfg: cfg, wake: make(chan struct{}, 1), ready: make(map[string]bool)}
}

// Hold stores a call for at most hold (0: [DefaultHoldTTL]). Errors: invalid_input, too_large,
// overloaded.
func (k *HeldKeeper) Hold(ctx context.Context, c HeldCall, hold time.Duration) (HeldCall, error) {
	const op = "calls.hold"
	if err := cmp.CheckFunction(c.Function); err != nil {
		return HeldCall{}, err
	}
	switch {
	case hold < 0 || hold > MaxHoldTTL:
		return HeldCall{}, capability.Errorf(capability.CodeInvalidInput, op, "a call is held for at most %s, not %s", MaxHoldTTL, hold)
	case len(c.Arguments) > MaxHeldInput:
		return HeldCall{}, capability.Errorf(capability.CodeTooLarge, op, "the arguments have %d bytes; a call is held with at most %d",
			len(c.Arguments), MaxHeldInput)
	case hold == 0:
		hold = DefaultHoldTTL
	}
	if _, err := cmp.ParseArguments(c.Arguments); err != nil {
		return HeldCall{}, err
	}
	now := k.cfg.Now().UTC()
	c.ID, c.State, c.Created, c.Expires = "hld_"+ids.Text()[:24], HeldWaiting, now, now.Add(hold)
	ok, err := k.cfg.Store.HoldCall(ctx, c, MaxHeldOf, MaxHeldFor)
	if err == nil && !ok {
		err = capability.Errorf(capability.CodeOverloaded, op, "%d calls of yours, or %d for %s, are held already", MaxHeldOf, MaxHeldFor,
			c.Node).With("queue_full", "cancel what is not wanted any more")
	}
	if err != nil {
		return HeldCall{}, err
	}
	k.Ready(c.Node)
	return c, nil
}

// Ready reports that a node may be connected now. It never blocks.
func (k *HeldKeeper) Ready(node string) {
	k.mu.Lock()
	k.ready[node] = true
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Cancel cancels a waiting call. The error is conflict if the call runs or has ended.
func (k *HeldKeeper) Cancel(ctx context.Context, c HeldCall) error {
	was := c.State
	c.State, c.Ended = HeldCancelled, k.cfg.Now().UTC()
	ok := was == HeldWaiting
	var err error
	if ok {
		ok, err = k.cfg.Store.EndCall(ctx, c, HeldWaiting)
	}
	if err == nil && !ok {
		err = capability.Errorf(capability.CodeConflict, "calls.cancel", "the call %s does not wait any more", c.ID)
	}
	return err
}

// Run delivers calls until ctx ends.
func (k *HeldKeeper) Run(ctx context.Context) error {
	tick := time.NewTicker(heldSweepInterval)
	defer tick.Stop()
	var work sync.WaitGroup
	defer work.Wait()
	busy := &busyNodes{m: make(map[string]bool)}
	k.sweep(ctx)
	for {
		k.mu.Lock()
		ready := k.ready
		k.ready = make(map[string]bool)
		k.mu.Unlock()
		for node := range ready {
			if !k.cfg.Present(node) || !busy.enter(node) {
				continue
			}
			// Nodes do not share places: a call may take an hour, and only its node has to wait for it.
			work.Go(func() {
				k.deliver(ctx, node)
				if busy.leave(node) {
					k.Ready(node) // Ready was called again meanwhile
				}
			})
		}
		select {
		case <-k.wake:
		case <-tick.C:
			k.sweep(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// busyNodes holds the nodes with a running delivery. The value is true if Ready was called
// meanwhile and the delivery must be repeated.
type busyNodes struct {
	mu sync.Mutex
	m  map[string]bool
}

// enter reports whether a delivery to the node may start. If one is running, it marks the node
// for another delivery and returns false.
func (b *busyNodes) enter(node string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, in := b.m[node]; in {
		b.m[node] = true
		return false
	}
	b.m[node] = false
	return true
}

func (b *busyNodes) leave(node string) (again bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	again = b.m[node]
	delete(b.m, node)
	return again
}

// sweep removes expired calls and checks every node that calls wait for, because a
// notification of its connection may have been lost, or another gateway died.
func (k *HeldKeeper) sweep(ctx context.Context) {
	now := k.cfg.Now().UTC()
	nodes, err := k.cfg.Store.WaitingNodes(ctx)
	if err == nil {
		err = k.cfg.Store.SweepCalls(ctx, now, now.Add(-EndedHeldTTL))
	}
	if err != nil && ctx.Err() == nil {
		k.cfg.Logger.Error("held calls cannot be looked through", "err", err)
	}
	for _, node := range nodes {
		k.Ready(node)
	}
}

// deliver runs the calls that wait for a node, one after the other, oldest first, while the
// node is connected.
func (k *HeldKeeper) deliver(ctx context.Context, node string) {
	for ctx.Err() == nil && k.cfg.Present(node) {
		now := k.cfg.Now().UTC()
		c, ok, err := k.cfg.Store.ClaimCall(ctx, node, now, now.Add(-claimTTL))
		if err != nil {
			k.cfg.Logger.Error("held calls cannot be delivered", "node", node, "err", err)
			return
		}
		if !ok {
			return
		}
		c.Result, c.Invocation, err = k.cfg.Invoke(ctx, c)
		c.Ended, c.State, c.Error = k.cfg.Now().UTC(), HeldDone, nil
		if err != nil {
			c.State, c.Error = HeldFailed, capability.AsError(err)
			if away(c.Error) || ctx.Err() != nil { // not started: the call waits again
				c.State, c.Ended, c.Error, c.Invocation = HeldWaiting, time.Time{}, nil, ""
			}
		}
		if _, err := k.cfg.Store.EndCall(context.WithoutCancel(ctx), c, HeldRunning); err != nil {
			k.cfg.Logger.Error("the end of a held call cannot be kept", "call", c.ID, "err", err)
			return
		}
		if c.State == HeldWaiting {
			return
		}
	}
}

// away reports whether a call did not start because its node is not connected.
func away(e *capability.Error) bool {
	switch e.Code {
	case capability.CodeUnavailable, capability.CodeOverloaded:
		return true
	}
	return e.Reason == cmp.ReasonNodeNotFound || e.Reason == cmp.ReasonFunctionNotFound
}
