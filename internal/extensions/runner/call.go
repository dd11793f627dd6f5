package runner

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/core/queue"
	"github.com/junctor-run/junctor/internal/core/session"
)

// Reply is the value of a successful run.
type Reply struct {
	Success   bool           `json:"success"`
	Output    string         `json:"output"`
	Metadata  map[string]any `json:"metadata"`
	Artifacts []Artifact     `json:"artifacts,omitempty"`
	Run       string         `json:"run_id"`
	Started   time.Time      `json:"started_at"`
	Ended     time.Time      `json:"completed_at"`
	Seconds   float64        `json:"duration_seconds"`
}

// Invoke implements capability.Provider: it applies the rate limit, returns a cached
// result if the action allows that, waits in the queue and runs the action.
func (p *provider) Invoke(ctx context.Context, c capability.Call) (capability.Result, error) {
	a, route, words, err := p.understand(c)
	if err != nil {
		return capability.Result{}, err
	}
	user := c.Principal.Person()
	if err := p.cfg.Limiter.Take(user, p.id); err != nil {
		return capability.Result{}, err
	}
	key := p.cacheKey(a, route, c.Principal.ID)
	if a.Cache > 0 && !words.NoCache {
		if value, age, ok := p.cfg.Cache.Get(key); ok {
			return cached(value, age)
		}
	}
	// Callers are notified only if they have to wait.
	waits := time.AfterFunc(waitNoticeDelay, func() {
		c.Progress(capability.Chunk{Stage: capability.StageQueued, Message: "waiting for its turn"})
	})
	leave, err := p.cfg.Queue.Enter(ctx, queue.Job{User: user, Extension: p.id, Session: c.Session, Priority: a.priority})
	told := !waits.Stop()
	if err != nil {
		return capability.Result{}, err
	}
	defer leave()
	if told {
		c.Progress(capability.Chunk{Stage: capability.StageExecuting, Message: "its turn has come"})
	}
	writer := ""
	if p.writes(a) {
		writer = c.Principal.ID
	}
	ctx, running, end := p.cfg.Running.begin(ctx, p.id, writer)
	defer end()
	value, ran, err := p.run(ctx, a, route, c, running)
	if err == nil && a.Cache > 0 {
		p.cfg.Cache.Put(key, value, a.Cache)
	}
	return capability.Result{Value: value, Ran: ran}, err
}

// Preview implements capability.Previewer.
func (p *provider) Preview(ctx context.Context, c capability.Call) (capability.Preview, error) {
	a, route, _, err := p.understand(c)
	if err != nil {
		return capability.Preview{}, err
	}
	out := capability.Preview{
		What:    append([]string{"/" + a.command.Name, a.ID}, route.RecordableArgs()...),
		Details: map[string]any{"permissions": a.permissions()},
		Ran:     &capability.Ran{Command: "/" + a.command.Name, Action: a.ID, Runner: a.Runner, Args: len(route.Args)},
	}
	if out.Binds, err = p.settings(ctx); err != nil {
		return capability.Preview{}, err
	}
	if x, ok := a.executor.(Previewer); ok {
		err = x.Preview(ctx, p.asRun(a, route, c), &out)
	}
	return out, err
}

// settings returns the digest of the settings that a run reads.
func (p *provider) settings(ctx context.Context) (string, error) {
	if p.cfg.Settings == nil {
		return "", nil
	}
	return p.cfg.Settings(ctx, p.id)
}

// agreed returns conflict, reason extension_changed, if the settings have changed since the call
// was approved. A [Previewer] checks this itself, with the rest of what it would run.
func (p *provider) agreed(ctx context.Context, a *action, c capability.Call) error {
	if _, ok := a.executor.(Previewer); ok || c.Agreed == "" {
		return nil
	}
	if now, err := p.settings(ctx); err != nil || now != c.Agreed {
		return capability.Wrap(capability.CodeConflict, "runner", "the settings have changed since the call was approved", err).
			With("extension_changed", "try again")
	}
	return nil
}

// understand returns the action, route and words of a call. Errors: unsupported_runner,
// permission_denied (the extension does not declare what the runner needs), and those of
// parsing the words.
func (p *provider) understand(c capability.Call) (*action, *command.Route, Words, error) {
	a, words, err := p.meant(c)
	if err != nil {
		return nil, nil, words, err
	}
	if a.executor == nil {
		return nil, nil, words, fault.UnsupportedRunner(a.Runner, families(p.cfg.Executors))
	}
	for _, need := range a.executor.Needs(a.Action) {
		if !slices.Contains(a.permissions(), need) {
			return nil, nil, words, fault.PermissionDenied(need, "the extension does not declare it, and "+a.Runner+" needs it")
		}
	}
	route, _, err := p.router.Route(line(a, words.Args))
	return a, route, words, err
}

