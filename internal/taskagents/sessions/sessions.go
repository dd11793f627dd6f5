// Package sessions runs agents' programs: each in its own terminal, with its screen, its state
// and the evidence for it, a keyboard that several users may share, and an end that stops
// every process.
//
// A [Manager] holds sessions of two kinds and reports their events: those in terminals, each
// a [Session], and those that other packages run over a protocol. [Live] is the interface of
// both. A text is typed, and counts as delivered when the program shows that it accepted it.
// A dialog is answered by the label of a choice, and only after the cursor was seen there.
// Output is bounded and is never more than text.
//
// The caller supplies what is specific to a program: its command line, rules and answers.
// Decisions about a session are made elsewhere.
package sessions

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/platform/process"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/cast"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
)

// Reasons of errors that callers handle.
const (
	ReasonNoDialog = "no_dialog"         // the dialog or question is not open any more
	ReasonEnded    = "session_ended"     // the program has ended
	ReasonBlocked  = "agent_blocked"     // the program waits for an answer
	ReasonTooMany  = "too_many_sessions" // Config.MaxLive is reached
)

// Terminal is the terminal of a session's program. [process.Process] implements it.
type Terminal interface {
	io.Reader // until io.EOF
	io.Writer
	io.Closer
	Resize(cols, rows int) error
	Pid() int
	// Ask asks the program to exit. Kill kills it and all its descendants.
	Ask()
	Kill()
	// Done returns a channel that is closed when the program has ended; then Exit returns its
	// exit status.
	Done() <-chan struct{}
	Exit() process.Exit
}

// Config configures a Manager.
type Config struct {
	// Start starts a program; nil means in a pseudo-terminal of this machine.
	Start func(process.Spec) (Terminal, error)
	// MaxLive is the maximal number of sessions that have not ended; 0 means 8.
	MaxLive int
	Logger  *slog.Logger
}

// Spec describes a session to start.
type Spec struct {
	ID        string // "": a new one
	Name      string
	AgentType string // as requested
	Framework programs.Name
	Version   string // of the program; "" if unknown
	Rules     *detect.File

	Argv   []string
	Env    []string // complete environment; the session's mark is added
	Dir    string
	HangUp bool // it exits on SIGHUP, like shells
	Cols   int  // 0: 120
	Rows   int  // 0: 40

	// Task is the first message. With TaskInArgv it is on the command line and not typed.
	Task       string
	TaskInArgv bool
	PostReady  time.Duration // pause between readiness and the first task

	ThreadID    string
	Metadata    json.RawMessage
	ResumeToken string // the program's id of the conversation, if known before the start

	// Mask is applied to every text that leaves the session, except output for live terminals.
	Mask Mask
	// Recording records masked output and input and the states. Keys of users at a terminal are
	// recorded as asterisks. The session closes it. It may be nil.
	Recording *cast.Writer
	// Answers are tried in order on every dialog.
	Answers []programs.Answer
	// Cleanup undoes the preparations for the session. It runs once, after the program has
	// ended or failed to start.
	Cleanup func() error
}

// Info is the public state of a session.
type Info struct {
	ID           string          `json:"id"`
	Name         string          `json:"name,omitempty"`
	AgentType    string          `json:"agentType"`
	AdapterType  programs.Name   `json:"adapterType"`
	Workdir      string          `json:"workdir"`
	Status       detect.State    `json:"status"`
	Phase        string          `json:"phase,omitempty"`
	Blocker      *detect.Blocker `json:"blocker,omitempty"`
	URL          string          `json:"url,omitempty"` // where to sign in
	CreatedAt    time.Time       `json:"createdAt"`
	StartedAt    time.Time       `json:"startedAt,omitzero"`
	ReadyAt      time.Time       `json:"readyAt,omitzero"`
	LastActivity time.Time       `json:"lastActivityAt,omitzero"`
	LastInput    time.Time       `json:"lastInputAt,omitzero"`
	EndedAt      time.Time       `json:"endedAt,omitzero"`
	ExitCode     *int            `json:"exitCode,omitempty"`
	ExitSignal   string          `json:"exitSignal,omitempty"`
	Error        string          `json:"error,omitempty"`
	Pid          int             `json:"pid,omitempty"`
	Cols         int             `json:"cols"`
	Rows         int             `json:"rows"`
	ThreadID     string          `json:"threadId,omitempty"`
	Metadata     json.RawMessage `json:"metadata,omitempty"`
	ResumeToken  string          `json:"resumeToken,omitempty"`
	Mode         Mode            `json:"mode"`
	Usage        *programs.Usage `json:"usage,omitempty"`   // nil if the program does not report it
	Queued       int             `json:"queued,omitempty"`  // messages that wait
	Control      bool            `json:"control,omitempty"` // a user has control
	Completed    int             `json:"completedTurns,omitempty"`
	// Elsewhere: the program did something that it had asked about before it received an answer.
	Elsewhere bool      `json:"elsewhere,omitempty"`
	Refusals  []Refusal `json:"refusals,omitempty"` // the last 50
	Seq       uint64    `json:"seq"`                // number of its last event
}

// Live reports whether the session has not ended.
func (i Info) Live() bool { return i.Status != detect.Stopped && i.Status != detect.Error }

// Manager owns the sessions of this process.
type Manager struct {
	cfg Config

	mu       sync.Mutex
	sessions map[string]Live
	reserved map[string]bool // ids of sessions that are being started
	order    []string        // oldest first
	closed   bool
	watchers map[*Subscription]bool
	group    sync.WaitGroup
}

