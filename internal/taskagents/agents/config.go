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

// Tokens makes the credential by which a session's program speaks to us.
type Tokens interface {
	// Issue makes a token of role task for the principal task:<session>, whose rights are
	// not more than those of by.
	Issue(ctx context.Context, by capability.Principal, session string) (token string, err error)
	Revoke(ctx context.Context, session string) error
}

// Scratch makes the folders of sessions that are given none.
type Scratch interface {
	Create(session, label string) (path string, err error)
	// Adopt gives such a folder, if it is one, to a session that goes on in it.
	Adopt(path, session string) error
	SessionEnded(session, event string) error
}

// Recorder keeps what agents were allowed and what became of them.
type Recorder interface {
	// Permission is a judgement of a tool; Session a start or an end.
	Permission(ctx context.Context, session string, tool string, d permit.Decision)
	Session(ctx context.Context, by capability.Principal, i sessions.Info, event string)
}

// Skills are what this server does for sessions by lines of their answers.
type Skills interface {
	// Equip states what a session may use from now on, and returns the manifest of it; "" is
	// nothing. It is called before the program starts.
	Equip(ctx context.Context, by capability.Principal, e Equipment) (manifest string)
	// Turn reads the end of a session's turn, the turn-th. asked reports that the program is
	// answered and goes on, so that it is not done. It may take minutes, and ends with ctx.
	Turn(ctx context.Context, session string, turn int, text directive.Text) (asked bool)
	// Forget takes everything from a session that is over.
	Forget(session string)
}

// Equipment is a session that skills are chosen for.
type Equipment struct {
	Session, Thread, Task, Repo string
}

// Config is what the service needs; all but Skills, Ask, Decided, Logger and Login are
// required.
type Config struct {
	Dir      string // the service's own, which exists; not below the temporary folder
	Home     string // the user's
	Own      string // the server's
	Self     string // the path of our own binary
	Version  string // ours, for programs that ask who we are
	Server   func() string
	Parent   map[string]string // our environment
	UID      int
	Roots    []string // folders that sessions may work in
	Rules    []*detect.File
	Check    func(ctx context.Context) []preflight.Result
	Sessions *sessions.Manager
	Tokens   Tokens
	Scratch  Scratch
	Recorder Recorder
	Skills   Skills // nil: none
	Record   bool   // what happens in the terminals of sessions, below Dir
	// Ask decides in the user's place what the preset asks about: d is what the rules said,
	// and what is returned, with a rule that states who decided, holds where ok. It has 55 s,
	// by its ctx, and must return when that ends; then, and where it is nil or not ok, the
	// program asks and the session is blocked. It may be called for several sessions at
	// once, by what waits for the answer.
	Ask func(ctx context.Context, session, tool string, input json.RawMessage, d permit.Decision) (permit.Decision, bool)
	// Decided receives a decision that a session's program reports to the others; nil: no one
	// does. It has a second, by its ctx: the program waits for its hook.
	Decided func(session, text string)
	Login   func() map[string]string // variables that programs may log in with now; nil: those of Parent
	Logger  *slog.Logger
}
