package githubforge

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
	"github.com/junctor-run/junctor/secret"
)

const token = "tok-0123456789"

// hub uses the part of GitHub's REST interface that is used, in its forms.
type hub struct {
	t      *testing.T
	server *httptest.Server

	mu       sync.Mutex
	requests []string
	issues   []map[string]any
	comments map[int][]map[string]any
	pulls    []map[string]any
	scopes   string
	noLabels bool
}

func newHub(t *testing.T) (*hub, forge.Issues) {
	t.Helper()
	h := &hub{t: t, comments: make(map[int][]map[string]any), scopes: "gist, repo"}
	mux := http.NewServeMux()
	const repo = "/api/v3/repos/acme/widget"
	mux.HandleFunc("GET "+repo, func(w http.ResponseWriter, _ *http.Request) {
		h.answer(w, 200, map[string]any{
			"id": 1, "name": "widget", "default_branch": "trunk", "size": 2048, "private": true, "has_issues": true,
			"permissions": map[string]bool{"admin": false, "push": true, "pull": true},
		})
	})
	mux.HandleFunc("POST "+repo+"/pulls", h.openPull)
	mux.HandleFunc("GET "+repo+"/pulls", func(w http.ResponseWriter, r *http.Request) {
		out := []map[string]any{}
		for _, p := range h.pulls {
			if r.FormValue("head") == "acme:"+p["head"].(map[string]any)["ref"].(string) && r.FormValue("state") == "open" {
				out = append(out, p)
			}
		}
		h.answer(w, 200, out)
	})
	mux.HandleFunc("POST "+repo+"/pulls/{n}/requested_reviewers", func(w http.ResponseWriter, _ *http.Request) {
		h.answer(w, 422, map[string]any{
			"message":           "Reviews may only be requested from collaborators.",
			"documentation_url": "https://docs.example",
		})
	})
	mux.HandleFunc("GET "+repo+"/commits/c0ffee/check-runs", func(w http.ResponseWriter, _ *http.Request) {
		h.answer(w, 200, map[string]any{"total_count": 3, "check_runs": []map[string]any{
			{"id": 1, "name": "build", "status": "completed", "conclusion": "skipped", "html_url": "https://hub.example/1"},
			{"id": 2, "name": "test", "status": "completed", "conclusion": "failure", "output": map[string]any{
				"title": "2 failed", "summary": "TestX, TestY", "text": nil,
			}},
			{"id": 3, "name": "lint", "status": "in_progress", "conclusion": nil},
			{"id": 5, "name": "job", "status": "completed", "conclusion": "failure", "app": map[string]any{"slug": "github-actions"}},
			{"id": 6, "name": "gone", "status": "completed", "conclusion": "failure", "app": map[string]any{"slug": "github-actions"}},
		}})
	})
	logs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "" || r.FormValue("sig") != "x" {
			h.t.Errorf("the server of logs was asked for %s with the authorization %q, want the signed address alone", r.URL, got)
		}
		_, _ = io.WriteString(w, "2026-11-22T10:00:00Z FAIL TestZ\n")
	}))
	t.Cleanup(logs.Close)
	mux.HandleFunc("GET "+repo+"/actions/jobs/5/logs", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, logs.URL+"/job.txt?sig=x", http.StatusFound)
	})
	mux.HandleFunc("GET "+repo+"/commits/c0ffee/status", func(w http.ResponseWriter, _ *http.Request) {
		h.answer(w, 200, map[string]any{"state": "success", "statuses": []map[string]any{
			{"id": 4, "state": "success", "context": "ci/outside", "target_url": "https://ci.example/4", "description": "fine"},
		}})
	})
	mux.HandleFunc("GET "+repo+"/issues", h.listIssues)
	mux.HandleFunc("POST "+repo+"/issues", func(w http.ResponseWriter, r *http.Request) {
		in := h.body(r)
		h.issues = append(h.issues, h.issue(len(h.issues)+1, in))
		h.answer(w, 201, h.issues[len(h.issues)-1])
	})
	mux.HandleFunc("GET "+repo+"/issues/{n}", func(w http.ResponseWriter, r *http.Request) { h.withIssue(w, r, func(map[string]any) {}) })
	mux.HandleFunc("PATCH "+repo+"/issues/{n}", func(w http.ResponseWriter, r *http.Request) {
		in := h.body(r)
		h.withIssue(w, r, func(i map[string]any) {
			for k, v := range in {
				i[k] = v
			}
		})
	})
	mux.HandleFunc("POST "+repo+"/issues/{n}/labels", func(w http.ResponseWriter, r *http.Request) {
		if h.noLabels {
			h.answer(w, 403, map[string]any{"message": "Resource not accessible by " + token + "\nreally"})
			return
		}
		var names []string
		_ = json.NewDecoder(r.Body).Decode(&names)
		n, _ := strconv.Atoi(r.PathValue("n"))
		if n <= len(h.issues) {
			h.issues[n-1]["labels"] = append(h.issues[n-1]["labels"].([]map[string]any), labels(names)...)
		}
		h.answer(w, 200, labels(names))
	})
	mux.HandleFunc("POST "+repo+"/issues/{n}/comments", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.PathValue("n"))
		c := map[string]any{
			"id": 77, "body": h.body(r)["body"], "user": map[string]any{"login": "octocat"},
			"created_at": "2026-11-22T10:00:00Z", "html_url": h.server.URL + "/c/77",
		}
		h.comments[n] = append(h.comments[n], c)
		h.answer(w, 201, c)
	})
	mux.HandleFunc("GET "+repo+"/issues/{n}/comments", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.PathValue("n"))
		h.answer(w, 200, h.comments[n])
	})
	h.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.requests = append(h.requests, r.Method+" "+r.URL.RequestURI())
		if r.Header.Get("Authorization") != "Bearer "+token {
			h.answer(w, 401, map[string]any{"message": "Bad credentials"})
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(h.server.Close)
	return h, open(t, h.server.URL+"/api/v3", token)
}

