package routerserve

import (
	"net/http"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// SavedEndpoint is the saved record of one endpoint, for exports. TokenSecret is the name of
// the secret that holds its token; no API returns the token itself.
type SavedEndpoint struct {
	ID               string    `json:"id"`
	BaseURL          string    `json:"baseUrl"`
	Provider         string    `json:"provider"`
	TokenSecret      string    `json:"tokenSecret,omitempty"`
	AllowedModuleIDs []string  `json:"allowedModuleIds,omitempty"`
	TrustPolicy      jsonx.Raw `json:"trustPolicy,omitempty"`
	RequestTimeoutMS int64     `json:"requestTimeoutMs,omitempty"`
	// Damaged states why its restrictions cannot be read, "" when they can.
	Damaged string `json:"damaged,omitempty"`
}

func (s *Surface) saved(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	list, err := s.Saved(r.Context())
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "endpoints.saved", "the saved endpoints cannot be read", err)
	}
	if list == nil {
		list = []SavedEndpoint{}
	}
	return httpapi.Answer(w, map[string]any{"endpoints": list}, nil)
}

func (s *Surface) decisions(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	return httpapi.Answer(w, map[string]any{"decisions": s.Decisions()}, nil)
}
