package sources

import (
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
	"github.com/junctor-run/junctor/internal/extensions/manifest"
)

// Framework is one coding-agent program as its preflight found it.
type Framework struct {
	ID            string // claude, codex, gemini, aider, pi, opencode, shell, …
	Installed     bool
	Authenticated string // authenticated, unauthenticated, unknown
	Rank          int    // from the subscription hint: bigger is better
	Version       string
}

// verb is one action of the task agents: its family (decision R16), its own name
// and the older names that calls may use.
type verb struct {
	name    string
	action  capability.Action
	aliases string
}

func verbs() []verb {
	return []verb{
		{"CREATE_TASK", "task-agent.task.create", "START_CODING_TASK LAUNCH_CODING_TASK RUN_CODING_TASK START_AGENT_TASK SPAWN_AND_PROVISION CODE_THIS LAUNCH_TASK CREATE_SUBTASK"},
		{"SPAWN_AGENT", "task-agent.spawn", "SPAWN_CODING_AGENT"},
		{"SEND_TO_AGENT", "task-agent.send", "SEND_TO_CODING_AGENT"},
		{"LIST_AGENTS", "task-agent.list", "LIST_CODING_AGENTS"},
		{"STOP_AGENT", "task-agent.stop", "STOP_CODING_AGENT"},
		{"TASK_CONTROL", "task-agent.task.control", ""},
		{"TASK_HISTORY", "task-agent.task.history", ""},
		{"TASK_SHARE", "task-agent.task.share", ""},
		{"PROVISION_WORKSPACE", "workspace.provision", ""},
		{"FINALIZE_WORKSPACE", "workspace.finalize", ""},
		{"MANAGE_ISSUES", "workspace.issues.manage", ""},
	}
}

// VerbAction finds the family of a verb by its name or an older one, case aside.
func VerbAction(name string) (capability.Action, bool) {
	name = strings.ToUpper(strings.TrimSpace(name))
	for _, v := range verbs() {
		if v.name == name || slices.Contains(strings.Fields(v.aliases), name) {
			return v.action, true
		}
	}
	return "", false
}

// frameworkNames are what people call the frameworks (task-agents spec, section
// 5.1), without case, blanks, '_' and '-'.
func frameworkNames(id string) []string {
	switch id {
	case "claude":
		return []string{"claude", "claudecode"}
	case "codex":
		return []string{"codex", "openai", "openaicodex"}
	case "gemini":
		return []string{"gemini", "google", "geminicli"}
	case "pi":
		return []string{"pi", "piai", "picodingagent"}
	case "opencode":
		return []string{"opencode", "opencodeagent"}
	case "shell":
		return []string{"shell", "bash"}
	}
	return []string{id}
}

// TaskAgents maps the verbs to extension task-agent, one contribution each, and
// every framework to a runtime backend of class task-agent. A framework that is not
// installed or not signed in is unhealthy; one of which nobody knows whether it is
// signed in is degraded, so that it is taken only when nothing better is there. The
// old names are aliases of the contributions: they resolve, are never listed and
// reserve nothing.
func TaskAgents(frameworks []Framework) (manifest.Extension, []string, error) {
	var r report
	x := manifest.Extension{ID: "task-agent", Name: "Task agents", Label: "task-agent", Origin: "bundled"}
	for _, v := range verbs() {
		id, _ := naming.Slug(strings.ToLower(v.name))
		x.Contributions = append(x.Contributions, manifest.Contribution{
			ID: id, Kind: "capability.agent-tool", Title: v.name, Actions: []capability.Action{v.action},
			Tool: &manifest.Tool{Name: v.name, Aliases: append([]string{v.name}, strings.Fields(v.aliases)...)},
		})
	}
	doubled := twice(frameworks, func(f Framework) string { return f.ID })
	for _, f := range frameworks {
		if id, exact := naming.Slug(f.ID); !exact || doubled[f.ID] || len(id) > 64 {
			r.add("framework %s is dropped: its id is no id, or is given twice", shown(f.ID))
			continue
		}
		health := capability.HealthUnhealthy
		switch {
		case f.Installed && f.Authenticated == "authenticated", f.Installed && f.ID == "shell":
			health = capability.HealthHealthy
		case f.Installed && f.Authenticated != "unauthenticated":
			health = capability.HealthDegraded
		}
		x.Contributions = append(x.Contributions, manifest.Contribution{
			ID: "framework." + f.ID, Kind: "capability.runtime-backend", Title: title(f.ID),
			Backend:     &manifest.Backend{Class: "task-agent", ID: f.ID, Selectors: frameworkNames(f.ID), Exclusivity: "shared", Health: health},
			Arbitration: &manifest.Arbitration{Rank: f.Rank},
		})
	}
	return finish(x, &r)
}
