// Package programcheck checks a coding program whose version junctor was not tested with: whether it does a
// task, asks before it runs a command, obeys a permission and a refusal, and passes on the answer to a
// question. The program runs in a temporary home, and its model is a script on loopback, so the check
// needs no account and touches nothing of the user.
package programcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/scriptedmodel"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/permit"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/programs/preflight"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

// Config is what the checks of one machine need.
type Config struct {
	// Dir is the folder in which temporary folders are made. It must not be below the system's folder for
	// temporary files, where Codex refuses to keep its helpers.
	Dir     string
	Self    string // path of the running binary, which hooks start
	Version string // version of the running binary
	UID     int
	Parent  map[string]string // environment of the server
	Rules   []*detect.File
	Logger  *slog.Logger
}

// Result is the outcome of one check.
type Result struct {
	Program programs.Name `json:"program"`
	Version string        `json:"version,omitempty"`
	Held    []string      `json:"held"`              // acts that went as they must, in order
	Failed  string        `json:"failed,omitempty"`  // the act that did not; "" if all did
	Finding string        `json:"finding,omitempty"` // what the program did instead
	Late    bool          `json:"late,omitempty"`    // the act was not done in time, which may be the machine's fault
	Skipped []string      `json:"skipped,omitempty"` // acts that the program cannot do
	Took    time.Duration `json:"took_ns"`
}

// subject is how a program is given the scripted model.
type subject struct {
	keys        []string // variables with its key
	base, model string   // path of the API, and the name of a model that the program supports
	question    string   // why it cannot ask the user over its protocol; "" if it can
	slow        bool
}

func subjectOf(name programs.Name) (subject, bool) {
	switch name {
	case programs.Claude:
		return subject{keys: []string{"ANTHROPIC_API_KEY"}}, true
	case programs.Codex:
		return subject{keys: []string{"OPENAI_API_KEY"}, base: "/v1", model: "gpt-5.5"}, true
	case programs.Gemini:
		return subject{
			keys: []string{"GEMINI_API_KEY"}, model: "gemini-2.5-pro", question: "Gemini CLI offers no question over its protocol", slow: true,
		}, true
	case programs.Qwen:
		return subject{
			keys: []string{"OPENAI_API_KEY"}, base: "/v1", model: "scripted", question: "Qwen Code offers no question over its protocol", slow: true,
		}, true
	case programs.OpenCode:
		return subject{keys: []string{"PARALLAX_OPENCODE_API_KEY"}, base: "/v1", model: "scripted", slow: true}, true
	}
	return subject{}, false
}

// Checks reports whether a program can be checked: it has a protocol over which it asks.
func Checks(name programs.Name) bool {
	_, ok := subjectOf(name)
	return ok
}

// Run checks a program. An error means that the check itself was not possible; what the program did
// wrong is in the result.
func Run(ctx context.Context, cfg Config, program preflight.Result) (Result, error) {
	s, ok := subjectOf(program.Adapter)
	if !ok {
		return Result{}, capability.Errorf(capability.CodeInvalidInput, "canary",
			"%s has no protocol over which it asks, so there is nothing to check", program.Adapter).
			With("nothing_to_check", "use claude, codex, gemini, qwen or opencode")
	}
	limit := checkTimeout
	if s.slow {
		limit = slowCheckTimeout
	}
	began := time.Now()
	run, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r := &rig{cfg: cfg, subject: s, limit: limit, result: Result{Program: program.Adapter, Version: program.Version, Held: []string{}}}
	err := r.open(run, program)
	if err == nil {
		err = r.acts(run)
	}
	err = errors.Join(err, r.close())
	if ctx.Err() != nil {
		return Result{}, capability.AsError(ctx.Err())
	}
	r.result.Took = time.Since(began)
	return r.result, err
}

// rig is one check while it runs.
type rig struct {
	cfg     Config
	subject subject
	limit   time.Duration
	result  Result

	dir, work string
	model     *scriptedmodel.Model
	hooks     *http.Server
	sessions  *sessions.Manager
	agents    *agents.Agents
	events    *sessions.Subscription
	program   preflight.Result
	live      sessions.Live
	turns     int
}

// The names by which the script finds its parts in a conversation.
const (
	playTask     = "CANARY-TASK"
	playPermit   = "CANARY-PERMIT"
	playRefuse   = "CANARY-REFUSE"
	playQuestion = "CANARY-QUESTION"
)

