package endpoint

import (
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/secret"
)

// Configured is an endpoint of the configuration. It is listed from the start, reachable
// or not, and is not saved. A saved endpoint with the same id or URL takes precedence,
// because changes at run time override the configuration.
type Configured struct {
	ID, BaseURL    string
	Token          secret.Value
	Timeout        time.Duration // 0: the registry's
	AllowedModules []string      // nil: all
	TrustPolicy    []byte        // JSON; empty: none
}

// fromConfig creates the configured endpoints that no saved one replaces. An endpoint
// whose policy cannot be read is listed with all its modules denied.
func (r *Registry) fromConfig(saved []*Endpoint) (list []*Endpoint) {
	for _, c := range r.cfg.Configured {
		req := Request{ID: c.ID, BaseURL: c.BaseURL, Provider: "direct", Token: c.Token, AllowedModules: c.AllowedModules, Timeout: c.Timeout}
		distrust := ""
		if len(c.TrustPolicy) > 0 {
			policy, unknown, err := ParseTrustPolicy(c.TrustPolicy)
			switch {
			case err != nil:
				distrust = capability.AsError(err).Message
			case len(unknown) > 0:
				distrust = strings.Join(unknown, "; ")
			}
			req.TrustPolicy = policy
		}
		ep, err := r.newEndpoint(req)
		if err != nil {
			r.cfg.Logger.Error("configured endpoint left out", "endpoint", c.ID, "err", err)
			continue
		}
		same := func(other *Endpoint) bool { return other.id == ep.id || other.baseURL == ep.baseURL }
		if slices.ContainsFunc(saved, same) {
			continue
		}
		if distrust != "" {
			ep.distrust = "its configured trust policy cannot be read, so all of it is denied (" + distrust + ")"
			r.cfg.Logger.Error("endpoint denied: its configured trust policy cannot be read", "endpoint", c.ID, "reason", distrust)
		}
		ep.state = capability.Availability{State: capability.StateStarting, Reason: notAsked, Since: r.cfg.Now()}
		list = append(list, ep)
	}
	return list
}

// notAsked is the state's reason for an endpoint that was saved or configured before this
// process started.
const notAsked = "not asked yet since the start"