// New returns a manager.
func New(cfg Config) *Manager {
	if cfg.Start == nil {
		cfg.Start = func(spec process.Spec) (Terminal, error) { return process.Start(spec) }
	}
	if cfg.MaxLive <= 0 {
		cfg.MaxLive = MaxLive
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Manager{cfg: cfg, sessions: make(map[string]Live), reserved: make(map[string]bool), watchers: make(map[*Subscription]bool)}
}

var idForm = regexp.MustCompile(`^pty-[0-9]{1,20}-[0-9a-f]{1,32}$`)

// ValidID reports whether a text has the form of a session's id.
func ValidID(id string) bool { return len(id) <= 64 && idForm.MatchString(id) }

// NewID returns a new id: pty-<unix ms>-<8 hex digits>.
func NewID() string {
	return ids.Hex("pty-"+strconv.FormatInt(time.Now().UnixMilli(), 10)+"-", 4)
}

// Mark returns the environment entry that identifies the processes of a session.
func Mark(id string) string { return "PARALLAX_SESSION_ID=" + id }

// Start starts a session in a terminal. It returns when the program runs; the first task is
// delivered later. On failure, Cleanup has run when Start returns.
//
// Its errors: those of Run and of [process.Start].
func (m *Manager) Start(spec Spec) (*Session, error) {
	if spec.ID == "" {
		spec.ID = NewID()
	}
	if spec.Cols == 0 || spec.Rows == 0 {
		spec.Cols, spec.Rows = Cols, Rows
	}
	s := newSession(m, spec)
	_, err := m.Run(spec.ID, func(tell func(Event)) (Live, error) {
		s.tell = tell
		return s, s.start()
	})
	if err != nil {
		s.cancel()
		s.cleanup()
		return nil, err
	}
	return s, nil
}

// Run calls start and adds the session that it returns to the manager, so that it is counted and
// listed, its events reach all subscribers, and Close ends it. If no slot is free, start is not
// called. tell never blocks and may be called before start returns.
//
// Its errors: overloaded (too_many_sessions), conflict (session_exists), unavailable
// (shutting_down), and those of start.
func (m *Manager) Run(id string, start func(tell func(Event)) (Live, error)) (Live, error) {
	if err := m.admit(id); err != nil {
		return nil, err
	}
	defer m.group.Done()
	g := gate{to: m.tell}
	s, err := start(g.tell)
	m.mu.Lock()
	delete(m.reserved, id)
	if err == nil {
		m.enter(id, s)
	}
	closed := m.closed
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	g.open()    // subscribers can find the session now
	if closed { // Close did not see this session
		s.Stop(true)
		<-s.Done()
	}
	return s, nil
}

// gate holds back the events of a session until Get can return it.
type gate struct {
	to func(Event)

	mu     sync.Mutex
	opened bool
	held   []Event
}

func (g *gate) tell(e Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.opened {
		g.held = append(g.held, e)
		return
	}
	g.to(e)
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.held {
		g.to(e)
	}
	g.opened, g.held = true, nil
}

// admit reserves a slot and the id for a session.
func (m *Manager) admit(id string) error {
	const op = "tasks.spawn"
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return capability.Errorf(capability.CodeUnavailable, op, "the server is shutting down").With("shutting_down", "")
	case m.sessions[id] != nil || m.reserved[id]:
		return capability.Errorf(capability.CodeConflict, op, "there is a session %s already", id).With("session_exists", "")
	}
	if err := m.full(); err != nil {
		return err
	}
	m.reserved[id] = true
	m.group.Add(1)
	return nil
}

func (m *Manager) full() error {
	live := len(m.reserved)
	for _, s := range m.sessions {
		if !over(s) {
			live++
		}
	}
	if live < m.cfg.MaxLive {
		return nil
	}
	return capability.Errorf(capability.CodeOverloaded, "tasks.spawn", "Concurrent session limit reached (%d)", m.cfg.MaxLive).
		With(ReasonTooMany, "stop a session that is not needed any more")
}

func over(s Live) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}

// Room returns nil if another session may be started now, otherwise overloaded
// (too_many_sessions). It reserves nothing, so Start may still fail.
func (m *Manager) Room() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.full()
}

// enter adds a session and removes the oldest ended ones beyond MaxEnded. The caller holds mu.
func (m *Manager) enter(id string, s Live) {
	var ended []string
	for _, id := range m.order {
		if over(m.sessions[id]) {
			ended = append(ended, id)
		}
	}
	for _, id := range ended[:max(0, len(ended)-MaxEnded)] {
		delete(m.sessions, id)
		m.order = slices.Delete(m.order, slices.Index(m.order, id), slices.Index(m.order, id)+1)
	}
	m.sessions[id] = s
	m.order = append(m.order, id)
}

// Get returns a session by its id. It fails with not_found, reason session_not_found.
func (m *Manager) Get(id string) (Live, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sessions[id]; s != nil {
		return s, nil
	}
	return nil, capability.Errorf(capability.CodeNotFound, "tasks", "there is no session %.64q", id).With("session_not_found",
		"list them with: junctor tasks list")
}

// List returns all live sessions and the last MaxEnded ended ones, the oldest first.
func (m *Manager) List() []Live {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]Live, 0, len(m.order))
	for _, id := range m.order {
		list = append(list, m.sessions[id])
	}
	return list
}

// Close stops all sessions at the same time and waits for their end. Programs that still run
// after closeGrace, or when ctx ends, are killed. It then ends all subscriptions.
func (m *Manager) Close(ctx context.Context) {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, closeGrace)
	defer cancel()
	var all sync.WaitGroup
	for _, s := range m.List() {
		all.Go(func() {
			s.Stop(false)
			select {
			case <-s.Done():
			case <-ctx.Done():
				s.Stop(true)
				<-s.Done()
			}
		})
	}
	all.Wait()
	m.group.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.watchers {
		w.end(nil)
	}
}
