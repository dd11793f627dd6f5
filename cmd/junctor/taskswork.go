package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
)

const (
	agentsPath  = "/api/coding-agents"
	threadsPath = agentsPath + "/coordinator/threads"
)

// threadRow is a thread in the server's answers.
type threadRow struct {
	ID, Title, Kind, Status, Summary string
	OriginalRequest                  string
	UpdatedAt                        time.Time
	SessionCount, ActiveSessionCount int
	Usage                            *usageRow
	Sessions                         []struct {
		SessionID, Framework, Label, Status, Workdir, CompletionSummary string

		Metadata struct{ Usage *usageRow }
	}
	Events []struct{ EventType, Summary string }
}

// usageRow is what agents have used, as their programs report it.
type usageRow struct {
	InputTokens, OutputTokens int64
	CostUSD                   float64
}

// String returns the usage in words, and "-" if it is not known.
func (u *usageRow) String() string {
	if u == nil {
		return "-"
	}
	s := fmt.Sprintf("%d tokens in, %d out", u.InputTokens, u.OutputTokens)
	if u.CostUSD > 0 {
		s += fmt.Sprintf(", %.4f USD", u.CostUSD)
	}
	return s
}

type startedRow struct {
	SessionID, AgentType, Workdir, Label, Status string
	Error                                        *struct{ Message, Hint string }
}

// workCommands returns the commands about the work of task agents.
func (a *app) workCommands() []*cobra.Command {
	return []*cobra.Command{
		a.taskCreateCommand(), a.taskSendCommand(), a.taskStopCommand(), a.taskControlCommand(), a.taskHistoryCommand(), a.taskShareCommand(),
		a.taskExplainCommand(), a.taskTemplatesCommand(),
	}
}

