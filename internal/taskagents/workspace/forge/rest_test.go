package forge_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
	"github.com/junctor-run/junctor/secret"
)

const restToken = "glpat-0123456789abcdefghij"

// server answers requests of one forge with the texts of answers, by method and path. Those after the
// first of a key are for later requests.
type server struct {
	mu      sync.Mutex
	answers map[string][]string // status and body
	asked   []string            // with the body
	tokens  []string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	key := r.Method + " " + r.URL.EscapedPath()
	s.asked = append(s.asked, r.Method+" "+r.URL.RequestURI()+" "+string(body))
	s.tokens = append(s.tokens, r.Header.Get("Authorization"))
	list := s.answers[key]
	if len(list) == 0 {
		http.Error(w, `{"message":"404 Not Found"}`, http.StatusNotFound)
		return
	}
	if len(list) > 1 {
		s.answers[key] = list[1:]
	}
	status, text, _ := strings.Cut(list[0], " ")
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", "7")
	w.Header().Set("Location", "/elsewhere")
	code := map[string]int{"200": 200, "201": 201, "302": 302, "401": 401, "403": 403, "409": 409, "422": 422, "429": 429, "502": 502}[status]
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text)
}

// last returns the body of the last request with a method.
func (s *server) last(t *testing.T, method string) map[string]any {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range slices.Backward(s.asked) {
		if strings.HasPrefix(line, method+" ") {
			var out map[string]any
			if err := json.Unmarshal([]byte(line[strings.Index(line, "{"):]), &out); err != nil {
				t.Fatalf("decode: got %v, want no error", err)
			}
			return out
		}
	}
	t.Fatalf("no %s among %q", method, s.asked)
	return nil
}

func rest(t *testing.T, kind forge.Kind, owner string, answers map[string][]string) (*server, forge.Repository) {
	t.Helper()
	s := &server{answers: answers}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	r, err := (&forge.RESTHost{Kind: kind, Base: h.URL}).Open(forge.Repo{Owner: owner, Name: "widget"}, secret.New(restToken))
	if err != nil {
		t.Fatalf("open the forge: got %v, want no error", err)
	}
	return s, r
}

