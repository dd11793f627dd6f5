package server

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/upstreams/a2a"
	"github.com/junctor-run/junctor/internal/upstreams/upstream"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/upstreamsql"
)

// openUpstreams makes the registry of MCP servers and A2A agents; nothing is connected before Run.
func (s *Server) openUpstreams(ctx context.Context) error {
	tables, err := upstreamsql.Migrations()
	if err != nil {
		return err
	}
	if err := s.shared.Migrate(ctx, upstreamsql.Owner, tables); err != nil {
		return err
	}
	s.upstreams = upstream.NewRegistry(upstream.Config{
		Store: upstreamsql.New(s.shared), Secrets: s.secrets, Tokens: s.secrets, Log: s.log, Logger: s.logger, Dial: dialUpstream,
		Dir: s.home.Path("upstreams"), Environment: sandbox.Environment(),
	})
	return nil
}

// dialUpstream makes the client that a record's kind needs.
func dialUpstream(cfg upstream.ClientConfig) (upstream.Client, error) {
	if cfg.Kind != record.KindA2A {
		return upstream.DialMCP(cfg)
	}
	in := a2a.Config{Name: cfg.Name, Card: cfg.URL, Header: cfg.Header, Local: cfg.Local, Down: cfg.Down}
	for _, key := range cfg.Keys {
		in.Keys = append(in.Keys, key)
	}
	agent, err := a2a.New(in)
	if err != nil {
		return nil, err
	}
	return &agentClient{agent}, nil
}

// agentClient is an A2A agent in the words of package upstream: its skills are tools.
type agentClient struct{ *a2a.Agent }

// Connect implements upstream.Client.
func (c *agentClient) Connect(ctx context.Context) (upstream.Server, error) {
	card, err := c.Agent.Connect(ctx)
	if err != nil {
		return upstream.Server{}, err
	}
	return upstream.Server{Version: card.Protocol, Name: card.Name, Release: card.Version, Instructions: card.Description}, nil
}

// Has implements upstream.Client.
func (c *agentClient) Has(feature string) bool { return feature == "tools" }

// Stderr implements upstream.Client.
func (c *agentClient) Stderr() string { return "" }

// List implements upstream.Client.
func (c *agentClient) List(ctx context.Context, _ ingest.Kind, each func(json.RawMessage) error) (upstream.Page, error) {
	card, err := c.Card(ctx)
	if err != nil {
		return upstream.Page{}, err
	}
	for _, d := range card.Definitions {
		if err := each(d); err != nil {
			return upstream.Page{}, err
		}
	}
	return upstream.Page{TTL: card.TTL}, nil
}

// Call implements upstream.Client.
func (c *agentClient) Call(ctx context.Context, r upstream.Request) (json.RawMessage, error) {
	if r.Method != "tools/call" {
		return nil, capability.Errorf(capability.CodeUnavailable, "upstream", "an A2A agent has no %s", r.Method).With("not_supported", "")
	}
	var params struct {
		Arguments jsonx.Raw `json:"arguments"`
	}
	if err := jsonx.Unmarshal(r.Params, &params); err != nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, "upstream", "the input is not that of an agent", err)
	}
	result, _, err := c.Agent.Call(ctx, a2a.Request{
		Definition: r.Definition, Arguments: json.RawMessage(params.Arguments), Idle: r.Idle, Progress: r.Progress, Ask: r.Ask, Keep: r.Keep, Resume: r.Resume,
	})
	return result, err
}

// upstreams adapts the registry to what the surface asks for.
type upstreams struct{ *upstream.Registry }

// Subscribe implements mcpserve.Updates: modules are named after their upstreams.
func (u upstreams) Subscribe(ctx context.Context, module, uri string, updated func()) (stop func(), err error) {
	return u.Registry.Subscribe(ctx, strings.TrimPrefix(module, "mcp."), uri, updated)
}

// List implements upstreamserve.Upstreams.
func (u upstreams) List() any { return u.Registry.List() }

// Show implements upstreamserve.Upstreams.
func (u upstreams) Show(name string) (any, error) { return u.Registry.Show(name) }

// Add implements upstreamserve.Upstreams.
func (u upstreams) Add(ctx context.Context, by capability.Principal, doc json.RawMessage) (any, error) {
	var rec record.Record
	if err := strict(doc, &rec); err != nil {
		return nil, err
	}
	return u.Registry.Add(ctx, by, rec)
}

// Restart implements upstreamserve.Upstreams.
func (u upstreams) Restart(ctx context.Context, by capability.Principal, name string) (any, error) {
	return u.Registry.Restart(ctx, by, name)
}

// Login implements upstreamserve.Upstreams.
func (u upstreams) Login(ctx context.Context, by capability.Principal, name string, step json.RawMessage) (any, error) {
	var in upstream.LoginStep
	if err := strict(step, &in); err != nil {
		return nil, err
	}
	return u.Registry.Login(ctx, by, name, in)
}

// Diff implements upstreamserve.Upstreams.
func (u upstreams) Diff(name string) (any, error) { return u.Registry.Diff(name) }

// Approve implements upstreamserve.Upstreams.
func (u upstreams) Approve(ctx context.Context, by capability.Principal, name string, which json.RawMessage) (any, error) {
	var in upstream.Selection
	if err := strict(which, &in); err != nil {
		return nil, err
	}
	return u.Registry.Approve(ctx, by, name, in)
}

// strict decodes a body; none is {}.
func strict(body []byte, v any) error {
	if len(body) == 0 {
		body = []byte("{}")
	}
	if err := jsonx.UnmarshalStrict(body, v); err != nil {
		return httpapi.BadJSON(err)
	}
	return nil
}

// checkUpstreams finds upstreams that were given up, cannot be reached, or have
// definitions that wait for somebody.
func (s *Server) checkUpstreams() []httpapi.Check {
	list := s.upstreams.List()
	var checks []httpapi.Check
	for i := range list {
		u := &list[i]
		waiting := u.Counts.Held + u.Counts.Quarantined
		c := httpapi.Check{Name: "upstream " + u.Name}
		switch {
		case u.Disabled:
			continue
		case u.Failed:
			c.Detail, c.Remedy = u.Reason, "junctor upstreams show "+u.Name+" has its last errors; then: junctor upstreams restart "+u.Name
		case u.State == capability.StateUnauthorized && u.OAuth != nil:
			c.Detail, c.Remedy = u.Reason, "junctor upstreams login "+u.Name
		case u.State != capability.StateReady:
			c.Detail, c.Remedy = u.Reason, "see that it runs and can be reached; it is tried again by itself"
		case waiting > 0:
			c.Detail = fmt.Sprintf("%d changed and %d new definitions wait for an approval", u.Counts.Held, u.Counts.Quarantined)
			c.Remedy = "junctor upstreams diff " + u.Name + ", then: junctor upstreams approve " + u.Name
		default:
			continue
		}
		checks = append(checks, c)
	}
	if checks == nil {
		checks = []httpapi.Check{{Name: "upstreams", OK: true, Detail: fmt.Sprintf("%d, and nothing waits", len(list))}}
	}
	return checks
}
