package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/oauth"
	"github.com/junctor-run/junctor/secret"
)

// loginPath is the page to which the provider sends browsers back.
const loginPath = "/console/oidc"

// signedOutPath is the page to which it sends them back after a sign-out.
const signedOutPath = "/console/signed-out"

// openLogin returns the provider with which people sign in, or nil if none is configured.
func (s *Service) openLogin() (*oauth.Login, error) {
	o := s.cfg.OIDC
	if o.Issuer == "" {
		return nil, nil //nolint:nilnil // nothing is configured
	}
	cfg := oauth.LoginConfig{
		Issuer: o.Issuer, ClientID: o.ClientID, Scopes: o.Scopes, GroupsClaim: o.GroupsClaim,
		Redirect: func() string { return s.base() + loginPath }, SignedOut: func() string { return s.base() + signedOutPath },
	}
	if o.ClientSecret != "" {
		cfg.Secret = func() (secret.Value, error) { return s.cfg.Secret(o.ClientSecret) }
	}
	for _, text := range o.Roles {
		r, err := oauth.ParseRule(text)
		if err != nil {
			return nil, badSettings(fmt.Errorf("oidc.roles: %w", err))
		}
		cfg.Rules = append(cfg.Rules, r)
	}
	l, err := oauth.NewLogin(cfg)
	if err != nil {
		err = badSettings(err)
	}
	return l, err
}

func badSettings(err error) error {
	return capability.Errorf(capability.CodeInvalidInput, "sign_in", "%w", err).With("invalid_settings", "correct oidc in config.yaml")
}

// login returns the provider. The error is not_found, reason sign_in_off.
func (s *Service) login() (*oauth.Login, error) {
	if s.people == nil {
		return nil, capability.Errorf(capability.CodeNotFound, "sign_in", "this server signs people in with tokens only").
			With("sign_in_off", "use a token: junctor console prints a link, --token or JUNCTOR_TOKEN is for the command line; an operator can set oidc.issuer")
	}
	return s.people, nil
}

// showLogin answers how people can sign in, for a page without a session.
func (s *Service) showLogin(w http.ResponseWriter, _ *http.Request) error {
	var provider string
	if u, err := url.Parse(s.cfg.OIDC.Issuer); err == nil {
		provider = u.Host
	}
	return httpapi.Answer(w, map[string]string{"provider": provider}, nil)
}

func (s *Service) beginLogin(w http.ResponseWriter, r *http.Request) error {
	l, err := s.login()
	if err != nil {
		return err
	}
	address, kept, err := l.Begin(r.Context())
	if err != nil {
		return s.failed(r.Context(), oauth.Person{}, err)
	}
	w.Header().Set("Cache-Control", "no-store")
	httpapi.WriteJSON(w, http.StatusCreated, map[string]string{"url": address, "login": kept})
	return nil
}

// finishLogin makes the session of a person who comes back from the provider.
func (s *Service) finishLogin(r *http.Request, kept string, a oauth.Answer) (session, string, string, []audit.Attr, error) {
	l, err := s.login()
	if err != nil {
		return session{}, "", "", nil, err
	}
	who, err := l.Finish(r.Context(), kept, a)
	t, until, err := s.admit(r.Context(), who, err)
	if err != nil {
		return session{}, "", "", nil, err
	}
	if t.Role == capability.RoleAgent {
		return session{}, "", "", nil, s.failed(r.Context(), who, capability.Errorf(capability.CodeDenied, "sign_in",
			"%s has the role agent, and the console is for operators", who.Name()).
			With("no_role", "the command line works with this role: junctor login; an operator changes it with oidc.roles"))
	}
	one, cookie, half, err := s.sessions.newSession(t.ID, t.Principal().ID, time.Until(until), who.Hint)
	return one, cookie, half, about(who), err
}

// admit returns the token of a person whom the provider has signed in, and the end of the sign-in.
// failure is that of the provider. A person whom no rule admits any more loses earlier sign-ins.
func (s *Service) admit(ctx context.Context, who oauth.Person, failure error) (t policy.Token, until time.Time, err error) {
	if failure != nil && who.Identity != "" {
		if _, err := s.cfg.Tokens.EndSignIns(ctx, who.Identity); err != nil {
			return policy.Token{}, until, err
		}
	}
	if failure != nil {
		return policy.Token{}, until, s.failed(ctx, who, failure)
	}
	until = time.Now().Add(s.cfg.OIDC.LoginTTL)
	t, err = s.cfg.Tokens.SignIn(ctx, policy.Person{Identity: who.Identity, Name: who.Name(), Role: who.Role}, until)
	return t, until, err
}

// about describes a person for the audit log.
func about(who oauth.Person) (list []audit.Attr) {
	if who.Subject != "" {
		list = append(list, attr("subject", who.Subject))
	}
	if who.Email != "" {
		list = append(list, attr("email", who.Email))
	}
	return list
}

