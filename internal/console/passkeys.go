package console

import (
	"encoding/base64"
	"encoding/json"
	"net/http"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/console/passkey"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

const passkeysPath = "/api/v1/console/passkeys"

// ownerOf returns whose passkeys a principal may see and remove: "" for all.
func ownerOf(who capability.Principal) string {
	if who.Role == capability.RoleAdmin {
		return ""
	}
	return who.ID
}

func (s *Service) listPasskeys(w http.ResponseWriter, _ *http.Request, who capability.Principal) error {
	return httpapi.Answer(w, map[string]any{"passkeys": s.passkeys.List(ownerOf(who))}, nil)
}

func (s *Service) beginPasskey(w http.ResponseWriter, _ *http.Request, who capability.Principal) error {
	id, options, err := s.passkeys.Begin(s.base(), who.ID)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return httpapi.Answer(w, map[string]any{"id": id, "options": options}, nil)
}

func (s *Service) addPasskey(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	var req struct {
		ID       string          `json:"id"`
		Name     string          `json:"name"`
		Response json.RawMessage `json:"response"`
	}
	if err := httpapi.Decode(w, r, &req); err != nil {
		return err
	}
	one, err := s.passkeys.Add(s.base(), who.ID, req.ID, req.Name, req.Response)
	if err != nil {
		s.logRefused(err)
		return err
	}
	s.record(r.Context(), audit.PasskeyAdded, who.ID, nil, attr("passkey", one.ID), attr("name", one.Name))
	httpapi.WriteJSON(w, http.StatusCreated, one)
	return nil
}

func (s *Service) removePasskey(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	one, err := s.passkeys.Remove(ownerOf(who), r.PathValue("id"))
	if err != nil {
		return err
	}
	s.record(r.Context(), audit.PasskeyRemoved, who.ID, nil, attr("passkey", one.ID), attr("owner", one.Principal))
	return httpapi.Answer(w, one, nil)
}

// signed returns an error unless a passkey of the principal signed the challenge.
func (s *Service) signed(principal string, c passkey.Challenge, proof string) error {
	response, err := base64.RawURLEncoding.DecodeString(proof)
	if err != nil {
		return capability.Errorf(capability.CodeInvalidInput, "console.verify", "the response of the passkey is not base64url")
	}
	err = s.passkeys.Verify(s.base(), principal, c, response)
	s.logRefused(err)
	return err
}

// logRefused logs the cause of a passkey that was refused.
func (s *Service) logRefused(err error) {
	if err != nil && s.failures.Allow() {
		s.cfg.Logger.Warn("passkey refused", "cause", cause(capability.AsError(err)))
	}
}
