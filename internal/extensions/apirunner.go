package extensions

import (
	"context"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/exec/api"
	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
	"github.com/junctor-run/junctor/internal/extensions/runner"
)

// apiRunner runs api.get and the other api actions.
type apiRunner struct{ family }

// Execute implements runner.Executor.
func (a *apiRunner) Execute(ctx context.Context, r runner.Run) (runner.Outcome, error) {
	x, err := a.installed(r)
	if err != nil {
		return runner.Outcome{}, err
	}
	req, err := api.FromRoute(r.Route)
	if err != nil {
		return runner.Outcome{}, err
	}
	req.Extension, req.Version, req.User, req.Person = x.ID, x.Version, r.Owner.Principal, r.Person
	req.Policy = a.egress(&x.Package.Manifest)
	req.Timeout = r.Route.Action.Timeout
	if text, ok := r.Route.Flag("auth"); ok {
		if req.Auth, err = a.auth(ctx, x, text); err != nil {
			return runner.Outcome{}, err
		}
	}
	got, err := a.calls.Do(ctx, req)
	if err != nil {
		if got.Status != 0 {
			e := *capability.AsError(err)
			return runner.Outcome{}, e.Detail("output", got.Output).Detail("status", got.Status)
		}
		return runner.Outcome{}, err
	}
	return runner.Outcome{Output: got.Output, Stored: got.Body, Metadata: got.Metadata, Kept: got.Output != ""}, nil
}

// auth parses the flag --auth and sets its secret.
func (a *apiRunner) auth(ctx context.Context, x *lifecycle.Loaded, text string) (*api.Auth, error) {
	auth, name, err := api.ParseAuth(text)
	if err != nil {
		return nil, err
	}
	auth.Secret, err = a.secret(ctx, x, name)
	return &auth, err
}
