// Package browser runs browser.navigate, screenshot, fill_form, click, extract and pdf
// in a Chromium-family browser, one for each principal, session and extension.
//
// A browser runs untrusted code, so each has its own sandbox of tier T3 without files
// of the extension or the server: its profile is in the sandbox's temporary directory
// and is deleted with it, and the network is reachable through the egress proxy only.
// The server controls the browser over two pipes; no port is open. Only http and https
// are opened: every request is paused and checked, and the proxy checks its connection
// again. A second page that a page opens is closed at once.
package browser

import (
	"cmp"
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

// errSlow is the cause of a context that ends because a page loads for too long.
var errSlow = errors.New("the page loads for too long")

// Walls runs programs in a sandbox; sandbox.Box implements it.
type Walls interface {
	Run(ctx context.Context, spec sandbox.Spec, c sandbox.Confinement) (sandbox.Result, error)
}

// Config holds the settings that all browsers share. Walls is required.
type Config struct {
	Walls    Walls
	Programs []string      // absolute paths at which a browser may be installed; nil: the usual ones
	Idle     time.Duration // after which an unused browser ends; 0: [DefaultIdle]
	Most     int           // browsers at once; 0: [DefaultMost]
	// OnEnd is called when a browser has ended and its slot is free. It may be nil.
	OnEnd func(sandbox.Result)
}

// Browsers is the set of running browsers. It is safe for concurrent use; the owner must close it.
type Browsers struct {
	cfg  Config
	life context.Context
	end  context.CancelFunc

	mu    sync.Mutex
	slots map[key]*slot
	live  sync.WaitGroup
}

// key identifies the owner of a browser.
type key struct{ principal, session, extension string }

// slot holds the browser of a key, and serializes the calls that use it.
type slot struct {
	turn   chan struct{} // capacity 1: the call that has sent to it uses the browser
	x      *instance     // nil if no browser runs
	uses   int           // calls that use the browser or wait for it
	person string
	left   time.Time // when uses became 0
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

// begin adds one to the live browsers and reports true, unless Close was called.
func (b *Browsers) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.life.Err() != nil {
		return false
	}
	b.live.Add(1)
	return true
}

// Retain stops the browsers of extensions for which keep returns false. It does not
// wait for their end.
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
	Person                        string // whom Principal works for, or itself
	Digest                        string // of the extension's package
	Run                           string // names the artifact

	URL      string // opened first; "" stays on the page that is open
	Selector string // CSS: the element to click, or the part that extract reads
	What     string // of extract: text, links, table
	Fields   []Field
	Full     bool // the screenshot is of the whole page

	Policy   egress.Policy // the manifest's hosts, and the operator's addresses
	OnEgress func(egress.Decision)
	Work     string        // the work directory, for artifacts
	User     int           // uid of the browser if the server is root; 0: sandbox.DefaultUID
	Timeout  time.Duration // 0 is DefaultTimeout
}

// Field is one field of a form to fill.
type Field struct {
	Selector string
	Value    string
	Secret   secret.Value // used instead of Value, and redacted from all output of the browser
}

// Result is the result of a call.
type Result struct {
	Output   string
	Metadata map[string]any // url, title, status
	Made     []Artifact
}

// Do runs one call in the browser of its session, which it starts if needed; calls of
// one session wait for each other. Without a session, the browser ends with the call.
// Errors: unavailable, reason tool_not_found (no browser is installed) or those of the
// sandbox; denied, reason security_violation (a refused scheme or host); invalid_input;
// not_found (no element matches the selector); overloaded (Config.Most browsers are in use, or too many by one person);
// timeout; cancelled; failed, reason execution_failed.
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
		k.session = "\x00" + req.Run // differs from every session
	}
	s, err := b.take(ctx, k, cmp.Or(req.Person, req.Principal))
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
		x.stop() // it is not used again, or its state is unknown
		<-x.ended
	} else {
		x.idle.Reset(b.cfg.Idle)
	}
	return got, err
}

// ended maps the error of a context to timeout or cancelled and a refusal of the
// browser to failed; other errors are returned unchanged.
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

// take waits until no other call uses the key's browser, and returns its slot, which
// the caller gives back with leave. If the slot is new and Config.Most browsers run, an
// unused one ends first. If all are in use, or person uses three quarters of Most, the
// error is overloaded at once.
func (b *Browsers) take(ctx context.Context, k key, person string) (*slot, error) {
	b.mu.Lock()
	s := b.slots[k]
	var old *instance
	if s == nil || s.uses == 0 {
		var ok bool
		if old, ok = b.admit(person, s == nil); !ok {
			b.mu.Unlock()
			return nil, fault.QueueFull(b.cfg.Most, time.Minute)
		}
	}
	if s == nil {
		s = &slot{turn: make(chan struct{}, 1), person: person}
		b.slots[k] = s
	}
	s.uses++
	b.mu.Unlock()
	if old != nil {
		<-old.ended
	}
	select {
	case s.turn <- struct{}{}:
		return s, nil
	case <-ctx.Done():
		b.drop(k, s)
		return nil, ctx.Err()
	}
}

// admit reports whether person may use one more slot. If it is another one and all are taken, it stops the browser
// that is unused longest, of those of the person who has most, and returns it. The caller holds the lock.
func (b *Browsers) admit(person string, another bool) (stopped *instance, ok bool) {
	has, used := make(map[string]int), 0
	for _, s := range b.slots {
		if has[s.person]++; s.person == person && s.uses > 0 {
			used++
		}
	}
	if used >= max(1, b.cfg.Most*3/4) {
		return nil, false
	}
	if !another || len(b.slots) < b.cfg.Most {
		return nil, true
	}
	var old *slot
	for _, s := range b.slots {
		if s.uses == 0 && (old == nil || cmp.Or(has[s.person]-has[old.person], old.left.Compare(s.left)) > 0) {
			old = s
		}
	}
	if old == nil {
		return nil, false
	}
	delete(b.slots, old.x.key)
	old.x.stop()
	return old.x, true
}

// leave gives back a slot that take has returned.
func (b *Browsers) leave(k key, s *slot) {
	<-s.turn
	b.drop(k, s)
}

// drop subtracts one use, and removes the slot if it has neither uses nor a browser.
func (b *Browsers) drop(k key, s *slot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.uses--; s.uses == 0 && s.x == nil {
		delete(b.slots, k)
	}
	s.left = time.Now()
}

// forget removes an ended browser from its slot, and an unused slot from the set.
func (b *Browsers) forget(x *instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.slots[x.key]; s != nil && s.x == x {
		if s.x = nil; s.uses == 0 {
			delete(b.slots, x.key)
		}
	}
}

// instance returns the running browser of a slot that the caller has taken, or starts a
// new one if none runs or the extension's digest has changed.
func (b *Browsers) instance(ctx context.Context, k key, s *slot, req Request) (*instance, error) {
	b.mu.Lock()
	x := s.x
	b.mu.Unlock()
	if x != nil {
		if x.idle.Stop() && x.digest == req.Digest && x.alive() {
			x.setHeard(req.OnEgress)
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

// setHeard sets the callback that receives the egress decisions from now on.
func (x *instance) setHeard(heard func(egress.Decision)) {
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
