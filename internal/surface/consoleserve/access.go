package consoleserve

import (
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/policy"
	"github.com/junctor-run/junctor/internal/surface/door"
)

func (s *Surface) tokens(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	list, err := s.Policy.Tokens(r.Context())
	if err != nil {
		return err
	}
	if list == nil {
		list = []policy.Token{}
	}
	door.WriteJSON(w, http.StatusOK, map[string]any{"tokens": list})
	return nil
}

func (s *Surface) createToken(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	var req struct {
		Role    capability.Role `json:"role"`
		Name    string          `json:"name"`
		Labels  []string        `json:"labels"`
		View    string          `json:"view"`
		Expires string          `json:"expires"`
	}
	if err := door.Decode(w, r, &req); err != nil {
		return err
	}
	expires, err := optionalDuration("expires", req.Expires)
	if err != nil {
		return err
	}
	t, value, err := s.Policy.CreateToken(r.Context(), who, policy.TokenRequest{
		Role: req.Role, Name: req.Name, Labels: req.Labels, View: req.View, Expires: expires,
	})
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	door.WriteJSON(w, http.StatusCreated, struct {
		policy.Token
		Value string `json:"token"`
	}{t, value.Reveal()})
	return nil
}

func optionalDuration(field, s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, capability.Errorf(capability.CodeInvalidInput, "decode", "%s: %q is not a duration above 0; write 720h or 15m", field, s)
	}
	return d, nil
}

func (s *Surface) revokeToken(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	t, err := s.Policy.RevokeToken(r.Context(), who, r.PathValue("id"))
	if err != nil {
		return err
	}
	door.WriteJSON(w, http.StatusOK, t)
	return nil
}

func (s *Surface) confirmations(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	state := policy.ApprovalState(r.URL.Query().Get("state"))
	switch state {
	case "", policy.ApprovalPending, policy.ApprovalApproved, policy.ApprovalDenied, policy.ApprovalExpired, policy.ApprovalSuperseded:
	default:
		return capability.Errorf(capability.CodeInvalidInput, "confirmations.list", "%q is not a state; use pending, approved, denied, expired or superseded", state)
	}
	list, err := s.Policy.Approvals(r.Context(), state, 500)
	if err != nil {
		return err
	}
	if list == nil {
		list = []policy.Approval{}
	}
	door.WriteJSON(w, http.StatusOK, map[string]any{"confirmations": list})
	return nil
}

func (s *Surface) decide(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	var req struct {
		Decision policy.Decision `json:"decision"`
	}
	if err := door.Decode(w, r, &req); err != nil {
		return err
	}
	a, g, err := s.Policy.Decide(r.Context(), who, r.PathValue("id"), req.Decision)
	if err != nil {
		return err
	}
	body := map[string]any{"confirmation": a}
	if g != nil {
		body["grant"] = g
	}
	door.WriteJSON(w, http.StatusOK, body)
	return nil
}

func (s *Surface) grants(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	list, err := s.Policy.Grants(r.Context())
	if err != nil {
		return err
	}
	if list == nil {
		list = []policy.Grant{}
	}
	door.WriteJSON(w, http.StatusOK, map[string]any{"grants": list})
	return nil
}

func (s *Surface) createGrant(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	var req struct {
		Principal string            `json:"principal"`
		Role      string            `json:"role"`
		Module    string            `json:"module"`
		Action    string            `json:"action"`
		Scope     string            `json:"scope"`
		ScopeID   string            `json:"scope_id"`
		Expires   string            `json:"expires"`
		MaxUses   int               `json:"max_uses"`
		Effect    capability.Effect `json:"effect"`
	}
	if err := door.Decode(w, r, &req); err != nil {
		return err
	}
	expires, err := optionalDuration("expires", req.Expires)
	if err != nil {
		return err
	}
	g := policy.Grant{
		Principal: req.Principal, Role: req.Role, Module: req.Module, Action: req.Action,
		Scope: req.Scope, ScopeID: req.ScopeID, MaxUses: req.MaxUses, Effect: req.Effect,
	}
	if expires > 0 {
		g.Expires = time.Now().UTC().Add(expires)
	}
	g, err = s.Policy.CreateGrant(r.Context(), who, g)
	if err != nil {
		return err
	}
	door.WriteJSON(w, http.StatusCreated, g)
	return nil
}

func (s *Surface) revokeGrant(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	g, err := s.Policy.RevokeGrant(r.Context(), who, r.PathValue("id"))
	if err != nil {
		return err
	}
	door.WriteJSON(w, http.StatusOK, g)
	return nil
}

func (s *Surface) secrets(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	list, err := s.Secrets.List()
	if err != nil {
		return err
	}
	if list == nil {
		list = []SecretInfo{}
	}
	door.WriteJSON(w, http.StatusOK, map[string]any{"secrets": list})
	return nil
}

// setSecret takes the value as the raw body, so that no JSON decoder, log or
// error ever holds a piece of it.
func (s *Surface) setSecret(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	if ct := r.Header.Get("Content-Type"); !strings.HasPrefix(ct, "application/octet-stream") {
		return capability.Errorf(capability.CodeInvalidInput, "secrets.set", "send the value itself as application/octet-stream")
	}
	value, err := door.ReadBody(w, r, door.BodyLimit)
	if err != nil {
		return err
	}
	if err := s.Secrets.Set(r.PathValue("name"), value); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Surface) removeSecret(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	if err := s.Secrets.Remove(r.PathValue("name")); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
