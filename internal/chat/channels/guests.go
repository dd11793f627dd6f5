package channels

import (
	"context"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// GuestLabel is a label of the principals of guests, for rules about them.
const GuestLabel = "channel-guest"

// guestName returns the name of the principal of an account's guests.
func guestName(r Ref) string { return r.Kind + "." + r.Account + ".guests" }

// admitGuests makes the principal of an account's guests, whose calls can only read. Its token is
// never handed out.
func (h *Hub) admitGuests(ctx context.Context, by capability.Principal, r Ref) error {
	_, _, err := h.cfg.Policy.CreateToken(ctx, by, policy.TokenRequest{
		Role: capability.RoleAgent, Name: guestName(r), Labels: []string{GuestLabel}, Most: capability.EffectRead,
	})
	return err
}

// guest passes what a person wrote, who is not paired, to the agent, in a group that the operator
// named: anyone can make a group and add the account to it. All guests of a group
// have one conversation with it, in which each message has its author's name.
func (c *connection) guest(ctx context.Context, r Received) error {
	u := r.Update
	who, ok := c.hub.cfg.Policy.Find(string(capability.RoleAgent) + ":" + guestName(c.account.Ref))
	switch {
	case !ok || who.Most != capability.EffectRead:
		return c.refuse(ctx, r, refusal("access_ended", "the access of guests has ended"))
	case strings.HasPrefix(strings.TrimSpace(u.Text), "/"):
		return c.refuse(ctx, r, refusal(reasonUnpaired, "guests run no commands"))
	case !r.Again && !c.guests.Allow():
		return c.refuse(ctx, r, refusal("guests_limited", "the guests of the account write too much"))
	}
	said, err := c.words(ctx, r)
	if err != nil || said == "" {
		return err
	}
	c.hub.record(ctx, audit.ChannelGuest, c.account.Ref, u.User, nil, audit.Attr{Key: "update", Value: u.ID},
		audit.Attr{Key: "conversation", Value: u.Conversation}, audit.Attr{Key: "principal", Value: who.ID})
	name := strings.NewReplacer("[", "", "]", "").Replace(text.Line(u.UserName, 60) + " " + text.Line(u.User, 60))
	// No line of the text begins where the name of a guest would.
	indented := strings.NewReplacer("\r\n", "\n  ", "\n", "\n  ", "\r", "\n  ", "\v", "\n  ", "\f", "\n  ",
		"\u0085", "\n  ", "\u2028", "\n  ", "\u2029", "\n  ").Replace(said)
	return c.converse(ctx, r, who, "["+strings.TrimSpace(name)+", a guest] "+indented)
}

// guestsOnly reports whether a call is made for guests, who read the conversation in which they
// write and not others.
func (c *connection) guestsOnly(k capability.Call, conversation string) bool {
	if !slices.Contains(k.Principal.Labels, GuestLabel) {
		return false
	}
	return k.Context == nil || k.Context.Route == nil || k.Context.Route.Conversation != conversation ||
		(Ref{k.Context.Route.Kind, k.Context.Route.Account}) != c.account.Ref
}
