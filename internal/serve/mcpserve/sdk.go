package mcpserve

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

const (
	serverName = "junctor"

	instructions = "The tools are what this principal may use now. A call that needs a person's approval answers with an " +
		"approval id: say so, and call again with the same arguments once it has been approved. Where a tool has a selector, " +
		"several providers could carry it out; name one."

	// hidden is a tool, a prompt and a resource of the SDK's servers that is only added and
	// removed, because that is the only way to make the SDK send list_changed. It is never
	// visible to clients, because lists are answered by the surface.
	hidden    = "junctor_list_changed"
	hiddenURI = "junctor://list-changed"
)

// viewer is one principal with one view: its mcp.Server and the lists that it was last
// notified of. Two tokens of one principal with different labels are two viewers.
type viewer struct {
	caller caller
	server *mcp.Server

	// Guarded by Surface.mu.
	busy      int     // sessions, and requests inside the SDK
	calls     int     // that run in its sessions
	telling   bool    // its sessions are being notified of changed resources
	toggled   [3]bool // the hidden tool, prompt, resource is there
	announced [3][32]byte
	following map[following]*hold // subscriptions to resources
}

func viewerKey(who capability.Principal, v *view) string {
	parts := append([]string{who.ID, string(who.Role), v.name}, who.Labels...)
	return strings.Join(parts, "\x00")
}

// viewer returns the viewer of c and counts one more use of it; done must be
// called at the end of the use.
func (s *Surface) viewer(c caller) (v *viewer, done func()) {
	// Later lists are compared with the first one that the client will see.
	seen := s.listOf(c).hashes()
	s.mu.Lock()
	defer s.mu.Unlock()
	v = s.viewers[c.key]
	if v == nil {
		v = &viewer{caller: caller{who: c.who, key: c.key, view: c.view}, announced: seen, following: make(map[following]*hold)}
		v.server = s.newServer(v)
		s.viewers[c.key] = v
	}
	v.busy++
	return v, func() {
		s.mu.Lock()
		v.busy--
		s.mu.Unlock()
	}
}

func (s *Surface) newServer(v *viewer) *mcp.Server {
	options := &mcp.ServerOptions{
		Instructions: s.instructionsFor(v.caller),
		Capabilities: &mcp.ServerCapabilities{
			Tools: &mcp.ToolCapabilities{ListChanged: true}, Prompts: &mcp.PromptCapabilities{ListChanged: true},
			Resources:   &mcp.ResourceCapabilities{ListChanged: true, Subscribe: s.cfg.Updates != nil},
			Completions: &mcp.CompletionCapabilities{},
			Logging:     &mcp.LoggingCapabilities{}, //nolint:staticcheck // deprecated since 2026-07-28, and used before
		},
		SupportedProtocolVersions: mcpwire.Versions(),
		// The SDK's default is public, which leaks answers that depend on the caller.
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) {
			c.TTLMs, c.CacheScope = 5000, "private"
		},
	}
	if s.cfg.Tasks != nil {
		options.Capabilities.Extensions = map[string]any{extensionTasks: map[string]any{}}
	}
	if s.cfg.Updates != nil {
		options.SubscribeHandler, options.UnsubscribeHandler = s.follow(v), s.unfollow(v)
	}
	server := mcp.NewServer(&mcp.Implementation{Name: serverName, Title: serverName, Version: s.cfg.Version}, options)
	server.AddReceivingMiddleware(s.inside(v))
	server.AddSendingMiddleware(s.onlyDue(v))
	return server
}

// instructionsFor returns our instructions and those of the MCP servers whose tools c may see, quoted under
// the name of the server, because a server could write them as if they were the operator's.
func (s *Surface) instructionsFor(c caller) string {
	out := instructions
	if s.cfg.Updates == nil {
		return out
	}
	l := s.listOf(c)
	modules := make(map[string]string)
	for _, a := range slices.AppendSeq(slices.Clone(l.shown), maps.Values(l.own)) {
		for _, e := range a.Entries {
			modules[e.Module.Extension] = e.Module.Name
		}
	}
	for _, module := range slices.Sorted(maps.Keys(modules)) {
		words := s.cfg.Updates.Instructions(module)
		if words == "" {
			continue
		}
		words = "\n\nThe MCP server " + modules[module] + " writes about its own tools:\n> " + strings.ReplaceAll(words, "\n", "\n> ")
		if len(out)+len(words) > len(instructions)+maxInstructions {
			return out + "\n\nFurther servers have instructions that are not shown here."
		}
		out += words
	}
	return out
}

