package taskagents

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"

	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/permit"
	"github.com/junctor-run/junctor/internal/taskagents/programcheck"
	"github.com/junctor-run/junctor/internal/taskagents/programs/preflight"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/verbs"
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
)

// taskAgents holds everything that runs agents' programs. It implements the interfaces of
// package agentserve.
type taskAgents struct {
	*agents.Agents
	sessions *sessions.Manager
	settings *choice.Settings
	records  agentRecords
	chooser  *chooser
	logins   *logins
	threads  *taskThreads
	verbs    *verbs.Service
	skills   *taskSkills
	blockers *blockers
	consents consents
	proofs   *proofs
}

// open creates all parts of the service in s.workers and s.folders. Files, programs and
// session tokens that an earlier process left behind are removed. After an error s.workers and
// s.folders may be set, and the caller closes them.
func (s *Service) open(ctx context.Context) error {
	rules, err := detect.Load(s.path("frameworks"))
	if err != nil {
		return err
	}
	user, err := os.UserHomeDir()
	if err != nil {
		s.logger.Warn("the user has no home directory, so agents' programs find no accounts there", "err", err)
		user = s.path("agents", "home")
	}
	self, err := os.Executable()
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "home", "the path of this program is not known", err)
	}
	t := &taskAgents{records: agentRecords{s}, sessions: sessions.New(sessions.Config{MaxLive: s.cfg.Agents.MaxSessions, Logger: s.logger})}
	if err := s.openWorkspaces(ctx); err != nil {
		return err
	}
	if err := s.openTaskSettings(ctx, t); err != nil {
		return err
	}
	t.skills = s.openSkills(t)
	parent := environment(os.Environ())
	t.proofs.cfg = programcheck.Config{
		Dir: s.path("agents", "checks"), Self: self, Version: s.cfg.Version, UID: os.Getuid(), Parent: parent, Rules: rules, Logger: s.logger,
	}
	t.Agents, err = agents.New(ctx, agents.Config{
		Dir: s.path("agents"), Home: user, Own: s.cfg.Home, Self: self, Version: s.cfg.Version, Server: s.cfg.Address, Parent: parent,
		UID:   os.Getuid(),
		Login: func() map[string]string { return t.settings.Now().Login(parent) },
		Roots: s.agentRoots(), Rules: rules, Sessions: t.sessions,
		Check: func(ctx context.Context) []preflight.Result {
			login := t.settings.Now().Login(parent)
			return preflight.Check(ctx, preflight.Config{Find: exec.LookPath, Env: func(name string) string { return login[name] }})
		},
		CloneOf: s.folders.cloneOf,
		Tokens:  taskTokens{s.cfg.Policy}, Scratch: scratchFolders{s.folders.scratch}, Recorder: t.records, Skills: loneSkills{t.skills, t},
		Record: s.cfg.Agents.Record, Ask: t.ask, Decided: t.decided, Prove: t.proofs.prove, Logger: s.logger,
	})
	if err != nil {
		return err
	}
	s.workers = t
	t.logins = s.openLogins(t, user)
	t.chooser.programs, t.chooser.info = t.Programs, func(id string) (sessions.Info, error) {
		one, err := t.sessions.Get(id)
		if err != nil {
			return sessions.Info{}, err
		}
		return one.Info(), nil
	}
	if err = s.openThreads(ctx, t); err != nil {
		return err
	}
	if t.blockers, err = s.openBlockers(ctx, t); err != nil {
		return err
	}
	t.threads.follower.blockers = t.blockers
	s.openVerbs(t)
	return nil
}

// ask lets the coordinator decide about a tool call for which a preset requires a question.
// The result is false if the user has to decide.
func (t *taskAgents) ask(ctx context.Context, session, tool string, input json.RawMessage, d permit.Decision) (permit.Decision, bool) {
	if d.Rule == permit.BySettings { // only a user lets an agent write what programs run commands from
		return d, false
	}
	allow, reason, ok := t.threads.coordinator.Permit(ctx, session, tool, input)
	d.Rule, d.Reason, d.Effect = permit.ByCoordinator, reason, permit.Deny
	if allow {
		d.Effect = permit.Allow
	}
	return d, ok
}

