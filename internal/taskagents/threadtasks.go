package taskagents

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/bus"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator"
	"github.com/junctor-run/junctor/internal/taskagents/launch"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// threadTasks updates the Task that represents each thread. The thread is authoritative: the
// Task's state is derived from it again after each event, so a crash loses nothing.
type threadTasks struct {
	tasks    Tasks
	c        *taskThreads
	sessions *sessions.Manager
	blockers *blockers
	logger   *slog.Logger

	mu    sync.Mutex
	dirty map[string]bool              // threads whose Task has to be updated
	asked map[string]map[string]string // questions to the user, by thread and session
	left  map[string]bool              // threads with parts that an earlier process did not start
	wake  chan struct{}
}

const handleKey = "task" // key of the Task's id in a thread's metadata

func newThreadTasks(m Tasks, c *taskThreads, live *sessions.Manager, logger *slog.Logger) *threadTasks {
	return &threadTasks{
		tasks: m, c: c, sessions: live, logger: logger, dirty: map[string]bool{}, asked: map[string]map[string]string{},
		left: map[string]bool{}, wake: make(chan struct{}, 1),
	}
}

// open implements launch.Config.Handle. It returns the id of the thread's Task, and creates
// one if the thread has none or its Task has ended.
func (f *threadTasks) open(ctx context.Context, by capability.Principal, t row.Thread) (string, error) {
	if id := row.Meta(t.Metadata, handleKey); id != "" {
		if old, err := f.tasks.Get(ctx, t.AgentID, id); err == nil && !old.State.Terminal() {
			return id, nil
		}
	}
	made, err := f.tasks.OpenThread(ctx, by.ID, "agents", t.ID, t.Title)
	return made.ID, err
}

// ask stores the question to the user about a session and schedules an update of the
// thread's Task.
func (f *threadTasks) ask(thread, session, text string) {
	f.mu.Lock()
	if f.asked[thread] == nil {
		f.asked[thread] = map[string]string{}
	}
	f.asked[thread][session] = text
	f.mu.Unlock()
	f.poke(thread)
}

// poke schedules an update of a thread's Task. It never blocks.
func (f *threadTasks) poke(thread string) {
	if thread == "" {
		return
	}
	f.mu.Lock()
	f.dirty[thread] = true
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// leave marks threads that have to be resumed. Their stored status does not show it, because
// all sessions have ended, or none started, while parts are still left.
func (f *threadTasks) leave(list []row.Thread) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range list {
		f.left[t.ID] = true
	}
}

// asleep reports whether a thread's parts wait until a user resumes it. It removes the mark of
// a thread that was resumed.
func (f *threadTasks) asleep(d threads.Detail) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch d.Status {
	case row.ThreadOpen, row.ThreadDone, row.ThreadFailed:
		if !d.Held() && !threads.Told(d.Thread, len(d.Sessions)) {
			return f.left[d.ID]
		}
	case row.ThreadWaiting:
		if f.left[d.ID] && row.Meta(d.Metadata, row.ControlState) == row.Paused {
			return true // paused by the launcher's Recover
		}
	}
	delete(f.left, d.ID) // it was resumed
	return false
}

// all schedules an update of each thread whose Task has not ended.
func (f *threadTasks) all() {
	for _, t := range f.tasks.OpenThreads() {
		f.poke(t.Thread)
	}
}

// run updates the Tasks of the threads that events concern, and publishes the events to feed,
// until ctx or events ends.
func (f *threadTasks) run(ctx context.Context, events <-chan coordinator.Event, feed *bus.Bus) {
	f.all() // for events that were missed
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group.Go(func() { f.follow(ctx) })
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return
			}
			f.poke(e.ThreadID)
			raw, err := jsonx.Marshal(e)
			if err != nil || len(raw) > 60<<10 { // the bus drops larger events
				e.Data = nil
				raw, _ = jsonx.Marshal(e)
			}
			feed.Publish(e.Type, raw)
		case <-ctx.Done():
			return
		}
	}
}

// follow updates the scheduled Tasks until ctx ends, and logs failures.
func (f *threadTasks) follow(ctx context.Context) {
	for {
		select {
		case <-f.wake:
		case <-ctx.Done():
			return
		}
		f.mu.Lock()
		list := f.dirty
		f.dirty = map[string]bool{}
		f.mu.Unlock()
		for thread := range list {
			if err := f.move(ctx, thread); err != nil && ctx.Err() == nil {
				f.logger.Warn("the task of a thread does not say how it stands", "thread", thread, "err", err)
			}
		}
	}
}

