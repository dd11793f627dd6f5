package config

import (
	"fmt"
	"time"
)

// MaxApprovalTimeout is the longest time for which a call over MCP is held for an approval.
const MaxApprovalTimeout = 10 * time.Minute

// Approvals configures calls that need the approval of a person.
type Approvals struct {
	Wait time.Duration `koanf:"wait" doc:"How long a call over MCP that needs an operator's approval is held, at most 10m. If it is decided in that time, the call goes on; otherwise it ends with the error that names the approval. 0 ends it at once. Many clients end a request after 60s."`
}

func defaultApprovals() Approvals { return Approvals{Wait: 45 * time.Second} }

func (a Approvals) validate() error {
	if a.Wait < 0 || a.Wait > MaxApprovalTimeout {
		return fmt.Errorf("approvals.wait: %s is not 0 to %s", a.Wait, MaxApprovalTimeout)
	}
	return nil
}
