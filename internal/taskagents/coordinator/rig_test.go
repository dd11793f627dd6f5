package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator/decide"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator/validation"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
	"github.com/junctor-run/junctor/internal/taskagents/threads/threadsql"
)

// rig is a coordinator over a real registry, with sessions, models and a user that are
// scripts.
type rig struct {
	t   *testing.T
	cfg coordinator.Config
	*coordinator.Coordinator
	reg    *threads.Registry
	thread string
	queue  chan sessions.Event

	mu     sync.Mutex
	terms  map[string]*term
	events []coordinator.Event
	said   []string
	rested []programs.Name
	spawns []string // tasks
	next   []programs.Name
	unable error         // of spawns
	broken programs.Name // cannot be spawned
	heard  chan struct{}
}

// TestMain makes the database that every test begins with a copy of: its tables are made
// once.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "coordinator")
	if err != nil {
		panic(err)
	}
	code := 1
	if tables, err = made(filepath.Join(dir, "junctor.db")); err == nil {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

var tables []byte

func made(path string) ([]byte, error) {
	db, err := store.Open(context.Background(), path)
	if err != nil {
		return nil, err
	}
	_, err = threadsql.Open(context.Background(), db)
	if err := errors.Join(err, db.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// play runs a test with a rig in a bubble of fake time.
func play(t *testing.T, change func(*rig), test func(*rig)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "junctor.db")
	if err := os.WriteFile(path, tables, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		db, err := store.Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		st, err := threadsql.Open(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{t: t, queue: make(chan sessions.Event, 10_000), terms: make(map[string]*term)}
		if r.reg, err = threads.New(threads.Config{Store: st, Gateway: "g", Now: time.Now}); err != nil {
			t.Fatal(err)
		}
		r.cfg = coordinator.Config{Sessions: source{r}, Registry: r.reg, Chat: r, Fleet: r, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}
		if change != nil {
			change(r)
		}
		r.open()
		defer func() { r.Close(); <-r.heard }()
		r.thread = r.create("build it")
		test(r)
	})
}

func (r *rig) open() {
	r.t.Helper()
	var err error
	if r.Coordinator, err = coordinator.New(r.cfg); err != nil {
		r.t.Fatal(err)
	}
	events, _ := r.Subscribe(10_000)
	heard := make(chan struct{})
	r.heard = heard
	go func() {
		defer close(heard)
		for e := range events {
			r.mu.Lock()
			r.events = append(r.events, e)
			r.mu.Unlock()
		}
	}()
}

// reopen is a restart: of the coordinator, and with all of the server of the sessions.
func (r *rig) reopen() {
	r.Close()
	<-r.heard
	r.open()
}

func (r *rig) create(title string, parts ...threads.Part) string {
	r.t.Helper()
	if len(parts) == 0 {
		parts = []threads.Part{{Title: title}}
	}
	c, err := r.reg.Create(r.t.Context(), threads.Plan{Thread: row.Thread{Title: title, OriginalRequest: title, RoomID: "room"}, Parts: parts})
	if err != nil {
		r.t.Fatal(err)
	}
	return c.Thread.ID
}

func (r *rig) start(id string, change func(*row.Session)) *term {
	r.t.Helper()
	x := r.enter(id, change)
	r.send(id, sessions.Event{Type: sessions.BusyNow})
	return x
}

// enter registers a session, at the first part that is ready, if there is one.
func (r *rig) enter(id string, change func(*row.Session)) *term {
	r.t.Helper()
	x := r.term(id)
	s := row.Session{SessionID: id, Framework: "claude", Label: id, OriginalTask: "build it", Workdir: "/w"}
	if change != nil {
		change(&s)
	}
	node := ""
	ready := func(n row.Node) bool {
		return n.Kind == row.ExecutionNode && n.Status == row.NodeReady && n.AssignedSessionID == ""
	}
	if nodes := r.detail().Nodes; slices.ContainsFunc(nodes, ready) {
		node = nodes[slices.IndexFunc(nodes, ready)].ID
	}
	if _, err := r.Register(r.t.Context(), threads.Registration{ThreadID: r.thread, Node: node, Session: s}); err != nil {
		r.t.Error(err)
	}
	return x
}

func (r *rig) term(id string) *term {
	x := &term{r: r, info: sessions.Info{ID: id, Status: detect.Busy}}
	r.mu.Lock()
	r.terms[id] = x
	r.mu.Unlock()
	return x
}

// send has something happen, and waits until all that follows at once has happened.
func (r *rig) send(id string, e sessions.Event) {
	e.Session, e.At = id, time.Now()
	r.mu.Lock()
	if x := r.terms[id]; x != nil {
		x.follow(e)
	}
	r.mu.Unlock()
	r.queue <- e
	synctest.Wait()
}

// turn ends a turn by a hook, and waits until that was decided.
func (r *rig) turn(id, text string) {
	r.send(id, sessions.Event{Type: sessions.TaskComplete, Text: text, Source: "hook"})
	r.wait(time.Second)
}

func (r *rig) wait(d time.Duration) {
	func() { // what the test has read was read before what follows
		r.mu.Lock()
		defer r.mu.Unlock()
	}()
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) dialog(id, prompt string, options ...string) {
	b := detect.Blocker{Type: "permission", Prompt: prompt, Options: options, Fingerprint: fmt.Sprintf("%s/%d", prompt, time.Now().UnixNano())}
	r.send(id, sessions.Event{Type: sessions.BlockedNow, To: &detect.Status{State: detect.Blocked, Blocker: &b}})
	r.wait(time.Second)
}

func (r *rig) kinds(only ...string) (out []string) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if len(only) == 0 || slices.Contains(only, e.Type) {
			out = append(out, e.Type)
		}
	}
	return out
}

