package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/chat/agent"
	"github.com/junctor-run/junctor/internal/core/command/fault"
)

const agentRunsPath = "/api/v1/agent/runs"

type agentRunRow struct {
	ID         string
	Person     string
	Session    string
	State      string
	Approvals  []string
	Error      *capability.Error
	ModelCalls int
	ToolCalls  int
	Tokens     int
	Cost       float64
	Calls      []struct {
		Name, Invocation, Effect, Approval string
		Failed                             bool
	}
	Created time.Time
	Updated time.Time
}

// agentCommand returns the commands about the agent's runs by the name of the agent.
func (a *app) agentCommand() *cobra.Command {
	c := a.group("agent", "See and cancel the runs of the agent", a.agentVerbs()...)
	c.Hidden = true
	return c
}

// agentVerbs returns the commands about the runs of the agent.
func (a *app) agentVerbs() []*cobra.Command {
	filter := map[string]*string{"session": new(string), "state": new(string), "cursor": new(string)}
	list := &cobra.Command{
		Use: "runs", Short: "List what the agent works on and has answered", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{}
			for key, value := range filter {
				if *value != "" {
					q.Set(key, *value)
				}
			}
			return a.call(cmd.Context(), http.MethodGet, agentRunsPath+"?"+q.Encode(), nil, func(raw json.RawMessage) error {
				out, err := decode[struct {
					Runs []agentRunRow
					Next string
				}](raw)
				if err != nil {
					return err
				}
				var rows [][]string
				for _, r := range out.Runs {
					rows = append(rows, []string{r.ID, r.State, r.Session, dash(strings.Join(r.Approvals, " ")), when(r.Created)})
				}
				if out.Next != "" {
					defer a.note("there are more: junctor chat runs --after " + out.Next)
				}
				return a.table([]string{"ID", "STATE", "SESSION", "APPROVALS", "STARTED"}, rows,
					"the agent has answered nothing; ask it something with: junctor chat")
			})
		},
	}
	list.Flags().StringVar(filter["session"], "session", "", "`SESSION` only this conversation")
	list.Flags().StringVar(filter["state"], "state", "", "`STATE` only this state: working, waiting, completed, failed or cancelled")
	list.Flags().StringVar(filter["cursor"], "after", "", "`CURSOR` go on behind the list before")
	show := &cobra.Command{
		Use: "show ID", Short: "Show a run of the agent and the calls that it made", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodGet, agentRunsPath+"/"+url.PathEscape(args[0]), nil, func(raw json.RawMessage) error {
				r, err := decode[agentRunRow](raw)
				if err != nil {
					return err
				}
				rows := [][]string{
					{"id", r.ID},
					{"state", r.State},
					{"person", r.Person},
					{"session", r.Session},
					{"approvals", dash(strings.Join(r.Approvals, ", "))},
					{"model calls", strconv.Itoa(r.ModelCalls)},
					{"tool calls", strconv.Itoa(r.ToolCalls)},
					{"tokens", strconv.Itoa(r.Tokens)},
					{"cost", strconv.FormatFloat(r.Cost, 'f', 4, 64)},
					{"started", when(r.Created)},
					{"changed", when(r.Updated)},
				}
				if r.Error != nil {
					rows = append(rows, []string{"error", text.Visible(r.Error.Message)})
				}
				for _, c := range r.Calls {
					done := c.Effect + " " + c.Invocation
					if c.Failed {
						done = "failed " + c.Invocation
					}
					if c.Approval != "" {
						done += " " + c.Approval
					}
					rows = append(rows, []string{"call " + text.Visible(c.Name), done})
				}
				return a.fields(rows)
			})
		},
	}
	cancel := &cobra.Command{
		Use: "cancel ID", Short: "End a run of the agent", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodPost, agentRunsPath+"/"+url.PathEscape(args[0])+"/cancel", nil, func(json.RawMessage) error {
				a.note(args[0] + " ends")
				return nil
			})
		},
	}
	return []*cobra.Command{list, show, cancel, a.agentUsage(), a.agentRecord(), a.agentEval()}
}

