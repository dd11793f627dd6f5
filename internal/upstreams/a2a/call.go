package a2a

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/junctor-run/junctor/protocol/a2awire"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

var errIdle = errors.New("the agent is silent")

// input is that of every skill.
type input struct {
	Message string    `json:"message"`
	Data    jsonx.Raw `json:"data"`
	Context string    `json:"context"`
	Files   []struct {
		URL      *string `json:"url"`
		Bytes    *string `json:"bytes"`
		Name     string  `json:"name"`
		MimeType string  `json:"mimeType"`
	} `json:"files"`
}

// Request is one call of a skill.
type Request struct {
	// Definition is the one of [Card.Definitions] that an operator approved.
	Definition json.RawMessage
	// Arguments are an object in the form of the definition's input schema.
	Arguments json.RawMessage
	// Idle is how long the agent may be silent; 0: as long as it likes.
	Idle time.Duration
	// Progress receives the agent's progress messages, and Ask its questions; either may
	// be nil.
	Progress func(capability.Chunk)
	Ask      capability.Asker
	// Keep takes the id of the agent's task as soon as it is known; if nil, it does not keep
	// it. What is kept is not cancelled when ctx ends with [capability.ErrStopping].
	Keep func(task string)
	// Resume is the id of a task that an earlier call kept: nothing is sent again, and the
	// task is followed from where it is.
	Resume string
}

// work is one call on its way: the agent's task as it is known so far.
type work struct {
	link   *link
	r      *Request
	idle   *time.Timer // nil: it may be silent
	stream bool
	task   a2awire.Task
	said   *a2awire.Message // an answer without a task
	status string           // the last word
	steps  float64

	// Of the question that was answered last: an agent may show its task as it was then
	// before it goes on.
	answered bool
	asked    string // its time, as the agent has it
	sending  bool   // what comes is the stream of the answer
	stale    bool   // the state is that of the question still
}

// Call sends the request's message and follows the agent's task to its end. It returns
// a result of tools/call of MCP, also with isError where the agent reports that it failed,
// and the id of the task. Errors: invalid_input; unavailable where no byte reached the
// agent; approval_required, reason upstream_auth_required, where the agent's own
// operator has to act; timeout; failed. The end of ctx ends the call at once and
// cancels the agent's task.
func (a *Agent) Call(ctx context.Context, r Request) (result json.RawMessage, id string, err error) {
	var d definition
	if err := jsonx.Unmarshal(r.Definition, &d); err != nil {
		return nil, "", capability.Wrap(capability.CodeFailed, "upstream", "the definition of the skill cannot be read", err)
	}
	l, err := a.link(d.Meta.A2A.Interface)
	if err != nil {
		return nil, "", err
	}
	m, err := r.message(&d)
	if err != nil {
		return nil, "", err
	}
	w := &work{link: l, r: &r, stream: d.Meta.A2A.Streaming}
	running, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(a.base, func() { cancel(context.Canceled) })()
	if r.Idle > 0 {
		w.idle = time.AfterFunc(r.Idle, func() { cancel(errIdle) })
		defer w.idle.Stop()
	}
	if r.Resume != "" {
		w.task.ID, m = r.Resume, nil
		if r.Keep != nil {
			r.Keep(r.Resume)
		}
	}
	result, err = w.carry(running, m)
	ended := running.Err() != nil
	switch {
	case ctx.Err() != nil:
		err = capability.AsError(ctx.Err())
	case errors.Is(context.Cause(running), errIdle):
		err = capability.Errorf(capability.CodeTimeout, "upstream", "the agent said nothing for %s", r.Idle).With(reasonIdle, "")
	case ended:
		err = capability.Errorf(capability.CodeFailed, "upstream", "the connection to the agent was closed").With(reasonConnection, "")
	}
	if kept := r.Keep != nil && errors.Is(context.Cause(ctx), capability.ErrStopping); (ended || err != nil) && !kept {
		w.cancel()
	}
	if err != nil {
		return nil, w.task.ID, err
	}
	return result, w.task.ID, nil
}

