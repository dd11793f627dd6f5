// Package invoke implements the governed path of all requests: every request of every
// surface runs resolve → authorize → arbitrate → execute → audit here, each step in one
// function in a file of its name. The engine owns the state machine of an invocation, its
// deadline and cancellation, idempotency keys, progress, and the rule that a result is
// returned only after its record is written. It reads the catalog snapshot without a lock
// and passes inputs and results as raw bytes.
package invoke

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// Config configures an [Engine]. Catalog, Policy and Log are required; a zero limit means
// its default.
type Config struct {
	Catalog  *catalog.Catalog
	Compiler *compile.Compiler // of Catalog; if nil, New creates one
	Policy   *policy.Policy
	Log      *audit.Log
	Outcomes OutcomeStore // if nil, calls with idempotency keys are rejected
	// SharedOutcomes is set if other servers use the same store. A call whose key is in use
	// on another server waits for it, 10 s at most.
	SharedOutcomes bool
	Observer       Observer // if nil, invocations are not counted
	Logger         *slog.Logger
	Now            func() time.Time
	// Compiled is called with each catalog that is shown to a user. It may be nil.
	Compiled func(*compile.Agent)
	// Vetoed is called for each call that a route augmenter stopped. It may be nil.
	Vetoed func(inv *capability.Invocation, e *catalog.Entry, by, reason string)
	// Explain is called with every choice, even a failed one, and returns the id of its
	// explanation. It must not block. It may be nil.
	Explain func(*capability.Invocation, *compile.Agent, *arbitration.Selection) (id string)

	// Balance orders the entries of one function on several nodes, best first. Its error is
	// the reason why none of them can take the call. If nil, calls are not balanced.
	Balance func(b capability.Balance, among []*catalog.Entry) ([]*catalog.Entry, error)

	DefaultTimeout  time.Duration            // 300 s
	ProviderTimeout map[string]time.Duration // by provider kind; endpoint 60 s
	MaxTimeout      time.Duration            // 1 h
	MaxInput        int                      // 4 MiB
	MaxResult       int                      // 16 MiB
	PerProvider     int                      // concurrent calls: 1,024
	SlowAfter       time.Duration            // 5 s
	RecordReads     bool                     // begin records for reads too (audit level debug)
}

// Observer is notified of every finished invocation; it must not block.
type Observer interface {
	Finished(Ended)
}

// Ended describes a finished invocation.
type Ended struct {
	Surface, Action, ProviderKind string
	Effect                        capability.Effect
	State                         State
	Code                          capability.Code // "" when completed
	Duration, Provider            time.Duration
	Extension, Runner, Sandbox    string // of a program or command that ran; else ""

	ID, Parent           string // of the invocation, and of the one that made it, or ""
	Trace, TraceParent   string // ids that the caller named, in hexadecimal, or ""
	Target               capability.Target
	Capability, Provided string // id and provider of the chosen entry, or ""
	Principal, Client    string
	Session              string
	History              []Transition // shared; it must not be changed
}

// Engine runs invocations. It is safe for concurrent use.
type Engine struct {
	cfg     Config
	running sync.Map // invocation id → context.CancelFunc
	flights flights
	places  places
}

