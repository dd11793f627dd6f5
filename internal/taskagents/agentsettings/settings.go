// Package agentsettings answers how task agents are to be run now: the configuration, over it
// what was set while the server runs (decision R3). Whoever starts, chooses or judges agents
// asks at each use and keeps nothing, so that a change counts for the next task without a
// restart.
package agentsettings

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/internal/config"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/secret"
)

// Values are the settings at one moment. They belong to who asked; the maps are not to be
// changed.
type Values struct {
	DefaultType programs.Name   // "": nobody chose one
	Ranked      bool            // the strategy is ranked; else fixed
	Preset      programs.Preset // "": autonomous in folders that were made, else permissive
	Credentials string          // subscription, api_keys, cloud; "": all
	Models      map[programs.Name]Models

	AiderProvider string
	OpenCodeURL   string
	OpenCodeKey   secret.Value
	Subscription  string // a hint for the choice
	Cols, Rows    int    // of a terminal
	// Accounts are variables that programs log in with, beside those of our environment;
	// Custom are variables that every program gets. Neither is for logs.
	Accounts, Custom map[string]string

	ValidatorRetries int    // of a task's own validator (14.3)
	SkillCallback    bool   // USE_SKILL lines are carried out (12.3)
	CodexLoginOnly   bool   // never lend a Codex login to another program, which nobody does
	RolePolicy       string // JSON (7.12), "": the default
	ConnectorPolicy  string // JSON, connectors alone
}

// Models are names of a program's models; "" is its own choice.
type Models struct {
	Powerful string `json:"powerful"`
	Fast     string `json:"fast"`
}

// Strategy is the word for how a program is chosen.
func (v Values) Strategy() string {
	if v.Ranked {
		return "ranked"
	}
	return "fixed"
}

// Model is the model that a program is started with where asked was asked for. The words
// powerful and fast mean the configured model, else the one that is known to be; where
// nothing was asked for it is the configured powerful one, else the program's own.
func (v Values) Model(name programs.Name, asked string) string {
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

// Login is what programs may log in with: env, which is the server's own environment, and
// the accounts, as far as Credentials lets them have it.
func (v Values) Login(env map[string]string) map[string]string {
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

// Change sets settings while the server runs. Absent members stay as they are; the empty
// text goes back to what the configuration says.
type Change struct {
	DefaultType *string                `json:"defaultAgentType,omitempty"` // none: nobody's
	Strategy    *string                `json:"agentSelectionStrategy,omitempty"`
	Preset      *string                `json:"defaultApprovalPreset,omitempty"`
	Credentials *string                `json:"llmProvider,omitempty"`
	Models      map[string]ModelChange `json:"models,omitempty"`
}

// ModelChange is the part of a Change that is one program's.
type ModelChange struct {
	Powerful *string `json:"powerful,omitempty"`
	Fast     *string `json:"fast,omitempty"`
}

// Settings answers. It is safe for concurrent use.
type Settings struct {
	store  choice.Store
	base   func() (Values, error)
	logger *slog.Logger

	mu    sync.Mutex
	last  Values // that base gave
	fault string // of base, the last time
	set   Change // what is stored: without absent and without empty members
}

// Open reads what was set before. base is the configuration now; where it fails later, what
// it said last holds, and the log says why.
func Open(ctx context.Context, store choice.Store, base func() (Values, error), logger *slog.Logger) (*Settings, error) {
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

// Now is how task agents are to be run now.
func (s *Settings) Now() Values {
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
	return s.set.over(s.last)
}

// over is v with what was set.
func (c *Change) over(v Values) Values {
	if c.DefaultType != nil {
		v.DefaultType, _ = programs.Normalise(*c.DefaultType) // "none" is nobody's name
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

// Change sets what c says and stores it. invalid_input, reason bad_setting, where a value
// cannot be; then nothing has changed.
func (s *Settings) Change(ctx context.Context, c Change) error {
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

// with is c and then more.
func (c *Change) with(more Change) (out Change, err error) {
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
	out.Preset = word("defaultApprovalPreset", c.Preset, more.Preset, one("readonly", "standard", "permissive", "autonomous"), "use readonly, standard, permissive or autonomous")
	out.Credentials = word("llmProvider", c.Credentials, more.Credentials, one("subscription", "api_keys", "cloud"), "use subscription, api_keys or cloud")
	out.Models = maps.Clone(c.Models)
	for name, m := range more.Models {
		canonical, ok := program(name)
		if !ok || canonical == "none" || canonical == string(programs.Shell) {
			return out, capability.Errorf(capability.CodeInvalidInput, "task.settings", "models: %.60q is no program that has models", name).With("bad_setting", "")
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
