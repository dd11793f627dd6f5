package sessions_test

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/junctor-run/junctor/internal/platform/process"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

// pour is a terminal that prints what it is given, and takes everything.
type pour struct {
	io.Reader
	out  *io.PipeWriter
	done chan struct{}
}

func (*pour) Write(p []byte) (int, error) { return len(p), nil }
func (*pour) Close() error                { return nil }
func (*pour) Resize(int, int) error       { return nil }
func (*pour) Pid() int                    { return 1 }
func (p *pour) Ask()                      { p.Kill() }
func (p *pour) Done() <-chan struct{}     { return p.done }
func (*pour) Exit() process.Exit          { return process.Exit{} }

func (p *pour) Kill() {
	if p.out.Close() == nil {
		select {
		case <-p.done:
		default:
			close(p.done)
		}
	}
}

// watched is a session whose program is the benchmark, and the subscriber of its events.
func watched(b *testing.B) (*pour, *sessions.Session, *sessions.Subscription) {
	b.Helper()
	p := &pour{done: make(chan struct{})}
	p.Reader, p.out = io.Pipe()
	m := sessions.New(sessions.Config{Start: func(process.Spec) (sessions.Terminal, error) { return p, nil }})
	heard := m.Subscribe()
	s, err := m.Start(sessions.Spec{Framework: programs.Claude, Version: "2.1.197", Rules: claude(b), Dir: "/", Argv: []string{"claude"}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close(context.Background()) })
	return p, s, heard
}

// BenchmarkOutput is what a program prints on its way to the screen, the rings and a
// viewer who does not read: 8 MiB a second, and what share of a core they take.
func BenchmarkOutput(b *testing.B) {
	p, s, _ := watched(b)
	spent := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	began, before := time.Now(), spent()
	chunk := []byte(strings.Repeat("\x1b[1mthe\x1b[0m answer goes on, \x1b[38;5;114mcoloured\x1b[0m, and on\r\n", 64))
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.out.Write(chunk); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(spent()-before)/float64(time.Since(began)), "cores")
	_ = s.Info()
}

// BenchmarkBusy is how long it takes until a program is seen to work: from the sequence
// that it prints to the event. Between two, sequences are given time to count again.
func BenchmarkBusy(b *testing.B) {
	p, s, heard := watched(b)
	next := func(want sessions.Type) {
		for {
			e, ok, err := heard.Next(b.Context())
			if !ok || err != nil {
				b.Fatalf("%v; want ok = true, no error", err)
			}
			if e.Type == want {
				return
			}
		}
	}
	var total time.Duration
	n := 0
	for b.Loop() {
		if _, err := io.WriteString(p.out, "\x1b]0;✳ work\a\r\n"); err != nil {
			b.Fatal(err)
		}
		s.Fact(detect.Fact{Class: 2, Source: "hook:Stop", State: detect.Ready, Phase: detect.PhaseDone}, "", "")
		<-time.After(2200 * time.Millisecond)
		began := time.Now()
		if _, err := io.WriteString(p.out, "\x1b]0;⠂ work\a\r\n"); err != nil {
			b.Fatal(err)
		}
		next(sessions.BusyNow)
		total += time.Since(began)
		n++
	}
	b.ReportMetric(float64(total.Microseconds())/float64(n), "µs-to-busy")
}

// BenchmarkFact is the same by a hook.
func BenchmarkFact(b *testing.B) {
	_, s, heard := watched(b)
	states := []detect.Fact{
		{Class: 2, Source: "hook:UserPromptSubmit", State: detect.Busy},
		{Class: 2, Source: "hook:Stop", State: detect.Ready, Phase: detect.PhaseDone},
	}
	n := 0
	for b.Loop() {
		s.Fact(states[n%2], "", "")
		for {
			e, ok, err := heard.Next(b.Context())
			if !ok || err != nil {
				b.Fatalf("%v; want ok = true, no error", err)
			}
			if e.Type == sessions.State && e.To.State == states[n%2].State {
				break
			}
		}
		n++
	}
}

// BenchmarkSpawn is a program in a terminal of the system: until it runs, and until all
// of it is gone.
func BenchmarkSpawn(b *testing.B) {
	m := sessions.New(sessions.Config{})
	rules := claude(b)
	var started time.Duration
	n := 0
	for b.Loop() {
		began := time.Now()
		s, err := m.Start(sessions.Spec{
			Framework: programs.Claude, Rules: rules, Dir: os.TempDir(), Argv: []string{"/bin/sleep", "600"},
			Env: []string{"PATH=/bin"},
		})
		if err != nil {
			b.Fatal(err)
		}
		started += time.Since(began)
		s.Stop(true)
		<-s.Done()
		n++
	}
	b.ReportMetric(float64(started.Microseconds())/float64(n), "µs-to-run")
}