// message is the first one of a call.
func (r *Request) message(d *definition) (*a2awire.Message, error) {
	var in input
	if err := jsonx.Unmarshal(r.Arguments, &in); err != nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, "upstream", "the input is not that of an agent", err)
	}
	m := &a2awire.Message{ID: rand.Text(), ContextID: in.Context, Role: a2awire.RoleUser, Parts: []a2awire.Part{{Text: &in.Message}}}
	var s skill
	if jsonx.Unmarshal(d.Meta.A2A.Skill, &s) == nil && s.ID != "" {
		m.Metadata = append(jsonx.AppendString([]byte(`{"skillId":`), s.ID), '}')
	}
	if len(in.Data) > 0 {
		m.Parts = append(m.Parts, a2awire.Part{Data: in.Data, MediaType: "application/json"})
	}
	for i := range in.Files {
		f := &in.Files[i]
		if (f.URL == nil) == (f.Bytes == nil) {
			return nil, capability.Errorf(capability.CodeInvalidInput, "upstream", "a file has either url or bytes")
		}
		m.Parts = append(m.Parts, a2awire.Part{Raw: f.Bytes, URL: f.URL, Filename: f.Name, MediaType: f.MimeType})
	}
	return m, nil
}

// carry sends messages until the task has ended; nil sends none at first.
func (w *work) carry(ctx context.Context, m *a2awire.Message) (json.RawMessage, error) {
	for range maxRounds {
		if m != nil {
			if err := w.send(ctx, m); err != nil {
				return nil, err
			}
		}
		if err := w.follow(ctx); err != nil {
			return nil, err
		}
		switch w.task.Status.State {
		case a2awire.StateInputRequired:
			answer, err := w.ask(ctx)
			if err != nil {
				return nil, err
			}
			w.answered, w.asked = true, w.task.Status.Timestamp
			m = &a2awire.Message{
				ID: rand.Text(), TaskID: w.task.ID, ContextID: w.task.ContextID, Role: a2awire.RoleUser,
				Parts: []a2awire.Part{{Text: &answer}},
			}
			continue
		case a2awire.StateAuthRequired:
			return nil, capability.Errorf(capability.CodeApprovalRequired, "upstream", "the agent %s waits for an approval of its own: %s",
				w.link.agent.cfg.Name, cut(w.status)).
				With(ReasonAuthRequired, "see to it at the agent, then call again")
		}
		return w.result()
	}
	return nil, capability.Errorf(capability.CodeFailed, "upstream", "the agent asked %d times and came to no end",
		maxRounds).With("too_many_questions", "")
}

// send sends one message and handles what comes back, until the task has ended or waits,
// or the stream has ended.
func (w *work) send(ctx context.Context, m *a2awire.Message) error {
	w.task.Status = a2awire.Status{}
	w.sending = w.stream
	defer func() { w.sending = false }()
	return w.handleAll(ctx, w.link.send(ctx, m, w.stream))
}

