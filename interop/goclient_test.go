package interop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// bearer adds the credential to every request of the SDK's client.
type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// golang does with the Go SDK's client what upstreams.mjs does with the others.
func (w *world) golang(t *testing.T, kind, transport, view, files string) (next func() (agentStep, error), goOn func()) {
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	steps, failed := make(chan agentStep), make(chan error, 1)
	a := &goAgent{world: w, kind: kind, transport: transport, view: view, files: files, say: func(s agentStep) error {
		select {
		case steps <- s:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, progress: make(chan float64, 100), changed: make(chan struct{}, 100), updated: make(chan string, 100), approved: make(chan struct{}, 1)}
	var done sync.WaitGroup
	done.Go(func() { failed <- a.run(ctx) })
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	return func() (agentStep, error) {
		select {
		case s := <-steps:
			return s, nil
		case err := <-failed:
			return agentStep{}, errors.Join(errors.New("the client has ended"), err)
		}
	}, func() { a.approved <- struct{}{} }
}

type goAgent struct {
	*world
	kind, transport, view, files string

	say      func(agentStep) error
	session  *mcp.ClientSession
	progress chan float64
	changed  chan struct{}
	updated  chan string
	approved chan struct{}

	mu        sync.Mutex
	questions []string
}

func (a *goAgent) connect(ctx context.Context) error {
	client := mcp.NewClient(&mcp.Implementation{Name: "interop-go", Version: "1.0.0"}, &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.questions = append(a.questions, r.Params.Message)
			content := map[string]any{"name": "Ada", "check": true}
			if strings.Contains(fmt.Sprint(r.Params.RequestedSchema), "decision") {
				content = map[string]any{"decision": "once"}
			}
			return &mcp.ElicitResult{Action: "accept", Content: content}, nil
		},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { a.changed <- struct{}{} },
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { a.updated <- r.Params.URI },
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			a.progress <- r.Params.Progress
		},
	})
	options := &mcp.ClientSessionOptions{}
	if a.kind == "go-legacy" {
		options.ProtocolVersion = "2025-11-25"
	}
	var link mcp.Transport = &mcp.StreamableClientTransport{Endpoint: a.url + "/" + a.view, HTTPClient: &http.Client{Transport: bearer{a.tok}}}
	if a.transport == "stdio" {
		cmd := exec.Command(a.binary, "--home", a.home, "mcp", "--view", a.view)
		cmd.Env = environment()
		link = &mcp.CommandTransport{Command: cmd}
	}
	var err error
	a.session, err = client.Connect(ctx, link, options)
	return err
}

