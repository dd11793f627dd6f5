package policy

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/secret"
)

// personPrefix begins the names of people who signed in with a provider elsewhere. Other tokens
// cannot have such names, so they are not taken for these people.
const personPrefix = "oidc-"

// Person is a person who signed in with a provider elsewhere.
type Person struct {
	Identity string // of the account at the provider: lower-case hexadecimal, at most 16 digits
	Name     string // readable, such as an address; other characters than those of a token's name are replaced
	Role     capability.Role
}

// SignIn returns the token of a person, which lasts until the given time, or longer after a later
// sign-in. Its value is not handed out. A person keeps the name of the first sign-in, and with
// it grants and tasks. If the role has changed, the token with the former role is revoked, and with
// it what was signed in before. A token that an operator revoked is not used again.
func (p *Policy) SignIn(ctx context.Context, person Person, until time.Time) (Token, error) {
	p.people.Lock()
	defer p.people.Unlock()
	if err := p.ready(); err != nil {
		return Token{}, err
	}
	old, err := p.personToken(ctx, person.Identity)
	if err != nil {
		return Token{}, err
	}
	if old.ID != "" && old.Revoked.IsZero() {
		if old.Role == person.Role {
			return p.prolong(ctx, old.ID, until)
		}
		if _, err := p.RevokeToken(ctx, signInServer(), old.ID); err != nil {
			return Token{}, err
		}
	}
	name := old.Name
	if name == "" {
		name = personName(person)
	}
	t, _, err := p.CreateToken(ctx, signInServer(), TokenRequest{
		Role: person.Role, Name: name, Expires: max(until.Sub(p.now()), time.Millisecond), person: true,
	})
	return t, err
}

func signInServer() capability.Principal {
	return capability.Principal{ID: "server", Role: capability.RoleAdmin}
}

// EndSignIns revokes the token of a person whom the provider or the rules no longer admit, and with
// it their sessions. ended is false if they had none.
func (p *Policy) EndSignIns(ctx context.Context, identity string) (ended bool, err error) {
	p.people.Lock()
	defer p.people.Unlock()
	t, err := p.personToken(ctx, identity)
	if err != nil || t.ID == "" || !t.Revoked.IsZero() {
		return false, err
	}
	_, err = p.RevokeToken(ctx, signInServer(), t.ID)
	return err == nil, err
}

// Credential creates a further credential of the principal of a token, for a program on another
// machine. It ends with that token, or before.
func (p *Policy) Credential(ctx context.Context, of Token, until time.Time) (Token, secret.Value, error) {
	who := of.Principal()
	return p.CreateToken(ctx, who, TokenRequest{
		Role: of.Role, OnBehalfOf: &who, Expires: max(until.Sub(p.now()), time.Millisecond), same: true,
	})
}

// RevokeCredential revokes a credential of [Policy.Credential] by its value, and returns its
// principal. The error is conflict, reason not_signed_in, for any other token, and those of
// [Policy.Authenticate].
func (p *Policy) RevokeCredential(ctx context.Context, value string) (capability.Principal, error) {
	who, err := p.Authenticate(value)
	if err != nil {
		return capability.Principal{}, err
	}
	t := p.tokens.Load().hashes[secret.Hash(value)]
	if t.OnBehalfOf == nil || !t.OnBehalfOf.Same {
		return capability.Principal{}, capability.Errorf(capability.CodeConflict, "tokens.revoke", "this token was not made by a sign-in").
			With("not_signed_in", "an operator revokes it with: junctor tokens revoke")
	}
	_, err = p.RevokeToken(ctx, who, t.ID)
	return who, err
}

// personToken returns the newest token of a person, live or not, or the zero Token.
func (p *Policy) personToken(ctx context.Context, identity string) (Token, error) {
	all, err := p.store.Tokens(ctx)
	if err != nil {
		return Token{}, err
	}
	for _, t := range slices.Backward(all) {
		if strings.HasPrefix(t.Name, personPrefix) && strings.HasSuffix(t.Name, "-"+identity) {
			return t, nil
		}
	}
	return Token{}, nil
}

// IsProgram reports whether a principal is a program with a token of the role agent, and not a person
// who signed in.
func IsProgram(principal string) bool {
	name, agent := strings.CutPrefix(principal, string(capability.RoleAgent)+":")
	return agent && fromToken(principal) && !strings.HasPrefix(name, personPrefix)
}

// TokenID returns the id of the valid token that makes a principal, or "" if it has none.
func (p *Policy) TokenID(principal string) string {
	m := p.tokens.Load()
	if t, ok := m.names[principal]; ok && m.good(t, p.now()) {
		return t.ID
	}
	return ""
}

// EndedTokens returns the ids of tokens that are never valid again. The expired token of a person who
// signed in is not one, because the next sign-in prolongs it.
func (p *Policy) EndedTokens(ctx context.Context) (map[string]bool, error) {
	all, err := p.store.Tokens(ctx)
	ended := make(map[string]bool)
	for _, t := range all {
		if !t.Revoked.IsZero() || !t.Live(p.now()) && !strings.HasPrefix(t.Name, personPrefix) {
			ended[t.ID] = true
		}
	}
	return ended, err
}

func (p *Policy) prolong(ctx context.Context, id string, until time.Time) (Token, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, err := p.store.ProlongToken(ctx, id, until.UTC())
	if err == nil {
		p.changeTokens(t)
	}
	return t, err
}

// personName returns the name of a person's principal: readable, and with the identity, so that two
// people never share one.
func personName(person Person) string {
	readable := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '@' || r == '-' {
			return r
		}
		if r >= 'A' && r <= 'Z' {
			return r - 'A' + 'a'
		}
		return '_'
	}, person.Name)
	return personPrefix + readable[:min(len(readable), maxPersonName)] + "-" + person.Identity
}
