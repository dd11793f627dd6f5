package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The lines that the person of the story writes.
const (
	storyCreate = "This is bigger than a simple reply. Create a background task to inspect the repo, fix the auth bug, and open a PR."
	storyList   = "What task agents are running?"
	storyAccept = "Tell it to accept the changes"
	storyPull   = "Create a PR for the fix"
)

// storyWork is what the shell carries out: it inspects, fixes, and asks before it keeps the change.
const storyWork = `grep -n check auth.txt && sed -i s/skipped/required/ auth.txt && ` +
	`read -r -p 'Accept the changes? (y/n) ' yes && [ "$yes" = y ] && ` +
	`git -c user.name=a -c user.email=a@example.com commit -q -a -m 'Fix the auth bug'`

// taskResult is the part of the results of task agents' tools that the model of the story reads.
type taskResult struct {
	Text string
	Data struct {
		Agents []struct {
			SessionID, Status string
		}
		Sessions []struct {
			SessionID, Label, AgentType, Status, Workdir string
		}
		Outcome string
		Commit  string
		Pull    struct {
			Number int
			URL    string
		}
	}
}

// storyModel makes one call for each line of the person, and answers with what its result has.
func storyModel(t *testing.T, origin string) func(int, modelRequest) modelAnswer {
	return func(_ int, r modelRequest) modelAnswer {
		if !r.Stream { // the coordinator of task agents
			return modelAnswer{text: sensible(r.last())}
		}
		line, results := "", 0
		for _, m := range r.Messages {
			if text, _ := m.Content.(string); m.Role == "user" {
				line, results = text, 0
				if parts, ok := m.Content.([]any); ok {
					last, _ := parts[len(parts)-1].(map[string]any)
					line, _ = last["text"].(string)
				}
			}
			if m.Role == "tool" {
				results++
			}
		}
		if results == 0 {
			input := map[string]any{}
			name, text := "", ""
			switch line {
			case storyCreate:
				name, text = "task-agent_task_create", "Starting a task agent for the repo work..."
				input = map[string]any{"task": storyWork, "agentType": "shell", "repo": origin, "label": "Fix the auth bug"}
			case storyList:
				name = "task-agent_list"
			case storyAccept:
				name, input = "task-agent_send", map[string]any{"input": "y"}
			case storyPull:
				name, input = "workspace_finalize", map[string]any{"prTitle": "Fix the auth bug"}
			default:
				return modelAnswer{text: "I do not understand: " + line}
			}
			return modelAnswer{text: text, calls: []toolCall{{name, mustJSON(t, input)}}}
		}
		var got taskResult
		if err := json.Unmarshal([]byte(r.last()), &got); err != nil {
			return modelAnswer{text: "The call failed: " + r.last()}
		}
		d := got.Data
		switch {
		case line == storyCreate && len(d.Agents) == 1:
			return modelAnswer{text: fmt.Sprintf("Session ID: %s, Status: %s", d.Agents[0].SessionID, d.Agents[0].Status)}
		case line == storyList:
			text := "Active task agents:"
			for i, s := range d.Sessions {
				text += fmt.Sprintf("\n%d. %s (%s) - %s\nWorking in: %s", i+1, s.AgentType, s.SessionID, s.Status, s.Workdir)
			}
			return modelAnswer{text: text}
		case line == storyAccept && d.Outcome == "delivered":
			return modelAnswer{text: fmt.Sprintf("Sent %q to the task agent.", "y")}
		case line == storyPull && d.Pull.Number > 0:
			return modelAnswer{text: fmt.Sprintf("Workspace finalized!\nCommit: %s\nPR #%d: %s", d.Commit, d.Pull.Number, d.Pull.URL)}
		}
		return modelAnswer{text: "Unexpected: " + r.last()}
	}
}

