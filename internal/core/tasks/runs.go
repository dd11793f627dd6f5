package tasks

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

// RunStatus is the status of a run for pollers.
type RunStatus string

// The statuses.
const (
	RunPending   RunStatus = "PENDING"
	RunRunning   RunStatus = "RUNNING"
	RunSucceeded RunStatus = "SUCCEEDED"
	RunFailed    RunStatus = "FAILED"
	RunTimedOut  RunStatus = "TIMEOUT"
	RunCanceled  RunStatus = "CANCELED"
)

// RunStatuses returns every status.
func RunStatuses() []RunStatus {
	return []RunStatus{RunPending, RunRunning, RunSucceeded, RunFailed, RunTimedOut, RunCanceled}
}

// Over reports whether the run has ended.
func (s RunStatus) Over() bool { return s != RunPending && s != RunRunning }

// Run is a snapshot of one run.
type Run struct {
	ID        string            `json:"run_id"`
	Extension string            `json:"extension_id,omitempty"`
	Command   string            `json:"command,omitempty"`
	Action    string            `json:"action,omitempty"`
	Principal string            `json:"user_id"`
	Session   string            `json:"session_id,omitempty"`
	Status    RunStatus         `json:"status"`
	Stage     string            `json:"stage"`    // VALIDATING, EXECUTING, FINALIZING, DONE
	Progress  int               `json:"progress"` // per cent, nominal
	State     invoke.State      `json:"state"`
	Message   string            `json:"message,omitempty"` // the last message of the provider
	Started   time.Time         `json:"started_at"`
	Ended     time.Time         `json:"completed_at,omitzero"`
	Result    jsonx.Raw         `json:"result,omitempty"`
	Error     *capability.Error `json:"error,omitempty"`
}

// RunEngine is the part of the engine that runs invocations.
type RunEngine interface {
	NewID() string
	Follow(ctx context.Context, inv capability.Invocation, moved func(invoke.State)) (invoke.Reply, error)
	Verify(ctx context.Context, inv capability.Invocation) error
}

// RunLabel describes a run in lists.
type RunLabel struct{ Extension, Command, Action string }

// Runs stores the runs of one server. It is safe for concurrent use.
type Runs struct {
	engine RunEngine
	now    func() time.Time
	ctx    context.Context // of detached runs
	cancel context.CancelFunc
	wait   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	unheard int
	live    map[string]*liveRun
	ended   []*Run // oldest first
	kept    int    // bytes of their results
}

// liveRun is a run in progress.
type liveRun struct {
	Run
	cancel context.CancelFunc
}

// NewRuns returns an empty Runs, which the caller must close.
func NewRuns(engine RunEngine, now func() time.Time) *Runs {
	ctx, cancel := context.WithCancel(context.Background())
	return &Runs{engine: engine, now: now, ctx: ctx, cancel: cancel, live: make(map[string]*liveRun)}
}

// NewID returns a new id for a run whose id is needed before it begins.
func (r *Runs) NewID() string { return r.engine.NewID() }

// Verify asks the verifier of ctx about an invocation before it is made; see [invoke.Engine.Verify].
func (r *Runs) Verify(ctx context.Context, inv capability.Invocation) error {
	return r.engine.Verify(ctx, inv)
}

// Do runs an invocation, waits for it, and returns its outcome. Get returns the run meanwhile and
// afterwards.
func (r *Runs) Do(ctx context.Context, inv capability.Invocation, about RunLabel) (invoke.Reply, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return r.follow(ctx, inv, r.begin(&inv, about, cancel))
}

// Start runs an invocation without waiting for it and returns its initial state. Close ends the
// run. Errors: overloaded, reason queue_full, beyond MaxDetachedRuns; unavailable after Close.
func (r *Runs) Start(inv capability.Invocation, about RunLabel) (Run, error) {
	r.mu.Lock()
	switch {
	case r.closed:
		r.mu.Unlock()
		return Run{}, capability.Errorf(capability.CodeUnavailable, "runs", "the server is stopping")
	case r.unheard >= MaxDetachedRuns:
		r.mu.Unlock()
		return Run{}, fault.QueueFull(MaxDetachedRuns, time.Second)
	}
	r.unheard++
	r.wait.Add(1)
	r.mu.Unlock()
	ctx, cancel := context.WithCancel(r.ctx)
	one := r.begin(&inv, about, cancel)
	go func() {
		defer r.wait.Done()
		defer cancel()
		_, _ = r.follow(ctx, inv, one) // the result is stored in r
		r.mu.Lock()
		defer r.mu.Unlock()
		r.unheard--
	}()
	run, _ := r.get(inv.ID)
	return run, nil
}

