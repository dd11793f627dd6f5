package endpoint

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
	"github.com/junctor-run/junctor/internal/jsonx"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// CloudRequest asks a cloud for an agent that serves an endpoint (router spec,
// section 10.2).
type CloudRequest struct {
	APIBase      string
	AuthToken    secret.Value
	Name         string
	Bio          []string
	Token        secret.Value  // of the endpoint, when it is known before
	Timeout      time.Duration // of the whole provisioning; 0: 2 min
	PollInterval time.Duration // the first pause; 0: 2 s
}

// Provisioned names what the cloud made.
type Provisioned struct{ AgentID, JobID string }

const (
	cloudTimeout = 2 * time.Minute
	cloudPoll    = 2 * time.Second
	cloudAnswer  = 1 << 20
	// cleanupTime bounds the removal of an agent after a failure.
	cleanupTime = 10 * time.Second
)

// ConnectCloud has the cloud make an agent, waits until its endpoint serves
// plugins, and connects it. Whatever fails on the way removes the agent again.
func (r *Registry) ConnectCloud(ctx context.Context, cloud CloudRequest, req Request) (Status, Synced, Provisioned, error) {
	if _, err := r.running(); err != nil {
		return Status{}, Synced{}, Provisioned{}, err
	}
	c, err := r.newCloud(cloud)
	if err != nil {
		return Status{}, Synced{}, Provisioned{}, err
	}
	asking, cancel := context.WithTimeout(ctx, cmp.Or(cloud.Timeout, cloudTimeout))
	defer cancel()
	var made Provisioned
	if made.AgentID, err = c.create(asking, cloud); err != nil {
		return Status{}, Synced{}, made, err
	}
	ok := false
	defer func() {
		if ok {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		if _, err := c.call(ctx, http.MethodDelete, c.agent(made.AgentID), nil); err != nil {
			r.cfg.Logger.Error("a cloud agent was made for nothing and could not be removed", "agent", made.AgentID, "err", err)
		}
	}()
	ready, err := c.provision(asking, &made)
	if err == nil {
		req.BaseURL, req.Token = ready.url, cloud.Token
		if req.Token.Empty() {
			req.Token = secret.New(ready.token)
		}
		err = c.awaitPlugins(asking, req)
	}
	if err != nil {
		return Status{}, Synced{}, made, err
	}
	req.Provider, req.made = cloudProvider, true
	status, synced, err := r.Connect(ctx, req)
	ok = err == nil
	return status, synced, made, err
}

type cloudAPI struct {
	registry *Registry
	base     string
	auth     secret.Value
	poll     time.Duration
	http     *http.Client
}

func (r *Registry) newCloud(req CloudRequest) (*cloudAPI, error) {
	u, err := url.Parse(strings.TrimSpace(req.APIBase))
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil {
		return nil, cloudInput("cloud.cloudApiBase must be an http or https URL without credentials")
	}
	if req.AuthToken.Empty() || strings.TrimSpace(req.Name) == "" {
		return nil, cloudInput("cloud needs an authToken and a name")
	}
	if u.Host == "elizacloud.ai" || u.Host == "www.elizacloud.ai" {
		u.Host = "api.elizacloud.ai"
	}
	// The calls' paths begin with /api/v1; a base that has it already means the same.
	base := u.Scheme + "://" + u.Host + strings.TrimSuffix(strings.TrimRight(u.EscapedPath(), "/"), "/api/v1")
	return &cloudAPI{
		registry: r, base: base, auth: req.AuthToken, poll: cmp.Or(req.PollInterval, cloudPoll),
		http: &http.Client{Transport: r.cfg.Transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // it would carry the token elsewhere
		}},
	}, nil
}

func cloudInput(message string) error {
	return capability.Errorf(capability.CodeInvalidInput, "endpoints.connect", "%s", message)
}

func (c *cloudAPI) agent(id string) string { return "/api/v1/eliza/agents/" + url.PathEscape(id) }

func (c *cloudAPI) create(ctx context.Context, req CloudRequest) (string, error) {
	body := map[string]any{"agentName": req.Name, "statefulRuntime": true}
	if len(req.Bio) > 0 {
		body["agentConfig"] = map[string]any{"bio": req.Bio}
	}
	answer, err := c.call(ctx, http.MethodPost, "/api/v1/eliza/agents", body)
	if err != nil {
		return "", err
	}
	if id := answer.text("id"); id != "" {
		return id, nil
	}
	return "", cloudFailed("the cloud made an agent but did not say its id")
}

// located is where an agent's endpoint is.
type located struct{ url, token string }

