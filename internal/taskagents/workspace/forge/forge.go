// Package forge is the port to services that host repositories: pull requests and issues, with
// a user's credentials. Package githubforge implements it for GitHub, and this package for GitLab and
// Forgejo ([RESTHost]) and for bare repositories on this machine: there, a pull request is the ref refs/pull/<n>/head, as
// on GitHub, and a JSON file in the folder junctor-pulls, without issues.
//
// The package also finds the repository that a text names, decides which repositories may be
// used ([Policy]), and turns lists in a text into issues ([Items]).
package forge

import (
	"context"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/secret"
)

// Host is a forge. It is safe for concurrent use.
type Host interface {
	// Open returns the repository as the owner of token sees it, or as an anonymous
	// user if token is empty. It does not connect yet.
	Open(repo Repo, token secret.Value) (Repository, error)
}

// Repository is one repository on a forge, accessed with one credential. Errors of all methods:
// unauthenticated, reason invalid_credentials; denied, reason missing_scope; not_found, reason
// repo_not_found or issue_not_found; overloaded, reason rate_limited; failed, reason
// forge_refused, for other refusals; unavailable, reason forge_unreachable. Answers are bounded.
type Repository interface {
	// Facts returns the size of the repository and the rights of the credential.
	Facts(ctx context.Context) (Facts, error)
	// OpenPull opens a pull request, or returns the open one for the same branches.
	OpenPull(ctx context.Context, p PullRequest) (Pull, error)
	// Checks returns the checks that the forge ran for a commit, at most 100.
	Checks(ctx context.Context, commit string) ([]Check, error)
}

// CheckState is the state of a [Check].
type CheckState string

// The states. A skipped or neutral check has passed.
const (
	CheckPending CheckState = "pending"
	CheckPassed  CheckState = "passed"
	CheckFailed  CheckState = "failed"
)

// Check is one result of the continuous integration of a forge. Output is the end of what it printed,
// or a summary, as far as the forge gives it.
type Check struct {
	Name   string     `json:"name"`
	State  CheckState `json:"state"`
	URL    string     `json:"url,omitempty"`
	Output string     `json:"output,omitempty"`
}

// bounded returns the check with its texts cut and masked.
func (c Check) bounded() Check {
	c.Name, c.URL = text.ShortenBytes(c.Name, 200), text.ShortenBytes(c.URL, maxURL)
	c.Output = secret.MaskTokens(strings.ToValidUTF8(c.Output[max(0, len(c.Output)-maxOutput):], ""))
	return c
}

// checkState returns the state for the word of a forge. An unknown word is pending, so that it counts
// neither as passed nor as failed.
func checkState(word string) CheckState {
	switch word {
	case "success", "neutral", "skipped", "warning":
		return CheckPassed
	case "failed", "failure", "error", "canceled", "cancelled", "timed_out", "action_required", "startup_failure":
		return CheckFailed
	}
	return CheckPending
}

// NewCheck returns a check with bounded texts, whose state a forge names by word.
func NewCheck(name, word, address, output string) Check {
	return Check{Name: name, State: checkState(word), URL: address, Output: output}.bounded()
}

// Issues is a [Repository] with issues.
type Issues interface {
	Repository
	CreateIssue(ctx context.Context, title, body string, labels []string) (Issue, error)
	ListIssues(ctx context.Context, f IssueFilter) ([]Issue, error)
	// GetIssue returns an issue with its first hundred comments.
	GetIssue(ctx context.Context, number int) (Issue, error)
	// UpdateIssue changes an issue; it also closes and reopens it.
	UpdateIssue(ctx context.Context, number int, c IssueChange) (Issue, error)
	Comment(ctx context.Context, number int, body string) (Comment, error)
	ListComments(ctx context.Context, number int) ([]Comment, error)
	AddLabels(ctx context.Context, number int, labels []string) (Issue, error)
}

// Facts describes a repository and the rights of the credential.
type Facts struct {
	DefaultBranch string
	Bytes         int64 // approximate size; 0 if unknown
	Push, Issues  bool  // the credential may push; the repository has issues
}

// PullRequest describes a pull request to open.
type PullRequest struct {
	Title, Body       string
	Base, Head        string // branches of the same repository
	Draft             bool
	Labels, Reviewers []string
}

// Pull is an existing pull request. Notes lists the parts of the request that could not be
// applied, such as reviewers.
type Pull struct {
	Number int      `json:"number"`
	URL    string   `json:"url"`
	State  string   `json:"state"` // open, closed or merged
	Draft  bool     `json:"draft,omitempty"`
	Notes  []string `json:"notes,omitempty"`
}

// Issue is one issue.
type Issue struct {
	Number    int       `json:"number"`
	Title     string    `json:"title"`
	Body      string    `json:"body"`
	State     string    `json:"state"` // open or closed
	Labels    []string  `json:"labels"`
	URL       string    `json:"url"`
	Author    string    `json:"author"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
	Comments  []Comment `json:"comments,omitempty"`
}

// Comment is one comment on an issue.
type Comment struct {
	ID        int64     `json:"id"`
	Author    string    `json:"author"`
	Body      string    `json:"body"`
	URL       string    `json:"url"`
	CreatedAt time.Time `json:"createdAt"`
}

// IssueFilter selects issues: State is open (also ""), closed or all. An issue must have all
// Labels. Limit is 1 to 100; 0 means 30.
type IssueFilter struct {
	State  string
	Labels []string
	Limit  int
}

// IssueChange changes the fields that are not nil. State is open or closed.
type IssueChange struct {
	Title, Body, State *string
	Labels             *[]string
}
