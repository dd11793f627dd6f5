package server

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/endpoints/routerserve"
	"github.com/junctor-run/junctor/internal/extensions/permission"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/serve/mcpserve"
	"github.com/junctor-run/junctor/internal/serve/restserve"
)

// handler is every door on the one listener. A new surface is one line here.
func (s *Server) handler() (http.Handler, error) {
	mux := http.NewServeMux()
	s.endpoints.Routes(mux)
	restserve.New(restserve.Config{
		Door: s.door, Engine: s.engine, Catalog: s.catalog, Policy: s.policy, Log: s.log,
		Secrets: secretNames{s.secrets}, Permissions: permissions, Events: s.events, Doctor: s.Doctor, Status: s.status, Stopping: s.stopping, MaxInput: int64(s.cfg.Limits.RequestBody),
		AssetURL: routerserve.AssetURL, Trust: s.endpoints.Trust, Explanation: s.choices.Get, Feed: s.notices.Feed, Contexts: s.notices.Contexts,
		Telemetry: s.recent.List,
	}).Routes(mux)
	s.extensions.Routes(mux)
	s.chat.Routes(mux)
	s.upstreams.Routes(mux)
	s.agents.Routes(mux)
	s.mcp.Routes(mux)
	s.resourceMetadata(mux)
	s.nodes.Routes(mux)
	s.agentRoutes(mux)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		httpapi.WriteJSON(w, http.StatusOK, map[string]any{"ok": true})
	})
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", s.loopbackOrToken(s.metrics.Handler()))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { restserve.Unrouted(mux, w, r) })
	return s.guardHost(bounded(s.endpoints.Uncleaned(mux))), nil
}

func permissions(names []string) ([]string, error) {
	list, unknown := permission.Canonical(names)
	if unknown != "" {
		return nil, capability.Errorf(capability.CodeInvalidInput, "permissions", "%q is not a permission; there are %s, and * for all", unknown, permission.Names())
	}
	return list, nil
}

// views are the configured cuts of the catalog at the MCP door.
func views(configured []config.View) map[string]mcpserve.View {
	out := make(map[string]mcpserve.View, len(configured))
	for _, v := range configured {
		out[v.Name] = mcpserve.View{
			Exposure: compile.View(v.Exposure), Modules: v.Modules, OwnNames: v.OwnNames, NameLimit: v.NameLimit, Dotted: v.Dotted,
		}
	}
	return out
}

const (
	bodyTime = time.Minute // a request may take to send its body
	// What is left of a refused body is read up to here before the answer goes
	// out: a peer that is still writing would see a broken pipe instead of it.
	restSize = 8 << 20
	restTime = 2 * time.Second
)

// bounded gives every body a deadline and every answer nosniff. The deadline is
// taken back when the body has been read, or it would end long calls.
func bounded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff") // what endpoints answer is never a page of ours
		if r.ContentLength != 0 {
			body := &timedBody{ReadCloser: r.Body, rc: http.NewResponseController(w)}
			_ = body.rc.SetReadDeadline(time.Now().Add(bodyTime)) // unsupported only in tests without a connection
			r.Body = body
			defer body.discard()
		}
		h.ServeHTTP(w, r)
	})
}

type timedBody struct {
	io.ReadCloser
	rc   *http.ResponseController
	done bool
}

func (b *timedBody) discard() {
	if !b.done && b.rc.SetReadDeadline(time.Now().Add(restTime)) == nil {
		_, _ = io.CopyN(io.Discard, b.ReadCloser, restSize)
	}
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.done = true
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}

// readyz says whether requests are answered, with reasons when not.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	reasons := []string{}
	if !s.ready.Load() {
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
		reasons = append(reasons, "the backend class "+issue.Class+" is exclusive and nobody holds it: "+issue.Remediation)
	}
	status := http.StatusOK
	if len(reasons) > 0 {
		status = http.StatusServiceUnavailable
	}
	httpapi.WriteJSON(w, status, map[string]any{"ready": len(reasons) == 0, "reasons": reasons})
}

// loopbackOrToken lets a scraper on this machine in without a token.
func (s *Server) loopbackOrToken(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
			if _, err := s.door.Principal(r); err != nil {
				httpapi.WriteError(w, err)
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

// guardHost refuses requests that a web page could have made behind the user's
// back: on loopback, a Host that is not local is DNS rebinding, and a browser's
// cross-origin request is refused wherever it goes.
func (s *Server) guardHost(h http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	for _, origin := range s.cfg.MCP.AllowedOrigins {
		if err := crossOrigin.AddTrustedOrigin(origin); err != nil {
			s.logger.Error("allowed origin ignored", "origin", origin, "err", err)
		}
	}
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		httpapi.WriteError(w, capability.Errorf(capability.CodeDenied, "origin", "requests of other web origins are refused").
			With("origin_not_allowed", "add the origin to mcp.allowed_origins"))
	}))
	inner := crossOrigin.Handler(h)
	loopback := s.loopback()
	var public string // host of a proxy in front of us
	if u, err := url.Parse(s.cfg.PublicURL); err == nil {
		public = u.Host
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if loopback && !localHost(r.Host) && (public == "" || !strings.EqualFold(r.Host, public)) {
			httpapi.WriteError(w, capability.Errorf(capability.CodeDenied, "host", "this server answers to local names only").With("host_not_allowed", "use 127.0.0.1 or localhost in the URL, or set public_url to the address of the proxy in front"))
			return
		}
		inner.ServeHTTP(w, r)
	})
}

func localHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func marshalLine(line ReadyLine) ([]byte, error) {
	data, err := json.Marshal(line)
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}

// publish sends a notice to the live feed; it never blocks.
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