func TestGitLab(t *testing.T) {
	t.Parallel()
	const at = "/api/v4/projects/acme%2Ftools%2Fwidget"
	made := `{"id":84,"iid":3,"project_id":7,"title":"Draft: T","state":"opened","draft":true,"web_url":"https://gitlab.example/acme/tools/widget/-/merge_requests/3"}`
	s, r := rest(t, forge.GitLab, "acme/tools", map[string][]string{
		"GET " + at: {`200 {"id":7,"default_branch":"trunk","archived":false,"issues_enabled":true,` +
			`"permissions":{"project_access":null,"group_access":{"access_level":40,"notification_level":3}}}`},
		"POST " + at + "/merge_requests": {"201 " + made, `409 {"message":["Another open merge request already exists for this source branch: !3"]}`},
		"GET " + at + "/merge_requests":  {"200 [" + made + "]", "200 []"},
		"GET " + at + "/repository/commits/c0ffee/statuses": {`200 [
			{"id":11,"sha":"c0ffee","status":"success","name":"build","target_url":"https://gitlab.example/j/11","description":null},
			{"id":12,"sha":"c0ffee","status":"failed","name":"test","target_url":"https://gitlab.example/j/12","allow_failure":false},
			{"id":13,"sha":"c0ffee","status":"failed","name":"outside","target_url":"https://ci.example/13","description":"2 of 9 failed"},
			{"id":14,"sha":"c0ffee","status":"running","name":"deploy"}]`},
		"GET " + at + "/jobs/12/trace": {"200 " + strings.Repeat("x", 20<<10) + "\nFAIL with " + restToken + "\n"},
	})
	facts, err := r.Facts(t.Context())
	if want := (forge.Facts{DefaultBranch: "trunk", Push: true, Issues: true}); err != nil || facts != want {
		t.Errorf("Facts = %+v, %v, want %+v", facts, err, want)
	}
	ask := forge.PullRequest{Title: "T", Body: "B", Base: "trunk", Head: "junctor/x", Draft: true, Reviewers: []string{"ann"}}
	p, err := r.OpenPull(t.Context(), ask)
	if err != nil || p.Number != 3 || p.State != "open" || !p.Draft || !strings.HasSuffix(p.URL, "/merge_requests/3") || len(p.Notes) != 1 {
		t.Errorf("OpenPull = %+v, %v, want the draft 3, open, with a note", p, err)
	}
	if got := s.last(t, "POST"); got["source_branch"] != "junctor/x" || got["target_branch"] != "trunk" || got["title"] != "Draft: T" {
		t.Errorf("OpenPull sent %v, want the branches and the title of a draft", got)
	}
	if p, err = r.OpenPull(t.Context(), ask); err != nil || p.Number != 3 {
		t.Errorf("OpenPull(again) = %+v, %v, want the one that is open", p, err)
	}
	if _, err = r.OpenPull(t.Context(), ask); reasonOf(err) != "forge_refused" {
		t.Errorf("OpenPull(of a closed one) = %v, want forge_refused", err)
	}
	list, err := r.Checks(t.Context(), "c0ffee")
	if err != nil || len(list) != 4 {
		t.Fatalf("Checks = %+v, %v, want 4", list, err)
	}
	var states []string
	for _, c := range list {
		states = append(states, c.Name+" "+string(c.State))
	}
	if want := []string{"build passed", "test failed", "outside failed", "deploy pending"}; !slices.Equal(states, want) {
		t.Errorf("Checks = %q, want %q", states, want)
	}
	if out := list[1].Output; !strings.Contains(out, "\nFAIL with ") || strings.Contains(out, restToken) || len(out) > 17<<10 {
		t.Errorf("the output of a failed job has %d bytes that end with %q, want its end without the token", len(out), out[max(0, len(out)-60):])
	}
	if list[2].Output != "2 of 9 failed" {
		t.Errorf("the output of a status without a job = %q, want its description", list[2].Output)
	}
	for _, got := range s.tokens {
		if got != "Bearer "+restToken {
			t.Errorf("a request had the authorization %q, want the token", got)
		}
	}
}

