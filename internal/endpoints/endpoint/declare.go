package endpoint

import (
	"cmp"
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/managed"
)

// declared is an endpoint as a file declares it. TrustPolicy is that of a connect.
type declared struct {
	URL            string    `json:"url"`
	Provider       string    `json:"provider"`
	TokenSecret    string    `json:"token_secret"` // the name of a secret
	AllowedModules jsonx.Raw `json:"allowed_modules"`
	TrustPolicy    jsonx.Raw `json:"trust_policy"`
	TimeoutMS      int64     `json:"timeout_ms"` // of one call; 0: the server's
	KeepMissing    bool      `json:"keep_missing"`
}

var secretName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,120}$`)

// declaration returns the request to connect the endpoint that a file declares, and the record that
// it would be saved with.
func (r *Registry) declaration(mark managed.Mark, id string, spec []byte) (req Request, s Saved, err error) {
	bad := func(cause error, format string, args ...any) (Request, Saved, error) {
		e := capability.Errorf(capability.CodeInvalidInput, "endpoints.declare", format, args...).With("invalid_endpoint",
			"see the section about files in docs/endpoints.md")
		e.Err = cause
		return req, s, e
	}
	var in declared
	if err := jsonx.UnmarshalStrict(spec, &in); err != nil {
		return bad(err, "%s", err)
	}
	switch {
	case in.URL == "":
		return bad(nil, "an endpoint needs a url")
	case in.TokenSecret != "" && !secretName.MatchString(in.TokenSecret):
		return bad(nil, "token_secret is not a name of a secret")
	case in.TimeoutMS < 0 || in.TimeoutMS > time.Hour.Milliseconds():
		return bad(nil, "timeout_ms must be from 0 to %d", time.Hour.Milliseconds())
	}
	req = Request{
		ID: id, BaseURL: in.URL, Provider: in.Provider, Timeout: time.Duration(in.TimeoutMS) * time.Millisecond, Persist: true,
		KeepMissing: in.KeepMissing, managed: &mark, tokenSecret: in.TokenSecret,
	}
	if in.AllowedModules != nil {
		if req.AllowedModules, err = ParseNames("allowed_modules", in.AllowedModules); err != nil {
			return req, s, err
		}
	}
	if in.TrustPolicy != nil {
		var unknown []string
		if req.TrustPolicy, unknown, err = ParseTrustPolicy(in.TrustPolicy); err != nil {
			return req, s, err
		} else if len(unknown) > 0 { // it could be a restriction
			return bad(nil, "trust_policy: %s", strings.TrimPrefix(unknown[0], "ignored: "))
		}
	}
	if err := r.normalise(&req); err != nil {
		return bad(err, "%s", capability.AsError(err).Message)
	}
	ep, err := r.newEndpoint(req)
	if err == nil {
		s, err = ep.savedAs(req)
	}
	return req, s, err
}

// mayReplace returns an error if an endpoint that a file declares would replace one that a user
// connected, or the other way round.
func mayReplace(ep *Endpoint, replaced func(*Endpoint) (old, moved *Endpoint)) error {
	const op = "endpoints.connect"
	old, moved := replaced(ep)
	for _, other := range []*Endpoint{old, moved} {
		switch {
		case other == nil:
		case ep.managed == nil:
			if err := other.managed.Refuse(op, "the endpoint "+other.id); err != nil {
				return err
			}
		case other.managed == nil:
			return managed.UserOwned(op, "the endpoint "+other.id+" at "+other.baseURL)
		case other == moved:
			return capability.Errorf(capability.CodeConflict, op, "the endpoint %s has the URL %s already", other.id, other.baseURL).
				With(managed.Reason, "declare it once")
		}
	}
	return nil
}

// Declared returns the endpoints that files of a gateway declare, with the files by ids.
func (r *Registry) Declared(gateway string) map[string]string {
	out := make(map[string]string)
	for _, ep := range r.all() {
		if ep.managed.OwnedBy(gateway) {
			out[ep.id] = ep.managed.File
		}
	}
	return out
}

// Compare checks a declaration, and compares it with the endpoint of its id. Errors: invalid_input;
// conflict (managed_by_file) if a user connected that endpoint, or another one at the same URL.
func (r *Registry) Compare(mark managed.Mark, id string, spec []byte) (managed.Difference, error) {
	req, want, err := r.declaration(mark, id, spec)
	if err != nil {
		return managed.Difference{}, err
	}
	ep, err := r.newEndpoint(req)
	if err != nil {
		return managed.Difference{}, err
	}
	leaving := func(ep *Endpoint) (old, moved *Endpoint) { // another declared endpoint may be withdrawn first
		old, moved = r.replaced(ep)
		if moved != nil && moved.managed != nil {
			moved = nil
		}
		return old, moved
	}
	if err := mayReplace(ep, leaving); err != nil {
		return managed.Difference{}, err
	}
	r.changing.Lock()
	var have Saved
	old, ok := r.get(id)
	if ok {
		have = old.record
	}
	r.changing.Unlock()
	if !ok {
		return managed.Difference{}, nil
	}
	have.Connected, have.Seen = time.Time{}, nil
	d, err := managed.Compare(have, want, old.managed, want.Managed)
	if want.TokenName != "" && err == nil { // a user may have stored another value
		if value, gone := r.cfg.Secrets.Get(want.TokenName); gone == nil && !old.token.Equal(value.Reveal()) {
			d.Members = append(d.Members, "token")
		}
	}
	if a := old.availability(); a.State != capability.StateReady {
		d.Away = cmp.Or(a.Reason, string(a.State))
	}
	return d, err
}

// Declare connects the endpoint that a file declares, or changes it. Unlike [Registry.Connect], it
// saves an endpoint that does not answer, which is then tried again like one that was lost. Errors:
// those of Compare and of Connect.
func (r *Registry) Declare(ctx context.Context, by capability.Principal, mark managed.Mark, id string, spec []byte) error {
	difference, err := r.Compare(mark, id, spec)
	if err != nil || difference.Exists && len(difference.Members) == 0 {
		return err
	}
	req, _, err := r.declaration(mark, id, spec)
	if err != nil {
		return err
	}
	req.By = by
	if req.tokenSecret != "" {
		if req.Token, err = r.cfg.Secrets.Get(req.tokenSecret); err != nil || req.Token.Empty() {
			return r.saveUnreached(ctx, req, capability.Errorf(capability.CodeUnavailable, "endpoints.declare",
				"endpoint %s cannot be asked: %s", id, noToken(req.tokenSecret)).With(reasonToken, "junctor secrets set "+req.tokenSecret))
		}
	}
	_, _, err = r.Connect(ctx, req)
	return err
}

// saveUnreached saves an endpoint that a file declares and that did not answer, watches it, and
// returns cause, unless saving fails.
func (r *Registry) saveUnreached(ctx context.Context, req Request, cause error) error {
	ctx = context.WithoutCancel(ctx) // cause may be its end
	gone, err := r.putUnreached(ctx, req, cause)
	if err != nil {
		return err
	}
	if gone != nil && gone.baseURL != req.BaseURL {
		r.disposeElsewhere(ctx, gone)
	}
	return cause
}

// putUnreached does what saveUnreached does under the lock, and returns the endpoint that it replaced.
func (r *Registry) putUnreached(ctx context.Context, req Request, cause error) (old *Endpoint, err error) {
	r.changing.Lock()
	defer r.changing.Unlock()
	publish, err := r.running()
	if err != nil {
		return nil, err
	}
	ep, err := r.newEndpoint(req)
	if err != nil {
		return nil, err
	}
	if err := mayReplace(ep, r.replaced); err != nil {
		return nil, err
	}
	s, err := ep.savedAs(req)
	if err != nil {
		return nil, err
	}
	s.Connected = r.cfg.Now().UTC()
	if r.cfg.Store != nil {
		if err := r.cfg.Store.SaveEndpoint(ctx, s); err != nil {
			return nil, err
		}
	}
	old, _ = r.get(ep.id)
	if next, ok := r.restoreOne(s); ok {
		r.take(next, old, publish, req.By, capability.AsError(cause).Message)
	}
	return old, nil
}

// Withdraw disconnects an endpoint that a file of a gateway declared. Others stay.
func (r *Registry) Withdraw(ctx context.Context, by capability.Principal, gateway, id string) error {
	err := r.disconnect(ctx, by, id, func(ep *Endpoint) error {
		if !ep.managed.OwnedBy(gateway) {
			return noEndpoint(id)
		}
		return nil
	})
	if capability.CodeOf(err) == capability.CodeNotFound {
		return nil
	}
	return err
}
