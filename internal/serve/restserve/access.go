package restserve

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/secret"
)

func (s *Surface) tokens(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	list, err := s.Policy.Tokens(r.Context())
	return httpapi.Answer(w, map[string]any{"tokens": append([]policy.Token{}, list...)}, err)
}

func (s *Surface) createToken(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	var req struct {
		Role    capability.Role   `json:"role"`
		Name    string            `json:"name"`
		Labels  []string          `json:"labels"`
		View    string            `json:"view"`
		Expires string            `json:"expires"`
		Limits  policy.Limits     `json:"limits"`
		Most    capability.Effect `json:"most"`
	}
	if err := httpapi.Decode(w, r, &req); err != nil {
		return err
	}
	expires, err := optionalDuration("expires", req.Expires)
	if err != nil {
		return err
	}
	t, value, err := s.Policy.CreateToken(r.Context(), who, policy.TokenRequest{
		Role: req.Role, Name: req.Name, Labels: req.Labels, View: req.View, Expires: expires, Limits: req.Limits, Most: req.Most,
	})
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	httpapi.WriteJSON(w, http.StatusCreated, struct {
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
	return httpapi.Answer(w, t, err)
}

func (s *Surface) grants(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	list, err := s.Policy.Grants(r.Context())
	return httpapi.Answer(w, map[string]any{"grants": append([]policy.Grant{}, list...)}, err)
}

func (s *Surface) createGrant(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	var req struct {
		Principal   string            `json:"principal"`
		Role        string            `json:"role"`
		Module      string            `json:"module"`
		Action      string            `json:"action"`
		Permissions []string          `json:"permissions"`
		ContentHash string            `json:"content_hash"`
		Scope       string            `json:"scope"`
		ScopeID     string            `json:"scope_id"`
		Expires     string            `json:"expires"`
		MaxUses     int               `json:"max_uses"`
		Effect      capability.Effect `json:"effect"`
	}
	if err := httpapi.Decode(w, r, &req); err != nil {
		return err
	}
	if req.Module == "" && req.Action == "" {
		return capability.Errorf(capability.CodeInvalidInput, "grants.create",
			"a grant that names neither an action nor a module would be a yes to everything").
			With("grant_unbounded", "name what it is for, with --action or --module; --action '*' is everything, if that is meant")
	}
	expires, err := optionalDuration("expires", req.Expires)
	if err != nil {
		return err
	}
	if found := s.find(req.Action); len(found) > 0 {
		// Tools of two servers may have one action, because names of servers and tools may have dots.
		e := found[max(0, slices.IndexFunc(found, func(e *catalog.Entry) bool { return policy.ToolOf(e) == req.Action }))]
		if policy.ToolOf(e) != "" {
			if named := req.Action != string(e.Action) || e.Minted() && len(found) == 1; named && req.Module == "" {
				req.Module = e.Module.Extension
			}
			req.Action = string(e.Action)
		}
	}
	g := policy.Grant{
		Principal: req.Principal, Role: req.Role, Module: req.Module, Action: req.Action, ContentHash: req.ContentHash,
		Scope: req.Scope, ScopeID: req.ScopeID, MaxUses: req.MaxUses, Effect: req.Effect,
	}
	if g.Permissions, err = s.grantedPermissions(who, &g, req.Permissions); err != nil {
		return err
	}
	if expires > 0 {
		g.Expires = time.Now().UTC().Add(expires)
	}
	if g, err = policy.Bound(g, s.Catalog.Snapshot()); err != nil {
		return err
	}
	g, err = s.Policy.CreateGrant(r.Context(), who, g)
	if err != nil {
		return err
	}
	warnings, err := s.strangers(r.Context(), g)
	if err != nil {
		return err
	}
	httpapi.WriteJSON(w, http.StatusCreated, struct {
		policy.Grant
		Warnings []string `json:"warnings,omitempty"`
	}{g, warnings})
	return nil
}

// grantedPermissions returns the canonical names of permissions that a grant adds. Only
// an administrator may grant them (denied), to one named module, and without a session or
// a number of uses (invalid_input), because other grants would have no effect on them.
func (s *Surface) grantedPermissions(who capability.Principal, g *policy.Grant, names []string) ([]string, error) {
	const op = "grants.create"
	switch {
	case len(names) == 0:
		return nil, nil
	case who.Role != capability.RoleAdmin:
		return nil, capability.Errorf(capability.CodeDenied, op, "only an administrator may grant permissions; yours is the role %s", who.Role).
			With("forbidden", "use the admin token of the home")
	case g.Module == "" || g.Module == "*":
		return nil, capability.Errorf(capability.CodeInvalidInput, op, "permissions are granted to one extension: name it as the module")
	case g.MaxUses > 0 || g.Scope == "session":
		return nil, capability.Errorf(capability.CodeInvalidInput, op, "permissions are not granted for a number of uses or a session").
			With("", "use expires")
	case slices.Equal(names, []string{"*"}):
		return names, nil
	}
	return s.Permissions(names)
}

// strangers returns warnings about principals that do not exist yet, because their tokens may
// be created later.
func (s *Surface) strangers(ctx context.Context, g policy.Grant) (warnings []string, err error) {
	names := []string{g.Principal}
	if g.Scope == "user" && g.ScopeID != g.Principal {
		names = append(names, g.ScopeID)
	}
	tokens, err := s.Policy.Tokens(ctx)
	for _, name := range names {
		if name != "*" && !slices.ContainsFunc(tokens, func(t policy.Token) bool { return t.Principal().ID == name && t.Live(time.Now()) }) {
			warnings = append(warnings, fmt.Sprintf("no token is %q, so the grant is of no use until one is made; principals are role:name, such as agent:local-agent", name))
		}
	}
	return warnings, err
}

func (s *Surface) revokeGrant(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	g, err := s.Policy.RevokeGrant(r.Context(), who, r.PathValue("id"))
	return httpapi.Answer(w, g, err)
}

func (s *Surface) secrets(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	list, err := s.Secrets.List()
	return httpapi.Answer(w, map[string]any{"secrets": append([]secretstore.Info{}, list...)}, err)
}

// setSecret stores the raw body as the value, so that no JSON decoder, log or error
// contains a part of it.
func (s *Surface) setSecret(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	if ct := r.Header.Get("Content-Type"); !strings.HasPrefix(ct, "application/octet-stream") {
		return capability.Errorf(capability.CodeInvalidInput, "secrets.set", "send the value itself as application/octet-stream")
	}
	value, err := httpapi.ReadBody(w, r, httpapi.MaxBody)
	if err != nil {
		return err
	}
	if err := s.Secrets.Set(r.PathValue("name"), secret.New(string(value))); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Surface) linkSecret(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	var in struct {
		To string `json:"to"`
	}
	if err := httpapi.Decode(w, r, &in); err != nil {
		return err
	}
	if err := s.Secrets.Link(r.PathValue("name"), in.To); err != nil {
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
