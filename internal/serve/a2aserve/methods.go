package a2aserve

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/protocol/a2awire"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/tasks"
)

// send handles a message and returns the task that it created or continued.
func (s *Surface) send(ctx context.Context, c *caller, p *a2awire.SendParams) (tasks.Task, error) {
	if f := checkSend(p); f != nil {
		return tasks.Task{}, f
	}
	var push *a2awire.PushConfig
	if p.Configuration != nil && p.Configuration.Push != nil {
		push = p.Configuration.Push
		if err := s.checkPush(push); err != nil {
			return tasks.Task{}, err
		}
	}
	var t tasks.Task
	var err error
	if p.Message.TaskID != "" {
		t, err = s.goOn(ctx, c, p)
	} else {
		t, err = s.begin(ctx, c, p)
	}
	if err == nil && push != nil {
		push.TaskID = t.ID
		_, err = s.setPush(ctx, c, push, &t)
	}
	return t, err
}

// begin creates the task of a message and starts its call. If the message names no
// capability, the task waits with the question for one.
func (s *Surface) begin(ctx context.Context, c *caller, p *a2awire.SendParams) (tasks.Task, error) {
	w, named, f := wantedBy(p)
	if f != nil {
		return tasks.Task{}, f
	}
	m := *p.Message
	if m.ContextID == "" {
		m.ContextID = "ctx-" + ids.Text()
	}
	doc, err := jsonx.Marshal(m)
	if err != nil {
		return tasks.Task{}, refuse(a2a.ErrInvalidParams, "the message cannot be kept: it is not JSON that can be written")
	}
	o := tasks.Options{Context: m.ContextID, History: []json.RawMessage{doc}}
	inv := c.invocation()
	inv.Session = "a2a:" + m.ContextID
	if text := strings.TrimSpace(m.Text()); !named && text != "" && s.canAsk(inv) { // words are for the server's own agent
		w, named = wanted{name: actionAsk, arguments: mustMarshal(map[string]string{"text": text})}, true
	}
	if !named {
		o.Request, o.Status = &tasks.Request{
			Key: askCapability, Method: methodElicit,
			Params: mustMarshal(map[string]string{"message": howToName}),
		}, howToName
		return s.cfg.Tasks.Start(ctx, inv, o)
	}
	if err := s.aim(c, &inv, w); err != nil {
		return tasks.Task{}, err
	}
	return s.cfg.Tasks.Start(ctx, inv, o)
}

// actionAsk is the action that gives a task in words to the server's own agent.
const actionAsk = "chat.ask"

// canAsk reports whether the caller may give a task in words.
func (s *Surface) canAsk(inv capability.Invocation) bool {
	agent, permitted, err := s.cfg.Engine.Agent(inv)
	if err != nil {
		return false
	}
	x, ok := agent.Action(actionAsk)
	return ok && slices.ContainsFunc(x.Entries, permitted)
}

// aim sets the target of an invocation: a skill id as on the card, otherwise an action or
// capability id. The engine reports targets that do not exist for the caller.
func (s *Surface) aim(c *caller, inv *capability.Invocation, w wanted) error {
	inv.Input, inv.IdempotencyKey = w.arguments, w.key
	agent, _, err := s.cfg.Engine.Agent(*inv)
	if err != nil {
		return err
	}
	named, err := s.leases.Resolve(c.lease(), agent, spelling(), w.name)
	if err != nil {
		if capability.AsError(err).Reason == capability.ReasonRetracted {
			return err
		}
		if len(w.name) > 512 {
			return capability.UnknownCapability(capability.Target{Action: capability.Action(w.name[:64])})
		}
		inv.Target, err = capability.ParseTarget(w.name)
		inv.Target.Select = w.selector
		return err
	}
	selector := w.selector
	if named.Action != nil && selector == nil {
		if inv.Input, selector, err = named.Action.CutSelector(inv.Input); err != nil {
			return err
		}
	}
	inv.Target = capability.Target{Action: named.Canonical, Select: selector}
	return nil
}

