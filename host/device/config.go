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

// Types of other packages that appear in a Config.
type (
	// Owner asks the owner of the device before a skill that demands it is installed.
	Owner = skill.Owner
	// Question is a question to the owner about one skill.
	Question = skill.Question
	// Answer is the owner's answer: Grant, GrantOnce or Deny.
	Answer = skill.Answer
	// Status is the state of the session with the gateway.
	Status = node.Status
	// Record describes a call that has ended.
	Record = node.Record
	// SkillEvent reports a change of a skill.
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

// Code runs the code of skills and of the folder of actions, each call in a process of
// its own. Package device/pushcode has an implementation.
type Code interface {
	skill.Runtime
	LoadFile(ctx context.Context, language string, code []byte, export string) (functions.Handler, bool, error)
}

// Config is the configuration of a Device. Gateway is required, and so is Token unless
// Dir holds a node that has enrolled.
type Config struct {
	// Gateway is https://host, or tls://host:4222 if the operator publishes NATS; http and
	// nats are allowed on loopback only. It may list up to 16 gateways of one cluster,
	// separated by commas: if one cannot be reached, the device connects to the next.
	Gateway string
	TLS     *tls.Config // nil: the certificate authorities of the system
	// Web is the gateway's https address, or several, if Gateway is empty.
	Web   string
	Token secret.Value // the operator's node token; with a Dir, needed for the first join only

	// Dir is the node's own folder with its key, id and skills. If empty, nothing is stored.
	Dir string
	// ID has 1 to 128 of [A-Za-z0-9._-]. If empty, it is the id in Dir, else the host's name.
	ID       string
	Labels   []string // at most 64; user: and tenant: only as the token grants
	Location string
	Name     string // of the software; "": junctor device
	Version  string

	Functions []Function
	Actions   []Function // functions that skills may be bound to

	// ActionsDir holds actions as files, SkillsDir the installed skills. If empty, they are
	// "actions" and "skills" below Dir. Without Dir and SkillsDir, skills are refused.
	ActionsDir, SkillsDir string
	Code                  Code // nil: no code is run
	AllowCode             bool // skills may contain code
	PreferCode            bool // a skill's code takes precedence over this device's actions
	Limits                *cmp.Limits
	Owner                 Owner // nil: questions cannot be answered
	// AutoConsent accepts every question if Owner is nil. It is for development only.
	AutoConsent bool

	MaxConcurrent               int           // calls that run at once; 0: 10
	Queue                       int           // calls that wait; 0: 1000
	Timeout                     time.Duration // of a call without a timeout; 0: 5 minutes
	Heartbeat                   time.Duration // upper bound; 0: as the gateway requires
	ReconnectWait, ReconnectMax time.Duration // 0: 1 s and 60 s

	Changed    func(Status)                            // after each change of the status; it must not block
	Called     func(ctx context.Context, r Record)     // after each call
	SkillEvent func(ctx context.Context, e SkillEvent) // after each change of a skill
	Panicked   func(function string, value any)        // after a handler panicked
	Logger     *slog.Logger
	Isolation  string // describes the sandbox of code, for people
}
