package config

import (
	"fmt"
	"net/url"
	"time"
)

// MaxApprovalTimeout is the longest time for which a call over MCP is held for an approval.
const MaxApprovalTimeout = 10 * time.Minute

// Approvals configures calls that need the approval of a person.
type Approvals struct {
	Wait time.Duration `koanf:"wait" doc:"How long a call over MCP that needs an operator's approval is held, at most 10m. If it is decided in that time, the call goes on; otherwise it ends with the error that names the approval. 0 ends it at once. Many clients end a request after 60s."`

	Webhook       string `koanf:"webhook" doc:"URL that receives a signed POST when an approval is requested, decided or has expired: https, or http to this machine. Empty: none."`
	WebhookSecret string `koanf:"webhook_secret" doc:"Name of the stored secret that signs what is sent to approvals.webhook."`
}

func defaultApprovals() Approvals { return Approvals{Wait: 45 * time.Second} }

func (a Approvals) validate() error {
	if a.Wait < 0 || a.Wait > MaxApprovalTimeout {
		return fmt.Errorf("approvals.wait: %s is not 0 to %s", a.Wait, MaxApprovalTimeout)
	}
	if a.Webhook == "" {
		return nil
	}
	u, err := url.Parse(a.Webhook)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())):
		return fmt.Errorf("approvals.webhook: give an https URL without a user or password; http is for this machine only")
	case a.WebhookSecret == "":
		return fmt.Errorf("approvals.webhook_secret: name the stored secret that signs what is sent to approvals.webhook")
	}
	return nil
}
