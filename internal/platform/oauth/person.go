package oauth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/junctor-run/junctor/capability"
)

// Person is a person whom the provider has signed in.
type Person struct {
	Identity string // 12 hexadecimal digits of the issuer and the subject
	Subject  string
	Email    string // "" unless the provider has verified it
	Role     capability.Role
	Hint     string // the token of the sign-in, for [Login.EndSession]; "" if it is too long
}

// Name returns the verified address, or the subject.
func (p Person) Name() string {
	if p.Email != "" {
		return p.Email
	}
	return p.Subject
}

// Rule gives a role to the people whom it fits.
type Rule struct {
	Kind  string // group, email, domain or subject
	Value string
	Role  capability.Role
}

// ParseRule parses KIND:VALUE=ROLE.
func ParseRule(text string) (Rule, error) {
	i := strings.LastIndex(text, "=")
	kind, value, ok := strings.Cut(text[:max(i, 0)], ":")
	r := Rule{Kind: kind, Value: strings.TrimSpace(value), Role: capability.Role(text[i+1:])}
	if !ok || r.Value == "" || !slices.Contains([]string{"group", "email", "domain", "subject"}, kind) {
		return Rule{}, fmt.Errorf("%q is not WHO=ROLE, with WHO group:NAME, email:ADDRESS, domain:NAME or subject:ID", text)
	}
	if !slices.Contains(personRoles(), r.Role) {
		return Rule{}, fmt.Errorf("%q: people have the role agent, operator or admin", text)
	}
	return r, nil
}

// personRoles returns the roles of people, the weakest first.
func personRoles() []capability.Role {
	return []capability.Role{capability.RoleAgent, capability.RoleOperator, capability.RoleAdmin}
}

func (r Rule) fits(p Person, groups []string) bool {
	switch r.Kind {
	case "group":
		return slices.Contains(groups, r.Value)
	case "email":
		return p.Email != "" && equalASCII(p.Email, r.Value)
	case "domain":
		_, domain, ok := strings.Cut(p.Email, "@")
		return ok && equalASCII(domain, r.Value)
	}
	return p.Subject == r.Value
}

// equalASCII compares without the case of ASCII letters. Other letters that fold to one, such as the
// long s, are different addresses.
func equalASCII(a, b string) bool {
	return len(a) == len(b) && strings.EqualFold(a, b)
}

// roleOf returns the strongest role that the rules give, or "".
func (l *Login) roleOf(p Person, groups []string) (role capability.Role) {
	strength := func(r capability.Role) int { return slices.Index(personRoles(), r) }
	for _, r := range l.cfg.Rules {
		if r.fits(p, groups) && strength(r.Role) > strength(role) {
			role = r.Role
		}
	}
	return role
}

// person returns the person of a token response. nonce is "" for a sign-in without a browser.
func (l *Login) person(ctx context.Context, p *oidc.Provider, t *oauth2.Token, nonce string) (Person, error) {
	raw, ok := t.Extra("id_token").(string)
	if !ok {
		return Person{}, l.invalid(errors.New("the answer has no id_token"))
	}
	token, err := p.Verifier(&oidc.Config{
		ClientID: l.cfg.ClientID, SupportedSigningAlgs: Algorithms(), SkipExpiryCheck: true, // see checkTimes
	}).Verify(ctx, raw)
	if err != nil {
		if strings.Contains(err.Error(), "fetching keys") {
			return Person{}, l.unavailable(err)
		}
		return Person{}, l.invalid(err)
	}
	claims := make(map[string]json.RawMessage)
	if err := token.Claims(&claims); err != nil {
		return Person{}, l.invalid(err)
	}
	if err := l.checkTimes(token, claims); err != nil {
		return Person{}, err
	}
	var party string
	decode(claims["azp"], &party)
	switch {
	case nonce != "" && subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(nonce)) != 1:
		return Person{}, l.invalid(errors.New("the nonce of the token is that of another sign-in"))
	case party != "" && party != l.cfg.ClientID || party == "" && len(token.Audience) > 1:
		return Person{}, l.invalid(fmt.Errorf("the token was made for the client %.200q", party))
	case token.Subject == "" || len(token.Subject) > 255:
		return Person{}, l.invalid(errors.New("the subject of the token is missing or longer than 255 bytes"))
	case token.AccessTokenHash != "" && token.VerifyAccessToken(t.AccessToken) != nil:
		return Person{}, l.invalid(errors.New("the access token does not belong to the token of the person"))
	}
	if claims[l.cfg.GroupsClaim] == nil || claims["email"] == nil {
		if err := l.userInfo(ctx, p, t, token.Subject, claims); err != nil {
			return Person{}, err
		}
	}
	sum := sha256.Sum256([]byte(l.cfg.Issuer + "\x00" + token.Subject))
	who := Person{Identity: hex.EncodeToString(sum[:6]), Subject: token.Subject}
	if len(raw) <= maxHint {
		who.Hint = raw
	}
	if verified(claims["email_verified"]) {
		decode(claims["email"], &who.Email)
	}
	who.Role = l.roleOf(who, groups(claims, l.cfg.GroupsClaim))
	if who.Role == "" {
		return who, capability.Errorf(capability.CodeDenied, "sign_in", "%s has signed in with %s, but may not use this server",
			who.Name(), l.cfg.Issuer).
			With("no_role", "an operator admits people with oidc.roles in the configuration: by group, address, domain or subject")
	}
	return who, nil
}

