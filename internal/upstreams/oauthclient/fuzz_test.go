package oauthclient_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/upstreams/oauthclient"
	"github.com/junctor-run/junctor/secret"
)

// stranger is an upstream and its authorization server, whose documents are a fuzzer's.
type stranger struct {
	t                               *testing.T
	resource, server, client, token string
	asked                           int
	shown                           []string // tokens that the upstream was shown
}

func (s *stranger) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.asked++; s.asked > 40 {
		s.t.Fatalf("it never ends; got s.asked = %v; want s.asked at most 40", s.asked)
	}
	if req.URL.Scheme != "https" || req.URL.User != nil {
		s.t.Errorf(`asks %s; want req.URL.Scheme = "https", req.URL.User = nil`, req.URL)
	}
	status, body := http.StatusOK, ""
	switch {
	case req.URL.Host == "up.example" && req.URL.Path == "/mcp":
		if status = http.StatusUnauthorized; req.Header.Get("Authorization") != "" {
			status = http.StatusOK
			s.shown = append(s.shown, req.Header.Get("Authorization"))
		}
	case strings.Contains(req.URL.Path, "oauth-protected-resource"):
		body = s.resource
	case strings.Contains(req.URL.Path, "/.well-known/"):
		body = s.server
	default:
		data, err := io.ReadAll(req.Body)
		if err != nil {
			s.t.Error(err)
		}
		body = s.token
		if strings.HasPrefix(string(data), "{") {
			status, body = http.StatusCreated, s.client
		}
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: req,
	}, nil
}

// FuzzDocuments: whatever an upstream and its authorization server write, nothing
// breaks, no request goes over an open line, and a token that is used can be sent.
func FuzzDocuments(f *testing.F) {
	f.Add(`{"resource":"https://up.example/mcp","authorization_servers":["https://as.example"],"scopes_supported":["a"]}`,
		`{"issuer":"https://as.example","token_endpoint":"https://as.example/token","authorization_endpoint":"https://as.example/authorize","registration_endpoint":"https://as.example/register","response_types_supported":["code"]}`,
		`{"client_id":"c","client_secret":"s","token_endpoint_auth_method":"client_secret_basic"}`,
		`{"access_token":"t","token_type":"Bearer","expires_in":60}`)
	f.Add(`{"resource":"https://up.example","authorization_servers":["https://as.example/x?y#z"]}`, `{"issuer":"http://as.example"}`, `[]`,
		`{"access_token":"a b\n","token_type":"bearer","expires_in":-1e99}`)
	f.Add(`{}`, `{"issuer":"https://up.example","token_endpoint":"//x"}`, `{"client_id":7}`, `access_token=t&token_type=bearer`)
	f.Fuzz(func(t *testing.T, resource, server, client, token string) {
		for _, grant := range []string{oauthclient.ClientCredentials, oauthclient.AuthorizationCode} {
			s := &stranger{t: t, resource: resource, server: server, client: client, token: token}
			cfg := oauthclient.Config{Name: "up", Resource: "https://up.example/mcp", HTTP: &http.Client{Transport: s}, Grant: grant}
			if grant == oauthclient.ClientCredentials {
				cfg.ClientID, cfg.ClientSecret = "me", func() (secret.Value, error) { return secret.New(pass), nil }
			}
			source, err := oauthclient.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if grant == oauthclient.AuthorizationCode { // registers, and sends a person somewhere
				if address, err := source.Begin(t.Context(), "https://us.example/back"); err == nil {
					if u, err := url.Parse(address); err != nil || u.Scheme != "https" || u.User != nil {
						t.Errorf(`somebody is sent to %q; want no error, u.Scheme = "https", u.User = nil`, address)
					}
				}
				continue
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, cfg.Resource, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := source.Transport(s).RoundTrip(req)
			if err == nil {
				resp.Body.Close()
			} else if capability.CodeOf(err) == "" || strings.Contains(err.Error(), pass) {
				t.Errorf(`%v; want capability.CodeOf(err) other than "", err.Error() without %v`, err, pass)
			}
			for _, one := range s.shown {
				if strings.ContainsFunc(strings.TrimPrefix(one, "Bearer "), func(c rune) bool { return c <= ' ' || c > '~' }) {
					t.Errorf("shown %q", one)
				}
			}
		}
	})
}
