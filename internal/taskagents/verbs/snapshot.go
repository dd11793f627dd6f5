package verbs

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
	"github.com/junctor-run/junctor/secret"
)

// Snapshot holds the input of [Context].
type Snapshot struct {
	Workspaces    []workspace.Workspace // with a repository
	Sessions      []agents.Info         // that are live
	Tasks         []threads.Summary     // that have not ended
	Confirmations []row.PendingDecision // that wait for the user
	choice.State
}

// snapshot returns the input of [Context]. The lists of missing dependencies are empty.
func (v *verbs) snapshot(ctx context.Context) (s Snapshot, err error) {
	if v.cfg.Workspaces != nil {
		s.Workspaces = slices.DeleteFunc(v.cfg.Workspaces.List(), func(w workspace.Workspace) bool { return w.Mode == workspace.Folder })
	}
	if v.cfg.Agents != nil {
		s.Sessions = slices.DeleteFunc(v.cfg.Agents.List(), func(i agents.Info) bool { return !i.Live() })
	}
	s.State = v.cfg.Choice.State(ctx, choice.Task{})
	if v.cfg.Registry == nil {
		return s, nil
	}
	if s.Tasks, err = v.cfg.Registry.List(ctx, threads.Filter{Statuses: Unfinished(), Limit: maxTasks}); err == nil {
		s.Confirmations, err = v.cfg.Registry.Pending(ctx)
	}
	return s, err
}

// Context returns the text ACTIVE_WORKSPACE_CONTEXT. If it does not fit, each section has fewer
// lines and the number of lines that were left out.
func Context(s Snapshot) string {
	n := maxLines
	for {
		text := secret.MaskTokens(s.text(n))
		if len(text) <= MaxOutlook || n == 0 {
			return text
		}
		n--
	}
}

// text returns the text with at most n lines in each section.
func (s Snapshot) text(n int) string {
	var b strings.Builder
	b.WriteString("# Task agents\n")
	section(&b, n, "Decisions that wait for you", s.Confirmations, func(c row.PendingDecision) string {
		return fmt.Sprintf("%s: %s", c.SessionID, c.PromptText)
	})
	section(&b, n, "Agents", s.Sessions, func(i agents.Info) string {
		line := fmt.Sprintf("%s (%s, %s): %s", First(i.Name, i.ID), i.ID, i.AgentType, shown(i.Status))
		if i.Blocker != nil && i.Blocker.Prompt != "" {
			line += ", asks: " + i.Blocker.Prompt
		}
		return line
	})
	section(&b, n, "Tasks", s.Tasks, func(t threads.Summary) string { return fmt.Sprintf("%s (%s): %s", t.Title, t.ID, t.Status) })
	section(&b, n, "Workspaces", s.Workspaces, func(w workspace.Workspace) string {
		return fmt.Sprintf("%s (%s): %s, branch %s", First(w.Label, w.Repo.URL), w.ID, w.Repo.URL, w.Branch)
	})
	section(&b, n, "Programs", s.Frameworks, func(f choice.Framework) string { return fmt.Sprintf("%s: %s", f.ID, f.Reason) })
	if s.Preferred.ID != "" {
		fmt.Fprintf(&b, "\nPreferred program: %s\n", outlookLine(fmt.Sprintf("%s (%s)", s.Preferred.ID, s.Preferred.Reason)))
	}
	if len(s.Sessions)+len(s.Tasks) == 0 {
		b.WriteString("\nNo agent is at work.\n")
	}
	return b.String()
}

func section[T any](b *strings.Builder, n int, title string, list []T, show func(T) string) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n", title)
	for i, one := range list {
		if i == n {
			fmt.Fprintf(b, "- and %d more\n", len(list)-n)
			return
		}
		b.WriteString("- " + outlookLine(show(one)) + "\n")
	}
}

// outlookLine returns s on one line of bounded length.
func outlookLine(s string) string {
	// The text is masked before it is cut, because a cut credential is not recognised.
	return text.FitRunes(text.OneLine(secret.MaskTokens(strings.ToValidUTF8(s, ""))), maxLine)
}

// Examples returns the text CODING_AGENT_EXAMPLES: example calls of the verbs, with the program
// preferred if it is not "".
func Examples(preferred programs.Name) string {
	agent := ""
	if preferred != "" {
		agent = fmt.Sprintf(`, "agentType": %q`, preferred)
	}
	return `# Using task agents

"Fix the login bug in acme/widget":
CREATE_TASK {"task": "Fix the login bug: after a wrong password the page stays blank.", "repo": "acme/widget"` + agent + `}

"Write the parser, its tests and the docs":
CREATE_TASK {"agents": "write the parser | write the parser's tests | write its docs", "reuseRepo": true}

"Tell it to use TOML":
SEND_TO_AGENT {"input": "Use TOML for the configuration."}

An agent asks whether it may overwrite a file:
SEND_TO_AGENT {"sessionId": "pty-…", "input": "yes"}

"What are they doing?": LIST_AGENTS {}
"Put the parser on hold": TASK_CONTROL {"operation": "pause", "search": "parser"}
"Go on with it, but in Go": TASK_CONTROL {"operation": "continue", "search": "parser", "instruction": "Write it in Go."}
"What did you do yesterday?": TASK_HISTORY {"window": "yesterday"}
"Can I see it?": TASK_SHARE {}
"Make a pull request": FINALIZE_WORKSPACE {"commitMessage": "Fix the login page"}
"Open issues for these: …": MANAGE_ISSUES {"operation": "create", "repo": "acme/widget", "body": "- …\n- …"}

After CREATE_TASK say nothing more: the result is told when it is there.
`
}
