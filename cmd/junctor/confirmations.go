package main

import (
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/internal/core/policy"
)

func (a *app) confirmationsCommand() *cobra.Command {
	var state string
	list := &cobra.Command{
		Use: "list", Short: "List what was asked and what was answered", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := "/api/v1/confirmations"
			if state != "" {
				path += "?state=" + url.QueryEscape(state)
			}
			return a.call(cmd.Context(), http.MethodGet, path, nil, func(raw json.RawMessage) error {
				out, err := decode[struct{ Confirmations []policy.Approval }](raw)
				if err != nil {
					return err
				}
				var rows [][]string
				for _, c := range out.Confirmations {
					rows = append(rows, []string{c.ID, string(c.State), string(c.Effect), when(c.Asked), when(c.Expires), c.Summary})
				}
				return a.table([]string{"ID", "STATE", "EFFECT", "CREATED", "EXPIRES", "WHAT"}, rows,
					"nothing waits for an approval here; what asks for one is listed until it is answered")
			})
		},
	}
	list.Flags().StringVar(&state, "state", "", "`STATE` only this state: pending, approved, denied, expired or superseded")
	var decision string
	approve := &cobra.Command{
		Use: "approve ID", Short: "Approve what is asked, this once or for longer", Args: cobra.ExactArgs(1),
		Example: `  junctor confirmations list --state pending
  junctor confirmations approve cnf_0123456789abcdef01234567
  junctor confirmations approve cnf_0123456789abcdef01234567 --decision always`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.decide(cmd, args[0], decision) },
	}
	approve.Flags().StringVar(&decision, "decision", "once", "`DECISION` how long it counts: once (this very call, within 15 minutes), timed (15 minutes), session or always")
	deny := &cobra.Command{
		Use: "deny ID", Short: "Deny what is asked", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.decide(cmd, args[0], "deny") },
	}
	return a.group("confirmations", "Answer what waits for an approval", list, approve, deny)
}

// decide answers a confirmation and prints its state and the new grant, if there is one.
func (a *app) decide(cmd *cobra.Command, id, decision string) error {
	body := map[string]string{"decision": decision}
	return a.call(cmd.Context(), http.MethodPost, "/api/v1/confirmations/"+url.PathEscape(id), body, func(raw json.RawMessage) error {
		out, err := decode[struct {
			Confirmation policy.Approval
			Grant        *policy.Grant
		}](raw)
		if err != nil {
			return err
		}
		a.printf("%s is %s: %s\n", out.Confirmation.ID, out.Confirmation.State, plainText(out.Confirmation.Summary))
		if out.Grant != nil {
			a.printf("grant %s made, revoke it with: junctor grants revoke %s\n", out.Grant.ID, out.Grant.ID)
		}
		return nil
	})
}