func (r *rig) row(id string) row.Session {
	r.t.Helper()
	s, err := r.reg.Session(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *rig) status(id string, want row.SessionStatus) {
	r.t.Helper()
	if s := r.row(id); s.Status != want {
		r.t.Errorf("%s is %s, not %s: %s %s; want s.Status = %v", id, s.Status, want, s.CompletionSummary, s.Metadata, want)
	}
}

func (r *rig) count(want int, kind string) {
	r.t.Helper()
	if got := len(r.kinds(kind)); got != want {
		r.t.Errorf("%d times %s, not %d: %v; want got = %v", got, kind, want, r.kinds(), want)
	}
}

func (r *rig) detail() threads.Detail {
	r.t.Helper()
	d, err := r.reg.Detail(r.t.Context(), r.thread, threads.Selection{})
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

func (r *rig) Terminal(id string) (coordinator.Terminal, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x := r.terms[id]; x != nil {
		return x, nil
	}
	return nil, capability.Errorf(capability.CodeNotFound, "test", "no session %s", id)
}

// source is the sessions of a rig.
type source struct{ *rig }

func (s source) Subscribe() (func(context.Context) (sessions.Event, bool, error), func()) {
	return func(ctx context.Context) (sessions.Event, bool, error) {
		select {
		case e := <-s.queue:
			return e, true, nil
		case <-ctx.Done():
			return sessions.Event{}, false, nil
		}
	}, func() {}
}

func (r *rig) Say(_ context.Context, t row.Thread, _, text string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, t.RoomID+": "+text)
	return nil
}

func (r *rig) Synthesise(context.Context, decide.Swarm) (string, error) {
	return "", errors.New("nobody writes it")
}

func (r *rig) Next(_ context.Context, _ string, failed []programs.Name) (programs.Name, bool) {
	for _, n := range r.next {
		if !slices.Contains(failed, n) {
			return n, true
		}
	}
	return "", false
}

func (r *rig) Rest(_ context.Context, name programs.Name, c choice.CoolDown) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rested = append(r.rested, name)
	return nil
}

