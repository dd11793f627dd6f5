package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf16"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/policy"
)

func (a *app) confirmationsCommand() *cobra.Command {
	var state, after string
	list := &cobra.Command{
		Use: "list", Short: "List what was asked and what was answered", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := "/api/v1/confirmations?" + url.Values{"state": {state}, "after": {after}}.Encode()
			return a.call(cmd.Context(), http.MethodGet, path, nil, func(raw json.RawMessage) error {
				out, err := decode[struct {
					Confirmations []policy.Approval
					Next          string
				}](raw)
				if err != nil {
					return err
				}
				var rows [][]string
				for _, c := range out.Confirmations {
					rows = append(rows, []string{c.ID, string(c.State), string(c.Effect), when(c.Asked), when(c.Expires), text.Visible(c.Summary)})
				}
				if out.Next != "" {
					defer a.note("there are more: junctor confirmations list --after " + out.Next)
				}
				return a.table([]string{"ID", "STATE", "EFFECT", "CREATED", "EXPIRES", "WHAT"}, rows,
					"nothing waits for an approval here; what asks for one is listed until it is answered")
			})
		},
	}
	list.Flags().StringVar(&state, "state", "", "`STATE` only this state: pending, approved, denied, expired or superseded")
	list.Flags().StringVar(&after, "after", "", "`ID` only approvals before this one; the end of a list names it if there are more")
	var whole bool
	show := &cobra.Command{
		Use: "show ID", Short: "Show one approval with every value that it covers", Args: cobra.ExactArgs(1),
		Example: `  junctor confirmations show cnf_0123456789abcdef01234567
  junctor confirmations show cnf_0123456789abcdef01234567 --input`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.showConfirmation(cmd, args[0], whole) },
	}
	show.Flags().BoolVar(&whole, "input", false, "print the whole input, while the approval is pending")
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
	return a.group("confirmations", "Answer what waits for an approval", list, show, approve, deny)
}

// showConfirmation prints an approval and its values, or with whole the input of the call.
func (a *app) showConfirmation(cmd *cobra.Command, id string, whole bool) error {
	return a.call(cmd.Context(), http.MethodGet, "/api/v1/confirmations/"+url.PathEscape(id), nil, func(raw json.RawMessage) error {
		out, err := decode[struct {
			Confirmation policy.Approval
			Input        json.RawMessage
		}](raw)
		if err != nil {
			return err
		}
		c := out.Confirmation
		if whole {
			if len(out.Input) == 0 {
				return capability.Errorf(capability.CodeConflict, "confirmations.show", "%s is %s, and its input is not stored any more", id, c.State)
			}
			a.printf("%s\n", visibleJSON(out.Input))
			return nil
		}
		rows := [][]string{
			{"id", c.ID},
			{"state", string(c.State)},
			{"principal", c.Principal},
			{"capability", string(c.Capability)},
			{"effect", string(c.Effect)},
			{"permissions", dash(strings.Join(c.Permissions, ", "))},
			{"created", when(c.Asked)},
			{"expires", when(c.Expires)},
			{"decided by", dash(c.DecidedBy)},
		}
		for i, v := range c.Shown.Argv {
			v.Name = fmt.Sprintf("argument %d", i)
			rows = append(rows, valueRow("", v))
		}
		for _, v := range c.Shown.Details {
			rows = append(rows, valueRow("run ", v))
		}
		for _, v := range c.Shown.Members {
			rows = append(rows, valueRow("input ", v))
		}
		for _, row := range rows {
			row[1] = text.Visible(row[1])
		}
		if err := a.fields(rows); err != nil {
			return err
		}
		if c.Shown.Cut() && len(out.Input) > 0 {
			a.note("long values are cut; see all of the input with: junctor confirmations show " + c.ID + " --input")
		}
		return nil
	})
}

func valueRow(prefix string, v policy.ShownValue) []string {
	name := prefix + v.Name
	v.Name = ""
	return []string{text.Visible(name), v.String()}
}

// visibleJSON returns the same JSON with escapes for characters that a terminal does not show.
func visibleJSON(raw []byte) string {
	var b strings.Builder
	for _, r := range string(raw) {
		if r == '\n' || r == '\t' || r == '\r' || text.Visible(string(r)) == string(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
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
		a.printf("%s is %s: %s\n", out.Confirmation.ID, out.Confirmation.State, text.Visible(out.Confirmation.Summary))
		if out.Grant != nil {
			a.printf("grant %s made, revoke it with: junctor grants revoke %s\n", out.Grant.ID, out.Grant.ID)
		}
		return nil
	})
}
