package main

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
)

// openRow is a session whose conversation may be continued.
type openRow struct {
	ID, AdapterType, Workdir, Status, ResumeToken, Name string
	ApprovalPreset                                      string
}

// live reports whether the program of the session runs.
func (r openRow) live() bool { return r.Status != "stopped" && r.Status != "error" }

// taskOpenCommand returns the command that continues a conversation in the terminal of its program.
func (a *app) taskOpenCommand() *cobra.Command {
	return &cobra.Command{
		Use: "open ID", Short: "Continue an ended session in the terminal of its program", Args: cobra.ExactArgs(1),
		Long: `Continue an ended session in the terminal of its program. ID is a session, or a thread
or task: then it is the last of its sessions. The conversation, the folder and the preset
are those of the session. Programs: ` + programs.Opened() + `.

While the program of the session runs, use: junctor tasks attach ID.`,
		Example: `  junctor tasks open thr_0123456789abcdef`,
		RunE:    func(cmd *cobra.Command, args []string) error { return a.open(cmd.Context(), args[0]) },
	}
}

// open starts the program in a terminal with the conversation of a session, and attaches to it unless
// standard input is not a terminal.
func (a *app) open(ctx context.Context, id string) error {
	s, err := a.lastSession(ctx, id)
	if err != nil {
		return err
	}
	body := map[string]any{"agentType": s.AdapterType, "workdir": s.Workdir, "resumeToken": s.ResumeToken, "mode": "terminal"}
	setText(body, "name", s.Name)
	setText(body, "approvalPreset", s.ApprovalPreset)
	body["metadata"] = map[string]any{"keepAliveAfterComplete": true}
	var made struct{ Session struct{ ID string } }
	c, err := a.client()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err = c.Do(ctx, http.MethodPost, agentsPath+"/spawn", body, &raw); err == nil {
		made, err = decode[struct{ Session struct{ ID string } }](raw)
	}
	switch {
	case err != nil:
		return err
	case a.json:
		return a.printJSON(raw)
	case !terminal(a.stdin):
		a.printf("session %s continues it; type into it at a terminal with: junctor tasks attach %[1]s\n", plainText(made.Session.ID))
		return nil
	}
	return a.attach(ctx, made.Session.ID, false)
}

// lastSession returns the session, or the last one of a thread or task. It fails with conflict if the
// program runs, and with invalid_input if its terminal cannot continue the conversation.
func (a *app) lastSession(ctx context.Context, id string) (openRow, error) {
	const op = "tasks.open"
	thread, err := a.threadOf(ctx, id)
	if err != nil {
		return openRow{}, err
	}
	c, err := a.client()
	if err != nil {
		return openRow{}, err
	}
	var s openRow
	if strings.HasPrefix(thread, "thr_") {
		var t struct {
			Sessions []struct {
				SessionID, Framework, Workdir, Label string
				Metadata                             struct{ ResumeToken, ApprovalPreset string }
			}
		}
		if err := c.Do(ctx, http.MethodGet, threadPath(thread, ""), nil, &t); err != nil {
			return openRow{}, err
		}
		if len(t.Sessions) == 0 {
			return openRow{}, capability.Errorf(capability.CodeNotFound, op, "no agent has worked on %s", id)
		}
		last := t.Sessions[len(t.Sessions)-1]
		s = openRow{
			ID: last.SessionID, AdapterType: last.Framework, Workdir: last.Workdir, Status: "stopped", Name: last.Label,
			ResumeToken: last.Metadata.ResumeToken, ApprovalPreset: last.Metadata.ApprovalPreset,
		}
	} else if err := c.Do(ctx, http.MethodGet, sessionPath(thread, ""), nil, &s); err != nil {
		return openRow{}, err
	}
	if program := programs.Of(programs.Name(s.AdapterType)); !program.Opens || s.ResumeToken == "" {
		why := "its program did not name the conversation"
		if !program.Opens {
			why = "the terminal of " + string(program.Name) + " does not continue conversations of its protocol"
		}
		return openRow{}, capability.Errorf(capability.CodeInvalidInput, op, "session %s cannot be opened: %s", s.ID, why).
			With("not_resumable", "go on with it by: junctor tasks send "+id+" TEXT")
	}
	var all []openRow
	if err := c.Do(ctx, http.MethodGet, agentsPath, nil, &all); err != nil {
		return openRow{}, err
	}
	at := slices.IndexFunc(all, func(o openRow) bool { return o.live() && (o.ID == s.ID || o.ResumeToken == s.ResumeToken) })
	if at >= 0 {
		return openRow{}, capability.Errorf(capability.CodeConflict, op, "the conversation goes on in session %s", all[at].ID).
			With("session_runs", "watch it with: junctor tasks attach "+all[at].ID+"; end it with: junctor tasks stop "+all[at].ID)
	}
	return s, nil
}
