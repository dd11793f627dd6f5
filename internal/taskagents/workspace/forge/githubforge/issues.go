package githubforge

import (
	"context"

	"github.com/google/go-github/v88/github"

	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
)

const (
	opIssue       = "forge.issue"
	reasonNoIssue = "issue_not_found"
	perPage       = 100 // GitHub's maximum
)

func (r *repository) CreateIssue(ctx context.Context, title, body string, labels []string) (forge.Issue, error) {
	req := &github.IssueRequest{Title: &title, Body: &body}
	if len(labels) > 0 {
		req.Labels = &labels
	}
	got, _, err := r.api.Issues.Create(ctx, r.owner, r.name, req)
	if err != nil {
		return forge.Issue{}, r.explain(opIssue, err, "repo_not_found")
	}
	return issue(got), nil
}

// ListIssues leaves out pull requests, which GitHub lists among issues.
func (r *repository) ListIssues(ctx context.Context, f forge.IssueFilter) ([]forge.Issue, error) {
	if f.Limit <= 0 {
		f.Limit = defaultIssues
	}
	f.Limit = min(f.Limit, perPage)
	opts := &github.IssueListByRepoOptions{State: f.State, Labels: f.Labels, ListOptions: github.ListOptions{PerPage: perPage}}
	out := []forge.Issue{}
	for range maxPages {
		got, res, err := r.api.Issues.ListByRepo(ctx, r.owner, r.name, opts)
		if err != nil {
			return nil, r.explain(opIssue, err, "repo_not_found")
		}
		for _, i := range got {
			if !i.IsPullRequest() && len(out) < f.Limit {
				out = append(out, issue(i))
			}
		}
		if len(out) == f.Limit || res.NextPage == 0 {
			break
		}
		opts.ListOptions.Page = res.NextPage
	}
	return out, nil
}

func (r *repository) GetIssue(ctx context.Context, number int) (forge.Issue, error) {
	got, _, err := r.api.Issues.Get(ctx, r.owner, r.name, number)
	if err != nil {
		return forge.Issue{}, r.explain(opIssue, err, reasonNoIssue)
	}
	out := issue(got)
	if got.GetComments() > 0 {
		out.Comments, err = r.ListComments(ctx, number)
	}
	return out, err
}

func (r *repository) UpdateIssue(ctx context.Context, number int, c forge.IssueChange) (forge.Issue, error) {
	got, _, err := r.api.Issues.Edit(ctx, r.owner, r.name, number,
		&github.IssueRequest{Title: c.Title, Body: c.Body, State: c.State, Labels: c.Labels})
	if err != nil {
		return forge.Issue{}, r.explain(opIssue, err, reasonNoIssue)
	}
	return issue(got), nil
}

func (r *repository) Comment(ctx context.Context, number int, body string) (forge.Comment, error) {
	got, _, err := r.api.Issues.CreateComment(ctx, r.owner, r.name, number, &github.IssueComment{Body: &body})
	if err != nil {
		return forge.Comment{}, r.explain(opIssue, err, reasonNoIssue)
	}
	return comment(got), nil
}

func (r *repository) ListComments(ctx context.Context, number int) ([]forge.Comment, error) {
	got, _, err := r.api.Issues.ListComments(ctx, r.owner, r.name, number,
		&github.IssueListCommentsOptions{ListOptions: github.ListOptions{PerPage: perPage}})
	if err != nil {
		return nil, r.explain(opIssue, err, reasonNoIssue)
	}
	out := make([]forge.Comment, 0, len(got))
	for _, c := range got {
		out = append(out, comment(c))
	}
	return out, nil
}

func (r *repository) AddLabels(ctx context.Context, number int, labels []string) (forge.Issue, error) {
	if _, _, err := r.api.Issues.AddLabelsToIssue(ctx, r.owner, r.name, number, labels); err != nil {
		return forge.Issue{}, r.explain(opIssue, err, reasonNoIssue)
	}
	got, _, err := r.api.Issues.Get(ctx, r.owner, r.name, number)
	if err != nil {
		return forge.Issue{}, r.explain(opIssue, err, reasonNoIssue)
	}
	return issue(got), nil
}

func issue(i *github.Issue) forge.Issue {
	out := forge.Issue{
		Number: i.GetNumber(), Title: i.GetTitle(), Body: i.GetBody(), State: i.GetState(), Labels: []string{}, URL: i.GetHTMLURL(),
		Author: i.GetUser().GetLogin(), CreatedAt: i.GetCreatedAt().Time, UpdatedAt: i.GetUpdatedAt().Time,
	}
	for _, l := range i.Labels {
		out.Labels = append(out.Labels, l.GetName())
	}
	return out
}

func comment(c *github.IssueComment) forge.Comment {
	return forge.Comment{
		ID: c.GetID(), Author: c.GetUser().GetLogin(), Body: c.GetBody(), URL: c.GetHTMLURL(),
		CreatedAt: c.GetCreatedAt().Time,
	}
}
