package oauthclient

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// client is junctor's client identity at one authorization server.
type client struct {
	ID     string `json:"id"`
	Secret string `json:"secret,omitempty"` // of a client that was registered; the operator's is never kept here
	Method string `json:"method,omitempty"` // how it shows itself: none, client_secret_basic, client_secret_post
}

// identity states who we are for the server without asking it: what the operator was
// given, else our metadata document where it takes one. false: we have to register.
func (s *Source) identity(at *servers) (client, bool) {
	switch {
	case s.cfg.ClientID != "":
		c := client{ID: s.cfg.ClientID, Method: "none"}
		if s.cfg.ClientSecret != nil {
			c.Method = method(at.TokenEndpointAuthMethodsSupported, "client_secret_basic", "client_secret_post")
		}
		return c, true
	case s.cfg.Metadata != "" && at.ClientIDMetadataDocumentSupported:
		return client{ID: s.cfg.Metadata, Method: "none"}, true
	}
	return client{}, false
}

// method is the first of ours that the server takes, else the first.
func method(theirs []string, ours ...string) string {
	for _, m := range ours {
		if slices.Contains(theirs, m) {
			return m
		}
	}
	return ours[0]
}

// register registers junctor as a client at the server (RFC 7591).
func (s *Source) register(ctx context.Context, at *servers, redirect string) (client, error) {
	if at.RegistrationEndpoint == "" {
		return client{}, s.refused("the authorization server %.200s registers no clients by itself: %s needs a client id", at.Issuer, s.cfg.Name)
	}
	ask := oauthex.ClientRegistrationMetadata{
		ClientName: "junctor", RedirectURIs: []string{redirect}, ApplicationType: "native",
		GrantTypes: []string{AuthorizationCode, "refresh_token"}, ResponseTypes: []string{"code"},
		TokenEndpointAuthMethod: "client_secret_basic", // what no list stands for
	}
	if list := at.TokenEndpointAuthMethodsSupported; len(list) > 0 {
		ask.TokenEndpointAuthMethod = method(list, "none", "client_secret_basic", "client_secret_post")
	}
	body, err := jsonx.Marshal(ask)
	if err != nil {
		return client{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.RegistrationEndpoint, bytes.NewReader(body))
	if err != nil {
		return client{}, s.refused("the registration endpoint of %.200s cannot be read", at.Issuer)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := s.http.Do(req)
	if err != nil {
		return client{}, s.unreachable(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	if err != nil {
		return client{}, s.unreachable(err)
	}
	if resp.StatusCode >= 500 {
		return client{}, s.silent("the authorization server %.200s answered HTTP %d to a registration", at.Issuer, resp.StatusCode)
	}
	var got struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
		Method string `json:"token_endpoint_auth_method"`
	}
	if resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusOK || jsonx.Unmarshal(answer, &got) != nil || got.ID == "" ||
		len(got.ID) > maxAddress || len(got.Secret) > maxSecret {
		return client{}, s.refused("the authorization server %.200s did not register us as a client (HTTP %d)", at.Issuer, resp.StatusCode)
	}
	c := client{ID: got.ID, Secret: got.Secret, Method: got.Method}
	switch {
	case c.Secret == "":
		c.Method = "none"
	case c.Method != "client_secret_basic" && c.Method != "client_secret_post":
		c.Method = "client_secret_basic"
		if ask.TokenEndpointAuthMethod == "client_secret_post" {
			c.Method = ask.TokenEndpointAuthMethod
		}
	}
	return c, nil
}

// ask asks the token endpoint. What comes back is kept; scopes is what was asked for.
func (s *Source) ask(ctx context.Context, at *servers, c client, scopes []string, params url.Values) error {
	// A code or a refresh token that was sent cannot be taken back: the caller may go, the
	// answer counts.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tokenTimeout)
	defer cancel()
	ctx = context.WithValue(ctx, oauth2.HTTPClient, s.http)
	pass := c.Secret
	if c.ID == s.cfg.ClientID && s.cfg.ClientSecret != nil {
		value, err := s.cfg.ClientSecret()
		if err != nil {
			return err
		}
		pass = value.Reveal()
	}
	style := oauth2.AuthStyleInParams
	if c.Method == "client_secret_basic" {
		style = oauth2.AuthStyleInHeader
	}
	params.Set("resource", at.audience)
	cfg := clientcredentials.Config{ClientID: c.ID, ClientSecret: pass, TokenURL: at.TokenEndpoint, EndpointParams: params, AuthStyle: style}
	// elsewhere it was said before, and means the same
	if grant := params.Get("grant_type"); grant == ClientCredentials || grant == exchangeGrant {
		cfg.Scopes = scopes
	}
	t, err := cfg.Token(ctx)
	if err != nil {
		return s.noToken(at, err)
	}
	if kind, said := t.Extra("issued_token_type").(string); said && kind != tokenTypes+"access_token" && kind != tokenTypes+"jwt" {
		return s.refused("the authorization server %.200s gave something else than an access token", at.Issuer)
	}
	if !strings.EqualFold(t.Type(), "bearer") || len(t.AccessToken) > maxSecret || !printable(t.AccessToken) ||
		len(t.RefreshToken) > maxSecret {
		return s.refused("the authorization server %.200s gave a token that cannot be used", at.Issuer)
	}
	k := &kept{Issuer: at.Issuer, Client: c, Access: t.AccessToken, Refresh: t.RefreshToken, Expires: t.Expiry.UTC(), Scopes: scopes}
	if k.Refresh == "" && params.Get("grant_type") == "refresh_token" {
		k.Refresh = params.Get("refresh_token") // it was not rotated
	}
	s.cfg.Logger.Info("an access token for an upstream was obtained", "upstream", s.cfg.Name, "issuer", at.Issuer, "grant",
		params.Get("grant_type"))
	return s.save(k)
}

// noToken returns the error for an answer without a token. It omits the answer's text, which
// may repeat secrets of the request.
func (s *Source) noToken(at *servers, err error) error {
	answer, ok := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case !ok:
		if network, ok := errors.AsType[*url.Error](err); ok {
			return s.unreachable(network)
		}
		return s.refused("the authorization server %.200s answered with something that is not a token", at.Issuer)
	case answer.Response != nil && answer.Response.StatusCode >= 500, answer.Response != nil &&
		answer.Response.StatusCode == http.StatusTooManyRequests:
		return s.silent("the authorization server %.200s gives no tokens for now (HTTP %d)", at.Issuer, answer.Response.StatusCode)
	}
	code := "an error without a name"
	if known := []string{
		"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope", "invalid_target",
		"access_denied",
	}; slices.Contains(known, answer.ErrorCode) {
		code = answer.ErrorCode
	}
	return s.refused("the authorization server %.200s refused a token for %s: %s", at.Issuer, s.cfg.Name, code)
}

// The words of RFC 8693.
const (
	exchangeGrant = "urn:ietf:params:oauth:grant-type:token-exchange"
	tokenTypes    = "urn:ietf:params:oauth:token-type:"
)

// subjectTypes are the kinds of tokens that can be exchanged.
func subjectTypes() []string {
	return []string{"access_token", "id_token", "jwt", "refresh_token", "saml1", "saml2"}
}

// exchange are the parameters that have the operator's token exchanged for one for the
// upstream (RFC 8693).
func (s *Source) exchange() (url.Values, error) {
	subject, err := s.cfg.Subject()
	if err != nil {
		return nil, err
	}
	return url.Values{
		"grant_type": {exchangeGrant}, "subject_token": {subject.Reveal()},
		"subject_token_type":   {tokenTypes + cmp.Or(s.cfg.SubjectType, "access_token")},
		"requested_token_type": {tokenTypes + "access_token"},
	}, nil
}

func (s *Source) refresh(ctx context.Context, at *servers) error {
	return s.ask(ctx, at, s.kept.Client, s.kept.Scopes, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {s.kept.Refresh}})
}

// scopes are what is asked for: the operator's word, else the upstream's, else what its
// metadata proposes.
func (s *Source) scopes(at *servers, ch *challenge) []string {
	switch {
	case len(s.cfg.Scopes) > 0:
		return s.cfg.Scopes
	case ch != nil && len(ch.scopes) > 0:
		return ch.scopes
	}
	return at.scopes
}

func printable(token string) bool {
	return token != "" && !strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c >= 0x7f })
}

// stepUp counts requests for more scopes; it returns false once the limit is reached.
func (s *Source) stepUp() bool {
	now := s.cfg.Now()
	s.stepUps = slices.DeleteFunc(s.stepUps, func(at time.Time) bool { return now.Sub(at) > stepUpInterval })
	if len(s.stepUps) >= maxStepUps {
		return false
	}
	s.stepUps = append(s.stepUps, now)
	return true
}
