package agents

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
	"github.com/junctor-run/junctor/internal/taskagents/permit"
	"github.com/junctor-run/junctor/internal/taskagents/programs/preflight"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

// Tokens issues the credentials with which sessions' programs call this server.
type Tokens interface {
	// Issue returns a token of role task for the principal task:<session>, with at most the
	// rights of by.
	Issue(ctx context.Context, by capability.Principal, session string) (token string, err error)
	Revoke(ctx context.Context, session string) error
}

// Scratch creates working directories for sessions whose caller named none.
type Scratch interface {
	Create(session, label string) (path string, err error)
	// Adopt assigns path to a session that continues in it. It does nothing if path is not a
	// scratch folder.
	Adopt(path, session string) error
	SessionEnded(session, event string) error
}

// Recorder records permissions, starts and ends of agents.
type Recorder interface {
	// Permission records a decision about a tool. Session records a start or an end.
	Permission(ctx context.Context, session string, tool string, d permit.Decision)
	Session(ctx context.Context, by capability.Principal, i sessions.Info, event string)
}

// Skills runs this server's skills for sessions, which request them by a line of their turns.
type Skills interface {
	// Equip grants a session its skills and returns their manifest; "" if it has none. It is
	// called before the program starts.
	Equip(ctx context.Context, by capability.Principal, e Equipment) (manifest string)
	// Turn runs the skill that the text of the session's turn number turn requests. asked
	// reports that the program got an answer and continues. It may take minutes, and returns
	// when ctx ends.
	Turn(ctx context.Context, session string, turn int, text directive.Text) (asked bool)
	// Forget removes the grant of a session that has ended.
	Forget(session string)
}

// Equipment describes the session for which skills are selected.
type Equipment struct {
	Session, Thread, Task, Repo string
}

// Config holds the dependencies of the service. All fields but Skills, Ask, Decided, Prove,
// Logger and Login are required.
type Config struct {
	Dir      string // existing folder of the service; not below the temporary folder
	Home     string // home directory of the user
	Own      string // home directory of the server
	Self     string // path of the running binary
	Version  string // version of the running binary, for protocols that send it
	Server   func() string
	Parent   map[string]string // environment of the server
	UID      int
	Roots    []string                // folders that sessions may work in
	CloneOf  func(dir string) string // returns the root of the cloned repository that a folder is in, or ""; nil: always ""
	Rules    []*detect.File
	Check    func(ctx context.Context) []preflight.Result
	Sessions *sessions.Manager
	Tokens   Tokens
	Scratch  Scratch
	Recorder Recorder
	Skills   Skills // nil: sessions have no skills
	Record   bool   // record the terminals of sessions below Dir
	// Ask decides instead of the user about a tool for which the preset requires a question.
	// d is the decision of the rules. If ok, the returned decision, whose rule names who
	// decided, replaces d. ctx ends after 55 s, and Ask must return then. If Ask is nil, not
	// ok or late, the program asks on its screen and the session is blocked. Ask may be called
	// for several sessions at once.
	Ask func(ctx context.Context, session, tool string, input json.RawMessage, d permit.Decision) (permit.Decision, bool)
	// Decided receives a decision that a session's program reports for the other sessions. It
	// may be nil, and must not block, because the program waits for its hook.
	Decided func(session, text string)
	Login   func() map[string]string // returns the variables for logins of programs; nil: Parent
	// Prove checks a program whose version its rules were not tested with, and returns why it cannot be
	// relied on to ask the user, or "". It may take a minute. nil: all programs are relied on.
	Prove  func(ctx context.Context, program preflight.Result) (why string, err error)
	Logger *slog.Logger
}
