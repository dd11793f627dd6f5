package verbs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/launch"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
	"github.com/junctor-run/junctor/internal/taskagents/threads/threadsql"
	"github.com/junctor-run/junctor/internal/taskagents/verbs"
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge/githubforge"
	"github.com/junctor-run/junctor/secret"
)

// The client of GitHub leaves a timer to run out for each answer that is an error.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.setRequestCancel.func4"))
}

var agent = capability.Principal{ID: "agent:a", Role: capability.RoleAgent}

// fleet is agents whose programs are only said to run.
type fleet struct {
	mu       sync.Mutex
	infos    []agents.Info
	requests []agents.Request
	typed    []string
	refuse   error
}

func (f *fleet) Spawn(_ context.Context, by capability.Principal, req agents.Request) (agents.Info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return agents.Info{}, f.refuse
	}
	f.requests = append(f.requests, req)
	i := agents.Info{Preset: req.Preset, Owner: by.ID}
	i.ID, i.Name, i.AgentType, i.Workdir, i.Status = fmt.Sprintf("pty-1-%08d", len(f.infos)+1), req.Name, req.AgentType, req.Workdir,
		detect.Starting
	if i.Workdir == "" {
		i.Workdir = "/scratch/" + i.ID
	}
	i.Metadata = req.Metadata
	f.infos = append(f.infos, i)
	return i, nil
}

func (f *fleet) List() []agents.Info {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.infos)
}

func (f *fleet) Get(id string) (agents.Info, sessions.Live, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for at, i := range f.infos {
		if i.ID == id {
			return i, &terminal{fleet: f, at: at}, nil
		}
	}
	return agents.Info{}, nil, capability.Errorf(capability.CodeNotFound, "tasks", "no session has the id %q", id).
		With("session_not_found", "")
}

func (f *fleet) set(at int, change func(*agents.Info)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.infos[at])
}

// terminal is a session of the fleet; methods that the verbs do not call are missing.
type terminal struct {
	sessions.Live
	fleet *fleet
	at    int
}

func (t *terminal) Info() sessions.Info { return t.fleet.List()[t.at].Info }

func (t *terminal) Send(_ context.Context, text string, _ bool) (sessions.Outcome, error) {
	t.fleet.mu.Lock()
	defer t.fleet.mu.Unlock()
	t.fleet.typed = append(t.fleet.typed, text)
	return sessions.Delivered, nil
}

func (t *terminal) Keys(_ context.Context, names []string) error {
	for _, name := range names {
		if name == "nokey" {
			return capability.Errorf(capability.CodeInvalidInput, "tasks", "there is no key nokey").With("unknown_key", "")
		}
	}
	t.fleet.mu.Lock()
	defer t.fleet.mu.Unlock()
	t.fleet.typed = append(t.fleet.typed, fmt.Sprint(names))
	return nil
}

func (t *terminal) Choose(_ context.Context, fingerprint, label string) error {
	t.fleet.mu.Lock()
	defer t.fleet.mu.Unlock()
	t.fleet.typed = append(t.fleet.typed, "choose "+fingerprint+" "+label)
	return nil
}

func (t *terminal) Stop(bool) { t.fleet.set(t.at, func(i *agents.Info) { i.Status = detect.Stopped }) }

// launcher keeps what it is given in the real registry, and starts sessions in the fleet.
type launcher struct {
	r      *rig
	tasks  []launch.Task
	asked  []launch.Control
	refuse map[string]*capability.Error // by agent type
}

func (l *launcher) Create(ctx context.Context, by capability.Principal, t launch.Task) (launch.Created, error) {
	l.tasks = append(l.tasks, t)
	plan := threads.Plan{Thread: row.Thread{
		AgentID: by.ID, Title: verbs.First(t.Title, text.Line(t.Request, 80)), OriginalRequest: t.Request,
		RoomID: t.RoomID,
	}, Brief: t.Brief}
	for _, p := range t.Parts {
		plan.Parts = append(plan.Parts, threads.Part{Title: p.Label, Instructions: p.Task, DependsOn: p.DependsOn})
	}
	made, err := l.r.registry.Create(ctx, plan)
	if err != nil {
		return launch.Created{}, err
	}
	out := launch.Created{ThreadID: made.Thread.ID, Task: "tsk_1"}
	for i, p := range t.Parts {
		s := launch.Started{AgentType: programs.Name(p.AgentType), Label: p.Label, Status: "failed", Error: l.refuse[p.AgentType]}
		if len(p.DependsOn) > 0 {
			s.Status = string(made.Nodes[i+1].Status)
		} else if s.Error == nil {
			info, err := l.r.fleet.Spawn(ctx, by, agents.Request{
				AgentType: p.AgentType, Task: p.Task, Workdir: t.Workdir, Name: p.Label,
				Memory: t.Memory, Preset: t.Preset, Metadata: t.Metadata,
			})
			if err != nil {
				s.Error = capability.AsError(err)
				out.Agents = append(out.Agents, s)
				continue
			}
			s.SessionID, s.Workdir, s.Status = info.ID, info.Workdir, string(info.Status)
			if _, err := l.r.registry.Register(ctx, threads.Registration{ThreadID: made.Thread.ID, Node: made.Nodes[i+1].ID, Session: row.Session{
				SessionID: info.ID, AgentID: by.ID, Label: p.Label, Workdir: info.Workdir, OriginalTask: p.Task, Framework: p.AgentType, Repo: t.Repo,
			}}); err != nil {
				return out, err
			}
		}
		out.Agents = append(out.Agents, s)
	}
	return out, nil
}

