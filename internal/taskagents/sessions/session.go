package sessions

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/internal/base/pause"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/process"
	"github.com/junctor-run/junctor/internal/taskagents/programs/cast"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/term"
)

// Session is one program in its terminal. Its methods are safe for concurrent use, also after it
// has ended.
type Session struct {
	m    *Manager
	spec Spec
	tell func(Event)

	ctx      context.Context // ends with the program
	cancel   context.CancelFunc
	terminal Terminal
	out      chan piece // to the keyboard
	x        *Exchange
	done     chan struct{} // closed after the end and Cleanup
	wake     chan struct{} // signals that timers may have changed
	replied  chan struct{} // signals that replies is not empty
	requests []request     // reported by hooks, and not on the screen yet
	group    sync.WaitGroup

	mu       sync.Mutex
	gone     bool // the program has ended
	info     Info
	screen   *term.Screen
	detector *detect.Detector
	console  Ring
	replies  [][]byte // to the program's terminal queries
	asked    bool     // a client has requested the end
	turns    uint64   // number of observed starts of turns
	submits  uint64   // number of starts that the program reported
	sent     []string // last sent texts, folded
	last     string   // last typed text
	result   result   // last message of the turn, if the program reported it
	answers  answering
	watch    watching
	holder   string    // user with control
	taken    time.Time // last input of that user; zero if no user has control
	draft    *draft    // what a user may have typed and not sent
}

// result is a turn's last message, from a better source than the screen.
type result struct{ text, source string }

func newSession(m *Manager, spec Spec) *Session {
	s := &Session{
		m: m, spec: spec, out: make(chan piece), done: make(chan struct{}),
		wake: make(chan struct{}, 1), replied: make(chan struct{}, 1),
		screen: term.New(spec.Cols, spec.Rows),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.x = NewExchange(s.ctx, spec.ID, &s.mu)
	s.detector = detect.New(spec.Rules, spec.Version, s.screen)
	s.screen.Reply = func(b []byte) {
		if len(s.replies) < maxReplies { // bounded, because a program may ask endlessly
			s.replies = append(s.replies, slices.Clone(b))
		}
	}
	s.screen.OSC = func(n int, data string) { s.detector.OSC(time.Now(), n, data) }
	s.info = Info{
		ID: spec.ID, Name: spec.Name, AgentType: spec.AgentType, AdapterType: spec.Framework, Workdir: spec.Dir, Status: detect.Pending,
		CreatedAt: time.Now(), Cols: spec.Cols, Rows: spec.Rows, ThreadID: spec.ThreadID, Metadata: spec.Metadata, ResumeToken: spec.ResumeToken,
		Mode: InPTY,
	}
	return s
}

// start starts the program and the goroutines of the session.
func (s *Session) start() error {
	mark := Mark(s.spec.ID)
	terminal, err := s.m.cfg.Start(process.Spec{
		Argv: s.spec.Argv, Env: append(slices.Clone(s.spec.Env), mark), Dir: s.spec.Dir, Cols: s.spec.Cols, Rows: s.spec.Rows, Mark: mark,
		HangUp: s.spec.HangUp,
	})
	if err != nil {
		return err
	}
	now := time.Now()
	s.terminal = terminal
	s.mu.Lock()
	s.info.StartedAt, s.info.LastActivity, s.info.Pid = now, now, terminal.Pid()
	s.watch.begin(now)
	s.emit(Event{Type: Started})
	s.moved(s.detector.Start(now))
	if s.spec.TaskInArgv { // recorded as typed, because a short turn may end before it is observed
		s.typedIn(now, []byte(plain(s.spec.Task)+"\r"), nil)
	}
	s.mu.Unlock()
	s.group.Go(s.tick)
	s.group.Go(s.keyboard)
	s.group.Go(s.deliver)
	go s.read()
	return nil
}

// read processes the program's output until it ends, and then ends the session.
func (s *Session) read() {
	buf := make([]byte, 32<<10)
	var brake Brake
	for {
		n, err := s.terminal.Read(buf)
		if n > 0 {
			s.printed(buf[:n])
			brake.Took(s.ctx, n)
		}
		if err != nil {
			break
		}
	}
	<-s.terminal.Done()
	s.over()
}

// Brake limits the rate of a program's output. After more than 8 MiB within a second the reader
// waits for one second.
type Brake struct {
	since time.Time
	bytes int
}

// Took counts n read bytes. It waits a second, or until ctx ends, if the limit is exceeded.
func (b *Brake) Took(ctx context.Context, n int) {
	if now := time.Now(); now.Sub(b.since) >= time.Second {
		*b = Brake{since: now}
	}
	if b.bytes += n; b.bytes > maxPerInterval && pause.For(ctx, time.Second) == nil {
		*b = Brake{since: time.Now()}
	}
}

// printed processes output: it updates the screen and the detector, and records and reports it.
func (s *Session) printed(data []byte) {
	s.mu.Lock()
	now := time.Now()
	_, _ = s.screen.Write(data) // it never fails
	s.detector.Output(now)
	s.record(now, cast.Output, string(data))
	offset := s.console.Add(data)
	s.info.LastActivity = now
	s.tell(Event{Session: s.spec.ID, Seq: s.info.Seq, Type: Output, At: now, Data: slices.Clone(data), Offset: offset})
	replies := len(s.replies)
	s.x.Notify()
	s.mu.Unlock()
	poke(s.wake)
	if replies > 0 {
		poke(s.replied)
	}
}

// over ends the session after its program has ended: it reports the end, waits for the
// goroutines, runs Cleanup and closes done.
func (s *Session) over() {
	exit := s.terminal.Exit()
	s.mu.Lock()
	s.gone = true
	now := time.Now()
	last := tail(s.lines(), 20)
	s.record(now, cast.Mark, recordingEnd)
	s.info.ExitCode, s.info.ExitSignal, s.info.EndedAt = &exit.Code, exit.Signal, now
	s.moved(s.detector.Exit(now, exit.Code, s.asked))
	e := Event{Type: Ended, ExitCode: &exit.Code, Signal: exit.Signal, Text: last}
	if s.info.Status == detect.Error {
		e.Type, e.Kind = Failed, s.detector.Status().Kind
		s.info.Error = last
	}
	s.emit(e)
	s.x.Notify()
	s.mu.Unlock()
	s.cancel()
	_ = s.terminal.Close()
	s.group.Wait()
	s.cleanup()
	close(s.done)
}

func (s *Session) cleanup() {
	if s.spec.Recording != nil {
		if err := s.spec.Recording.Close(); err != nil {
			s.m.cfg.Logger.Warn("a recording is not whole", "session", s.spec.ID, "err", err)
		}
	}
	if s.spec.Cleanup == nil {
		return
	}
	if err := s.spec.Cleanup(); err != nil {
		s.m.cfg.Logger.Error("what was prepared for a session could not be undone", "session", s.spec.ID, "err", err)
	}
}

// tick runs the detector and the stall check whenever they are due.
func (s *Session) tick() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-timer.C:
		case <-s.wake:
		}
		s.mu.Lock()
		now := time.Now()
		s.moved(s.detector.Tick(now))
		next := s.settleDraft(now, s.look(now))
		if at, ok := s.detector.Next(); ok && at.Before(next) {
			next = at
		}
		s.mu.Unlock()
		timer.Reset(max(time.Until(next), 0))
	}
}

