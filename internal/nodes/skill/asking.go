package skill

// This file asks the device's owner for consent: once for all capabilities of an install
// that require it, before any of its code is loaded, and before each call of capabilities
// that require that.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	wire "github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/payload"
)

// Requested is the outcome reported for a question before it is answered.
const Requested = "requested"

// Answers of an owner.
const (
	Grant     = "grant"      // remembered for this payload
	GrantOnce = "grant_once" // for this time
	Deny      = "deny"
)

// Question is a request for the owner's consent: for a whole install, or for one call.
type Question struct {
	RequestID    string               `json:"request_id"`
	NodeID       string               `json:"node_id"`
	SkillName    string               `json:"skill_name"`
	SHA256       string               `json:"sha256"`             // of the payload
	Publisher    string               `json:"publisher,omitzero"` // as stated in the payload
	SignedBy     string               `json:"signed_by,omitzero"` // the known key whose signature was checked
	Permissions  []string             `json:"permissions,omitempty"`
	Capabilities []QuestionCapability `json:"capabilities"`
	Code         []QuestionCode       `json:"code"`
	ExpiresAt    time.Time            `json:"expires_at"`
	// Call is true for a question about one call of an installed capability, by Caller and with the whole
	// Arguments.
	Call      bool            `json:"call,omitzero"`
	Caller    string          `json:"caller,omitzero"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// QuestionCapability is a capability that needs consent.
type QuestionCapability struct {
	Alias        string          `json:"alias"`
	FunctionName string          `json:"function_name"`
	Effect       string          `json:"effect"`
	Metadata     json.RawMessage `json:"metadata"`
}

// QuestionCode is code that would be loaded.
type QuestionCode struct {
	ModuleID string `json:"module_id"`
	Language string `json:"language"`
	SHA256   string `json:"sha256"`
	Bytes    int    `json:"bytes"`
}

// Answer is the owner's decision. By names the user or the setting that answered.
type Answer struct {
	Decision string
	By       string
}

// ErrNobody is returned by an Owner if no user can be asked now; the caller may ask again later.
var ErrNobody = errors.New("no person can be asked now")

// Owner asks the device's owner. If it is set, its answer takes precedence over the configuration.
type Owner interface {
	// Ask waits for the answer until ctx ends.
	Ask(ctx context.Context, q Question) (Answer, error)
	// Interactive reports whether a user is present to answer.
	Interactive() bool
}

// Asker asks the owner of one device. Told and Now are required.
type Asker struct {
	Node  string // its id
	Owner Owner  // if nil, no user can be asked
	Auto  bool   // the answer if Owner is nil
	// Told receives each question and its answer.
	Told func(ctx context.Context, q Question, outcome, caller string)
	Now  func() time.Time
}

// Ask asks one question for all its capabilities. wait limits how long, at most AskTimeout; 0
// is AskTimeout, unless no user is present. Errors: consent_denied, consent_required.
func (a *Asker) Ask(ctx context.Context, q Question, wait time.Duration, caller string) (Answer, error) {
	q.RequestID, q.NodeID = ids.Hex("cnf_", 12), a.Node
	required := func() error {
		return wire.Errorf(wire.ReasonConsentRequired, "the device's owner must agree to the skill %s, and cannot be asked now", q.SkillName).
			With(wire.ReasonConsentRequired, "ask again once the owner has answered, or with wait_for_consent_seconds").Detail("request_id",
			q.RequestID)
	}
	a.Told(ctx, q, Requested, caller)
	if a.Owner == nil && a.Auto {
		a.Told(ctx, q, Grant, caller)
		return Answer{Grant, "auto"}, nil
	}
	if a.Owner == nil {
		return Answer{}, required()
	}
	if wait = min(cmp.Or(wait, AskTimeout), AskTimeout); wait < 0 {
		wait = AskTimeout
	}
	q.ExpiresAt = a.Now().Add(wait)
	asking, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	answer, err := a.Owner.Ask(asking, q)
	switch {
	case ctx.Err() != nil:
		return Answer{}, capability.AsError(ctx.Err())
	case errors.Is(err, ErrNobody):
		return Answer{}, required()
	case err == nil && (answer.Decision == Grant || answer.Decision == GrantOnce):
		a.Told(ctx, q, answer.Decision, caller)
		return answer, nil
	}
	a.Told(ctx, q, Deny, caller)
	if err != nil && asking.Err() == nil {
		return Answer{}, wire.Errorf(wire.ReasonConsentDenied, "the device's owner could not be asked about the skill %s", q.SkillName)
	}
	if asking.Err() != nil {
		return Answer{}, wire.Errorf(wire.ReasonConsentDenied, "the device's owner did not answer about the skill %s within %s", q.SkillName,
			wait)
	}
	return Answer{}, wire.Errorf(wire.ReasonConsentDenied, "the device's owner refused the skill %s", q.SkillName)
}

// About returns a capability for a question.
func About(c *payload.Capability) QuestionCapability {
	return QuestionCapability{c.Alias, c.FunctionName, cmp.Or(c.Effect, wire.EffectExecute), c.Metadata}
}

// EachCall asks the owner before each call. One whose arguments are too large to be shown is refused.
func (a *Asker) EachCall(skill, digest string, c payload.Capability, handle functions.Handler) functions.Handler {
	return func(ctx context.Context, call functions.Call) (json.RawMessage, error) {
		args, err := jsonx.Marshal(call.Args)
		if err != nil {
			return nil, err
		}
		if len(args) > maxAsked {
			return nil, wire.Errorf(wire.ReasonConsentDenied, "the device's owner must agree to each call of %s, and cannot be shown %d bytes of "+
				"arguments, more than %d", c.Alias, len(args), maxAsked)
		}
		q := Question{
			SkillName: skill, SHA256: digest, Capabilities: []QuestionCapability{About(&c)}, Code: []QuestionCode{}, Call: true,
			Caller: call.Caller, Arguments: args,
		}
		if _, err := a.Ask(ctx, q, 0, call.Caller); err != nil {
			return nil, err
		}
		return handle(ctx, call)
	}
}
