package forge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/secret"
)

// Kind is the API of a forge.
type Kind string

// The kinds.
const (
	GitHub  Kind = "github"
	GitLab  Kind = "gitlab"
	Forgejo Kind = "forgejo" // and Gitea
)

const (
	reasonNoRepo = "repo_not_found"
	gitlabPusher = 30 // access level of a developer
)

// RESTHost is a GitLab, Forgejo or Gitea server. Tokens are sent to its own address only: a redirect
// is not followed.
type RESTHost struct {
	Kind Kind
	Base string // URL of the server, such as https://host
	// Transport sends requests; nil means the standard library's.
	Transport http.RoundTripper
}

// Open implements [Host].
func (h *RESTHost) Open(repo Repo, token secret.Value) (Repository, error) {
	if repo.Owner == "" || h.Kind == Forgejo && strings.Contains(repo.Owner, "/") {
		return nil, badRepo("it has no owner, or one that this forge cannot have")
	}
	r := &restRepository{token: token, client: &http.Client{
		Transport: h.Transport, Timeout: restTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the forge redirects to another address")
		},
	}}
	base := strings.TrimSuffix(h.Base, "/")
	if h.Kind == GitLab {
		r.base = base + "/api/v4/projects/" + url.PathEscape(repo.Owner+"/"+repo.Name)
		return &gitlab{r}, nil
	}
	r.base = base + "/api/v1/repos/" + url.PathEscape(repo.Owner) + "/" + url.PathEscape(repo.Name)
	return &forgejo{r}, nil
}

// restRepository sends requests about one repository.
type restRepository struct {
	base   string
	token  secret.Value
	client *http.Client
}

// do sends a request whose body is in as JSON, if it is not nil, and decodes the answer to out. status
// is that of the answer; 409 is not an error.
func (r *restRepository) do(ctx context.Context, op, method, path string, in, out any) (status int, err error) {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return 0, err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.base+path, body)
	if err != nil {
		return 0, badRepo("its address is not a URL")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if !r.token.Empty() {
		req.Header.Set("Authorization", "Bearer "+r.token.Reveal())
	}
	res, err := r.client.Do(req)
	if err != nil {
		return 0, Refused(op, 0, "", reasonNoRepo, err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswers+1))
	if err != nil || len(data) > maxAnswers {
		return 0, Refused(op, 0, "", reasonNoRepo, cmp.Or(err, errors.New("the answer is too long")))
	}
	if plain, ok := out.(*string); ok && res.StatusCode < 300 {
		*plain = string(data)
		return res.StatusCode, nil
	}
	if res.StatusCode >= 300 && res.StatusCode != http.StatusConflict {
		var said struct{ Message, Error json.RawMessage }
		_ = json.Unmarshal(data, &said) // without a message the status is enough
		message := secret.MaskTokens(strings.Trim(string(said.Message)+string(said.Error), `"`))
		if !r.token.Empty() {
			message = strings.ReplaceAll(message, r.token.Reveal(), r.token.String())
		}
		e := Refused(op, res.StatusCode, message, reasonNoRepo, nil)
		if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && e.Code == capability.CodeOverloaded {
			e.RetryAfter = time.Duration(seconds) * time.Second
		}
		return res.StatusCode, e
	}
	if out == nil || res.StatusCode == http.StatusConflict {
		return res.StatusCode, nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return res.StatusCode, Refused(op, 0, "", reasonNoRepo, err)
	}
	return res.StatusCode, nil
}

// Refused returns the error of [Repository] for the status of an answer, or for err if there was no
// answer. message is the forge's, and missing the reason of a 404.
func Refused(op string, status int, message, missing string, err error) *capability.Error {
	message = text.ShortenBytes(text.Visible(message), 300)
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return capability.AsError(err)
	case status == 0:
		return capability.Wrap(capability.CodeUnavailable, op, "the forge cannot be reached, or answers what cannot be read", err).
			With("forge_unreachable", "")
	case status == http.StatusUnauthorized:
		return capability.Wrap(capability.CodeUnauthenticated, op, "the forge does not accept the credential", err).With("invalid_credentials",
			"give another token, or log in again")
	case status == http.StatusForbidden:
		return capability.Wrap(capability.CodeDenied, op, "the credential is not good for this: "+message, err).With("missing_scope",
			"use a token that may do this in this repository")
	case status == http.StatusNotFound || status == http.StatusGone:
		return capability.Wrap(capability.CodeNotFound, op, "the forge knows no such thing, or does not show it to this credential",
			err).With(missing, "")
	case status == http.StatusTooManyRequests:
		return capability.Wrap(capability.CodeOverloaded, op, "the forge takes no more requests for now", err).With("rate_limited",
			"try again later")
	case status >= 500:
		return capability.Wrap(capability.CodeUnavailable, op, "the forge is out of order", err).With("forge_unreachable", "try again later")
	}
	return capability.Wrap(capability.CodeFailed, op, "the forge does not want this: "+message, err).With("forge_refused", "")
}

// gitlab is a repository on GitLab.
type gitlab struct{ *restRepository }

func (g *gitlab) Facts(ctx context.Context) (Facts, error) {
	var p struct {
		Branch      string `json:"default_branch"`
		Archived    bool
		Issues      bool `json:"issues_enabled"`
		Permissions struct {
			Project gitlabAccess `json:"project_access"`
			Group   gitlabAccess `json:"group_access"`
		}
	}
	_, err := g.do(ctx, "forge.facts", http.MethodGet, "", nil, &p)
	level := max(p.Permissions.Project.Level, p.Permissions.Group.Level)
	return Facts{DefaultBranch: p.Branch, Push: level >= gitlabPusher && !p.Archived, Issues: p.Issues}, err
}

