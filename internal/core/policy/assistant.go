package policy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

// Assistant returns the principal with which the agent loop acts for a person: one for each
// person, with the role task, on behalf of them. It may do what both may do, and ends with the
// person's token. Its own token is created at the first use and never handed out, so that the
// person may decide about its calls, and a grant lasts from one conversation to the next. Errors:
// denied for a principal that has no token of this server or is an assistant or a task agent
// itself; unauthenticated if the person's token is not live.
func (p *Policy) Assistant(ctx context.Context, person capability.Principal) (capability.Principal, error) {
	if !fromToken(person.ID) || person.OnBehalfOf != "" {
		return capability.Principal{}, capability.Errorf(capability.CodeDenied, "agent",
			"the agent acts for people with a token of this server, and %s has none", person.ID).
			With("forbidden", "an operator makes one with: junctor tokens create")
	}
	sum := sha256.Sum256([]byte(person.ID))
	id := capability.AssistantPrefix + hex.EncodeToString(sum[:12])
	p.assistants.Lock()
	defer p.assistants.Unlock()
	m := p.tokens.Load()
	of, ok := m.names[person.ID]
	if !ok || !m.good(of, p.now()) {
		return capability.Principal{}, notStanding(person.ID)
	}
	t, ok := m.names[id]
	if ok && t.OnBehalfOf != nil && t.OnBehalfOf.Token == of.ID && m.good(t, p.now()) {
		return t.Principal(), nil
	}
	server := capability.Principal{ID: "server", Role: capability.RoleAdmin}
	if ok { // it acts for a token that the person no longer has
		if _, err := p.RevokeToken(ctx, server, t.ID); err != nil {
			return capability.Principal{}, err
		}
	}
	person = of.Principal()
	_, name, _ := strings.Cut(id, ":")
	t, _, err := p.CreateToken(ctx, server, TokenRequest{Role: capability.RoleTask, Name: name, OnBehalfOf: &person})
	return t.Principal(), err
}
