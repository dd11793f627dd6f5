package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf16"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// approvalAPI is the path of the approvals on the server: the current one, or the one whose answers
// have the members that scripts of before read.
type approvalAPI string

const (
	currentApprovals approvalAPI = "/api/v1/approvals"
	formerApprovals  approvalAPI = "/api/v1/confirmations"
)

// approvalAnswer is an answer of either path.
type approvalAnswer struct {
	Approvals, Confirmations []policy.Approval
	Approval, Confirmation   *policy.Approval
	Input                    json.RawMessage
	Grant                    *policy.Grant
	Next                     string
}

func (r approvalAnswer) one() policy.Approval {
	switch {
	case r.Approval != nil:
		return *r.Approval
	case r.Confirmation != nil:
		return *r.Confirmation
	}
	return policy.Approval{}
}

func (a *app) approvalsCommand() *cobra.Command {
	verbs := append(a.approvalVerbs(currentApprovals), a.watchApprovalsCommand())
	return a.group("approvals", "See and decide what waits for an approval", verbs...)
}

// confirmationsCommand is approvalsCommand by its former name, with the former members in JSON.
func (a *app) confirmationsCommand() *cobra.Command {
	c := a.group("confirmations", "See and decide what waits for an approval: the former name of approvals",
		a.approvalVerbs(formerApprovals)...)
	c.Hidden = true
	return c
}

func (a *app) approvalVerbs(api approvalAPI) []*cobra.Command {
	var state, after string
	list := &cobra.Command{
		Use: "list", Short: "List approvals, the newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := string(api) + "?" + url.Values{"state": {state}, "after": {after}}.Encode()
			return a.call(cmd.Context(), http.MethodGet, path, nil, decoded(func(out approvalAnswer) error {
				var rows [][]string
				for _, c := range append(out.Approvals, out.Confirmations...) {
					rows = append(rows, []string{
						a.short(c.ID), string(c.State), string(c.Effect), when(c.Asked), when(c.Expires),
						text.Visible(c.Summary),
					})
				}
				if out.Next != "" {
					defer a.note("there are more: junctor approvals list --after " + out.Next)
				}
				return a.table([]string{"ID", "STATE", "EFFECT", "CREATED", "EXPIRES", "WHAT"}, rows,
					"nothing waits for an approval here; calls that need one are listed until they are decided")
			}))
		},
	}
	list.Flags().StringVar(&state, "state", "", "`STATE` only this state: pending, approved, denied, expired, superseded or ended")
	list.Flags().StringVar(&after, "after", "", "`ID` only approvals before this one; the end of a list names it if there are more")
	var whole bool
	show := &cobra.Command{
		Use: "show ID", Short: "Show one approval with every value that it covers", Args: cobra.ExactArgs(1),
		Example: `  junctor approvals show apr_0123456789abcdef01234567
  junctor approvals show apr_0123456789abcdef01234567 --input`,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := a.findApproval(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.showApproval(cmd.Context(), api, id, whole)
		},
	}
	show.Flags().BoolVar(&whole, "input", false, "print the whole input, while the approval is pending")
	return []*cobra.Command{list, show, a.approveCommand(api), a.denyCommand(api)}
}

