package mcpserve

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/serve/mcpserve/exchange"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// questionKey names the only question in a round of the surface.
const questionKey = "question"

// voice holds the callbacks by which a provider reaches its caller while a call runs. A
// nil member discards.
type voice struct {
	heard func(capability.Chunk)
	ask   capability.Asker
	relay *capability.Relay
	// began and ended report the invocation; set both or neither.
	began func(capability.Invocation)
	ended func(invoke.Reply, error)
}

// parked is a call that continues while its modern client is between two requests. The answer to
// the first request was the provider's question, and the next request brings the client's answer.
type parked struct {
	owner, call string // digests
	cancel      context.CancelCauseFunc
	questions   chan asking
	done        chan exchange.Outcome // capacity 1

	ctx  context.Context
	task bool          // it may become a task
	only bool          // it must become a task
	kept chan struct{} // closed when it has become one
	open chan struct{} // closed when the invocation has its id

	mu      sync.Mutex
	x       *exchange.Exchange // of the waiting request; nil between two requests
	running *tasks.Running
	inv     capability.Invocation
	reply   invoke.Reply
	err     error
	over    bool
}

// asking is one question that waits.
type asking struct {
	question capability.Question
	answer   chan answered // capacity 1
}

type answered struct {
	result json.RawMessage
	err    error
}

// forwardChunk forwards a provider's chunk to the waiting request.
func (p *parked) forwardChunk(c capability.Chunk) {
	p.mu.Lock()
	x, running := p.x, p.running
	p.mu.Unlock()
	switch {
	case running != nil:
		running.Progress(c)
	case x != nil:
		x.SendChunk(c)
	}
}

func (p *parked) attach(x *exchange.Exchange) {
	p.mu.Lock()
	p.x = x
	p.mu.Unlock()
}

// answerAsking handles a call of a modern client that can be asked, in a goroutine that may
// outlive the request. The goroutine ends with an unanswered question or with the surface.
func (s *Surface) answerAsking(r *http.Request, c caller, m *mcpwire.Message, x *exchange.Exchange) exchange.Outcome {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	stop := context.AfterFunc(s.base, func() { cancel(errWithdrawn) })
	p := &parked{
		owner: c.digest(), call: callDigest(m), cancel: cancel, questions: make(chan asking), done: make(chan exchange.Outcome, 1),
		ctx: ctx, task: s.mayTask(c, m), kept: make(chan struct{}), open: make(chan struct{}), x: x, // before the provider can send a chunk
	}
	p.only = p.task && s.listOf(c).onlyTask[m.Params.Name]
	v := voice{relay: x.Relay}
	if c.abilities.any() || p.task {
		v.ask = p.asks(&c)
	}
	if x.ProgressFunc() != nil || p.task {
		v.heard = p.forwardChunk
	}
	if p.task {
		// A call that has become a task cannot require its caller to call again, so it asks.
		v.relay, v.began, v.ended = nil, p.began, p.ended
	}
	go func() {
		defer stop()
		defer cancel(nil)
		out := s.carryApart(ctx, c, m, x.Era, v, p)
		p.mu.Lock()
		p.over = true
		running := p.running
		p.mu.Unlock()
		if running != nil {
			running.End(p.reply, p.err)
		}
		p.done <- out
	}()
	return s.await(r, c, p, x)
}

// mayTask reports whether the call may become a task.
func (s *Surface) mayTask(c caller, m *mcpwire.Message) bool {
	return s.cfg.Tasks != nil && m.Method == "tools/call" && declaresTasks(c.abilities.raw)
}

func (p *parked) began(inv capability.Invocation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inv.ID == "" {
		close(p.open)
	}
	p.inv = inv
}

func (p *parked) ended(reply invoke.Reply, err error) {
	p.mu.Lock()
	p.reply, p.err = reply, err
	p.mu.Unlock()
}

