package taskagents

import (
	"context"
	"fmt"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/taskagents/programs/preflight"
)

// Checks returns the doctor's results for programs, workspaces, the coordinator and
// sessions. A missing program or model is not a fault. A check fails if git or the
// repositories are not available, or if files of ended sessions could not be removed.
func (s *Service) Checks(ctx context.Context) []httpapi.Check {
	programs := httpapi.Check{Name: "task agents", OK: true, Detail: agentPrograms(s.workers.Programs(ctx))}
	places := httpapi.Check{
		Name: "workspaces", OK: s.folders.missing == nil,
		Detail: fmt.Sprintf("%d made folders", len(s.folders.scratch.List())),
	}
	if places.OK {
		places.Detail = fmt.Sprintf("%d repositories, ", len(s.folders.List())) + places.Detail
	} else {
		places.Detail = "no repositories, so task agents work in made folders: " + capability.AsError(s.folders.missing).Message
		places.Remedy = "install git, or mend what is said here, and restart"
	}
	judge := httpapi.Check{Name: "coordinator", OK: true, Detail: "a model answers what is routine"}
	if s.cfg.Model == nil {
		judge.Detail = "no model is configured (model.url), so what task agents ask is asked of you; that is fine if you want it so"
	}
	running := 0
	for _, one := range s.workers.List() {
		if one.Live() {
			running++
		}
	}
	live := httpapi.Check{Name: "sessions", OK: true, Detail: fmt.Sprintf("%d run", running)}
	if left := s.workers.Left(); len(left) > 0 {
		live.OK = false
		live.Detail = fmt.Sprintf("what was prepared for %d that have ended could not be taken away: %s", len(left),
			strings.Join(left[:min(len(left), 5)], ", "))
		live.Remedy = "the log says why; restarting tries again"
	}
	return []httpapi.Check{programs, places, judge, live}
}

// agentPrograms returns one line that lists the installed programs with version and login
// state, then the programs that are not installed.
func agentPrograms(list []preflight.Result) string {
	var here, missing []string
	for _, r := range list {
		name := string(r.Adapter)
		switch {
		case !r.Installed:
			missing = append(missing, name)
			continue
		case r.Error != "":
			name += " does not run (" + r.Error + ")"
		default:
			name = strings.TrimSpace(name + " " + r.Version)
			switch r.Auth.Status {
			case preflight.Authenticated:
			case preflight.Unauthenticated:
				name += " not logged in"
				if r.Auth.LoginHint != "" {
					name += " (" + r.Auth.LoginHint + ")"
				}
			case preflight.Unknown:
				name += ", login unknown"
			}
		}
		here = append(here, name)
	}
	text := strings.Join(here, ", ")
	if len(missing) > 0 {
		text += "; not installed: " + strings.Join(missing, ", ") + " (junctor frameworks list says how)"
	}
	return strings.TrimPrefix(text, "; ")
}