func TestForgejo(t *testing.T) {
	t.Parallel()
	const at = "/api/v1/repos/acme/widget"
	pull := func(n, head string) string {
		return `{"id":9,"number":` + n + `,"html_url":"https://codeberg.example/acme/widget/pulls/` + n + `","state":"open","merged":false,` +
			`"draft":true,"head":{"label":"` + head + `","ref":"` + head + `","sha":"c0ffee"},"base":{"ref":"trunk"}}`
	}
	s, r := rest(t, forge.Forgejo, "acme", map[string][]string{
		"GET " + at: {`200 {"id":1,"default_branch":"trunk","size":2048,"archived":false,"has_issues":true,` +
			`"permissions":{"admin":false,"push":true,"pull":true}}`},
		"POST " + at + "/pulls": {"201 " + pull("5", "junctor/x"), `409 {"message":"pull request already exists for these targets","url":"https://codeberg.example/api/swagger"}`},
		"GET " + at + "/pulls":  {"200 [" + pull("6", "other") + "," + pull("5", "junctor/x") + "]", "200 [" + pull("6", "other") + "]"},
		"GET " + at + "/commits/c0ffee/statuses": {`200 [
			{"id":4,"status":"failure","context":"ci/test","target_url":"/acme/widget/actions/runs/4","description":"Failing after 9s"},
			{"id":3,"status":"success","context":"ci/build","target_url":"","description":"Successful in 2s"},
			{"id":2,"status":"pending","context":"ci/test","target_url":"","description":"Waiting to run"}]`},
	})
	facts, err := r.Facts(t.Context())
	if want := (forge.Facts{DefaultBranch: "trunk", Bytes: 2 << 20, Push: true, Issues: true}); err != nil || facts != want {
		t.Errorf("Facts = %+v, %v, want %+v", facts, err, want)
	}
	ask := forge.PullRequest{Title: "T", Body: "B", Base: "trunk", Head: "junctor/x", Draft: true, Labels: []string{"bot"}}
	p, err := r.OpenPull(t.Context(), ask)
	if err != nil || p.Number != 5 || p.State != "open" || !p.Draft || len(p.Notes) != 1 {
		t.Errorf("OpenPull = %+v, %v, want the draft 5, open, with a note", p, err)
	}
	if got := s.last(t, "POST"); got["head"] != "junctor/x" || got["base"] != "trunk" || got["title"] != "WIP: T" || got["body"] != "B" {
		t.Errorf("OpenPull sent %v, want the branches, the body and the title of a draft", got)
	}
	if p, err = r.OpenPull(t.Context(), ask); err != nil || p.Number != 5 {
		t.Errorf("OpenPull(again) = %+v, %v, want the one that is open", p, err)
	}
	if _, err = r.OpenPull(t.Context(), ask); reasonOf(err) != "forge_refused" {
		t.Errorf("OpenPull(of one that is not listed) = %v, want forge_refused", err)
	}
	list, err := r.Checks(t.Context(), "c0ffee")
	want := []forge.Check{
		{Name: "ci/test", State: forge.CheckFailed, URL: "/acme/widget/actions/runs/4", Output: "Failing after 9s"},
		{Name: "ci/build", State: forge.CheckPassed, Output: "Successful in 2s"},
	}
	if err != nil || !slices.Equal(list, want) {
		t.Errorf("Checks = %+v, %v, want the newest of each: %+v", list, err, want)
	}
}

func TestWhatAForgeRefuses(t *testing.T) {
	t.Parallel()
	const at = "/api/v1/repos/acme/widget"
	for answer, want := range map[string]string{
		`401 {"message":"no"}`:                         "unauthenticated invalid_credentials",
		`403 {"message":"not with ` + restToken + `"}`: "denied missing_scope",
		`404 {"message":"no"}`:                         "not_found repo_not_found",
		`422 {"message":"not ` + restToken + `"}`:      "failed forge_refused",
		`429 {}`:                             "overloaded rate_limited",
		`502 <html>`:                         "unavailable forge_unreachable",
		`302 `:                               "unavailable forge_unreachable",
		`200 <html>`:                         "unavailable forge_unreachable",
		`200 ` + strings.Repeat(" ", 17<<20): "unavailable forge_unreachable",
	} {
		answers := map[string][]string{"GET " + at: {answer}, "GET /elsewhere": {"200 {}"}}
		if strings.HasPrefix(answer, "404") {
			delete(answers, "GET "+at)
		}
		s, r := rest(t, forge.Forgejo, "acme", answers)
		_, err := r.Facts(t.Context())
		e := capability.AsError(err)
		if e == nil || string(e.Code)+" "+e.Reason != want || strings.Contains(e.Error(), restToken) {
			t.Errorf("Facts after %.40q = %v, want %s without the token", answer, err, want)
		}
		if e != nil && e.Code == capability.CodeOverloaded && e.RetryAfter != 7*time.Second {
			t.Errorf("RetryAfter = %s, want 7s", e.RetryAfter)
		}
		if len(s.asked) != 1 {
			t.Errorf("after %.40q the requests are %q, want one", answer, s.asked)
		}
	}
	host := &forge.RESTHost{Kind: forge.Forgejo, Base: "https://x"}
	if _, err := host.Open(forge.Repo{Owner: "a/b", Name: "c"}, secret.Value{}); err == nil {
		t.Error("Open(of a group on Forgejo): got no error, want one")
	}
}

func reasonOf(err error) string {
	if e := capability.AsError(err); e != nil {
		return e.Reason
	}
	return ""
}
