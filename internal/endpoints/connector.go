package endpoints

import (
	"context"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint"
	"github.com/junctor-run/junctor/internal/endpoints/routerserve"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/secret"
)

// connector implements [routerserve.Registry].
type connector struct{ *endpoint.Registry }

// Connect parses the trust options of a request and connects its endpoint.
func (e connector) Connect(ctx context.Context, who capability.Principal,
	in routerserve.ConnectRequest,
) (out routerserve.Connected, err error) {
	req := endpoint.Request{
		ID: in.ID, BaseURL: in.BaseURL, Provider: in.Provider, Token: in.Token, Timeout: in.Timeout, Persist: in.Persist,
		KeepMissing: in.KeepMissing, By: who,
	}
	if in.AllowedModuleIDs != nil {
		if req.AllowedModules, err = endpoint.ParseNames("allowedModuleIds", in.AllowedModuleIDs); err != nil {
			return out, err
		}
	}
	if in.TrustPolicy != nil {
		if req.TrustPolicy, out.Warnings, err = endpoint.ParseTrustPolicy(in.TrustPolicy); err != nil {
			return out, err
		}
	}
	var status endpoint.Status
	if c := in.Cloud; c != nil {
		var made endpoint.Provisioned
		status, out.Sync, made, err = e.ConnectCloud(ctx, endpoint.CloudRequest{
			APIBase: c.APIBase, AuthToken: c.AuthToken, Name: c.Name, Bio: c.Bio, Token: in.Token, Timeout: c.Timeout, PollInterval: c.PollInterval,
		}, req)
		out.AgentID, out.JobID = made.AgentID, made.JobID
	} else {
		status, out.Sync, err = e.Registry.Connect(ctx, req)
	}
	out.ID, out.BaseURL, out.HasToken = status.ID, status.BaseURL, status.HasToken
	return out, err
}

// Down implements routerserve.Registry.
func (e connector) Down() []routerserve.EndpointError {
	var down []routerserve.EndpointError
	for _, status := range e.List() {
		if (capability.Availability{State: status.State}).Eligible() {
			continue
		}
		code := capability.CodeUnavailable
		if status.State == capability.StateUnauthorized {
			code = capability.CodeUnauthenticated
		}
		down = append(down, routerserve.EndpointError{EndpointID: status.ID, Code: code, Message: status.Reason})
	}
	return down
}

// tokens keeps the tokens of endpoints in the store of secrets.
type tokens struct{ *secretstore.Store }

// Set implements endpoint.Secrets.
func (t tokens) Set(name string, value []byte) error {
	return t.Store.Set(name, secret.New(string(value)))
}
