package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/internal/base/text"
)

func (a *app) taskHistoryCommand() *cobra.Command {
	var search, statuses, kind string
	var limit int
	var archived bool
	c := &cobra.Command{
		Use: "history", Short: "List the threads that task agents worked on, the last active first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{}
			for name, text := range map[string]string{"search": search, "statuses": statuses, "kind": kind} {
				if text != "" {
					q.Set(name, text)
				}
			}
			if limit != 0 {
				q.Set("limit", strconv.Itoa(limit))
			}
			if archived {
				q.Set("includeArchived", "true")
			}
			return a.call(cmd.Context(), http.MethodGet, threadsPath+"?"+q.Encode(), nil, func(raw json.RawMessage) error {
				list, err := decode[[]threadRow](raw)
				if err != nil {
					return err
				}
				var rows [][]string
				for _, t := range list {
					rows = append(rows, []string{
						t.ID, t.Status, t.Kind, fmt.Sprintf("%d/%d", t.ActiveSessionCount, t.SessionCount), when(t.UpdatedAt),
						t.Title,
					})
				}
				return a.table([]string{"ID", "STATE", "KIND", "LIVE", "UPDATED", "TITLE"}, rows,
					"no thread matches; give a task with: junctor tasks create TASK")
			})
		},
	}
	f := c.Flags()
	f.StringVar(&search, "search", "", "`TEXT` only threads that hold all of these words")
	f.StringVar(&statuses, "state", "", "`STATE` only these states, comma-separated: open, active, waiting_on_user, blocked, done, failed, interrupted")
	alsoSpelled(c, "status", "state")
	f.StringVar(&kind, "kind", "", "`KIND` only this kind: coding, research, planning, ops or mixed")
	f.IntVar(&limit, "limit", 0, "at most so many, up to 500 (default 50)")
	f.BoolVar(&archived, "archived", false, "also archived ones")
	return c
}

func (a *app) taskShareCommand() *cobra.Command {
	return &cobra.Command{
		Use: "share ID", Short: "Show what of a thread or task can be shared: files, addresses, folders", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			thread, err := a.threadOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.call(cmd.Context(), http.MethodGet, threadPath(thread, "/share"), nil, func(raw json.RawMessage) error {
				out, err := decode[struct {
					Title, Summary string
					Targets        []struct{ Kind, Title, URI, Path string }
				}](raw)
				if err != nil {
					return err
				}
				if out.Summary != "" {
					a.printf("%s\n\n", plainLines(out.Summary))
				}
				var rows [][]string
				for _, t := range out.Targets {
					rows = append(rows, []string{t.Kind, t.Title, t.URI + t.Path})
				}
				return a.table([]string{"KIND", "TITLE", "WHERE"}, rows, "there is nothing to share of it yet")
			})
		},
	}
}

func (a *app) taskExplainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "explain ID", Short: "Explain why a session is in its state: the evidence, and which rules won or lost", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			session, err := a.sessionOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.call(cmd.Context(), http.MethodGet, sessionPath(session, "/explain"), nil, func(raw json.RawMessage) error {
				var doc any
				if err := json.Unmarshal(raw, &doc); err != nil {
					return err
				}
				out, err := json.MarshalIndent(doc, "", "  ")
				if err == nil {
					a.printf("%s\n", out)
				}
				return err
			})
		},
	}
}

// printSession prints a session, as the server returned it, and the question that it waits for.
func (a *app) printSession(raw json.RawMessage) error {
	s, err := decode[struct {
		ID, Name, AdapterType, Status, Phase, Workdir, ThreadID, Owner, ApprovalPreset, Error string

		StartedAt, LastActivityAt, EndedAt time.Time
		Blocker                            *blockerRow
		Notes                              []string
		Usage                              *usageRow
	}](raw)
	if err != nil {
		return err
	}
	rows := [][]string{
		{"id", s.ID},
		{"name", dash(s.Name)},
		{"program", s.AdapterType},
		{"state", strings.TrimSpace(s.Status + " " + s.Phase)},
		{"preset", dash(s.ApprovalPreset)},
		{"thread", dash(s.ThreadID)},
		{"owner", dash(s.Owner)},
		{"folder", s.Workdir},
		{"started", when(s.StartedAt)},
		{"active", when(s.LastActivityAt)},
		{"usage", s.Usage.String()},
	}
	if !s.EndedAt.IsZero() {
		rows = append(rows, []string{"ended", when(s.EndedAt)})
	}
	if b := s.Blocker; b != nil {
		rows = append(rows, []string{"asks", b.Prompt})
	}
	if s.Error != "" {
		rows = append(rows, []string{"error", s.Error})
	}
	for _, n := range s.Notes {
		rows = append(rows, []string{"note", n})
	}
	if err := a.fields(rows); err != nil || s.Blocker == nil {
		return err
	}
	a.printBlocker(s.Blocker)
	return nil
}

// blockerRow is what a session waits for.
type blockerRow struct {
	ID, Type, Prompt, Tool, Cwd, Reason string
	Input                               json.RawMessage
	Options                             []string
	Choices                             []choiceRow
	Questions                           []struct {
		ID, Text string
		Options  []choiceRow
	}
}

type choiceRow struct {
	N                          int
	Label, Description, Effect string
}

// printBlocker prints what is asked, completely, and the answers with their numbers.
func (a *app) printBlocker(b *blockerRow) {
	a.printf("\n%s\n", text.VisibleLines(b.Prompt))
	for _, row := range [][2]string{
		{"kind", b.Type},
		{"question", b.ID},
		{"tool", b.Tool},
		{"folder", b.Cwd},
		{"in the words of the model", b.Reason},
		{"input", string(b.Input)},
	} {
		if row[1] != "" && row[1] != "null" {
			a.printf("%s: %s\n", row[0], text.VisibleLines(row[1]))
		}
	}
	list := func(choices []choiceRow) {
		for _, c := range choices {
			said := c.Label
			if c.Effect != "" && c.Effect != "none" {
				said += " (" + c.Effect + ")"
			}
			if c.Description != "" {
				said += ": " + c.Description
			}
			a.printf("  %d %s\n", c.N, text.Visible(said))
		}
	}
	for _, q := range b.Questions {
		a.printf("%s: %s\n", text.Visible(q.ID), text.Visible(q.Text))
		if len(b.Questions) > 1 {
			list(q.Options)
		}
	}
	list(b.Choices)
}

// printThread prints a thread and its sessions.
func (a *app) printThread(raw json.RawMessage) error {
	t, err := decode[threadRow](raw)
	if err != nil {
		return err
	}
	a.printf("%s: %s, %s\n%s\n", plainText(t.ID), plainText(t.Title), plainText(t.Status), plainText(t.OriginalRequest))
	if t.Summary != "" {
		a.printf("\n%s\n", plainLines(t.Summary))
	}
	var rows [][]string
	for _, s := range t.Sessions {
		rows = append(rows, []string{s.SessionID, s.Status, s.Framework, dash(s.Label), s.Metadata.Usage.String(), s.Workdir})
	}
	for _, e := range t.Events {
		if strings.HasPrefix(e.EventType, "setup_") { // --json has the output
			a.printf("\n%s\n", plainText(e.Summary))
		}
	}
	if t.Usage != nil {
		a.printf("\nusage: %s\n", t.Usage)
	}
	a.printf("\n")
	return a.table([]string{"SESSION", "STATE", "PROGRAM", "LABEL", "USAGE", "FOLDER"}, rows, "no agent works on it")
}
