package upstreams

import (
	"context"
	"encoding/json"
	"sync/atomic"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/upstreams/a2a"
	"github.com/junctor-run/junctor/internal/upstreams/openapi"
	"github.com/junctor-run/junctor/internal/upstreams/upstream"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// dial returns a client for the record's kind. It does not connect.
func dial(cfg upstream.ClientConfig) (upstream.Client, error) {
	switch cfg.Kind {
	case record.KindMCP:
		return upstream.DialMCP(cfg)
	case record.KindOpenAPI, record.KindGraphQL:
		api, err := openapi.New(openapi.Config{
			GraphQL:  cfg.Kind == record.KindGraphQL,
			Document: cfg.Document, Base: cfg.URL, Local: cfg.Local, HTTP: cfg.HTTP, Fetch: cfg.Fetch, Header: cfg.Header,
			SecretHeaders: cfg.SecretHeaders, Secret: cfg.Secret,
		})
		if err != nil {
			return nil, err
		}
		return &apiClient{API: api}, nil
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
	arguments, err := argumentsOf(r.Params)
	if err != nil {
		return nil, err
	}
	result, _, err := c.Agent.Call(ctx, a2a.Request{
		Definition: r.Definition, Arguments: arguments, Idle: r.Idle, Progress: r.Progress, Ask: r.Ask, Keep: r.Keep,
		Resume: r.Resume,
	})
	return result, err
}

// apiClient adapts an API to upstream.Client. Its operations are tools.
type apiClient struct {
	*openapi.API
	fresh atomic.Pointer[openapi.Info] // what Connect read, for the list that follows
}

// Connect implements upstream.Client.
func (c *apiClient) Connect(ctx context.Context) (upstream.Server, error) {
	info, err := c.Load(ctx)
	if err != nil {
		return upstream.Server{}, err
	}
	c.fresh.Store(&info)
	return upstream.Server{Version: info.OpenAPI, Name: info.Title, Release: info.Version}, nil
}

// Has implements upstream.Client.
func (c *apiClient) Has(feature string) bool { return feature == "tools" }

// Stderr implements upstream.Client.
func (c *apiClient) Stderr() string { return "" }

// Close implements upstream.Client.
func (c *apiClient) Close() error { return nil }

// List implements upstream.Client.
func (c *apiClient) List(ctx context.Context, _ ingest.Kind, each func(json.RawMessage) error) (upstream.Page, error) {
	info := c.fresh.Swap(nil)
	if info == nil {
		read, err := c.Load(ctx)
		if err != nil {
			return upstream.Page{}, err
		}
		info = &read
	}
	for _, d := range info.Definitions {
		if err := each(d); err != nil {
			return upstream.Page{}, err
		}
	}
	return upstream.Page{TTL: documentTTL}, nil
}

// Call implements upstream.Client.
func (c *apiClient) Call(ctx context.Context, r upstream.Request) (json.RawMessage, error) {
	if r.Method != "tools/call" {
		return nil, capability.Errorf(capability.CodeUnavailable, "upstream", "an API has no %s", r.Method).With("not_supported", "")
	}
	arguments, err := argumentsOf(r.Params)
	if err != nil {
		return nil, err
	}
	if r.Idle > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Idle)
		defer cancel()
	}
	return c.API.Call(ctx, r.Definition, arguments)
}

func argumentsOf(params json.RawMessage) (json.RawMessage, error) {
	var in struct {
		Arguments jsonx.Raw `json:"arguments"`
	}
	if err := jsonx.Unmarshal(params, &in); err != nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, "upstream", "the input is not an object with arguments", err)
	}
	return json.RawMessage(in.Arguments), nil
}