func (r *rig) Spawn(_ context.Context, _ row.Session, name programs.Name, task string) (string, error) {
	r.mu.Lock()
	n := len(r.spawns) + 2
	err := r.unable
	if name == r.broken {
		err = errors.New("it has no model")
	}
	if err == nil {
		r.spawns = append(r.spawns, task)
	}
	r.mu.Unlock()
	if err != nil {
		return "", err
	}
	id := fmt.Sprint("s", n)
	r.term(id)
	return id, nil
}

// model answers by a function; small states which was asked.
type model func(small bool, prompt string) string

func (m model) Ask(_ context.Context, small bool, prompt string) (string, error) {
	return m(small, prompt), nil
}

// script answers decisions in order, the last for ever, and says creative to all tiers.
func script(answers ...string) model {
	var mu sync.Mutex
	return func(_ bool, prompt string) string {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(prompt, `{"tier":"routine"}`) {
			return `{"tier":"creative"}`
		}
		a := answers[0]
		if len(answers) > 1 {
			answers = answers[1:]
		}
		return a
	}
}

var _ validation.Model = model(nil)

const (
	yes      = `{"action":"respond","response":"Yes","reasoning":"it is asked for"}`
	complete = `{"action":"complete","reasoning":"done"}`
	goOn     = `{"action":"respond","response":"Go on with the tests, please.","reasoning":"not done"}`
	leave    = `{"action":"ignore","reasoning":"it works"}`
)

// term is a session that is a script.
type term struct {
	r       *rig
	info    sessions.Info
	sent    []string
	chosen  []string
	keys    []string
	screen  []string
	stopped int
	refuse  error
}

func (x *term) follow(e sessions.Event) {
	switch e.Type {
	case sessions.BusyNow:
		x.info.Status, x.info.Blocker = detect.Busy, nil
	case sessions.BlockedNow:
		x.info.Status, x.info.Blocker = detect.Blocked, e.To.Blocker
	case sessions.TaskComplete, sessions.ReadyAgain, sessions.TurnFailed:
		x.info.Status, x.info.Blocker = detect.Ready, nil
	case sessions.Ended:
		x.info.Status = detect.Stopped
	case sessions.Failed:
		x.info.Status = detect.Error
	}
}

func (x *term) Info() sessions.Info {
	x.r.mu.Lock()
	defer x.r.mu.Unlock()
	return x.info
}

// do is something that is given to the program, which is busy then.
func (x *term) do(f func()) error {
	x.r.mu.Lock()
	defer x.r.mu.Unlock()
	if x.refuse != nil {
		return x.refuse
	}
	if x.info.Status == detect.Stopped || x.info.Status == detect.Error {
		return capability.Errorf(capability.CodeUnavailable, "test", "it has ended").With("session_ended", "")
	}
	f()
	x.info.Status, x.info.Blocker = detect.Busy, nil
	x.r.queue <- sessions.Event{Session: x.info.ID, Type: sessions.BusyNow, At: time.Now()}
	return nil
}

func (x *term) Send(_ context.Context, text string, _ bool) (sessions.Outcome, error) {
	err := x.do(func() { x.sent = append(x.sent, text) })
	return sessions.Delivered, err
}

func (x *term) Keys(_ context.Context, names []string) error {
	return x.do(func() { x.keys = append(x.keys, strings.Join(names, " ")) })
}

func (x *term) Choose(_ context.Context, _, label string) error {
	return x.do(func() { x.chosen = append(x.chosen, label) })
}

func (x *term) Lines(int) []string {
	x.r.mu.Lock()
	defer x.r.mu.Unlock()
	return slices.Clone(x.screen)
}

func (x *term) Stop(bool) {
	x.r.mu.Lock()
	defer x.r.mu.Unlock()
	if x.stopped++; x.stopped == 1 && x.info.Status != detect.Stopped && x.info.Status != detect.Error {
		x.info.Status = detect.Stopped
		x.r.queue <- sessions.Event{Session: x.info.ID, Type: sessions.Ended, At: time.Now()}
	}
}
