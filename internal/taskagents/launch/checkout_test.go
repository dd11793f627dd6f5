package launch_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/launch"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
	"github.com/junctor-run/junctor/internal/taskagents/threads/threadsql"
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
)

// workers are programs of agents that only record what they were started with.
type workers struct {
	mu      sync.Mutex
	started []agents.Request
}

func (w *workers) Spawn(_ context.Context, _ capability.Principal, req agents.Request) (agents.Info, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started = append(w.started, req)
	i := agents.Info{}
	i.ID, i.Workdir, i.AdapterType = fmt.Sprint("s", len(w.started)), req.Workdir, "claude"
	return i, nil
}

func (*workers) Keep(string) (agents.Info, error)           { return agents.Info{}, nil }
func (*workers) Send(context.Context, string, string) error { return nil }
func (*workers) Stop(string, bool)                          {}

// job is a task in a user's checkout.
type job struct {
	t     *testing.T
	repo  string
	l     *launch.Launcher
	r     *threads.Registry
	w     *workers
	by    capability.Principal
	where *workspace.Manager
	said  []string // to the owners of tasks
}

func newJob(t *testing.T) *job {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	j := &job{t: t, repo: filepath.Join(dir, "repo"), w: &workers{}, by: capability.Principal{ID: "op", Role: capability.RoleOperator}}
	if err := os.Mkdir(j.repo, 0o700); err != nil {
		t.Fatal(err)
	}
	j.git("init", "-q", "-b", "main")
	j.write(j.repo, "a.txt", "one\n")
	j.git("add", ".")
	j.git("commit", "-q", "-m", "first")
	db, err := store.Open(t.Context(), filepath.Join(dir, "junctor.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	st, err := threadsql.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	if j.r, err = threads.New(threads.Config{Store: st, Now: time.Now}); err != nil {
		t.Fatal(err)
	}
	git, err := gitcmd.New(gitcmd.Config{})
	if err != nil {
		t.Fatalf("git: got %v, want no error", err)
	}
	j.where, err = workspace.Open(t.Context(), workspace.Config{
		Base: filepath.Join(dir, "work"), State: filepath.Join(dir, "state"), MinFree: 1,
		Policy: forge.Policy{OperatorPrefixes: []string{filepath.Join(dir, "remotes")}},
		Forge:  func(forge.Repo) forge.Host { return &forge.BareHost{Git: git} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.where.Close() })
	j.l = launch.New(launch.Config{
		Notify: func(_ context.Context, th row.Thread, _, text string) error {
			j.said = append(j.said, th.ID+": "+text)
			return nil
		},
		Registry: j.r, Agents: j.w, Logger: slog.New(slog.DiscardHandler),
		Checkouts: func() (launch.Checkouts, error) { return j.where, nil },
		Standing:  func(string) (capability.Principal, error) { return j.by, nil },
		Consents:  agreed{},
	})
	j.l.Use(coordinated{j.r})
	return j
}

// agreed is the setups that users have agreed to.
type agreed map[string]string

func (a agreed) Given(_ context.Context, repository, digest string) (bool, error) {
	return a[repository] == digest, nil
}

func (a agreed) Give(_ context.Context, _ capability.Principal, repository, digest string) error {
	a[repository] = digest
	return nil
}

func (j *job) git(args ...string) string {
	j.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
	cmd.Dir = j.repo
	out, err := cmd.CombinedOutput()
	if err != nil {
		j.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (j *job) write(dir, name, text string) {
	j.t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		j.t.Fatal(err)
	}
}

func (j *job) create(parts ...launch.Part) launch.Created {
	j.t.Helper()
	for i := range parts {
		parts[i].AgentType, parts[i].Task = "claude", "Do "+parts[i].Label
	}
	made, err := j.l.Create(j.t.Context(), j.by, launch.Task{Title: "The job", Parts: parts, Checkout: &launch.Checkout{Path: j.repo}})
	if err != nil {
		j.t.Fatal(err)
	}
	return made
}

// request returns what the n-th program was started with.
func (j *job) request(n int) agents.Request {
	j.t.Helper()
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	if len(j.w.started) < n {
		j.t.Fatalf("%d programs were started, want %d", len(j.w.started), n)
	}
	return j.w.started[n-1]
}

// end completes the session in a folder.
func (j *job) end(thread, folder string) {
	j.t.Helper()
	d, err := j.r.Detail(j.t.Context(), thread, threads.Selection{})
	if err != nil {
		j.t.Fatal(err)
	}
	for _, s := range d.Sessions {
		if s.Workdir != folder {
			continue
		}
		if _, err := j.r.UpdateSession(j.t.Context(), s.SessionID, func(s *row.Session) { s.Status = row.SessionCompleted }); err != nil {
			j.t.Fatal(err)
		}
		return
	}
	j.t.Fatalf("no session works in %s", folder)
}

// folder returns the folder of a label's program.
func (j *job) folder(label string) string {
	j.t.Helper()
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	for _, r := range j.w.started {
		if r.Name == label {
			return r.Workdir
		}
	}
	j.t.Fatalf("no program works on %s", label)
	return ""
}

// merge merges the work of a thread as Review shows it.
func (j *job) merge(thread string) (workspace.Merged, error) {
	j.t.Helper()
	r, err := j.l.Review(j.t.Context(), thread, "")
	if err != nil {
		return workspace.Merged{}, err
	}
	return j.l.Merge(j.t.Context(), launch.Merge{ThreadID: thread, Commit: r.Head})
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return capability.AsError(err).Reason
}

func TestASwarmInACheckoutBecomesOneBranchWithTheCodeOfAllParts(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	made := j.create(launch.Part{Label: "api"}, launch.Part{Label: "tests", DependsOn: []int{0}},
		launch.Part{Label: "docs", DependsOn: []int{0, 1}})
	j.write(j.folder("api"), "api.go", "package api\n")
	if _, err := j.merge(made.ThreadID); reason(err) != "task_not_done" {
		t.Errorf("Merge(running) = %v, want task_not_done", err)
	}
	if _, err := j.l.Discard(t.Context(), made.ThreadID); reason(err) != "task_running" {
		t.Errorf("Discard(running) = %v, want task_running", err)
	}
	j.end(made.ThreadID, j.folder("api"))
	j.l.Begin(t.Context(), made.ThreadID)
	if got, err := os.ReadFile(filepath.Join(j.folder("tests"), "api.go")); string(got) != "package api\n" {
		t.Errorf("api.go of the dependent part = %q, %v, want the code of the first", got, err)
	}
	j.write(j.folder("tests"), "api_test.go", "package api\n")
	j.end(made.ThreadID, j.folder("tests"))
	j.l.Begin(t.Context(), made.ThreadID)
	j.write(j.folder("docs"), "README.md", "# API\n")
	j.end(made.ThreadID, j.folder("docs"))
	if err := j.l.Collect(t.Context(), made.ThreadID); err != nil {
		t.Fatal(err)
	}
	r, err := j.l.Review(t.Context(), made.ThreadID, "")
	if err != nil || r.Done != 3 || r.Parts != 3 || r.Stat.Files != 3 || !strings.HasSuffix(r.Branch, "/result") {
		t.Fatalf("Review = %+v, %v, want the three files of three parts on the result branch", r, err)
	}
	m, err := j.merge(made.ThreadID)
	if err != nil {
		t.Fatal(err)
	}
	if got := j.git("diff", "--binary", "--full-index", "--no-renames", m.From, "main"); !bytes.Equal([]byte(got), r.Diff) {
		t.Errorf("merged %q, want what was reviewed: %q", got, r.Diff)
	}
	if _, err := j.l.Discard(t.Context(), made.ThreadID); err != nil {
		t.Fatal(err)
	}
	if got := j.git("branch", "--list", "junctor/*") + j.git("worktree", "list"); strings.Contains(got, "junctor/") {
		t.Errorf("after Discard git lists %q, want the checkout alone", got)
	}
	if _, err := j.l.Review(t.Context(), made.ThreadID, ""); reason(err) != "task_discarded" {
		t.Errorf("Review(discarded) = %v, want task_discarded", err)
	}
}

func TestAMergeTakesOnlyTheCommitThatWasReviewed(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	made := j.create(launch.Part{Label: "one"}, launch.Part{Label: "two"})
	for _, label := range []string{"one", "two"} {
		j.write(j.folder(label), label+".txt", label+"\n")
		j.end(made.ThreadID, j.folder(label))
	}
	review := func(part string) launch.Reviewed {
		t.Helper()
		r, err := j.l.Review(t.Context(), made.ThreadID, part)
		if err != nil {
			t.Fatalf("Review(%q): got %v, want no error", part, err)
		}
		return r
	}
	merge := func(commit string) error {
		_, err := j.l.Merge(t.Context(), launch.Merge{ThreadID: made.ThreadID, Commit: commit})
		return err
	}
	shown := review("")
	if len(shown.Commits) != 2 {
		t.Fatalf("the review shows the commits %+v, want those of both parts", shown.Commits)
	}
	for _, c := range shown.Commits {
		if got := strings.TrimSpace(j.git("rev-parse", c.Branch)); got != c.Commit || !strings.HasSuffix(c.Branch, "/"+c.Part) {
			t.Errorf("the review shows %+v, want the commit %s of that branch", c, got)
		}
	}
	one := review("one")
	if want := []launch.PartCommit{{Part: "one", Branch: one.Branch, Commit: one.Head}}; !slices.Equal(one.Commits, want) {
		t.Errorf("the review of a part shows %+v, want %+v", one.Commits, want)
	}
	before := j.git("rev-parse", "main")
	for name, commit := range map[string]string{
		"a part's": one.Head, "a branch": shown.Branch, "an abbreviated": shown.Head[:12],
		"the user's": strings.TrimSpace(before), "no commit": strings.Repeat("0", 40),
	} {
		if err := merge(commit); reason(err) != "work_moved" {
			t.Errorf("Merge(%s) = %v, want work_moved", name, err)
		}
	}
	if err := merge(""); reason(err) != "not_reviewed" {
		t.Errorf("Merge(without a commit) = %v, want not_reviewed", err)
	}
	// The part moves after it was shown: by a file of its worktree, and by a commit on the result.
	j.write(j.folder("two"), "two.txt", "other\n")
	if err := merge(shown.Head); reason(err) != "work_moved" {
		t.Errorf("Merge(after the part has moved) = %v, want work_moved", err)
	}
	moved := review("")
	j.git("update-ref", "refs/heads/"+moved.Branch, shown.Head)
	if err := merge(moved.Head); reason(err) != "work_moved" {
		t.Errorf("Merge(after the branch was set back) = %v, want work_moved", err)
	}
	if got := j.git("rev-parse", "main"); got != before {
		t.Errorf("main is at %s, want it unchanged at %s", got, before)
	}
	if err := merge(review("").Head); err != nil {
		t.Fatalf("Merge(what is shown): got %v, want no error", err)
	}
	if got := j.git("show", "main:two.txt"); got != "other\n" {
		t.Errorf("main:two.txt = %q, want what was shown last", got)
	}
}

func TestTheWorkOfAllPartsBecomesAPullRequest(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	remote := filepath.Join(filepath.Dir(j.repo), "remotes", "widget.git")
	j.git("init", "-q", "--bare", "-b", "main", remote)
	j.git("remote", "add", "origin", remote)
	j.git("push", "-q", "origin", "main")
	made := j.create(launch.Part{Label: "one"}, launch.Part{Label: "two"})
	if _, err := j.l.Checks(t.Context(), made.ThreadID); err == nil {
		t.Error("Checks(before there is work): got no error, want one")
	}
	j.write(j.folder("one"), "one.txt", "one\n")
	j.end(made.ThreadID, j.folder("one"))
	r, err := j.l.Review(t.Context(), made.ThreadID, "")
	if err != nil {
		t.Fatalf("review: got %v, want no error", err)
	}
	pull := launch.Pull{ThreadID: made.ThreadID}
	if _, err := j.l.Pull(t.Context(), pull); reason(err) != "not_reviewed" {
		t.Errorf("Pull(without a commit) = %v, want not_reviewed", err)
	}
	pull.Commit = r.Head
	if _, err := j.l.Pull(t.Context(), pull); reason(err) != "task_not_done" {
		t.Errorf("Pull(of one of two parts) = %v, want task_not_done", err)
	}
	j.write(j.folder("two"), "two.txt", "two\n")
	j.end(made.ThreadID, j.folder("two"))
	if _, err := j.l.Pull(t.Context(), pull); reason(err) != "work_moved" {
		t.Errorf("Pull(of what has moved) = %v, want work_moved", err)
	}
	if r, err = j.l.Review(t.Context(), made.ThreadID, ""); err != nil {
		t.Fatalf("review: got %v, want no error", err)
	}
	pull.Commit = r.Head
	out, err := j.l.Pull(t.Context(), pull)
	if err != nil || out.Number != 1 || out.State != "open" {
		t.Fatalf("Pull = %+v, %v, want the open pull request 1", out, err)
	}
	if want := []string{made.ThreadID + ": The pull request is " + out.URL}; !slices.Equal(j.said, want) {
		t.Errorf("messages to the owner: got %q, want %q", j.said, want)
	}
	if got := j.git("--git-dir", remote, "show", r.Branch+":two.txt"); got != "two\n" {
		t.Errorf("two.txt of the pushed branch = %q, want the part's", got)
	}
	said, err := os.ReadFile(filepath.Join(remote, "junctor-pulls", "1.json"))
	if err != nil || !strings.Contains(string(said), "The job") || !strings.Contains(string(said), "- one\\n- two") {
		t.Errorf("the pull request is %s, %v, want the title and the parts of the task", said, err)
	}
	checks, err := j.l.Checks(t.Context(), made.ThreadID)
	if err != nil || checks.Number != 1 || checks.Commit != r.Head || len(checks.Checks) != 0 {
		t.Errorf("Checks = %+v, %v, want those of the pull request", checks, err)
	}
}

func TestConflictsOfPartsAreResolvedByOneMoreAgent(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	made := j.create(launch.Part{Label: "one"}, launch.Part{Label: "two"})
	j.write(j.folder("one"), "a.txt", "ONE\n")
	j.write(j.folder("two"), "a.txt", "eins\n")
	j.end(made.ThreadID, j.folder("one"))
	j.end(made.ThreadID, j.folder("two"))
	if err := j.l.Collect(t.Context(), made.ThreadID); err != nil {
		t.Fatal(err)
	}
	req := j.request(3)
	if !strings.Contains(req.Task, "a.txt") || req.Name != "conflicts" {
		t.Errorf("the third agent was started with %+v, want the files with conflicts", req)
	}
	if r, err := j.l.Review(t.Context(), made.ThreadID, ""); err != nil || len(r.Conflicts) != 1 {
		t.Errorf("Review = %+v, %v, want the conflict", r, err)
	}
	if _, err := j.merge(made.ThreadID); reason(err) != "task_not_done" {
		t.Errorf("Merge(while they are resolved) = %v, want task_not_done", err)
	}
	// It ends without having done it: no further agent, and no merge.
	j.end(made.ThreadID, req.Workdir)
	if err := j.l.Collect(t.Context(), made.ThreadID); err != nil {
		t.Fatal(err)
	}
	if n := len(j.w.started); n != 3 {
		t.Errorf("%d agents were started, want 3", n)
	}
	if _, err := j.merge(made.ThreadID); reason(err) != workspace.ReasonMergeConflict {
		t.Errorf("Merge(unresolved) = %v, want merge_conflict", err)
	}
	j.write(req.Workdir, "a.txt", "ONE and eins\n")
	if _, err := j.merge(made.ThreadID); err != nil {
		t.Fatal(err)
	}
	if got := j.git("show", "main:a.txt"); got != "ONE and eins\n" {
		t.Errorf("main:a.txt = %q, want what resolves both", got)
	}
}

func TestADependentPartIsGivenTheConflictsOfThoseBeforeIt(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	made := j.create(launch.Part{Label: "one"}, launch.Part{Label: "two"},
		launch.Part{Label: "both", DependsOn: []int{0, 1}})
	for _, label := range []string{"one", "two"} {
		j.write(j.folder(label), "a.txt", "by "+label+"\n")
		j.end(made.ThreadID, j.folder(label))
	}
	j.l.Begin(t.Context(), made.ThreadID)
	req := j.request(3)
	if !strings.Contains(req.Task, "a.txt") || !strings.Contains(req.Task, "Do both") {
		t.Errorf("the prompt is %q, want the conflict and the task", req.Task)
	}
	j.write(req.Workdir, "a.txt", "one and two\n")
	j.end(made.ThreadID, req.Workdir)
	if _, err := j.merge(made.ThreadID); err != nil {
		t.Fatal(err)
	}
	if got := j.git("show", "main:a.txt"); got != "one and two\n" {
		t.Errorf("main:a.txt = %q, want what the third part made of it", got)
	}
}

func TestACheckoutIsForOperatorsOnThisMachine(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	for want, task := range map[string]launch.Task{
		"remote_checkout":  {Checkout: &launch.Checkout{Path: j.repo, Head: strings.Repeat("0", 40)}},
		"invalid_checkout": {Checkout: &launch.Checkout{Path: j.repo}, Workdir: j.repo},
		"not_a_checkout":   {Checkout: &launch.Checkout{Path: filepath.Dir(j.repo)}},
	} {
		task.Parts = []launch.Part{{Task: "x", AgentType: "claude"}}
		if _, err := j.l.Create(t.Context(), j.by, task); reason(err) != want {
			t.Errorf("Create = %v, want %s", err, want)
		}
	}
	agent := capability.Principal{ID: "a", Role: capability.RoleAgent}
	one := launch.Task{Parts: []launch.Part{{Task: "x", AgentType: "claude"}}, Checkout: &launch.Checkout{Path: j.repo}}
	if _, err := j.l.Create(t.Context(), agent, one); reason(err) != "checkout_denied" {
		t.Errorf("Create(by an agent) = %v, want checkout_denied", err)
	}
	// Nor by metadata.
	one.Checkout, one.Workdir = nil, t.TempDir()
	one.Metadata = []byte(`{"checkout":{"source":{"path":"/etc","repository":"/etc"},"here":true,"base":"x"}}`)
	made, err := j.l.Create(t.Context(), agent, one)
	if err != nil {
		t.Fatal(err)
	}
	if req := j.request(1); req.Trusted || req.Workdir != one.Workdir {
		t.Errorf("the program was started with %+v, want the given folder, not trusted", req)
	}
	if _, err := j.l.Review(t.Context(), made.ThreadID, ""); reason(err) != "no_checkout" {
		t.Errorf("Review(without checkout) = %v, want no_checkout", err)
	}
}

func TestASetupAppliesOnlyAfterAnAgreementToItsWholeText(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	if err := os.Mkdir(filepath.Join(j.repo, ".junctor"), 0o700); err != nil {
		t.Fatalf("mkdir: got %v, want no error", err)
	}
	j.write(j.repo, ".gitignore", ".env\n")
	j.write(j.repo, ".env", "KEY=1\n")
	create := func(setup string, here bool) (launch.Created, error) {
		return j.l.Create(t.Context(), j.by, launch.Task{
			Title: "The job", Parts: []launch.Part{{Task: "Do it", Label: "a", AgentType: "claude"}},
			Checkout: &launch.Checkout{Path: j.repo, Setup: setup, Here: here},
		})
	}
	copied := func(made launch.Created) bool {
		t.Helper()
		if len(made.Agents) != 1 {
			t.Fatalf("agents = %+v, want one", made.Agents)
		}
		_, err := os.Stat(filepath.Join(made.Agents[0].Workdir, ".env"))
		return err == nil
	}
	const whole = "copy: [.env]\nchecks: [test -f .env]\n# last line\n"
	j.write(j.repo, workspace.SetupFile, whole)
	_, err := create("", false)
	e := capability.AsError(err)
	text, _ := e.Details["text"].(string)
	digest, _ := e.Details["tree_hash"].(string)
	if e == nil || e.Code != capability.CodeApprovalRequired || e.Reason != "setup_required" ||
		!strings.HasSuffix(text, strings.TrimSpace(whole)) {
		t.Fatalf("Create(without an agreement) = %v with %q; want approval_required, setup_required and the whole text", err, text)
	}
	for _, other := range []string{"yes", strings.Repeat("0", 64)} {
		if _, err := create(other, false); reason(err) != "setup_required" {
			t.Errorf("Create(setup %q) = %v, want setup_required", other, err)
		}
	}
	made, err := create(launch.NoSetup, false)
	if err != nil || copied(made) {
		t.Errorf("Create(no setup) = %v, copied %v; want no error and nothing copied", err, copied(made))
	}
	made, err = create(digest, false)
	if err != nil || !copied(made) {
		t.Fatalf("Create(agreed) = %v; want no error and the file copied", err)
	}
	d, err := j.r.Detail(t.Context(), made.ThreadID, threads.Selection{})
	if err != nil || !strings.Contains(string(d.Metadata), `"checks":[["/bin/sh","-c","test -f .env"]]`) {
		t.Errorf("metadata = %s, %v; want the checks of the setup", d.Metadata, err)
	}
	if made, err = create("", false); err != nil || !copied(made) {
		t.Errorf("Create(agreed before) = %v, want no question", err)
	}
	j.write(j.repo, workspace.SetupFile, whole+"run: [id]\n")
	if _, err := create(digest, false); reason(err) != "setup_required" {
		t.Errorf("Create(after a change) = %v, want setup_required", err)
	}
	if _, err := create("", true); err != nil {
		t.Errorf("Create(in place) = %v, want no error", err)
	}
}

func TestATaskInPlaceWorksInTheCheckout(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	made, err := j.l.Create(t.Context(), j.by, launch.Task{
		Parts: []launch.Part{{Task: "x", AgentType: "claude"}}, Checkout: &launch.Checkout{Path: j.repo, Here: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	if req := j.request(1); req.Workdir != j.repo || !req.Trusted {
		t.Errorf("the program was started with %+v, want the trusted checkout", req)
	}
	if _, err := j.merge(made.ThreadID); reason(err) != "no_checkout" {
		t.Errorf("Merge(in place) = %v, want no_checkout", err)
	}
}

func TestAReviewReachesTheAgentOfAPartAsOneMessage(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	made := j.create(launch.Part{Label: "one"}, launch.Part{Label: "two"})
	folder := j.folder("one")
	j.write(folder, "b.txt", "first\nsecond\n")
	j.end(made.ThreadID, folder)
	j.end(made.ThreadID, j.folder("two"))
	if _, err := j.l.Review(t.Context(), made.ThreadID, ""); err != nil {
		t.Fatal(err)
	}
	review := func(c launch.Comments) (launch.Controlled, error) {
		c.ThreadID = made.ThreadID
		return j.l.Comment(t.Context(), j.by, c)
	}
	for want, c := range map[string]launch.Comments{
		"no_comments":  {Part: "one"},
		"which_part":   {Text: "x"},
		"no_such_line": {Part: "one", Lines: []launch.LineComment{{File: "b.txt", Line: 3, Text: "x"}}},
	} {
		if _, err := review(c); reason(err) != want {
			t.Errorf("Comment(%+v) = %v, want %s", c, err, want)
		}
	}
	for _, file := range []string{"../b.txt", "/etc/passwd", "none"} {
		if _, err := review(launch.Comments{Part: "one", Lines: []launch.LineComment{{File: file, Line: 1}}}); reason(err) != "no_such_line" {
			t.Errorf("Comment(%s) = %v, want no_such_line", file, err)
		}
	}
	out, err := review(launch.Comments{Part: "one", Text: "And a test.", Lines: []launch.LineComment{
		{File: "b.txt", Line: 2, Text: "Third, please."}, {File: "a.txt", Line: 1, Text: "Keep it."},
	}})
	if err != nil || len(out.Agents) != 1 {
		t.Fatalf("Comment = %+v, %v, want one agent", out, err)
	}
	req := j.request(3)
	for _, want := range []string{"b.txt:2", "second", "Third, please.", "a.txt:1", "Keep it.", "And a test."} {
		if !strings.Contains(req.Task, want) {
			t.Errorf("the message is %q, want %q in it", req.Task, want)
		}
	}
	if req.Workdir != folder {
		t.Errorf("the agent works in %s, want its worktree %s", req.Workdir, folder)
	}
	if _, err := j.merge(made.ThreadID); reason(err) != "task_not_done" {
		t.Errorf("Merge(while it works) = %v, want task_not_done", err)
	}
	j.write(folder, "b.txt", "first\nthird\n")
	d, err := j.r.Detail(t.Context(), made.ThreadID, threads.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	last := d.Sessions[len(d.Sessions)-1].SessionID
	if _, err := j.r.UpdateSession(t.Context(), last, func(s *row.Session) { s.Status = row.SessionCompleted }); err != nil {
		t.Fatal(err)
	}
	if r, err := j.l.Review(t.Context(), made.ThreadID, ""); err != nil || !bytes.Contains(r.Diff, []byte("+third")) {
		t.Errorf("Review = %q, %v, want the change that the review asked for", r.Diff, err)
	}
}