// decided shares a decision of a session with the other sessions of its thread.
func (t *taskAgents) decided(session, text string) { t.threads.coordinator.Share(session, text) }

// close ends logins, coordinator and sessions, in this order, and removes the files that were
// made for the sessions. ctx limits how long programs may take to exit.
func (t *taskAgents) close(ctx context.Context) {
	if t == nil {
		return
	}
	t.logins.desk.Close()
	t.threads.close()
	t.sessions.Close(ctx)
	t.Close()
}

func environment(list []string) map[string]string {
	out := make(map[string]string, len(list))
	for _, entry := range list {
		if name, value, ok := strings.Cut(entry, "="); ok {
			out[name] = value
		}
	}
	return out
}

// taskTokens creates the tokens of sessions. A token has the role with the fewest rights, is
// named after the session, and never has more rights than the principal that started it.
type taskTokens struct{ Policy }

func ownServer() capability.Principal {
	return capability.Principal{ID: "server", Role: capability.RoleAdmin}
}

// Issue implements agents.Tokens.
func (t taskTokens) Issue(ctx context.Context, by capability.Principal, session string) (string, error) {
	_, value, err := t.CreateToken(ctx, ownServer(), policy.TokenRequest{Role: capability.RoleTask, Name: session, OnBehalfOf: &by})
	if err != nil {
		return "", err
	}
	return value.Reveal(), nil
}

// Revoke implements agents.Tokens.
func (t taskTokens) Revoke(ctx context.Context, session string) error {
	_, err := t.RevokeToken(ctx, ownServer(), session)
	return err
}

type scratchFolders struct{ *workspace.ScratchKeeper }

// Create implements agents.Scratch.
func (f scratchFolders) Create(session, label string) (string, error) {
	r, err := f.ScratchKeeper.Create(session, label)
	return r.Path, err
}

// agentRecords writes permission decisions, starts and ends of agents to the audit log.
type agentRecords struct{ s *Service }

// Permission implements agents.Recorder.
func (a agentRecords) Permission(ctx context.Context, session, tool string, d permit.Decision) {
	outcome := audit.OutcomeSuccess
	if d.Effect == permit.Deny {
		outcome = audit.OutcomeFailure
	}
	a.append(ctx, audit.Record{
		Logger: "agents", Event: audit.AgentPermission, Session: session, User: "task:" + session, Success: outcome,
		Metadata: audit.Metadata{Tool: tool, Attrs: []audit.Attr{
			{Key: "verdict", Value: string(d.Effect)}, {Key: "category", Value: string(d.Category)}, {Key: "rule", Value: d.Rule},
		}},
	}, audit.Synced)
}

// Session implements agents.Recorder. It also publishes the event to the live feed.
func (a agentRecords) Session(ctx context.Context, by capability.Principal, i sessions.Info, event string) {
	rec := audit.Record{
		Logger: "agents", Event: audit.TaskStatusChanged, Session: i.ID, User: by.ID,
		Metadata: audit.Metadata{WorkDir: i.Workdir, Attrs: []audit.Attr{
			{Key: "framework", Value: string(i.AdapterType)},
			{Key: "status", Value: string(i.Status)},
		}},
	}
	if event == "created" {
		rec.Event = audit.TaskCreated
	}
	a.append(ctx, rec, audit.Written)
	a.s.cfg.Publish("agent."+event, map[string]any{"session_id": i.ID, "framework": i.AdapterType, "status": i.Status})
}

// taken records that a person types into the terminal of a session from now on.
func (a agentRecords) taken(ctx context.Context, by capability.Principal, i sessions.Info) {
	a.append(ctx, audit.Record{
		Logger: "agents", Event: audit.TerminalTaken, Session: i.ID, User: by.ID,
		Metadata: audit.Metadata{WorkDir: i.Workdir, Attrs: []audit.Attr{{Key: "framework", Value: string(i.AdapterType)}}},
	}, audit.Synced)
}

func (a agentRecords) append(ctx context.Context, rec audit.Record, d audit.Durability) {
	if _, err := a.s.cfg.Log.Append(context.WithoutCancel(ctx), rec, d); err != nil {
		a.s.logger.Error("audit record not written", "event", string(rec.Event), "err", err)
	}
}
