package taskagents

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/agentserve"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
	"github.com/junctor-run/junctor/secret"
)

// openTaskSettings opens the stored settings and the stored results of programs, and sets
// t.settings and t.chooser.
func (s *Service) openTaskSettings(ctx context.Context, t *taskAgents) error {
	rows, err := choice.OpenRows(ctx, s.cfg.DB)
	if err != nil {
		return err
	}
	if t.settings, err = choice.OpenSettings(ctx, rows.Row("settings"), s.agentSettings, s.logger); err != nil {
		return err
	}
	t.consents = consents{rows.Row("setups"), t.records}
	t.proofs = &proofs{store: rows.Row("proofs"), turn: make(chan struct{}, 1)}
	book, err := choice.OpenBook(ctx, rows.Row("choice"))
	t.chooser = &chooser{book: book, settings: t.settings, logger: s.logger}
	return err
}

// ollama is the default address of a local Ollama's OpenAI-compatible API.
const ollama = "http://127.0.0.1:11434/v1"

// agentSettings reads the configuration again and returns its settings of task agents,
// including secrets and the variables of agents.custom_credential_keys.
func (s *Service) agentSettings() (choice.SettingValues, error) {
	cfg, err := s.cfg.Reread()
	if err != nil {
		return choice.SettingValues{}, err
	}
	v := choice.SettingValues{
		Ranked: cfg.Agents.Strategy == "ranked", Preset: programs.Preset(cfg.Agents.Preset), Credentials: cfg.Agents.Credentials,
		Terminal: cfg.Agents.Mode == "terminal",
		Models: map[programs.Name]choice.Models{
			programs.Claude:   {Powerful: cfg.Agents.Models.Claude.Powerful, Fast: cfg.Agents.Models.Claude.Fast},
			programs.Codex:    {Powerful: cfg.Agents.Models.Codex.Powerful, Fast: cfg.Agents.Models.Codex.Fast},
			programs.Gemini:   {Powerful: cfg.Agents.Models.Gemini.Powerful, Fast: cfg.Agents.Models.Gemini.Fast},
			programs.Aider:    {Powerful: cfg.Agents.Models.Aider.Powerful, Fast: cfg.Agents.Models.Aider.Fast},
			programs.OpenCode: {Powerful: cfg.Agents.Models.OpenCode.Powerful, Fast: cfg.Agents.Models.OpenCode.Fast},
		},
		AiderProvider: cfg.Agents.AiderProvider, OpenCodeURL: cfg.Agents.OpenCodeURL, Subscription: cfg.Agents.Subscription,
		Cols: cfg.Agents.Cols, Rows: cfg.Agents.Rows,
		ValidatorRetries: cfg.Agents.ValidatorRetries, SkillCallback: cfg.Agents.SkillCallback, CodexLoginOnly: cfg.Agents.CodexLoginOnly,
		RolePolicy: cfg.Agents.RolePolicy, ConnectorPolicy: cfg.Agents.ConnectorPolicy,
		Accounts: make(map[string]string), Custom: make(map[string]string),
	}
	v.DefaultType, _ = programs.Normalise(cfg.Agents.DefaultType) // the configuration was validated; "" stays ""
	if cfg.Agents.OpenCodeLocal {
		v.OpenCodeURL = cmp.Or(v.OpenCodeURL, ollama)
	}
	v.OpenCodeKey = cfg.Foreign.Secret("PARALLAX_OPENCODE_API_KEY")
	if name := cfg.Agents.OpenCodeKeySecret; name != "" {
		if v.OpenCodeKey, err = s.cfg.Secrets.Get(name); err != nil {
			return v, err
		}
	}
	for _, list := range []map[string]secret.Value{cfg.Foreign.Secrets, cfg.Foreign.Given} {
		for name, value := range list {
			v.Accounts[name] = value.Reveal()
		}
	}
	for _, name := range cfg.Agents.CustomKeys {
		if value := cmp.Or(os.Getenv(name), v.Accounts[name]); value != "" {
			v.Custom[name] = value
		}
	}
	return v, nil
}

// agentRoots returns the folders that a caller may choose as a session's working directory:
// everything if agents.any_workdir is set.
func (s *Service) agentRoots() []string {
	if s.cfg.Agents.AnyWorkdir {
		return []string{"/"}
	}
	roots := append([]string{s.path("workspaces")}, s.cfg.Agents.Workdirs...)
	for _, dir := range []string{s.cfg.Agents.CodingDirectory, s.cfg.Agents.WorkspaceBase} {
		if dir != "" {
			roots = append(roots, dir)
		}
	}
	return roots
}