// poke signals a channel without blocking.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// moved applies and reports changes of state, and starts automatic answers to dialogs. The
// caller holds mu.
func (s *Session) moved(changes []detect.Change) {
	for _, c := range changes {
		to := c.To
		if to.State == detect.Blocked && to.Blocker != nil {
			to.Blocker = s.asks(to.Blocker)
		} else if c.From.State == detect.Blocked {
			s.requests = nil
		}
		s.info.Status, s.info.Phase, s.info.Blocker, s.info.URL = to.State, to.Phase, to.Blocker, to.URL
		s.emit(Event{Type: State, From: &c.From, To: &to, Cause: c.Cause, Evidence: c.Evidence})
		s.record(time.Now(), cast.Mark, to.Word())
		switch to.State {
		case detect.Busy:
			// A shell leaves an accepted line on the screen, but reports that a command has
			// started.
			if slices.ContainsFunc(c.Evidence, func(e detect.Evidence) bool { return e.Source == "osc:133" }) {
				s.submits++
			}
			// The first turn may follow a dialog of the program's start.
			if c.From.State != detect.Busy && c.From.State != detect.Blocked || s.turns == 0 {
				s.turns++
			}
			e := Event{Type: BusyNow, To: &to}
			if tool, ok := strings.CutPrefix(to.Phase, detect.PhaseTool+":"); ok {
				e.Type, e.Tool = ToolRunning, tool
			}
			s.emit(e)
		case detect.Blocked:
			e := Event{Type: BlockedNow, To: &to}
			if a := s.answerFor(to.Blocker); a != nil {
				e.Answered = cmp.Or(a.Label, strings.Join(a.Keys, " "))
				s.group.Go(func() { s.answer(a, to.Blocker) })
			}
			s.emit(e)
		case detect.Authenticating:
			s.emit(Event{Type: LoginRequired, To: &to})
		case detect.Ready:
			s.ready(c.From, to)
		}
	}
	if len(changes) > 0 {
		s.x.Notify()
	}
}

