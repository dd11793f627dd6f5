// Package structured runs agents' programs without a terminal, over pipes and with the protocol of
// the program. A [Session] implements sessions.Live like a session in a terminal, with the same
// events and outcomes, and its end also stops all processes. The program reports its state by the
// protocol, so no screen has to be interpreted, and all evidence is of class 1.
//
// Package dialect implements the protocols; this package handles processes, timeouts and bounds.
// The program is untrusted: lines, queues, history and counts are bounded, and a program that does
// not answer, or sends garbage, is ended.
package structured

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/junctor-run/junctor/internal/platform/process"
	"github.com/junctor-run/junctor/internal/taskagents/permit"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/structured/dialect"
)

// Child is a program with pipes. Read reads its standard output, and Write writes its standard
// input. [process.Process] implements it.
type Child interface {
	io.ReadWriteCloser
	Pid() int
	// Ask asks the program to exit. Kill kills it and all its descendants.
	Ask()
	Kill()
	// Done returns a channel that is closed when the program has ended and its standard error was
	// read; then Exit returns its exit status.
	Done() <-chan struct{}
	Exit() process.Exit
}

// Ask is a tool call of the program, with the tool's name in presets.
type Ask struct {
	Tool   string
	Input  []byte // a JSON object
	Prompt string // for users
	// Filing is set if the program requests a file to be read or written. It may have asked the
	// user before, so only a refusal applies.
	Filing bool
}

// Config is the configuration of all sessions.
type Config struct {
	// Start starts a program whose standard error goes to the writer, which never blocks; nil
	// means on this machine.
	Start func(process.Spec, io.Writer) (Child, error)
	// Tell is called with all events, in order. It must not block or call the session.
	Tell func(sessions.Event)
	// Version is that of junctor, for the program's log.
	Version string
	Logger  *slog.Logger
}

// Spec describes a session to start. Of sessions.Spec, the fields Rules, Cols, Rows, HangUp,
// TaskInArgv, PostReady and Answers are ignored. Argv is the plan's structured command line, which
// names the conversation to resume if the program requires that there.
type Spec struct {
	sessions.Spec
	// Resume is the program's id of the conversation to resume; "" starts a new one.
	Resume string
	// Protocol is the one of Argv; "" is the usual one of the program.
	Protocol programs.Protocol
	Preset   programs.Preset
	// Judge decides whether a tool may be used. If nil, the user is always asked. It is called in
	// a separate goroutine; its ctx ends after a minute. The result permit.Ask leaves the question
	// open for Choose.
	Judge func(context.Context, Ask) permit.Decision
	// Rules returns the decision of the preset and the rules about a tool call that the program has refused. It
	// is called with the session locked. If nil, the preset allows it.
	Rules func(tool string, input []byte) permit.Decision
}

// Session is one program and the conversation with it. Its methods are safe for concurrent use,
// also after it has ended.
type Session struct {
	cfg  Config
	spec Spec

	ctx    context.Context // ends with the program
	cancel context.CancelFunc
	child  Child
	files  *files
	x      *sessions.Exchange
	unsent chan struct{} // signals that out is not empty
	done   chan struct{}
	group  sync.WaitGroup
	stderr tail

	mu       sync.Mutex
	talk     dialect.Dialect
	info     sessions.Info
	status   detect.Status
	why      sessions.Event // event that reported the status
	moved    time.Time      // time of that event
	gone     bool
	asked    bool // a client has requested the end
	opened   bool // the conversation is open
	begun    bool // the start of this turn was reported
	wedged   bool
	turns    uint64  // number of started turns
	taken    uint64  // number of texts accepted during turns
	declined refusal // last refused request
	denied   denied  // tool calls of this turn that were refused
	trouble  trouble
	counts   Counts
	open     []*pending // questions without answer, the oldest first
	filing   int        // files that are being read or written
	out      [][]byte   // messages to the program
	outSize  int
	view     view
}

type refusal struct {
	times uint64
	why   string
}

// denied holds refused tool calls of a turn.
type denied struct {
	known  map[string]bool // ids of those that are reported
	calls  []dialect.Told  // that the program has reported, to be judged at the end of the turn
	asking []sessions.Refusal
}

// trouble is the reason for ending the program.
type trouble struct{ kind, text string }

