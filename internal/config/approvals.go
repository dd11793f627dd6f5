package config

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Approvals configures calls that need the approval of a person.
type Approvals struct {
	Wait time.Duration `koanf:"wait" doc:"How long a call over MCP waits for an operator's approval, at most 10m, before it ends with an error that names the approval; 0: not at all. Many clients end a request after 60s. For claude and opencode 4m, unless this key is set."`

	Webhook string `koanf:"webhook" doc:"URL that receives a signed POST when an approval is requested, decided or expires: https, or http to this machine."`
	Desktop string `koanf:"desktop" doc:"Desktop notifications of requested approvals and ended tasks: auto, if the server's desktop has a display and notify-send or osascript; off."`

	WebhookSecret string `koanf:"webhook_secret" doc:"Secret that signs what approvals.webhook receives."`
}

// Client configures one client of the MCP door.
type Client struct {
	ApprovalsWait *time.Duration `koanf:"approvals_wait"`
}

func defaultApprovals() Approvals { return Approvals{Wait: 45 * time.Second, Desktop: "auto"} }

// WaitFor returns how long calls of a principal are held for an approval: as the client with the
// name of its token, or else as all.
func (c *Config) WaitFor(principal string) time.Duration {
	_, name, _ := strings.Cut(principal, ":")
	if client, ok := c.Clients[name]; ok && client.ApprovalsWait != nil {
		return *client.ApprovalsWait
	}
	return c.Approvals.Wait
}

// patientClients returns the settings of the clients of junctor setup that wait for hours by default. They
// hold unless approvals.wait is set.
func patientClients() map[string]Client {
	wait := patientApprovalTimeout
	return map[string]Client{"claude": {ApprovalsWait: &wait}, "opencode": {ApprovalsWait: &wait}}
}

func (c *Config) checkClients() error {
	for name, client := range c.Clients {
		if wait := client.ApprovalsWait; wait != nil && (*wait < 0 || *wait > MaxApprovalTimeout) {
			return fmt.Errorf("clients.%s.approvals_wait: %s is not 0 to %s", name, *wait, MaxApprovalTimeout)
		}
	}
	return nil
}

func (a Approvals) validate() error {
	if a.Wait < 0 || a.Wait > MaxApprovalTimeout {
		return fmt.Errorf("approvals.wait: %s is not 0 to %s", a.Wait, MaxApprovalTimeout)
	}
	if err := oneOf("approvals.desktop", a.Desktop, "auto", "off"); err != nil {
		return err
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
