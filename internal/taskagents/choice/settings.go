package choice

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/secret"
)

// SettingValues are the settings at one moment. Callers must not change its maps.
type SettingValues struct {
	DefaultType programs.Name   // "": none is set
	Ranked      bool            // the strategy is ranked; else fixed
	Preset      programs.Preset // "": autonomous in folders made for the task, else permissive
	Terminal    bool            // programs are started in a terminal by default
	Credentials string          // subscription, api_keys, cloud; "": all
	Models      map[programs.Name]Models

	AiderProvider string
	OpenCodeURL   string
	OpenCodeKey   secret.Value
	Subscription  string // a hint for Choose
	Cols, Rows    int    // of a terminal
	// Accounts are variables that programs log in with, beside those of the server's
	// environment. Custom are variables that every program gets. Neither may be logged.
	Accounts, Custom map[string]string

	ValidatorRetries int    // attempts after a task's own validator has failed
	SkillCallback    bool   // USE_SKILL lines of agents are executed
	CodexLoginOnly   bool   // never lend a Codex login to another program; none does
	RolePolicy       string // JSON: the roles that each ability needs; "": the default
	ConnectorPolicy  string // JSON, for connectors only
}

// Models are the names of a program's models. If empty, the program chooses.
type Models struct {
	Powerful string `json:"powerful"`
	Fast     string `json:"fast"`
}

// Strategy returns the name of the strategy that chooses a program.
func (v SettingValues) Strategy() string {
	if v.Ranked {
		return "ranked"
	}
	return "fixed"
}

// Model returns the model that a program is started with if asked is requested. The words
// powerful and fast mean the configured model, else the program's known one. If asked is
// empty, the result is the configured powerful model, or empty for the program's default.
func (v SettingValues) Model(name programs.Name, asked string) string {
	program := programs.Of(name)
	own := v.Models[name]
	switch asked {
	case "":
		return own.Powerful
	case "powerful":
		return either(own.Powerful, program.Powerful)
	case "fast":
		return either(own.Fast, program.Fast, own.Powerful)
	}
	return asked
}

func either(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}

// openCodeKey is the variable of the service that OpenCode is given.
const openCodeKey = "PARALLAX_OPENCODE_API_KEY"

// Login returns the variables that programs may log in with: env, the server's environment,
// and the accounts, without those that Credentials excludes.
func (v SettingValues) Login(env map[string]string) map[string]string {
	out := maps.Clone(v.Accounts)
	if out == nil {
		out = make(map[string]string)
	}
	maps.Copy(out, env)
	if !v.OpenCodeKey.Empty() {
		out[openCodeKey] = v.OpenCodeKey.Reveal()
	}
	for _, n := range programs.All() {
		for _, k := range append(n.Keys, programs.Key{Name: "ANTHROPIC_AUTH_TOKEN", Method: "api_key"}) {
			subscription := k.Method == "subscription" || strings.HasPrefix(out[k.Name], "sk-ant-oat")
			if v.Credentials == "cloud" || v.Credentials == "subscription" && !subscription || v.Credentials == "api_keys" && subscription {
				delete(out, k.Name)
			}
		}
	}
	return out
}

// SettingsChange sets settings while the server runs. Absent members stay unchanged; the
// empty text restores the configuration's value.
type SettingsChange struct {
	DefaultType *string                `json:"defaultAgentType,omitempty"` // "none" clears it
	Strategy    *string                `json:"agentSelectionStrategy,omitempty"`
	Preset      *string                `json:"defaultApprovalPreset,omitempty"`
	Credentials *string                `json:"llmProvider,omitempty"`
	Models      map[string]ModelChange `json:"models,omitempty"`
}

// ModelChange is the part of a SettingsChange for one program.
type ModelChange struct {
	Powerful *string `json:"powerful,omitempty"`
	Fast     *string `json:"fast,omitempty"`
}

// Settings returns how task agents run: the configuration, overridden by what was set while
// the server runs. Callers read it at each use, so that a change applies to the next task
// without a restart. It is safe for concurrent use.
type Settings struct {
	store  Store
	base   func() (SettingValues, error)
	logger *slog.Logger

	mu    sync.Mutex
	last  SettingValues  // returned by base
	fault string         // of base's last call
	set   SettingsChange // what is stored, without empty members
}

// OpenSettings reads the stored settings. base returns the current configuration. If it fails
// later, its last result stays in use and the error is logged.
func OpenSettings(ctx context.Context, store Store, base func() (SettingValues, error), logger *slog.Logger) (*Settings, error) {
	s := &Settings{store: store, base: base, logger: logger}
	var err error
	if s.last, err = base(); err != nil {
		return nil, err
	}
	data, err := store.Load(ctx)
	if err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "task.settings", "the settings of task agents cannot be read", err)
	}
	if len(data) == 0 {
		return s, nil
	}
	if err := jsonx.Unmarshal(data, &s.set); err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "task.settings", "what was set for task agents is damaged", err).
			With("settings_damaged", "remove the row settings of the table task_state")
	}
	return s, nil
}