// failed logs and records a sign-in that failed, with its cause, and returns err.
func (s *Service) failed(ctx context.Context, who oauth.Person, err error) error {
	if s.failures.Allow() {
		e := capability.AsError(err)
		s.cfg.Logger.Warn("sign-in failed", "reason", e.Reason, "err", e.Message, "cause", cause(e))
		s.record(ctx, audit.LoginFailed, "", err, about(who)...)
	}
	return err
}

// cause returns the cause of an error, for operators.
func cause(e *capability.Error) string {
	if e.Err == nil {
		return ""
	}
	return text.CutBytes(text.Visible(e.Err.Error()), 300)
}

func (s *Service) beginDevice(w http.ResponseWriter, r *http.Request) error {
	l, err := s.login()
	if err != nil {
		return err
	}
	d, err := l.BeginDevice(r.Context())
	if err != nil {
		return s.failed(r.Context(), oauth.Person{}, err)
	}
	w.Header().Set("Cache-Control", "no-store")
	httpapi.WriteJSON(w, http.StatusCreated, d)
	return nil
}

// waitForDevice answers with a token for the command line once the person has signed in, or with
// 202 after about 20 seconds.
func (s *Service) waitForDevice(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		Login string `json:"login"`
	}
	if err := httpapi.Decode(w, r, &req); err != nil {
		return err
	}
	l, err := s.login()
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	who, ok, err := l.FinishDevice(r.Context(), req.Login)
	if err == nil && !ok {
		httpapi.WriteJSON(w, http.StatusAccepted, map[string]bool{"pending": true})
		return nil
	}
	t, until, err := s.admit(r.Context(), who, err)
	if err != nil {
		return err
	}
	made, value, err := s.cfg.Tokens.Credential(r.Context(), t, until)
	if err != nil {
		return err
	}
	p := t.Principal()
	s.record(r.Context(), audit.Login, p.ID, nil, append(about(who), attr("token", made.ID))...)
	httpapi.WriteJSON(w, http.StatusCreated, struct {
		Token     string          `json:"token"`
		Principal string          `json:"principal"`
		Role      capability.Role `json:"role"`
		Expires   time.Time       `json:"expires"`
	}{value.Reveal(), p.ID, p.Role, made.Expires})
	return nil
}

// endLogin ends the sign-in of a program.
func (s *Service) endLogin(w http.ResponseWriter, r *http.Request) error {
	who, err := s.cfg.Tokens.RevokeCredential(r.Context(), httpapi.Bearer(r))
	if err != nil {
		return err
	}
	s.record(r.Context(), audit.SessionEnded, who.ID, nil)
	var end string
	if s.people != nil {
		end = s.people.EndSession(r.Context(), "", ids.Hex("", 8)) // without the token, because terminals show the address
	}
	return answerEnd(w, end)
}

// answerEnd answers a sign-out, with the address that signs out at the provider unless it is "".
func answerEnd(w http.ResponseWriter, address string) error {
	if address == "" {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	w.Header().Set("Cache-Control", "no-store")
	return httpapi.Answer(w, map[string]string{"url": address}, nil)
}

// checkLogin returns the finding about the provider.
func (s *Service) checkLogin(ctx context.Context) []httpapi.Check {
	if s.people == nil {
		return []httpapi.Check{{Name: "sign-in", OK: true, Detail: "people use tokens only: oidc.issuer is empty"}}
	}
	c := httpapi.Check{Name: "sign-in", Detail: s.cfg.OIDC.Issuer + " answers; people come back to " + s.base() + loginPath}
	state := s.people.Check(ctx)
	switch e := capability.AsError(state.Err); {
	case state.Err != nil:
		c.Detail = e.Message + ": " + cause(e)
		c.Remedy = "see that this server reaches the provider, and that oidc.issuer is spelled as in its metadata"
		if e.Reason != oauth.ReasonUnavailable {
			c.Remedy = e.Hint
		}
	case state.Refused != 0:
		c.Detail = fmt.Sprintf("%s refuses sign-ins that come back to %s (status %d)", s.cfg.OIDC.Issuer, s.base()+loginPath, state.Refused)
		c.Remedy = "register this address for the client " + s.cfg.OIDC.ClientID + " there; it is made of public_url"
	case state.EndRefused != 0:
		c.Detail = fmt.Sprintf("%s refuses to come back to %s after a sign-out (status %d)", s.cfg.OIDC.Issuer, s.base()+signedOutPath,
			state.EndRefused)
		c.Remedy = "register this address for the client " + s.cfg.OIDC.ClientID + " there, as one for after a logout"
	case state.Skew.Abs() > oauth.ClockSkewGrace:
		c.Detail = fmt.Sprintf("the clock of %s differs by %s from that of this server, so its tokens are refused", s.cfg.OIDC.Issuer, state.Skew)
		c.Remedy = "set the clock of this machine by NTP"
	case len(s.cfg.OIDC.Roles) == 0:
		c.Detail, c.Remedy = "oidc.roles is empty, so every person is refused", "set oidc.roles, for example to group:ops=operator"
	default:
		if c.OK = true; !state.Devices {
			c.Detail += "; it signs in browsers only, so junctor login does not work"
		}
	}
	return []httpapi.Check{c}
}
