// Package githubforge implements package forge for GitHub and for servers with the same REST
// API. Its API has no types of the client library. Tokens are sent to the configured server
// only: a redirect to another server is not followed.
package githubforge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-github/v88/github"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
	"github.com/junctor-run/junctor/secret"
)

// Config selects the server. The zero value is api.github.com.
type Config struct {
	// Base is the root URL of the REST API, such as https://host/api/v3.
	Base string
	// Transport sends requests; nil means the standard library's.
	Transport http.RoundTripper
	// Timeout limits one request; 0 means 30 s.
	Timeout time.Duration
}

// Host is a forge.Host.
type Host struct{ cfg Config }

var _ forge.Host = (*Host)(nil)

// New returns the host; it does not connect yet.
func New(cfg Config) *Host {
	if cfg.Base == "" {
		cfg.Base = "https://api.github.com"
	}
	cfg.Base = strings.TrimSuffix(cfg.Base, "/") + "/"
	if cfg.Transport == nil {
		cfg.Transport = http.DefaultTransport
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 30 * time.Second
	}
	return &Host{cfg}
}

// Open implements forge.Host.
func (h *Host) Open(repo forge.Repo, token secret.Value) (forge.Repository, error) {
	if repo.Owner == "" || strings.Contains(repo.Owner, "/") {
		return nil, capability.Errorf(capability.CodeInvalidInput, "forge.open",
			"a repository here has an owner and a name").With(forge.ReasonInvalidRepo, "give owner/name")
	}
	client := &http.Client{
		Transport: bounded{h.cfg.Transport}, Timeout: h.cfg.Timeout,
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) > 3 || req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme {
				return errors.New("redirected too often, or to another server")
			}
			return nil
		},
	}
	options := []github.ClientOptionsFunc{
		github.WithHTTPClient(client), github.WithURLs(&h.cfg.Base, nil), github.WithUserAgent("junctor"),
		github.WithDisableRateLimitCheck(), // a client is used once, so that its limits would not be reused
	}
	if !token.Empty() {
		options = append(options, github.WithAuthToken(token.Reveal()))
	}
	api, err := github.NewClient(options...)
	if err != nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, "forge.open", "the address of the forge is not a URL", err).With("invalid_forge",
			"correct the base URL in the configuration")
	}
	logs := &http.Client{
		Transport: client.Transport, Timeout: h.cfg.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &repository{api: api, logs: logs, owner: repo.Owner, name: repo.Name, token: token}, nil
}

// bounded limits the length of answers.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(req)
	if err == nil {
		res.Body = &limited{res.Body, maxAnswer}
	}
	return res, err
}

