package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/tasks"
)

// taskRow is one task in the server's answers.
type taskRow struct {
	ID, Kind, State, Status, Surface, Provider, Thread string
	Created, Updated, Expires                          time.Time
	Requests                                           []struct {
		Key, Method, Approval string
		Params                struct {
			Message         string
			RequestedSchema struct {
				Properties map[string]struct {
					Type string
					Enum []string
				}
			}
			Meta struct {
				Blocker struct{ ID string }
			} `json:"_meta"`
		}
	}
	Result json.RawMessage
	Error  *struct{ Code, Reason, Message, Hint string }
}

const tasksPath = "/api/v1/tasks"

// answered reports whether the task was the answer to a message of the chat, which lists of tasks
// leave out once it is given.
func (t taskRow) answered() bool {
	return t.Kind == string(tasks.KindTurn) && tasks.State(t.State).Terminal()
}

// tasksCommand returns the commands about the caller's tasks: calls that outlive their requests, and
// work of task agents.
func (a *app) tasksCommand() *cobra.Command {
	var state, surface, cursor string
	var limit int
	list := &cobra.Command{
		Use: "list", Short: "List your tasks, the last changed first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{}
			for name, text := range map[string]string{"state": state, "surface": surface, "cursor": cursor} {
				if text != "" {
					q.Set(name, text)
				}
			}
			if limit != 0 {
				q.Set("limit", fmt.Sprint(limit))
			}
			return a.call(cmd.Context(), http.MethodGet, tasksPath+"?"+q.Encode(), nil, func(raw json.RawMessage) error {
				out, err := decode[struct {
					Tasks []taskRow
					Next  string
				}](raw)
				if err != nil {
					return err
				}
				var rows [][]string
				for _, t := range out.Tasks {
					if t.answered() && surface == "" && state == "" {
						continue
					}
					line, _, _ := strings.Cut(t.Status, "\n") // "tasks show" prints all of it
					rows = append(rows, []string{t.ID, t.State, t.Kind, t.Surface, when(t.Updated), dash(line)})
				}
				if err := a.table([]string{"ID", "STATE", "KIND", "SURFACE", "UPDATED", "MESSAGE"}, rows,
					"you have no such task; give one with: junctor tasks create TASK"); err != nil || out.Next == "" {
					return err
				}
				a.printf("there are more: --cursor %s\n", plainText(out.Next))
				return nil
			})
		},
	}
	f := list.Flags()
	f.StringVar(&state, "state", "", "`STATE` only this state: submitted, working, input_required, auth_required, completed, failed, rejected, cancelled or interrupted")
	f.StringVar(&surface, "surface", "", "`SURFACE` only tasks begun on this surface: a2a, mcp, agents or agent (the chat)")
	f.StringVar(&cursor, "cursor", "", "`CURSOR` go on where the last page ended")
	f.IntVar(&limit, "limit", 0, "at most so many, up to 100 (default 50)")
	show := &cobra.Command{
		Use: "show ID", Short: "Show a task, thread or session: its state, what it asks, its result", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case strings.HasPrefix(args[0], "pty-"):
				return a.call(cmd.Context(), http.MethodGet, sessionPath(args[0], ""), nil, a.printSession)
			case strings.HasPrefix(args[0], "thr_"):
				return a.call(cmd.Context(), http.MethodGet, threadPath(args[0], ""), nil, a.printThread)
			}
			return a.call(cmd.Context(), http.MethodGet, taskPath(args[0], ""), nil, a.printTask)
		},
	}
	cancel := &cobra.Command{
		Use: "cancel ID", Short: "Cancel a task and the work of its call", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodPost, taskPath(args[0], "/cancel"), map[string]any{}, a.printMoved)
		},
	}
	c := a.group("tasks", "Give work to task agents, and look after tasks, threads and sessions",
		append(a.workCommands(), a.taskDiffCommand(), a.taskCommentCommand(), a.taskMergeCommand(), a.taskPullCommand(),
			a.taskDiscardCommand(), list, show, cancel, a.tasksAnswerCommand(), a.attachCommand(), a.taskOpenCommand(), a.taskWatchCommand())...)
	c.Long = `Give work to task agents, and look after tasks, threads and sessions.

At a terminal, without a command, it is a board: the tasks by state, what each waits
for, and keys to answer, review, comment, merge, discard and attach. In a pipe it is
the list of tasks.`
	c.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return a.noVerb(cmd, args)
		case !a.json && !a.quiet && terminal(a.stdin) && terminal(a.stdout):
			return a.board(cmd.Context())
		}
		list.SetContext(cmd.Context())
		return list.RunE(list, nil)
	}
	return c
}

func taskPath(id, verb string) string { return tasksPath + "/" + url.PathEscape(id) + verb }

// printMoved prints the new state of a task.
func (a *app) printMoved(raw json.RawMessage) error {
	out, err := decode[struct{ Task taskRow }](raw)
	if err != nil {
		return err
	}
	a.printf("%s is %s\n", plainText(out.Task.ID), plainText(out.Task.State))
	return nil
}

func (a *app) printTask(raw json.RawMessage) error {
	out, err := decode[struct{ Task taskRow }](raw)
	if err != nil {
		return err
	}
	t := &out.Task
	rows := [][]string{
		{"id", t.ID},
		{"kind", t.Kind},
		{"state", t.State},
		{"message", dash(t.Status)},
		{"surface", t.Surface},
		{"provider", dash(t.Provider)},
		{"thread", dash(t.Thread)},
		{"created", when(t.Created)},
		{"updated", when(t.Updated)},
		{"expires", when(t.Expires)},
	}
	for i := range t.Requests {
		r := &t.Requests[i]
		r.Params.Message = text.VisibleLines(r.Params.Message) // users decide on it
		asked := r.Params.Message
		if r.Approval != "" {
			asked = strings.TrimSpace(asked + " (" + r.Approval + ")")
		}
		line, _, _ := strings.Cut(asked, "\n")
		rows = append(rows, []string{"asks " + r.Key, line})
	}
	if e := t.Error; e != nil {
		rows = append(rows, []string{"error", e.Code + ": " + e.Message})
	}
	if err := a.fields(rows); err != nil {
		return err
	}
	for _, r := range t.Requests {
		if strings.Contains(r.Params.Message, "\n") {
			a.printf("\n%s\n%s\n", plainText(r.Key), r.Params.Message)
		}
	}
	var said struct {
		Text  string
		Usage *usageRow
	}
	switch {
	case t.Kind == "thread" && json.Unmarshal(t.Result, &said) == nil && said.Text != "":
		a.printf("\n%s\n", plainLines(said.Text))
		if said.Usage != nil {
			a.printf("\nusage: %s\n", said.Usage)
		}
	case len(t.Result) > 0:
		a.printf("\n%s\n", plainText(string(t.Result)))
	}
	return nil
}
