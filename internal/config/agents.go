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
	MaxSessions  int      `koanf:"max_sessions" doc:"How many agents' programs may run at once."`
	AutoResume   bool     `koanf:"auto_resume" doc:"Go on by itself with what agents were doing when the server ended. Otherwise a user resumes it."`
	Repositories []string `koanf:"repositories" doc:"Repositories that agents may be given beside those of github.com, gitlab.com and bitbucket.org: folders of this machine, or the beginnings of URLs. Naming a folder means trusting its hooks. As a variable: comma-separated."`
	Forges       []string `koanf:"forges" doc:"Further hosts of repositories, HOST or HOST:PORT, reached by https and ssh. With its kind, HOST=gitlab, HOST=forgejo (also for Gitea) or HOST=github, pull requests are opened there, with the token in the secret forge.HOST (or forge.HOST_PORT). As a variable: comma-separated."`
	Record       bool     `koanf:"record" doc:"Record what agents' programs print and are sent, below agents/recordings of the home: 16 MiB of each session in a terminal at most, the last 100."`
	Workdirs     []string `koanf:"workdirs" doc:"Absolute paths of folders that agents may be told to work in, with all below them. As a variable: comma-separated. Folders that are made for agents are allowed anyway."`
	AnyWorkdir   bool     `koanf:"any_workdir" doc:"Let agents be told to work in every folder of this machine."`

	DefaultType string     `koanf:"default_type" runtime:"true" doc:"The program for tasks that name none: claude, codex, gemini, qwen, aider, pi, opencode or shell. Empty: the one that fits best."`
	Strategy    string     `koanf:"strategy" runtime:"true" doc:"How a program is chosen for tasks that name none. fixed: default_type while it is usable; ranked: the program that fits the task best, default_type with an advantage."`
	Preset      string     `koanf:"preset" runtime:"true" doc:"What agents may do by default: readonly, standard, permissive or autonomous. Empty: autonomous in folders that were made for them, else permissive."`
	Mode        string     `koanf:"mode" doc:"How programs are started by default: structured (over their own protocol, where they have one and are logged in) or terminal."`
	Credentials string     `koanf:"credentials" runtime:"true" doc:"Which of the server's credentials programs get: subscription (no API keys, so that they use their own logins), api_keys (no token of a subscription) or cloud (none but opencode_key_secret, for opencode_url). Empty: all that a program knows."`
	Models      ModelNames `koanf:"models"`

	AiderProvider     string `koanf:"aider_provider" doc:"Whose key Aider gets, and no other: anthropic, openai or google. Empty: all that it knows."`
	OpenCodeURL       string `koanf:"opencode_url" doc:"Address of an OpenAI-compatible service for OpenCode, with /v1; its model is models.opencode.powerful. Empty: the providers of OpenCode's own configuration."`
	OpenCodeLocal     bool   `koanf:"opencode_local" doc:"Give OpenCode the Ollama of this machine, where opencode_url is empty."`
	OpenCodeKeySecret string `koanf:"opencode_key_secret" doc:"Name of the stored secret that holds the key of opencode_url (junctor secrets set NAME). Empty: PARALLAX_OPENCODE_API_KEY, where it is set."`
	Subscription      string `koanf:"subscription" doc:"Whose subscription is there to be used up first: anthropic-subscription, openai-codex or openai-subscription. Empty: none."`
	CodexLoginOnly    bool   `koanf:"codex_login_only" doc:"Never lend a Codex login to another program. It is true whatever is set: logins are never lent."`

	CodingDirectory  string        `koanf:"coding_directory" doc:"Absolute path where folders for agents are made; they stay there, and agents may be told to work in them. Empty: workspaces/scratch in the home."`
	ScratchRetention string        `koanf:"scratch_retention" doc:"What becomes of a made folder when its session has ended: ephemeral (it goes), pending_decision (it goes after scratch_ttl unless a user keeps it) or persistent. Empty: persistent with coding_directory, else pending_decision."`
	ScratchTTL       time.Duration `koanf:"scratch_ttl" doc:"How long a made folder waits for a decision."`
	WorkspaceBase    string        `koanf:"workspace_base" doc:"Absolute path where repositories are cloned. Empty: workspaces/repositories in the home."`
	WorkspaceTTL     time.Duration `koanf:"workspace_ttl" doc:"A clone that was not used for so long is removed, unless it holds work that is nowhere else."`
	BranchPrefix     string        `koanf:"branch_prefix" doc:"What the names of agents' branches begin with."`
	GitHubClientID   string        `koanf:"github_client_id" doc:"Client id of a GitHub OAuth application that allows the device flow, by which people log in for agents: POST /api/coding-agents/auth/github. Empty: only GITHUB_TOKEN is used."`

	IdleTimeout      time.Duration `koanf:"idle_timeout" doc:"A session that waits, and that nothing happened to for so long, is stopped. 0: never."`
	Cols             int           `koanf:"cols" doc:"Default width of a terminal in columns, 20 to 500."`
	Rows             int           `koanf:"rows" doc:"Default height of a terminal in rows, 5 to 200."`
	CustomKeys       []string      `koanf:"custom_credential_keys" doc:"Names of further variables of the server that every program gets. As a variable: comma-separated."`
	ValidatorRetries int           `koanf:"validator_retries" doc:"How often an agent is sent back when a validator of its task says no."`
	SkillCallback    bool          `koanf:"skill_callback" doc:"Let agents call skills by a line of their answers (USE_SKILL)."`

	Parent    string    `koanf:"parent" doc:"An action or member of the catalog (fs.list, module:function:name) that answers for the user of the agents, with the rights of the creator of the task; it is called with op decide, context or memory. Empty: the model decides, and agents read the conversation of their task."`
	Character Character `koanf:"character"`

	RolePolicy      string `koanf:"role_policy" doc:"JSON: who may begin tasks and talk to agents, as {default, connectors: {name: {create, interact}}} of GUEST, USER, ADMIN and OWNER; one role in place of an object means both. Empty: everybody, but ADMIN on discord."`
	ConnectorPolicy string `koanf:"connector_role_policy" doc:"JSON: the connectors of role_policy alone, which it adds to."`
}

// Character describes, for the prompts of task agents, the agent that gives them tasks.
type Character struct {
	Name   string   `koanf:"name" doc:"Name of the agent that gives tasks to others. Empty: they are given no name."`
	Bio    string   `koanf:"bio" doc:"Who that is, in a few sentences."`
	Topics []string `koanf:"topics" doc:"What it is about. As a variable: comma-separated."`
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
	Powerful string `koanf:"powerful" runtime:"true" doc:"Name of the model that the program is started with if the task names none. Empty: the program's own choice."`
	Fast     string `koanf:"fast" runtime:"true" doc:"Name of the model that is meant by the word fast. Empty: the usual one."`
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