func (l *launcher) Control(_ context.Context, _ capability.Principal, c launch.Control) (launch.Controlled, error) {
	l.asked = append(l.asked, c)
	return launch.Controlled{ThreadID: c.ThreadID, Action: c.Operation, Status: row.ThreadInterrupted}, nil
}

func (l *launcher) Track(ctx context.Context, by capability.Principal, session, task, label string) (string, error) {
	made, err := l.r.registry.Create(ctx, threads.Plan{
		Thread: row.Thread{AgentID: by.ID, Title: label, OriginalRequest: task},
		Parts:  []threads.Part{{Title: label}},
	})
	if err != nil {
		return "", err
	}
	if _, err := l.r.registry.Register(ctx, threads.Registration{
		ThreadID: made.Thread.ID, Node: made.Nodes[1].ID,
		Session: row.Session{SessionID: session, AgentID: by.ID, Label: label, OriginalTask: task},
	}); err != nil {
		return "", err
	}
	_, t, err := l.r.fleet.Get(session)
	if err == nil {
		_, err = t.Send(ctx, task, false)
	}
	return made.Thread.ID, err
}

// offered is codex and a shell, of which codex is the best.
type offered struct {
	fixed programs.Name
	none  bool
}

func (p *offered) Fixed() programs.Name { return p.fixed }

func (p *offered) State(_ context.Context, t choice.Task) choice.State {
	in := choice.Input{Task: t, Now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	if !p.none {
		in.Candidates = []choice.Candidate{
			{Name: programs.Codex, Installed: true, AuthReady: true},
			{Name: programs.Shell, Installed: true, AuthReady: true},
			{Name: programs.Pi, Installed: true, AuthReady: true},
		}
	}
	return choice.Choose(in)
}

type model struct {
	answer string
	asked  []string
}

func (m *model) Ask(_ context.Context, _ bool, prompt string) (string, error) {
	m.asked = append(m.asked, prompt)
	if m.answer == "" {
		return "", capability.Errorf(capability.CodeUnavailable, "llm", "no model")
	}
	return m.answer, nil
}

// rig is the verbs over a real registry and real workspaces.
type rig struct {
	*testing.T
	service  *verbs.Service
	cfg      verbs.Config
	dir      string // real
	remote   string // a bare repository with one commit on trunk
	registry *threads.Registry
	fleet    *fleet
	launcher *launcher
	programs *offered
	model    *model
	places   *workspace.Manager
	github   *github
	now      time.Time
}

func newRig(t *testing.T, change ...func(*rig)) *rig {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, dir: dir, fleet: &fleet{}, programs: &offered{}, model: &model{}, now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	clock := func() time.Time { return r.now }
	db, err := store.Open(t.Context(), filepath.Join(dir, "junctor.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	kept, err := threadsql.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	if r.registry, err = threads.New(threads.Config{Store: kept, Gateway: "g", Now: clock}); err != nil {
		t.Fatal(err)
	}
	r.launcher = &launcher{r: r, refuse: map[string]*capability.Error{}}
	r.cfg = verbs.Config{
		Launcher: r.launcher, Agents: r.fleet, Registry: r.registry, Choice: r.programs, Model: r.model,
		Roots: threads.ShareRoots{Allowed: []string{dir}, Resolve: filepath.EvalSymlinks}, Now: clock,
	}
	for _, f := range change {
		f(r)
	}
	r.service = verbs.New(r.cfg)
	return r
}

// withPlaces makes a bare repository, GitHub in small, and the workspaces over both.
func withPlaces(r *rig) {
	r.Helper()
	clock := func() time.Time { return r.now }
	r.remote = filepath.Join(r.dir, "remotes/widget.git")
	r.git(r.dir, "init", "-q", "--bare", "-b", "trunk", r.remote)
	r.git(r.dir, "clone", "-q", r.remote, "author")
	r.write(filepath.Join(r.dir, "author/README.md"), "# Widget\n")
	r.git(r.dir+"/author", "add", ".")
	r.git(r.dir+"/author", "commit", "-q", "-m", "first")
	r.git(r.dir+"/author", "push", "-q", "origin", "HEAD:trunk")
	git, err := gitcmd.New(gitcmd.Config{})
	if err != nil {
		r.Fatal(err)
	}
	r.github = newGitHub(r.T)
	bare, hub := &forge.BareHost{Git: git, Now: clock}, githubforge.New(githubforge.Config{Base: r.github.server.URL})
	r.places, err = workspace.Open(r.Context(), workspace.Config{
		Base: filepath.Join(r.dir, "workspaces"), State: filepath.Join(r.dir, "state"), Now: clock,
		Policy: forge.Policy{OperatorPrefixes: []string{filepath.Join(r.dir, "remotes")}},
		Forge: func(repo forge.Repo) forge.Host {
			if repo.Dir != "" {
				return bare
			}
			return hub
		},
		Token:     func(context.Context, forge.Repo) (secret.Value, error) { return secret.New("t"), nil },
		FreeSpace: func(string) (int64, error) { return 1 << 40, nil },
	})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = r.places.Close() })
	r.cfg.Workspaces = r.places
}

