package extensions

import (
	"context"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/command"
	"github.com/junctor-run/junctor/internal/exec/api"
	"github.com/junctor-run/junctor/internal/provider/runner"
)

// apiRunner carries out api.get and the other calls of HTTP services.
type apiRunner struct{ *Runtime }

// Supports implements runner.Executor.
func (*apiRunner) Supports(name string) bool {
	return slices.Contains(strings.Fields("api.get api.post api.put api.patch api.delete api.head api.graphql api.call"), name)
}

// Needs implements runner.Executor.
func (*apiRunner) Needs(*command.Action) []string { return []string{"network"} }

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
	req.Extension, req.Version, req.User = x.ID, x.Version, r.Owner.Principal
	req.Policy = a.egress(&x.Package.Manifest)
	req.Timeout = r.Route.Action.Timeout
	got, err := a.calls.Do(ctx, req)
	if err != nil {
		if got.Status != 0 {
			e := *capability.AsError(err)
			return runner.Outcome{}, e.Detail("output", got.Output).Detail("status", got.Status)
		}
		return runner.Outcome{}, err
	}
	return runner.Outcome{Output: got.Output, Metadata: got.Metadata, Kept: got.Output != ""}, nil
}
