package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/config/elizafile"
	"github.com/junctor-run/junctor/secret"
)

// Foreign describes the settings of task agents from an elizaOS agent's configuration file.
// They override only the defaults.
type Foreign struct {
	Path string // of the file; "" if the environment names none
	// Said holds the keys of section agents that a higher layer sets, which the file
	// therefore does not change.
	Said []string
	// Secrets holds the file's values that are not configuration keys, by variable name:
	// the keys of programs' accounts and the variables that custom_credential_keys names.
	// Given holds those from the environment.
	Secrets, Given map[string]secret.Value
}

// Secret returns the secret for a variable of this name, empty if none exists. The
// environment takes precedence over the file.
func (f *Foreign) Secret(name string) secret.Value {
	if v, ok := f.Given[name]; ok {
		return v
	}
	return f.Secrets[name]
}

// foreignSays holds what was read from variables of other products: values of configuration
// keys, and secrets by variable name.
type foreignSays struct {
	keys    map[string]any
	secrets map[string]secret.Value
}

// hide records a secret; it ignores an empty value.
func (f *foreignSays) hide(name, value string) {
	if value != "" {
		if f.secrets == nil {
			f.secrets = make(map[string]secret.Value)
		}
		f.secrets[name] = secret.New(value)
	}
}

// foreignKey is a variable of another product that sets configuration keys.
type foreignKey struct {
	name, doc string
	read      func(text string, f *foreignSays) error
}

// foreignKeys returns the environment variables of other products that set configuration
// keys.
func foreignKeys(programs []Program) []foreignKey {
	list := []foreignKey{
		{"PARALLAX_DEFAULT_AGENT_TYPE", "agents.default_type; none clears it", as("agents.default_type", agentType(programs))},
		{
			"PARALLAX_AGENT_SELECTION_STRATEGY", "agents.strategy; heuristic is ranked",
			as("agents.strategy", choice(map[string]string{"heuristic": "ranked"}, "fixed", "ranked")),
		},
		{"PARALLAX_DEFAULT_APPROVAL_PRESET", "agents.preset", as("agents.preset",
			choice(nil, "readonly", "standard", "permissive", "autonomous"))},
		{"PARALLAX_LLM_PROVIDER", "agents.credentials", as("agents.credentials", choice(nil, "subscription", "api_keys", "cloud"))},
		{"PARALLAX_AIDER_PROVIDER", "agents.aider_provider", as("agents.aider_provider", choice(nil, "anthropic", "openai", "google"))},
		{"PARALLAX_OPENCODE_BASE_URL", "agents.opencode_url", as("agents.opencode_url", serviceURL)},
		{"PARALLAX_OPENCODE_LOCAL", "agents.opencode_local", as("agents.opencode_local", truth)},
		{
			"PARALLAX_OPENCODE_API_KEY", "The key of agents.opencode_url, where agents.opencode_key_secret names none.",
			hidden("PARALLAX_OPENCODE_API_KEY"),
		},
		{"PARALLAX_CODING_DIRECTORY", "agents.coding_directory", as("agents.coding_directory", folder)},
		{"CODING_AGENT_ALLOWED_WORKDIRS", "agents.workdirs", as("agents.workdirs", folders)},
		{"CODING_AGENT_SANDBOX", "agents.any_workdir, by off, false or 0", as("agents.any_workdir", untruth)},
		{
			"PARALLAX_SCRATCH_RETENTION", "agents.scratch_retention; keep is persistent",
			as("agents.scratch_retention", choice(map[string]string{"keep": "persistent"}, "ephemeral", "pending_decision", "persistent")),
		},
		{"PARALLAX_SCRATCH_DECISION_TTL_MS", "agents.scratch_ttl, in milliseconds", as("agents.scratch_ttl", millis(1))},
		{"ELIZA_APP_VERIFICATION_MAX_RETRIES", "agents.validator_retries", as("agents.validator_retries", number(0, maxRetries))},
		{"ELIZA_ENABLE_CHILD_SKILL_CALLBACK", "agents.skill_callback, false by 0, false, no or off", as("agents.skill_callback", truth)},
		{"TASK_AGENT_ROLE_POLICY", "agents.role_policy", as("agents.role_policy", policyText)},
		{"TASK_AGENT_CONNECTOR_ROLE_POLICY", "agents.connector_role_policy", as("agents.connector_role_policy", policyText)},
		{"PARALLAX_DEBUG_CAPTURE", "agents.record", as("agents.record", truth)},
		{"PTY_SERVICE_CONFIG", "JSON: maxConcurrentSessions or maxSessions is agents.max_sessions, idleTimeoutMs agents.idle_timeout, defaultRows agents.rows, defaultCols agents.cols, debug log.level.", terminals},
		{"CODING_WORKSPACE_CONFIG", "JSON: baseDir is agents.workspace_base, branchPrefix agents.branch_prefix, workspaceTtlMs agents.workspace_ttl, credentials.github.token GITHUB_TOKEN, debug log.level.", workspaces},
		{"CUSTOM_CREDENTIAL_KEYS", "agents.custom_credential_keys", as("agents.custom_credential_keys", names)},
		{"GITHUB_OAUTH_CLIENT_ID", "agents.github_client_id", as("agents.github_client_id", text)},
	}
	for _, program := range []string{"claude", "codex", "gemini", "aider", "opencode"} {
		for _, pace := range []string{"powerful", "fast"} {
			key := "agents.models." + program + "." + pace
			list = append(list, foreignKey{strings.ToUpper("PARALLAX_" + program + "_MODEL_" + pace), key, as(key, model)})
		}
	}
	return list
}

