package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/secret"
)

func (a *app) auditShowCommand() *cobra.Command {
	var latest bool
	c := &cobra.Command{
		Use: "show [ID]", Short: "Show one invocation and why, with its arguments if they are kept", Args: cobra.MaximumNArgs(1),
		Long: `Show the last record of one invocation, with the rule or approval that decided, what
the person saw who approved it, and its arguments if audit.arguments keeps them. Reading
arguments is recorded. ID is that of an invocation, or the number of a record (SEQ).`,
		Example: `  junctor audit show --latest
  junctor audit show run_0123456789abcdef01234567`,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := a.invocation(cmd, args, latest)
			if err != nil {
				return err
			}
			return a.auditShow(cmd.Context(), id)
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
	_, raw, err := a.records(cmd.Context(), url.Values{"limit": {"1000"}})
	if err != nil {
		return "", err
	}
	out, err := decode[struct{ Records []auditRow }](raw)
	if err != nil {
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

func (a *app) auditShow(ctx context.Context, id string) error {
	q := url.Values{"limit": {"1000"}, "run": {id}}
	number, numberErr := strconv.ParseUint(id, 10, 63)
	if numberErr == nil {
		q = url.Values{"limit": {"1"}, "before": {strconv.FormatUint(number+1, 10)}}
	}
	c, raw, err := a.records(ctx, q)
	if err != nil {
		return err
	}
	out, err := decode[struct{ Records []json.RawMessage }](raw)
	if err != nil {
		return err
	}
	var row auditRow
	var line json.RawMessage
	for _, line = range out.Records { // the newest first; who has read the arguments is not the call
		if err := json.Unmarshal(line, &row); err != nil {
			return err
		}
		if numberErr == nil || row.Event != string(audit.ArgumentsRead) && row.Event != string(audit.ArgumentsRemoved) {
			break
		}
	}
	if line == nil || numberErr == nil && row.Seq != number {
		return capability.Errorf(capability.CodeNotFound, "", "the log has no invocation with the ID %q, and no record with that number", id).
			With("", "find its id with: junctor audit query")
	}
	id = row.Metadata.RunID
	var kept audit.KeptArguments
	missing := c == nil || id == ""
	if !missing {
		kept, err = a.arguments(ctx, id)
		missing = err != nil && capability.AsError(err).Reason == audit.ReasonNoArguments
		if err != nil && !missing {
			return err
		}
	}
	approved := a.approved(ctx, c, row)
	if a.json {
		shown := map[string]any{"record": line}
		if approved != "" {
			shown["approved"] = approved
		}
		if !missing {
			shown["arguments"] = kept
		}
		return a.printObject(shown)
	}
	cells := row.cells()
	rows := [][]string{
		{"record", cells[0]},
		{"time", cells[1]},
		{"event", row.Event},
		{"what", cells[4]},
		{"principal", cells[5]},
		{"provider", dash(row.Metadata.Provider)},
		{"why", a.reasons(ctx, c).cell(row)},
		{"error", dash(row.Error)},
		{"arguments", "digest " + dash(row.Metadata.texts["args_hash"])},
	}
	if approved != "" {
		rows = append(rows, []string{"approved", approved})
	}
	if err := a.fields(rows); err != nil {
		return err
	}
	switch {
	case !row.call():
		return nil
	case c == nil:
		a.note(fromFiles + "; what was approved, and arguments that are kept, are shown while the server runs")
		return nil
	case missing:
		a.note("its arguments are not kept; to keep those of later calls, with credentials masked, " +
			"put audit: {arguments: redacted} into config.yaml of the home and start the server again")
		return nil
	}
	a.printArguments(kept)
	return nil
}

// approved returns what the person saw who approved the call of a record, with credentials masked, or "" if
// no approval of it is stored.
func (a *app) approved(ctx context.Context, c *client.Client, row auditRow) string {
	id := row.Metadata.Decision.Approval
	if id == "" || c == nil {
		return ""
	}
	out, err := a.fetchApproval(ctx, id)
	if err != nil { // it may be older than what is stored of approvals
		return ""
	}
	shown, mask := out.one().Shown, audit.TextMasker()
	for _, list := range [][]policy.ShownValue{shown.Argv, shown.Details, shown.Members} {
		for i := range list {
			if namesCredential(list[i].Name) || strings.Contains(list[i].Value, "{") && namesCredential(list[i].Value) {
				list[i] = policy.ShownValue{Name: list[i].Name, Value: "[redacted]"}
			}
			list[i].Value = mask(list[i].Value)
		}
	}
	return cmp.Or(text.Visible(shown.String()), "no arguments")
}

// namesCredential reports whether a word of a path, or of a text, is the name of a credential.
func namesCredential(s string) bool {
	between := func(r rune) bool { return strings.ContainsRune(".[]{}\":, ", r) }
	return slices.ContainsFunc(strings.FieldsFunc(s, between), secret.NamesCredential)
}

func (a *app) arguments(ctx context.Context, id string) (kept audit.KeptArguments, err error) {
	return kept, a.do(ctx, http.MethodGet, "/api/v1/audit/arguments/"+url.PathEscape(id), nil, &kept)
}

func (a *app) printArguments(kept audit.KeptArguments) {
	var b bytes.Buffer
	if json.Compact(&b, kept.Arguments) != nil {
		return
	}
	if b.Len() > maxCompact {
		b.Reset()
		_ = json.Indent(&b, kept.Arguments, "", "  ") // it was valid
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
