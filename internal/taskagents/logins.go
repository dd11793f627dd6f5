package taskagents

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/preflight"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/signin"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
	"github.com/junctor-run/junctor/secret"
)

// logins runs the interactive logins of users at the programs' providers and at GitHub.
type logins struct {
	s        *Service
	user     string // home directory that holds the programs' accounts
	desk     *signin.Desk
	recovery *signin.Recovery
	github   forge.DeviceFlow
}

// openLogins returns the logins of the service. Sessions of t that wait for a login continue
// after it.
func (s *Service) openLogins(t *taskAgents, user string) *logins {
	l := &logins{s: s, user: user, github: forge.DeviceFlow{ClientID: s.cfg.Agents.GitHubClientID}}
	l.desk = signin.New(l.told, s.logger)
	l.recovery = signin.NewRecovery(l.desk, loginSessions{t}, l.flow, s.logger)
	return l
}

// told publishes a login's prompt, success or failure to the live feed.
func (l *logins) told(e signin.Event) {
	doc := map[string]any{"name": e.Name, "url": e.Prompt.URL, "deviceCode": e.Prompt.DeviceCode, "instructions": e.Prompt.Instructions}
	switch {
	case !e.Done:
		l.s.cfg.Publish("agent.login_required", doc)
	case e.Err != nil:
		l.s.cfg.Publish("agent.login_failed", map[string]any{"name": e.Name, "error": capability.AsError(e.Err).Message})
	default:
		l.s.cfg.Publish("agent.logged_in", map[string]any{"name": e.Name})
	}
}

// flow returns the login command of a program with a reduced environment. The result is false
// if the program has no login command or is not installed.
func (l *logins) flow(name programs.Name) (signin.Flow, bool) {
	path, err := exec.LookPath(programs.Of(name).Binary)
	words := programs.Of(name).SignIn
	if err != nil || words == nil {
		return nil, false
	}
	mark := sessions.Mark("login-" + string(name) + "-" + sessions.NewID()) // another server's login is not ours to end
	env := []string{mark, "TERM=xterm-256color", "COLORTERM=truecolor", "HOME=" + l.user, "DISABLE_AUTOUPDATER=1"}
	for _, keep := range []string{
		"PATH", "USER", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DISPLAY", "WAYLAND_DISPLAY",
		"CODEX_HOME", "CLAUDE_CONFIG_DIR", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy",
		"NODE_EXTRA_CA_CERTS",
	} {
		if value, set := os.LookupEnv(keep); set {
			env = append(env, keep+"="+value)
		}
	}
	return signin.Helper{
		Argv: append([]string{path}, words...), Env: env, Dir: l.s.path("agents"), Mark: mark,
		LoggedIn: func(ctx context.Context) bool {
			noKeys := func(string) string { return "" } // a key is not a login
			return preflight.One(ctx, preflight.Config{Home: l.user, Env: noKeys}, name).Auth.Status == preflight.Authenticated
		},
	}.Run, true
}

// githubSecret is the name under which a login at GitHub is stored.
const githubSecret = "github.device-login"

// atGitHub runs GitHub's device flow, passes its prompt to show, and stores the token as
// githubSecret.
func (l *logins) atGitHub(ctx context.Context, show func(signin.Prompt), _ <-chan string) error {
	token, err := l.github.Login(ctx, func(p forge.Prompt) {
		show(signin.Prompt{URL: p.URL, DeviceCode: p.Code, Instructions: "Open the address, enter the code there, and allow what is asked for."})
	})
	if err != nil {
		return err
	}
	return l.s.cfg.Secrets.Set(githubSecret, token)
}

// githubToken returns the first credential for GitHub that exists: GITHUB_TOKEN of the
// environment, then that of an elizaOS agent's configuration, then the token of a login. It
// returns an empty value if none exists.
func (s *Service) githubToken() (secret.Value, error) {
	if own := os.Getenv("GITHUB_TOKEN"); own != "" {
		return secret.New(own), nil
	}
	if foreign := s.cfg.Foreign.Secret("GITHUB_TOKEN"); !foreign.Empty() {
		return foreign, nil
	}
	stored, err := s.cfg.Secrets.Get(githubSecret)
	if capability.CodeOf(err) == capability.CodeNotFound {
		return secret.Value{}, nil
	}
	return stored, err
}

// SignIn implements agentserve.Accounts. It starts the login that name means and returns its
// prompt; a code is typed into the login that already runs. A program without a login command
// returns instructions only. Errors: invalid_input, reason no_client_id or no_login;
// unavailable, reason agent_not_installed.
func (t *taskAgents) SignIn(ctx context.Context, name, code string) (signin.Prompt, error) {
	const op = "tasks.login"
	if strings.EqualFold(name, "github") {
		if t.logins.github.ClientID == "" {
			return signin.Prompt{}, capability.Errorf(capability.CodeInvalidInput, op, "logging in at GitHub needs an OAuth application").
				With("no_client_id", "set agents.github_client_id (GITHUB_OAUTH_CLIENT_ID), or give a token in GITHUB_TOKEN")
		}
		return t.logins.desk.Begin(ctx, "github", t.logins.atGitHub, nil)
	}
	kind, ok := programs.Normalise(name)
	if ok && programs.Of(kind).SignIn != nil {
		if code != "" {
			return t.logins.desk.Type(string(kind), code)
		}
		flow, there := t.logins.flow(kind)
		if !there {
			p := programs.Of(kind)
			return signin.Prompt{}, capability.Errorf(capability.CodeUnavailable, op, "%s is not installed on this machine",
				kind).With("agent_not_installed", "install it with: "+p.Install)
		}
		return t.logins.desk.Begin(ctx, string(kind), flow, nil)
	}
	if ok && programs.Of(kind).Login != "" {
		return signin.Prompt{Instructions: string(kind) + " has no login command: " + programs.Of(kind).Login}, nil
	}
	return signin.Prompt{}, capability.Errorf(capability.CodeInvalidInput, op, "there is no login for %.60q", name).With("no_login",
		"there is one for claude, codex and github")
}

// loginSessions gives package signin access to the sessions that may wait for a login.
type loginSessions struct{ t *taskAgents }

// Info implements signin.Sessions.
func (l loginSessions) Info(id string) (sessions.Info, error) { return l.t.chooser.info(id) }

// Task implements signin.Sessions. It returns "" for an unknown session.
func (l loginSessions) Task(id string) string {
	p, ok := l.t.Parent(id)
	if !ok {
		return ""
	}
	return p.OriginalTask
}

// Keys implements signin.Sessions. It fails if the session has no terminal.
func (l loginSessions) Keys(ctx context.Context, id string, keys []string) error {
	one, err := l.t.sessions.Get(id)
	if err != nil {
		return err
	}
	k, ok := any(one).(interface {
		Keys(ctx context.Context, names []string) error
	})
	if !ok {
		return errors.New("it has no terminal")
	}
	return k.Keys(ctx, keys)
}

// Send implements signin.Sessions.
func (l loginSessions) Send(ctx context.Context, id, text string) error {
	one, err := l.t.sessions.Get(id)
	if err == nil {
		_, err = one.Send(ctx, text, false)
	}
	return err
}