// asks returns the Asker that sends the provider's questions to the waiting request, or to
// the task that the call has become.
func (p *parked) asks(c *caller) capability.Asker {
	able := c.abilities
	return func(ctx context.Context, q capability.Question) (json.RawMessage, error) {
		if !able.answers(q) {
			return nil, cannotAnswer(q)
		}
		a := asking{q, make(chan answered, 1)}
		select {
		case <-p.kept:
			return p.running.Ask(ctx, q)
		default:
		}
		select {
		case <-p.kept:
			return p.running.Ask(ctx, q)
		case p.questions <- a:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		select {
		case got := <-a.answer:
			return got.result, got.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// await waits until the call ends, its provider asks a question, which ends this round of the call,
// or it has run for TaskAfter and becomes a task. If the request ends first, it cancels the call.
func (s *Surface) await(r *http.Request, c caller, p *parked, x *exchange.Exchange) exchange.Outcome {
	p.attach(x)
	defer p.attach(nil)
	present := context.AfterFunc(r.Context(), func() { p.cancel(errWithdrawn) })
	var late <-chan time.Time
	var open <-chan struct{} // nil until the call is late
	if p.task {
		timer := time.NewTimer(s.cfg.TaskAfter)
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case out := <-p.done:
			present()
			if p.task && !out.Silent && p.becomes() {
				if kept, ok := s.keep(c, p); ok {
					return kept
				}
			}
			return out
		case <-late:
			open = p.open // on a busy machine the invocation may begin later
		case <-open:
			open = nil
			if !present() {
				continue // the client is gone and the call is being cancelled
			}
			if kept, ok := s.keep(c, p); ok {
				return kept
			}
			present = context.AfterFunc(r.Context(), func() { p.cancel(errWithdrawn) })
		case a := <-p.questions:
			if !s.mayPark(p.owner) {
				a.answer <- answered{err: capability.Errorf(capability.CodeOverloaded, "mcp", "%d calls of this caller wait for answers already",
					maxParked).With("queue_full", "answer them first")}
				continue
			}
			if !present() {
				continue
			}
			return s.park(p, a)
		}
	}
}

// becomes reports whether a call that has ended must still become a task, because its tool always
// runs as a task, or because it waits for an approval, after which it can continue as one.
func (p *parked) becomes() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	failure := capability.AsError(p.err)
	if p.inv.ID == "" || p.running != nil {
		return false
	}
	return p.only || failure != nil && failure.Code == capability.CodeApprovalRequired && failure.Details["approval"] != nil
}

// keep converts the call to a task and returns the response with it. ok is false if the
// invocation has not begun or the task store refuses it; then the call continues.
func (s *Surface) keep(c caller, p *parked) (exchange.Outcome, bool) {
	p.mu.Lock()
	inv := p.inv
	p.mu.Unlock()
	if inv.ID == "" {
		return exchange.Outcome{}, false
	}
	running, t, err := s.cfg.Tasks.Adopt(p.ctx, p.cancel, inv, tasks.Options{})
	if err != nil {
		s.cfg.Logger.Warn("a call does not become a task", "inv", inv.ID, "err", err)
		return exchange.Outcome{}, false
	}
	p.mu.Lock()
	p.running = running
	over := p.over
	p.mu.Unlock()
	close(p.kept)
	if over {
		running.End(p.reply, p.err)
	}
	return exchange.Outcome{Result: s.appendTask(p.ctx, c, t, mcpwire.Era{Modern: true, Info: s.info}, false)}, true
}

func (s *Surface) mayPark(owner string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, w := range s.waiting {
		if w.call.owner == owner {
			n++
		}
	}
	return n < maxParked
}

// waiting is a parked call with the question that it waits for.
type waiting struct {
	call  *parked
	ask   asking
	timer *time.Timer
}

// park stores the call and answers with its question.
func (s *Surface) park(p *parked, a asking) exchange.Outcome {
	id := rand.Text()
	w := &waiting{call: p, ask: a}
	s.mu.Lock()
	w.timer = time.AfterFunc(humanAnswerTimeout, func() {
		if s.unpark(id) != nil {
			p.cancel(errUnanswered)
		}
	})
	s.waiting[id] = w
	s.mu.Unlock()
	return s.question(a.question, requestState{Kind: stateParked, Who: p.owner, Call: p.call, Of: id})
}

func (s *Surface) unpark(id string) *waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waiting[id]
	delete(s.waiting, id)
	return w
}

// resume continues a parked call with the client's answer. Without an answer the question
// is sent again; an unknown call is a fault.
func (s *Surface) resume(r *http.Request, c caller, m *mcpwire.Message, x *exchange.Exchange, st requestState) exchange.Outcome {
	w := s.unpark(st.Of)
	if w == nil {
		return exchange.Outcome{Fault: staleState()}
	}
	w.timer.Stop()
	answer := responseTo(m.Params.Responses)
	if answer == nil {
		return s.park(w.call, w.ask) // the question is sent again
	}
	w.ask.answer <- answered{result: answer}
	return s.await(r, c, w.call, x)
}

func staleState() *mcpwire.Fault {
	return mcpwire.InvalidParams("requestState is not one that was given out for this very call, or its time is over; call again without it")
}

// responseTo returns the answer to the surface's one question from a client's answers, or
// nil if it is missing. Others are ignored.
func responseTo(responses json.RawMessage) (answer json.RawMessage) {
	if len(responses) == 0 || responses[0] != '{' {
		return nil
	}
	_ = jsonx.Members(responses, func(name string, value []byte) {
		if name == questionKey && value[0] == '{' {
			answer = append(json.RawMessage(nil), value...)
		}
	})
	return answer
}

// checkResponses rejects malformed answers: each must be the result of a request, an object.
func checkResponses(responses json.RawMessage) (f *mcpwire.Fault) {
	if responses == nil {
		return nil
	}
	if responses[0] != '{' {
		return mcpwire.InvalidParams("params.inputResponses must be an object")
	}
	_ = jsonx.Members(responses, func(name string, value []byte) {
		if value[0] != '{' {
			f = mcpwire.InvalidParams("params.inputResponses.%s must be an object", strings.ToValidUTF8(name, ""))
		}
	})
	return f
}

// question returns the result that asks q of a modern client.
func (s *Surface) question(q capability.Question, st requestState) exchange.Outcome {
	st.Until = s.now().Add(humanAnswerTimeout).Unix()
	dst := []byte(`{"resultType":"input_required","inputRequests":{"` + questionKey + `":{`)
	dst = append(dst, questionMembers(q)...)
	dst = append(dst, `},"requestState":`...)
	dst = append(dst, s.sealer.Seal(st)...)
	return exchange.Outcome{Result: s.closeAsking(dst)}
}

// closeAsking ends an input_required result, with the server's own _meta.
func (s *Surface) closeAsking(dst []byte) []byte {
	dst = append(dst, `,"_meta":{"`+mcpwire.MetaPrefix+`serverInfo":`...)
	dst = append(dst, s.info...)
	return append(dst, "}}"...)
}

// relayed returns a provider's input_required result for the client: its questions
// unchanged, its state sealed together with its owner.
func (s *Surface) relayed(c caller, m *mcpwire.Message, of capability.ID, result json.RawMessage) (exchange.Outcome, bool) {
	var inner json.RawMessage
	dst := []byte(`{"resultType":"input_required"`)
	err := jsonx.Members(result, func(name string, value []byte) {
		switch name {
		case "resultType", "_meta":
		case "requestState":
			inner = value
		default:
			dst = append(dst, ',')
			dst = jsonx.AppendString(dst, name)
			dst = append(append(dst, ':'), value...)
		}
	})
	if err != nil {
		return exchange.Outcome{}, false
	}
	dst = append(dst, `,"requestState":`...)
	dst = append(dst, s.sealer.Seal(requestState{
		Kind: stateRelayed, Who: c.digest(), Call: callDigest(m), Of: string(of),
		Inner: jsonx.Raw(inner),
	})...)
	return exchange.Outcome{Result: s.closeAsking(dst)}, true
}
