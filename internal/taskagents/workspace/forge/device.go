package forge

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/secret"
)

// DeviceFlow logs a user in with the device authorization grant (RFC 8628): the user opens a
// page in a browser and enters a code.
type DeviceFlow struct {
	// Base is the URL below which /login/device/code and /login/oauth/access_token are; ""
	// means https://github.com.
	Base string
	// ClientID identifies the operator's OAuth application.
	ClientID string
	// Scopes are requested; nil means repo.
	Scopes []string
	// Client sends the requests; nil means one with a timeout of 30 s.
	Client *http.Client
}

// Prompt is the instruction for the user.
type Prompt struct {
	URL, Code string
	Expires   time.Time
}

// Login requests a code, passes it to show, and waits at most 300 s until the user has entered
// it. It returns the token. Errors: unavailable, reason no_client_id or forge_unreachable;
// denied, reason access_denied, if the user refused; timeout, reason login_expired; denied,
// reason missing_scope, if fewer scopes were granted than requested; failed, reason
// forge_refused.
func (d DeviceFlow) Login(ctx context.Context, show func(Prompt)) (secret.Value, error) {
	if d.ClientID == "" {
		return secret.Value{}, capability.Errorf(capability.CodeUnavailable, "forge.login", "logging in needs an OAuth application").
			With("no_client_id", "set GITHUB_OAUTH_CLIENT_ID, or give a token")
	}
	if d.Base == "" {
		d.Base = "https://github.com"
	}
	if d.Client == nil {
		d.Client = &http.Client{Timeout: 30 * time.Second}
	}
	if d.Scopes == nil {
		d.Scopes = []string{"repo"}
	}
	start, err := d.post(ctx, "/login/device/code", url.Values{"client_id": {d.ClientID}, "scope": {strings.Join(d.Scopes, " ")}})
	if err != nil {
		return secret.Value{}, err
	}
	if start.Error != "" {
		return secret.Value{}, refused(start.Error)
	}
	if err := start.check(); err != nil {
		return secret.Value{}, err
	}
	wait := deviceTimeout
	if own := time.Duration(start.ExpiresIn) * time.Second; own > 0 && own < wait {
		wait = own
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	show(Prompt{URL: start.VerificationURI, Code: start.UserCode, Expires: time.Now().Add(wait)})
	token, err := d.poll(ctx, start)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return secret.Value{}, expired()
	}
	return token, err
}

func expired() error {
	return capability.Errorf(capability.CodeTimeout, "forge.login", "the code was not entered in time").With("login_expired",
		"start again for a new code")
}

// poll requests the token at the interval of the server until the user has answered or ctx
// ends.
func (d DeviceFlow) poll(ctx context.Context, start deviceAnswer) (secret.Value, error) {
	pause := start.pause(defaultPollInterval)
	form := url.Values{
		"client_id": {d.ClientID}, "device_code": {start.DeviceCode},
		"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"},
	}
	for {
		select {
		case <-ctx.Done():
			return secret.Value{}, capability.AsError(ctx.Err())
		case <-time.After(pause):
		}
		a, err := d.post(ctx, "/login/oauth/access_token", form)
		switch {
		case err != nil && ctx.Err() == nil && capability.CodeOf(err) == capability.CodeUnavailable:
			pause += defaultPollInterval // RFC 8628 §3.5: back off if the connection fails
		case err != nil:
			return secret.Value{}, err
		case a.Error == "authorization_pending":
		case a.Error == "slow_down":
			pause = max(pause+defaultPollInterval, a.pause(0))
		case a.Error == "access_denied":
			return secret.Value{}, capability.Errorf(capability.CodeDenied, "forge.login", "the login was refused").With("access_denied",
				"start again and allow it")
		case a.Error == "expired_token":
			return secret.Value{}, expired()
		case a.Error != "":
			return secret.Value{}, refused(a.Error)
		case a.AccessToken == "" || len(a.AccessToken) > 4096 || strings.ContainsFunc(a.AccessToken,
			func(r rune) bool { return r <= ' ' || r > '~' }):
			return secret.Value{}, refused("no token")
		default:
			return secret.New(a.AccessToken), d.granted(a.Scope)
		}
	}
}

// granted fails if scope lacks a requested scope. An empty scope means that all requested ones
// were granted (RFC 6749).
func (d DeviceFlow) granted(scope string) error {
	if scope == "" {
		return nil
	}
	have := strings.FieldsFunc(scope, func(r rune) bool { return r == ' ' || r == ',' })
	for _, want := range d.Scopes {
		found := false
		for _, h := range have {
			found = found || h == want
		}
		if !found {
			return capability.Errorf(capability.CodeDenied, "forge.login", "the login does not include the scope %s", want).With("missing_scope",
				"log in again and allow it")
		}
	}
	return nil
}

// deviceAnswer holds the members of both answers of the server and of its errors.
type deviceAnswer struct {
	DeviceCode      string `json:"device_code"`
	UserCode        string `json:"user_code"`
	VerificationURI string `json:"verification_uri"`
	ExpiresIn       int64  `json:"expires_in"`
	Interval        int64  `json:"interval"`
	AccessToken     string `json:"access_token"`
	Scope           string `json:"scope"`
	Error           string `json:"error"`
}

func (a deviceAnswer) pause(otherwise time.Duration) time.Duration {
	if a.Interval < 1 || a.Interval > int64(deviceTimeout/time.Second) {
		return otherwise
	}
	return time.Duration(a.Interval) * time.Second
}

// check validates the code and the address that the user will be shown.
func (a deviceAnswer) check() error {
	u, err := url.Parse(a.VerificationURI)
	plain := func(s string, most int) bool {
		return s != "" && len(s) <= most && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
	}
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || !plain(a.VerificationURI, maxURL) ||
		!plain(a.UserCode, 64) || !plain(a.DeviceCode, 1024) {
		return refused("an answer without a code, or with a strange one")
	}
	return nil
}

func refused(what string) error {
	if len(what) > 100 {
		what = what[:100]
	}
	return capability.Errorf(capability.CodeFailed, "forge.login", "the forge did not log anybody in: %s", strings.ToValidUTF8(what, "")).
		With("forge_refused", "check the client id, and that its application allows the device flow")
}

// post sends a form and parses the answer. An error in the answer is not an error of post.
func (d DeviceFlow) post(ctx context.Context, path string, form url.Values) (deviceAnswer, error) {
	var a deviceAnswer
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(d.Base, "/")+path, strings.NewReader(form.Encode()))
	if err != nil {
		return a, refused("its address is not a URL")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	res, err := d.Client.Do(req)
	if err != nil {
		return a, capability.Wrap(capability.CodeUnavailable, "forge.login", "the forge cannot be reached", err).With("forge_unreachable", "")
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil || res.StatusCode >= 500 || res.StatusCode == http.StatusTooManyRequests {
		return a, capability.Wrap(capability.CodeUnavailable, "forge.login", "the forge does not answer properly", err).With("forge_unreachable",
			"")
	}
	if err := jsonx.Unmarshal(body, &a); err != nil || res.StatusCode >= 300 && a.Error == "" {
		return a, refused("an answer that cannot be read, status " + res.Status)
	}
	return a, nil
}
