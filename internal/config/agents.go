package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Agents is the section about task agents. Keys marked runtime can be set while the server
// runs, with PATCH /api/coding-agents/settings.
type Agents struct {
	MaxSessions  int      `koanf:"max_sessions" doc:"Programs that run at once."`
	AutoResume   bool     `koanf:"auto_resume" doc:"Resume interrupted work after a restart. Otherwise a user resumes it."`
	Repositories []string `koanf:"repositories" doc:"Repositories for agents besides those of github.com, gitlab.com and bitbucket.org: local folders, or prefixes of URLs. The hooks of a named folder are trusted."`
	Forges       []string `koanf:"forges" doc:"Further hosts of repositories, HOST or HOST:PORT, reached by https and ssh. HOST=gitlab, HOST=forgejo (also Gitea) or HOST=github opens pull requests there, with the token in the secret forge.HOST (forge.HOST_PORT)."`
	Record       bool     `koanf:"record" doc:"Record output and input of programs in agents/recordings of the home: 16 MiB of each terminal session, the last 100."`
	Workdirs     []string `koanf:"workdirs" doc:"Absolute paths of folders in which agents may work, besides folders made for them."`
	AnyWorkdir   bool     `koanf:"any_workdir" doc:"Let agents work in every folder."`

	DefaultType string     `koanf:"default_type" runtime:"true" doc:"Program of tasks that name none: claude, codex, gemini, qwen, aider, pi, opencode or shell. Empty: the best fit."`
	Strategy    string     `koanf:"strategy" runtime:"true" doc:"Choice of a program for tasks that name none. fixed: default_type while it is usable; ranked: the best fit, with an advantage for default_type."`
	Preset      string     `koanf:"preset" runtime:"true" doc:"Default preset: readonly, standard, permissive or autonomous. Empty: autonomous in folders made for agents, else permissive."`
	Mode        string     `koanf:"mode" doc:"How programs start: structured (their own protocol, if they have one and a login) or terminal."`
	Credentials string     `koanf:"credentials" runtime:"true" doc:"Which of the server's credentials programs get: subscription (no API keys), api_keys (no subscription token) or cloud (only opencode_key_secret, for opencode_url). Empty: all of their own."`
	Models      ModelNames `koanf:"models"`

	AiderProvider     string `koanf:"aider_provider" doc:"Only provider whose key Aider gets: anthropic, openai or google. Empty: all."`
	OpenCodeURL       string `koanf:"opencode_url" doc:"OpenAI-compatible service for OpenCode, with /v1; its model is models.opencode.powerful. Empty: OpenCode's own configuration."`
	OpenCodeLocal     bool   `koanf:"opencode_local" doc:"Let OpenCode use Ollama on this machine if opencode_url is empty."`
	OpenCodeKeySecret string `koanf:"opencode_key_secret" doc:"Key for opencode_url. Empty: PARALLAX_OPENCODE_API_KEY."`
	Subscription      string `koanf:"subscription" doc:"Subscription to use up first: anthropic-subscription, openai-codex or openai-subscription."`
	CodexLoginOnly    bool   `koanf:"codex_login_only" doc:"Always true, whatever is set: a Codex login is never lent to another program."`

	CodingDirectory  string        `koanf:"coding_directory" doc:"Absolute path for agents' folders, which stay and may be named for work. Empty: workspaces/scratch in the home."`
	ScratchRetention string        `koanf:"scratch_retention" doc:"A made folder after its session: ephemeral (removed), pending_decision (removed after scratch_ttl unless kept) or persistent. Empty: persistent with coding_directory, else pending_decision."`
	ScratchTTL       time.Duration `koanf:"scratch_ttl" doc:"How long a made folder waits for a decision."`
	WorkspaceBase    string        `koanf:"workspace_base" doc:"Absolute path for clones. Empty: workspaces/repositories in the home."`
	WorkspaceTTL     time.Duration `koanf:"workspace_ttl" doc:"Remove clones unused for this long, unless they hold work that exists only there."`
	BranchPrefix     string        `koanf:"branch_prefix" doc:"Prefix of agents' branches."`
	GitHubClientID   string        `koanf:"github_client_id" doc:"Client id of a GitHub OAuth application with device flow, for POST /api/coding-agents/auth/github. Empty: only GITHUB_TOKEN."`

	IdleTimeout      time.Duration `koanf:"idle_timeout" doc:"Stop sessions that wait without an event for this long; 0: never."`
	Cols             int           `koanf:"cols" doc:"Default terminal width in columns, 20 to 500."`
	Rows             int           `koanf:"rows" doc:"Default terminal height in rows, 5 to 200."`
	CustomKeys       []string      `koanf:"custom_credential_keys" doc:"Further variables of the server for every program."`
	ValidatorRetries int           `koanf:"validator_retries" doc:"How often work that a validator rejects is sent back."`
	SkillCallback    bool          `koanf:"skill_callback" doc:"Let agents call skills by a line of their answers (USE_SKILL)."`

	Parent    string    `koanf:"parent" doc:"Action or member of the catalog (fs.list, module:function:name) that answers for the agents' user, called with op decide, context or memory and the rights of the task's creator. Empty: the model decides, and agents read their task's conversation."`
	Character Character `koanf:"character"`

	RolePolicy      string `koanf:"role_policy" doc:"JSON: who may begin tasks and talk to agents: {default, connectors: {name: {create, interact}}} of GUEST, USER, ADMIN and OWNER; one role means both. Empty: all, but ADMIN on discord."`
	ConnectorPolicy string `koanf:"connector_role_policy" doc:"JSON: further connectors of role_policy."`
}

