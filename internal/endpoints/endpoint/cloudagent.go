package endpoint

// This file creates, awaits and removes cloud agents that serve an endpoint. It only uses
// the cloud's API and does not depend on the registry.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/secret"
)

// CloudConfig describes the cloud's API and the agent to create.
type CloudConfig struct {
	Base      string // the URL of its API, with or without /api/v1
	Token     secret.Value
	Name      string
	Bio       []string
	Poll      time.Duration     // the first pause between two requests; 0: 2 s
	Transport http.RoundTripper // nil: the default
}

// CloudClient calls the API of one cloud for one agent.
type CloudClient struct {
	cfg  CloudConfig
	base string
	http *http.Client
}

// NewCloudClient checks the configuration; its errors are invalid_input.
func NewCloudClient(cfg CloudConfig) (*CloudClient, error) {
	u, err := url.Parse(strings.TrimSpace(cfg.Base))
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil {
		return nil, badInput("cloud.cloudApiBase must be an http or https URL without credentials")
	}
	if cfg.Token.Empty() || strings.TrimSpace(cfg.Name) == "" {
		return nil, badInput("cloud needs an authToken and a name")
	}
	if u.Host == "elizacloud.ai" || u.Host == "www.elizacloud.ai" {
		u.Host = "api.elizacloud.ai"
	}
	cfg.Poll = cmp.Or(cfg.Poll, defaultPollInterval)
	// The calls' paths begin with /api/v1, so it is removed from a base that ends with it.
	base := u.Scheme + "://" + u.Host + strings.TrimSuffix(strings.TrimRight(u.EscapedPath(), "/"), "/api/v1")
	return &CloudClient{
		cfg: cfg, base: base,
		http: &http.Client{Transport: cfg.Transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // it would carry the token elsewhere
		}},
	}, nil
}

func badInput(message string) error {
	return capability.Errorf(capability.CodeInvalidInput, "endpoints.connect", "%s", message)
}

func agentPath(id string) string { return "/api/v1/eliza/agents/" + url.PathEscape(id) }

// Create creates the agent and returns its id.
func (c *CloudClient) Create(ctx context.Context) (string, error) {
	body := map[string]any{"agentName": c.cfg.Name, "statefulRuntime": true}
	if len(c.cfg.Bio) > 0 {
		body["agentConfig"] = map[string]any{"bio": c.cfg.Bio}
	}
	made, err := c.call(ctx, http.MethodPost, "/api/v1/eliza/agents", body)
	if err != nil {
		return "", err
	}
	if id := made.text("id"); id != "" {
		return id, nil
	}
	return "", failed("the cloud made an agent but did not say its id")
}

// Remove removes the agent.
func (c *CloudClient) Remove(ctx context.Context, agent string) error {
	_, err := c.call(ctx, http.MethodDelete, agentPath(agent), nil)
	return err
}

// CloudAgent is the address of an agent's endpoint. Token may be empty.
type CloudAgent struct {
	URL   string
	Token secret.Value
}

// Provision lets the agent serve an endpoint and waits for the cloud's job, if there is
// one. job is its id, which is returned also if the job failed.
func (c *CloudClient) Provision(ctx context.Context, agent string) (at CloudAgent, job string, err error) {
	doc, err := c.call(ctx, http.MethodPost, agentPath(agent)+"/provision", nil)
	if err != nil {
		return CloudAgent{}, "", err
	}
	if at := doc.located(); at.URL != "" {
		return at, "", nil
	}
	if job = doc.text("jobId"); job == "" {
		return CloudAgent{}, "", failed("the cloud named neither the endpoint's URL nor a job to wait for")
	}
	err = c.Until(ctx, "the cloud's job "+job, func() (bool, error) {
		doc, err := c.call(ctx, http.MethodGet, "/api/v1/jobs/"+url.PathEscape(job), nil)
		if err != nil {
			return false, err
		}
		switch doc.text("status") {
		case "completed":
			if at = doc.result().located(); at.URL == "" {
				return false, failed("the cloud's job is completed, but it does not name the endpoint's URL")
			}
			return true, nil
		case "failed":
			return false, failed("the cloud's job failed: " + cmp.Or(doc.text("error"), "it does not say why"))
		}
		return false, nil
	})
	return at, job, err
}

