package llm

import (
	"context"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/breaker"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/protocol/modelwire"
)

// Model calls the first of its services that answers. A service that fails three times in a row
// is left out for 30 seconds, and twice as long each further time, up to ten minutes. It is safe
// for concurrent use.
type Model struct {
	routes []*route
	now    func() time.Time
}

type route struct {
	*Client
	mu      sync.Mutex
	breaker breaker.Breaker
}

var breakerLimits = breaker.Config{Failures: 3, Open: 30 * time.Second, MaxOpen: 10 * time.Minute, Trials: 1, TrialTimeout: time.Minute}

// NewModel returns a model with services in the order in which they are tried. now is the clock;
// nil is time.Now. The caller closes the clients.
func NewModel(now func() time.Time, clients ...*Client) *Model {
	if now == nil {
		now = time.Now
	}
	m := &Model{now: now}
	for _, c := range clients {
		m.routes = append(m.routes, &route{Client: c})
	}
	return m
}

// Model returns the name of the first service's model.
func (m *Model) Model() string { return m.routes[0].cfg.Model }

// Exchange is like [Client.Exchange]. If a service is overloaded, out of order or too slow, and
// nothing was emitted yet, the next one is asked. The error is the last service's.
func (m *Model) Exchange(ctx context.Context, req modelwire.Request, emit func(modelwire.Delta) error) (modelwire.Reply, error) {
	var err error
	open := m.open()
	for i, r := range open {
		attempts := 1
		if i == len(open)-1 {
			attempts = maxAttempts
		}
		r.begin(m.now())
		var reply modelwire.Reply
		reply, err = r.exchange(ctx, req, emit, attempts)
		transient := asTransient(err) != nil
		r.record(err == nil, transient, m.now())
		if err == nil {
			return reply, nil
		}
		if !transient {
			break
		}
	}
	return modelwire.Reply{}, capability.AsError(err)
}

// open returns the services that may be asked now, or all if none may.
func (m *Model) open() (open []*route) {
	for _, r := range m.routes {
		r.mu.Lock()
		if !r.breaker.Refuses(breakerLimits, m.now()) {
			open = append(open, r)
		}
		r.mu.Unlock()
	}
	if open == nil {
		return m.routes
	}
	return open
}

// record records the result of a call.
func (r *route) record(ok, transient bool, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case ok:
		r.breaker.Reset()
	case transient:
		r.breaker.Fail(breakerLimits, now)
	default: // the fault is the request's or the caller's
		r.breaker.Abandon()
	}
}

// begin counts a call to a service that was left out as a trial.
func (r *route) begin(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.breaker.Admit(breakerLimits, now)
}

// Classes holds the models by what they are used for. Both are nil if none is configured, and the
// same if only one class is.
type Classes struct{ Large, Small *Model }

// NewClasses returns the models of two lists of services, which they own.
func NewClasses(large, small []*Client) Classes {
	var c Classes
	if len(large) > 0 {
		c.Large = NewModel(nil, large...)
	}
	if len(small) > 0 {
		c.Small = NewModel(nil, small...)
	}
	if c.Large == nil {
		c.Large = c.Small
	}
	if c.Small == nil {
		c.Small = c.Large
	}
	return c
}

// Close ends idle connections.
func (c Classes) Close() {
	for _, m := range []*Model{c.Large, c.Small} {
		if m != nil {
			for _, r := range m.routes {
				r.Close()
			}
		}
	}
}

// Turn is one message of a conversation of texts. Its parts stay separate on the wire.
type Turn struct {
	Role  modelwire.Role
	Parts []string
}

// Request is a prompt of texts.
type Request struct {
	System    string
	Turns     []Turn // the first is a user's
	MaxTokens int    // 0 or a larger value means the configured maximum
}

// Reply is the text of a model's response.
type Reply struct {
	Text      string
	Model     string // name reported by the service
	In, Out   int    // tokens; 0 if the service does not report them
	Truncated bool   // the text ended at a limit of the service or of the client
}

// Complete returns the response to one user message of several parts, and the number of tokens
// used. Errors are those of [Model.Ask].
func (m *Model) Complete(ctx context.Context, system string, parts ...string) (text string, tokens int, err error) {
	r, err := m.Ask(ctx, Request{System: system, Turns: []Turn{{modelwire.User, parts}}}, nil)
	return r.Text, r.In + r.Out, err
}

// Ask sends texts to the model and returns the text of its response. If emit is not nil, it is
// called with each piece in order, and its error ends the call. Errors are those of
// [Client.Exchange], and failed, reason model_refused, if the model declines.
func (m *Model) Ask(ctx context.Context, req Request, emit func(piece string) error) (Reply, error) {
	wire := modelwire.Request{MaxTokens: req.MaxTokens}
	if req.System != "" {
		wire.System = []string{req.System}
	}
	for _, t := range req.Turns {
		message := modelwire.Message{Role: t.Role}
		for _, p := range t.Parts {
			message.Blocks = append(message.Blocks, modelwire.Block{Kind: modelwire.Text, Text: p})
		}
		wire.Messages = append(wire.Messages, message)
	}
	var each func(modelwire.Delta) error
	if emit != nil {
		each = func(d modelwire.Delta) error {
			if d.Kind != modelwire.Text || d.Text == "" {
				return nil
			}
			return emit(d.Text)
		}
	}
	got, err := m.Exchange(ctx, wire, each)
	if err != nil {
		return Reply{}, err
	}
	if got.Stop == modelwire.StopRefused {
		return Reply{}, capability.Errorf(capability.CodeFailed, op, "the model declined to answer").With("model_refused", "")
	}
	r := Reply{Text: got.Message.Text(), Model: got.Model, In: got.Usage.In, Out: got.Usage.Out, Truncated: got.Stop == modelwire.StopLength}
	if most := m.routes[0].cfg.MaxText; len(r.Text) > most {
		r.Text, r.Truncated = text.CutBytes(r.Text, most), true
	}
	if r.Model == "" {
		r.Model = m.Model()
	}
	return r, nil
}