func open(t *testing.T, base, token string) forge.Issues {
	t.Helper()
	r, err := New(Config{Base: base, Timeout: 5 * time.Second}).Open(forge.Repo{Owner: "acme", Name: "widget"}, secret.New(token))
	if err != nil {
		t.Fatal(err)
	}
	issues, ok := r.(forge.Issues)
	if !ok {
		t.Fatalf("Open() = %T, want a forge.Issues", r)
	}
	return issues
}

func (h *hub) answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	if h.scopes != "" {
		w.Header().Set("X-OAuth-Scopes", h.scopes)
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (h *hub) body(r *http.Request) map[string]any {
	data, _ := io.ReadAll(r.Body)
	var in map[string]any
	if err := json.Unmarshal(data, &in); err != nil {
		h.t.Errorf("%s %s: %q", r.Method, r.URL, data)
	}
	return in
}

func labels(names []string) []map[string]any {
	out := []map[string]any{}
	for _, n := range names {
		out = append(out, map[string]any{"id": 1, "name": n, "color": "ededed"})
	}
	return out
}

func (h *hub) issue(n int, in map[string]any) map[string]any {
	var names []string
	given, _ := in["labels"].([]any)
	for _, l := range given {
		names = append(names, l.(string))
	}
	return map[string]any{
		"number": n, "title": in["title"], "body": in["body"], "state": "open", "labels": labels(names), "comments": 0,
		"html_url": fmt.Sprintf("%s/acme/widget/issues/%d", h.server.URL, n), "user": map[string]any{"login": "octocat"},
		"created_at": "2026-11-20T10:00:00Z", "updated_at": "2026-11-21T10:00:00Z",
	}
}

func (h *hub) withIssue(w http.ResponseWriter, r *http.Request, do func(map[string]any)) {
	n, _ := strconv.Atoi(r.PathValue("n"))
	if n < 1 || n > len(h.issues) {
		h.answer(w, 404, map[string]any{"message": "Not Found"})
		return
	}
	do(h.issues[n-1])
	h.issues[n-1]["comments"] = len(h.comments[n])
	h.answer(w, 200, h.issues[n-1])
}

// listIssues gives two a page, and pull requests among them.
func (h *hub) listIssues(w http.ResponseWriter, r *http.Request) {
	page, _ := strconv.Atoi(r.FormValue("page"))
	page = max(page, 1)
	all := append([]map[string]any{{"number": 100, "title": "a pull request", "state": "open", "pull_request": map[string]any{"url": "x"}}},
		h.issues...)
	from := min((page-1)*2, len(all))
	to := min(from+2, len(all))
	if to < len(all) {
		next := *r.URL
		q := next.Query()
		q.Set("page", strconv.Itoa(page+1))
		next.RawQuery = q.Encode()
		w.Header().Set("Link", "<"+h.server.URL+next.String()+`>; rel="next"`)
	}
	h.answer(w, 200, all[from:to])
}

func (h *hub) openPull(w http.ResponseWriter, r *http.Request) {
	in := h.body(r)
	for _, p := range h.pulls {
		if p["head"].(map[string]any)["ref"] == in["head"] {
			h.answer(w, 422, map[string]any{
				"message": "Validation Failed",
				"errors": []map[string]any{{"resource": "PullRequest", "code": "custom", "message": "A pull request already exists for acme:" +
					in["head"].(string) + "."}},
			})
			return
		}
	}
	if in["head"] == in["base"] {
		h.answer(w, 422, map[string]any{
			"message": "Validation Failed",
			"errors":  []map[string]any{{"resource": "PullRequest", "field": "head", "code": "invalid"}},
		})
		return
	}
	n := len(h.pulls) + 1
	p := map[string]any{
		"number": n, "state": "open", "title": in["title"], "body": in["body"], "draft": in["draft"],
		"html_url": fmt.Sprintf("%s/acme/widget/pull/%d", h.server.URL, n), "head": map[string]any{"ref": in["head"]},
		"base": map[string]any{"ref": in["base"]},
	}
	h.pulls = append(h.pulls, p)
	h.answer(w, 201, p)
}

func reason(err error) string {
	if e := capability.AsError(err); e != nil {
		return e.Reason
	}
	return ""
}

func TestFactsComeBeforeWork(t *testing.T) {
	t.Parallel()
	h, r := newHub(t)
	for scopes, push := range map[string]bool{"gist, repo": true, "": true, "public_repo": false, "read:org": false} {
		h.mu.Lock()
		h.scopes = scopes
		h.mu.Unlock()
		f, err := r.Facts(t.Context())
		if want := (forge.Facts{DefaultBranch: "trunk", Bytes: 2 << 20, Push: push, Issues: true}); err != nil || f != want {
			t.Errorf("scopes %q: %+v, %v; want no error, f = %v", scopes, f, err, want)
		}
	}
	if _, err := open(t, h.server.URL+"/api/v3", "wrong").Facts(t.Context()); reason(err) != "invalid_credentials" ||
		capability.CodeOf(err) != capability.CodeUnauthenticated {
		t.Errorf(`%v; want reason(err) = "invalid_credentials", capability.CodeOf(err) = capability.CodeUnauthenticated`, err)
	}
}

func TestPullRequests(t *testing.T) {
	t.Parallel()
	h, r := newHub(t)
	want := forge.PullRequest{
		Title: "T", Body: "B", Base: "trunk", Head: "eliza/x/y", Draft: true, Labels: []string{"bot"},
		Reviewers: []string{"nobody"},
	}
	p, err := r.OpenPull(t.Context(), want)
	if err != nil || p.Number != 1 || p.State != "open" || !p.Draft || p.URL != h.server.URL+"/acme/widget/pull/1" {
		t.Fatalf(`%+v, %v; want no error, p.Number = 1, p.State = "open", p.Draft = true, p.URL = h.server.URL + "/acme/widget/pull/1"`,
			p, err)
	}
	if len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "collaborators") {
		t.Errorf(`notes %q; want len(p.Notes) = 1, p.Notes[0] with "collaborators"`, p.Notes)
	}
	if got := h.pulls[0]; got["title"] != "T" || got["body"] != "B" || got["base"].(map[string]any)["ref"] != "trunk" {
		t.Errorf(`%v; want got["title"] = "T", got["body"] = "B", got["base"].(map[string]any)["ref"] = "trunk"`, got)
	}
	if again, err := r.OpenPull(t.Context(), want); err != nil || again.Number != 1 {
		t.Errorf("one that exists: %+v, %v; want no error, again.Number = 1", again, err)
	}
	_, err = r.OpenPull(t.Context(), forge.PullRequest{Title: "T", Base: "x", Head: "x"})
	if reason(err) != "forge_refused" || !strings.Contains(capability.AsError(err).Message, "head invalid") {
		t.Errorf(`%v; want reason(err) = "forge_refused", capability.AsError(err).Message with "head invalid"`, err)
	}
	h.mu.Lock()
	h.noLabels = true
	h.mu.Unlock()
	p, err = r.OpenPull(t.Context(), forge.PullRequest{Title: "T", Base: "trunk", Head: "other", Labels: []string{"bot"}})
	if err != nil || len(p.Notes) != 1 || strings.Contains(p.Notes[0], token) || strings.Contains(p.Notes[0], "\n") {
		t.Errorf(`%+v, %v; want no error, len(p.Notes) = 1, p.Notes[0] without %v, p.Notes[0] without "\n"`, p, err, token)
	}
}