func (a *app) approveCommand(api approvalAPI) *cobra.Command {
	var decision, said string
	var answers []string
	var latest, yes bool
	c := &cobra.Command{
		Use: "approve [ID]", Short: "Approve a call, once or for longer, or answer an agent", Args: cobra.MaximumNArgs(1),
		Long: `Approve a call. ID is the id of an approval or a prefix that no other approval has.
With --latest, the newest pending approval is shown with its whole input before you
decide.

The program of a task agent waits for an approval of the kind terminal or question.
"approvals show" lists the answers that the program takes. Give one with --answer or
--text; --decision selects the only answer that has this effect.`,
		Example: `  junctor approvals list --state pending
  junctor approvals approve apr_0123456789abcdef01234567
  junctor approvals approve apr_0123456789abcdef01234567 --decision always
  junctor approvals approve apr_0123456789abcdef01234567 --answer 2
  junctor approvals approve apr_0123456789abcdef01234567 --answer 1=Apples --answer 2=Red
  junctor approvals approve --latest`,
		RunE: func(cmd *cobra.Command, args []string) error {
			answered := len(answers) > 0 || said != ""
			if answered && (latest || cmd.Flags().Changed("decision") || len(answers) > 0 && said != "") {
				return capability.Errorf(capability.CodeInvalidInput, "", "give an ID and one of --answer, --text and --decision")
			}
			if latest == (len(args) == 1) {
				return capability.Errorf(capability.CodeInvalidInput, "", "%s needs either ID or --latest", cmd.CommandPath())
			}
			if latest {
				return a.decideLatest(cmd.Context(), api, decision, yes)
			}
			id, err := a.findApproval(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if answered {
				return a.answerApproval(cmd.Context(), api, id, answers, said)
			}
			if decision == string(policy.DecideAlways) {
				if err := a.announceAlways(cmd.Context(), id); err != nil {
					return err
				}
			}
			return a.decide(cmd.Context(), api, id, decision)
		},
	}
	c.Flags().StringVar(&decision, "decision", "once",
		"`DECISION` how long it counts: once (this very call, within 15 minutes), timed (one hour), session or always")
	c.Flags().StringArrayVar(&answers, "answer", nil,
		"`ANSWER` number or label that the program offers, or a text; QUESTION=ANSWER for a form (repeatable)")
	c.Flags().StringVar(&said, "text", "", "`TEXT` answer with this text, also if it is a number or a label")
	c.Flags().BoolVar(&latest, "latest", false, "approve the newest pending approval, after it is shown")
	c.Flags().BoolVar(&yes, "yes", false, "with --latest: approve without being asked at the terminal")
	return c
}

func (a *app) denyCommand(api approvalAPI) *cobra.Command {
	var latest, yes bool
	c := &cobra.Command{
		Use: "deny [ID]", Short: "Deny a call, or what an agent asks for", Args: cobra.MaximumNArgs(1),
		Long: `Deny a call. ID is the id of an approval or a prefix that no other approval has.
With --latest, the newest pending approval is shown with its whole input before you
decide.`,
		Example: `  junctor approvals deny apr_0123456789abcdef01234567
  junctor approvals deny --latest`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if latest == (len(args) == 1) {
				return capability.Errorf(capability.CodeInvalidInput, "", "%s needs either ID or --latest", cmd.CommandPath())
			}
			if latest {
				return a.decideLatest(cmd.Context(), api, string(policy.DecideDeny), yes)
			}
			id, err := a.findApproval(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.decide(cmd.Context(), api, id, string(policy.DecideDeny))
		},
	}
	c.Flags().BoolVar(&latest, "latest", false, "deny the newest pending approval, after it is shown")
	c.Flags().BoolVar(&yes, "yes", false, "with --latest: deny without being asked at the terminal")
	return c
}

// short returns the beginning of an approval's id, which names it too, where the table fits a
// terminal.
func (a *app) short(id string) string {
	if a.columns() == 0 || a.quiet {
		return id
	}
	return id[:min(len(id), 12)]
}

// wholeApprovalID matches a complete id, of today or before.
var wholeApprovalID = regexp.MustCompile(`^(apr|cnf)_[0-9a-f]{24}$`)

// findApproval returns the id of the approval that a prefix belongs to. A prefix of several
// approvals, decided ones included, is invalid_input. An id that no approval has is returned
// unchanged, so that the server reports it.
func (a *app) findApproval(ctx context.Context, id string) (string, error) {
	if wholeApprovalID.MatchString(id) {
		return id, nil
	}
	var found []string
	for after := ""; ; {
		var page approvalAnswer
		if err := a.do(ctx, http.MethodGet, string(currentApprovals)+"?"+url.Values{"after": {after}}.Encode(), nil, &page); err != nil {
			return "", err
		}
		for _, one := range page.Approvals {
			_, digits, _ := strings.Cut(one.ID, "_")
			if strings.HasPrefix(one.ID, id) || strings.HasPrefix(digits, id) {
				found = append(found, one.ID)
			}
		}
		if len(found) > 1 {
			return "", capability.Errorf(capability.CodeInvalidInput, "approvals", "%q is the beginning of several ids, such as %s and %s",
				id, found[0], found[1]).With("approval_ambiguous", "give more characters of the id")
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	return id, nil
}

// pendingApprovals returns the first page of pending approvals, the newest first.
func (a *app) pendingApprovals(ctx context.Context) ([]policy.Approval, error) {
	var page approvalAnswer
	err := a.do(ctx, http.MethodGet, string(currentApprovals)+"?state=pending", nil, &page)
	return page.Approvals, err
}

// fetchApproval returns an approval and, while it is pending, the whole input of its call.
func (a *app) fetchApproval(ctx context.Context, id string) (approvalAnswer, error) {
	var out approvalAnswer
	return out, a.do(ctx, http.MethodGet, string(currentApprovals)+"/"+url.PathEscape(id), nil, &out)
}

// decideLatest shows the newest pending approval with its whole input on standard error, requests a
// confirmation at the terminal unless yes is set, and decides it.
func (a *app) decideLatest(ctx context.Context, api approvalAPI, decision string, yes bool) error {
	if !yes && (a.json || !terminal(a.stdin)) {
		return capability.Errorf(capability.CodeInvalidInput, "approvals", "--latest needs a terminal at which it can ask, or --yes").With("",
			"see what waits with: junctor approvals list --state pending")
	}
	pending, err := a.pendingApprovals(ctx)
	if err != nil {
		return err
	}
	if len(pending) == 0 {
		return capability.Errorf(capability.CodeNotFound, "approvals", "no approval is pending").With("approval_not_found", "")
	}
	out, err := a.fetchApproval(ctx, pending[0].ID)
	if err != nil {
		return err
	}
	on := *a
	on.stdout = a.stderr
	if err := on.printApproval(out, true); err != nil {
		return err
	}
	if decision == string(policy.DecideAlways) {
		a.note(alwaysRule(out.one()))
	}
	if !yes {
		question := "Approve (" + decision + ")"
		if decision == string(policy.DecideDeny) {
			question = "Deny"
		}
		fmt.Fprintf(a.stderr, "%s? [y/N] ", question)
		if !a.agrees(ctx) {
			a.note("not decided; it stays pending")
			return exitStatus(capability.CodeDenied.Row().Exit)
		}
	}
	return a.decide(ctx, api, pending[0].ID, decision)
}

// announceAlways prints the rule that the decision always writes.
func (a *app) announceAlways(ctx context.Context, id string) error {
	out, err := a.fetchApproval(ctx, id)
	if err != nil {
		return err
	}
	a.note(alwaysRule(out.one()))
	return nil
}

// answerApproval answers what a program waits for, and prints the state of the approval.
func (a *app) answerApproval(ctx context.Context, api approvalAPI, id string, answers []string, said string) error {
	body := map[string]any{"text": said}
	if len(answers) > 0 {
		out, err := a.fetchApproval(ctx, id)
		if err != nil {
			return err
		}
		switch form := len(out.one().Shown.Questions) > 1; {
		case !form && len(answers) == 1:
			body = map[string]any{"answer": answers[0]}
		case !form && len(out.one().Shown.Questions) == 1:
			body = map[string]any{"answers": map[string][]string{out.one().Shown.Questions[0].ID: answers}}
		default:
			values, err := taskAnswer{values: answers}.form()
			if err != nil {
				return err
			}
			body = map[string]any{"answers": values}
		}
	}
	return a.postApproval(ctx, api, id, body)
}

// alwaysRule describes the grant that the decision always creates for an approval.
func alwaysRule(c policy.Approval) string {
	if c.Waits() {
		return "always selects the answer of the program that it keeps; junctor grants nothing"
	}
	return fmt.Sprintf("always would grant %s to %s with any input, until it is revoked or the content of %s changes",
		toolName(string(c.Capability)), c.Principal, dash(c.Module))
}

// showApproval prints an approval and its values, or with whole the input of the call.
func (a *app) showApproval(ctx context.Context, api approvalAPI, id string, whole bool) error {
	return a.call(ctx, http.MethodGet, string(api)+"/"+url.PathEscape(id), nil, decoded(func(out approvalAnswer) error {
		if !whole {
			return a.printApproval(out, false)
		}
		if len(out.Input) == 0 {
			return capability.Errorf(capability.CodeConflict, "approvals.show", "%s is %s, and its input is not stored any more",
				id, out.one().State)
		}
		a.printf("%s\n", visibleJSON(out.Input))
		return nil
	}))
}

// printApproval prints an approval, a line for each value. If a value is cut, it prints the whole
// input too, or without whole the command that does.
func (a *app) printApproval(out approvalAnswer, whole bool) error {
	c := out.one()
	rows := [][]string{
		{"id", c.ID},
		{"kind", c.Kind},
		{"state", string(c.State)},
		{"principal", actorOf(c)},
		{"tool", dash(toolName(string(c.Capability)))},
		{"capability", dash(string(c.Capability))},
		{"effect", string(c.Effect)},
		{"permissions", dash(strings.Join(c.Permissions, ", "))},
		{"created", when(c.Asked)},
		{"expires", when(c.Expires)},
		{"decided by", dash(c.DecidedBy)},
	}
	if c.Session != "" {
		rows = append(rows, []string{"session", c.Session})
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
	rows = append(rows, choiceRows("answer ", c.Shown.Choices)...)
	for _, q := range c.Shown.Questions {
		about := q.Text
		switch {
		case q.Secret:
			about += " (a secret)"
		case q.Multiple:
			about += " (several answers)"
		case q.FreeText:
			about += " (or a text)"
		}
		rows = append(rows, []string{text.Visible("question " + q.ID), about})
		if len(c.Shown.Choices) == 0 {
			rows = append(rows, choiceRows("  answer ", q.Choices)...)
		}
	}
	for _, row := range rows {
		row[1] = text.Visible(row[1])
	}
	if err := a.fields(rows); err != nil {
		return err
	}
	switch {
	case !c.Shown.Cut() || len(out.Input) == 0:
	case whole:
		a.printf("%s\n", visibleJSON(out.Input))
	default:
		a.note("long values are cut; see all of the input with: junctor approvals show " + c.ID + " --input")
	}
	return nil
}

// actorOf returns the principal that asks, and for whom it acts.
func actorOf(c policy.Approval) string {
	switch {
	case c.OnBehalfOf == "":
		return c.Principal
	case strings.HasPrefix(c.Principal, capability.AssistantPrefix):
		return "the agent of " + c.OnBehalfOf + " (" + c.Principal + ")"
	}
	return c.Principal + " for " + c.OnBehalfOf
}

// choiceRows returns a row for each answer that a program offers.
func choiceRows(prefix string, list []policy.ShownChoice) (rows [][]string) {
	for _, c := range list {
		label := c.Label
		if c.Effect != "none" && c.Effect != "" {
			label += " (" + c.Effect + ")"
		}
		if c.Description != "" {
			label += ": " + c.Description
		}
		rows = append(rows, []string{fmt.Sprintf("%s%d", prefix, c.N), label})
	}
	return rows
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

// decide decides an approval and prints its state and the new grant, if there is one.
func (a *app) decide(ctx context.Context, api approvalAPI, id, decision string) error {
	return a.postApproval(ctx, api, id, map[string]any{"decision": decision})
}

func (a *app) postApproval(ctx context.Context, api approvalAPI, id string, body map[string]any) error {
	return a.call(ctx, http.MethodPost, string(api)+"/"+url.PathEscape(id), body, decoded(func(out approvalAnswer) error {
		c := out.one()
		a.printf("%s is %s: %s\n", c.ID, c.State, text.Visible(c.Summary))
		if out.Grant != nil {
			a.printf("grant %s made, revoke it with: junctor grants revoke %s\n", out.Grant.ID, out.Grant.ID)
		}
		return nil
	}))
}