// scratchConfig returns the folder of scratch directories and their retention. In a coding
// directory of the user's they are kept by default.
func (s *Service) scratchConfig(base, state string) workspace.ScratchConfig {
	c := workspace.ScratchConfig{
		Base: filepath.Join(base, "scratch"), State: filepath.Join(state, "scratch"),
		Retention: workspace.Retention(s.cfg.Agents.ScratchRetention), TTL: s.cfg.Agents.ScratchTTL,
	}
	if own := s.cfg.Agents.CodingDirectory; own != "" {
		c.Base, c.State = own, ofFolder(c.State, own)
		c.Retention = cmp.Or(c.Retention, workspace.Persistent)
	}
	return c
}

// ofFolder returns the state path for a folder that the user chose. It contains a hash of the
// folder, so that records of one folder are not used for another.
func ofFolder(state, folder string) string {
	sum := sha256.Sum256([]byte(folder))
	return state + "-" + hex.EncodeToString(sum[:8])
}

// Spawn starts a session. Fields that the caller left empty come from the settings, and the
// chooser selects the program for AgentType "" or "auto". All sessions start here.
func (t *taskAgents) Spawn(ctx context.Context, by capability.Principal, req agents.Request) (agents.Info, error) {
	if req.AgentType == "" || req.AgentType == "auto" {
		name, err := t.chooser.pick(ctx, choice.Task{Text: req.Task, Workdir: req.Workdir != ""})
		if err != nil {
			return agents.Info{}, err
		}
		req.AgentType = string(name)
	}
	if name, ok := programs.Normalise(req.AgentType); ok {
		withSettings(&req, name, t.settings.Now())
	}
	return t.Agents.Spawn(ctx, by, req)
}

// withSettings fills the empty fields of req from the settings. Custom variables of req win
// over those of the settings.
func withSettings(req *agents.Request, name programs.Name, v choice.SettingValues) {
	req.Preset = cmp.Or(req.Preset, v.Preset)
	if req.Mode == "" && v.Terminal {
		req.Mode = sessions.InPTY
	}
	switch name {
	case programs.Aider:
		req.Provider = cmp.Or(req.Provider, v.AiderProvider)
	case programs.OpenCode:
		if req.Model == "" { // a named model may belong to a provider that the user configured
			req.BaseURL = cmp.Or(req.BaseURL, v.OpenCodeURL)
		}
	}
	req.Model = v.Model(name, req.Model)
	req.Cols, req.Rows = cmp.Or(req.Cols, v.Cols), cmp.Or(req.Rows, v.Rows)
	custom := make(map[string]string, len(v.Custom)+len(req.Custom))
	for _, from := range []map[string]string{v.Custom, req.Custom} {
		for key, value := range from {
			custom[key] = value
		}
	}
	req.Custom = custom
}

// run records session events, handles login requests, and stops sessions that were ready
// without activity for idle, until ctx ends. If idle is 0, sessions are not stopped.
func (t *taskAgents) run(ctx context.Context, idle time.Duration) error {
	var hearing sync.WaitGroup
	defer hearing.Wait()
	hearing.Go(func() { t.chooser.countEvents(ctx, t.sessions.Subscribe) })
	hearing.Go(func() { t.logins.recovery.HandleEvents(ctx, t.sessions.Subscribe) })
	if idle <= 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(min(idle, time.Minute))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			for _, s := range t.sessions.List() {
				if i := s.Info(); i.Status == detect.Ready && i.Queued == 0 && !i.Control && now.Sub(i.LastActivity) >= idle &&
					now.Sub(i.LastInput) >= idle {
					s.Stop(false)
				}
			}
		}
	}
}

// Metrics implements agentserve.Accounts.
func (t *taskAgents) Metrics() map[programs.Name]choice.Metrics {
	return t.chooser.book.Snapshot().Metrics
}

// Settings implements agentserve.Accounts.
func (t *taskAgents) Settings(ctx context.Context) agentserve.Settings {
	v, state := t.settings.Now(), t.chooser.State(ctx, choice.Task{})
	return agentserve.Settings{
		Preset: cmp.Or(v.Preset, programs.Permissive), Strategy: v.Strategy(), DefaultType: v.DefaultType,
		PreferredType: state.Preferred.ID, PreferredReason: state.Preferred.Reason, Subscription: v.Subscription,
		Frameworks: state.Frameworks, Credentials: v.Credentials, Models: v.Models,
	}
}

// ChangeSettings implements agentserve.Accounts and writes the change to the audit log.
func (t *taskAgents) ChangeSettings(ctx context.Context, by capability.Principal, c choice.SettingsChange) error {
	if err := t.settings.Change(ctx, c); err != nil {
		return err
	}
	said, err := jsonx.Marshal(c)
	if err != nil {
		return err
	}
	t.records.append(ctx, audit.Record{
		Logger: "agents", Event: audit.ConfigChanged, User: by.ID, Success: audit.OutcomeSuccess,
		Metadata: audit.Metadata{Attrs: []audit.Attr{{Key: "set", Value: string(said[:min(len(said), maxRecorded)])}}},
	}, audit.Synced)
	return nil
}
