package verbs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
)

type issueParams struct {
	Operation string `json:"operation"`
	Repo      string `json:"repo"`
	Title     string `json:"title"`
	Body      string `json:"body"`
	Number    int    `json:"issueNumber"`
	Labels    Texts  `json:"labels"`
	State     string `json:"state"`
	Limit     int    `json:"limit"`
}

// issues implements MANAGE_ISSUES. Without a parameter the operation is that of the alias, or list,
// and the repository is the conversation's last one.
func (v *verbs) issues(ctx context.Context, c Call, params json.RawMessage) (Result, error) {
	var p issueParams
	if err := Params(params, &p); err != nil {
		return Fail(err, nil)
	}
	op := strings.ToLower(p.Operation)
	if alias, ok := strings.CutSuffix(strings.TrimSuffix(c.Spelled, "S"), "_ISSUE"); op == "" && ok && alias != "MANAGE" {
		op = strings.ToLower(alias)
	}
	op = cmp.Or(op, "list")
	if err := p.complete(op); err != nil {
		return Fail(err, nil)
	}
	named := First(p.Repo, v.talks.Last(c).Repo)
	if named == "" {
		return Fail(MissingRepo.Errorf("say which repository: owner/name, or its address"), nil)
	}
	repo, err := v.cfg.Workspaces.Issues(ctx, named)
	if err != nil {
		return Fail(err, nil)
	}
	v.talks.Remember(c, func(t *Talk) { t.Repo = named })
	if op == "create" {
		return createIssues(ctx, repo, p, c.Message)
	}
	return manage(ctx, repo, op, p)
}

// complete returns an error if the operation is unknown or lacks a parameter.
func (p *issueParams) complete(op string) error {
	switch op {
	case "create", "list":
		return nil
	case "get", "update", "comment", "close", "reopen", "add_labels":
	default:
		return UnknownOperation.Errorf("%.40q is not an operation on issues", op).
			With("unknown_operation", "the operations are create, list, get, update, comment, close, reopen and add_labels")
	}
	if p.Number < 1 {
		return MissingIssueNumber.Errorf("say which issue: issueNumber")
	}
	switch {
	case op == "comment" && strings.TrimSpace(p.Body) == "":
		return MissingParams.Errorf("a comment needs a body")
	case op == "add_labels" && len(p.Labels) == 0:
		return MissingParams.Errorf("say which labels")
	case op == "update" && p.Title == "" && p.Body == "" && p.State == "" && p.Labels == nil:
		return MissingParams.Errorf("say what is to be changed: title, body, state or labels")
	}
	return nil
}

// createIssues creates one issue if there is a title, otherwise one for each entry of the list in the
// body or the message. After a failure the data holds the issues that were created.
func createIssues(ctx context.Context, repo forge.Issues, p issueParams, said string) (Result, error) {
	items := []forge.Item{{Title: p.Title, Body: p.Body}}
	if p.Title == "" { // with a title, a list is the body of one issue
		if items = forge.Items(p.Body); items == nil {
			items = forge.Items(said)
		}
	}
	if len(items) == 0 {
		return Fail(MissingTitle.Errorf("an issue needs a title"), nil)
	}
	made := []forge.Issue{}
	for _, item := range items {
		issue, err := repo.CreateIssue(ctx, item.Title, item.Body, p.Labels)
		if err != nil {
			e := *capability.AsError(err)
			if len(made) > 0 {
				e.Message = fmt.Sprintf("%d of %d issues were created, then: %s", len(made), len(items), e.Message)
			}
			return Fail(&e, map[string]any{"issues": made})
		}
		made = append(made, issue)
	}
	if len(made) == 1 {
		return Result{
			Success: true, Text: sentence("created %s", line(made[0])),
			Data: map[string]any{"operation": "create", "issue": made[0], "issues": made},
		}, nil
	}
	return Result{
		Success: true, Text: fmt.Sprintf("Created %d issues:%s", len(made), lines(made)),
		Data: map[string]any{"operation": "create", "issues": made},
	}, nil
}

// manage runs an operation other than create.
func manage(ctx context.Context, repo forge.Issues, op string, p issueParams) (Result, error) {
	var issue forge.Issue
	var err error
	word := op
	switch op {
	case "list":
		list, err := repo.ListIssues(ctx, forge.IssueFilter{State: p.State, Labels: p.Labels, Limit: p.Limit})
		if err != nil {
			return Fail(err, nil)
		}
		text := "There are no issues."
		if len(list) > 0 {
			text = fmt.Sprintf("%d issues:%s", len(list), lines(list))
		}
		return Result{Success: true, Text: text, Data: map[string]any{"operation": op, "issues": list}}, nil
	case "comment":
		comment, err := repo.Comment(ctx, p.Number, p.Body)
		if err != nil {
			return Fail(err, nil)
		}
		return Result{
			Success: true, Text: sentence("commented on #%d", p.Number),
			Data: map[string]any{"operation": op, "issueNumber": p.Number, "comment": comment},
		}, nil
	case "get":
		word = "read"
		issue, err = repo.GetIssue(ctx, p.Number)
	case "add_labels":
		word = "labelled"
		issue, err = repo.AddLabels(ctx, p.Number, p.Labels)
	case "close", "reopen":
		word, p.State = "closed", "closed"
		if op == "reopen" {
			word, p.State = "reopened", "open"
		}
		issue, err = repo.UpdateIssue(ctx, p.Number, forge.IssueChange{State: &p.State})
	case "update":
		word = "updated"
		issue, err = repo.UpdateIssue(ctx, p.Number, p.change())
	}
	if err != nil {
		return Fail(err, nil)
	}
	text := sentence("%s %s", word, line(issue))
	if op == "get" {
		text = line(issue) + "\n" + issue.Body
	}
	return Result{Success: true, Text: text, Data: map[string]any{"operation": op, "issue": issue}}, nil
}

// change returns the change with the parameters that are set.
func (p *issueParams) change() (c forge.IssueChange) {
	if p.Title != "" {
		c.Title = &p.Title
	}
	if p.Body != "" {
		c.Body = &p.Body
	}
	if p.State != "" {
		c.State = &p.State
	}
	if p.Labels != nil {
		labels := []string(p.Labels)
		c.Labels = &labels
	}
	return c
}

func line(i forge.Issue) string {
	return fmt.Sprintf("#%d %s (%s) %s", i.Number, text.Line(i.Title, 200), i.State, i.URL)
}

func lines(list []forge.Issue) string {
	var b strings.Builder
	for _, i := range list {
		b.WriteString("\n- " + line(i))
	}
	return b.String()
}