// follow handles the events of the task until it has ended or waits: over a stream where the agent
// has streams, and else, and where they end early, by asking.
func (w *work) follow(ctx context.Context) error {
	if w.settled() {
		return nil
	}
	if w.task.ID == "" {
		return capability.Errorf(capability.CodeFailed, "upstream", "the agent gave no answer").With(reasonUpstream, "")
	}
	subscribed := !w.stream
	for pause := minPollInterval; ; pause = min(pause*2, maxPollInterval) {
		// The task as it is first: a subscription to one that has ended is an error.
		get := verb{rpc: "GetTask", legacy: "tasks/get", method: http.MethodGet, task: true}
		if err := w.handleAll(ctx, w.link.named(ctx, get, w.task.ID)); err != nil || w.settled() {
			return err
		}
		if !subscribed {
			subscribed = true
			// Whatever ends it, asking finds out.
			subscribe := verb{rpc: "SubscribeToTask", legacy: "tasks/resubscribe", method: http.MethodPost, path: ":subscribe"}
			_ = w.handleAll(ctx, w.link.named(ctx, subscribe, w.task.ID))
			if w.settled() {
				return nil
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

func (w *work) handleAll(ctx context.Context, all func(func(*a2awire.Event, error) bool)) error {
	for e, err := range all {
		if err == nil {
			err = w.handleEvent(e)
		}
		if err != nil {
			if ctx.Err() == nil && capability.CodeOf(err) == capability.CodeUnavailable {
				w.link.agent.down(err)
			}
			return err
		}
		if w.settled() {
			return nil
		}
	}
	return ctx.Err()
}

func (w *work) settled() bool {
	switch state := w.task.Status.State; state {
	case a2awire.StateInputRequired, a2awire.StateAuthRequired:
		return !w.stale || w.said != nil
	default:
		return state.Terminal() || w.said != nil
	}
}

// again reports whether a status is that of the question which was answered: by its
// time, and at the head of a stream, where it is the task as it was, without one too.
func (w *work) again(s *a2awire.Status, snapshot bool) bool {
	return w.answered && (s.Timestamp != "" && s.Timestamp == w.asked || snapshot && w.sending)
}

// handleEvent takes over what an event says.
func (w *work) handleEvent(e *a2awire.Event) error {
	if w.idle != nil {
		w.idle.Reset(w.r.Idle)
	}
	switch {
	case e.Task != nil:
		if err := w.same(e.Task.ID); err != nil {
			return err
		}
		if e.Task.Artifacts == nil {
			e.Task.Artifacts = w.task.Artifacts
		}
		w.task, w.stale = *e.Task, w.again(&e.Task.Status, true)
		w.tell(e.Task.Status.Message)
	case e.Message != nil:
		w.said = e.Message
	case e.StatusUpdate != nil:
		if err := w.same(e.StatusUpdate.TaskID); err != nil {
			return err
		}
		if w.task.ContextID == "" {
			w.task.ContextID = e.StatusUpdate.ContextID
		}
		w.task.Status, w.stale = e.StatusUpdate.Status, w.again(&e.StatusUpdate.Status, false)
		w.tell(e.StatusUpdate.Status.Message)
	case e.ArtifactUpdate != nil:
		if err := w.same(e.ArtifactUpdate.TaskID); err != nil {
			return err
		}
		return w.add(e.ArtifactUpdate)
	}
	return nil
}

// same takes the id of the task when it arrives first, and refuses another one.
func (w *work) same(id string) error {
	switch {
	case id == "" || len(id) > maxTaskID:
		return capability.Errorf(capability.CodeFailed, "upstream", "the agent's task has no id that can be used").With(reasonUpstream, "")
	case w.task.ID == "":
		w.task.ID = id
		if w.r.Keep != nil {
			w.r.Keep(id)
		}
	case w.task.ID != id:
		return capability.Errorf(capability.CodeFailed, "upstream", "the agent answers with another task").With(reasonUpstream, "")
	}
	return nil
}

func (w *work) add(u *a2awire.ArtifactUpdate) error {
	for i := range w.task.Artifacts {
		if one := &w.task.Artifacts[i]; one.ID == u.Artifact.ID {
			if !u.Append {
				*one = u.Artifact
				return nil
			}
			if len(u.Artifact.Parts) > 0 {
				u.Artifact.Parts[0].Continues = true
			}
			one.Parts = append(one.Parts, u.Artifact.Parts...)
			return nil
		}
	}
	if len(w.task.Artifacts) == maxArtifacts {
		return capability.Errorf(capability.CodeFailed, "upstream", "the agent's task has more than %d artifacts",
			maxArtifacts).With("output_limit", "")
	}
	w.task.Artifacts = append(w.task.Artifacts, u.Artifact)
	return nil
}

// tell passes the agent's word on as progress.
func (w *work) tell(m *a2awire.Message) {
	if m == nil {
		w.status = ""
		return
	}
	before := w.status
	if w.status = m.Text(); w.status == "" || w.status == before || w.settled() || w.stale || w.r.Progress == nil {
		return
	}
	w.steps++
	w.r.Progress(capability.Chunk{Progress: w.steps, Message: cut(w.status)})
}
