package policy

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/secret"
)

// Token is a stored credential: the hash, never the token.
type Token struct {
	ID      string          `json:"id"` // "tok_" + 24 hex
	Name    string          `json:"name"`
	Role    capability.Role `json:"role"`
	Hash    string          `json:"-"` // secret.Hash of the token
	Labels  []string        `json:"labels,omitempty"`
	View    string          `json:"view,omitempty"`
	Created time.Time       `json:"created"`
	Expires time.Time       `json:"expires,omitzero"`
	Revoked time.Time       `json:"revoked,omitzero"`
	Used    time.Time       `json:"used,omitzero"` // the last request with it; a crash forgets those of the last minute
	Limits  Limits          `json:"limits,omitzero"`
	// Most is the strongest effect of calls with the token; "": they are not bounded.
	Most capability.Effect `json:"most,omitempty"`
	// OnBehalfOf bounds the token's rights; nil for a token without a bound.
	OnBehalfOf *Delegation `json:"on_behalf_of,omitempty"`
}

// Delegation is the principal whose rights bound those of a token: the live token of the
// principal, or, for a principal without one (a login elsewhere), the principal as it was
// when the token was created.
type Delegation struct {
	Token string               `json:"token,omitempty"`
	By    capability.Principal `json:"by"`
	// Same marks a further credential of the principal itself: calls with it are calls of By.
	Same bool `json:"same,omitempty"`
}

// Principal returns the principal of calls with this token.
func (t Token) Principal() capability.Principal {
	p := capability.Principal{
		ID: string(t.Role) + ":" + t.Name, Role: t.Role, Labels: t.Labels, View: t.View, Scoped: t.Most != "", Most: t.Most,
	}
	if d := t.OnBehalfOf; d != nil {
		if d.Same {
			return d.By
		}
		p.OnBehalfOf, p.Scoped, p.Most = d.By.ID, d.By.Scoped, d.By.Most
	}
	return p
}

// Live reports whether the token is valid at the given time.
func (t Token) Live(now time.Time) bool {
	return t.Revoked.IsZero() && (t.Expires.IsZero() || now.Before(t.Expires))
}

// TokenRequest describes a token to be created. Name defaults to the token's id.
type TokenRequest struct {
	Role    capability.Role
	Name    string
	Labels  []string
	View    string
	Expires time.Duration // 0 = never
	Limits  Limits
	Most    capability.Effect // the strongest effect of its calls, for the role agent; "": not bounded
	// OnBehalfOf bounds the token's rights and provides its labels. It must be a valid
	// principal. If nil, the rights are not bounded.
	OnBehalfOf *capability.Principal
	same       bool // another credential of the principal OnBehalfOf
	person     bool // of a person who signed in, whose names are reserved
}

var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// CreateToken creates a token and stores its hash. The returned value is the only copy of
// the token.
func (p *Policy) CreateToken(ctx context.Context, by capability.Principal, req TokenRequest) (Token, secret.Value, error) {
	const op = "tokens.create"
	if !slices.Contains(capability.Roles(), req.Role) {
		return Token{}, secret.Value{}, capability.Errorf(capability.CodeInvalidInput, op,
			"%q is not a role; use admin, operator, agent, node or task", req.Role)
	}
	if req.Expires < 0 {
		return Token{}, secret.Value{}, capability.Errorf(capability.CodeInvalidInput, op, "the expiry %s lies in the past", req.Expires)
	}
	bounds := []capability.Effect{"", capability.EffectRead, capability.EffectWrite, capability.EffectExternal}
	if req.Most != "" && (req.Role != capability.RoleAgent || req.OnBehalfOf != nil) || !slices.Contains(bounds, req.Most) {
		return Token{}, secret.Value{}, capability.Errorf(capability.CodeInvalidInput, op,
			"the effects of an agent's token can be bounded to read, write or external; other roles have no such bound")
	}
	if !req.Limits.valid() {
		return Token{}, secret.Value{}, capability.Errorf(capability.CodeInvalidInput, op, "a limit of calls is between 0 and %d", MaxLimit)
	}
	if err := p.ready(); err != nil {
		return Token{}, secret.Value{}, err
	}
	now := p.now().UTC()
	t := Token{ID: newID("tok_", now), Name: req.Name, Role: req.Role, Labels: req.Labels, View: req.View, Created: now, Limits: req.Limits, Most: req.Most}
	if t.Name == "" {
		t.Name = t.ID
	}
	if !tokenName.MatchString(t.Name) {
		return Token{}, secret.Value{}, capability.Errorf(capability.CodeInvalidInput, op,
			"the token name %q must be 1 to 64 letters, digits, dots, dashes, underscores or @, beginning with a letter or digit", t.Name)
	}
	if strings.HasPrefix(t.Name, personPrefix) && !req.person {
		return Token{}, secret.Value{}, capability.Errorf(capability.CodeInvalidInput, op,
			"names that begin with %s belong to people who signed in", personPrefix)
	}
	if len(req.Labels) > maxLabels {
		return Token{}, secret.Value{}, capability.Errorf(capability.CodeInvalidInput, op, "a token has at most %d labels", maxLabels)
	}
	for _, s := range append(slices.Clone(req.Labels), req.View) {
		if len(s) > maxLabelBytes || !utf8.ValidString(s) || text.Visible(s) != s {
			return Token{}, secret.Value{}, capability.Errorf(capability.CodeInvalidInput, op,
				"%q cannot be a label or view: at most %d bytes, without control and invisible characters", text.CutBytes(s, maxLabelBytes), maxLabelBytes)
		}
	}
	if req.OnBehalfOf != nil {
		d, err := p.delegation(*req.OnBehalfOf)
		if err != nil {
			return Token{}, secret.Value{}, err
		}
		d.Same = req.same
		t.OnBehalfOf, t.Labels = &d, d.By.Labels
	}
	if req.Expires > 0 {
		t.Expires = now.Add(req.Expires)
	}
	value := secret.NewToken(string(req.Role)[0])
	t.Hash = secret.Hash(value)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.store.CreateToken(ctx, t); err != nil {
		return Token{}, secret.Value{}, err
	}
	p.changeTokens(t)
	p.record(ctx, audit.TokenCreated, by, true, audit.Synced,
		audit.Attr{Key: "token", Value: t.ID}, audit.Attr{Key: "name", Value: t.Name}, audit.Attr{Key: "role", Value: string(t.Role)})
	return t, secret.New(value), nil
}