func (r *rig) git(dir string, args ...string) {
	r.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b",
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		r.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func (r *rig) write(path, text string) {
	r.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.Fatal(err)
	}
}

// call is one in the conversation "s", in which the user said something.
func call(message string) verbs.Call { return verbs.Call{By: agent, Session: "s", Message: message} }

// ok runs a verb that has to succeed, and returns its data as JSON objects.
func (r *rig) ok(c verbs.Call, name, params string) (verbs.Result, map[string]any) {
	r.Helper()
	got, err := r.service.Run(r.Context(), c, name, json.RawMessage(params))
	if err != nil || !got.Success || got.Error != "" {
		r.Fatalf("%s %s: %+v %v", name, params, got, err)
	}
	row, _, _ := verbs.Lookup(name)
	registered, _ := actions.Lookup(row.Action)
	schema, err := catalog.CompileSchema(registered.OutputSchema)
	whole, failed := jsonx.Marshal(got)
	if err = errors.Join(err, failed); err == nil {
		err = schema.Check(whole)
	}
	if err != nil {
		r.Errorf("%s does not answer what its schema says: %v\n%s", name, err, whole)
	}
	return got, r.object(got.Data)
}

// fails runs a verb that has to fail with a code, told in both ways.
func (r *rig) fails(c verbs.Call, name, params string, want verbs.Code) (verbs.Result, map[string]any) {
	r.Helper()
	got, err := r.service.Run(r.Context(), c, name, json.RawMessage(params))
	if err == nil || got.Success || got.Error != want || got.Text == "" || capability.AsError(err).Details["error"] != want {
		r.Fatalf("%s %s: %+v %v, want %s", name, params, got, err, want)
	}
	return got, r.object(got.Data)
}

func (r *rig) object(v any) map[string]any {
	r.Helper()
	data, err := jsonx.Marshal(v)
	var out map[string]any
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		r.Fatalf("%s: %v", data, err)
	}
	return out
}

// github is the issues of one repository, in the API's own form.
type github struct {
	server *httptest.Server
	mu     sync.Mutex
	issues []map[string]any
	full   int // so many issues are taken; 0: any number
}

func newGitHub(t *testing.T) *github {
	g := &github{}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	one := func(do func(r *http.Request, issue map[string]any) any) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.PathValue("n"))
			if n < 1 || n > len(g.issues) {
				answer(w, 404, map[string]any{"message": "Not Found"})
				return
			}
			answer(w, 200, do(r, g.issues[n-1]))
		}
	}
	const path = "/repos/acme/widget/issues"
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		if g.full > 0 && len(g.issues) >= g.full {
			answer(w, 422, map[string]any{"message": "Validation Failed"})
			return
		}
		var in map[string]any
		_ = json.NewDecoder(r.Body).Decode(&in)
		n := len(g.issues) + 1
		issue := map[string]any{
			"number": n, "title": in["title"], "body": in["body"], "state": "open",
			"html_url": fmt.Sprintf("https://github.com/acme/widget/issues/%d", n),
		}
		g.issues = append(g.issues, issue)
		answer(w, 201, issue)
	})
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, append([]map[string]any{}, g.issues...)) })
	mux.HandleFunc("GET "+path+"/{n}", one(func(_ *http.Request, i map[string]any) any { return i }))
	mux.HandleFunc("PATCH "+path+"/{n}", one(func(r *http.Request, i map[string]any) any {
		_ = json.NewDecoder(r.Body).Decode(&i)
		return i
	}))
	mux.HandleFunc("POST "+path+"/{n}/comments", one(func(r *http.Request, i map[string]any) any {
		var in map[string]any
		_ = json.NewDecoder(r.Body).Decode(&in)
		i["said"] = in["body"]
		return map[string]any{"id": 1, "body": in["body"]}
	}))
	mux.HandleFunc("GET "+path+"/{n}/comments", one(func(*http.Request, map[string]any) any { return []any{} }))
	mux.HandleFunc("POST "+path+"/{n}/labels", one(func(r *http.Request, i map[string]any) any {
		var names []string
		_ = json.NewDecoder(r.Body).Decode(&names)
		var labels []any
		for _, name := range names {
			labels = append(labels, map[string]any{"name": name})
		}
		i["labels"] = labels
		return labels
	}))
	g.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(g.server.Close)
	return g
}
