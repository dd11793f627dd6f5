// Package restserve implements /api/v1, the API of the command line. It decodes requests
// into invocations and management operations and encodes their results; policy decides
// who may call them.
package restserve

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/publish"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// Secrets is the store of named secrets. Values cannot be read through it.
type Secrets interface {
	Set(name string, value secret.Value) error
	Link(name, to string) error
	List() ([]secretstore.Info, error)
	Remove(name string) error
}

// Event is one event of the live feed.
type Event struct {
	ID   uint64          `json:"id"`
	Type string          `json:"type"`
	At   time.Time       `json:"at"`
	Data json.RawMessage `json:"data,omitempty"`
}

// Status is the body of GET /api/v1/status. The members are in the order of their names,
// which is the order on the wire.
type Status struct {
	Audit     AuditStatus          `json:"audit"`
	Catalog   CatalogStatus        `json:"catalog"`
	Go        string               `json:"go"`
	Principal capability.Principal `json:"principal"` // the caller
	Started   string               `json:"started"`
	URL       string               `json:"url"`
	Version   string               `json:"version"`
}

// AuditStatus is the state of the audit log.
type AuditStatus struct {
	Broken  bool   `json:"broken"`
	Lost    uint64 `json:"lost"`
	Seq     uint64 `json:"seq"`
	Waiting int    `json:"waiting"`
}

// CatalogStatus describes the snapshot of the catalog.
type CatalogStatus struct {
	Entries    int    `json:"entries"`
	Etag       string `json:"etag"`
	Generation uint64 `json:"generation"`
	Modules    int    `json:"modules"`
}

// Config holds the dependencies of a Surface. All are required.
type Config struct {
	Door    *httpapi.Door
	Engine  *invoke.Engine
	Catalog *catalog.Catalog
	Policy  *policy.Policy
	Log     *audit.Log
	Secrets Secrets
	// Permissions returns the canonical spellings of permissions of extensions. An unknown
	// name is invalid_input.
	Permissions func(names []string) ([]string, error)
	// Events yields the events after the id, then new ones until ctx ends.
	Events func(ctx context.Context, after uint64) iter.Seq[Event]
	Doctor func(ctx context.Context) []httpapi.Check
	// Stopping is closed when the server begins to stop, which ends streams of the
	// log and feeds. Running calls may continue.
	Stopping <-chan struct{}
	Status   func() Status
	// MaxInput is the largest body of an invocation in bytes.
	MaxInput int64
	// AssetURL returns the URL of a module's asset for a browser, or "".
	AssetURL func(endpoint, module, path string) string
	// Trust returns the decision that admitted a module of an endpoint, or nil.
	Trust func(endpoint, module string) *router.TrustDecision
	// Explanation returns the record of a selection by its id.
	Explanation func(id string) (*arbitration.Explanation, bool)
	// Feed holds the catalog's last changes, Telemetry its last events of a name ("" for all).
	Feed      *publish.Feed
	Contexts  *publish.Contexts
	Telemetry func(name string) []publish.Telemetry
	// PolicyFiles edits the policy folder. Listed yields the names of the tools that tools/list
	// shows a principal, with the entries behind each.
	PolicyFiles PolicyFiles
	ToolNames   ToolNames
	Listed      func(who capability.Principal) iter.Seq2[string, []*catalog.Entry]
}

// Surface serves /api/v1.
type Surface struct {
	Config

	order toolOrder
}

// New returns the surface.
func New(cfg Config) *Surface { return &Surface{Config: cfg} }

