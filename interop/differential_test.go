package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/junctor-run/junctor/internal/testkit/built"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// The differential tests connect one real client to one real server twice, directly and through
// junctor, do the same with both connections, and require the same transcript.

const differentialConfig = `
mcp:
  views:
    - {name: all, modules: ["mcp.*"], own_names: true, exposure: full}
`

// newPlane starts a server on an empty home whose agents may do everything. It needs no Node.
func newPlane(t *testing.T, config string) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t, binary: built.Junctor(t), home: filepath.Join(dir, "home")}
	ok(t, os.MkdirAll(filepath.Join(w.home, "policy"), 0o700))
	ok(t, os.WriteFile(filepath.Join(w.home, "policy", "default.cedar"), []byte(`@id("all") permit (principal, action, resource);`), 0o600))
	ok(t, os.WriteFile(filepath.Join(w.home, "config.yaml"), []byte(config), 0o600))
	w.url = w.serve("--home", w.home, "serve", "--listen", "127.0.0.1:0").URL + "/mcp"
	token, err := os.ReadFile(filepath.Join(w.home, "run", "agent.token"))
	ok(t, err)
	w.tok = strings.TrimSpace(string(token))
	return w
}

// witness is a client of the Go SDK that records what a user of it sees.
type witness struct {
	t       *testing.T
	session *mcp.ClientSession
	updated chan string
	lines   []string
}

// newWitness connects a client of the revision 2025-11-25, directly if token is "".
func newWitness(t *testing.T, url, token string) *witness {
	t.Helper()
	w := &witness{t: t, updated: make(chan string, 100)}
	client := mcp.NewClient(&mcp.Implementation{Name: "witness", Version: "1"}, &mcp.ClientOptions{
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { w.updated <- r.Params.URI },
	})
	link := &mcp.StreamableClientTransport{Endpoint: url}
	if token != "" {
		link.HTTPClient = &http.Client{Transport: bearer{token}}
	}
	session, err := client.Connect(t.Context(), link, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatalf("connect to %s: got %v, want no error", url, err)
	}
	w.session = session
	t.Cleanup(func() { _ = session.Close() })
	return w
}

func (w *witness) note(format string, args ...any) {
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

// code returns the code of a JSON-RPC error, or 0. A resource that does not exist is -32002 in the
// revision 2025-11-25, for which the Go SDK's servers use that of invalid parameters.
func code(err error) int64 {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	switch {
	case !ok:
		return 0
	case e.Code == mcpwire.CodeResourceNotFound:
		return jsonrpc.CodeInvalidParams
	}
	return e.Code
}

// call notes the content of a tool's result.
func (w *witness) call(name string, args map[string]any) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), waitTimeout)
	defer cancel()
	result, err := w.session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		w.note("call %s: error %d", name, code(err))
		return
	}
	content, err := json.Marshal(result.Content)
	ok(w.t, err)
	w.note("call %s: isError %v, %s", name, result.IsError, content)
}

// read notes the contents of a resource.
func (w *witness) read(uri string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), waitTimeout)
	defer cancel()
	result, err := w.session.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
	if err != nil {
		w.note("read %s: error %d", uri, code(err))
		return
	}
	contents, err := json.Marshal(result.Contents)
	ok(w.t, err)
	w.note("read %s: %s", uri, contents)
}

func (w *witness) subscribe(uri string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), waitTimeout)
	defer cancel()
	w.note("subscribe %s: error %d", uri, code(w.session.Subscribe(ctx, &mcp.SubscribeParams{URI: uri})))
}

// notified notes the next changed resource.
func (w *witness) notified() {
	w.t.Helper()
	select {
	case uri := <-w.updated:
		w.note("updated: %s", uri)
	case <-time.After(time.Minute):
		w.note("no notification")
	}
}

// quiet notes the notifications that arrived before a call that is answered after them.
func (w *witness) quiet() {
	w.note("%d notifications", len(w.updated))
}