func (c *cloudAPI) provision(ctx context.Context, made *Provisioned) (located, error) {
	answer, err := c.call(ctx, http.MethodPost, c.agent(made.AgentID)+"/provision", nil)
	if err != nil {
		return located{}, err
	}
	if at := answer.located(); at.url != "" {
		return at, nil
	}
	if made.JobID = answer.text("jobId"); made.JobID == "" {
		return located{}, cloudFailed("the cloud named neither the endpoint's URL nor a job to wait for")
	}
	var at located
	err = c.until(ctx, "the cloud's job "+made.JobID, func() (bool, error) {
		answer, err := c.call(ctx, http.MethodGet, "/api/v1/jobs/"+url.PathEscape(made.JobID), nil)
		if err != nil {
			return false, err
		}
		switch answer.text("status") {
		case "completed":
			if at = answer.result().located(); at.url == "" {
				return false, cloudFailed("the cloud's job is completed, but it does not name the endpoint's URL")
			}
			return true, nil
		case "failed":
			return false, cloudFailed("the cloud's job failed: " + cmp.Or(answer.text("error"), "it does not say why"))
		}
		return false, nil
	})
	return at, err
}

// awaitPlugins waits until the endpoint answers and serves plugins: an agent
// that has just been made is not up at once.
func (c *cloudAPI) awaitPlugins(ctx context.Context, req Request) error {
	client, err := router.NewClient(router.ClientConfig{
		BaseURL: req.BaseURL, Token: req.Token, Transport: c.registry.cfg.Transport, Timeout: probeTime,
	})
	if err != nil {
		return asCapability(err, "endpoints.connect")
	}
	return c.until(ctx, "the endpoint at "+client.BaseURL(), func() (bool, error) {
		a, err := client.Availability(ctx)
		if err != nil {
			err = asCapability(err, "endpoints.connect")
			if capability.AsError(err).Reason == reasonToken {
				return false, err // waiting does not help
			}
			return false, errAgain{err}
		}
		return a.Capabilities.Plugin, nil
	})
}

// errAgain is a failure that may pass.
type errAgain struct{ error }

// Unwrap returns the failure itself.
func (e errAgain) Unwrap() error { return e.error }

// until asks with growing pauses until done or the deadline.
func (c *cloudAPI) until(ctx context.Context, what string, done func() (bool, error)) error {
	var last error
	for pause := c.poll; ; pause = min(pause+pause/2, 8*c.poll) {
		ok, err := done()
		if again, passing := err.(errAgain); passing { //nolint:errorlint // made by done itself
			last = again.error
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

func cloudFailed(message string) error {
	return capability.Errorf(capability.CodeFailed, "endpoints.connect", "%s", message).With("provisioning_failed", "look at the agent in the cloud's console")
}

// call is one request. What the caller did wrong (4xx) is final; that the cloud
// is busy or broken may pass when somebody waits.
func (c *cloudAPI) call(ctx context.Context, method, path string, body any) (cloudAnswerDoc, error) {
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
	req.Header.Set("Authorization", "Bearer "+c.auth.Reveal())
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.passing(method, capability.Wrap(capability.CodeUnavailable, "endpoints.connect", "the cloud could not be reached", err))
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, cloudAnswer))
	if err != nil {
		return nil, c.passing(method, capability.Wrap(capability.CodeFailed, "endpoints.connect", "the cloud's answer broke off", err))
	}
	if resp.StatusCode >= 300 {
		failed := cloudFailed(fmt.Sprintf("the cloud answered %d to %s %s", resp.StatusCode, method, path))
		if resp.StatusCode >= 500 || resp.StatusCode == http.StatusRequestTimeout || resp.StatusCode == http.StatusTooManyRequests {
			return nil, c.passing(method, failed)
		}
		return nil, failed
	}
	var doc cloudAnswerDoc
	if len(bytes.TrimSpace(data)) > 0 && jsonx.Unmarshal(data, &doc) != nil {
		return nil, cloudFailed("the cloud's answer is not a JSON object")
	}
	return doc, nil
}

// passing marks a failed poll as one to try again; making something is not
// repeated, it could be made twice.
func (c *cloudAPI) passing(method string, err error) error {
	if method == http.MethodGet {
		return errAgain{err}
	}
	return err
}

// cloudAnswerDoc is a payload whose members may be nested in data.
type cloudAnswerDoc map[string]jsonx.Raw

func (d cloudAnswerDoc) text(name string) string {
	for _, doc := range []cloudAnswerDoc{d.inner("data"), d} {
		var s string
		if jsonx.Unmarshal(doc[name], &s) == nil && strings.TrimSpace(s) != "" {
			return strings.TrimSpace(s)
		}
	}
	return ""
}

func (d cloudAnswerDoc) inner(name string) (out cloudAnswerDoc) {
	_ = jsonx.Unmarshal(d[name], &out) // absent or of another shape: nothing
	return out
}

// result is what a job made: its result, in data or not, or the job itself.
func (d cloudAnswerDoc) result() cloudAnswerDoc {
	for _, doc := range []cloudAnswerDoc{d.inner("data").inner("result"), d.inner("result")} {
		if doc != nil {
			return doc
		}
	}
	return d
}

func (d cloudAnswerDoc) located() located {
	return located{
		cmp.Or(d.text("capabilityRouterUrl"), d.text("capability_router_url"), d.text("bridgeUrl"), d.text("bridge_url")),
		cmp.Or(d.text("capabilityRouterToken"), d.text("capability_router_token"), d.text("token")),
	}
}