// goOn delivers a message to a waiting task: it starts the call if the task asked for the
// capability, or answers its question. A message that does not answer the question is
// only added to the history. A task that has ended or does not wait is refused.
func (s *Surface) goOn(ctx context.Context, c *caller, p *a2awire.SendParams) (tasks.Task, error) {
	m := *p.Message
	t, err := s.cfg.Tasks.Get(ctx, c.who.ID, m.TaskID)
	switch {
	case err != nil:
		return t, notFound(m.TaskID)
	case m.ContextID != "" && m.ContextID != contextOf(&t):
		return t, refuse(a2a.ErrInvalidParams, "the task belongs to another context")
	case t.State.Terminal():
		return t, refuse(a2a.ErrUnsupportedOperation, "the task has ended and takes no messages; send one without a task id")
	case !t.State.Waiting():
		return t, refuse(a2a.ErrUnsupportedOperation, "the task is under way and asks nothing")
	}
	m.ContextID = contextOf(&t)
	docs := s.documents(&t, &m)
	if t.State == tasks.AuthRequired { // only an operator can continue it
		return s.cfg.Tasks.Say(ctx, c.who.ID, t.ID, "", docs...)
	}
	if _, asked := t.Request(askCapability); asked {
		w, named, f := wantedBy(p)
		if f != nil {
			return t, f
		}
		if !named {
			return s.cfg.Tasks.Say(ctx, c.who.ID, t.ID, howToName, docs...)
		}
		inv := c.invocation()
		inv.Session = "a2a:" + m.ContextID
		if err := s.aim(c, &inv, w); err != nil {
			return t, err
		}
		return s.cfg.Tasks.Begin(ctx, t.ID, inv, docs...)
	}
	if len(t.Requests) == 0 { // a thread whose question is not stored yet
		return s.cfg.Tasks.Say(ctx, c.who.ID, t.ID, "", docs...)
	}
	r := t.Requests[0]
	if key := keyOf(&m); key != "" {
		var ok bool
		if r, ok = t.Request(key); !ok {
			return t, refuse(a2a.ErrInvalidParams, "the task has no open question of that key")
		}
	}
	answer, ok := answerIn(&m, &r)
	if !ok {
		return s.cfg.Tasks.Say(ctx, c.who.ID, t.ID, "", docs...)
	}
	return s.cfg.Tasks.Answer(ctx, c.who, t.ID, r.Key, answer, docs...)
}

// keyOf returns the key of the question that a message answers, if it is named: "request" in
// a data part.
func keyOf(m *a2awire.Message) string {
	for i := range m.Parts {
		var in struct {
			Request string `json:"request"`
		}
		if d := m.Parts[i].Data; d.Kind() == '{' && read(d, &in) == nil && in.Request != "" {
			return in.Request
		}
	}
	return ""
}

// documents returns the question of a task and the message that answers it, for the
// task's history; nil for a task of another surface.
func (s *Surface) documents(t *tasks.Task, m *a2awire.Message) (docs []json.RawMessage) {
	if t.Surface != surfaceName {
		return nil
	}
	for _, one := range []*a2awire.Message{statusMessage(t), m} {
		if one == nil {
			continue
		}
		if doc, err := jsonx.Marshal(one); err == nil {
			docs = append(docs, doc)
		}
	}
	return docs
}

// settled reports whether a request that waits for a task must be answered.
func settled(t *tasks.Task) bool { return t.State.Terminal() || t.State.Waiting() }

// sendAndWait implements SendMessage: it blocks until the task has ended or waits for an
// answer, unless the client requests an immediate return.
func (s *Surface) sendAndWait(ctx context.Context, c *caller, p *a2awire.SendParams) (*a2awire.Task, error) {
	t, err := s.send(ctx, c, p)
	if err != nil {
		return nil, err
	}
	want := shown{artifacts: true}
	wait := true
	if cfg := p.Configuration; cfg != nil {
		want.history, wait = cfg.HistoryLength, !cfg.ReturnImmediately
	}
	if wait && !settled(&t) {
		if t, err = s.wait(ctx, c, t); err != nil {
			return nil, err
		}
	}
	return render(&t, want), nil
}

// wait follows a task until it is settled, ctx ends or the server drains, and returns its
// last state.
func (s *Surface) wait(ctx context.Context, c *caller, t tasks.Task) (tasks.Task, error) {
	ctx, cancel := s.until(ctx)
	defer cancel()
	seq, err := s.cfg.Tasks.Watch(ctx, c.who.ID, t.ID)
	if err != nil {
		return t, err
	}
	for t = range seq {
		if settled(&t) {
			break
		}
	}
	return t, nil
}

// until returns a context that ends with ctx or the drain.
func (s *Surface) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.open, cancel)
	return ctx, func() { stop(); cancel() }
}

// sendAndStream implements SendStreamingMessage: it yields the task, then its changes
// until it has ended or waits.
func (s *Surface) sendAndStream(ctx context.Context, c *caller, p *a2awire.SendParams) (iter.Seq[a2awire.Event], error) {
	t, err := s.send(ctx, c, p)
	if err != nil {
		return nil, err
	}
	want := shown{artifacts: true}
	if p.Configuration != nil {
		want.history = p.Configuration.HistoryLength
	}
	return s.follow(ctx, c, t.ID, want, settled)
}

