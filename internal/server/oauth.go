package server

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/oauth"
)

// openOAuth enables access tokens of an authorization server if one is configured.
func (s *Server) openOAuth() (err error) {
	if s.cfg.OAuth.Issuer == "" {
		return nil
	}
	cfg := oauth.Config{
		Issuer: s.cfg.OAuth.Issuer, Resource: cmp.Or(s.cfg.OAuth.Resource, s.resource()), KeysURL: s.cfg.OAuth.KeysURL,
		Algorithms: s.cfg.OAuth.Algorithms, Role: capability.Role(s.cfg.OAuth.Role), View: s.cfg.OAuth.View,
	}
	for _, scope := range s.cfg.OAuth.Scopes {
		name, effect, _ := strings.Cut(scope, "=")
		cfg.Scopes = append(cfg.Scopes, oauth.Scope{Name: name, Effect: capability.Effect(effect)})
	}
	if s.oauth, err = oauth.New(cfg); err != nil {
		return capability.Errorf(capability.CodeInvalidInput, "oauth", "%w", err).With("invalid_settings", "correct oauth in config.yaml")
	}
	s.door.UseOAuth(s.oauth, s.cfg.PublicURL)
	return nil
}

// resource returns the address that access tokens must have as their audience.
func (s *Server) resource() string {
	return strings.TrimRight(cmp.Or(s.cfg.PublicURL, s.Address()), "/") + "/mcp"
}

// resourceMetadata adds the routes of the RFC 9728 documents. Without an authorization server they
// only state that tokens are sent in the header.
func (s *Server) resourceMetadata(mux *http.ServeMux) {
	doc := map[string]any{"resource": s.resource(), "resource_name": "junctor", "bearer_methods_supported": []string{"header"}}
	if s.oauth != nil {
		doc = s.oauth.Metadata()
	}
	serve := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=300")
		w.Header().Set("Access-Control-Allow-Origin", "*") // clients in browsers read the document before they have a token
		httpapi.WriteJSON(w, http.StatusOK, doc)
	}
	mux.HandleFunc("GET "+httpapi.ResourceMetadata, serve)
	mux.HandleFunc("GET "+httpapi.ResourceMetadata+"/mcp", serve)
	mux.HandleFunc("GET "+httpapi.ResourceMetadata+"/mcp/{view}", serve)
}
