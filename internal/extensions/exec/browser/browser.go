// Package browser carries out browser.navigate, screenshot, fill_form, click,
// extract and pdf with a browser of Chromium's family, one for each principal,
// session and extension.
//
// A browser runs what strangers wrote, so it runs in a room of tier T3 of its own
// that holds nothing of the extension or of ours: its profile lies in the room's
// temporary directory and is gone with it, and its only way out is the egress
// proxy. We talk with it over two pipes; nothing listens. It opens http and https
// alone: every request is stopped and judged before the proxy judges its
// connection once more, and a page that opens another page finds it closed.
package browser

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
	"github.com/junctor-run/junctor/secret"
)

const op = "browser"

// Limits of calls.
const (
	DefaultTimeout     = time.Minute
	DefaultIdleTimeout = 5 * time.Minute
	DefaultMost        = 4 // browsers at once
	MaxArtifact        = 32 << 20
	maxArtifacts       = 256 // files in work/artifacts
	maxURL             = 8 << 10
	maxText            = 256 << 10
	maxFields          = 50
)

// errSlow is why a page that loads for too long is left.
var errSlow = errors.New("the page loads for too long")

// Walls runs programs confined; sandbox.Box does.
type Walls interface {
	Run(ctx context.Context, spec sandbox.Spec, c sandbox.Confinement) (sandbox.Result, error)
}

// Config is what all browsers share. Walls is required.
type Config struct {
	Walls    Walls
	Programs []string      // where a browser may lie, by absolute path; nil: the usual places
	Idle     time.Duration // after which an unused browser ends; 0: [DefaultIdle]
	Most     int           // browsers at once; 0: [DefaultMost]
	// OnEnd is called when a browser has ended. It may be nil.
	OnEnd func(sandbox.Result)
}

// Browsers are those that run. It is safe for concurrent use, and is closed.
type Browsers struct {
	cfg  Config
	life context.Context
	end  context.CancelFunc

	mu    sync.Mutex
	slots map[key]*slot
	live  sync.WaitGroup
}

// key states whose a browser is.
type key struct{ principal, session, extension string }

// slot holds the browser of a key, or will.
type slot struct {
	turn chan struct{} // holds one token: a browser does one thing at a time
	x    *instance     // nil: none runs
	uses int           // calls that hold or want the turn
}

// New returns a set of browsers, none of which runs yet.
func New(cfg Config) *Browsers {
	if cfg.Idle <= 0 {
		cfg.Idle = DefaultIdleTimeout
	}
	if cfg.Most <= 0 {
		cfg.Most = DefaultMost
	}
	life, end := context.WithCancel(context.Background())
	return &Browsers{cfg: cfg, life: life, end: end, slots: make(map[key]*slot)}
}

// Close ends every browser and returns when none is left.
func (b *Browsers) Close() {
	b.mu.Lock()
	b.end()
	b.mu.Unlock()
	b.live.Wait()
}

// begin counts one more browser, unless they are being closed.
func (b *Browsers) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.life.Err() != nil {
		return false
	}
	b.live.Add(1)
	return true
}

// Retain ends the browsers of extensions that are not as they were.
func (b *Browsers) Retain(keep func(extension, digest string) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, s := range b.slots {
		if s.x != nil && !keep(k.extension, s.x.digest) {
			s.x.stop()
		}
	}
}

// Request is one call.
type Request struct {
	Action string // navigate, screenshot, fill_form, click, extract, pdf

	Principal, Session, Extension string
	Digest                        string // of the extension's package
	Run                           string // names the artifact

	URL      string // opened first; "" stays on the page that is open
	Selector string // CSS; of click, and of the part that extract reads
	What     string // of extract: text, links, table
	Fields   []Field
	Full     bool // the screenshot is of the whole page

	Policy   egress.Policy // the manifest's hosts, and the operator's addresses
	OnEgress func(egress.Decision)
	Work     string        // the work directory, for artifacts
	User     int           // whose it is, when the server is root; 0: sandbox.DefaultUID
	Timeout  time.Duration // 0 is DefaultTimeout
}

// Field is one field of a form to fill.
type Field struct {
	Selector string
	Value    string
	Secret   secret.Value // in place of Value; never shown, also not by the page
}