type limited struct {
	io.ReadCloser
	left int
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if l.left -= n; l.left < 0 {
		return 0, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	return n, err
}

type repository struct {
	api         *github.Client
	logs        *http.Client // without the token, for logs on other servers
	owner, name string
	token       secret.Value
}

// Facts implements forge.Repository. GitHub answers not_found also for a repository that the
// credential may not see.
func (r *repository) Facts(ctx context.Context) (forge.Facts, error) {
	got, res, err := r.api.Repositories.Get(ctx, r.owner, r.name)
	if err != nil {
		return forge.Facts{}, r.explain("forge.facts", err, "repo_not_found")
	}
	f := forge.Facts{
		DefaultBranch: got.GetDefaultBranch(), Bytes: int64(got.GetSize()) << 10,
		Push: got.GetPermissions().GetPush() && !got.GetArchived(), Issues: got.GetHasIssues(),
	}
	// GitHub sends the scopes of classic tokens, but not of fine-grained ones.
	if scopes := res.Header.Get("X-OAuth-Scopes"); scopes != "" && f.Push {
		f.Push = false
		for s := range strings.SplitSeq(scopes, ",") {
			s = strings.TrimSpace(s)
			f.Push = f.Push || s == "repo" || s == "public_repo" && !got.GetPrivate()
		}
	}
	return f, nil
}

// OpenPull implements forge.Repository. If labels or reviewers cannot be set, the pull request
// is opened without them and has a note.
func (r *repository) OpenPull(ctx context.Context, p forge.PullRequest) (forge.Pull, error) {
	got, _, err := r.api.PullRequests.Create(ctx, r.owner, r.name, &github.NewPullRequest{
		Title: &p.Title, Body: &p.Body, Base: &p.Base, Head: &p.Head, Draft: &p.Draft,
	})
	if refused, ok := errors.AsType[*github.ErrorResponse](err); ok && refused.Response.StatusCode == http.StatusUnprocessableEntity {
		// Regardless of the reason, an open pull request for the branches is the result.
		open, _, listErr := r.api.PullRequests.List(ctx, r.owner, r.name,
			&github.PullRequestListOptions{State: "open", Head: r.owner + ":" + p.Head, Base: p.Base})
		if listErr == nil && len(open) > 0 {
			return pull(open[0]), nil
		}
	}
	if err != nil {
		return forge.Pull{}, r.explain("forge.pull", err, "repo_not_found")
	}
	out := pull(got)
	if len(p.Labels) > 0 {
		if _, _, err := r.api.Issues.AddLabelsToIssue(ctx, r.owner, r.name, out.Number, p.Labels); err != nil {
			out.Notes = append(out.Notes, "labels were not set: "+capability.AsError(r.explain("forge.pull", err, "")).Message)
		}
	}
	if len(p.Reviewers) > 0 {
		if _, _, err := r.api.PullRequests.RequestReviewers(ctx, r.owner, r.name, out.Number,
			github.ReviewersRequest{Reviewers: p.Reviewers}); err != nil {
			out.Notes = append(out.Notes, "reviewers were not asked: "+capability.AsError(r.explain("forge.pull", err, "")).Message)
		}
	}
	return out, nil
}

// Checks implements forge.Repository: the runs of checks, and the statuses that other services set.
func (r *repository) Checks(ctx context.Context, commit string) ([]forge.Check, error) {
	const most = 100
	runs, _, err := r.api.Checks.ListCheckRunsForRef(ctx, r.owner, r.name, commit, &github.ListCheckRunsOptions{
		ListOptions: github.ListOptions{PerPage: most},
	})
	if err != nil {
		return nil, r.explain("forge.checks", err, "repo_not_found")
	}
	out, read := []forge.Check{}, 0
	for _, c := range runs.CheckRuns {
		said := strings.TrimSpace(c.GetOutput().GetTitle() + "\n" + c.GetOutput().GetSummary() + "\n" + c.GetOutput().GetText())
		check := forge.NewCheck(c.GetName(), c.GetConclusion(), c.GetHTMLURL(), said) // without a conclusion it runs
		if check.State == forge.CheckFailed && c.GetApp().GetSlug() == "github-actions" && read < maxLogs {
			read++
			if printed := r.jobLog(ctx, c.GetID()); printed != "" {
				check = forge.NewCheck(c.GetName(), c.GetConclusion(), c.GetHTMLURL(), printed)
			}
		}
		out = append(out, check)
	}
	status, _, err := r.api.Repositories.GetCombinedStatus(ctx, r.owner, r.name, commit, &github.ListOptions{PerPage: most})
	if err != nil {
		return nil, r.explain("forge.checks", err, "repo_not_found")
	}
	for _, s := range status.Statuses {
		out = append(out, forge.NewCheck(s.GetContext(), s.GetState(), s.GetTargetURL(), s.GetDescription()))
	}
	return out, nil
}

// jobLog returns what a job of GitHub Actions printed, whose check run has the same id, or "" if it
// cannot be read. GitHub redirects to another server, which does not get the token.
func (r *repository) jobLog(ctx context.Context, id int64) string {
	at, _, err := r.api.Actions.GetWorkflowJobLogs(ctx, r.owner, r.name, id, 0)
	if err != nil || at.Scheme != "https" && strings.HasPrefix(r.api.BaseURL(), "https:") {
		return ""
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return ""
	}
	res, err := r.logs.Do(req)
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return ""
	}
	return string(data)
}

func pull(p *github.PullRequest) forge.Pull {
	out := forge.Pull{Number: p.GetNumber(), URL: p.GetHTMLURL(), State: p.GetState(), Draft: p.GetDraft()}
	if p.GetMerged() || p.MergedAt != nil {
		out.State = "merged"
	}
	return out
}

// explain converts a failed request to an error of forge.Repository. missing is the reason of a
// 404.
func (r *repository) explain(op string, err error, missing string) error {
	if rate, ok := errors.AsType[*github.RateLimitError](err); ok {
		e := forge.Refused(op, http.StatusTooManyRequests, "", missing, err)
		e.RetryAfter = max(time.Until(rate.Rate.Reset.Time), time.Second)
		return e
	}
	if abuse, ok := errors.AsType[*github.AbuseRateLimitError](err); ok {
		e := forge.Refused(op, http.StatusTooManyRequests, "", missing, err)
		if abuse.RetryAfter != nil {
			e.RetryAfter = *abuse.RetryAfter
		}
		return e
	}
	answer, ok := errors.AsType[*github.ErrorResponse](err)
	if !ok || answer.Response == nil {
		return forge.Refused(op, 0, "", missing, err)
	}
	return forge.Refused(op, answer.Response.StatusCode, r.said(answer), missing, err)
}

// said returns the forge's message without the token.
func (r *repository) said(a *github.ErrorResponse) string {
	message := a.Message
	for _, e := range a.Errors {
		message += "; " + strings.TrimSpace(e.Field+" "+e.Code+" "+e.Message)
	}
	if !r.token.Empty() {
		message = strings.ReplaceAll(message, r.token.Reveal(), r.token.String())
	}
	return secret.MaskTokens(message)
}