// call returns the texts of a result.
func (a *goAgent) call(ctx context.Context, step, name string, args map[string]any, meta mcp.Meta) (agentStep, error) {
	r, err := a.session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args, Meta: meta})
	if err != nil {
		return agentStep{}, fmt.Errorf("%s: %w", name, err)
	}
	s := agentStep{Step: step, IsError: r.IsError}
	for _, c := range r.Content {
		if text, isText := c.(*mcp.TextContent); isText {
			s.Text += text.Text
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s.Names, a.questions = a.questions, nil
	return s, nil
}

func (a *goAgent) tools(ctx context.Context, step string) (s agentStep, err error) {
	s.Step = step
	for tool, err := range a.session.Tools(ctx, nil) {
		if err != nil {
			return s, err
		}
		s.Names = append(s.Names, tool.Name)
	}
	return s, nil
}

func (a *goAgent) run(ctx context.Context) error {
	if err := a.connect(ctx); err != nil {
		return err
	}
	defer a.session.Close()
	hello := a.session.InitializeResult()
	if err := a.say(agentStep{Step: "connected", Server: hello.ServerInfo.Name, Version: hello.ProtocolVersion}); err != nil {
		return err
	}
	parts := []func(context.Context) (agentStep, error){
		func(ctx context.Context) (agentStep, error) { return a.tools(ctx, "tools") },
		func(ctx context.Context) (agentStep, error) {
			return a.call(ctx, "echo", "echo", map[string]any{"message": "hello"}, nil)
		},
		a.long, a.prompts, a.prompt, a.resources, a.read, a.completion, a.update,
		func(ctx context.Context) (agentStep, error) {
			return a.call(ctx, "elicited", "trigger-elicitation-request", map[string]any{}, nil)
		},
	}
	if a.view == "work" {
		parts = append(parts, a.asked, a.written, a.file, a.memory,
			func(context.Context) (agentStep, error) { return agentStep{Step: "ready"}, nil },
			func(ctx context.Context) (agentStep, error) {
				select {
				case <-a.changed:
				case <-ctx.Done():
					return agentStep{}, errors.New("no list change came")
				}
				return a.tools(ctx, "changed")
			},
			func(ctx context.Context) (agentStep, error) {
				return a.call(ctx, "thought", "sequentialthinking", map[string]any{
					"thought": "one step", "nextThoughtNeeded": false,
					"thoughtNumber": 1, "totalThoughts": 1,
				}, nil)
			})
	}
	for _, part := range parts {
		s, err := part(ctx)
		if err != nil {
			return err
		}
		if err := a.say(s); err != nil {
			return err
		}
	}
	if err := a.session.Close(); err != nil {
		return err
	}
	return a.say(agentStep{Step: "closed"})
}

func (a *goAgent) long(ctx context.Context) (agentStep, error) {
	s, err := a.call(ctx, "long", "trigger-long-running-operation", map[string]any{"duration": 0.8, "steps": 4},
		mcp.Meta{"progressToken": "p"})
	for len(a.progress) > 0 {
		s.Progress = append(s.Progress, <-a.progress)
	}
	return s, err
}

func (a *goAgent) prompts(ctx context.Context) (agentStep, error) {
	s := agentStep{Step: "prompts"}
	for p, err := range a.session.Prompts(ctx, nil) {
		if err != nil {
			return s, err
		}
		s.Names = append(s.Names, p.Name)
	}
	return s, nil
}

func (a *goAgent) prompt(ctx context.Context) (agentStep, error) {
	r, err := a.session.GetPrompt(ctx, &mcp.GetPromptParams{Name: "args-prompt", Arguments: map[string]string{"city": "Paris"}})
	if err != nil {
		return agentStep{}, err
	}
	text, _ := r.Messages[0].Content.(*mcp.TextContent)
	return agentStep{Step: "prompt", Text: text.Text}, nil
}

func (a *goAgent) resources(ctx context.Context) (agentStep, error) {
	s := agentStep{Step: "resources"}
	for r, err := range a.session.Resources(ctx, nil) {
		if err != nil {
			return s, err
		}
		s.Names = append(s.Names, r.URI)
	}
	for r, err := range a.session.ResourceTemplates(ctx, nil) {
		if err != nil {
			return s, err
		}
		s.Names = append(s.Names, r.URITemplate)
	}
	return s, nil
}

func (a *goAgent) read(ctx context.Context) (agentStep, error) {
	s := agentStep{Step: "read"}
	for _, uri := range []string{"demo://resource/static/document/features.md", "demo://resource/dynamic/text/7"} {
		r, err := a.session.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
		if err != nil {
			return s, err
		}
		s.Names = append(s.Names, r.Contents[0].Text)
	}
	return s, nil
}

func (a *goAgent) completion(ctx context.Context) (agentStep, error) {
	r, err := a.session.Complete(ctx, &mcp.CompleteParams{
		Ref:      &mcp.CompleteReference{Type: "ref/prompt", Name: "completable-prompt"},
		Argument: mcp.CompleteParamsArgument{Name: "department", Value: "E"},
	})
	if err != nil {
		return agentStep{}, err
	}
	return agentStep{Step: "completion", Names: r.Completion.Values}, nil
}

func (a *goAgent) update(ctx context.Context) (agentStep, error) {
	uri := "demo://resource/static/document/features.md"
	if err := a.session.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}); err != nil {
		return agentStep{}, err
	}
	if _, err := a.call(ctx, "", "toggle-subscriber-updates", map[string]any{}, nil); err != nil {
		return agentStep{}, err
	}
	s := agentStep{Step: "updated"}
	select {
	case s.Text = <-a.updated:
	case <-ctx.Done():
		return s, errors.New("no update came")
	}
	if _, err := a.call(ctx, "", "toggle-subscriber-updates", map[string]any{}, nil); err != nil {
		return s, err
	}
	return s, a.session.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: uri})
}

func (a *goAgent) path() string { return filepath.Join(a.files, a.kind+"-"+a.transport+".txt") }

func (a *goAgent) asked(ctx context.Context) (agentStep, error) {
	return a.call(ctx, "asked", "write_file", map[string]any{"path": a.path(), "content": "written by " + a.kind}, nil)
}

func (a *goAgent) written(ctx context.Context) (agentStep, error) {
	select {
	case <-a.approved:
	case <-ctx.Done():
		return agentStep{}, ctx.Err()
	}
	return a.call(ctx, "written", "write_file", map[string]any{"path": a.path(), "content": "written by " + a.kind}, nil)
}

func (a *goAgent) file(ctx context.Context) (agentStep, error) {
	return a.call(ctx, "file", "read_text_file", map[string]any{"path": a.path()}, nil)
}

func (a *goAgent) memory(ctx context.Context) (agentStep, error) {
	entity := map[string]any{"name": a.kind + "-" + a.transport, "entityType": "client", "observations": []string{"was here"}}
	if _, err := a.call(ctx, "", "create_entities", map[string]any{"entities": []any{entity}}, nil); err != nil {
		return agentStep{}, err
	}
	return a.call(ctx, "memory", "read_graph", map[string]any{}, nil)
}