// aliases reads the environment variables of other products that set configuration keys.
// JUNCTOR_* variables take precedence over them. Blank variables count as unset.
func aliases(environ []string, programs []Program) (*foreignSays, error) {
	vars := make(map[string]string)
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
	}
	out, err := readForeign("environment: ", programs, func(name string) (string, error) { return vars[name], nil })
	if mode := strings.TrimSpace(vars["AGENTOS_DEPLOYMENT_MODE"]); err == nil && mode != "" {
		out.keys["deployment_mode"] = mode
	}
	return out, err
}

// readForeign reads all foreignKeys with get. Its errors begin with place and the name of the
// variable.
func readForeign(place string, programs []Program, get func(name string) (string, error)) (*foreignSays, error) {
	out := &foreignSays{keys: make(map[string]any)}
	for _, k := range foreignKeys(programs) {
		value, err := get(k.name)
		if value = strings.TrimSpace(value); err == nil && value != "" {
			err = k.read(value, out)
		}
		if err != nil {
			return nil, fmt.Errorf("%s%s: %w", place, k.name, err)
		}
	}
	return out, nil
}

// foreignFile reads the configuration of an elizaOS agent and returns it with its path:
// ELIZA_CONFIG_PATH, else <namespace>.json in ELIZA_STATE_DIR or in the hidden directory of
// ELIZA_NAMESPACE in HOME. If none of the three is set, it reads no file and the path is "".
func foreignFile(environ []string, programs []Program) (*foreignSays, string, error) {
	vars := make(map[string]string)
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = strings.TrimSpace(value)
	}
	path, dir, namespace := vars["ELIZA_CONFIG_PATH"], vars["ELIZA_STATE_DIR"], vars["ELIZA_NAMESPACE"]
	if path == "" && dir == "" && namespace == "" {
		said, err := readForeign("", programs, func(string) (string, error) { return "", nil })
		return said, "", err
	}
	if path == "" {
		namespace = cmp.Or(namespace, "eliza")
		if namespace != filepath.Base(namespace) || namespace == ".." {
			return nil, "", errors.New("environment: ELIZA_NAMESPACE is not the name of a folder")
		}
		if dir == "" {
			if vars["HOME"] == "" {
				return nil, "", errors.New("environment: ELIZA_NAMESPACE names a folder of the user, and HOME is not set")
			}
			dir = filepath.Join(vars["HOME"], "."+namespace)
		}
		path = filepath.Join(dir, namespace+".json")
	}
	said, err := readForeignFile(path, programs)
	return said, path, err
}

