package device

import (
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/junctor-run/junctor/internal/nodes/node"
	"github.com/junctor-run/junctor/internal/nodes/skill"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/secret"
)

// What a device is asked and told, under the names they have inside.
type (
	// Owner asks the owner of the device before a skill that demands it is installed.
	Owner = skill.Owner
	// Question is what the owner is asked.
	Question = skill.Question
	// Answer is what the owner said: Grant, GrantOnce or Deny.
	Answer = skill.Answer
	// Status is how the session with the gateway is.
	Status = node.Status
	// Record is what is known of a call that has ended.
	Record = node.Record
	// SkillEvent is something that happened to a skill.
	SkillEvent = skill.Event
)

// Answers of an owner.
const (
	Grant     = skill.Grant
	GrantOnce = skill.GrantOnce
	Deny      = skill.Deny
)

// States of a device's session, and the reason of Run's error when another process
// has joined by the same id.
const (
	Connected        = node.Connected
	Reconnecting     = node.Reconnecting
	Draining         = node.Draining
	ReasonSuperseded = node.ReasonSuperseded
)

// Code runs code that comes with skills or lies in the folder of actions, each call
// in a process of its own; package device/pushcode makes one.
type Code interface {
	skill.Runtime
	LoadFile(ctx context.Context, language string, code []byte, export string) (functions.Handler, bool, error)
}

// Config of a Device. Gateway is required, and Token or a Dir that has enrolled.
type Config struct {
	// Gateway is https://host, or tls://host:4222 where the operator says so; http and
	// nats are for this machine only. Up to 16 addresses of one whole, with commas
	// between, are tried in turn: where one gateway is away, the device is at another.
	Gateway string
	TLS     *tls.Config // nil: the system's roots
	// Web is the gateway's https address, or several, if Gateway is empty.
	Web   string
	Token secret.Value // the operator's node token; with a Dir, for the first time only

	// Dir is the node's own folder: its key, its id, its skills. "": nothing is kept.
	Dir string
	// ID is 1 to 128 of [A-Za-z0-9._-]. "": what Dir keeps, else the host's name.
	ID       string
	Labels   []string // at most 64; user: and tenant: only as the token grants
	Location string
	Name     string // of the software; "": junctor device
	Version  string

	Functions []Function
	Actions   []Function // what skills may be bound to

	// ActionsDir has actions as files, SkillsDir what is installed; "": actions and
	// skills below Dir. Without Dir and SkillsDir no skills are taken.
	ActionsDir, SkillsDir string
	Code                  Code // nil: no code is run
	AllowCode             bool // may skills bring code
	PreferCode            bool // does it come before this device's actions
	Limits                *cmp.Limits
	Owner                 Owner // nil: no user can be asked
	// AutoConsent accepts every question that no user can be asked. It is for
	// development.
	AutoConsent bool

	MaxConcurrent               int           // calls that run; 0: 10
	Queue                       int           // calls that wait; 0: 1000
	Timeout                     time.Duration // of a call that names none; 0: 5 minutes
	Heartbeat                   time.Duration // at most; 0: what the gateway says
	ReconnectWait, ReconnectMax time.Duration // 0: 1 s and 60 s

	Changed    func(Status)                            // every change of the status; it must not block
	Called     func(ctx context.Context, r Record)     // every call that has ended
	SkillEvent func(ctx context.Context, e SkillEvent) // what happens to skills
	Panicked   func(function string, value any)        // a handler that panicked
	Logger     *slog.Logger
	Isolation  string // what holds code here, for people
}
