package invoke

import (
	"context"
	"encoding/json"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// Outcome is the stored result of a call made with an idempotency key. Calls of effect
// write and above are stored durably for 24 h.
type Outcome struct {
	Principal  string
	Key        string // the caller's idempotency key
	Digest     string // of target and input; another digest under the same key is a conflict
	Invocation string
	State      State
	Result     json.RawMessage   // nil when the call failed
	Error      *capability.Error // nil when it succeeded
	Provider   capability.ProviderKey
	Capability capability.ID
	At         time.Time
}

// OutcomeStore stores outcomes. Begin must be durable before the call is sent: after a
// crash an unfinished key answers conflict, because it is unknown whether the work was
// done.
type OutcomeStore interface {
	// BeginOutcome claims (principal, key) for o.Digest, with State created. If the key is
	// taken, it returns the stored outcome and claimed false; an outcome whose State is not
	// terminal is a call that still runs, or one whose process died. It stores at most max
	// keys per principal, dropping the oldest finished first, and drops outcomes older than
	// keep.
	BeginOutcome(ctx context.Context, o Outcome, keep time.Duration, max int) (got Outcome, claimed bool, err error)
	// FinishOutcome stores the end of a claimed key.
	FinishOutcome(ctx context.Context, o Outcome) error
	// DropOutcome releases a key whose call never started.
	DropOutcome(ctx context.Context, principal, key string) error
}
