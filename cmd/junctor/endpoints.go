package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/router"
)

// endpointRow is one endpoint in the server's answers.
type endpointRow struct {
	ID, BaseURL, Provider, State, Reason string
	Modules, Families                    []string
	Primary, HasToken, Persisted         bool
	Since, Synced                        time.Time
	AllowedModuleIDs                     []string
	TrustDecisions                       []router.TrustDecision
	History                              []trustRow
	Managed                              *managedRow
}

// trustRow is one attempt to admit modules: the accepted and the refused ones, with reasons.
type trustRow struct {
	RecordedAt     time.Time
	Mode, Provider string
	Endpoint       struct {
		ID, BaseURL string
		HasToken    bool
	}
	AllowedModuleIDs                        []string
	Registered, Reloaded, Skipped, Unloaded []string
	TrustDecisions                          []router.TrustDecision
	Collision                               *struct {
		Kind, Key, Message string
		Owners             []string
	}
	Error *capability.Error
}

// outcome returns the result of the attempt in one line.
func (r *trustRow) outcome() string {
	switch {
	case r.Collision != nil:
		return "collision: " + r.Collision.Message
	case r.Error != nil:
		return "refused: " + r.Error.Message
	}
	var parts []string
	for _, p := range []struct {
		what  string
		names []string
	}{{"registered", r.Registered}, {"reloaded", r.Reloaded}, {"skipped", r.Skipped}, {"unloaded", r.Unloaded}} {
		if len(p.names) > 0 {
			parts = append(parts, p.what+" "+strings.Join(p.names, ", "))
		}
	}
	if len(parts) == 0 {
		return "nothing changed"
	}
	return strings.Join(parts, "; ")
}

// verdict returns one trust decision as a text for users.
func verdict(d router.TrustDecision) string {
	word := "trusted"
	if !d.Trusted {
		word = "not trusted"
	}
	text := word + ": " + d.Reason
	if d.Detail != "" {
		text += " (" + d.Detail + ")"
	}
	return text
}

func (a *app) endpointsCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List endpoints and their states", Args: cobra.NoArgs,
		RunE: shows(a, "/api/capability-router/endpoints", func(out struct{ Endpoints []endpointRow }) error {
			var rows [][]string
			var by []*managedRow
			for _, e := range out.Endpoints {
				by = append(by, e.Managed)
				rows = append(rows, []string{
					e.ID, e.BaseURL, e.State, fmt.Sprint(len(e.Modules)), dash(strings.Join(e.Families, ",")),
					dash(e.Reason),
				})
			}
			head, rows := managedColumn([]string{"ID", "URL", "STATE", "MODULES", "FAMILIES", "REASON"}, rows, by)
			return a.table(head, rows, "no endpoint is connected; connect one with: junctor connect URL")
		}),
	}
	show := &cobra.Command{
		Use: "show ID", Aliases: []string{"status"}, Short: "Show an endpoint: its state, what was let in, what was not and why",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodGet, "/api/capability-router/endpoints/"+url.PathEscape(args[0]), nil,
				decoded(func(e endpointRow) error {
					rows := [][]string{
						{"id", e.ID},
						{"url", e.BaseURL},
						{"provider", e.Provider},
						{"state", e.State},
						{"reason", dash(e.Reason)},
						{"since", when(e.Since)},
						{"synced", when(e.Synced)},
						{"modules", dash(strings.Join(e.Modules, ", "))},
						{"families", dash(strings.Join(e.Families, ", "))},
						{"primary", fmt.Sprint(e.Primary)},
						{"has token", fmt.Sprint(e.HasToken)},
						{"persisted", fmt.Sprint(e.Persisted)},
						{"allowed modules", dash(strings.Join(e.AllowedModuleIDs, ", "))},
					}
					if e.Managed != nil {
						rows = append(rows, []string{"managed by", e.Managed.File})
					}
					for _, d := range e.TrustDecisions {
						rows = append(rows, []string{"module " + d.ModuleID, verdict(d)})
					}
					for _, r := range e.History {
						rows = append(rows, []string{"attempt " + when(r.RecordedAt), r.Mode + ": " + r.outcome()})
					}
					return a.fields(rows)
				}))
		},
	}
	sync := &cobra.Command{
		Use: "sync [ID]", Short: "Read the manifest of one endpoint again, or of all", Args: cobra.MaximumNArgs(1),
		Long: "Read the manifest of one endpoint again, or of all in parallel. The exit\nstatus is 5 if one could not be read.",
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "/api/capability-router/sync"
			if len(args) == 1 {
				path = "/api/capability-router/endpoints/" + url.PathEscape(args[0]) + "/sync"
			}
			var raw json.RawMessage
			if err := a.do(cmd.Context(), http.MethodPost, path, nil, &raw); err != nil {
				return err
			}
			out, err := decode[struct {
				Endpoints []struct {
					ID    string
					Error *capability.Error
					Sync  struct{ Registered, Reloaded, Unloaded, Skipped []string }
				}
			}](raw)
			if err != nil {
				return err
			}
			failed := false
			var rows [][]string
			for _, e := range out.Endpoints {
				state := fmt.Sprintf("%d new, %d reloaded, %d gone, %d unchanged or skipped", len(e.Sync.Registered), len(e.Sync.Reloaded),
					len(e.Sync.Unloaded), len(e.Sync.Skipped))
				if e.Error != nil {
					failed, state = true, e.Error.Message
				}
				rows = append(rows, []string{e.ID, state})
			}
			if a.json {
				err = a.printJSON(raw)
			} else {
				err = a.table([]string{"ID", "RESULT"}, rows, "no endpoint is connected; connect one with: junctor connect URL")
			}
			if err == nil && failed {
				return exitStatus(capability.CodeUnavailable.Row().Exit)
			}
			return err
		},
	}
	c := a.group("endpoints", "Look after remote endpoints; without a command, list them", list, show, sync, a.endpointsDecisionsCommand(),
		a.endpointsImportCommand(), a.endpointsExportCommand())
	c.Use = "endpoints [COMMAND]"
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return list.RunE(cmd, args)
		}
		return a.noVerb(cmd, args)
	}
	return c
}

// endpointsDecisionsCommand returns the command that lists trust decisions, including those of
// attempts that failed and left no endpoint.
func (a *app) endpointsDecisionsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "decisions", Short: "List the last attempts to let modules in, with what was refused and why", Args: cobra.NoArgs,
		RunE: shows(a, "/api/capability-router/decisions", func(out struct{ Decisions []trustRow }) error {
			var rows [][]string
			for _, r := range out.Decisions {
				at := when(r.RecordedAt)
				rows = append(rows, []string{at, r.Endpoint.ID, r.Mode, "-", r.outcome()})
				for _, d := range r.TrustDecisions {
					rows = append(rows, []string{at, r.Endpoint.ID, r.Mode, d.ModuleID, verdict(d)})
				}
			}
			return a.table([]string{"TIME", "ENDPOINT", "MODE", "MODULE", "DECISION"}, rows,
				"no endpoint has been tried yet; connect one with: junctor connect URL")
		}),
	}
}