// Now returns the current settings.
func (s *Settings) Now() SettingValues {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.base()
	switch {
	case err != nil && err.Error() != s.fault:
		s.fault = err.Error()
		s.logger.Warn("the configuration of task agents cannot be read, so what it said before holds", "err", err)
	case err == nil:
		s.last, s.fault = v, ""
	}
	return s.set.applyTo(s.last)
}

// applyTo returns a copy of v in which the members that are set in c replace those of v, for Models
// each name by itself. c must have been checked by with.
func (c *SettingsChange) applyTo(v SettingValues) SettingValues {
	if c.DefaultType != nil {
		v.DefaultType, _ = programs.Normalise(*c.DefaultType) // "none" names no program
	}
	if c.Strategy != nil {
		v.Ranked = *c.Strategy == "ranked"
	}
	if c.Preset != nil {
		v.Preset = programs.Preset(*c.Preset)
	}
	if c.Credentials != nil {
		v.Credentials = *c.Credentials
	}
	models := maps.Clone(v.Models)
	if models == nil {
		models = make(map[programs.Name]Models)
	}
	for name, m := range c.Models {
		own := models[programs.Name(name)]
		if m.Powerful != nil {
			own.Powerful = *m.Powerful
		}
		if m.Fast != nil {
			own.Fast = *m.Fast
		}
		models[programs.Name(name)] = own
	}
	v.Models = models
	return v
}

// Change applies and stores c. If a value is not valid, it returns invalid_input with reason
// bad_setting and changes nothing.
func (s *Settings) Change(ctx context.Context, c SettingsChange) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := s.set.with(c)
	if err != nil {
		return err
	}
	data, err := jsonx.Marshal(next)
	if err == nil {
		err = s.store.Save(ctx, data)
	}
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "task.settings", "the settings of task agents cannot be stored", err)
	}
	s.set = next
	return nil
}

// with returns c overridden by more.
func (c *SettingsChange) with(more SettingsChange) (out SettingsChange, err error) {
	word := func(name string, was, now *string, good func(string) (string, bool), hint string) *string {
		if now == nil || *now == "" {
			if now != nil {
				return nil
			}
			return was
		}
		text, ok := good(strings.TrimSpace(*now))
		if !ok && err == nil {
			err = capability.Errorf(capability.CodeInvalidInput, "task.settings", "%s cannot be %.60q", name, *now).With("bad_setting", hint)
		}
		return &text
	}
	one := func(words ...string) func(string) (string, bool) {
		return func(s string) (string, bool) {
			for _, w := range words {
				if strings.EqualFold(s, w) {
					return w, true
				}
			}
			return "", false
		}
	}
	model := func(s string) (string, bool) { return s, config.ValidModel(s) }
	out.DefaultType = word("defaultAgentType", c.DefaultType, more.DefaultType, program, "use "+programs.Choices("none"))
	out.Strategy = word("agentSelectionStrategy", c.Strategy, more.Strategy, func(s string) (string, bool) {
		if strings.EqualFold(s, "heuristic") {
			s = "ranked"
		}
		return one("fixed", "ranked")(s)
	}, "use fixed or ranked")
	out.Preset = word("defaultApprovalPreset", c.Preset, more.Preset, one("readonly", "standard", "permissive", "autonomous"),
		"use readonly, standard, permissive or autonomous")
	out.Credentials = word("llmProvider", c.Credentials, more.Credentials, one("subscription", "api_keys", "cloud"),
		"use subscription, api_keys or cloud")
	out.Models = maps.Clone(c.Models)
	for name, m := range more.Models {
		canonical, ok := program(name)
		if !ok || canonical == "none" || canonical == string(programs.Shell) {
			return out, capability.Errorf(capability.CodeInvalidInput, "task.settings", "models: %.60q is not a program that has models",
				name).With("bad_setting", "")
		}
		if out.Models == nil {
			out.Models = make(map[string]ModelChange)
		}
		own := out.Models[canonical]
		own.Powerful = word("a model", own.Powerful, m.Powerful, model, "a model is one word that does not begin with a hyphen")
		own.Fast = word("a model", own.Fast, m.Fast, model, "a model is one word that does not begin with a hyphen")
		out.Models[canonical] = own
	}
	return out, err
}

func program(text string) (string, bool) {
	if strings.EqualFold(text, "none") {
		return "none", true
	}
	name, ok := programs.Normalise(text)
	return string(name), ok && name != programs.Hermes
}
