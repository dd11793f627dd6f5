package agentserve

import (
	"context"
	"net/http"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/signin"
)

// Accounts reads and changes the settings for the choice of programs, reads their results, and
// logs users in.
type Accounts interface {
	Metrics() map[programs.Name]choice.Metrics
	Settings(ctx context.Context) Settings
	ChangeSettings(ctx context.Context, by capability.Principal, c choice.SettingsChange) error
	// SignIn starts a login of an agent type, or of github, and returns its prompt; the login
	// continues afterwards. code is the code that the user got from the page, or "".
	SignIn(ctx context.Context, name, code string) (signin.Prompt, error)
}

// Settings holds the settings for choosing and starting programs. Its JSON names are those of the
// API that agents of elizaOS use.
type Settings struct {
	Strategy        string                          `json:"agentSelectionStrategy"`
	Subscription    string                          `json:"configuredSubscriptionProvider"`
	DefaultType     programs.Name                   `json:"defaultAgentType"`
	Preset          programs.Preset                 `json:"defaultApprovalPreset"`
	Frameworks      []choice.Framework              `json:"frameworks"`
	Credentials     string                          `json:"llmProvider"`
	Models          map[programs.Name]choice.Models `json:"models"`
	PreferredReason string                          `json:"preferredAgentReason"`
	PreferredType   programs.Name                   `json:"preferredAgentType"`
}

type signInRequest struct {
	Code string `json:"code"`
}

func (s *Surface) accountRoutes(mux *http.ServeMux, base string, handle func(method, path string, h httpapi.Handler)) {
	handle("GET", "/metrics", func(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
		return answer(w, http.StatusOK, s.Accounts.Metrics(), nil)
	})
	handle("GET", "/settings", func(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
		return answer(w, http.StatusOK, s.Accounts.Settings(r.Context()), nil)
	})
	handle("PATCH", "/settings", posted(http.StatusOK, nil, func(r *http.Request, who capability.Principal,
		c choice.SettingsChange,
	) (Settings, error) {
		if err := s.Accounts.ChangeSettings(r.Context(), who, c); err != nil {
			return Settings{}, err
		}
		return s.Accounts.Settings(r.Context()), nil
	}))
	// A mux refuses /auth/{agent} beside /{id}/send, because they overlap. So it is selected
	// here among all paths with two segments that have no other route.
	signIn := s.guard(posted(http.StatusOK, nil, func(r *http.Request, _ capability.Principal, in signInRequest) (signin.Prompt, error) {
		return s.Accounts.SignIn(r.Context(), r.PathValue("word"), in.Code)
	}))
	mux.HandleFunc(base+"/{id}/{word}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == "auth" && r.Method == http.MethodPost {
			signIn.ServeHTTP(w, r)
			return
		}
		s.Unrouted(mux, w, r)
	})
}