// Character describes, for the prompts of task agents, the agent that gives them tasks.
type Character struct {
	Name   string   `koanf:"name" doc:"Name of the agent that delegates tasks."`
	Bio    string   `koanf:"bio" doc:"Description of that agent, in a few sentences."`
	Topics []string `koanf:"topics" doc:"Its topics."`
}

// ModelNames holds the models of each program.
type ModelNames struct {
	Claude   ModelPair `koanf:"claude"`
	Codex    ModelPair `koanf:"codex"`
	Gemini   ModelPair `koanf:"gemini"`
	Aider    ModelPair `koanf:"aider"`
	OpenCode ModelPair `koanf:"opencode"`
}

// ModelPair holds the models of one program: for hard tasks and for quick ones.
type ModelPair struct {
	Powerful string `koanf:"powerful" runtime:"true" doc:"Default model. Empty: the program's choice."`
	Fast     string `koanf:"fast" runtime:"true" doc:"Model for the word fast. Empty: the usual one."`
}

func defaultAgents() Agents {
	return Agents{
		MaxSessions: 8, Strategy: "fixed", Mode: "structured", ScratchTTL: 24 * time.Hour, WorkspaceTTL: 24 * time.Hour, BranchPrefix: "eliza",
		Cols: 120, Rows: 40, ValidatorRetries: 3, SkillCallback: true, CodexLoginOnly: true,
	}
}

