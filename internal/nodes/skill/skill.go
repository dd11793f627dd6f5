// Package skill puts skills on this device while it runs. A [Host] reads a payload,
// decides what each of its capabilities is bound to (an action of this device, or
// code that came with it), asks the device's owner where that is demanded, loads the
// code, and only then makes all of it callable at once, or none of it. What was
// installed is kept and bound again at start.
//
// The host carries no calls and reaches no network: package execution runs what is
// registered, a session tells the gateway.
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

// Defaults of a host.
const (
	DefaultSource = "remote-agent"
	// lockTimeout is how long an install waits for another to end.
	lockTimeout = 10 * time.Second
	// MaxSkills bounds what is installed, maxLayers the payloads one skill is made of.
	MaxSkills = 256
	maxLayers = 16
)

// Stored is an installed skill as it is kept.
type Stored struct {
	Record   wire.Record                `json:"record"`
	Payloads map[string]json.RawMessage `json:"payloads"` // by digest
	From     map[string]string          `json:"from"`     // alias → digest of its payload
	Code     map[string][]byte          `json:"code"`     // what came by reference, by digest
}

// Store keeps installed skills. Put and Delete are whole or not at all.
type Store interface {
	All(ctx context.Context) ([]Stored, error)
	Put(ctx context.Context, s Stored) error
	Delete(ctx context.Context, skill string) error
}

// Event is something that happened to a skill, for the audit. It holds no values.
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

	// Refresh tells the gateway what there is now and returns when it has acknowledged
	// that; if nil, the node works alone.
	Refresh func(ctx context.Context) error
	Event   func(ctx context.Context, e Event) // may be nil
	Epoch   func() int64                       // of the session; nil: 0

	Version   string // of this software
	Isolation string // what the kernel enforces, for people
	Now       func() time.Time
}

// Host holds installed skills. Create it with New, then call Restore once. It is
// safe for concurrent use.
type Host struct {
	cfg    Config
	limits wire.Limits
	binder Binder
	asker  Asker
	change chan struct{} // held by the one install or uninstall there is

	mu      sync.RWMutex
	skills  map[string]*installed
	orphans map[string][]Program // of skills that left functions callable
}

// installed is a skill in memory. It does not change: an update is another.
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

// lock takes the host's one place for changes.
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

// Close releases all transferred code: what runs has its grace.
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

// Installed returns the records of all skills, copies.
func (h *Host) Installed() map[string]wire.Record {
	h.mu.RLock()
	defer h.mu.RUnlock()
	out := make(map[string]wire.Record, len(h.skills))
	for name, s := range h.skills {
		out[name] = s.Record.Clone()
	}
	return out
}
