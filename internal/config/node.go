package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// Node configures this machine as a node of another machine's gateway (junctor node join).
type Node struct {
	ID            string        `koanf:"id" doc:"Name at the gateway: letters, digits, dots, underscores and hyphens. Empty: its former name, else the host's."`
	Gateway       string        `koanf:"gateway" doc:"Gateway: https://host, or tls://host:4222 if its operator offers that; several of one deployment are comma-separated. JUNCTOR_GATEWAY is read too."`
	Credential    string        `koanf:"credential" doc:"File with the operator's node token, needed until the node has enrolled."`
	Labels        []string      `koanf:"labels" doc:"Labels for routing and filters, such as gpu. Only tokens grant user: and tenant: labels."`
	Location      string        `koanf:"location" doc:"Location, for people."`
	MaxConcurrent int           `koanf:"max_concurrent" doc:"Concurrent calls."`
	Queue         int           `koanf:"queue" doc:"Waiting calls; more are refused."`
	Heartbeat     time.Duration `koanf:"heartbeat" doc:"Longest interval of heartbeats, 100ms to 10s; the gateway may shorten it."`
	Reconnect     Reconnect     `koanf:"reconnect"`
	Development   bool          `koanf:"development" doc:"Permit host.auto_consent, for experiments."`
}

// Reconnect configures the pauses between a node's attempts to reconnect.
type Reconnect struct {
	Min time.Duration `koanf:"min" doc:"Delay before the first reconnection; delays vary between half and one and a half."`
	Max time.Duration `koanf:"max" doc:"Longest delay."`
}

// Host configures what skills may do on this node.
type Host struct {
	AllowTransferredCode  bool       `koanf:"allow_transferred_code" doc:"Let skills bring code, which runs in processes that can only compute."`
	PreferTransferredCode bool       `koanf:"prefer_transferred_code" doc:"Prefer a skill's code to this device's action for the same."`
	AutoConsent           bool       `koanf:"auto_consent" doc:"Accept every skill without a question. Needs node.development."`
	Languages             []string   `koanf:"languages" doc:"Permitted languages: javascript, wasm, python."`
	ActionsDir            string     `koanf:"actions_dir" doc:"Folder with this device's actions. Empty: node/actions in the home."`
	Limits                HostLimits `koanf:"limits"`
}

// HostLimits holds the limits of the skills that are sent to this node.
type HostLimits struct {
	RuntimeModules int  `koanf:"runtime_modules" doc:"Modules of code in a skill."`
	ModuleSource   Size `koanf:"module_source" doc:"Largest source of a module."`
	TotalSource    Size `koanf:"total_source" doc:"Largest source of a skill."`
	Payload        Size `koanf:"payload" doc:"Largest skill as sent."`
}

func defaultNode() Node {
	return Node{MaxConcurrent: 10, Queue: 1000, Heartbeat: 5 * time.Second, Reconnect: Reconnect{Min: time.Second, Max: time.Minute}}
}

func defaultHost() Host {
	l := cmp.DefaultLimits()
	return Host{Languages: []string{"wasm", "javascript"}, Limits: HostLimits{
		RuntimeModules: l.Modules, ModuleSource: Size(l.ModuleSource), TotalSource: Size(l.TotalSource), Payload: Size(l.Payload),
	}}
}

func (n Node) validate() error {
	if n.ID != "" {
		if err := cmp.CheckNode(n.ID); err != nil {
			return fmt.Errorf("node.id: %s", capability.AsError(err).Message)
		}
	}
	if _, err := cmp.Labels(n.Labels); err != nil {
		return fmt.Errorf("node.labels: %w", err)
	}
	switch {
	case n.MaxConcurrent < 1:
		return fmt.Errorf("node.max_concurrent: %d is too few; use 1 or more", n.MaxConcurrent)
	case n.Queue < 1:
		return fmt.Errorf("node.queue: %d is too few; use 1 or more", n.Queue)
	case n.Heartbeat < 100*time.Millisecond || n.Heartbeat > maxHeartbeatInterval:
		return fmt.Errorf("node.heartbeat: %s is not between 100ms and %s", n.Heartbeat, maxHeartbeatInterval)
	case n.Reconnect.Min <= 0 || n.Reconnect.Max < n.Reconnect.Min:
		return fmt.Errorf("node.reconnect: min must be more than 0, and max no less than it")
	}
	return nil
}

func (h Host) validate(development bool) error {
	if h.AutoConsent && !development {
		return fmt.Errorf("host.auto_consent: it agrees to everything that anybody sends; set node.development, too, if that is what this node is for")
	}
	for _, l := range h.Languages {
		if !slices.Contains([]string{"javascript", "wasm", "python"}, l) {
			return fmt.Errorf("host.languages: %q must be one of javascript, wasm, python", l)
		}
	}
	if l := h.Limits; l.RuntimeModules < 0 || l.ModuleSource < 0 || l.TotalSource < 0 || l.Payload < 1 {
		return fmt.Errorf("host.limits: they must not be negative, and payload not 0")
	}
	return nil
}
