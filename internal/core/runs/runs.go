// Package runs knows what is under way and what has just ended, for those who
// start something and ask for it later. Every run goes through the one engine;
// this is its waiting room and its notice board. Nothing here outlives the
// process: what was done is in the audit.
package runs

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/core/invoke"
)

// Limits of what is kept.
const (
	Keep       = time.Hour // after the end
	MaxEnded   = 1000      // the oldest go first
	MaxKept    = 64 << 20  // bytes of results; the oldest go first
	MaxUnheard = 100       // runs at once that nobody waits for
)

// Status is what pollers are told.
type Status string

// The statuses.
const (
	Pending   Status = "PENDING"
	Running   Status = "RUNNING"
	Succeeded Status = "SUCCEEDED"
	Failed    Status = "FAILED"
	TimedOut  Status = "TIMEOUT"
	Canceled  Status = "CANCELED"
)

// Statuses returns every status.
func Statuses() []Status {
	return []Status{Pending, Running, Succeeded, Failed, TimedOut, Canceled}
}

// Over reports whether nothing more will happen.
func (s Status) Over() bool { return s != Pending && s != Running }

// Run is one run as it stood when somebody asked.
type Run struct {
	ID        string            `json:"run_id"`
	Extension string            `json:"extension_id,omitempty"`
	Command   string            `json:"command,omitempty"`
	Action    string            `json:"action,omitempty"`
	Principal string            `json:"user_id"`
	Session   string            `json:"session_id,omitempty"`
	Status    Status            `json:"status"`
	Stage     string            `json:"stage"`    // VALIDATING, EXECUTING, FINALIZING, DONE
	Progress  int               `json:"progress"` // per cent, nominal
	State     invoke.State      `json:"state"`
	Message   string            `json:"message,omitempty"` // the last word of the one who runs it
	Started   time.Time         `json:"started_at"`
	Ended     time.Time         `json:"completed_at,omitzero"`
	Result    jsonx.Raw         `json:"result,omitempty"`
	Error     *capability.Error `json:"error,omitempty"`
}

// Engine is the one governed path.
type Engine interface {
	NewID() string
	Follow(ctx context.Context, inv capability.Invocation, moved func(invoke.State)) (invoke.Reply, error)
}

// About says what a run is of, for those who read the list.
type About struct{ Extension, Command, Action string }

// Register keeps the runs of one server. It is safe for concurrent use.
type Register struct {
	engine Engine
	now    func() time.Time
	ctx    context.Context // of runs that nobody waits for
	cancel context.CancelFunc
	wait   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	unheard int
	live    map[string]*live
	ended   []*Run // oldest first
	kept    int    // bytes of their results
}

// live is a run under way.
type live struct {
	Run
	cancel context.CancelFunc
}

// New returns a Register, which is closed by Close.
func New(engine Engine, now func() time.Time) *Register {
	ctx, cancel := context.WithCancel(context.Background())
	return &Register{engine: engine, now: now, ctx: ctx, cancel: cancel, live: make(map[string]*live)}
}

// NewID mints the id of a run that somebody has to know before it begins.
func (r *Register) NewID() string { return r.engine.NewID() }

// Do runs an invocation and waits for it.
func (r *Register) Do(ctx context.Context, inv capability.Invocation, about About) (invoke.Reply, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return r.follow(ctx, inv, r.begin(&inv, about, cancel))
}

// Start runs an invocation that nobody waits for and returns it as it begins. It
// ends with the register. Errors: overloaded, reason queue_full, beyond
// MaxUnheard; unavailable once the register is closed.
func (r *Register) Start(inv capability.Invocation, about About) (Run, error) {
	r.mu.Lock()
	switch {
	case r.closed:
		r.mu.Unlock()
		return Run{}, capability.Errorf(capability.CodeUnavailable, "runs", "the server is stopping")
	case r.unheard >= MaxUnheard:
		r.mu.Unlock()
		return Run{}, fault.QueueFull(MaxUnheard, time.Second)
	}
	r.unheard++
	r.wait.Add(1)
	r.mu.Unlock()
	ctx, cancel := context.WithCancel(r.ctx)
	one := r.begin(&inv, about, cancel)
	go func() {
		defer r.wait.Done()
		defer cancel()
		_, _ = r.follow(ctx, inv, one) // what came of it is in the register
		r.mu.Lock()
		defer r.mu.Unlock()
		r.unheard--
	}()
	run, _ := r.get(inv.ID)
	return run, nil
}