// New returns an engine with the given configuration and the defaults for zero limits.
func New(cfg Config) *Engine {
	if cfg.Compiler == nil {
		cfg.Compiler = compile.New(cfg.Catalog)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	setDefault(&cfg.DefaultTimeout, 300*time.Second)
	setDefault(&cfg.MaxTimeout, time.Hour)
	setDefault(&cfg.MaxInput, 4<<20)
	setDefault(&cfg.MaxResult, 16<<20)
	setDefault(&cfg.PerProvider, 1024)
	setDefault(&cfg.SlowAfter, 5*time.Second)
	if cfg.ProviderTimeout == nil {
		cfg.ProviderTimeout = map[string]time.Duration{"endpoint": 60 * time.Second}
	}
	return &Engine{
		cfg: cfg, flights: flights{m: make(map[flightKey]*flight)}, places: places{taken: make(map[place]int)},
	}
}

func setDefault[T ~int | ~int64](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Reply is the outcome of an invocation, successful or failed.
type Reply struct {
	Invocation string
	State      State
	Result     json.RawMessage // with an error: the provider's description of it, or nil
	Provider   capability.ProviderKey
	Capability capability.ID
	Action     capability.Action
	Selection  Selection
	Duration   time.Duration
	History    []Transition
	Replayed   bool // the remembered outcome of an idempotency key
	// AuditDegraded reports whether the record is queued in memory because of a broken log.
	AuditDegraded bool
}

// Selection describes the chosen provider and the reason for the choice.
type Selection struct {
	Step      int    `json:"step"`
	DecidedBy string `json:"decided_by"`
	Fallback  bool   `json:"fallback"`
	// ExplanationID identifies the full explanation of the choice until it expires.
	ExplanationID string `json:"explanation_id,omitempty"`
}

// run is one invocation in progress.
type run struct {
	engine  *Engine
	inv     capability.Invocation
	machine machine
	moved   func(State) // may be nil
	began   time.Time

	context   *capability.Context
	via       capability.Action // the generic action of the call, or ""
	agent     *compile.Agent
	entry     *catalog.Entry
	verdict   policy.Verdict
	consent   policy.Consent
	preview   capability.Preview // if the provider supports previews
	selection Selection
	balanced  []*catalog.Entry // further nodes for a balanced call; nil if the call is not balanced
	narrowed  bool             // the candidates are those of one node, which the caller named
	hidden    bool             // every candidate was denied
	digest    string           // of target and input, if there is an idempotency key
	argsHash  string           // keyed digest of the input, for the records
	flight    *flight          // of the idempotency key, while others may wait for it
	claimed   bool             // the key is claimed in the store and must be finished

	within       time.Duration // the effective timeout, for the message
	started      bool          // bytes may have reached the provider
	providerTime time.Duration
	upstream     string
	login        string
	ran          *capability.Ran
}

// Invoke runs inv and returns after its record is written. The error is always a
// *capability.Error. With an error too, the Reply holds everything known up to the failure.
func (e *Engine) Invoke(ctx context.Context, inv capability.Invocation) (Reply, error) {
	return e.Follow(ctx, inv, nil)
}

// Follow is like [Engine.Invoke], and calls moved with every state that the invocation
// reaches, in order, in the goroutine of the caller. An ID in inv must come from
// [Engine.NewID].
func (e *Engine) Follow(ctx context.Context, inv capability.Invocation, moved func(State)) (reply Reply, err error) {
	r := &run{engine: e, inv: inv, began: e.cfg.Now(), moved: moved}
	if r.inv.ID == "" {
		r.inv.ID = newRunID(r.began)
	}
	r.machine.start(r.began)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.running.Store(r.inv.ID, cancel)
	defer e.running.Delete(r.inv.ID)
	if inv.Timeout > 0 {
		r.within = min(inv.Timeout, e.cfg.MaxTimeout)
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, r.within, errDeadline)
		defer stop()
	}
	defer func() {
		if p := recover(); p != nil { // a panic in finish, which is not recorded
			err = r.panicked(p)
			r.fire(EventPanic, "panic")
			reply = r.reply()
		}
		r.land(reply, err)
	}()
	result, replay, err := r.guarded(ctx)
	if replay != nil {
		return r.finishReplay(ctx, *replay, err)
	}
	return r.finish(ctx, result, err)
}

// Cancel cancels a running invocation. It returns false if the id is not running.
func (e *Engine) Cancel(id string) bool {
	cancel, ok := e.running.Load(id)
	if ok {
		cancel.(context.CancelFunc)()
	}
	return ok
}

// guarded runs walk and returns a panic of the core as an error. Panics of providers are
// recovered in execute.
func (r *run) guarded(ctx context.Context) (result capability.Result, replay *Reply, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = r.panicked(p)
		}
	}()
	return r.walk(ctx)
}

