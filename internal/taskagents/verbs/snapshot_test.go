package verbs_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
	"github.com/junctor-run/junctor/internal/taskagents/verbs"
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func session(id, label string, program programs.Name, state detect.State, asks string) (i agents.Info) {
	i.ID, i.Name, i.AgentType, i.Status = id, label, string(program), state
	if asks != "" {
		i.Blocker = &detect.Blocker{Prompt: asks}
	}
	return i
}

func task(id, title string) (s threads.Summary) {
	s.ID, s.Title, s.Status = id, title, row.ThreadActive
	return s
}

func place(id, label, repo, branch string) workspace.Workspace {
	return workspace.Workspace{ID: id, Label: label, Branch: branch, Repo: forge.Repo{URL: repo}}
}

func TestTheContext(t *testing.T) {
	t.Parallel()
	state := choice.Choose(choice.Input{
		Now: now, Candidates: []choice.Candidate{
			{Name: programs.Codex, Installed: true, AuthReady: true},
			{Name: programs.Claude, Installed: true, AuthReady: true},
			{Name: programs.Aider, Installed: true},
		},
		Book: choice.Snapshot{CoolDowns: map[programs.Name]choice.CoolDown{programs.Claude: {Until: now.Add(time.Hour), Reason: "usage limit"}}},
	})
	got := verbs.Context(verbs.Snapshot{
		Workspaces: []workspace.Workspace{place("ws1", "", "acme/widget", "eliza/1")}, Tasks: []threads.Summary{task("thr_1", "Fix the login")},
		Sessions: []agents.Info{
			session("pty-1-00000001", "fixer", programs.Codex, detect.Blocked, "May I\nwrite x?"),
			session("pty-1-00000002", "", programs.Shell, detect.Ready, ""),
		},
		Confirmations: []row.PendingDecision{{SessionID: "pty-1-00000001", PromptText: "Overwrite?"}}, State: state,
	})
	for _, part := range []string{
		"\n- pty-1-00000001: Overwrite?\n", "\n- fixer (pty-1-00000001, codex): blocked, asks: May I write x?\n",
		"\n- pty-1-00000002 (pty-1-00000002, shell): idle\n",
		"\n- Fix the login (thr_1): active\n", "\n- acme/widget (ws1): acme/widget, branch eliza/1\n",
		"- claude: installed, logged in, out of use until 2026-11-22T13:00:00Z (usage limit)", "\n- aider: ", "\n- gemini: not installed",
		"\nPreferred program: codex (",
	} {
		if !strings.Contains(got, part) {
			t.Errorf("%q is not in\n%s\nwant got with %v", part, got, part)
		}
	}
	if got := verbs.Context(verbs.Snapshot{}); got != "# Task agents\n\nNo agent is at work.\n" {
		t.Errorf(`%q; want got = "# Task agents\n\nNo agent is at work.\n"`, got)
	}
}

func TestTheContextIsBoundedAndHoldsNoCredential(t *testing.T) {
	t.Parallel()
	key := "ghp_" + strings.Repeat("a1B2", 9)
	var s verbs.Snapshot
	for i := range 300 {
		long := fmt.Sprint(i, strings.Repeat(" é", 80), key, strings.Repeat("ü", 300))
		s.Sessions = append(s.Sessions, session(fmt.Sprint("pty-", i), long, programs.Name(long), detect.Busy, key))
		s.Tasks = append(s.Tasks, task("t", long))
		s.Workspaces = append(s.Workspaces, place("w", long, key, key))
		s.Confirmations = append(s.Confirmations, row.PendingDecision{SessionID: key, PromptText: long})
		s.Frameworks = append(s.Frameworks, choice.Framework{ID: "codex", Reason: long, Installed: true, AuthReady: true})
	}
	s.Preferred = choice.Preferred{ID: "codex", Reason: key + strings.Repeat("x", 9_000)}
	got := verbs.Context(s)
	if len(got) > verbs.MaxOutlook || strings.Contains(got, "ghp_") || strings.Count(got, " more\n") != 5 ||
		!strings.Contains(got, "\n## Workspaces\n- ") {
		t.Errorf("%d bytes\n%s\nwant len(got) at most verbs.MaxOutlook, got without \"ghp_\", strings.Count(got, \" more\\n\") = 5, "+
			`got with "\n## Workspaces\n- "`, len(got), got)
	}
}

// Each example is a call of a verb that exists, with parameters that are JSON.
func TestTheExamplesAreCalls(t *testing.T) {
	t.Parallel()
	text := verbs.Examples(programs.Codex)
	calls := regexp.MustCompile(`(?m)\b([A-Z]{3,}_[A-Z_]+) (\{.*\})$`).FindAllStringSubmatch(text, -1)
	if len(calls) < 10 || len(text) > verbs.MaxOutlook {
		t.Errorf("%d calls in %d bytes; want len(calls) at least 10, len(text) at most verbs.MaxOutlook", len(calls), len(text))
	}
	for _, c := range calls {
		if _, _, ok := verbs.Lookup(c[1]); !ok || !json.Valid([]byte(c[2])) {
			t.Errorf("%s; want ok = true, json.Valid([]byte(c[2]))", c[0])
		}
	}
	if !strings.Contains(text, `"agentType": "codex"`) || strings.Contains(verbs.Examples(""), "agentType") {
		t.Error("the preferred program")
	}
}

func FuzzContext(f *testing.F) {
	f.Add("a", "b", 3)
	f.Fuzz(func(t *testing.T, a, b string, n int) {
		var s verbs.Snapshot
		for range n % 50 {
			s.Sessions = append(s.Sessions, session(a, b, programs.Name(a), detect.State(b), a))
			s.Tasks = append(s.Tasks, task(b, a))
		}
		if got := verbs.Context(s); len(got) > verbs.MaxOutlook || !strings.HasPrefix(got, "# Task agents\n") {
			t.Errorf(`%d bytes: %q; want len(got) at most verbs.MaxOutlook, got beginning with "# Task agents\n"`, len(got), got)
		}
	})
}
