package setup

import (
	"context"
	"errors"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/internal/setup/clients"
)

// ownsToken reports whether the live token with the client's name is the one in the client's file.
func (s *Service) ownsToken(client string) bool {
	value, _, err := secretstore.ReadFile(s.tokenFile(client))
	if err != nil {
		return false
	}
	who, err := s.cfg.Tokens.Verify(value.Reveal())
	return err == nil && who.ID == string(capability.RoleAgent)+":"+client
}

// mayUseToken fails with conflict, reason client_token_exists, if a live token has the client's name
// and was not created by its setup, because programs that use it would lose their access.
func (s *Service) mayUseToken(ctx context.Context, c clients.Client, r record) error {
	if r.CreatesToken || s.ownsToken(c.Name) {
		return nil
	}
	all, err := s.cfg.Tokens.Tokens(ctx)
	if err != nil {
		return err
	}
	for _, t := range all {
		if t.Name == c.Name && t.Live(time.Now()) {
			return capability.Errorf(capability.CodeConflict, "setup",
				"%s would get a token named %q, and a token of that name exists that setup did not create", c.Title, c.Name).
				With("client_token_exists", "if no program needs that token, revoke it with: junctor tokens revoke "+c.Name)
		}
	}
	return nil
}

// token writes a token for the client of r, unless its file has a valid one. The record is stored
// before the token is created, so that a setup that was killed recognizes its token.
func (s *Service) token(ctx context.Context, by capability.Principal, r *record) error {
	if s.ownsToken(r.Client) {
		r.CreatesToken = false
		return nil
	}
	if r.CreatesToken {
		if err := s.revoke(ctx, by, r.Client); err != nil {
			return err
		}
	}
	r.CreatesToken = true
	if err := s.save(*r); err != nil {
		return capability.Wrap(capability.CodeFailed, "setup", "the record of the setup cannot be written", err)
	}
	_, value, err := s.cfg.Tokens.CreateToken(ctx, by, policy.TokenRequest{Role: capability.RoleAgent, Name: r.Client})
	if err != nil {
		r.CreatesToken = false
		return err
	}
	if err := hostfs.WriteFile(s.tokenFile(r.Client), []byte(value.Reveal()+"\n")); err != nil {
		return errors.Join(capability.Wrap(capability.CodeFailed, "setup", "the token of the client cannot be written", err),
			s.revoke(ctx, by, r.Client))
	}
	r.CreatesToken = false
	return nil
}

// revoke revokes the token with the client's name, if there is one.
func (s *Service) revoke(ctx context.Context, by capability.Principal, client string) error {
	_, err := s.cfg.Tokens.RevokeToken(ctx, by, client)
	if capability.CodeOf(err) == capability.CodeNotFound {
		return nil
	}
	return err
}