// Tokens returns every token, including ended ones.
func (p *Policy) Tokens(ctx context.Context) ([]Token, error) {
	all, err := p.store.Tokens(ctx)
	m := p.tokens.Load()
	for i := range all {
		if at := m.used[all[i].Hash].last(); at.After(all[i].Used) {
			all[i].Used = at
		}
	}
	return all, err
}

// RevokeToken ends a token at once and records it: the next request with it is rejected.
func (p *Policy) RevokeToken(ctx context.Context, by capability.Principal, idOrName string) (Token, error) {
	if err := p.ready(); err != nil {
		return Token{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t, err := p.store.RevokeToken(ctx, idOrName, p.now().UTC())
	if err != nil {
		return Token{}, err
	}
	p.changeTokens(t)
	p.record(ctx, audit.TokenRevoked, by, true, audit.Synced,
		audit.Attr{Key: "token", Value: t.ID}, audit.Attr{Key: "name", Value: t.Name}, audit.Attr{Key: "role", Value: string(t.Role)})
	return t, nil
}

// Authenticate is Verify for a request, which counts as a use of the token.
func (p *Policy) Authenticate(token string) (capability.Principal, error) {
	who, hash, err := p.verify(token)
	if err == nil {
		p.tokens.Load().used[hash].at(p.now())
	}
	return who, err
}

// Verify returns the principal of a token. Unknown, revoked and expired tokens get
// one error. A malformed one gets another, because its checksum shows that it never was a
// token. It costs one hash and one map lookup.
func (p *Policy) Verify(token string) (capability.Principal, error) {
	who, _, err := p.verify(token)
	return who, err
}

func (p *Policy) verify(token string) (who capability.Principal, hash string, err error) {
	const op = "authenticate"
	if token == "" {
		return who, "", capability.Errorf(capability.CodeUnauthenticated, op, "a bearer token is required").
			With("", "send the header Authorization: Bearer <token>; junctor tokens create makes one")
	}
	if !secret.WellFormed(token) {
		return who, "", capability.Errorf(capability.CodeUnauthenticated, op,
			"this is not a junctor token: its checksum is wrong").
			With("malformed_token", "copy the whole token, from jct_ to its last character")
	}
	m := p.tokens.Load()
	hash = secret.Hash(token)
	t, ok := m.hashes[hash]
	if !ok || !m.good(t, p.now()) {
		return who, "", capability.Errorf(capability.CodeUnauthenticated, op,
			"this token is not valid here: unknown, expired or revoked").
			With("invalid_token", "make a new one with: junctor tokens create")
	}
	return t.Principal(), hash, nil
}

// mirror holds the tokens that have not ended. It is immutable and replaced as a whole.
type mirror struct {
	hashes map[string]Token
	ids    map[string]Token    // of tokens
	names  map[string]Token    // of principals
	used   map[string]*lastUse // also of tokens that ended and whose last use is not stored
}

// good reports whether a token and the token of its delegation, if any, are live.
func (m *mirror) good(t Token, now time.Time) bool {
	if d := t.OnBehalfOf; d != nil && d.Token != "" {
		if by, ok := m.ids[d.Token]; !ok || !by.Live(now) {
			return false
		}
	}
	return t.Live(now)
}

// setTokens replaces the mirror by those of the tokens that are still valid as a basis for rights.
func (p *Policy) setTokens(all []Token) {
	m := mirror{hashes: make(map[string]Token, len(all)), ids: make(map[string]Token, len(all)), names: make(map[string]Token, len(all))}
	m.used = make(map[string]*lastUse, len(all))
	var before map[string]*lastUse
	if old := p.tokens.Load(); old != nil {
		before = old.used
	}
	for _, t := range all {
		if !t.stands(p.now()) {
			continue
		}
		m.hashes[t.Hash], m.ids[t.ID] = t, t
		if m.used[t.Hash] = before[t.Hash]; m.used[t.Hash] == nil {
			m.used[t.Hash] = &lastUse{token: t.ID}
		}
		if t.OnBehalfOf != nil && t.OnBehalfOf.Same {
			continue
		}
		if name := t.Principal().ID; t.Created.After(m.names[name].Created) {
			m.names[name] = t
		}
	}
	for hash, u := range before {
		if m.used[hash] == nil && u.seen.Load() != u.stored.Load() {
			m.used[hash] = u
		}
	}
	p.tokens.Store(&m)
}

// changeTokens adds t to the mirror, or removes it if it has ended. The mirror is updated
// without a query, because a query that fails must not leave a revoked token valid. Caller
// holds mu.
func (p *Policy) changeTokens(t Token) {
	old := p.tokens.Load().ids
	all := make([]Token, 0, len(old)+1)
	for _, o := range old {
		if o.ID != t.ID {
			all = append(all, o)
		}
	}
	p.setTokens(append(all, t))
}
