package upstreams

import (
	"context"
	"encoding/json"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/upstreams/a2a"
	"github.com/junctor-run/junctor/internal/upstreams/upstream"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// dial returns a client for the record's kind, MCP or A2A. It does not connect.
func dial(cfg upstream.ClientConfig) (upstream.Client, error) {
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

// agentClient adapts an A2A agent to upstream.Client. Its skills are tools.
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
		Definition: r.Definition, Arguments: json.RawMessage(params.Arguments), Idle: r.Idle, Progress: r.Progress, Ask: r.Ask, Keep: r.Keep,
		Resume: r.Resume,
	})
	return result, err
}
