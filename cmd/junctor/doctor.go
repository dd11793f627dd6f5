package main

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/server"
	"github.com/junctor-run/junctor/internal/server/checkup"
)

// doctorChecks returns the checks that need no server and, if a server answers, its checks.
func (a *app) doctorChecks(ctx context.Context) []httpapi.Check {
	home, err := a.findHome()
	if err != nil {
		return []httpapi.Check{failedCheck("home", err)}
	}
	settings := httpapi.Check{Name: "configuration", OK: true, Detail: "reads without a fault"}
	cfg, cfgErr := a.loadConfig(home, "", nil)
	if cfgErr != nil {
		settings = failedCheck("configuration", cfgErr)
	}
	checks := []httpapi.Check{{Name: "home", OK: true, Detail: home}, settings}
	if _, err := os.Stat(home); errors.Is(err, fs.ErrNotExist) {
		checks[0].Detail += ", which is not there yet: the first start makes it"
	}

	far := a.far() // the server may have another home
	answer, its := a.serverChecks(ctx)
	if line, err := server.ReadServer(home); !answer.OK && !far && (err != nil || answer.code == capability.CodeUnavailable) {
		answer.Check = silent(home, line)
	}
	checks = append(checks, answer.Check)
	if !far {
		knows, err := server.Schemas()
		if err != nil {
			return append(checks, failedCheck("database", err))
		}
		checks = append(checks, checkup.Look(ctx, checkup.Config{
			Home: home, Settings: cfg, Usable: cfgErr == nil, Knows: knows, Running: answer.OK || answer.code != capability.CodeUnavailable,
			Now: time.Now(),
		})...)
	}
	return append(checks, its...)
}

// silent is the check of a server that does not answer. Of one that ended in order nothing is in line.
func silent(home string, line server.ReadyLine) httpapi.Check {
	start := server.StartCommand(home)
	if line.PID != 0 {
		return checkup.Silent(home, line.URL, line.PID, start)
	}
	if _, err := os.Stat(filepath.Join(home, "state", "junctor.db")); err != nil {
		return httpapi.Check{
			Name: "server", Detail: "no server runs on this home yet",
			Remedy: "junctor setup starts one and connects your agents; without them: " + start,
		}
	}
	return httpapi.Check{
		Name: "server", Detail: "no server runs on this home; the last one was stopped and ended in order",
		Remedy: "start it again: " + start,
	}
}

// answered is the check whether the server answers, with the error code if it does not.
type answered struct {
	httpapi.Check
	code capability.Code
}

func (a *app) serverChecks(ctx context.Context) (answered, []httpapi.Check) {
	c, err := a.client()
	if err != nil {
		return answered{failedCheck("server", err), capability.CodeOf(err)}, nil
	}
	var out struct{ Checks []httpapi.Check }
	if err := c.Do(ctx, http.MethodGet, "/api/v1/doctor", nil, &out); err != nil {
		return answered{failedCheck("server", err), capability.CodeOf(err)}, nil
	}
	return answered{Check: httpapi.Check{Name: "server", OK: true, Detail: "answers at " + c.URL()}}, out.Checks
}

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Check this installation and say what to do about each fault", Args: cobra.NoArgs,
		Long: "Check this installation and say what to do about each fault. The exit status is 1 if\nthere is one.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			checks := a.doctorChecks(cmd.Context())
			bad := false
			for _, c := range checks {
				bad = bad || !c.OK
			}
			if err := a.printChecks(checks); err != nil {
				return err
			}
			if bad {
				return exitStatus(1)
			}
			return nil
		},
	}
}

// printChecks prints the results of the doctor, with their remedies.
func (a *app) printChecks(checks []httpapi.Check) error {
	if a.json {
		return a.printObject(map[string]any{"checks": checks})
	}
	for _, c := range checks {
		mark := "ok  "
		switch {
		case !c.OK:
			mark = "FAIL"
		case c.Remedy != "":
			mark = "warn"
		}
		a.printf("%s  %s: %s\n", mark, plainText(c.Name), plainText(c.Detail))
		if c.Remedy != "" {
			a.printf("      remedy: %s\n", plainText(c.Remedy))
		}
	}
	return nil
}

func failedCheck(name string, err error) httpapi.Check {
	e := capability.AsError(err)
	return httpapi.Check{Name: name, Detail: e.Message, Remedy: e.Hint}
}