// begin registers a live run, sets a missing inv.ID, and makes inv.Progress update the run.
func (r *Runs) begin(inv *capability.Invocation, about RunLabel, cancel context.CancelFunc) *liveRun {
	if inv.ID == "" {
		inv.ID = r.engine.NewID()
	}
	one := &liveRun{cancel: cancel, Run: Run{
		ID: inv.ID, Extension: about.Extension, Command: about.Command, Action: about.Action, Principal: inv.Principal.ID, Session: inv.Session,
		Status: RunPending, Stage: "VALIDATING", Progress: 5, State: invoke.StateCreated, Started: r.now().UTC(),
	}}
	tell := inv.Progress
	inv.Progress = func(c capability.Chunk) {
		r.change(one, func() { one.recordChunk(c) })
		if tell != nil {
			tell(c)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live[one.ID] = one
	return one
}

func (r *Runs) follow(ctx context.Context, inv capability.Invocation, one *liveRun) (invoke.Reply, error) {
	reply, err := r.engine.Follow(ctx, inv, func(s invoke.State) { r.change(one, func() { one.moved(s) }) })
	r.end(one, reply, err)
	return reply, err
}

func (r *Runs) change(one *liveRun, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one.Ended.IsZero() {
		f()
	}
}

// recordChunk records a chunk of the provider.
func (one *Run) recordChunk(c capability.Chunk) {
	if c.Message != "" {
		one.Message = c.Message
	}
	switch c.Stage {
	case capability.StageQueued:
		one.Status, one.Stage, one.Progress = RunPending, "QUEUED", 15
	case capability.StageExecuting:
		one.Status, one.Stage, one.Progress = RunRunning, "EXECUTING", 60
	}
}

// moved records a state unless it is terminal, because the terminal state becomes visible
// together with the result.
func (one *Run) moved(s invoke.State) {
	if s.Terminal() {
		return
	}
	one.State = s
	switch s {
	case invoke.StateCreated, invoke.StateQueued, invoke.StateAwaiting:
		one.Status = RunPending
	case invoke.StateValidating:
		one.Status, one.Stage, one.Progress = RunRunning, "VALIDATING", 5
	case invoke.StateExecuting:
		one.Status, one.Stage, one.Progress = RunRunning, "EXECUTING", 60
	case invoke.StateProcessing, invoke.StateLogging:
		one.Status, one.Stage, one.Progress = RunRunning, "FINALIZING", 90
	}
}

// end stores the outcome of a run and drops old ended runs.
func (r *Runs) end(one *liveRun, reply invoke.Reply, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one.State, one.Stage, one.Progress, one.Ended = reply.State, "DONE", 100, r.now().UTC()
	one.Result = jsonx.Raw(reply.Result)
	switch {
	case err == nil:
		one.Status = RunSucceeded
	case reply.State == invoke.StateTimeout:
		one.Status = RunTimedOut
	case reply.State == invoke.StateCancelled:
		one.Status = RunCanceled
	default:
		one.Status = RunFailed
	}
	if err != nil {
		one.Error = capability.AsError(err)
	}
	delete(r.live, one.ID)
	r.ended = append(r.ended, &one.Run)
	r.kept += len(one.Result)
	r.forget()
}

// forget drops runs beyond the limits of age and number. Caller holds mu.
func (r *Runs) forget() {
	n, before := 0, r.now().Add(-RunTTL)
	for n < len(r.ended) && (r.ended[n].Ended.Before(before) || len(r.ended)-n > MaxEndedRuns || r.kept > MaxRunBytes) {
		r.kept -= len(r.ended[n].Result)
		n++
	}
	r.ended = slices.Delete(r.ended, 0, n)
}

// Get returns a run visible to the principal: its own, or any run if it manages the server.
// Errors: not_found.
func (r *Runs) Get(who capability.Principal, id string) (Run, error) {
	if run, ok := r.get(id); ok && runVisible(who, &run) {
		return run, nil
	}
	return Run{}, capability.Errorf(capability.CodeNotFound, "runs", "there is no run %q, or it ended more than an hour ago", id).
		With("", "see the outcome with: junctor audit trail "+id)
}

// get returns a live or ended run of any principal.
func (r *Runs) get(id string) (Run, bool) {
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

func runVisible(who capability.Principal, run *Run) bool {
	return run.Principal == who.ID || who.Role == capability.RoleAdmin || who.Role == capability.RoleOperator
}

// RunFilter narrows a list. A zero field matches all runs.
type RunFilter struct {
	Extension string
	Session   string
	Status    RunStatus
	Limit     int // at most 1,000; 0 is 100
}

// List returns the runs visible to the principal, the last begun first, without their
// results.
func (r *Runs) List(who capability.Principal, f RunFilter) []Run {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	out := []Run{}
	r.mu.Lock()
	r.forget()
	keep := func(one *Run) {
		if runVisible(who, one) && (f.Extension == "" || f.Extension == one.Extension) && (f.Session == "" || f.Session == one.Session) &&
			(f.Status == "" || f.Status == one.Status) {
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

// Cancel cancels a run visible to the principal. Errors: not_found; conflict if the run has
// ended.
func (r *Runs) Cancel(who capability.Principal, id string) error {
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

// Close rejects new runs, waits until ctx ends for the detached runs, and then cancels and
// awaits them.
func (r *Runs) Close(ctx context.Context) {
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