// readForeignFile reads one configuration file: the foreignKeys in env and env.vars, the
// settings of subscriptions, and the secrets of programs' accounts. A missing file is empty.
func readForeignFile(path string, programs []Program) (*foreignSays, error) {
	doc, err := elizafile.ReadConfig(path)
	if err != nil {
		return nil, err
	}
	get := func(name string) (string, error) {
		for _, at := range [][]string{{"env", name}, {"env", "vars", name}} {
			if raw, ok := doc.Lookup(at...); ok {
				return plain(raw)
			}
		}
		return "", nil
	}
	said, err := readForeign(path+": env.", programs, get)
	if err != nil {
		return nil, err
	}
	for _, k := range []struct {
		path []string
		key  string
		read func(string) (any, error)
	}{
		{
			[]string{"agents", "defaults", "subscriptionProvider"},
			"agents.subscription",
			choice(nil, "anthropic-subscription", "openai-codex", "openai-subscription"),
		},
		{[]string{"agents", "defaults", "codexSubscriptionRestrictedToCodexFramework"}, "agents.codex_login_only", truth},
		{[]string{"codexSubscriptionRestrictedToCodexFramework"}, "agents.codex_login_only", truth},
	} {
		raw, ok := doc.Lookup(k.path...)
		if !ok {
			continue
		}
		value, err := plain(raw)
		if err == nil && value != "" {
			err = as(k.key, k.read)(value, said)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, strings.Join(k.path, "."), err)
		}
	}
	custom, _ := said.keys["agents.custom_credential_keys"].([]string)
	for _, name := range append(accountKeys(programs), custom...) {
		if value, err := get(name); err == nil {
			said.hide(name, value)
		}
	}
	return said, nil
}

// accountKeys returns the names of the variables that hold an account of a program.
func accountKeys(programs []Program) (list []string) {
	for _, p := range programs {
		list = append(list, p.Accounts...)
	}
	return append(list, "OPENAI_API_KEY", "GITHUB_TOKEN")
}

// plain returns a JSON string, number or boolean as text; other values are an error.
func plain(raw json.RawMessage) (string, error) {
	switch jsonx.Raw(raw).Kind() {
	case '"':
		var value string
		err := jsonx.Unmarshal(raw, &value)
		return value, err
	case '0', 't', 'f':
		return string(raw), nil
	}
	return "", errors.New("it must be a text")
}

// Reread returns a copy of c with the task agents' settings from the current content of the
// elizaOS agent's file, so that a change there takes effect without a restart. All other
// settings stay as loaded. If the file cannot be used, it returns c unchanged and the error.
func (c *Config) Reread() (Config, error) {
	out := *c
	if c.Foreign.Path == "" {
		return out, nil
	}
	said, err := readForeignFile(c.Foreign.Path, c.Programs)
	if err != nil {
		return out, err
	}
	maps.DeleteFunc(said.keys, func(key string, _ any) bool {
		return !strings.HasPrefix(key, "agents.") || slices.Contains(c.Foreign.Said, key)
	})
	walk(reflect.ValueOf(*c), "", func(path string, _ reflect.StructField, v reflect.Value) {
		if slices.Contains(c.Foreign.Said, path) {
			said.keys[path] = plainValue(v)
		}
	})
	k := koanf.New(".")
	if err := k.Load(confmap.Provider(said.keys, "."), nil); err != nil {
		return out, err
	}
	out.Agents = defaultAgents()
	if err := errors.Join(decode(k, &out), out.Agents.check(out.Programs)); err != nil {
		return *c, err
	}
	out.Foreign.Secrets = said.secrets
	return out, nil
}