// Counts holds numbers of received lines and faults of a program.
type Counts struct {
	Lines   uint64 `json:"lines"`
	Garbage uint64 `json:"garbage"` // lines that are not messages, or too long
	Unknown uint64 `json:"unknown"` // unknown messages
}

// pending is a question of the program without answer.
type pending struct {
	*dialect.Question
	shown bool // left to the user
}

// Start starts a program and a conversation with it. It returns when the program runs; Spec.Task
// is sent when the program is ready. On failure, Cleanup has run when Start returns.
//
// Its errors: invalid_input (no_structured_mode; program_missing, for the folder too),
// and failed.
func Start(cfg Config, spec Spec) (*Session, error) {
	if cfg.Start == nil {
		cfg.Start = func(spec process.Spec, stderr io.Writer) (Child, error) { return process.StartPiped(spec, stderr) }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if spec.ID == "" {
		spec.ID = sessions.NewID()
	}
	s := &Session{
		cfg: cfg, spec: spec, unsent: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.x = sessions.NewExchange(s.ctx, spec.ID, &s.mu)
	if err := s.start(); err != nil {
		s.cancel()
		if s.files != nil {
			s.files.close()
		}
		s.cleanup()
		return nil, err
	}
	return s, nil
}

func (s *Session) start() (err error) {
	spec := s.spec
	if s.talk, err = dialect.New(dialect.Config{
		Framework: spec.Framework, Workdir: spec.Dir, Resume: spec.Resume,
		Version: s.cfg.Version, Preset: spec.Preset, Protocol: spec.Protocol,
	}); err != nil {
		return err
	}
	if s.files, err = openFiles(spec.Dir); err != nil {
		return err
	}
	token := spec.ResumeToken
	if spec.Resume != "" {
		token = spec.Resume
	}
	s.status = detect.Status{State: detect.Pending}
	s.info = sessions.Info{
		ID: spec.ID, Name: spec.Name, AgentType: spec.AgentType, AdapterType: spec.Framework, Workdir: spec.Dir,
		CreatedAt: time.Now(), ThreadID: spec.ThreadID, Metadata: spec.Metadata, ResumeToken: token, Mode: sessions.Structured,
	}
	mark := sessions.Mark(spec.ID)
	s.child, err = s.cfg.Start(process.Spec{
		Argv: spec.Argv, Env: append(slices.Clone(spec.Env), mark), Dir: spec.Dir, Mark: mark,
	}, &s.stderr)
	if err != nil {
		return err
	}
	if spec.Protocol == programs.Serve {
		s.child = serve(s.child, programs.ServerPassword(spec.Env), &s.stderr)
	}
	now := time.Now()
	s.mu.Lock()
	s.info.StartedAt, s.info.LastActivity, s.info.Pid = now, now, s.child.Pid()
	s.emit(sessions.Event{Type: sessions.Started})
	s.move(detect.Status{State: detect.Starting}, "started", "")
	s.do(s.talk.Begin())
	s.mu.Unlock()
	s.group.Go(s.write)
	s.group.Go(s.deliver)
	s.group.Go(s.watch)
	go s.read()
	return nil
}

func (s *Session) cleanup() {
	if s.spec.Cleanup == nil {
		return
	}
	if err := s.spec.Cleanup(); err != nil {
		s.cfg.Logger.Error("what was prepared for a session could not be undone", "session", s.spec.ID, "err", err)
	}
}

// watch ends a program whose conversation does not start within handshakeTimeout, and reports a
// working program that sends nothing for wedgedTimeout.
func (s *Session) watch() {
	began := time.Now()
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case now := <-ticker.C:
			s.mu.Lock()
			if s.status.State == detect.Starting && now.Sub(began) >= handshakeTimeout {
				s.fail("handshake", "the program did not begin the conversation within "+handshakeTimeout.String())
			}
			if quiet := now.Sub(s.info.LastActivity); s.status.State == detect.Busy && quiet >= wedgedTimeout && !s.wedged {
				s.wedged = true
				s.emit(sessions.Event{Type: sessions.Wedged, QuietMS: quiet.Milliseconds(), Text: s.view.tail(shownLines)})
			}
			s.mu.Unlock()
		}
	}
}

// fail ends the program because of a fault and stores the cause. The caller holds mu.
func (s *Session) fail(kind, text string) {
	if s.trouble.kind == "" {
		s.trouble = trouble{kind, text}
		s.child.Kill()
	}
}