// RetryLater is a temporary failure, after which [CloudClient.Until] tries again.
type RetryLater struct{ Err error }

// Error returns the text of Err.
func (e RetryLater) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e RetryLater) Unwrap() error { return e.Err }

// Until calls done with growing pauses until it returns true, returns an error other than
// [RetryLater], or ctx ends. The end of ctx is a timeout error whose text contains what.
func (c *CloudClient) Until(ctx context.Context, what string, done func() (bool, error)) error {
	var last error
	for pause := c.cfg.Poll; ; pause = min(pause+pause/2, 8*c.cfg.Poll) {
		ok, err := done()
		if again, passing := err.(RetryLater); passing { //nolint:errorlint // made by done itself
			last = again.Err
		} else if ok || err != nil {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			e := capability.Errorf(capability.CodeTimeout, "endpoints.connect", "%s was not ready in time", what)
			if last != nil {
				e.Message += ": " + capability.AsError(last).Message
			}
			return e.With("", "give it longer with cloud.timeoutMs")
		}
	}
}

func failed(message string) error {
	return capability.Errorf(capability.CodeFailed, "endpoints.connect", "%s", message).With("provisioning_failed",
		"look at the agent in the cloud's console")
}

// call sends one request. Client errors (4xx) are final; an error of a busy or broken
// cloud is a [RetryLater] if passing allows it.
func (c *CloudClient) call(ctx context.Context, method, path string, body any) (answer, error) {
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		reader = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, reader)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+c.cfg.Token.Reveal())
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, passing(method, capability.Wrap(capability.CodeUnavailable, "endpoints.connect", "the cloud could not be reached", err))
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, passing(method, capability.Wrap(capability.CodeFailed, "endpoints.connect", "the cloud's answer broke off", err))
	}
	if resp.StatusCode >= 300 {
		refused := failed(fmt.Sprintf("the cloud answered %d to %s %s", resp.StatusCode, method, path))
		if resp.StatusCode >= 500 || resp.StatusCode == http.StatusRequestTimeout || resp.StatusCode == http.StatusTooManyRequests {
			return nil, passing(method, refused)
		}
		return nil, refused
	}
	var doc answer
	if len(bytes.TrimSpace(data)) > 0 && jsonx.Unmarshal(data, &doc) != nil {
		return nil, failed("the cloud's answer is not a JSON object")
	}
	return doc, nil
}

// passing wraps the error of a failed poll in [RetryLater]. Requests that create something
// are not repeated, because they could create it twice.
func passing(method string, err error) error {
	if method == http.MethodGet {
		return RetryLater{err}
	}
	return err
}

// answer is a payload whose members may be nested in data.
type answer map[string]jsonx.Raw

func (d answer) text(name string) string {
	for _, doc := range []answer{d.inner("data"), d} {
		var s string
		if jsonx.Unmarshal(doc[name], &s) == nil && strings.TrimSpace(s) != "" {
			return strings.TrimSpace(s)
		}
	}
	return ""
}

func (d answer) inner(name string) (out answer) {
	_ = jsonx.Unmarshal(d[name], &out) // absent or of another shape: nothing
	return out
}

// result returns the job's result, inside or outside of data, or the job itself if it has none.
func (d answer) result() answer {
	for _, doc := range []answer{d.inner("data").inner("result"), d.inner("result")} {
		if doc != nil {
			return doc
		}
	}
	return d
}

func (d answer) located() CloudAgent {
	return CloudAgent{
		cmp.Or(d.text("capabilityRouterUrl"), d.text("capability_router_url"), d.text("bridgeUrl"), d.text("bridge_url")),
		secret.New(cmp.Or(d.text("capabilityRouterToken"), d.text("capability_router_token"), d.text("token"))),
	}
}
