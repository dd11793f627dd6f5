package console

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
)

// dangerous describes a request that needs verification, or returns "". These are: approvals of
// external and destructive effects, approvals for always, calls of these effects, and what creates
// rights or secrets or runs a program.
func (s *Service) dangerous(r *http.Request, who capability.Principal, body []byte) (what string, err error) {
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
	case "tokens", "grants", "secrets", "upstreams", "extensions", "clients", "channels":
		var req struct {
			DryRun bool `json:"dry_run"`
		}
		if r.Method == http.MethodDelete || first == "clients" && json.Unmarshal(body, &req) == nil && req.DryRun {
			return "", nil // takes rights away, or only shows what would change
		}
		return strings.ToLower(r.Method) + " " + text.Visible(rest), nil
	case "console":
		if r.URL.Path == passkeysPath {
			return "add a passkey", nil
		}
		if r.Method == http.MethodDelete && strings.HasPrefix(id, "passkeys/") {
			return "remove a passkey", nil
		}
	case "nodes":
		if r.Method == http.MethodPost && strings.HasSuffix(id, "/calls") {
			return "call a function of " + text.Visible(strings.TrimSuffix(id, "/calls")), nil
		}
	case "invocations":
		return s.dangerousCall(r, who, body), nil
	case "policy":
		if id == "changes" {
			return "change the policy", nil
		}
	}
	return "", nil
}

// dangerousCall describes a call with an external, destructive or unknown effect, or returns "". A dry
// run finds the effect.
func (s *Service) dangerousCall(r *http.Request, who capability.Principal, body []byte) string {
	var call map[string]json.RawMessage
	if json.Unmarshal(body, &call) != nil || string(call["dry_run"]) == "true" {
		return ""
	}
	call["dry_run"] = json.RawMessage("true")
	plan, err := json.Marshal(call)
	if err != nil {
		return ""
	}
	var planned struct {
		Selected struct {
			Effect capability.Effect `json:"effect"`
		} `json:"selected"`
		Target string `json:"target"`
	}
	got := s.ask(r, who, http.MethodPost, r.URL.Path, plan)
	effect := &planned.Selected.Effect
	if json.Unmarshal(got.body.Bytes(), &planned) != nil || *effect == "" {
		// The call may wake a provider that the plan does not see.
		return "make a call whose effect is not known"
	}
	if !effect.AtLeast(capability.EffectExternal) {
		return ""
	}
	return "call " + text.Visible(planned.Target)
}