// agentRecord returns the command that saves a run, so that it can be repeated offline.
func (a *app) agentRecord() *cobra.Command {
	return &cobra.Command{
		Use: "record ID", Short: "Print the recording of a completed run, for junctor chat eval", Args: cobra.ExactArgs(1),
		Long: `Print the recording of a completed run: the messages, the tools, what the model answered
and what calls returned. It contains the texts of the conversation.`,
		Example: "  junctor chat record tsk_6b07b3bb4336c95b9bf0a8be4336c95b",
		RunE: func(cmd *cobra.Command, args []string) error {
			path := agentRunsPath + "/" + url.PathEscape(args[0]) + "/recording"
			return a.call(cmd.Context(), http.MethodGet, path, nil, func(raw json.RawMessage) error {
				a.printf("%s\n", raw)
				return nil
			})
		},
	}
}

// agentEval returns the command that repeats recorded runs with the prompts of this version.
func (a *app) agentEval() *cobra.Command {
	var character string
	c := &cobra.Command{
		Use: "eval FILE...", Short: "Repeat recorded runs without a model and a server", Args: cobra.MinimumNArgs(1),
		Long: `Repeat recorded runs with the prompts and the loop of this version. The recorded model
answers a request only if each of its segments is the recorded one; otherwise the first
segment that differs is named. It needs no server.`,
		Example: `  junctor chat eval turns/*.json
  junctor chat eval --character ada.json turns/*.json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var persona *string
			if character != "" {
				read, err := agent.ReadCharacter(character)
				if err != nil {
					return err
				}
				read = agent.Persona(read)
				persona = &read
			}
			var rows [][]string
			missed := 0
			for _, name := range args {
				if info, err := os.Stat(name); err == nil && info.Size() > maxRecording {
					return capability.Errorf(capability.CodeTooLarge, "eval", "%s has more than %d bytes", name, maxRecording)
				}
				data, err := os.ReadFile(name)
				if err != nil {
					return capability.Wrap(capability.CodeInvalidInput, "eval", "a recording cannot be read: "+err.Error(), err)
				}
				rec, err := agent.ReadRecording(data)
				if err != nil {
					return err
				}
				v, err := agent.Replay(cmd.Context(), rec, persona)
				if err != nil {
					return err
				}
				result := "same"
				if v.Miss != "" {
					missed++
					result = text.Visible(v.Miss)
				}
				rows = append(rows, []string{name, strconv.Itoa(v.Exchanges) + " of " + strconv.Itoa(len(rec.Exchanges)), result})
			}
			if err := a.table([]string{"RECORDING", "REQUESTS", "RESULT"}, rows, ""); err != nil {
				return err
			}
			if missed > 0 {
				return capability.Errorf(capability.CodeConflict, "eval", "%d of %d recordings differ", missed, len(rows)).
					With("recording_differs", "if the change is meant, record the runs again with: junctor chat record")
			}
			return nil
		},
	}
	c.Flags().StringVar(&character, "character", "", "`FILE` the character to repeat them with, instead of the recorded one")
	return c
}

// agentUsage returns the command that shows what the agent used.
func (a *app) agentUsage() *cobra.Command {
	var days int
	c := &cobra.Command{
		Use: "usage", Short: "Show the agent's requests, tokens and cost by day and person", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			type row struct {
				Person, Day                   string
				ModelCalls, ToolCalls, Tokens int
				Cost                          float64
			}
			return shows(a, "/api/v1/agent/usage?days="+strconv.Itoa(days), func(out struct{ Usage []row }) error {
				var rows [][]string
				for _, r := range out.Usage {
					rows = append(rows, []string{
						r.Day, r.Person, strconv.Itoa(r.ModelCalls), strconv.Itoa(r.ToolCalls), strconv.Itoa(r.Tokens),
						strconv.FormatFloat(r.Cost, 'f', 4, 64),
					})
				}
				return a.table([]string{"DAY", "PERSON", "REQUESTS", "CALLS", "TOKENS", "COST"}, rows, "the agent was not used in this time")
			})(cmd, nil)
		},
	}
	c.Flags().IntVar(&days, "days", 7, "`N` of the last days (UTC), 366 at most")
	return c
}

// stopAgent ends what the agent does in a conversation.
func (a *app) stopAgent(server *client.Client, session string) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	body := map[string]any{"session_id": session, "text": "/stop"}
	if err := server.Do(ctx, http.MethodPost, "/api/v1/chat/messages", body, nil); err != nil {
		a.note("the agent may still work in the session " + session + ": junctor chat runs")
	}
}

// waiting is a run of the agent that waits for approvals.
type waiting struct {
	run, event string
	approvals  []string
}

// goOn shows the user each approval that a run waits for, with the whole input, sends the decisions,
// and prints what follows, until the run ends or an approval is left for later.
func (a *app) goOn(ctx context.Context, server *client.Client, lines *bufio.Scanner, w waiting) error {
	for {
		for _, id := range w.approvals {
			out, err := a.fetchApproval(ctx, id)
			if err != nil {
				return err
			}
			if out.one().State != "pending" {
				continue
			}
			if err := a.printApproval(out, true); err != nil {
				return err
			}
			decision := ""
			for decision == "" {
				a.printf("Approve once? yes, no, or later: ")
				if !lines.Scan() {
					return lines.Err()
				}
				switch strings.ToLower(strings.TrimSpace(lines.Text())) {
				case "y", "yes":
					decision = "once"
				case "n", "no":
					decision = "deny"
				case "l", "later":
					a.note("it waits: junctor approvals approve " + id)
					return nil
				}
			}
			if err := server.Do(ctx, http.MethodPost, string(currentApprovals)+"/"+url.PathEscape(id), map[string]string{"decision": decision},
				nil); err != nil {
				return err
			}
		}
		again, err := a.followRun(ctx, server, w)
		if err != nil || again == nil {
			return err
		}
		w = *again
	}
}

// printDeeds prints what a run has done, from the record: the reply may claim anything.
func (a *app) printDeeds(ctx context.Context, server *client.Client, id string) error {
	if a.json || id == "" {
		return nil
	}
	var r agentRunRow
	if err := server.Do(ctx, http.MethodGet, agentRunsPath+"/"+url.PathEscape(id), nil, &r); err != nil {
		a.note("what was done cannot be read: " + capability.AsError(err).Message)
		return ctx.Err()
	}
	deeds := make([]string, 0, len(r.Calls))
	for _, c := range r.Calls {
		deed := c.Name
		if c.Approval != "" {
			deed += " with approval " + c.Approval
		}
		if c.Failed {
			deed += " failed"
		}
		deeds = append(deeds, deed)
	}
	if open := r.ToolCalls - len(r.Calls); open > 0 && r.State == "failed" {
		deeds = append(deeds, fmt.Sprintf("%d calls were begun or refused, see junctor audit trail %s", open, id))
	}
	if len(deeds) == 0 {
		deeds = []string{"no tool was called"}
	}
	fmt.Fprintf(a.stderr, "(%s)\n", plainText(strings.Join(deeds, ", ")))
	return nil
}

// followRun prints a run after an event. It returns the run again if it waits for another approval,
// and nil at its end.
func (a *app) followRun(ctx context.Context, server *client.Client, w waiting) (*waiting, error) {
	path := agentRunsPath + "/" + url.PathEscape(w.run) + "/events?after=" + url.QueryEscape(w.event)
	for line, err := range server.Lines(ctx, http.MethodGet, path, nil) {
		if err != nil {
			return nil, err
		}
		ev, err := decode[struct {
			ID, Type, Text, Call, State string
			Approvals                   []string
			Error                       *capability.Error
		}](line)
		if err != nil {
			return nil, err
		}
		switch ev.Type {
		case "text":
			a.printf("%s", fault.Clean(ev.Text))
		case "text_reset":
			a.printf("\n(the model is asked again)\n")
		case "call":
			if ev.Call != "" {
				fmt.Fprintf(a.stderr, "… %s %s\n", plainText(ev.Call), ev.State)
			}
		case "park":
			a.printf("\n")
			return &waiting{w.run, ev.ID, ev.Approvals}, nil
		case "end":
			a.printf("\n")
			if ev.Error != nil {
				a.printf("%s\n", fault.Text(ev.Error, ""))
			}
			return nil, a.printDeeds(ctx, server, w.run)
		}
	}
	return nil, nil
}