var (
	variableForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	prefixForm   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$`)
)

// check returns an error for the first invalid setting, with its key.
func (a *Agents) check(programs []Program) error {
	if a.MaxSessions < 1 || a.MaxSessions > 200 {
		return fmt.Errorf("agents.max_sessions: %d is not from 1 to 200", a.MaxSessions)
	}
	for _, dir := range a.Workdirs {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("agents.workdirs: %q is not an absolute path", dir)
		}
	}
	if a.DefaultType != "" {
		if _, ok := programNamed(programs, a.DefaultType); !ok {
			return fmt.Errorf("agents.default_type: %q must be one of %s", a.DefaultType, programNames(programs))
		}
	}
	for _, m := range []ModelPair{a.Models.Claude, a.Models.Codex, a.Models.Gemini, a.Models.Aider, a.Models.OpenCode} {
		for _, name := range []string{m.Powerful, m.Fast} {
			if _, err := model(name); err != nil {
				return fmt.Errorf("agents.models: %w", err)
			}
		}
	}
	if err := cmp.Or(
		oneOf("agents.strategy", a.Strategy, "fixed", "ranked"),
		oneOf("agents.mode", a.Mode, "structured", "terminal"),
		oneOf("agents.preset", a.Preset, "", "readonly", "standard", "permissive", "autonomous"),
		oneOf("agents.credentials", a.Credentials, "", "subscription", "api_keys", "cloud"),
		oneOf("agents.aider_provider", a.AiderProvider, "", "anthropic", "openai", "google"),
		oneOf("agents.subscription", a.Subscription, "", "anthropic-subscription", "openai-codex", "openai-subscription"),
		oneOf("agents.scratch_retention", a.ScratchRetention, "", "ephemeral", "pending_decision", "persistent"),
		absolute("agents.coding_directory", a.CodingDirectory), absolute("agents.workspace_base", a.WorkspaceBase),
		within("agents.cols", a.Cols, 20, 500), within("agents.rows", a.Rows, 5, 200),
		within("agents.validator_retries", a.ValidatorRetries, 0, maxRetries),
		positive("agents.scratch_ttl", a.ScratchTTL), positive("agents.workspace_ttl", a.WorkspaceTTL),
	); err != nil {
		return err
	}
	switch {
	case a.IdleTimeout < 0:
		return errors.New("agents.idle_timeout: must not be negative")
	case !prefixForm.MatchString(a.BranchPrefix):
		return fmt.Errorf("agents.branch_prefix: %q is not a word of up to 40 letters, digits, dots, underscores and hyphens", a.BranchPrefix)
	case len(a.CustomKeys) > maxCustomKeys:
		return fmt.Errorf("agents.custom_credential_keys: at most %d variables can be forwarded", maxCustomKeys)
	}
	if i := slices.IndexFunc(a.CustomKeys, func(name string) bool { return !variableForm.MatchString(name) }); i >= 0 {
		return fmt.Errorf("agents.custom_credential_keys: %q is not the name of a variable", a.CustomKeys[i])
	}
	if a.Parent != "" {
		if _, err := capability.ParseTarget(a.Parent); err != nil {
			return fmt.Errorf("agents.parent: %w", err)
		}
	}
	if a.OpenCodeURL != "" {
		if _, err := serviceURL(a.OpenCodeURL); err != nil {
			return fmt.Errorf("agents.opencode_url: %w", err)
		}
	}
	for key, text := range map[string]string{"agents.role_policy": a.RolePolicy, "agents.connector_role_policy": a.ConnectorPolicy} {
		if err := rolePolicy(text); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// rolePolicy checks only the form of a policy: a role or a JSON object. The code that
// enforces policies interprets it.
func rolePolicy(text string) error {
	text = strings.TrimSpace(text)
	if text == "" || text[0] != '{' {
		return oneOf("a role", strings.ToUpper(strings.Trim(text, `"`)), "", "GUEST", "USER", "ADMIN", "OWNER")
	}
	var doc map[string]json.RawMessage
	if len(text) > maxPolicy || jsonx.Unmarshal([]byte(text), &doc) != nil {
		return fmt.Errorf("it is not a JSON object of up to %d bytes", maxPolicy)
	}
	return nil
}

func absolute(key, path string) error {
	if path != "" && !filepath.IsAbs(path) {
		return fmt.Errorf("%s: %q is not an absolute path", key, path)
	}
	return nil
}

func within(key string, n, least, most int) error {
	if n < least || n > most {
		return fmt.Errorf("%s: %d is not from %d to %d", key, n, least, most)
	}
	return nil
}

func positive[T ~int | ~int64](key string, v T) error {
	if v <= 0 {
		return fmt.Errorf("%s: must be more than 0", key)
	}
	return nil
}
