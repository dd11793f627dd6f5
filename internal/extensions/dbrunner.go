package extensions

import (
	"context"
	"os"
	"path/filepath"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
	"github.com/junctor-run/junctor/internal/extensions/exec/db"
	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
	"github.com/junctor-run/junctor/internal/extensions/runner"
	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
	"github.com/junctor-run/junctor/secret"
)

// openDatabases returns the executor of db actions, which starts this binary as worker.
func (x *Service) openDatabases() (*db.Executor, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return db.New(db.Config{Walls: x.box, Program: program, OnDecision: func(id string,
		d egress.Decision,
	) {
		x.decided(audit.Record{Extension: id}, d)
	}}), nil
}

// dbRunner runs db.query and the other db actions.
type dbRunner struct{ family }

// Needs implements runner.Executor. An action with a DSN needs network.
func (*dbRunner) Needs(a *command.Action) []string {
	return declaration.NeededPermissions(a.Runner, a.DSNRef != "")
}

// Execute implements runner.Executor.
func (d *dbRunner) Execute(ctx context.Context, r runner.Run) (runner.Outcome, error) {
	x, err := d.installed(r)
	if err != nil {
		return runner.Outcome{}, err
	}
	req, err := db.FromRoute(r.Route)
	if err != nil {
		return runner.Outcome{}, err
	}
	if ref := r.Route.Action.DSNRef; ref != "" {
		if req.DSN, err = d.dsn(ctx, x, ref); err != nil {
			return runner.Outcome{}, err
		}
		req.Policy = d.egress(&x.Package.Manifest)
	} else {
		req.Room = d.room(ctx, &x.Package.Manifest, filepath.Join(d.dir, x.ID), d.floor(x), r.Permissions)
		req.Room.Package = "" // the worker needs no file of the package
	}
	got, err := d.databases.Do(ctx, req)
	out := runner.Outcome{Output: got.Output, Metadata: got.Metadata, Kept: got.Output != ""}
	if err == nil && got.Placement.Tier != 0 {
		out.Ran.Sandbox, out.Metadata["sandbox"] = got.Placement.Tier.String(), walls(got.Placement, req.Room.Limits)
	}
	return out, err
}

// Preview implements runner.Previewer. It fails for a statement that cannot be run, so
// that no approval is requested for it.
func (*dbRunner) Preview(_ context.Context, r runner.Run, out *capability.Preview) error {
	req, err := db.FromRoute(r.Route)
	if err != nil {
		return err
	}
	dialect := db.SQLite
	out.Details["database"] = req.File
	if ref := r.Route.Action.DSNRef; ref != "" {
		dialect, out.Details["database"] = db.Postgres, "the server at the setting or secret "+ref
	}
	statement, kind, err := req.Check(dialect)
	if err == nil && !r.Route.Sensitive() {
		out.Details["statement"], out.Details["statement_kind"] = statement, kind
	}
	return err
}

// dsn returns the database address that an action names: a setting of its extension, or
// else a stored secret. If neither is set: invalid_input.
func (d *dbRunner) dsn(ctx context.Context, x *lifecycle.Loaded, ref string) (secret.Value, error) {
	settings, err := d.settings(ctx, x)
	if err != nil {
		return secret.Value{}, err
	}
	value := settings.secrets(map[string]string{"dsn": ref})["dsn"]
	if value.Empty() {
		return value, fault.InvalidArgs("store it: junctor secrets set "+ref,
			"the address of the database is not set: the action wants the setting or secret %s", ref)
	}
	return value, nil
}
