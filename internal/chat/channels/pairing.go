package channels

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/secret"
)

const (
	// letters are those of a pairing code: without those that look like others.
	letters    = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
	codeLength = 8
)

var principalName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// checkURL returns invalid_input for a URL that cannot be used, or has a password in it.
func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
		return capability.Errorf(capability.CodeInvalidInput, "channels.add",
			"the URL of a channel begins with https:// or http:// and has no password in it")
	}
	return nil
}

// Pairing is an open code, or a person who was paired without one.
type Pairing struct {
	Code    string    `json:"code,omitempty"`
	Send    string    `json:"send,omitempty"` // the line that the person sends
	Expires time.Time `json:"expires,omitzero"`
	Person  *Person   `json:"person,omitempty"`
}

// Pair makes a code with which a person is paired, or pairs the user if that is not "". name is the
// name of the principal that the person becomes; "" makes one from the user's id. Only an admin
// pairs operators, or gives a name that a token has or had.
func (h *Hub) Pair(ctx context.Context, by capability.Principal, r Ref, role capability.Role, name, user string) (Pairing, error) {
	const op = "channels.pair"
	switch {
	case role != capability.RoleOperator && role != capability.RoleAgent:
		return Pairing{}, capability.Errorf(capability.CodeInvalidInput, op, "%.20q is not a role for people; use operator or agent", role)
	case role == capability.RoleOperator && by.Role != capability.RoleAdmin:
		return Pairing{}, capability.Errorf(capability.CodeDenied, op, "only an admin pairs operators").
			With("forbidden", "use the admin token of the home")
	case name != "" && !principalName.MatchString(name):
		return Pairing{}, capability.Errorf(capability.CodeInvalidInput, op,
			"the name must be 1 to 64 letters, digits, dots, dashes, underscores or @, beginning with a letter or digit")
	}
	c := h.connection(r)
	if c == nil {
		return Pairing{}, NotFound(r)
	}
	if user != "" && !c.kind.Direct && c.kind.ID != nil && !c.kind.ID.MatchString(user) {
		return Pairing{}, capability.Errorf(capability.CodeInvalidInput, op, "%.80q is not the id of a user of %s", user, c.kind.Label)
	}
	code := Code{Ref: r, Role: role, Principal: name}
	if by.Role != capability.RoleAdmin {
		code.PairedBy = by.ID
	}
	if err := h.checkName(ctx, code, name); err != nil {
		return Pairing{}, err
	}
	if user != "" {
		conversation := user
		if c.kind.Direct {
			var err error
			if conversation, err = c.channel.Do(ctx, Op{Verb: VerbOpen, Conversation: user}); err != nil {
				return Pairing{}, err
			}
		}
		p, err := h.admitPerson(ctx, by, code, Update{User: user, Conversation: conversation})
		return Pairing{Person: &p}, err
	}
	raw := make([]byte, codeLength)
	_, _ = rand.Read(raw) // never fails
	for i, b := range raw {
		raw[i] = letters[int(b)%len(letters)] // 256 is a multiple of 32
	}
	now := h.cfg.Now()
	code.Hash, code.Expires = codeHash(string(raw)), now.Add(codeTTL).UTC()
	if err := h.cfg.Store.CreateCode(ctx, code, now); err != nil {
		return Pairing{}, err
	}
	h.record(ctx, audit.ChannelPairing, r, by.ID, nil, audit.Attr{Key: "role", Value: string(role)})
	return Pairing{Code: string(raw), Send: c.kind.command("pair " + string(raw)), Expires: code.Expires}, nil
}

func codeHash(code string) string { return secret.Hash(strings.ToUpper(strings.TrimSpace(code))) }

// pair handles /pair CODE.
func (h *Hub) pair(ctx context.Context, c *connection, r Received, args []string) error {
	if len(args) != 1 {
		return c.refuse(ctx, r, refusal("pairing_code_wrong", "send /pair and the code"))
	}
	code, err := h.cfg.Store.UseCode(ctx, c.account.Ref, codeHash(args[0]), h.cfg.Now())
	if capability.CodeOf(err) == capability.CodeDenied {
		return c.refuse(ctx, r, err)
	}
	if err != nil {
		return err
	}
	p, err := h.admitPerson(ctx, capability.Principal{ID: "channel:" + c.account.String(), Role: capability.RoleAdmin}, code, r.Update)
	if err != nil {
		h.cfg.Logger.Warn("a person was not paired", "channel", c.account.String(), "err", err)
		return c.answer(ctx, r, "You are not paired: "+capability.AsError(err).Message)
	}
	return c.answer(ctx, r, "You are paired as "+p.Principal+". Write to the agent, or /help for the commands.")
}