func (p *provider) asRun(a *action, route *command.Route, c capability.Call) Run {
	return Run{
		ID: c.Invocation, Extension: p.id, Digest: p.digest, Route: route, Owner: session.Owner{Principal: c.Principal.ID, Session: c.Session},
		Person: c.Principal.Person(), Permissions: a.permissions(), Progress: c.Progress, Agreed: c.Agreed,
	}
}

// meant returns the action of a call, by its entry or its tool, and the words of its input.
func (p *provider) meant(c capability.Call) (*action, Words, error) {
	if a := p.actions[c.Member.Name]; a != nil && c.Member.Kind == Kind {
		words, err := wordsOf(c.Input)
		return a, words, err
	}
	if a := p.tools[c.Member.Name]; a != nil && c.Member.Kind != Kind {
		words, err := wordsFrom(a, c.Input)
		return a, Words{Args: words}, err
	}
	return nil, Words{}, capability.UnknownCapability(c.Member)
}

// run executes the action, stores its artifacts (also if it failed) and, if the output
// is kept, the session's last response, and returns the Reply as JSON. If only storing
// the last response fails, the error is failed, reason result_not_kept.
func (p *provider) run(ctx context.Context, a *action, route *command.Route, c capability.Call, running *one) (
	json.RawMessage, *capability.Ran, error,
) {
	if err := p.agreed(ctx, a, c); err != nil {
		return nil, nil, err
	}
	start := p.cfg.Now()
	run := p.asRun(a, route, c)
	run.Shared = running.shared.Load
	collect := p.watch(a)
	out, err := a.executor.Execute(ctx, run)
	ran := &out.Ran
	ran.Command, ran.Action, ran.Runner, ran.Args = "/"+a.command.Name, a.ID, a.Runner, len(route.Args)
	// Also after a failed run: the files may explain the failure.
	kept, omitted, lost := collect(ctx, run)
	if err == nil {
		err = lost
	}
	if err != nil {
		return nil, ran, err
	}
	end := p.cfg.Now()
	if out.Kept && c.Session != "" {
		err := p.cfg.Results.Save(ctx, run.Owner, session.Result{
			Text: cmp.Or(out.Stored, out.Output), Extension: p.id, Command: "/" + a.command.Name, Action: a.ID, Tool: ran.Tool, Run: c.Invocation,
		})
		if capability.CodeOf(err) == capability.CodeUnavailable { // unavailable would mean that nothing was done
			err = capability.Wrap(capability.CodeFailed, "runner", "the run is over, but its result could not be kept: "+
				capability.AsError(err).Message, err).
				With("result_not_kept", "look at what it did before you repeat it")
		}
		if err != nil {
			return nil, ran, err
		}
	}
	metadata := map[string]any{"extension_id": p.id, "command": "/" + a.command.Name, "action": a.ID, "run_id": c.Invocation}
	for key, value := range out.Metadata {
		metadata[key] = value
	}
	if len(omitted) > 0 {
		metadata["artifacts_omitted"] = omitted
	}
	value, err := jsonx.Marshal(Reply{
		Success: true, Output: out.Output, Metadata: metadata, Artifacts: kept, Run: c.Invocation, Started: start.UTC(), Ended: end.UTC(),
		Seconds: end.Sub(start).Seconds(),
	})
	if err != nil {
		return nil, ran, capability.Wrap(capability.CodeInternal, "runner", "the result could not be written", err)
	}
	return value, ran, nil
}

// writes reports whether a run of the action may leave files that are collected.
func (p *provider) writes(a *action) bool {
	return p.cfg.Artifacts != nil && slices.ContainsFunc(a.permissions(),
		func(name string) bool { return name == "filesystem.write" || name == "browser" })
}

// watch records the artifacts before a run, if the action may write files, and returns
// the function that collects the new ones afterwards.
func (p *provider) watch(a *action) Collect {
	if p.writes(a) {
		return p.cfg.Artifacts(p.id)
	}
	return func(context.Context, Run) ([]Artifact, []string, error) { return nil, nil, nil }
}

// cached returns a cached reply, with its age in the metadata.
func cached(value []byte, age time.Duration) (capability.Result, error) {
	var r Reply
	if err := json.Unmarshal(value, &r); err != nil {
		return capability.Result{}, capability.Wrap(capability.CodeInternal, "runner", "the kept result cannot be read", err)
	}
	r.Metadata["cached"], r.Metadata["age_ms"] = true, age.Milliseconds()
	out, err := jsonx.Marshal(r)
	return capability.Result{Value: out}, err
}

// cacheKey returns a digest of everything that a result depends on, except settings: a
// change of settings empties the cache.
func (p *provider) cacheKey(a *action, route *command.Route, user string) string {
	h := sha256.New()
	for _, part := range append([]string{p.id, p.digest, a.name, user}, route.Args...) {
		sum := sha256.Sum256([]byte(part))
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}
