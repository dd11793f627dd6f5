// Package signin logs users in for agents' programs. A login is a [Flow]: it shows the user an
// address, and perhaps a code, and ends when the user has logged in there. A [Desk] runs one
// flow per name at a time, with a timeout, and reports its progress. [Helper] is the flow of a
// program's own login command, which runs in a terminal whose screen is read. [Recovery]
// continues sessions that wait for a login.
//
// Output of programs is untrusted: only addresses of a few hosts are reported as safe to open.
// This package opens no browser and handles no credentials; programs store their own.
package signin

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// Prompt is the instruction for the user.
type Prompt struct {
	Launched     bool   `json:"launched"`
	URL          string `json:"url,omitempty"` // may be opened
	DeviceCode   string `json:"deviceCode,omitempty"`
	Instructions string `json:"instructions"`
}

// Flow runs a login. It calls show with its prompt and again when that changes, reads the texts
// that the user enters from typed, and returns nil when a user is logged in. It returns when ctx
// ends.
type Flow func(ctx context.Context, show func(Prompt), typed <-chan string) error

// Event reports progress of a login. Done reports its end; Err is nil then if a user is logged
// in.
type Event struct {
	Name   string
	Prompt Prompt
	Done   bool
	Err    error
}

// Desk runs logins. It is safe for concurrent use.
type Desk struct {
	tell   func(Event)
	ctx    context.Context //nolint:containedctx // the desk's own
	cancel context.CancelFunc
	logger *slog.Logger

	mu      sync.Mutex
	closed  bool
	running map[string]*login
	group   sync.WaitGroup
}

// login is a login in progress.
type login struct {
	prompt Prompt
	shown  chan struct{} // closed when prompt has an address
	typed  chan string
	over   chan struct{}
	err    error // valid after over is closed
	after  []func(error)
}

// New returns a Desk. tell is called with every event and must not block.
func New(tell func(Event), logger *slog.Logger) *Desk {
	d := &Desk{tell: tell, logger: logger, running: make(map[string]*login)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// Close ends all logins and waits for them.
func (d *Desk) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.group.Wait()
}

// Begin starts a login, or joins the one with that name that is in progress. It returns the
// prompt when it has an address, or after some seconds without one. The login does not end with
// ctx. If after is not nil, it is called with the login's result.
//
// Its errors: unavailable (shutting_down), and those of a flow that ends at once.
func (d *Desk) Begin(ctx context.Context, name string, flow Flow, after func(error)) (Prompt, error) {
	l, err := d.join(name, flow, after)
	if err != nil {
		return Prompt{}, err
	}
	wait := time.NewTimer(maxAddressTimeout)
	defer wait.Stop()
	select {
	case <-l.shown:
	case <-l.over:
		if l.err != nil {
			return Prompt{}, l.err
		}
	case <-wait.C:
	case <-ctx.Done():
		return Prompt{}, capability.AsError(ctx.Err())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p := l.prompt
	p.Launched = true
	return p, nil
}

// Type passes a text that the user enters, such as a code from the page, to the login with that
// name. The text is not stored.
//
// Its errors: invalid_input (bad_code), conflict (no_login_running; busy, if the flow has not
// read an earlier text).
func (d *Desk) Type(name, text string) (Prompt, error) {
	const op = "tasks.login"
	if !rest.MatchString(text) || len(text) > maxTyped {
		return Prompt{}, capability.Errorf(capability.CodeInvalidInput, op, "a code is one word of at most %d characters",
			maxTyped).With("bad_code", "")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.running[name]
	if l == nil {
		return Prompt{}, capability.Errorf(capability.CodeConflict, op, "no login of %s is under way", name).With("no_login_running",
			"start one first: a code is good for one login")
	}
	select {
	case l.typed <- text:
	default:
		return Prompt{}, capability.Errorf(capability.CodeConflict, op, "the code before this one was not taken yet").With("busy", "try again")
	}
	p := l.prompt
	p.Launched = true
	return p, nil
}

// join returns the login in progress, or starts one, and adds after to it.
func (d *Desk) join(name string, flow Flow, after func(error)) (*login, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, capability.Errorf(capability.CodeUnavailable, "tasks.login", "the server is shutting down").With("shutting_down", "")
	}
	l := d.running[name]
	if l == nil {
		l = &login{shown: make(chan struct{}), typed: make(chan string, 1), over: make(chan struct{})}
		d.running[name] = l
		d.group.Go(func() { d.run(name, l, flow) })
	}
	if after != nil {
		l.after = append(l.after, after)
	}
	return l, nil
}

// run runs the flow for at most LoginTTL and reports each prompt and the end, unless the desk is
// closed.
func (d *Desk) run(name string, l *login, flow Flow) {
	ctx, cancel := context.WithTimeout(d.ctx, LoginTTL)
	defer cancel()
	err := flow(ctx, func(p Prompt) {
		p.Launched = true
		d.mu.Lock()
		same, had := l.prompt == p, l.prompt != Prompt{}
		l.prompt = p
		if !had {
			close(l.shown)
		}
		d.mu.Unlock()
		if !same {
			d.tell(Event{Name: name, Prompt: p})
		}
	}, l.typed)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = capability.Errorf(capability.CodeTimeout, "tasks.login", "the login was not completed within %s", LoginTTL).With("login_expired",
			"start again")
	}
	d.mu.Lock()
	delete(d.running, name)
	l.err = err
	after, prompt, closed := l.after, l.prompt, d.closed
	d.mu.Unlock()
	close(l.over)
	if err != nil && !closed {
		d.logger.Warn("a login has failed", "of", name, "err", err)
	}
	if !closed {
		d.tell(Event{Name: name, Prompt: prompt, Done: true, Err: err})
	}
	for _, f := range after {
		f(err)
	}
}
