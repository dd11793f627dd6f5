// Package structured runs agents' programs without a terminal: over pipes, in the
// protocol that a program offers. A [Session] is to the layers above what a session in a
// terminal is: the same facts, events, words for what became of a text, and an end that
// takes everything along. What in a terminal has to be found out by looking is told here,
// so nothing settles and nothing is guessed: all evidence is of class 1.
//
// What each protocol says is package dialect's; here are the process, the time and the
// bounds. The program is a stranger: whatever it writes, no line, queue, history or count
// grows without end, and one that does not answer, or answers nonsense, is ended.
package structured

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/process"
	"github.com/junctor-run/junctor/internal/taskagents/permit"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/structured/dialect"
)

// The bounds of a session, beside those of package sessions.
const (
	maxLine          = 8 << 20          // bytes of a message
	maxGarbage       = 50               // lines in a row that are not messages
	maxUnsent        = 8 << 20          // bytes that wait for a program that reads nothing
	maxOpen          = 32               // questions and files that wait at once
	maxStderr        = 64 << 10         // bytes that are kept of what it complains about
	handshakeTimeout = time.Minute      // for the conversation to begin
	acceptTimeout    = 30 * time.Second // for the program to show that it took a text
	interruptTimeout = 10 * time.Second // for a turn to end that was interrupted
	judgeTimeout     = time.Minute      // for a permission to be judged; then the user is asked
	stopGrace        = 5 * time.Second
	wedgedTimeout    = 5 * time.Minute // without a message while it works
	quietTimeout     = time.Minute
	lookInterval     = 5 * time.Second
)

// Child is a program with pipes; [process.Process] is one. Read is its standard output,
// Write its standard input.
type Child interface {
	io.ReadWriteCloser
	Pid() int
	// Ask asks the program to end, Kill ends it and all it started.
	Ask()
	Kill()
	// Done is closed when the program is gone, and all that it wrote to its standard
	// error has been taken; Exit states how, then.
	Done() <-chan struct{}
	Exit() process.Exit
}

// Ask is what the program wants to do, as its presets name it.
type Ask struct {
	Tool   string
	Input  []byte // a JSON object
	Prompt string // for people
	// Filing is set where the program has us read or write a file, after it asked, or did
	// not: only a refusal counts.
	Filing bool
}

// Config is what sessions share.
type Config struct {
	// Start runs a program whose standard error goes to the writer, which never waits;
	// nil: on this machine.
	Start func(process.Spec, io.Writer) (Child, error)
	// Tell takes what happens, in order. It must not wait, nor call the session.
	Tell func(sessions.Event)
	// Version is ours, for the program's log.
	Version string
	Logger  *slog.Logger
}

// Spec is a session to be. Of a terminal's it has no use for Rules, Cols, Rows, HangUp,
// TaskInArgv, PostReady and Answers; Argv is the plan's structured one, which names the
// conversation to take up where the program wants that there.
type Spec struct {
	sessions.Spec
	// Resume is the program's name of the conversation to take up; "": a new one.
	Resume string
	// Judge decides whether a tool may be used. If nil, the user is always asked. It is called
	// by goroutines of its own and has a minute; permit.Ask leaves the question open, for
	// Choose.
	Judge func(context.Context, Ask) permit.Decision
}

// Session is one program and our conversation with it. Its methods may be called at any
// time by any caller, also when it has ended.
type Session struct {
	cfg  Config
	spec Spec

	ctx      context.Context // ends with the program
	cancel   context.CancelFunc
	child    Child
	files    *files
	messages chan *message // texts to be said, in order
	unsent   chan struct{} // holds one when there is something to write
	done     chan struct{}
	group    sync.WaitGroup
	stderr   tail

	mu       sync.Mutex
	talk     dialect.Dialect
	info     sessions.Info
	status   detect.Status
	why      sessions.Event // that told it
	moved    time.Time      // when
	gone     bool
	asked    bool // a client wants it to end
	opened   bool // the conversation is
	begun    bool // this turn was seen to begin
	wedged   bool
	turns    uint64  // how many did
	taken    uint64  // texts that were taken while it worked
	declined refusal // what we asked for last and was not done
	trouble  trouble
	counts   Counts
	usage    dialect.Usage
	open     []*pending // what waits for an answer of ours, oldest first
	filing   int        // files that are being read or written
	out      [][]byte   // messages to the program
	outSize  int
	changed  chan struct{} // closed at the next change; nil if no goroutine waits
	view     view
}

type refusal struct {
	times uint64
	why   string
}

// trouble is why we end the program.
type trouble struct{ kind, text string }

// Counts say how well a program keeps to its protocol.
type Counts struct {
	Lines   uint64 `json:"lines"`
	Garbage uint64 `json:"garbage"` // lines that were no messages, or too long
	Unknown uint64 `json:"unknown"` // messages that mean nothing to us
}

// pending is a question that the program waits with.
type pending struct {
	*dialect.Question
	shown bool // the policy has left it to the user, who has to choose
}

// Start runs a program and begins a conversation with it. It returns when the program
// runs; Spec.Task is said as soon as it is ready. Whatever fails, Cleanup has run when
// the error is there.
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
		cfg: cfg, spec: spec, messages: make(chan *message, sessions.MaxQueued), unsent: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
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
		Version: s.cfg.Version,
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

// watch ends a program with which no conversation begins, and tells of one that works
// and says nothing.
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

// fail ends the program because of what it did. The caller holds mu.
func (s *Session) fail(kind, text string) {
	if s.trouble.kind == "" {
		s.trouble = trouble{kind, text}
		s.child.Kill()
	}
}

func (s *Session) endedError() error {
	return capability.Errorf(capability.CodeUnavailable, "tasks.send", "session %s has ended", s.spec.ID).With(sessions.ReasonEnded, "")
}
