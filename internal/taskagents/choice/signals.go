package choice

import (
	"cmp"
	"regexp"
)

// Task describes a task for the choice of its program.
type Task struct {
	Text     string
	Repo     bool // it has a repository
	Workdir  bool // it has a folder to work in
	Criteria bool // it has acceptance criteria
	Subtasks int
	Kind     string // coding, research, planning, ops or mixed, if the caller said so; "": by its words
}

// Signals grades each sort of work from 0 to 1: its share in a task, or a program's ability.
type Signals struct {
	Implementation float64 `json:"implementation"`
	Research       float64 `json:"research"`
	Planning       float64 `json:"planning"`
	Ops            float64 `json:"ops"`
	Verification   float64 `json:"verification"`
	Coordination   float64 `json:"coordination"`
	RepoWork       float64 `json:"repoWork"`
	FastIteration  float64 `json:"fastIteration"`
}

// fit returns the sum of the task's signals, weighted with a program's abilities.
func (s Signals) fit(good Signals) float64 {
	return s.Implementation*good.Implementation*18 + s.Research*good.Research*16 + s.Planning*good.Planning*14 + s.Ops*good.Ops*12 +
		s.Verification*good.Verification*14 + s.Coordination*good.Coordination*14 + s.RepoWork*good.RepoWork*10 +
		s.FastIteration*good.FastIteration*10
}

// words holds the words of each signal. They match as whole words, ignoring case.
type words struct {
	implementation, research, planning, ops, verification, coordination, repo, fast *regexp.Regexp
}

func list(alternatives string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(` + alternatives + `)\b`)
}

var lists = words{
	implementation: list(`code|coding|implement|fix|debug|refactor|write|build|patch|feature|server|api|component|function|typescript|javascript|react`),
	research:       list(`research|investigate|analy[sz]e|analysis|compare|evaluate|review|study|summari[sz]e|look\s+into|explore`),
	planning:       list(`plan|planning|roadmap|strategy|spec|architecture|design|scope|milestone|sequence|timeline`),
	ops:            list(`deploy|release|ship|rollback|monitor|incident|infra|infrastructure|configure|setup|docker|kubernetes|ci|cd|runbook`),
	verification:   list(`tests?|verify|validation|prove|acceptance|check|regression|benchmark|lint|typecheck|qa`),
	coordination:   list(`parallel|delegate|subagent|swarm|coordinate|handoff|mailbox|scheduler|orchestrate`),
	repo:           list(`repo|repository|branch|commit|pull\s+request|pr|diff|workspace|file|directory|codebase`),
	fast:           list(`fix|debug|patch|flaky|quick|fast|iterate|loop|unblock|repair`),
}

// KindOf returns the main sort of work of a text by its words: coding, research, planning or ops.
func KindOf(text string) string {
	text = text[:min(len(text), maxText)]
	switch {
	case lists.ops.MatchString(text):
		return "ops"
	case lists.planning.MatchString(text):
		return "planning"
	case lists.research.MatchString(text) && !lists.implementation.MatchString(text):
		return "research"
	}
	return "coding"
}

// Signals returns the signals of a task, by its words and its other fields.
func (t Task) Signals() Signals {
	t.Text = t.Text[:min(len(t.Text), maxText)]
	kind := cmp.Or(t.Kind, KindOf(t.Text))
	value := func(words *regexp.Regexp, hit, miss float64, plus ...float64) float64 {
		v := miss
		if words.MatchString(t.Text) {
			v = hit
		}
		for _, p := range plus {
			v += p
		}
		return min(max(v, 0), 1)
	}
	when := func(yes bool, v float64) float64 {
		if yes {
			return v
		}
		return 0
	}
	is := func(k string) float64 { return when(kind == k, .4) + when(kind == "mixed", .25) }
	return Signals{
		Implementation: value(lists.implementation, .7, .2, when(t.Repo || t.Workdir, .15), is("coding")),
		Research:       value(lists.research, .7, .1, is("research")),
		Planning:       value(lists.planning, .75, .1, is("planning")),
		Ops:            value(lists.ops, .75, .05, is("ops")),
		Verification:   value(lists.verification, .8, .15, when(t.Criteria, .15)),
		Coordination:   value(lists.coordination, .7, .05, when(t.Subtasks > 1, .25)),
		RepoWork:       value(lists.repo, .7, .1, when(t.Repo, .25)),
		FastIteration:  value(lists.fast, .75, .15, when(kind == "coding", .1)),
	}
}
