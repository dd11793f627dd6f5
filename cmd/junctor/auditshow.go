package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/core/audit"
)

func (a *app) auditShowCommand() *cobra.Command {
	var latest bool
	c := &cobra.Command{
		Use: "show [ID]", Short: "Show one invocation and why, with its arguments if they are kept", Args: cobra.MaximumNArgs(1),
		Long: `Show the last record of one invocation, with the rule or approval that decided, and
its arguments if audit.arguments keeps them. Reading arguments is recorded.`,
		Example: `  junctor audit show --latest
  junctor audit show run_0123456789abcdef01234567`,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := a.invocation(cmd, args, latest)
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			return a.auditShow(cmd.Context(), c, id)
		},
	}
	c.Flags().BoolVar(&latest, "latest", false, latestHelp)
	return c
}

const latestHelp = "the newest invocation instead of ID"

// invocation returns the ID that a command was given, or that of the newest call.
func (a *app) invocation(cmd *cobra.Command, args []string, latest bool) (string, error) {
	if latest == (len(args) == 1) {
		return "", capability.Errorf(capability.CodeInvalidInput, "", "%s needs either ID or --latest", cmd.CommandPath())
	}
	if !latest {
		return args[0], nil
	}
	var out struct{ Records []auditRow }
	if err := a.do(cmd.Context(), http.MethodGet, "/api/v1/audit?limit=1000", nil, &out); err != nil {
		return "", err
	}
	for _, row := range out.Records {
		if row.call() && row.Metadata.RunID != "" {
			return row.Metadata.RunID, nil
		}
	}
	return "", capability.Errorf(capability.CodeNotFound, "", "the newest 1000 records of the log contain no invocation").
		With("", "find older ones with: junctor audit query")
}

func (a *app) auditShow(ctx context.Context, c *client.Client, id string) error {
	var out struct{ Records []json.RawMessage }
	q := url.Values{"limit": {"1000"}, "run": {id}}
	if err := c.Do(ctx, http.MethodGet, "/api/v1/audit?"+q.Encode(), nil, &out); err != nil {
		return err
	}
	var row auditRow
	var line json.RawMessage
	for _, line = range out.Records { // the newest first; who has read the arguments is not the call
		if err := json.Unmarshal(line, &row); err != nil {
			return err
		}
		if row.Event != string(audit.ArgumentsRead) && row.Event != string(audit.ArgumentsRemoved) {
			break
		}
	}
	if line == nil {
		return capability.Errorf(capability.CodeNotFound, "", "the log has no invocation with the ID %q", id).
			With("", "find its id with: junctor audit query")
	}
	kept, err := a.arguments(ctx, id)
	missing := err != nil && capability.AsError(err).Reason == audit.ReasonNoArguments
	if err != nil && !missing {
		return err
	}
	if a.json {
		shown := map[string]any{"record": line}
		if !missing {
			shown["arguments"] = kept
		}
		return a.printObject(shown)
	}
	cells := row.cells()
	err = a.fields([][]string{
		{"record", cells[0]},
		{"time", cells[1]},
		{"event", row.Event},
		{"what", cells[4]},
		{"principal", cells[5]},
		{"provider", dash(row.Metadata.Provider)},
		{"why", a.reasons(ctx, c).cell(row)},
		{"error", dash(row.Error)},
	})
	if err != nil {
		return err
	}
	if missing {
		a.note("its arguments are not kept: they were removed, have expired, or audit.arguments is digest")
		return nil
	}
	a.printArguments(kept)
	return nil
}

func (a *app) arguments(ctx context.Context, id string) (kept audit.KeptArguments, err error) {
	return kept, a.do(ctx, http.MethodGet, "/api/v1/audit/arguments/"+url.PathEscape(id), nil, &kept)
}

func (a *app) printArguments(kept audit.KeptArguments) {
	var b bytes.Buffer
	if json.Indent(&b, kept.Arguments, "", "  ") != nil {
		return
	}
	what := string(kept.Mode)
	if kept.Cut {
		what += ", cut"
	}
	a.printf("\narguments (%s, %d bytes):\n%s\n", what, kept.Bytes, plainLines(b.String()))
}

func (a *app) auditForgetCommand() *cobra.Command {
	return &cobra.Command{
		Use: "forget ID", Short: "Remove the kept arguments of an invocation", Args: cobra.ExactArgs(1),
		Long: `Remove the kept arguments of an invocation, and of each other one with equal arguments.
The records stay, with the digest, and the removal is recorded.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "/api/v1/audit/arguments/" + url.PathEscape(args[0])
			return a.call(cmd.Context(), http.MethodDelete, path, nil, a.done("removed the arguments of %s\n", plainText(args[0])))
		},
	}
}