// asks returns a dialog with an id of its own and the request of the hook that came before it. The
// caller holds mu.
func (s *Session) asks(b *detect.Blocker) *detect.Blocker {
	out := *b
	out.Asked = time.Now()
	out.ID = policy.NewApprovalID(out.Asked)
	if len(s.requests) == 1 { // of several it is not known which one the dialog shows
		r := s.requests[0]
		out.Tool, out.Input, out.Source, out.Type = r.tool, r.input, "hook", cmp.Or(r.kind, out.Type)
	}
	return &out
}

// Requested stores what a hook reported about the dialog that follows: its tool, the tool's whole
// input, and the kind of the decision, or "" if the screen decides.
func (s *Session) Requested(kind, tool string, input json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) < maxRequests {
		s.requests = append(s.requests, request{kind, tool, input})
	}
}

// Granted forgets the requests of hooks, because a tool has ended.
func (s *Session) Granted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.info.Status != detect.Blocked {
		s.requests = nil
	}
}

// request is a use of a tool about which the program asks.
type request struct {
	kind, tool string
	input      json.RawMessage
}

// ready reports the end of a turn, or only that the program is ready. The caller holds mu.
func (s *Session) ready(from, to detect.Status) {
	if s.info.ReadyAt.IsZero() {
		s.info.ReadyAt = time.Now()
	}
	e := Event{Type: ReadyAgain, To: &to}
	kind, failed := strings.CutPrefix(to.Phase, "failed:")
	switch {
	case to.Phase == detect.PhaseUnsubmitted:
		s.emit(e)
		return
	case failed:
		e.Type, e.Kind = TurnFailed, kind
	case to.Phase == detect.PhaseDone && from.Phase != detect.PhaseDone:
		e.Type = TaskComplete
		s.info.Completed++
	}
	if e.Type != ReadyAgain {
		e.Text, e.Source = s.result.text, s.result.source
		if e.Source == "" {
			e.Text, e.Source = s.detector.Turn(), "signal"
		}
		if from.State != detect.Busy && from.State != detect.Blocked {
			s.turns++ // the turn ended before its start was observed
		}
	}
	s.result, s.answers.inRow = result{}, 0
	s.emit(e)
}

func (s *Session) view() *detect.View { return s.detector.View() }

// recordingEnd is the mark after which the program is being stopped.
const recordingEnd = "end"

// record adds masked data to the recording, if there is one. The caller holds mu.
func (s *Session) record(at time.Time, kind cast.Kind, data string) {
	if s.spec.Recording == nil {
		return
	}
	if kind == cast.Output || kind == cast.Input {
		data = s.spec.Mask.Text(data)
	}
	s.spec.Recording.Add(at, kind, []byte(data))
}

// typedIn passes input to the detector and records shown, or data if shown is nil. The caller
// holds mu.
func (s *Session) typedIn(at time.Time, data, shown []byte) {
	s.detector.Input(at, data)
	if shown == nil {
		shown = data
	}
	s.record(at, cast.Input, string(shown))
}

// emit numbers, masks and reports an event. The caller holds mu, so that events are in order.
func (s *Session) emit(e Event) {
	s.info.Seq++
	e.Seq, e.Session, e.At = s.info.Seq, s.spec.ID, time.Now()
	s.tell(s.spec.Mask.Event(e))
}

// Stop ends the session. It asks the program to exit and kills it with all its descendants after
// 5 s, or at once with force. It does not wait for the end; see Done. A repeated call has an
// effect only with force.
func (s *Session) Stop(force bool) {
	s.mu.Lock()
	first := !s.asked
	s.asked = true
	if first && !s.gone {
		s.record(time.Now(), cast.Mark, recordingEnd)
		s.moved(s.detector.Stopping(time.Now()))
		if !force {
			s.group.Go(s.insist)
		}
	}
	s.mu.Unlock()
	switch {
	case force:
		s.terminal.Kill()
	case first:
		s.terminal.Ask()
	}
}

// insist kills the program after stopGrace. It repeats the request to a shell, which may miss the
// signal between two commands.
func (s *Session) insist() {
	for range int(stopGrace / askAgainDelay) {
		if pause.For(s.ctx, askAgainDelay) != nil {
			return
		}
		if s.spec.HangUp {
			s.terminal.Ask()
		}
	}
	s.terminal.Kill()
}

// Done returns a channel that is closed when the program has ended and Cleanup has run.
func (s *Session) Done() <-chan struct{} { return s.done }
