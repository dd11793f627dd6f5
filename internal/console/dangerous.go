package console

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
)

// dangerous describes a request that needs verification, or returns "". These are: approvals of
// external and destructive effects, approvals for always, and what creates rights or secrets or
// runs a program.
func (s *Service) dangerous(r *http.Request, body []byte) (what string, err error) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/api/v1/")
	if !ok {
		return "", nil
	}
	first, id, _ := strings.Cut(rest, "/")
	switch first {
	case "approvals", "confirmations":
		if r.Method != http.MethodPost || id == "" {
			return "", nil
		}
		var decision struct {
			Decision string `json:"decision"`
		}
		if json.Unmarshal(body, &decision) != nil || decision.Decision == "deny" {
			return "", nil // the handler refuses a malformed body
		}
		a, err := s.cfg.Tokens.Approval(r.Context(), id)
		if err != nil {
			return "", err
		}
		if decision.Decision == "always" || a.Effect.AtLeast(capability.EffectExternal) {
			if a.Waits() {
				return "answer " + text.Visible(a.Summary), nil
			}
			return "approve " + text.Visible(string(a.Capability)) + " of " + text.Visible(a.Principal) + " (" + decision.Decision + ")", nil
		}
	case "tokens", "grants", "secrets", "upstreams", "extensions", "clients":
		var req struct {
			DryRun bool `json:"dry_run"`
		}
		if r.Method == http.MethodDelete || first == "clients" && json.Unmarshal(body, &req) == nil && req.DryRun {
			return "", nil // takes rights away, or only shows what would change
		}
		return strings.ToLower(r.Method) + " " + text.Visible(rest), nil
	case "policy":
		if id == "changes" {
			return "change the policy", nil
		}
	}
	return "", nil
}