// Routes adds every path of /api/v1 to mux.
func (s *Surface) Routes(mux *http.ServeMux) {
	any := s.Door.Guard
	operator := func(h httpapi.Handler) http.Handler {
		return s.Door.Guard(h, capability.RoleAdmin, capability.RoleOperator)
	}
	admin := func(h httpapi.Handler) http.Handler { return s.Door.Guard(h, capability.RoleAdmin) }

	mux.Handle("POST /api/v1/invocations", any(s.invoke))
	mux.Handle("DELETE /api/v1/invocations/{id}", operator(s.cancel))
	mux.Handle("GET /api/v1/catalog/agent", any(s.agentCatalog))
	mux.Handle("POST /api/v1/catalog/agent", any(s.agentCatalog))
	mux.Handle("GET /api/v1/catalog/agent/changes", any(s.agentChanges))
	mux.Handle("GET /api/v1/catalog/internal", operator(s.internalCatalog))
	mux.Handle("GET /api/v1/catalog/explain", any(s.explain))
	mux.Handle("POST /api/v1/catalog/select", any(s.selectOne))
	mux.Handle("GET /api/v1/catalog/explanations/{id}", operator(s.explanation))
	mux.Handle("GET /api/v1/catalog/changes", operator(s.changes))
	mux.Handle("GET /api/v1/catalog/telemetry", operator(s.telemetry))
	mux.Handle("GET /api/v1/catalog/conflicts", operator(s.conflicts))
	mux.Handle("GET /api/v1/catalog/slots", operator(s.slots))
	mux.Handle("GET /api/v1/catalog/backends", operator(s.backends))
	mux.Handle("GET /api/v1/catalog/actions", operator(s.actions))
	mux.Handle("GET /api/v1/catalog/lint", operator(s.lint))
	mux.Handle("GET /api/v1/modules", operator(s.modules))
	mux.Handle("GET /api/v1/modules/{id}", operator(s.module))
	s.listingRoutes(mux)

	mux.Handle("GET /api/v1/tokens", admin(s.tokens))
	mux.Handle("POST /api/v1/tokens", admin(s.createToken))
	mux.Handle("DELETE /api/v1/tokens/{id}", admin(s.revokeToken))
	s.approvalRoutes(mux, operator)
	mux.Handle("GET /api/v1/grants", operator(s.grants))
	mux.Handle("POST /api/v1/grants", operator(s.createGrant))
	mux.Handle("DELETE /api/v1/grants/{id}", operator(s.revokeGrant))
	mux.Handle("GET /api/v1/policy", operator(s.policyRules))
	mux.Handle("POST /api/v1/policy/check", operator(s.checkPolicy))
	mux.Handle("POST /api/v1/policy/test", operator(s.testPolicy))
	mux.Handle("POST /api/v1/policy/changes", admin(s.changePolicy))
	mux.Handle("GET /api/v1/tools", operator(s.tools))
	mux.Handle("GET /api/v1/catalog/naming", operator(s.naming))
	mux.Handle("POST /api/v1/catalog/naming", admin(s.changeNaming))
	mux.Handle("GET /api/v1/secrets", admin(s.secrets))
	mux.Handle("PUT /api/v1/secrets/{name}", admin(s.setSecret))
	mux.Handle("PUT /api/v1/secrets/{name}/link", admin(s.linkSecret))
	mux.Handle("DELETE /api/v1/secrets/{name}", admin(s.removeSecret))

	mux.Handle("GET /api/v1/audit", operator(s.auditQuery))
	mux.Handle("GET /api/v1/usage", operator(s.usage))
	mux.Handle("GET /api/v1/audit/verify", operator(s.auditVerify))
	mux.Handle("GET /api/v1/audit/arguments/{run}", operator(s.arguments))
	mux.Handle("DELETE /api/v1/audit/arguments/{run}", admin(s.removeArguments))
	mux.Handle("GET /api/v1/audit/tail", operator(s.auditTail))
	mux.Handle("GET /api/v1/events", operator(s.events))
	mux.Handle("POST /api/v1/events/publish", operator(s.publishEvent))
	mux.Handle("GET /api/v1/status", any(s.status))
	mux.Handle("GET /api/v1/doctor", operator(s.doctor))
	mux.Handle("/api/v1/", any(func(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
		Unrouted(mux, w, r)
		return nil
	}))
}

// Unrouted answers a request that matches no route of mux: 405 with the allowed methods
// of the path, or 404. It serves a catch-all pattern that ends in a slash, which prevents
// http.ServeMux's own 405.
func Unrouted(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	var allow []string
	for _, method := range []string{http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPatch, http.MethodPost, http.MethodPut} {
		probe := &http.Request{Method: method, URL: r.URL, Host: r.Host}
		if _, pattern := mux.Handler(probe); strings.Contains(pattern, " ") { // "GET /path" is a route, not the catch-all
			allow = append(allow, method)
		}
	}
	if len(allow) == 0 {
		NotFound(w)
		return
	}
	methods := strings.Join(allow, ", ")
	w.Header().Set("Allow", methods)
	e := capability.Errorf(capability.CodeNotFound, "route", "%s is not a method of this path", r.Method).With("method_not_allowed",
		"use "+methods)
	httpapi.WriteJSON(w, http.StatusMethodNotAllowed, map[string]any{"error": e})
}

// NotFound answers a request whose path has no route.
func NotFound(w http.ResponseWriter) {
	httpapi.WriteError(w, capability.Errorf(capability.CodeNotFound, "route", "nothing is served at this path").
		With("", "agents connect to /mcp; people open /console/ in a browser or use the command junctor"))
}

// audienceFor returns the catalog that a principal uses: people the internal one, agents
// that of agents.
func audienceFor(who capability.Principal) capability.Audience {
	if who.Role == capability.RoleAdmin || who.Role == capability.RoleOperator {
		return capability.AudienceInternal
	}
	return capability.AudienceAgent
}

func (s *Surface) status(w http.ResponseWriter, _ *http.Request, who capability.Principal) error {
	body := s.Status()
	body.Principal = who
	return httpapi.Answer(w, body, nil)
}

func (s *Surface) doctor(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	return httpapi.Answer(w, map[string]any{"checks": s.Doctor(r.Context())}, nil)
}
