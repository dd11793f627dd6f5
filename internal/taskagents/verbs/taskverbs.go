package verbs

// This file has the four verbs about tasks: begin one, control it, look back at what was
// done, and show what came of it. A verb finds out what is meant, calls the part that does
// it, and says in words what came of it; no verb keeps a thing or decides about one.

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

// taskLauncher begins and controls the work of threads; it is package launch's.
type taskLauncher interface {
	Create(ctx context.Context, by capability.Principal, t launch.Task) (launch.Created, error)
	Control(ctx context.Context, by capability.Principal, c launch.Control) (launch.Controlled, error)
}

// taskRegistry is what is used of threads.Registry.
type taskRegistry interface {
	List(ctx context.Context, f threads.Filter) ([]threads.Summary, error)
	Count(ctx context.Context, f threads.Filter) (int, error)
	Find(ctx context.Context, search, agent string) (threads.Summary, error)
	Detail(ctx context.Context, thread string, s threads.Selection) (threads.Detail, error)
	Session(ctx context.Context, id string) (row.Session, error)
	Share(ctx context.Context, thread string, roots threads.ShareRoots) (threads.Shared, error)
}

// Choice states which program does a task.
type Choice interface {
	State(ctx context.Context, t choice.Task) choice.State
	// Fixed is the program that does every task, "" where the best is chosen for each.
	Fixed() programs.Name
}

// History is what is used of history.File.
type History interface {
	Lessons() []Entry
	LastRepo() string
}

// Model is what is used of a language model.
type Model interface {
	Ask(ctx context.Context, small bool, prompt string) (string, error)
}

// taskConfig is what the verbs work with. Without Launcher or Registry the verbs that need them
// answer SERVICE_UNAVAILABLE; without Model no brief is written, without History there are
// no lessons and no last repository. The others are required.
type taskConfig struct {
	Launcher taskLauncher
	Registry taskRegistry
	Choice   Choice
	History  History
	Model    Model
	Repos    bool               // tasks may have a repository
	Roots    threads.ShareRoots // what may be shown
	Talks    *Talks
	Now      func() time.Time
}

// taskVerbs are the verbs.
type taskVerbs struct{ cfg taskConfig }

// newTaskVerbs makes the verbs.
func newTaskVerbs(cfg taskConfig) *taskVerbs { return &taskVerbs{cfg} }

// Table is every verb by its name.
func (v *taskVerbs) Table() map[Name]Do {
	launcher, registry := v.cfg.Launcher != nil, v.cfg.Registry != nil
	return map[Name]Do{
		CreateTask:  Needs(launcher, v.Create),
		TaskControl: Needs(launcher && registry, v.control),
		TaskHistory: Needs(registry, v.history),
		TaskShare:   Needs(registry, v.share),
	}
}

// Pick is the program for a task: the fixed one, else the one that was asked for; in place of
// a shell, or of Pi, the best that can reason where the task is written for a reader. ""
// leaves the choice to the launcher.
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
		return wanted // nothing else can be used
	}
	return best.ID
}