// inside runs before the SDK's own methods. It answers the tool methods that
// reach the SDK, which are those inside a JSON-RPC batch, exactly as the raw path
// does, and ends subscriptions when the surface drains.
func (s *Surface) inside(v *viewer) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			c := v.caller
			if sess := s.sessionOf(req.GetSession().ID()); sess != nil {
				c.client, c.session = sess.client, sess.digest
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(ctx)
				defer cancel()
				defer context.AfterFunc(sess.ctx, cancel)()
			}
			switch method {
			case "subscriptions/listen":
				// Ended from within, the SDK still sends the completion; ended by closing
				// the session it would not.
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				defer context.AfterFunc(s.open, cancel)()
				return next(ctx, method, req)
			case "tools/call":
				p, ok := req.GetParams().(*mcp.CallToolParamsRaw)
				if !ok || p == nil {
					return nil, wireError(mcpwire.InvalidParams("params must name a tool"))
				}
				m := &mcpwire.Message{Method: method, Params: mcpwire.Params{Name: p.Name, Named: true, Arguments: p.Arguments}}
				out := s.carry(ctx, c, m, mcpwire.Era{}, voice{})
				return asResult(out.Result, out.Fault)
			case "tools/list", "prompts/list", "resources/list", "resources/templates/list", "prompts/get", "resources/read", "completion/complete":
				raw, err := json.Marshal(req.GetParams())
				if err != nil {
					return nil, wireError(mcpwire.InvalidParams("params cannot be read"))
				}
				m := &mcpwire.Message{Method: method}
				if string(raw) != "null" {
					m.Params.Read(raw)
				}
				if isList(method) {
					result, f := s.pageOf(c, method, m.Params.Cursor, mcpwire.Era{})
					return asResult(result.joined(), f)
				}
				out := s.carry(ctx, c, m, mcpwire.Era{}, voice{})
				return asResult(out.Result, out.Fault)
			}
			return next(ctx, method, req)
		}
	}
}

// rawResult is a result that is JSON already.
type rawResult struct {
	mcp.ResultBase
	data json.RawMessage
}

// MarshalJSON returns the bytes as they are.
func (r *rawResult) MarshalJSON() ([]byte, error) { return r.data, nil }

func asResult(data []byte, f *mcpwire.Fault) (mcp.Result, error) {
	if f != nil {
		return nil, wireError(f)
	}
	return &rawResult{data: data}, nil
}

func wireError(f *mcpwire.Fault) error {
	return &jsonrpc.Error{Code: int64(f.Code), Message: f.Message, Data: f.Data}
}

type viewerContext struct{}

// serverOf returns the server that the dispatcher selected, for the SDK's handlers.
func serverOf(r *http.Request) *mcp.Server {
	if v, ok := r.Context().Value(viewerContext{}).(*viewer); ok {
		return v.server
	}
	return nil
}

// forSDK returns a copy of r for the SDK, with the viewer and the body that was read.
func forSDK(r *http.Request, v *viewer, body []byte) *http.Request {
	r = r.WithContext(context.WithValue(r.Context(), viewerContext{}, v))
	if body != nil {
		r.Body = newBody(body)
		r.ContentLength = int64(len(body))
	}
	return r
}

// liveSession returns the SDK's session of that id, or nil.
func (v *viewer) liveSession(id string) *mcp.ServerSession {
	for live := range v.server.Sessions() {
		if live.ID() == id {
			return live
		}
	}
	return nil
}

// closeAll ends the SDK's sessions and waits for their end, at most closeTimeout.
func closeAll(live []*mcp.ServerSession) error {
	done := make(chan struct{}, len(live))
	for _, l := range live {
		go func() {
			_ = l.Close()
			done <- struct{}{}
		}()
	}
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	for range live {
		select {
		case <-done:
		case <-timer.C:
			return fmt.Errorf("%d MCP sessions did not close within %s", len(live), closeTimeout)
		}
	}
	return nil
}

// Drain ends the open streams of sessions and of subscriptions, which receive their
// completion, so that an HTTP server can shut down. Running calls continue. It takes two
// seconds at most and may be called again.
func (s *Surface) Drain() {
	s.closeStreams()
	var live []*mcp.ServerSession
	s.mu.Lock()
	for _, v := range s.viewers {
		for l := range v.server.Sessions() {
			if l.ID() != "" { // those without end with their one request
				live = append(live, l)
			}
		}
	}
	s.mu.Unlock()
	if err := closeAll(live); err != nil {
		s.cfg.Logger.Warn("mcp drain", "err", err)
	}
}