// TestAPersonDelegatesWorkInAConversation plays the conversation of docs/agent.md word for word: one
// conversation creates a task, lists it, answers what it asks and opens its pull request.
func TestAPersonDelegatesWorkInAConversation(t *testing.T) {
	t.Parallel()
	origin, seed := filepath.Join(t.TempDir(), "origin.git"), t.TempDir()
	if err := os.WriteFile(filepath.Join(seed, "auth.txt"), []byte("check: skipped\n"), 0o600); err != nil {
		t.Fatalf("write: got %v, want no error", err)
	}
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", seed},
		{"-C", seed, "add", "-A"},
		{"-C", seed, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "first"},
		{"clone", "-q", "--bare", seed, origin},
	} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: got %v and %s, want no error", args, err, out)
		}
	}
	model := newScriptedModel(t, storyModel(t, origin))
	n := serve(t, openHome(t), append(model.env(), "HOME="+t.TempDir(), "SHELL=/bin/bash", "JUNCTOR_AGENT_TOOLS=all",
		"JUNCTOR_AGENTS_REPOSITORIES="+filepath.Dir(origin))...)

	created := n.tell(t, "s1", storyCreate)
	is := regexp.MustCompile(`^Starting a task agent for the repo work\.\.\.\n\nSession ID: (pty-\S+), Status: \S+$`).
		FindStringSubmatch(created.Message.Text)
	if is == nil {
		t.Fatalf("the reply to the first line: got %+v, want the session of a task", created)
	}
	session := is[1]
	eventually(t, "the command asks", func() bool {
		screen := n.request(t, http.MethodGet, "/api/coding-agents/"+session+"/screen", n.token(t, "admin"), "").body
		return strings.Contains(screen, `"Accept the changes? (y/n)"`) && n.shown(t, session).Status == "busy"
	})
	list := n.tell(t, "s1", storyList).Message.Text
	dir := n.shown(t, session).Workdir
	want := "Active task agents:\n1. shell (" + session + ") - working\nWorking in: " + dir
	if list != want {
		t.Errorf("the reply to the second line: got %q, want %q", list, want)
	}
	if got := n.tell(t, "s1", storyAccept); got.Message.Text != `Sent "y" to the task agent.` {
		t.Errorf("the reply to the third line: got %+v, want that it was sent", got)
	}
	commit := func() string {
		out, err := exec.Command("git", "-C", dir, "log", "-1", "--format=%H %s").CombinedOutput()
		if err != nil {
			t.Fatalf("git log: got %v and %s, want no error", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	eventually(t, "the change is committed", func() bool { return strings.HasSuffix(commit(), " Fix the auth bug") })

	// The conversation has foreign text by now, so that an effect outside is the person's to approve.
	pull := n.tell(t, "s1", storyPull)
	if pull.Type != "confirmation" || exists(filepath.Join(origin, "junctor-pulls", "1.json")) {
		t.Fatalf("the reply to the last line: got %+v, want it to wait for an approval, and no pull request", pull)
	}
	n.decide(t, n.agentRun(t, pull.Run).Approval, "once")
	if got := n.ended(t, pull.Run); got.State != "completed" {
		t.Errorf("the last run: got %+v, want it completed", got)
	}
	history := n.history(t, "s1")
	want = "Workspace finalized!\nCommit: " + strings.Fields(commit())[0] + "\nPR #1: " + origin + "#1"
	if got := history[len(history)-1].Text; got != want {
		t.Errorf("the last reply: got %q, want %q", got, want)
	}
	out, err := exec.Command("git", "-C", origin, "show", "refs/pull/1/head:auth.txt").CombinedOutput()
	if err != nil || string(out) != "check: required\n" {
		t.Errorf("the file in the pull request: got %q and %v, want the fix", out, err)
	}
	var said []string
	for _, m := range history {
		if m.Role == "user" {
			said = append(said, m.Text)
		}
	}
	if lines := []string{storyCreate, storyList, storyAccept, storyPull}; !slices.Equal(said, lines) {
		t.Errorf("the person's lines in the history: got %q, want %q", said, lines)
	}
	var tasks struct {
		Tasks []struct{ Kind, State string }
	}
	eventually(t, "the task has ended well", func() bool {
		if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/tasks", nil, &tasks); err != nil {
			t.Fatalf("tasks: got %v, want no error", err)
		}
		return slices.ContainsFunc(tasks.Tasks, func(k struct{ Kind, State string }) bool {
			return k.Kind == "thread" && k.State == "completed"
		})
	})
	n.verify(t)
}
