package audit

import (
	"context"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// UsageQuery selects calls and how they are grouped. The zero values of the fields but Limit select
// all.
type UsageQuery struct {
	Since, Until time.Time // Until is exclusive
	User         string
	By           []UsageKey // in this order; none: one row with the sums
	Limit        int        // rows, those with the most calls first
}

// UsageKey is what calls are grouped by.
type UsageKey string

// The keys.
const (
	ByUser       UsageKey = "agent"
	ByCapability UsageKey = "tool"
	ByProvider   UsageKey = "provider"
	ByDay        UsageKey = "day" // UTC
)

// UsageKeys returns every key.
func UsageKeys() []UsageKey { return []UsageKey{ByUser, ByCapability, ByProvider, ByDay} }

// Usage is the number of calls of one group. Keys that the query does not group by are empty.
type Usage struct {
	User       string    `json:"agent,omitempty"`
	Capability string    `json:"tool,omitempty"`
	Provider   string    `json:"provider,omitempty"`
	Day        string    `json:"day,omitempty"` // 2006-01-02
	Calls      int64     `json:"calls"`         // that were made
	Failed     int64     `json:"failed"`        // of them
	Refused    int64     `json:"refused"`       // that were not made: denied, or over a limit
	Last       time.Time `json:"last"`
}

// Ends returns the events that end a call: of those that were made, of the failed ones among them,
// and of those that were refused.
func Ends() (made, failed, refused []Event) {
	failed = []Event{CapabilityFailed, CapabilityTimeout, CapabilityCancelled, SecurityViolation}
	return append([]Event{CapabilityExecuted}, failed...), failed, []Event{PermissionDenied, RateLimited, QueueRejected}
}

// Usage counts calls. It updates the index first. Errors: unavailable if the log has no index, or its
// database cannot be reached.
func (l *Log) Usage(ctx context.Context, q UsageQuery) ([]Usage, error) {
	if l.cfg.Index == nil {
		return nil, capability.Errorf(capability.CodeUnavailable, "audit.usage", "this log has no index to count with")
	}
	for _, key := range q.By {
		if !slices.Contains(UsageKeys(), key) {
			return nil, capability.Errorf(capability.CodeInvalidInput, "audit.usage", "calls cannot be grouped by %.40q; use %v", key, UsageKeys())
		}
	}
	if err := l.catchUp(ctx); err != nil {
		return nil, err
	}
	return l.cfg.Index.Usage(ctx, q)
}
