package endpoint

import (
	"cmp"
	"context"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// CloudRequest asks a cloud for an agent that serves an endpoint.
type CloudRequest struct {
	APIBase      string
	AuthToken    secret.Value
	Name         string
	Bio          []string
	Token        secret.Value  // of the endpoint, if known in advance
	Timeout      time.Duration // of the whole provisioning; 0: 2 min
	PollInterval time.Duration // the first pause; 0: 2 s
}

// Provisioned names the agent and job that the cloud created.
type Provisioned struct{ AgentID, JobID string }

// ConnectCloud lets the cloud create an agent, waits until the agent's endpoint serves
// plugins, and connects the endpoint. If any step fails, it removes the agent again.
func (r *Registry) ConnectCloud(ctx context.Context, cloud CloudRequest, req Request) (Status, Synced, Provisioned, error) {
	if _, err := r.running(); err != nil {
		return Status{}, Synced{}, Provisioned{}, err
	}
	c, err := NewCloudClient(CloudConfig{
		Base: cloud.APIBase, Token: cloud.AuthToken, Name: cloud.Name, Bio: cloud.Bio, Poll: cloud.PollInterval, Transport: r.cfg.Transport,
	})
	if err != nil {
		return Status{}, Synced{}, Provisioned{}, err
	}
	asking, cancel := context.WithTimeout(ctx, cmp.Or(cloud.Timeout, cloudTimeout))
	defer cancel()
	var made Provisioned
	if made.AgentID, err = c.Create(asking); err != nil {
		return Status{}, Synced{}, made, err
	}
	ok := false
	defer func() {
		if ok {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		if err := c.Remove(ctx, made.AgentID); err != nil {
			r.cfg.Logger.Error("a cloud agent was made for nothing and could not be removed", "agent", made.AgentID, "err", err)
		}
	}()
	ready, job, err := c.Provision(asking, made.AgentID)
	made.JobID = job
	if err == nil {
		req.BaseURL, req.Token = ready.URL, cloud.Token
		if req.Token.Empty() {
			req.Token = ready.Token
		}
		err = r.awaitPlugins(asking, c, req)
	}
	if err != nil {
		return Status{}, Synced{}, made, err
	}
	req.Provider, req.made = cloudProvider, true
	status, synced, err := r.Connect(ctx, req)
	ok = err == nil
	return status, synced, made, err
}

// awaitPlugins waits until the endpoint answers and serves plugins, because a new agent
// needs some time to start.
func (r *Registry) awaitPlugins(ctx context.Context, c *CloudClient, req Request) error {
	client, err := router.NewClient(router.ClientConfig{
		BaseURL: req.BaseURL, Token: req.Token, Transport: r.cfg.Transport, Timeout: probeTimeout,
	})
	if err != nil {
		return asCapability(err, "endpoints.connect")
	}
	return c.Until(ctx, "the endpoint at "+client.BaseURL(), func() (bool, error) {
		a, err := client.Availability(ctx)
		if err != nil {
			err = asCapability(err, "endpoints.connect")
			if capability.AsError(err).Reason == reasonToken {
				return false, err // waiting does not help
			}
			return false, RetryLater{Err: err}
		}
		return a.Capabilities.Plugin, nil
	})
}