// checkTimes refuses a token that is not valid at this time, with a minute for clocks that differ.
func (l *Login) checkTimes(token *oidc.IDToken, claims map[string]json.RawMessage) error {
	var before float64
	decode(claims["nbf"], &before)
	now := l.cfg.Now()
	latest := now.Add(ClockSkewGrace)
	switch {
	case claims["exp"] == nil || claims["iat"] == nil:
		return l.invalid(errors.New("the token has no time"))
	case now.Add(-ClockSkewGrace).After(token.Expiry), token.IssuedAt.After(latest), before > float64(latest.Unix()):
		return capability.Errorf(capability.CodeUnauthenticated, "sign_in",
			"by this server's clock (%s) the provider's token has expired or is not valid yet", now.UTC().Format(time.RFC3339)).
			With("sign_in_clock", "sign in again; if it stays so, an operator sets the clocks of the server and the provider")
	}
	return nil
}

// userInfo adds claims that the provider keeps at its userinfo endpoint.
func (l *Login) userInfo(ctx context.Context, p *oidc.Provider, t *oauth2.Token, subject string, claims map[string]json.RawMessage) error {
	if p.UserInfoEndpoint() == "" || t.AccessToken == "" {
		return nil
	}
	info, err := p.UserInfo(ctx, oauth2.StaticTokenSource(t))
	if err != nil {
		return l.unavailable(err)
	}
	if info.Subject != subject {
		return l.invalid(errors.New("the userinfo endpoint answers about another person"))
	}
	further := make(map[string]json.RawMessage)
	if err := info.Claims(&further); err != nil {
		return l.invalid(err)
	}
	for name, value := range further {
		if claims[name] == nil && name != "email_verified" {
			claims[name] = value
		}
	}
	if further["email"] != nil { // the two belong together
		claims["email"], claims["email_verified"] = further["email"], further["email_verified"]
	}
	return nil
}

// decode decodes a claim. One of another type is left out.
func decode(raw json.RawMessage, to any) { _ = json.Unmarshal(raw, to) }

// verified reports whether a claim is true. Some providers send it as a text.
func verified(raw json.RawMessage) bool { return string(raw) == "true" || string(raw) == `"true"` }

// groups returns the groups of a claim: a text or a list of texts. The claim may be inside others,
// with dots between the names.
func groups(claims map[string]json.RawMessage, claim string) []string {
	raw, ok := claims[claim]
	for at := claims; !ok && strings.Contains(claim, "."); {
		var first string
		first, claim, _ = strings.Cut(claim, ".")
		inner := make(map[string]json.RawMessage)
		decode(at[first], &inner)
		at = inner
		raw, ok = at[claim]
	}
	var one string
	if decode(raw, &one); one != "" {
		return []string{one}
	}
	var list []any
	decode(raw, &list)
	var out []string
	for _, v := range list {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// LoginState is what [Login.Check] found.
type LoginState struct {
	Err     error         // of the metadata
	Skew    time.Duration // by which the provider's clock is ahead; 0 if it is not known
	Refused int           // the HTTP status with which the provider refuses the address of this server, or 0
	Devices bool          // programs without a browser can sign in
	// EndRefused is the HTTP status with which it refuses to return to this server after a sign-out, or 0.
	EndRefused int
}

// Check asks the provider for its metadata, its time, and whether it accepts a sign-in that returns
// to this server.
func (l *Login) Check(ctx context.Context) (state LoginState) {
	l.mu.Lock()
	l.next = time.Time{} // also after a failure
	l.mu.Unlock()
	ctx, _, c, err := l.discover(ctx)
	l.mu.Lock()
	err = cmp.Or(err, l.failure) // discover keeps the former metadata
	l.mu.Unlock()
	if err != nil {
		return LoginState{Err: err}
	}
	state.Devices = c.Endpoint.DeviceAuthURL != ""
	b := begun{State: "doctor", Nonce: "doctor", Verifier: oauth2.GenerateVerifier()}
	var at time.Time
	state.Refused, at, err = l.refusal(ctx, c.AuthCodeURL(b.State, oidc.Nonce(b.Nonce), oauth2.S256ChallengeOption(b.Verifier)))
	if err != nil {
		return LoginState{Err: l.unavailable(err)}
	}
	if !at.IsZero() {
		state.Skew = at.Sub(l.cfg.Now()).Round(time.Second)
	}
	if end := l.EndSession(ctx, "", "doctor"); end != "" {
		state.EndRefused, _, _ = l.refusal(ctx, end)
	}
	return state
}

// refusal returns the error status with which the provider answers a browser at an address, or 0, and
// its time.
func (l *Login) refusal(ctx context.Context, address string) (status int, at time.Time, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, at, err
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return 0, at, err
	}
	defer resp.Body.Close()
	at, _ = http.ParseTime(resp.Header.Get("Date"))
	if resp.StatusCode >= http.StatusBadRequest {
		status = resp.StatusCode
	}
	return status, at, nil
}
