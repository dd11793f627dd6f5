// Package choice selects the program that does a task and holds the settings of task agents.
// Each program is scored by whether it is installed and logged in, by how its strengths match
// the task, and by its past results. [Choose] is a pure function. A [Book] stores the past
// results and the programs whose account is exhausted; [Settings] stores what was changed
// while the server runs.
package choice

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
)

// Candidate is the state of a program on this machine.
type Candidate struct {
	Name              programs.Name
	Installed         bool
	AuthReady         bool // a user is logged in, or there is a key
	SubscriptionReady bool // the login is a subscription's
}

// Input is the input of [Choose].
type Input struct {
	Task       Task
	Candidates []Candidate // missing programs count as not installed
	Book       Snapshot
	Now        time.Time
	Default    programs.Name // default of the user's choice, or ""
	Fixed      bool          // strategy fixed: always Default, while it is usable
	// Subscription is agents.defaults.subscriptionProvider: anthropic-subscription,
	// openai-codex or openai-subscription; "" or another: no hint.
	Subscription string
}

// Framework is the state of one program.
type Framework struct {
	ID                programs.Name `json:"id"`
	Label             string        `json:"label"`
	Adapter           programs.Name `json:"adapter"`
	Installed         bool          `json:"installed"`
	AuthReady         bool          `json:"authReady"`
	SubscriptionReady bool          `json:"subscriptionReady"`
	Disabled          bool          `json:"temporarilyDisabled"`
	DisabledUntil     time.Time     `json:"temporarilyDisabledUntil,omitzero"`
	DisabledReason    string        `json:"temporarilyDisabledReason,omitempty"`
	Recommended       bool          `json:"recommended"`
	Reason            string        `json:"reason"`
	Score             int           `json:"selectionScore"`
	Signals           Signals       `json:"selectionSignals"`
}

// Usable reports whether the program can get a task now.
func (f *Framework) Usable() bool { return f.Installed && f.AuthReady && !f.Disabled }

// State is the result of [Choose], with the state of all programs.
type State struct {
	Frameworks   []Framework `json:"frameworks"` // in the order of their names
	Preferred    Preferred   `json:"preferred"`
	Subscription string      `json:"configuredSubscriptionProvider,omitempty"`
}

// Preferred is the selected program. If none is installed, it is the one with the best score,
// which cannot be started.
type Preferred struct {
	ID     programs.Name `json:"id"`
	Reason string        `json:"reason"`
}

// candidates returns the programs that can be selected, in the order of their names.
func candidates() []programs.Program {
	list := slices.DeleteFunc(programs.All(), func(p programs.Program) bool { return p.Title == "" })
	slices.SortFunc(list, func(a, b programs.Program) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return list
}

// Choose scores all programs and selects one. A disabled or missing program is not selected while
// another one is usable, even if it is the default.
func Choose(in Input) State {
	signals := in.Task.Signals()
	out := State{Subscription: in.Subscription}
	for _, p := range candidates() {
		f := Framework{ID: p.Name, Label: p.Title, Adapter: p.Name, Signals: signals}
		if i := slices.IndexFunc(in.Candidates, func(c Candidate) bool { return c.Name == p.Name }); i >= 0 {
			c := in.Candidates[i]
			f.Installed, f.AuthReady, f.SubscriptionReady = c.Installed, c.AuthReady, c.SubscriptionReady
		}
		if rest, cooling := in.Book.CoolDowns[p.Name]; cooling && in.Now.Before(rest.Until) {
			f.Disabled, f.DisabledUntil, f.DisabledReason = true, rest.Until, rest.Reason
		}
		f.Score = in.score(&f, signals, Signals(p.Strengths))
		f.Reason = f.reason()
		out.Frameworks = append(out.Frameworks, f)
	}
	best := in.best(out.Frameworks)
	best.Recommended = true
	out.Preferred = Preferred{best.ID, in.why(best)}
	return out
}

func (in *Input) score(f *Framework, signals, good Signals) int {
	score := -100
	if f.Installed {
		score = 40
	}
	if f.AuthReady {
		score += 18
	} else {
		score -= 25
	}
	if f.SubscriptionReady {
		score += 8
	}
	if f.Disabled {
		score -= 80
	}
	if f.ID == in.Default && f.Installed && !f.Disabled {
		score += 40
	}
	return score + round(signals.fit(good)) + in.hint(f) + round(in.Book.Metrics[f.ID].score(signals.FastIteration))
}

// hint returns the addition to the score for the configured subscription.
func (in *Input) hint(f *Framework) int {
	if !slices.Contains(programs.Of(f.ID).Subscriptions, in.Subscription) {
		return 0
	}
	if f.SubscriptionReady {
		return 18
	}
	return 6
}

// best returns the program with the highest score among the usable ones, otherwise among the
// installed ones, otherwise among all. Of equal ones it is the first by name.
func (in *Input) best(list []Framework) (best *Framework) {
	for _, fits := range []func(*Framework) bool{
		func(f *Framework) bool { return in.Fixed && f.ID == in.Default && f.Usable() },
		(*Framework).Usable,
		func(f *Framework) bool { return f.Installed },
		func(*Framework) bool { return true },
	} {
		for i := range list { // in the order of their names
			if f := &list[i]; fits(f) && (best == nil || f.Score > best.Score) {
				best = f
			}
		}
		if best != nil {
			break
		}
	}
	return best
}

func (f *Framework) reason() string {
	not := func(yes bool, what string) string {
		if yes {
			return what
		}
		return "not " + what
	}
	reason := not(f.Installed, "installed") + ", " + not(f.AuthReady, "logged in")
	if f.SubscriptionReady {
		reason += " by a subscription"
	}
	if f.Disabled {
		reason += ", out of use until " + f.DisabledUntil.UTC().Format(time.RFC3339) + " (" + f.DisabledReason + ")"
	}
	return reason
}

func (in *Input) why(f *Framework) string {
	switch {
	case f.ID == in.Default && f.Usable():
		return f.Label + " was chosen as the default"
	case !f.Installed:
		return "no agent's program is installed; " + f.Label + " would fit best"
	case !f.Usable():
		return fmt.Sprintf("nothing else is usable, and %s is %s", f.Label, f.Reason)
	}
	return fmt.Sprintf("%s fits best, with a score of %d: %s", f.Label, f.Score, f.Reason)
}

// round rounds to the nearest integer, halves up.
func round(x float64) int { return int(math.Floor(x + .5)) }
