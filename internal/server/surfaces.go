package server

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/endpoints/routerserve"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/serve/mcpserve"
	"github.com/junctor-run/junctor/internal/serve/restserve"
)

// handler returns the HTTP handler with all surfaces. A new surface is one line here.
func (s *Server) handler() (http.Handler, error) {
	mux := http.NewServeMux()
	for _, w := range s.wings() {
		w.Routes(mux)
	}
	restserve.New(restserve.Config{
		Door: s.door, Engine: s.engine, Catalog: s.catalog, Policy: s.policy, Log: s.log,
		Secrets: s.secrets, Permissions: permissions, Events: s.events, Doctor: s.Doctor, Status: s.status, Stopping: s.stopping,
		MaxInput: int64(s.cfg.Limits.RequestBody),
		AssetURL: routerserve.AssetURL, Trust: s.endpoints.Trust, Explanation: s.choices.Get, Feed: s.notices.Feed, Contexts: s.notices.Contexts,
		Telemetry: s.recent.List, PolicyFiles: s.policyFiles, ToolNames: s.names, Listed: s.mcp.Listed,
	}).Routes(mux)
	s.mcp.Routes(mux)
	s.resourceMetadata(mux)
	s.agentRoutes(mux)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		httpapi.WriteJSON(w, http.StatusOK, map[string]any{"ok": true})
	})
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", s.door.LoopbackOrToken(s.metrics.Handler()))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { restserve.Unrouted(mux, w, r) })
	api := s.startup.Hold(s.endpoints.Uncleaned(mux),
		"/mcp", "/a2a", "/api/v1/catalog", "/api/v1/invocations", "/api/v1/tools", "/api/v1/modules")
	s.console.UseAPI(api)
	guard := httpapi.HostGuard{Loopback: s.loopback(), PublicURL: s.cfg.PublicURL, AllowedOrigins: s.cfg.MCP.AllowedOrigins, Logger: s.logger}
	return guard.Wrap(httpapi.Bounded(s.console.Guard(api))), nil
}

func permissions(names []string) ([]string, error) {
	list, unknown := declaration.CanonicalPermissions(names)
	if unknown != "" {
		return nil, capability.Errorf(capability.CodeInvalidInput, "permissions", "%q is not a permission; there are %s, and * for all", unknown,
			declaration.PermissionNames())
	}
	return list, nil
}

// views returns the configured views of the catalog for MCP.
func views(configured []config.View) map[string]mcpserve.View {
	out := make(map[string]mcpserve.View, len(configured))
	for _, v := range configured {
		out[v.Name] = mcpserve.View{
			Exposure: compile.View(v.Exposure), Modules: v.Modules, OwnNames: v.OwnNames, NameLimit: v.NameLimit, Dotted: v.Dotted,
		}
	}
	return out
}

// readyz responds whether the server is ready, and if not, with the reasons.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	reasons := []string{}
	if !s.startup.Ready() {
		reasons = append(reasons, "the server is starting or stopping")
	}
	if h := s.log.Health(); h.Broken {
		reasons = append(reasons, "the audit log cannot be written: "+h.Cause)
	}
	if h := s.shared.Health(); h.Down {
		reasons = append(reasons, h.Cause)
	}
	if name, open := s.nodes.Bus(r.Context()); !open {
		reasons = append(reasons, "the message bus is away: "+name)
	}
	for _, issue := range s.catalog.Snapshot().Blocking() {
		reasons = append(reasons, "the backend class "+issue.Class+" is exclusive and has no holder: "+issue.Remediation)
	}
	status := http.StatusOK
	if len(reasons) > 0 {
		status = http.StatusServiceUnavailable
	}
	httpapi.WriteJSON(w, status, map[string]any{"ready": len(reasons) == 0, "reasons": reasons})
}

func marshalLine(line ReadyLine) ([]byte, error) {
	data, err := json.Marshal(line)
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}

// publish sends an event to the bus. It never blocks.
func (s *Server) publish(event string, data any) {
	raw, err := json.Marshal(data)
	if err != nil {
		s.logger.Error("event not published", "event", event, "err", err)
		return
	}
	s.bus.Publish(event, raw)
}

func (s *Server) events(ctx context.Context, after uint64) iter.Seq[restserve.Event] {
	return func(yield func(restserve.Event) bool) {
		for ev, err := range s.bus.Subscribe(ctx, after) {
			if err != nil || !yield(restserve.Event{ID: ev.ID, Type: ev.Type, At: ev.At, Data: ev.Data}) {
				return
			}
		}
	}
}
