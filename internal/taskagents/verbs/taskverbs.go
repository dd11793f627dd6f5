package verbs

// This file has the four verbs about tasks: create, control, history and share. A verb resolves
// its parameters, calls the launcher or the registry, and describes the result; it stores
// nothing but the conversation's defaults.

import (
	"context"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/launch"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// taskLauncher starts and controls the work of threads. Package launch implements it.
type taskLauncher interface {
	Create(ctx context.Context, by capability.Principal, t launch.Task) (launch.Created, error)
	Control(ctx context.Context, by capability.Principal, c launch.Control) (launch.Controlled, error)
}

// taskRegistry is the part of threads.Registry that the verbs about tasks use.
type taskRegistry interface {
	List(ctx context.Context, f threads.Filter) ([]threads.Summary, error)
	Count(ctx context.Context, f threads.Filter) (int, error)
	Find(ctx context.Context, search, agent string) (threads.Summary, error)
	Detail(ctx context.Context, thread string, s threads.Selection) (threads.Detail, error)
	Session(ctx context.Context, id string) (row.Session, error)
	Share(ctx context.Context, thread string, roots threads.ShareRoots) (threads.Shared, error)
}

// Choice selects the program for a task.
type Choice interface {
	State(ctx context.Context, t choice.Task) choice.State
	// Fixed returns the program for all tasks, or "" if the best is selected for each.
	Fixed() programs.Name
}

// History is the part of [File] that the verbs use.
type History interface {
	Lessons() []Entry
	LastRepo() string
}

// Model completes prompts with a language model.
type Model interface {
	Ask(ctx context.Context, small bool, prompt string) (string, error)
}

// taskConfig holds the dependencies of the verbs. If Launcher or Registry is nil, the verbs that
// need it fail with SERVICE_UNAVAILABLE. Without Model tasks have no brief, and without History
// no lessons and no last repository. The other fields are required.
type taskConfig struct {
	Launcher taskLauncher
	Registry taskRegistry
	Choice   Choice
	History  History
	Model    Model
	Repos    bool               // tasks may have a repository
	Roots    threads.ShareRoots // folders whose files may be shared
	Talks    *Talks
	Now      func() time.Time
}

// taskVerbs implements the verbs about tasks.
type taskVerbs struct{ cfg taskConfig }

// newTaskVerbs returns the verbs about tasks.
func newTaskVerbs(cfg taskConfig) *taskVerbs { return &taskVerbs{cfg} }

// Table returns the verbs by name.
func (v *taskVerbs) Table() map[Name]Do {
	launcher, registry := v.cfg.Launcher != nil, v.cfg.Registry != nil
	return map[Name]Do{
		CreateTask:  Needs(launcher, v.Create),
		TaskControl: Needs(launcher && registry, v.control),
		TaskHistory: Needs(registry, v.history),
		TaskShare:   Needs(registry, v.share),
	}
}

// Pick returns the program for a task: the fixed one, otherwise wanted. If that program cannot
// reason about prose (Program.Terse) and the task is prose, Pick returns the preferred or best
// usable program that can, if there is one. "" leaves the choice to the launcher.
func (v *taskVerbs) Pick(ctx context.Context, wanted programs.Name, t choice.Task) programs.Name {
	if fixed := v.cfg.Choice.Fixed(); fixed != "" {
		wanted = fixed
	}
	if !programs.Of(wanted).Terse || !isProse(t.Text) {
		return wanted
	}
	state := v.cfg.Choice.State(ctx, t)
	reasons := func(f choice.Framework) bool { return !programs.Of(f.ID).Terse && f.Usable() }
	best := choice.Framework{}
	for _, f := range state.Frameworks {
		if reasons(f) && (best.ID == "" || f.ID == state.Preferred.ID || f.Score > best.Score && best.ID != state.Preferred.ID) {
			best = f
		}
	}
	if best.ID == "" {
		return wanted // no other program is usable
	}
	return best.ID
}