func (r *rig) script() scriptedmodel.Script {
	options := []any{
		map[string]any{"label": "Apples", "description": "They are red."}, map[string]any{"label": "Pears", "description": "They are green."},
	}
	question := map[string]any{"question": "Which fruit?", "header": "Fruit", "options": options, "multiSelect": false, "id": "fruit"}
	return scriptedmodel.Script{
		playTask:   {{Say: "It is done."}},
		playPermit: {{Run: "echo permitted > " + r.file("permitted")}, {Say: "It is written."}},
		playRefuse: {{Run: "echo refused > " + r.file("refused")}, {Say: "So be it."}},
		playQuestion: {
			{Call: &scriptedmodel.Call{
				Names: []string{"AskUserQuestion", "request_user_input", "question"}, Args: map[string]any{"questions": []any{question}},
			}},
			{Say: "I see."},
		},
	}
}

func (r *rig) file(name string) string { return filepath.Join(r.work, name+".txt") }

func (r *rig) exists(name string) bool {
	_, err := os.Lstat(r.file(name))
	return err == nil
}

// open starts the scripted model, the server of the hooks and the service of the sessions.
func (r *rig) open(ctx context.Context, program preflight.Result) error {
	failed := func(err error) error {
		return capability.Wrap(capability.CodeFailed, "canary", "the check of "+string(program.Adapter)+" could not be prepared", err)
	}
	err := os.MkdirAll(r.cfg.Dir, 0o700)
	if err == nil {
		r.dir, err = os.MkdirTemp(r.cfg.Dir, "canary-")
	}
	if err == nil {
		r.dir, err = filepath.EvalSymlinks(r.dir)
	}
	r.work = filepath.Join(r.dir, "work")
	home := filepath.Join(r.dir, "home")
	for _, dir := range []string{r.work, home} {
		if err == nil {
			err = os.Mkdir(dir, 0o700)
		}
	}
	if err != nil {
		return failed(err)
	}
	if r.model, err = scriptedmodel.Start(r.script()); err != nil {
		return failed(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return failed(err)
	}
	r.program = program
	r.sessions = sessions.New(sessions.Config{MaxLive: 1, Logger: r.cfg.Logger})
	r.events = r.sessions.Subscribe()
	r.agents, err = agents.New(ctx, agents.Config{
		Dir: filepath.Join(r.dir, "agents"), Home: home, Own: filepath.Join(r.dir, "none"), Self: r.cfg.Self, Version: r.cfg.Version,
		Server: func() string { return "http://" + listener.Addr().String() }, Parent: r.parent(), UID: r.cfg.UID, Rules: r.cfg.Rules,
		Check:    func(context.Context) []preflight.Result { return []preflight.Result{r.program} },
		Sessions: r.sessions, Tokens: noTokens{}, Scratch: noScratch{}, Recorder: noRecorder{},
		Login: func() map[string]string { return nil }, Logger: r.cfg.Logger,
	})
	if err != nil {
		_ = listener.Close()
		return failed(err)
	}
	r.hooks = &http.Server{Handler: http.HandlerFunc(r.hook), ReadHeaderTimeout: stopTimeout}
	go func() { _ = r.hooks.Serve(listener) }() // until close
	return nil
}

// parent is the environment of the server without the accounts and settings of its user.
func (r *rig) parent() map[string]string {
	env := make(map[string]string)
	for _, name := range []string{"PATH", "USER", "SHELL", "LANG", "LC_ALL", "TZ", "IS_SANDBOX"} {
		if value, ok := r.cfg.Parent[name]; ok {
			env[name] = value
		}
	}
	return env
}

// hook answers hooks of the program like the server does.
func (r *rig) hook(w http.ResponseWriter, req *http.Request) {
	body, err := httpapi.ReadBody(w, req, maxHookBody)
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	reply, err := r.agents.Hook(req.Context(), req.Header.Get("X-Parallax-Session-Id"), body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	httpapi.WriteJSON(w, http.StatusOK, reply)
}

// close ends the program and removes everything that the check made.
func (r *rig) close() error {
	if r.sessions != nil {
		stop, cancel := context.WithTimeout(context.Background(), stopTimeout)
		r.sessions.Close(stop)
		cancel()
		r.events.Close()
	}
	if r.hooks != nil {
		_ = r.hooks.Close() // nothing is asked any more
	}
	if r.agents != nil {
		r.agents.Close()
	}
	if r.model != nil {
		r.model.Close()
	}
	if r.dir == "" {
		return nil
	}
	if err := hostfs.RemoveAll(r.dir); err != nil {
		return capability.Wrap(capability.CodeFailed, "canary", "the temporary folder of the check could not be removed", err)
	}
	return nil
}

// act is one thing that a program must do right. It returns what the program did instead, or "".
type act struct {
	name string
	do   func(context.Context) (finding string, err error)
}

func (r *rig) acts(ctx context.Context) error {
	list := []act{{"task", r.task}, {"permission", r.permission}, {"refusal", r.refusal}}
	if r.subject.question == "" {
		list = append(list, act{"question", r.question})
	} else {
		r.result.Skipped = append(r.result.Skipped, "question: "+r.subject.question)
	}
	for _, a := range list {
		finding, err := a.do(ctx)
		if ctx.Err() != nil {
			finding, err = fmt.Sprintf("it was not done within %v; the program is %s", r.limit, r.state()), nil
			r.result.Late = true
		}
		if err != nil {
			if r.live == nil && capability.CodeOf(err) != capability.CodeUnavailable {
				return err // the program was not started
			}
			finding = capability.AsError(err).Message
			if r.live != nil && !r.live.Info().Live() {
				finding = r.state()
			}
		}
		if finding != "" {
			r.result.Failed, r.result.Finding = a.name, finding
			return nil
		}
		r.result.Held = append(r.result.Held, a.name)
	}
	return nil
}

// task starts the program with a task and waits until it reports that as done.
func (r *rig) task(ctx context.Context) (string, error) {
	custom := map[string]string{}
	for _, name := range r.subject.keys {
		custom[name] = "sk-ant-api03-canary-01234567890123" // the form that programs accept without asking their service
	}
	text := "Say that it is done. " + playTask
	info, err := r.agents.Spawn(ctx, capability.Principal{ID: "canary"}, agents.Request{
		AgentType: string(r.result.Program), Workdir: r.work, Trusted: true, Task: text, Preset: programs.Standard,
		Mode: sessions.Structured, Model: r.subject.model, BaseURL: r.model.URL() + r.subject.base, Custom: custom,
	})
	if err != nil {
		return "", err
	}
	if r.live, err = r.sessions.Get(info.ID); err != nil {
		return "", err
	}
	if finding, err := r.completed(ctx); finding != "" || err != nil {
		return finding, err
	}
	asked := r.model.Asked(playTask)
	if len(asked) == 0 || !strings.Contains(asked[0].Last, text) {
		return "the turn ended, but the model did not get the task", nil
	}
	return "", nil
}

// permission lets the program run a command after it has asked.
func (r *rig) permission(ctx context.Context) (string, error) {
	if finding, err := r.asks(ctx, playPermit, "permitted", "yes"); finding != "" || err != nil {
		return finding, err
	}
	if !r.exists("permitted") {
		return "a permitted command did not run", nil
	}
	return "", nil
}

// refusal refuses a command that the program asks about.
func (r *rig) refusal(ctx context.Context) (string, error) {
	if finding, err := r.asks(ctx, playRefuse, "refused", "no"); finding != "" || err != nil {
		return finding, err
	}
	if r.exists("refused") {
		return "a refused command ran", nil
	}
	return "", nil
}

// asks lets the model run a command that writes a file, and answers the question about it.
func (r *rig) asks(ctx context.Context, play, file, answer string) (string, error) {
	b, finding, err := r.blocked(ctx, play)
	switch {
	case finding != "" || err != nil:
		return finding, err
	case b.Type != "permission" || !strings.Contains(string(b.Input)+b.Prompt, filepath.Base(r.file(file))):
		return "the question about a command does not show the command: " + words(b.Prompt), nil
	case r.exists(file):
		return "a command ran before its question was answered", nil
	}
	if err := r.live.Answer(ctx, detect.Reply{Blocker: b.ID, Text: answer}); err != nil {
		return "", err
	}
	return r.completed(ctx)
}

// question lets the model ask the user, and checks that it gets the answer.
func (r *rig) question(ctx context.Context) (string, error) {
	b, finding, err := r.blocked(ctx, playQuestion)
	if finding != "" || err != nil {
		return finding, err
	}
	reply := detect.Reply{Blocker: b.ID, Text: "Pears"}
	switch {
	case b.Type != "question":
		return "a question of the model arrived as " + words(b.Type+": "+b.Prompt), nil
	case len(b.Questions) == 1 && len(b.Choices) == 0:
		reply = detect.Reply{Blocker: b.ID, Values: map[string][]string{b.Questions[0].ID: {"Pears"}}}
	case !slices.Contains(b.Options, "Pears"):
		return "a question of the model lacks its options: " + words(strings.Join(b.Options, ", ")), nil
	}
	if err := r.live.Answer(ctx, reply); err != nil {
		return "", err
	}
	if finding, err := r.completed(ctx); finding != "" || err != nil {
		return finding, err
	}
	asked := r.model.Asked(playQuestion)
	last := asked[len(asked)-1].Text
	if strings.Count(last, "Pears") <= strings.Count(last, "Apples") { // both are in the call, one is in the answer
		return "the model did not get the answer to its question", nil
	}
	return "", nil
}

// blocked sends a text and waits until the program asks.
func (r *rig) blocked(ctx context.Context, play string) (b *detect.Blocker, finding string, err error) {
	if _, err := r.live.Send(ctx, "Go on. "+play, false); err != nil {
		return nil, "", err
	}
	i, err := r.until(ctx, func(i sessions.Info) bool {
		return i.Status == detect.Blocked && i.Blocker != nil && i.Blocker.ID != "" || i.Completed > r.turns || ended(i)
	})
	switch {
	case err != nil:
		return nil, "", err
	case i.Status == detect.Blocked:
		return i.Blocker, "", nil
	case i.Completed > r.turns:
		return nil, "it went on without asking", nil
	}
	return nil, r.state(), nil
}

// completed waits for the end of a turn.
func (r *rig) completed(ctx context.Context) (finding string, err error) {
	i, err := r.until(ctx, func(i sessions.Info) bool {
		return i.Completed > r.turns || ended(i) || i.Status == detect.Blocked && i.Blocker != nil && i.Blocker.ID != ""
	})
	if err != nil {
		return "", err
	}
	if i.Completed == r.turns {
		return r.state(), nil
	}
	r.turns = i.Completed
	return "", nil
}

// ended reports whether nothing follows: the program has ended or its turn has failed.
func ended(i sessions.Info) bool { return !i.Live() || strings.HasPrefix(i.Phase, "failed:") }

// until waits until the session is as it should be.
func (r *rig) until(ctx context.Context, holds func(sessions.Info) bool) (sessions.Info, error) {
	for {
		if i := r.live.Info(); holds(i) {
			return i, nil
		}
		if _, ok, err := r.events.Next(ctx); err != nil || !ok {
			closed := capability.Errorf(capability.CodeFailed, "canary", "the session was closed")
			return sessions.Info{}, cmp.Or(err, context.Cause(ctx), error(closed))
		}
	}
}

// state describes the session for a finding.
func (r *rig) state() string {
	if r.live == nil {
		return "not started"
	}
	i := r.live.Info()
	said := string(i.Status)
	if i.Blocker != nil {
		said += ", and asks: " + i.Blocker.Prompt
	}
	if i.ExitCode != nil {
		said += fmt.Sprintf(", exit status %d", *i.ExitCode)
	}
	for _, more := range []string{i.Phase, i.Error} {
		if more != "" {
			said += ", " + more
		}
	}
	return words(said)
}

func words(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxWords)], "")
}

// The ports of package agents that a check does without: its sessions have no owner, no tokens
// that any server accepts, and no record.
type (
	noTokens   struct{}
	noScratch  struct{}
	noRecorder struct{}
)

func (noTokens) Issue(context.Context, capability.Principal, string) (string, error) {
	return "canary", nil
}

func (noTokens) Revoke(context.Context, string) error { return nil }

func (noScratch) Create(string, string) (string, error) { return "", errors.ErrUnsupported }

func (noScratch) Adopt(string, string) error { return nil }

func (noScratch) SessionEnded(string, string) error                                     { return nil }
func (noRecorder) Permission(context.Context, string, string, permit.Decision)          {}
func (noRecorder) Session(context.Context, capability.Principal, sessions.Info, string) {}