func (a *app) taskCreateCommand() *cobra.Command {
	var file, template, agent, memory string
	var parts, after, criteria, set []string
	var wait, scratch, uncommitted, here, yes, noSetup bool
	text := map[string]*string{}
	c := &cobra.Command{
		Use: "create [TASK]", Short: "Give a task to one or more task agents", Args: cobra.MaximumNArgs(1),
		Long: `Give a task to one or more task agents. The task is one text, or one --part for each
agent (a text beside them says what the whole is about), a template, or a file. What
becomes of it: junctor tasks show ID.

Inside a git checkout each part works in a worktree of its own, on a branch
junctor/TASK/PART that starts from HEAD, and the checkout stays as it is. Then:
junctor tasks diff ID, junctor tasks merge ID, junctor tasks discard ID. What a worktree
needs before an agent starts can be in .junctor/task.yaml; you are shown it and asked.`,
		Example: `  junctor tasks create "Fix the flaky test" --repo owner/name --wait
  junctor tasks create "A health check" --part "api: Write it." --part "tests: Test it." --after tests:api
  junctor tasks create --template review
  junctor tasks create --file task.json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{}
			if file != "" {
				data, err := os.ReadFile(file)
				if err == nil {
					err = json.Unmarshal(data, &body)
				}
				if err != nil || body == nil { // null means absent
					return capability.Wrap(capability.CodeInvalidInput, "", fmt.Sprintf("the file %s cannot be read as a JSON object", file),
						err).With("", "docs/task-agents.md shows one")
				}
			}
			switch {
			case template != "":
				var err error
				if body, err = a.fromTemplate(template, agent, args, set); err != nil {
					return err
				}
			case len(set) > 0:
				return capability.Errorf(capability.CodeInvalidInput, "", "--set is for a template").With("", "name it with --template")
			case len(args) == 1:
				body["task"] = args[0]
			}
			if memory != "" {
				data, err := os.ReadFile(memory)
				if err != nil {
					return capability.Wrap(capability.CodeInvalidInput, "", "the file "+memory+" cannot be read", err).With("",
						"name a file that you may read with --memory")
				}
				body["memoryContent"] = string(data)
			}
			for name, value := range text {
				setText(body, name, *value)
			}
			if len(criteria) > 0 {
				body["acceptanceCriteria"] = criteria
			}
			var list []map[string]any
			for _, p := range parts {
				label, task, ok := strings.Cut(p, ":")
				if !ok {
					label, task = "", p
				}
				part := map[string]any{"task": strings.TrimSpace(task)}
				setText(part, "label", strings.TrimSpace(label))
				setText(part, "agentType", agent)
				list = append(list, part)
			}
			if err := addDependencies(list, after); err != nil {
				return err
			}
			if err := addCheckout(cmd.Context(), body, scratch, uncommitted, here); err != nil {
				return err
			}
			if noSetup {
				body["setup"] = "none"
			}
			if len(list) > 0 {
				body["agents"] = list
			} else {
				setText(body, "agentType", agent)
			}
			if wait && a.json { // one document: that of the end
				return a.createAndWait(cmd.Context(), body, yes)
			}
			var raw json.RawMessage
			if err := a.createTask(cmd.Context(), body, yes, &raw); err != nil {
				return err
			}
			out, err := decode[struct {
				ThreadID, Task string
				Agents         []startedRow
				Checkout       *checkoutRow
			}](raw)
			if err != nil {
				return err
			}
			if a.json {
				err = a.printJSON(raw)
			} else {
				a.printf("task    %s\nthread  %s\n", plainText(out.Task), plainText(out.ThreadID))
				a.printCheckout(out.Checkout, uncommitted)
				err = a.printStarted(out.Agents)
			}
			switch works := slices.ContainsFunc(out.Agents, func(s startedRow) bool { return s.Error == nil }); {
			case err != nil:
				return err
			case wait && out.Task != "":
				return a.waitForTask(cmd.Context(), out.Task)
			case !works:
				return exitStatus(1) // the rows say why no agent works on it
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&file, "file", "", "`FILE` JSON file with the whole request (docs/task-agents.md); flags count more")
	f.StringVar(&template, "template", "", "`NAME` template of the task (junctor tasks templates); flags count more")
	f.StringArrayVar(&set, "set", nil, "`NAME=VALUE` value of a placeholder of the template (repeatable)")
	c.MarkFlagsMutuallyExclusive("file", "template")
	f.StringVar(&agent, "agent", "", "`AGENT` program to use: "+programs.Choices()+" (default the one that fits best)")
	f.StringVar(&memory, "memory", "", "`FILE` file that every agent is given to read")
	f.StringArrayVar(&parts, "part", nil, "`LABEL:TASK` task of one agent among several (repeatable)")
	f.StringArrayVar(&criteria, "criterion", nil, "`TEXT` what the work is measured by (repeatable)")
	f.StringArrayVar(&after, "after", nil, "`LABEL:LABEL` the first part starts after the others, separated by commas, and has their work (repeatable)")
	f.BoolVar(&scratch, "scratch", false, "work in a new folder, also inside a checkout")
	f.BoolVar(&uncommitted, "include-uncommitted", false, "start from the uncommitted changes of the checkout too")
	f.BoolVar(&here, "here", false, "work in the checkout itself, on its files")
	f.BoolVar(&noSetup, "no-setup", false, "do not apply the .junctor/task.yaml of the checkout")
	f.BoolVar(&yes, "yes", false, "agree to the .junctor/task.yaml of the checkout, which is printed")
	f.BoolVar(&wait, "wait", false, "wait until it ends or asks something")
	for flag, of := range map[string][2]string{
		"label": {"label", "`LABEL` name of the agent"}, "repo": {"repo", "`REPO` repository: owner/name, a URL, or a folder that is allowed"},
		"base": {"baseBranch", "`BRANCH` branch to begin from (default the repository's own)"}, "workdir": {"workdir", "`DIR` folder to work in"},
		"preset": {"approvalPreset", "`PRESET` what agents may do: readonly, standard, permissive or autonomous"},
		"mode":   {"mode", "`MODE` structured or terminal (default structured, for a program with a protocol and a login)"},
		"brief":  {"brief", "`TEXT` plan that all agents share"},
	} {
		text[of[0]] = f.String(flag, "", of[1])
	}
	return c
}

func (a *app) printStarted(list []startedRow) error {
	var rows [][]string
	for _, s := range list {
		status := s.Status
		if s.Error != nil {
			status += ": " + s.Error.Message
		}
		rows = append(rows, []string{dash(s.SessionID), status, dash(s.AgentType), dash(s.Label), dash(s.Workdir)})
	}
	return a.table([]string{"SESSION", "STATE", "PROGRAM", "LABEL", "FOLDER"}, rows, "no agent works on it")
}

// createTask posts a task. If the repository has a setup that the user has not agreed to, the user is
// shown it and asked.
func (a *app) createTask(ctx context.Context, body map[string]any, yes bool, out any) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	return a.install(ctx, yes, func(agreed string) error {
		setText(body, "setup", agreed)
		return c.Do(ctx, http.MethodPost, threadsPath, body, out)
	})
}

// createAndWait creates a task, waits for its end or question, and prints only that.
func (a *app) createAndWait(ctx context.Context, body map[string]any, yes bool) error {
	var made struct{ Task string }
	if err := a.createTask(ctx, body, yes, &made); err != nil {
		return err
	}
	return a.waitForTask(ctx, made.Task)
}

// waitForTask waits until a task has completed or requires input, and prints it. It fails if the
// task failed or was cancelled, or ctx ends.
func (a *app) waitForTask(ctx context.Context, id string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		var raw json.RawMessage
		if err := c.Do(ctx, http.MethodGet, taskPath(id, ""), nil, &raw); err != nil {
			return err
		}
		out, err := decode[struct{ Task taskRow }](raw)
		if err != nil {
			return err
		}
		switch out.Task.State {
		case "submitted", "working":
		case "completed", "input_required", "auth_required":
			if a.json {
				return a.printJSON(raw)
			}
			return a.printTask(raw)
		default:
			failure := capability.Errorf(capability.CodeFailed, "tasks.create", "the task is %s: %s", out.Task.State, out.Task.Status)
			if e := out.Task.Error; e != nil {
				failure = failure.With(e.Reason, e.Hint)
			}
			return failure
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return capability.AsError(ctx.Err())
		}
	}
}

// threadOf returns the thread of a task's id; other ids are returned unchanged. It fails with
// invalid_input for a task without thread.
func (a *app) threadOf(ctx context.Context, id string) (string, error) {
	if !strings.HasPrefix(id, "tsk_") {
		return id, nil
	}
	c, err := a.client()
	if err != nil {
		return "", err
	}
	var out struct{ Task struct{ Thread string } }
	if err := c.Do(ctx, http.MethodGet, taskPath(id, ""), nil, &out); err != nil {
		return "", err
	}
	if out.Task.Thread == "" {
		return "", capability.Errorf(capability.CodeInvalidInput, "", "the task %s is a call: no agent's program works on it", id)
	}
	return out.Task.Thread, nil
}

// sessionOf returns the last live session of a thread or task; an id of a session is returned
// unchanged. It fails with not_found if no session is live.
func (a *app) sessionOf(ctx context.Context, id string) (string, error) {
	thread, err := a.threadOf(ctx, id)
	if err != nil || !strings.HasPrefix(thread, "thr_") {
		return thread, err
	}
	c, err := a.client()
	if err != nil {
		return "", err
	}
	var t threadRow
	if err := c.Do(ctx, http.MethodGet, threadPath(thread, ""), nil, &t); err != nil {
		return "", err
	}
	for _, s := range slices.Backward(t.Sessions) {
		switch s.Status {
		case "active", "tool_running", "blocked", "waiting_on_user":
			return s.SessionID, nil
		}
	}
	return "", capability.Errorf(capability.CodeNotFound, "", "no agent works on %s: it is %s", id, t.Status).
		With("", fmt.Sprintf("see the outcome with: junctor tasks show %s; continue with: junctor tasks control %s resume", thread, thread))
}

func sessionPath(id, verb string) string { return agentsPath + "/" + url.PathEscape(id) + verb }
func threadPath(id, verb string) string  { return threadsPath + "/" + url.PathEscape(id) + verb }

func (a *app) taskSendCommand() *cobra.Command {
	return &cobra.Command{
		Use: "send ID TEXT", Short: "Send text to an agent: a session, or the thread or task it works on", Args: cobra.ExactArgs(2),
		Example: `  junctor tasks send thr_0123456789abcdef "Also update the changelog"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.HasPrefix(args[0], "pty-") {
				return a.call(cmd.Context(), http.MethodPost, sessionPath(args[0], "/send"), map[string]any{"input": args[1]},
					func(raw json.RawMessage) error {
						out, err := decode[struct{ Outcome string }](raw)
						if err == nil {
							a.printf("%s\n", plainText(out.Outcome))
						}
						return err
					})
			}
			return a.control(cmd.Context(), args[0], map[string]any{"action": "continue", "instruction": args[1]})
		},
	}
}

