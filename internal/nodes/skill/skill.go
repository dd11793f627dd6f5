// Package skill installs skills on this device while it runs. A [Host] reads a payload, decides
// what each of its capabilities is bound to (an action of this device, or code in the payload),
// asks the device's owner if consent is required, loads the code, and then makes all capabilities
// callable at once, or none. Installed skills are stored and bound again at start.
//
// The host executes no calls and uses no network: package functions runs registered
// functions, and a session notifies the gateway.
package skill

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/skill/deviceaction"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	wire "github.com/junctor-run/junctor/protocol/cmp"
)

// DefaultSource is the source of a skill that names none.
const DefaultSource = "remote-agent"

// Stored is the stored form of an installed skill.
type Stored struct {
	Record   wire.Record                `json:"record"`
	Payloads map[string]json.RawMessage `json:"payloads"` // by digest
	From     map[string]string          `json:"from"`     // alias → digest of its payload
	Code     map[string][]byte          `json:"code"`     // what came by reference, by digest
}

// Store keeps installed skills. Put and Delete are atomic.
type Store interface {
	All(ctx context.Context) ([]Stored, error)
	Put(ctx context.Context, s Stored) error
	Delete(ctx context.Context, skill string) error
}

// Event reports a change of a skill or a consent, for the audit. It contains no arguments or
// results.
type Event struct {
	Name    string // skill_installed, skill_updated, skill_uninstalled, skill_degraded, confirmation_requested, confirmation_answered
	Skill   string
	Digest  string            // of the payload
	Modules map[string]string // module id → digest of its code
	Caller  string
	Outcome string // "" or the fine code of what went wrong, or the answer
}

// Config of a Host. Functions, Actions and Store are required.
type Config struct {
	Node      string // its id; "" where it has none
	Functions *functions.Registry
	Actions   *deviceaction.Set
	Store     Store

	Runtime       Runtime                                                 // nil: no code is run
	AllowCode     bool                                                    // may code be taken at all
	PreferCode    bool                                                    // does it come before this device's actions
	Limits        *wire.Limits                                            // nil: the defaults
	Assets        func(ctx context.Context, a wire.Asset) ([]byte, error) // fetches code by reference; may be nil
	Owner         Owner                                                   // if nil, no user can be asked
	AutoConsent   bool                                                    // decides where Owner is nil
	Keys          func(keyID string) ed25519.PublicKey                    // of publishers, by their ids; nil: none is known
	NoAutoRefresh bool                                                    // Refresh is not called

	// Refresh sends the current functions to the gateway and returns when it has acknowledged
	// them; if nil, the node works without a gateway.
	Refresh func(ctx context.Context) error
	Event   func(ctx context.Context, e Event) // may be nil
	Epoch   func() int64                       // of the session; nil: 0

	Version   string // of this software
	Isolation string // what the kernel enforces, for people
	Now       func() time.Time
}

// Host manages installed skills. Create it with New, then call Restore once. It is safe for
// concurrent use.
type Host struct {
	cfg    Config
	limits wire.Limits
	binder Binder
	asker  Asker
	change chan struct{} // held by the running install or uninstall

	mu      sync.RWMutex
	skills  map[string]*installed
	orphans map[string][]Program // of skills that left functions callable
}

// installed is a skill in memory. It is immutable: an update replaces it.
type installed struct {
	Stored
	programs map[string]Program // by digest of the payload
}

// New returns a host without skills.
func New(cfg Config) *Host {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Event == nil {
		cfg.Event = func(context.Context, Event) {}
	}
	h := &Host{
		cfg: cfg, limits: wire.DefaultLimits(), change: make(chan struct{}, 1), skills: make(map[string]*installed),
		orphans: make(map[string][]Program),
	}
	if cfg.Limits != nil {
		h.limits = *cfg.Limits
	}
	h.binder = Binder{
		Functions: cfg.Functions, Actions: cfg.Actions, Runtime: cfg.Runtime, AllowCode: cfg.AllowCode, PreferCode: cfg.PreferCode,
		Limits: h.limits, Assets: cfg.Assets,
	}
	h.asker = Asker{Node: cfg.Node, Owner: cfg.Owner, Auto: cfg.AutoConsent, Told: h.asked, Now: cfg.Now}
	return h
}

// asked records a question and its answer.
func (h *Host) asked(ctx context.Context, q Question, outcome, caller string) {
	e := Event{Name: "confirmation_answered", Skill: q.SkillName, Digest: q.SHA256, Caller: caller, Outcome: outcome}
	if outcome == Requested {
		e.Name, e.Outcome = "confirmation_requested", ""
	}
	h.cfg.Event(ctx, e)
}

// lock waits for the exclusive right to change skills; it fails after lockTimeout or when ctx ends.
func (h *Host) lock(ctx context.Context) (unlock func(), err error) {
	timer := time.NewTimer(lockTimeout)
	defer timer.Stop()
	select {
	case h.change <- struct{}{}:
		return func() { <-h.change }, nil
	case <-ctx.Done():
		return nil, capability.AsError(ctx.Err())
	case <-timer.C:
		e := wire.Errorf(wire.ReasonInstalling, "another skill is being installed or removed on this device")
		e.RetryAfter = lockTimeout
		return nil, e
	}
}

// Close releases all transferred code; running calls have a grace period.
func (h *Host) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.skills {
		for _, p := range s.programs {
			p.Release()
		}
	}
	for _, list := range h.orphans {
		for _, p := range list {
			p.Release()
		}
	}
	h.orphans = make(map[string][]Program)
}

func (h *Host) get(skill string) *installed {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.skills[skill]
}

// Installed returns copies of the records of all skills.
func (h *Host) Installed() map[string]wire.Record {
	h.mu.RLock()
	defer h.mu.RUnlock()
	out := make(map[string]wire.Record, len(h.skills))
	for name, s := range h.skills {
		out[name] = s.Record.Clone()
	}
	return out
}