// Result is what came of it.
type Result struct {
	Output   string
	Metadata map[string]any // url, title, status
	Made     []Artifact
}

// Do carries out one call, in the browser of its session; without a session the
// browser is gone after it. Errors: unavailable, reason tool_not_found (no
// browser) or those of the sandbox; denied, reason security_violation (a scheme or
// host that is not let through); invalid_input; not_found (nothing fits the
// selector); overloaded; timeout; failed, reason execution_failed.
func (b *Browsers) Do(ctx context.Context, req Request) (Result, error) {
	if err := req.check(); err != nil {
		return Result{}, err
	}
	if req.Timeout <= 0 {
		req.Timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, req.Timeout)
	defer cancel()
	k := key{req.Principal, req.Session, req.Extension}
	if req.Session == "" {
		k.session = "\x00" + req.Run // no other slot's
	}
	s, err := b.take(ctx, k)
	if err != nil {
		return Result{}, ended(err, req.Timeout)
	}
	defer b.leave(k, s)
	x, err := b.instance(ctx, k, s, req)
	if err != nil {
		return Result{}, ended(err, req.Timeout)
	}
	got, err := x.do(ctx, req)
	if err = ended(x.reason(err), req.Timeout); req.Session == "" || capability.CodeOf(err) == capability.CodeTimeout ||
		capability.CodeOf(err) == capability.CodeCancelled {
		x.stop() // it is never used again, or its state is unknown
		<-x.ended
	} else {
		x.idle.Reset(b.cfg.Idle)
	}
	return got, err
}

// ended names the end of a call's context.
func ended(err error, after time.Duration) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fault.TimedOut(after)
	case errors.Is(err, context.Canceled):
		return fault.Cancelled()
	}
	if r, ok := errors.AsType[*refusal](err); ok {
		return capability.Errorf(capability.CodeFailed, op, "the browser refuses %s: %s", r.method,
			fault.OneLine(text.ValidBytes(r.text, 300))).With("execution_failed", "")
	}
	return err
}

// take waits for the turn at a key's browser.
func (b *Browsers) take(ctx context.Context, k key) (*slot, error) {
	b.mu.Lock()
	s := b.slots[k]
	if s == nil {
		running := 0
		for _, other := range b.slots {
			if other.x != nil || other.uses > 0 {
				running++
			}
		}
		if running >= b.cfg.Most {
			b.mu.Unlock()
			return nil, fault.QueueFull(running, time.Minute)
		}
		s = &slot{turn: make(chan struct{}, 1)}
		b.slots[k] = s
	}
	s.uses++
	b.mu.Unlock()
	select {
	case s.turn <- struct{}{}:
		return s, nil
	case <-ctx.Done():
		b.drop(k, s)
		return nil, ctx.Err()
	}
}

func (b *Browsers) leave(k key, s *slot) {
	<-s.turn
	b.drop(k, s)
}

// drop removes a slot without users and without a browser.
func (b *Browsers) drop(k key, s *slot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.uses--; s.uses == 0 && s.x == nil {
		delete(b.slots, k)
	}
}

// forget takes a browser that ended out of its slot.
func (b *Browsers) forget(x *instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.slots[x.key]; s != nil && s.x == x {
		if s.x = nil; s.uses == 0 {
			delete(b.slots, x.key)
		}
	}
}

// instance is the browser of a slot whose turn we have: the one that runs, as long
// as its extension is the same, or a new one.
func (b *Browsers) instance(ctx context.Context, k key, s *slot, req Request) (*instance, error) {
	b.mu.Lock()
	x := s.x
	b.mu.Unlock()
	if x != nil {
		if x.idle.Stop() && x.digest == req.Digest && x.alive() {
			x.hear(req.OnEgress)
			return x, nil
		}
		x.stop()
		<-x.ended
	}
	x, err := b.start(ctx, k, req)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if x.alive() {
		s.x = x
	}
	return x, nil
}

func (x *instance) hear(heard func(egress.Decision)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.heard = heard
}

func (x *instance) alive() bool {
	select {
	case <-x.done:
		return false
	default:
		return true
	}
}
