package restserve

import (
	"context"
	"net/http"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/toolnames"
)

// ToolNames decides how tools of MCP servers are named.
type ToolNames interface {
	Get() toolnames.Naming
	Change(ctx context.Context, by capability.Principal, to string, dry bool) (toolnames.Changed, error)
}

// naming handles GET /api/v1/catalog/naming.
func (s *Surface) naming(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	return httpapi.Answer(w, s.ToolNames.Get(), nil)
}

// changeNaming handles POST /api/v1/catalog/naming. With dry_run only the renames are returned.
func (s *Surface) changeNaming(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	var req struct {
		Upstreams string `json:"upstreams"`
		DryRun    bool   `json:"dry_run,omitempty"`
	}
	if err := httpapi.Decode(w, r, &req); err != nil {
		return err
	}
	done, err := s.ToolNames.Change(r.Context(), who, req.Upstreams, req.DryRun)
	return httpapi.Answer(w, done, err)
}