// differ runs a script directly and through junctor and compares what the witnesses saw. A script
// returns the transcripts of its clients.
func differ(t *testing.T, direct, through func() *witness, script func(connect func() *witness) []string) {
	t.Helper()
	want, got := script(direct), script(through)
	for i := range max(len(want), len(got)) {
		var w, g string
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if w != g {
			t.Errorf("line %d through junctor = %s, want as without it: %s", i, g, w)
		}
	}
}

// newPersonal returns the address of a server of the Go SDK whose sessions have resources of their own.
// Its revision is 2025-11-25, because later ones do not have sessions.
func newPersonal(t *testing.T) string {
	t.Helper()
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return personal() }, nil)
	server := httptest.NewServer(handler)
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(server.Close)
	return server.URL
}

func personal() *mcp.Server {
	type address struct {
		URI string `json:"uri"`
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "personal", Version: "1"}, &mcp.ServerOptions{
		SupportedProtocolVersions: []string{"2025-11-25"},
		SubscribeHandler:          func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler:        func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	read := func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		contents := mcp.ResourceContents{URI: r.Params.URI, MIMEType: "text/plain", Text: "text of " + r.Params.URI}
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{&contents}}, nil
	}
	server.AddResource(&mcp.Resource{Name: "listed", URI: "demo://listed"}, read)
	mcp.AddTool(server, &mcp.Tool{Name: "make"}, func(_ context.Context, _ *mcp.CallToolRequest, in address) (*mcp.CallToolResult, any, error) {
		server.AddResource(&mcp.Resource{Name: "made", URI: in.URI}, read)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "made"}}}, nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "touch"}, func(ctx context.Context, _ *mcp.CallToolRequest, in address) (*mcp.CallToolResult, any, error) {
		err := server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: in.URI})
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "touched"}}}, nil, err
	})
	mcp.AddTool(server, &mcp.Tool{Name: "link"}, func(_ context.Context, _ *mcp.CallToolRequest, in address) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.ResourceLink{Name: "linked", URI: in.URI}}}, nil, nil
	})
	// Linked resources are read, but neither listed nor described by a template.
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if p, is := req.GetParams().(*mcp.ReadResourceParams); is && strings.HasPrefix(p.URI, "linked://") {
				return read(ctx, &mcp.ReadResourceRequest{Params: p})
			}
			return next(ctx, method, req)
		}
	})
	return server
}

func TestSubscriptionsAndOwnResourcesAreAsWithoutJunctor(t *testing.T) {
	w := newPlane(t, differentialConfig)
	for _, isolation := range []string{"shared", "principal", "client-session"} {
		t.Run(isolation, func(t *testing.T) {
			url := newPersonal(t)
			name := "personal-" + isolation
			w.cli("upstreams", "add", name, "--url", url, "--local", "--isolation", isolation)
			defer w.cli("upstreams", "remove", name)
			differ(t,
				func() *witness { return newWitness(t, url, "") },
				func() *witness { return newWitness(t, w.url+"/all", w.tok) },
				func(connect func() *witness) []string {
					c := connect()
					c.subscribe("demo://listed")
					c.call("touch", map[string]any{"uri": "demo://listed"})
					c.notified()
					c.call("link", map[string]any{"uri": "linked://a"})
					c.read("linked://a")
					c.call("make", map[string]any{"uri": "own://a"})
					c.read("own://a")
					c.subscribe("own://a")
					c.call("touch", map[string]any{"uri": "own://a"})
					c.notified()
					c.read("own://missing")
					if isolation != "client-session" {
						return c.lines
					}
					other := connect()
					other.read("own://a")
					other.subscribe("demo://listed")
					c.call("touch", map[string]any{"uri": "demo://listed"})
					c.notified()
					other.call("touch", map[string]any{"uri": "demo://listed"})
					other.notified()
					other.quiet()
					c.quiet()
					return slices.Concat(c.lines, other.lines)
				})
		})
	}
}