type gitlabAccess struct {
	Level int `json:"access_level"`
}

// mergeRequest is a merge request of GitLab.
type mergeRequest struct {
	Number int    `json:"iid"`
	URL    string `json:"web_url"`
	State  string
	Draft  bool
}

func (m mergeRequest) pull() Pull {
	if m.State == "opened" {
		m.State = "open"
	}
	return Pull{Number: m.Number, URL: m.URL, State: m.State, Draft: m.Draft}
}

func (g *gitlab) OpenPull(ctx context.Context, p PullRequest) (Pull, error) {
	if p.Draft {
		p.Title = "Draft: " + p.Title
	}
	var made mergeRequest
	status, err := g.do(ctx, "forge.pull", http.MethodPost, "/merge_requests", map[string]any{
		"source_branch": p.Head, "target_branch": p.Base, "title": p.Title, "description": p.Body, "labels": strings.Join(p.Labels, ","),
	}, &made)
	if err != nil || status != http.StatusConflict {
		out := made.pull()
		if len(p.Reviewers) > 0 && err == nil {
			out.Notes = append(out.Notes, "reviewers were not asked: GitLab names them by number")
		}
		return out, err
	}
	var open []mergeRequest
	query := url.Values{"state": {"opened"}, "source_branch": {p.Head}, "target_branch": {p.Base}}
	if _, err = g.do(ctx, "forge.pull", http.MethodGet, "/merge_requests?"+query.Encode(), nil, &open); err == nil && len(open) == 0 {
		err = Refused("forge.pull", http.StatusConflict, "it has a merge request for this branch that is not open", "", nil)
	}
	if err != nil {
		return Pull{}, err
	}
	return open[0].pull(), nil
}

func (g *gitlab) Checks(ctx context.Context, commit string) ([]Check, error) {
	var list []struct {
		ID           int64
		Name, Status string
		Description  string
		URL          string `json:"target_url"`
	}
	_, err := g.do(ctx, "forge.checks", http.MethodGet, "/repository/commits/"+url.PathEscape(commit)+"/statuses?per_page=100", nil, &list)
	if err != nil {
		return nil, err
	}
	out, traces := []Check{}, 0
	for _, s := range list {
		c := Check{Name: s.Name, State: checkState(s.Status), URL: s.URL, Output: s.Description}
		if c.State == CheckFailed && traces < maxTraces {
			traces++
			var trace string // a status that is not a job has none
			if _, err := g.do(ctx, "forge.checks", http.MethodGet, fmt.Sprintf("/jobs/%d/trace", s.ID), nil, &trace); err == nil {
				c.Output = trace
			}
		}
		out = append(out, c.bounded())
	}
	return out, nil
}

// forgejo is a repository on Forgejo or Gitea.
type forgejo struct{ *restRepository }

func (f *forgejo) Facts(ctx context.Context) (Facts, error) {
	var r struct {
		Branch      string `json:"default_branch"`
		Size        int64  // in KiB
		Archived    bool
		Issues      bool `json:"has_issues"`
		Permissions struct{ Push bool }
	}
	_, err := f.do(ctx, "forge.facts", http.MethodGet, "", nil, &r)
	return Facts{DefaultBranch: r.Branch, Bytes: r.Size << 10, Push: r.Permissions.Push && !r.Archived, Issues: r.Issues}, err
}

// forgejoPull is a pull request of Forgejo.
type forgejoPull struct {
	Number int
	URL    string `json:"html_url"`
	State  string
	Merged bool
	Draft  bool
	Head   struct{ Ref string }
	Base   struct{ Ref string }
}

func (p forgejoPull) pull() Pull {
	if p.Merged {
		p.State = "merged"
	}
	return Pull{Number: p.Number, URL: p.URL, State: p.State, Draft: p.Draft}
}

func (f *forgejo) OpenPull(ctx context.Context, p PullRequest) (Pull, error) {
	if p.Draft {
		p.Title = "WIP: " + p.Title
	}
	var made forgejoPull
	status, err := f.do(ctx, "forge.pull", http.MethodPost, "/pulls", map[string]any{
		"title": p.Title, "body": p.Body, "head": p.Head, "base": p.Base,
	}, &made)
	if err != nil || status != http.StatusConflict {
		out := made.pull()
		if len(p.Labels)+len(p.Reviewers) > 0 && err == nil {
			out.Notes = append(out.Notes, "labels and reviewers were not set")
		}
		return out, err
	}
	var open []forgejoPull
	if _, err = f.do(ctx, "forge.pull", http.MethodGet, "/pulls?state=open&limit=50", nil, &open); err != nil {
		return Pull{}, err
	}
	at := slices.IndexFunc(open, func(o forgejoPull) bool { return o.Head.Ref == p.Head && o.Base.Ref == p.Base })
	if at < 0 {
		return Pull{}, Refused("forge.pull", http.StatusConflict, "its pull request for this branch is not among the newest open ones", "", nil)
	}
	return open[at].pull(), nil
}

func (f *forgejo) Checks(ctx context.Context, commit string) ([]Check, error) {
	var list []struct {
		Context, Status, Description string

		URL string `json:"target_url"`
	}
	_, err := f.do(ctx, "forge.checks", http.MethodGet, "/commits/"+url.PathEscape(commit)+"/statuses?limit=50&sort=recentupdate", nil, &list)
	if err != nil {
		return nil, err
	}
	out := []Check{}
	for _, s := range list { // the newest first
		if !slices.ContainsFunc(out, func(c Check) bool { return c.Name == s.Context }) {
			out = append(out, NewCheck(s.Context, s.Status, s.URL, s.Description))
		}
	}
	return out, nil
}
