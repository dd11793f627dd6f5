package upstream

import (
	"context"
	"encoding/json"
	"sync/atomic"

	"github.com/junctor-run/junctor/internal/upstreams/mcpclient"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// DialMCP returns a client for an MCP server, for [Config.Dial].
func DialMCP(cfg ClientConfig) (Client, error) {
	in := mcpclient.Config{
		Name: cfg.Name, Command: cfg.Command, Dir: cfg.Dir, Env: cfg.Env, Start: cfg.Start, URL: cfg.URL, SSE: cfg.SSE, HTTP: cfg.HTTP,
		Header: cfg.Header, ConnectTimeout: cfg.ConnectTimeout, Errors: cfg.Errors, Unreadable: cfg.Unreadable,
		Roots: cfg.Roots, Sampling: cfg.Sampling, Updated: cfg.Updated,
		Down: cfg.Down, Logger: cfg.Logger,
	}
	if cfg.Changed != nil {
		in.Changed = func(l mcpclient.List) {
			for _, kind := range ingest.Kinds() {
				if listOf(kind) == l || l == mcpclient.Resources && kind == ingest.Template { // templates do not have a notice
					cfg.Changed(kind)
				}
			}
		}
	}
	c, err := mcpclient.New(in)
	if err != nil {
		return nil, err
	}
	return &mcpConnection{Client: c}, nil
}

// mcpConnection adapts a mcpclient.Client to Client.
type mcpConnection struct {
	*mcpclient.Client
	server  atomic.Pointer[mcpclient.Server]
	leveled atomic.Bool
}

func listOf(kind ingest.Kind) mcpclient.List {
	switch kind {
	case ingest.Tool:
		return mcpclient.Tools
	case ingest.Prompt:
		return mcpclient.Prompts
	case ingest.Resource:
		return mcpclient.Resources
	}
	return mcpclient.Templates
}

// Connect implements Client.
func (c *mcpConnection) Connect(ctx context.Context) (Server, error) {
	s, err := c.Client.Connect(ctx)
	if err != nil {
		return Server{}, err
	}
	c.server.Store(&s)
	if s.Has("logging") && c.leveled.CompareAndSwap(false, true) {
		// Many servers send no log messages before a level is set. The client sets it
		// again after a reconnect. An error is ignored.
		_, _ = c.Client.Call(ctx, mcpclient.Request{Method: "logging/setLevel", Params: json.RawMessage(`{"level":"info"}`)})
	}
	return Server(s), nil
}

// Has implements Client.
func (c *mcpConnection) Has(feature string) bool {
	s := c.server.Load()
	return s != nil && s.Has(feature)
}

// List implements Client.
func (c *mcpConnection) List(ctx context.Context, kind ingest.Kind, each func(json.RawMessage) error) (Page, error) {
	p, err := c.Client.List(ctx, listOf(kind), each)
	return Page(p), err
}

// Call implements Client.
func (c *mcpConnection) Call(ctx context.Context, r Request) (json.RawMessage, error) {
	return c.Client.Call(ctx, mcpclient.Request{
		Method: r.Method, Params: r.Params, Meta: r.Meta, Name: r.Name, Headers: r.Headers, Idle: r.Idle, Progress: r.Progress, Ask: r.Ask,
		Relay: r.Relay, Task: mcpwire.TaskOnly(r.Definition),
	})
}
