// Command conformanceclient is what the official suite tests as a client: our client
// of MCP, our provider of upstreams and our OAuth client, with nothing of their own
// work done here. The suite names the scenario in MCP_CONFORMANCE_SCENARIO, its
// particulars in MCP_CONFORMANCE_CONTEXT, and its server in the last argument; what
// the client has to do for each is the suite's to say.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/upstreams/mcpclient"
	"github.com/junctor-run/junctor/internal/upstreams/oauthclient"
	"github.com/junctor-run/junctor/internal/upstreams/upstream"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
	"github.com/junctor-run/junctor/secret"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: conformanceclient URL")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	err := run(ctx, os.Getenv("MCP_CONFORMANCE_SCENARIO"), os.Args[1])
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err, errors.Unwrap(err))
		os.Exit(1)
	}
}

// particulars is the context of a scenario.
type particulars struct {
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
	ToolCalls    []struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"toolCalls"`
}

func run(ctx context.Context, scenario, address string) error {
	var p particulars
	if text := os.Getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			return err
		}
	}
	if strings.HasPrefix(scenario, "auth/") {
		return authorize(ctx, scenario, address, &p)
	}
	return provide(ctx, address, func(offers []capability.Contribution, by capability.Provider) error {
		return call(ctx, scenario, &p, offers, by)
	})
}

// provide adds the server as an upstream, gives use what it offers, and ends it.
func provide(ctx context.Context, address string, use func([]capability.Contribution, capability.Provider) error) error {
	ctx, cancel := context.WithCancel(ctx)
	registry := upstream.NewRegistry(upstream.Config{Dial: upstream.DialMCP, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	var mu sync.Mutex
	var last capability.Batch
	var ended sync.WaitGroup
	defer ended.Wait()
	defer cancel()
	ended.Go(func() {
		_ = registry.Run(ctx, func(b capability.Batch) error {
			mu.Lock()
			defer mu.Unlock()
			last = b
			return nil
		})
	})
	for !registry.Running() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if _, err := registry.Add(ctx, capability.Principal{ID: "suite"},
		record.Record{Name: "suite", URL: address, PrivateNetwork: true}); err != nil {
		return err
	}
	mu.Lock()
	offers, by := last.Modules[0].Contributions, last.Providers[0]
	mu.Unlock()
	return use(offers, by)
}

// call calls what the scenario wants called; failures of calls are the suite's to judge.
func call(ctx context.Context, scenario string, p *particulars, offers []capability.Contribution, by capability.Provider) error {
	invoke := func(o capability.Contribution, arguments string) {
		c := capability.Call{
			Member: o.Member, Input: json.RawMessage(arguments),
			Ask: func(_ context.Context, q capability.Question) (json.RawMessage, error) {
				return accept(scenario, q)
			},
		}
		if _, err := by.Invoke(ctx, c); err != nil {
			fmt.Fprintln(os.Stderr, o.Member.Name, err)
		}
	}
	named := func(name string) (capability.Contribution, bool) {
		i := slices.IndexFunc(offers, func(o capability.Contribution) bool { return o.Member.Kind == "tool" && o.Member.Name == name })
		if i < 0 {
			return capability.Contribution{}, false
		}
		return offers[i], true
	}
	switch scenario {
	case "initialize", "request-metadata", "json-schema-ref-no-deref": // adding it was all
	case "json-schema-2020-12-preservation":
		focal, ok := named("json_schema_2020_12_tool")
		echo, echoes := named("json_schema_echo")
		var definition struct {
			InputSchema json.RawMessage `json:"inputSchema"`
		}
		if !ok || !echoes || json.Unmarshal(focal.Definition, &definition) != nil {
			return errors.New("the tools of the scenario were not taken in")
		}
		invoke(echo, `{"schema":`+string(definition.InputSchema)+`}`)
	case "http-custom-headers":
		for _, one := range p.ToolCalls {
			if o, ok := named(one.Name); ok {
				invoke(o, string(one.Arguments))
			}
		}
	case "tools_call":
		if o, ok := named("add_numbers"); ok {
			invoke(o, `{"a":5,"b":3}`)
		}
	default:
		for _, o := range offers {
			arguments := "{}"
			switch {
			case scenario == "http-invalid-tool-headers":
				arguments = `{"region":"us-west1"}`
			case o.Member.Kind == "resource-template":
				continue
			}
			invoke(o, arguments)
		}
	}
	return nil
}

// accept answers a question as a user who changes none of its defaults would.
func accept(scenario string, q capability.Question) (json.RawMessage, error) {
	if scenario == "sep-2322-client-request-state" {
		return json.RawMessage(`{"action":"accept","content":{"confirmed":true}}`), nil
	}
	var params struct {
		RequestedSchema struct {
			Properties map[string]struct {
				Default json.RawMessage `json:"default"`
			} `json:"properties"`
		} `json:"requestedSchema"`
	}
	if err := json.Unmarshal(q.Params, &params); err != nil {
		return nil, err
	}
	content := make(map[string]json.RawMessage)
	for name, property := range params.RequestedSchema.Properties {
		if property.Default != nil {
			content[name] = property.Default
		}
	}
	return json.Marshal(map[string]any{"action": "accept", "content": content})
}

// authorize lists and calls with tokens that have to be obtained first.
func authorize(ctx context.Context, scenario, address string, p *particulars) error {
	cfg := oauthclient.Config{
		Name: "suite", Resource: address, HTTP: new(http.Client), Plain: true, Grant: oauthclient.AuthorizationCode,
		ClientID: p.ClientID, Metadata: "https://conformance-test.local/client-metadata.json",
		Visit: visit, Redirect: "http://localhost:3000/callback",
	}
	if p.ClientSecret != "" {
		cfg.ClientSecret = func() (secret.Value, error) { return secret.New(p.ClientSecret), nil }
	}
	if strings.HasPrefix(scenario, "auth/client-credentials") {
		cfg.Grant = oauthclient.ClientCredentials
	}
	source, err := oauthclient.New(cfg)
	if err != nil {
		return err
	}
	client, err := mcpclient.New(mcpclient.Config{
		Name: "suite", URL: address, HTTP: &http.Client{Transport: source.Transport(new(http.Transport))},
	})
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Connect(ctx); err != nil {
		return err
	}
	if _, err := client.List(ctx, mcpclient.Tools, func(json.RawMessage) error { return nil }); err != nil {
		return err
	}
	_, err = client.Call(ctx, mcpclient.Request{
		Method: "tools/call", Name: "test-tool",
		Params: json.RawMessage(`{"name":"test-tool","arguments":{}}`),
	})
	return err
}

// visit is a person whose authorization server asks nothing: it redirects at once.
func visit(ctx context.Context, address string) (url.Values, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	back, err := resp.Location()
	if err != nil {
		return nil, err
	}
	return back.Query(), nil
}