// subscribe implements SubscribeToTask: it yields the task, then its changes until it has ended.
func (s *Surface) subscribe(ctx context.Context, c *caller, p *a2awire.TaskParams) (iter.Seq[a2awire.Event], error) {
	t, err := s.find(ctx, c, p)
	if err != nil {
		return nil, err
	}
	if t.State.Terminal() {
		return nil, refuse(a2a.ErrUnsupportedOperation, "the task has ended; get it instead")
	}
	return s.follow(ctx, c, t.ID, shown{artifacts: true, history: p.HistoryLength}, func(t *tasks.Task) bool { return t.State.Terminal() })
}

func (s *Surface) follow(ctx context.Context, c *caller, id string, want shown,
	over func(*tasks.Task) bool,
) (iter.Seq[a2awire.Event], error) {
	seq, err := s.cfg.Tasks.Watch(ctx, c.who.ID, id)
	if err != nil {
		return nil, err
	}
	return func(yield func(a2awire.Event) bool) {
		var before *tasks.Task
		for t := range seq {
			done := over(&t)
			list := events(before, &t, want)
			for i, e := range list {
				e.Last = done && i == len(list)-1
				if !yield(e) {
					return
				}
			}
			if done {
				return
			}
			before = &t
		}
	}, nil
}

// find returns a task of the caller.
func (s *Surface) find(ctx context.Context, c *caller, p *a2awire.TaskParams) (tasks.Task, error) {
	switch {
	case p.Tenant != "":
		return tasks.Task{}, refuse(a2a.ErrInvalidParams, "there is no tenant of that name here")
	case p.ID == "":
		return tasks.Task{}, refuse(a2a.ErrInvalidParams, "id is required")
	case p.HistoryLength != nil && *p.HistoryLength < 0:
		return tasks.Task{}, refuse(a2a.ErrInvalidParams, "historyLength must not be negative")
	}
	t, err := s.cfg.Tasks.Get(ctx, c.who.ID, p.ID)
	if codeOf(err) == capability.CodeNotFound {
		return t, notFound(p.ID)
	}
	return t, err
}

func (s *Surface) get(ctx context.Context, c *caller, p *a2awire.TaskParams) (*a2awire.Task, error) {
	t, err := s.find(ctx, c, p)
	if err != nil {
		return nil, err
	}
	return render(&t, shown{artifacts: true, history: p.HistoryLength}), nil
}

func (s *Surface) cancel(ctx context.Context, c *caller, p *a2awire.TaskParams) (*a2awire.Task, error) {
	t, err := s.find(ctx, c, p)
	if err != nil {
		return nil, err
	}
	if !t.State.Terminal() {
		t, err = s.cfg.Tasks.Cancel(ctx, c.who.ID, p.ID)
	}
	if codeOf(err) == capability.CodeConflict || err == nil && t.State.Terminal() && t.State != tasks.Cancelled {
		return nil, refuse(a2a.ErrTaskNotCancelable, "the task has ended already")
	}
	if err != nil {
		return nil, err
	}
	return render(&t, shown{artifacts: true}), nil
}

func (s *Surface) list(ctx context.Context, c *caller, p *a2awire.ListParams) (*a2awire.TaskList, error) {
	bad := func(text string) error { return refuse(a2a.ErrInvalidParams, text) }
	q := tasks.Query{
		Owner: c.who.ID, Context: p.ContextID, Cursor: p.PageToken, Limit: 50, Results: p.IncludeArtifacts,
		History: p.HistoryLength == nil || *p.HistoryLength > 0,
	}
	switch {
	case p.Tenant != "":
		return nil, bad("there is no tenant of that name here")
	case p.HistoryLength != nil && *p.HistoryLength < 0:
		return nil, bad("historyLength must not be negative")
	case len(p.ContextID) > maxID:
		return nil, bad("contextId is too long")
	case p.PageSize != nil:
		if q.Limit = *p.PageSize; q.Limit < 1 || q.Limit > 100 {
			return nil, bad("pageSize is 1 to 100")
		}
	}
	if p.Status != "" && p.Status != "TASK_STATE_UNSPECIFIED" {
		var ok bool
		if q.State, ok = stateFrom(p.Status); !ok {
			return nil, bad("status is not a state of a task")
		}
	}
	if p.After != "" {
		at, err := time.Parse(time.RFC3339, p.After)
		if err != nil {
			return nil, bad("statusTimestampAfter is not a time (RFC 3339)")
		}
		q.Since = at
	}
	page, err := s.cfg.Tasks.List(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &a2awire.TaskList{Tasks: []a2awire.Task{}, TotalSize: page.Total, PageSize: len(page.Tasks), NextPageToken: page.Next}
	for i := range page.Tasks {
		out.Tasks = append(out.Tasks, *render(&page.Tasks[i], shown{artifacts: p.IncludeArtifacts, history: p.HistoryLength}))
	}
	return out, nil
}
