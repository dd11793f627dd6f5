package sessions_test

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/internal/platform/process"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/testkit/fakecli"
)

type script = func(ctx context.Context, s *fakecli.Screen)

// pipes is a terminal without a system: a program that is a function.
type pipes struct {
	in   *io.PipeWriter
	out  *io.PipeReader
	spec process.Spec
	deaf bool

	stop  context.CancelFunc
	done  chan struct{}
	mu    sync.Mutex
	exit  process.Exit
	asked int
	sizes [][2]int
}

func (p *pipes) Read(b []byte) (int, error)  { return p.out.Read(b) }
func (p *pipes) Write(b []byte) (int, error) { return p.in.Write(b) }
func (p *pipes) Close() error                { return p.in.Close() }
func (p *pipes) Pid() int                    { return 4711 }
func (p *pipes) Done() <-chan struct{}       { return p.done }

func (p *pipes) Resize(cols, rows int) error {
	p.sizes = append(p.sizes, [2]int{cols, rows})
	return nil
}

func (p *pipes) Exit() process.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

func (p *pipes) Ask() {
	p.mu.Lock()
	p.asked++
	p.mu.Unlock()
	if !p.deaf {
		p.end(process.Exit{})
	}
}

func (p *pipes) Kill() { p.end(process.Exit{Code: -9, Signal: "SIGKILL"}) }

func (p *pipes) end(e process.Exit) {
	p.mu.Lock()
	p.exit = e
	p.mu.Unlock()
	p.stop()
	p.in.Close()
}

func (p *pipes) run(s script, code int) {
	in, write := io.Pipe()
	read, out := io.Pipe()
	p.in, p.out, p.done = write, read, make(chan struct{})
	p.exit.Code = code
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	go func() {
		fakecli.Run(ctx, in, out, s)
		p.stop()
		in.Close()
		close(p.done)
		out.Close()
	}()
}

// rig is a manager whose programs are scripts.
type rig struct {
	*testing.T
	*sessions.Manager
	terminal *pipes
	session  *sessions.Session
	heard    *sessions.Subscription
	events   []sessions.Event
}

func claude(t testing.TB) *detect.File {
	t.Helper()
	files, err := detect.Load(filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	f, _, err := detect.Pick(files, programs.Claude, "2.1.197")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// play runs a test in a bubble of time, with a session that a script plays.
func play(t *testing.T, change func(*sessions.Spec, *pipes), s script, test func(r *rig)) {
	t.Helper()
	rules := claude(t)
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, terminal: &pipes{}}
		r.Manager = sessions.New(sessions.Config{Start: func(spec process.Spec) (sessions.Terminal, error) {
			r.terminal.spec = spec
			r.terminal.run(s, 0)
			return r.terminal, nil
		}})
		r.heard = r.Subscribe()
		spec := sessions.Spec{
			AgentType: "claude-code", Framework: programs.Claude, Version: "2.1.197", Rules: rules, Dir: "/project",
			Argv: []string{"claude"},
		}
		if change != nil {
			change(&spec, r.terminal)
		}
		var err error
		if r.session, err = r.Start(spec); err != nil {
			t.Fatal(err)
		}
		test(r)
		r.Close(t.Context())
		<-r.session.Done()
	})
}

// until reads events up to one of a type and returns it; output is left out.
func (r *rig) until(kind sessions.Type) sessions.Event {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 30*time.Minute) // of the bubble
	defer cancel()
	for {
		e, ok, err := r.heard.Next(ctx)
		if !ok {
			r.Fatalf("no %s: %v; it is %s; there were %v\n%s", kind, err, r.session.Explain().Word, r.types(),
				strings.Join(r.session.Screen().Lines, "\n"))
		}
		if e.Type == sessions.Output {
			continue
		}
		r.events = append(r.events, e)
		if e.Type == kind {
			return e
		}
	}
}

func (r *rig) types() (list []sessions.Type) {
	for _, e := range r.events {
		list = append(list, e.Type)
	}
	return list
}

// words are the states that were announced, as recordings spell them.
func (r *rig) words() (list []string) {
	for _, e := range r.events {
		if e.Type == sessions.State {
			list = append(list, e.To.Word())
		}
	}
	return slices.Compact(list)
}

func (r *rig) state(want detect.State) {
	r.Helper()
	if got := r.session.Info(); got.Status != want {
		r.Fatalf("it is %s, not %s", got.Status, want)
	}
}