// checkName returns denied if an operator, and not an admin, pairs a person with a name that is not new. Grants, memory and
// sessions belong to the name of a principal, even after its token has ended.
func (h *Hub) checkName(ctx context.Context, code Code, name string) error {
	if code.PairedBy == "" || name == "" {
		return nil
	}
	all, err := h.cfg.Policy.Tokens(ctx)
	if err == nil && (!policy.IsProgram("agent:"+name) || slices.ContainsFunc(all, func(t policy.Token) bool { return t.Name == name })) {
		err = capability.Errorf(capability.CodeDenied, "channels.pair",
			"only an admin gives a person the name %s, which is taken, was taken or is reserved", name).
			With("forbidden", "choose another name, or use the admin token of the home")
	}
	return err
}

// admitPerson stores a person with the principal of a code. The principal gets a token that is never
// handed out, unless it has one.
func (h *Hub) admitPerson(ctx context.Context, by capability.Principal, code Code, u Update) (Person, error) {
	p := Person{
		Ref: code.Ref, User: u.User, Name: u.UserName, Conversation: u.Conversation, Role: code.Role, Paired: h.cfg.Now().UTC(),
	}
	name := code.Principal
	if name == "" {
		name = code.Kind + "." + code.Account + "." + u.User
		if !principalName.MatchString(name) {
			sum := sha256.Sum256([]byte(u.User))
			name = code.Kind + "." + code.Account + "." + hex.EncodeToString(sum[:8])
		}
	}
	if err := h.checkName(ctx, code, name); err != nil {
		return p, err
	}
	if old, err := h.cfg.Store.Person(ctx, code.Ref, u.User); err == nil {
		if err := h.endToken(ctx, by, old); err != nil {
			return p, err
		}
	}
	p.Principal = string(code.Role) + ":" + name
	if _, ok := h.cfg.Policy.Find(p.Principal); !ok {
		req := policy.TokenRequest{Role: code.Role, Name: name}
		if code.PairedBy != "" {
			req.Labels = []string{policy.PairedBy + code.PairedBy}
		}
		if _, _, err := h.cfg.Policy.CreateToken(ctx, by, req); err != nil {
			return p, err
		}
		p.Owned = true
	}
	if err := h.cfg.Store.SavePerson(ctx, p); err != nil {
		return p, err
	}
	h.record(ctx, audit.ChannelPaired, p.Ref, by.ID, nil, audit.Attr{Key: "user", Value: p.User},
		audit.Attr{Key: "name", Value: text.Visible(p.Name)}, audit.Attr{Key: "principal", Value: p.Principal})
	return p, nil
}

// Unpair ends the access of a person.
func (h *Hub) Unpair(ctx context.Context, by capability.Principal, r Ref, user string) error {
	p, err := h.cfg.Store.Person(ctx, r, user)
	if err != nil {
		return err
	}
	if err := h.cfg.Store.DeletePerson(ctx, r, user); err != nil {
		return err
	}
	h.record(ctx, audit.ChannelUnpaired, r, by.ID, nil, audit.Attr{Key: "user", Value: user}, audit.Attr{Key: "principal", Value: p.Principal})
	return h.endToken(ctx, by, p)
}

// endToken revokes the token that was made for a person who is not paired any more, unless another
// account has the same principal, to which it then belongs.
func (h *Hub) endToken(ctx context.Context, by capability.Principal, p Person) error {
	if !p.Owned {
		return nil
	}
	people, err := h.cfg.Store.People(ctx, Ref{})
	if err != nil {
		return err
	}
	for _, other := range people {
		if other.Principal == p.Principal && (other.Ref != p.Ref || other.User != p.User) {
			other.Owned = true
			return h.cfg.Store.SavePerson(ctx, other)
		}
	}
	_, name, _ := strings.Cut(p.Principal, ":")
	if _, err := h.cfg.Policy.RevokeToken(ctx, by, name); err != nil && capability.CodeOf(err) != capability.CodeNotFound {
		return err
	}
	return nil
}