// move sets the Task of a thread to the thread's state, with its result, error or questions. It
// does nothing if the thread has no Task, or has finished but not yet reported its end.
func (f *threadTasks) move(ctx context.Context, thread string) error {
	d, err := f.c.registry.Detail(ctx, thread, threads.Selection{Fields: []threads.Field{threads.FieldSessions, threads.FieldPending}})
	if err != nil {
		return err
	}
	id := row.Meta(d.Metadata, handleKey)
	state, ok := threads.TaskState(d.Thread)
	if id == "" || !ok {
		return nil
	}
	if f.asleep(d) {
		state = tasks.Interrupted
	}
	to := tasks.Movement{State: state, Status: string(d.Status)}
	switch state {
	case tasks.Completed, tasks.Failed:
		if !threads.Told(d.Thread, len(d.Sessions)) || f.c.launcher.Starting(d.ID) {
			return nil // a further part may start, or the thread is being continued
		}
		to.Status = d.Thread.Summary
		to.Result, err = jsonx.Marshal(map[string]any{
			"threadId": d.ID, "status": d.Status, "text": d.Thread.Summary,
			"agents": outcomes(d.Sessions), "usage": d.Usage,
		})
		if err != nil {
			return err
		}
		if state == tasks.Failed {
			to.Error = failure(d)
		}
	case tasks.Cancelled:
		if to.Status = "cancelled"; len(d.Sessions) == 0 {
			to.State, to.Status = tasks.Failed, "no agent could be started"
			to.Error = capability.Errorf(capability.CodeUnavailable, "tasks", "no agent could be started").
				With("not_started", "junctor frameworks list says what is missing; then: junctor tasks control "+d.ID+" resume")
		}
	case tasks.Interrupted:
		to.Status = "interrupted: resume it, or cancel it"
		to.Requests = []tasks.Request{resumption("It was interrupted. Is it to go on?")}
	case tasks.InputRequired:
		to.Requests = f.questions(d)
		if len(to.Requests) == 0 && row.Meta(d.Metadata, row.ControlState) == row.Paused {
			to.Requests = []tasks.Request{resumption("It is paused. Is it to go on?")}
		}
	}
	if _, err := f.tasks.Move(ctx, id, to); err != nil {
		return err
	}
	if state.Terminal() {
		f.mu.Lock()
		delete(f.asked, thread)
		f.mu.Unlock()
	}
	return nil
}

// The question whether to resume a thread, and its answers.
const (
	resumeKey = "resume"
	goOn      = "resume"
	giveUp    = "cancel"
)

func resumption(text string) tasks.Request {
	params := `{"message":"` + text + `","requestedSchema":{"type":"object","properties":{"text":{"type":"string","title":"Answer","enum":["` + goOn + `","` + giveUp + `"]}},"required":["text"]}}`
	return tasks.Request{Key: resumeKey, Method: "elicitation/create", Params: json.RawMessage(params)}
}

// failure returns the error of a thread's Task.
func failure(d threads.Detail) *capability.Error {
	e := capability.Errorf(capability.CodeFailed, "tasks", "%s", d.Thread.Summary)
	if slices.ContainsFunc(d.Sessions, func(s row.Session) bool {
		return s.Status == row.SessionError && strings.HasPrefix(s.CompletionSummary, detect.RefusedPermission)
	}) {
		return e.With("permission_refused", "the result lists what was refused: allow it in the settings of the program, use a preset "+
			"that allows it, or start OpenCode in structured mode, where the user is asked")
	}
	return e.With("task_failed", "look at the thread, or continue it with an instruction")
}

// outcomes returns the results of a thread's sessions as JSON objects, without sessions that
// were replaced.
func outcomes(list []row.Session) []map[string]any {
	out := []map[string]any{}
	for _, s := range list {
		if row.Meta(s.Metadata, row.ReplacedBy) == "" {
			out = append(out, map[string]any{
				"sessionId": s.SessionID, "label": s.Label, "agentType": s.Framework, "status": s.Status, "workdir": s.Workdir,
				"summary": s.CompletionSummary, "usage": threads.UsageOf(s.Metadata), row.Refusals: threads.RefusalsOf(s.Metadata),
			})
		}
	}
	return out
}

// Stop implements tasks.Carrier: it stops the thread for the principal who.
func (f *threadTasks) Stop(ctx context.Context, who string, t tasks.Task) error {
	_, err := f.c.launcher.Control(ctx, capability.Principal{ID: who},
		launch.Control{ThreadID: t.Thread, Operation: launch.Stop, Note: "its task was cancelled"})
	f.poke(t.Thread)
	return err
}