func (a *app) taskStopCommand() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use: "stop ID", Short: "Stop a session, or all of a thread or task", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.HasPrefix(args[0], "pty-") {
				return a.call(cmd.Context(), http.MethodPost, sessionPath(args[0], "/stop"), map[string]any{"force": force},
					func(json.RawMessage) error {
						a.printf("%s is stopping\n", plainText(args[0]))
						return nil
					})
			}
			return a.control(cmd.Context(), args[0], map[string]any{"action": "stop"})
		},
	}
	c.Flags().BoolVar(&force, "force", false, "also when the program does not stop by itself: kill it at once")
	return c
}

// control performs an operation on a thread.
func (a *app) control(ctx context.Context, id string, body map[string]any) error {
	thread, err := a.threadOf(ctx, id)
	if err != nil {
		return err
	}
	return a.controlled(ctx, threadPath(thread, "/control"), body)
}

// controlled posts a request that changes a thread, and prints the result.
func (a *app) controlled(ctx context.Context, path string, body map[string]any) error {
	return a.call(ctx, http.MethodPost, path, body, func(raw json.RawMessage) error {
		out, err := decode[struct {
			ThreadID, Status, Task string
			Stopped                []string
			Agents                 []startedRow
		}](raw)
		if err != nil {
			return err
		}
		a.printf("%s is %s\n", plainText(out.ThreadID), plainText(out.Status))
		for _, s := range out.Stopped {
			a.printf("%s is stopping\n", plainText(s))
		}
		if len(out.Agents) == 0 {
			return nil
		}
		if out.Task != "" {
			a.printf("task    %s\n", plainText(out.Task))
		}
		return a.printStarted(out.Agents)
	})
}

func (a *app) taskControlCommand() *cobra.Command {
	var note, instruction, agent string
	c := &cobra.Command{
		Use: "control ID pause|stop|resume|continue|archive|reopen", Short: "Pause, stop, resume, continue, archive or reopen a thread",
		Args:    cobra.ExactArgs(2),
		Example: `  junctor tasks control thr_0123456789abcdef continue --instruction "Now write the tests"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{"action": args[1]}
			setText(body, "note", note)
			setText(body, "instruction", instruction)
			setText(body, "agentType", agent)
			return a.control(cmd.Context(), args[0], body)
		},
	}
	c.Flags().StringVar(&note, "note", "", "`TEXT` reason, or what the agent should know")
	c.Flags().StringVar(&instruction, "instruction", "", "`TEXT` what to do next, for continue")
	c.Flags().StringVar(&agent, "agent", "", "`AGENT` program to go on with, for resume and continue (default the one before)")
	return c
}