func TestChecks(t *testing.T) {
	t.Parallel()
	_, r := newHub(t)
	got, err := r.Checks(t.Context(), "c0ffee")
	want := []forge.Check{
		{Name: "build", State: forge.CheckPassed, URL: "https://hub.example/1"},
		{Name: "test", State: forge.CheckFailed, Output: "2 failed\nTestX, TestY"},
		{Name: "lint", State: forge.CheckPending},
		{Name: "job", State: forge.CheckFailed, Output: "2026-11-22T10:00:00Z FAIL TestZ\n"},
		{Name: "gone", State: forge.CheckFailed},
		{Name: "ci/outside", State: forge.CheckPassed, URL: "https://ci.example/4", Output: "fine"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Checks = %+v, %v, want %+v", got, err, want)
	}
	if _, err := r.Checks(t.Context(), "dead"); reason(err) != "repo_not_found" {
		t.Errorf("Checks(unknown commit) = %v, want repo_not_found", err)
	}
}

func TestIssues(t *testing.T) {
	t.Parallel()
	h, r := newHub(t)
	ctx := t.Context()
	for _, title := range []string{"one", "two", "three"} {
		if _, err := r.CreateIssue(ctx, title, "body of "+title, []string{"bug"}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := r.ListIssues(ctx, forge.IssueFilter{State: "all", Labels: []string{"bug", "help wanted"}})
	if err != nil || len(list) != 3 || list[2].Title != "three" {
		t.Fatalf(`%+v, %v; want no error, len(list) = 3, list[2].Title = "three"`, list, err)
	}
	if !slices.ContainsFunc(h.requests, func(q string) bool {
		return strings.Contains(q, "labels=bug%2Chelp+wanted") && strings.Contains(q, "state=all")
	}) {
		t.Errorf("requests %v", h.requests)
	}
	if few, err := r.ListIssues(ctx, forge.IssueFilter{Limit: 1}); err != nil || len(few) != 1 {
		t.Errorf("%+v, %v; want no error, len(few) = 1", few, err)
	}
	want := forge.Issue{
		Number: 2, Title: "two", Body: "body of two", State: "open", Labels: []string{"bug"}, URL: h.server.URL + "/acme/widget/issues/2",
		Author:    "octocat",
		CreatedAt: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC), UpdatedAt: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC),
	}
	got, err := r.GetIssue(ctx, 2)
	if doc, wantDoc := asJSON(got), asJSON(want); err != nil || doc != wantDoc {
		t.Errorf("%s, %v; want no error, doc = %v", doc, err, wantDoc)
	}
	if c, err := r.Comment(ctx, 2, "hello"); err != nil || c.ID != 77 || c.Body != "hello" || c.Author != "octocat" {
		t.Errorf(`%+v, %v; want no error, c.ID = 77, c.Body = "hello", c.Author = "octocat"`, c, err)
	}
	if got, err = r.GetIssue(ctx, 2); err != nil || len(got.Comments) != 1 || got.Comments[0].Body != "hello" {
		t.Errorf(`%+v, %v; want no error, len(got.Comments) = 1, got.Comments[0].Body = "hello"`, got, err)
	}
	if got, err = r.AddLabels(ctx, 2, []string{"later"}); err != nil || !slices.Equal(got.Labels, []string{"bug", "later"}) {
		t.Errorf(`%+v, %v; want no error, got.Labels = []string{"bug", "later"}`, got, err)
	}
	closed, title := "closed", "two, done"
	if got, err = r.UpdateIssue(ctx, 2, forge.IssueChange{State: &closed, Title: &title}); err != nil || got.State != "closed" ||
		got.Title != title || got.Body != "body of two" {
		t.Errorf(`%+v, %v; want no error, got.State = "closed", got.Title = %v, got.Body = "body of two"`, got, err, title)
	}
	if _, err := r.GetIssue(ctx, 9); reason(err) != "issue_not_found" {
		t.Errorf(`%v; want reason(err) = "issue_not_found"`, err)
	}
}

func asJSON(v any) string {
	data, _ := json.Marshal(v)
	return string(data)
}

func TestTroubleWithTheForge(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the token went elsewhere: %s", r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	reset := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)
	tests := []struct {
		name   string
		handle http.HandlerFunc
		code   capability.Code
		reason string
	}{
		{"rate limit", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-RateLimit-Remaining", "0")
			w.Header().Set("X-RateLimit-Reset", reset)
			http.Error(w, `{"message":"API rate limit exceeded"}`, http.StatusForbidden)
		}, capability.CodeOverloaded, "rate_limited"},
		{"secondary limit", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "60")
			http.Error(w, `{"message":"slow","documentation_url":"https://docs.github.com/rest/x#secondary-rate-limits"}`, http.StatusForbidden)
		}, capability.CodeOverloaded, "rate_limited"},
		{
			"forbidden", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"message":"no"}`, http.StatusForbidden) },
			capability.CodeDenied, "missing_scope",
		},
		{"not found", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"message":"Not Found"}`, http.StatusNotFound)
		}, capability.CodeNotFound, "repo_not_found"},
		{
			"broken", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `oops`, http.StatusBadGateway) }, capability.CodeUnavailable,
			"forge_unreachable",
		},
		{
			"another shape", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `[1,2]`) }, capability.CodeUnavailable,
			"forge_unreachable",
		},
		{"an answer without end", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"name":"`)
			for range maxAnswer>>20 + 1 {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}, capability.CodeUnavailable, "forge_unreachable"},
		{"a redirect to another server", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+"/", http.StatusMovedPermanently)
		}, capability.CodeUnavailable, "forge_unreachable"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(tt.handle)
			defer server.Close()
			_, err := open(t, server.URL, token).Facts(t.Context())
			if capability.CodeOf(err) != tt.code || reason(err) != tt.reason {
				t.Errorf("got %s %s: %v; want capability.CodeOf(err) = %v, reason(err) = %v",
					capability.CodeOf(err), reason(err), err, tt.code, tt.reason)
			}
			e := capability.AsError(err)
			if tt.reason == "rate_limited" && (e.RetryAfter <= 0 || e.RetryAfter > time.Hour) {
				t.Errorf(`again after %v; want not (tt.reason == "rate_limited" && (e.RetryAfter <= 0 || e.RetryAfter > time.Hour))`,
					e.RetryAfter)
			}
			if doc := asJSON(e); strings.Contains(doc, token) || strings.Contains(doc, server.URL) {
				t.Errorf("it says too much: %s; want doc without %v, doc without %v", doc, token, server.URL)
			}
		})
	}
	if _, err := open(t, "http://127.0.0.1:1", token).Facts(t.Context()); reason(err) != "forge_unreachable" {
		t.Errorf(`%v; want reason(err) = "forge_unreachable"`, err)
	}
	for _, repo := range []forge.Repo{{Name: "x"}, {Owner: "a/b", Name: "x"}} {
		if _, err := New(Config{}).Open(repo, secret.Value{}); reason(err) != "invalid_repo" {
			t.Errorf(`%+v: %v; want reason(err) = "invalid_repo"`, repo, err)
		}
	}
}