func (r *Register) begin(inv *capability.Invocation, about About, cancel context.CancelFunc) *live {
	if inv.ID == "" {
		inv.ID = r.engine.NewID()
	}
	one := &live{cancel: cancel, Run: Run{
		ID: inv.ID, Extension: about.Extension, Command: about.Command, Action: about.Action, Principal: inv.Principal.ID, Session: inv.Session,
		Status: Pending, Stage: "VALIDATING", Progress: 5, State: invoke.StateCreated, Started: r.now().UTC(),
	}}
	tell := inv.Progress
	inv.Progress = func(c capability.Chunk) {
		r.change(one, func() { one.heard(c) })
		if tell != nil {
			tell(c)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live[one.ID] = one
	return one
}

func (r *Register) follow(ctx context.Context, inv capability.Invocation, one *live) (invoke.Reply, error) {
	reply, err := r.engine.Follow(ctx, inv, func(s invoke.State) { r.change(one, func() { one.moved(s) }) })
	r.end(one, reply, err)
	return reply, err
}

func (r *Register) change(one *live, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one.Ended.IsZero() {
		f()
	}
}

// heard takes over what the one who runs it says.
func (one *Run) heard(c capability.Chunk) {
	if c.Message != "" {
		one.Message = c.Message
	}
	switch c.Stage {
	case capability.StageQueued:
		one.Status, one.Stage, one.Progress = Pending, "QUEUED", 15
	case capability.StageExecuting:
		one.Status, one.Stage, one.Progress = Running, "EXECUTING", 60
	}
}

// moved takes over a state that is not the last one: that becomes visible with the
// result.
func (one *Run) moved(s invoke.State) {
	if s.Terminal() {
		return
	}
	one.State = s
	switch s {
	case invoke.StateCreated, invoke.StateQueued, invoke.StateAwaiting:
		one.Status = Pending
	case invoke.StateValidating:
		one.Status, one.Stage, one.Progress = Running, "VALIDATING", 5
	case invoke.StateExecuting:
		one.Status, one.Stage, one.Progress = Running, "EXECUTING", 60
	case invoke.StateProcessing, invoke.StateLogging:
		one.Status, one.Stage, one.Progress = Running, "FINALIZING", 90
	}
}

func (r *Register) end(one *live, reply invoke.Reply, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one.State, one.Stage, one.Progress, one.Ended = reply.State, "DONE", 100, r.now().UTC()
	one.Result = jsonx.Raw(reply.Result)
	switch {
	case err == nil:
		one.Status = Succeeded
	case reply.State == invoke.StateTimeout:
		one.Status = TimedOut
	case reply.State == invoke.StateCancelled:
		one.Status = Canceled
	default:
		one.Status = Failed
	}
	if err != nil {
		one.Error = capability.AsError(err)
	}
	delete(r.live, one.ID)
	r.ended = append(r.ended, &one.Run)
	r.kept += len(one.Result)
	r.forget()
}

// forget drops what is too old or too much. Caller holds mu.
func (r *Register) forget() {
	n, before := 0, r.now().Add(-Keep)
	for n < len(r.ended) && (r.ended[n].Ended.Before(before) || len(r.ended)-n > MaxEnded || r.kept > MaxKept) {
		r.kept -= len(r.ended[n].Result)
		n++
	}
	r.ended = slices.Delete(r.ended, 0, n)
}

// Get returns a run that who may see: their own, or anybody's for those who
// manage the server. Errors: not_found.
func (r *Register) Get(who capability.Principal, id string) (Run, error) {
	if run, ok := r.get(id); ok && visible(who, &run) {
		return run, nil
	}
	return Run{}, capability.Errorf(capability.CodeNotFound, "runs", "there is no run %q, or it ended more than an hour ago", id).
		With("", "junctor audit trail "+id+" tells what became of it")
}

func (r *Register) get(id string) (Run, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget()
	if one := r.live[id]; one != nil {
		return one.Run, true
	}
	i := slices.IndexFunc(r.ended, func(one *Run) bool { return one.ID == id })
	if i < 0 {
		return Run{}, false
	}
	return *r.ended[i], true
}

func visible(who capability.Principal, run *Run) bool {
	return run.Principal == who.ID || who.Role == capability.RoleAdmin || who.Role == capability.RoleOperator
}

// Filter narrows a list; "" and 0 are no condition.
type Filter struct {
	Extension string
	Session   string
	Status    Status
	Limit     int // at most 1,000; 0 is 100
}

// List returns the runs that who may see, the last begun first, without their
// results.
func (r *Register) List(who capability.Principal, f Filter) []Run {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	out := []Run{}
	r.mu.Lock()
	r.forget()
	keep := func(one *Run) {
		if visible(who, one) && (f.Extension == "" || f.Extension == one.Extension) && (f.Session == "" || f.Session == one.Session) && (f.Status == "" || f.Status == one.Status) {
			run := *one
			run.Result = nil
			out = append(out, run)
		}
	}
	for _, one := range r.ended {
		keep(one)
	}
	for _, one := range r.live {
		keep(&one.Run)
	}
	r.mu.Unlock()
	slices.SortFunc(out, func(a, b Run) int {
		if c := b.Started.Compare(a.Started); c != 0 {
			return c
		}
		return cmp.Compare(b.ID, a.ID)
	})
	return out[:min(len(out), f.Limit)]
}

// Cancel withdraws a run that who may see. Errors: not_found; conflict when it is
// over.
func (r *Register) Cancel(who capability.Principal, id string) error {
	if _, err := r.Get(who, id); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.live[id]
	if one == nil {
		return capability.Errorf(capability.CodeConflict, "runs.cancel", "the run %s is over", id)
	}
	one.cancel()
	return nil
}

// Close takes no more, waits until ctx ends for the runs that nobody waits for,
// and then cancels and awaits them.
func (r *Register) Close(ctx context.Context) {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	done := make(chan struct{})
	go func() {
		r.wait.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	r.cancel()
	<-done
}