// log returns the logger of the call, whose lines have the call's id as inv.
func (r *run) log() *slog.Logger { return r.engine.cfg.Logger.With(slog.String("inv", r.inv.ID)) }

// panicked logs a panic with its stack and returns an internal error with the call's id.
func (r *run) panicked(p any) error {
	r.log().Error("panic contained", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	return capability.Errorf(capability.CodeInternal, "invoke", "something broke inside junctor; the incident is %s", r.inv.ID).With("panic",
		"")
}

// walk takes the call through all steps before audit: validate, resolve, unwrap, authorize,
// claim its idempotency key, arbitrate, obtain consent, and execute. It returns the result, or
// the stored reply of the key.
func (r *run) walk(ctx context.Context) (capability.Result, *Reply, error) {
	r.fire(EventValidate, "")
	if err := r.engine.cfg.Log.Ready(false); err != nil {
		return capability.Result{}, nil, err
	}
	if r.inv.Resume == "" { // one that was held was counted before
		if err := r.engine.cfg.Policy.Admit(ctx, r.inv.Principal); err != nil {
			return capability.Result{}, nil, err
		}
	}
	if err := r.prepareInput(); err != nil {
		return capability.Result{}, nil, err
	}
	candidates, err := r.resolve()
	if err != nil {
		return capability.Result{}, nil, err
	}
	if candidates, err = r.unwrap(candidates); err != nil {
		return capability.Result{}, nil, err
	}
	candidates, err = r.authorize(r.narrow(candidates))
	if err != nil {
		return capability.Result{}, nil, err
	}
	if candidates, err = r.covered(candidates); err != nil {
		return capability.Result{}, nil, err
	}
	if err := r.verify(ctx, candidates); err != nil {
		return capability.Result{}, nil, err
	}
	// Before arbitrate, so that a stored outcome is returned even if the provider is
	// disconnected.
	if r.inv.IdempotencyKey != "" {
		replay, err := r.claim(ctx)
		if replay != nil || err != nil {
			return capability.Result{}, replay, err
		}
	}
	if r.asksAll(candidates) {
		result, err := r.fanOut(ctx, candidates)
		return result, nil, err
	}
	rest, err := r.arbitrate(ctx, candidates)
	if err != nil {
		return capability.Result{}, nil, err
	}
	if err := r.obtainConsent(ctx); err != nil {
		return capability.Result{}, nil, err
	}
	if err := r.askAugmenters(ctx); err != nil {
		return capability.Result{}, nil, err
	}
	agreed := r.consent // a fallback does not use it
	result, err := r.execute(ctx, rest)
	r.giveBack(ctx, agreed, err)
	return result, nil, err
}

// prepareInput replaces empty input with {}. Errors: too_large; invalid_input for a negative timeout.
func (r *run) prepareInput() error {
	if len(r.inv.Input) == 0 {
		r.inv.Input = json.RawMessage("{}")
	}
	if limit := r.engine.cfg.MaxInput; len(r.inv.Input) > limit {
		return capability.Errorf(capability.CodeTooLarge, "validate", "the input has %d bytes; the limit is %d", len(r.inv.Input), limit)
	}
	if r.inv.Timeout < 0 {
		return capability.Errorf(capability.CodeInvalidInput, "validate", "the timeout %s is negative", r.inv.Timeout)
	}
	return nil
}

// fire moves the state machine. An illegal transition is a bug: it is logged and ignored.
func (r *run) fire(ev Event, reason string) {
	if err := r.machine.fire(ev, r.engine.cfg.Now(), reason); err != nil {
		r.log().Error("state machine", "err", err)
	} else if r.moved != nil {
		r.moved(r.machine.state)
	}
}

// NewID returns a new id for an invocation whose id is needed before it begins.
func (e *Engine) NewID() string { return newRunID(e.cfg.Now()) }

// newRunID returns run_ and 24 hex digits, the time first.
func newRunID(now time.Time) string {
	return ids.Timed("run_", uint64(now.UnixMilli()), 6)
}
