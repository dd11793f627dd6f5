package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"

	"github.com/junctor-run/junctor/internal/elizafile"
	"github.com/junctor-run/junctor/internal/framework"
	"github.com/junctor-run/junctor/internal/jsonx"
	"github.com/junctor-run/junctor/secret"
)

// Foreign is what an elizaOS agent's configuration file says of task agents. It is the
// lowest layer (decision R3).
type Foreign struct {
	Path string // of the file; "": the environment names none
	// Said are the keys of section agents that a higher layer sets, so that the file says
	// nothing about them.
	Said []string
	// Secrets are the file's values that are no keys of ours, by the names of their
	// variables: keys of programs' accounts, and what custom_credential_keys names. Given
	// are those that came with variables of the environment.
	Secrets, Given map[string]secret.Value
}

// Secret is the value that a variable of this name would have; empty: none.
func (f *Foreign) Secret(name string) secret.Value {
	if v, ok := f.Given[name]; ok {
		return v
	}
	return f.Secrets[name]
}

// foreignSays is what other products' variables say: values of keys of ours, and secrets.
type foreignSays struct {
	keys    map[string]any
	secrets map[string]secret.Value
}

func (f *foreignSays) hide(name, value string) {
	if value != "" {
		if f.secrets == nil {
			f.secrets = make(map[string]secret.Value)
		}
		f.secrets[name] = secret.New(value)
	}
}

// foreignKey is a variable of another product that fills keys of ours.
type foreignKey struct {
	name, doc string
	read      func(text string, f *foreignSays) error
}

// foreignKeys is the table of task-agents, section 3.
func foreignKeys() []foreignKey {
	list := []foreignKey{
		{"PARALLAX_DEFAULT_AGENT_TYPE", "agents.default_type; none is nobody", as("agents.default_type", agentType)},
		{"PARALLAX_AGENT_SELECTION_STRATEGY", "agents.strategy; heuristic is ranked", as("agents.strategy", choice(map[string]string{"heuristic": "ranked"}, "fixed", "ranked"))},
		{"PARALLAX_DEFAULT_APPROVAL_PRESET", "agents.preset", as("agents.preset", choice(nil, "readonly", "standard", "permissive", "autonomous"))},
		{"PARALLAX_LLM_PROVIDER", "agents.credentials", as("agents.credentials", choice(nil, "subscription", "api_keys", "cloud"))},
		{"PARALLAX_AIDER_PROVIDER", "agents.aider_provider", as("agents.aider_provider", choice(nil, "anthropic", "openai", "google"))},
		{"PARALLAX_OPENCODE_BASE_URL", "agents.opencode_url", as("agents.opencode_url", serviceURL)},
		{"PARALLAX_OPENCODE_LOCAL", "agents.opencode_local", as("agents.opencode_local", truth)},
		{"PARALLAX_OPENCODE_API_KEY", "The key of agents.opencode_url, where agents.opencode_key_secret names none.", hidden("PARALLAX_OPENCODE_API_KEY")},
		{"PARALLAX_CODING_DIRECTORY", "agents.coding_directory", as("agents.coding_directory", folder)},
		{"CODING_AGENT_ALLOWED_WORKDIRS", "agents.workdirs", as("agents.workdirs", folders)},
		{"CODING_AGENT_SANDBOX", "agents.any_workdir: off, false and 0 set it", as("agents.any_workdir", untruth)},
		{"PARALLAX_SCRATCH_RETENTION", "agents.scratch_retention; keep is persistent", as("agents.scratch_retention", choice(map[string]string{"keep": "persistent"}, "ephemeral", "pending_decision", "persistent"))},
		{"PARALLAX_SCRATCH_DECISION_TTL_MS", "agents.scratch_ttl, in milliseconds", as("agents.scratch_ttl", millis(1))},
		{"ELIZA_APP_VERIFICATION_MAX_RETRIES", "agents.validator_retries", as("agents.validator_retries", number(0, mostRetries))},
		{"ELIZA_ENABLE_CHILD_SKILL_CALLBACK", "agents.skill_callback: 0, false, no and off take it away", as("agents.skill_callback", truth)},
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

// aliases are variables of other products that mean keys of ours; they come after
// our own variables (decision R3). A blank one is not said.
func aliases(environ []string) (*foreignSays, error) {
	vars := make(map[string]string)
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
	}
	out, err := readForeign("environment: ", func(name string) (string, error) { return vars[name], nil })
	if mode := strings.TrimSpace(vars["AGENTOS_DEPLOYMENT_MODE"]); err == nil && mode != "" {
		out.keys["deployment_mode"] = mode
	}
	return out, err
}

func readForeign(place string, get func(name string) (string, error)) (*foreignSays, error) {
	out := &foreignSays{keys: make(map[string]any)}
	for _, k := range foreignKeys() {
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

// foreignFile reads the configuration of an elizaOS agent where the environment says that
// there is one: ELIZA_CONFIG_PATH, else <namespace>.json in ELIZA_STATE_DIR or in the
// directory of ELIZA_NAMESPACE.
func foreignFile(environ []string) (*foreignSays, string, error) {
	vars := make(map[string]string)
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = strings.TrimSpace(value)
	}
	path, dir, namespace := vars["ELIZA_CONFIG_PATH"], vars["ELIZA_STATE_DIR"], vars["ELIZA_NAMESPACE"]
	if path == "" && dir == "" && namespace == "" {
		said, err := readForeign("", func(string) (string, error) { return "", nil })
		return said, "", err
	}
	if path == "" {
		if namespace == "" {
			namespace = "eliza"
		}
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
	said, err := readForeignFile(path)
	return said, path, err
}

func readForeignFile(path string) (*foreignSays, error) {
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
	said, err := readForeign(path+": env.", get)
	if err != nil {
		return nil, err
	}
	for _, k := range []struct {
		path []string
		key  string
		read func(string) (any, error)
	}{
		{[]string{"agents", "defaults", "subscriptionProvider"}, "agents.subscription", choice(nil, "anthropic-subscription", "openai-codex", "openai-subscription")},
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
	for _, name := range append(accountKeys(), custom...) {
		if value, err := get(name); err == nil {
			said.hide(name, value)
		}
	}
	return said, nil
}

// accountKeys are the variables that are an account of some program.
func accountKeys() (list []string) {
	for _, n := range framework.Names() {
		for _, k := range framework.ProgramOf(n.Name).Keys {
			list = append(list, k.Name)
		}
	}
	return append(list, "OPENAI_API_KEY", "GITHUB_TOKEN")
}

// plain is the text of a member: a text, a number or a truth value.
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

// Reread is c with what the elizaOS agent's file says of task agents now, so that a change
// there counts without a restart. Everything else stays as it was loaded.
func (c *Config) Reread() (Config, error) {
	out := *c
	if c.Foreign.Path == "" {
		return out, nil
	}
	said, err := readForeignFile(c.Foreign.Path)
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
	if err := errors.Join(decode(k, &out), out.Agents.check()); err != nil {
		return *c, err
	}
	out.Foreign.Secrets = said.secrets
	return out, nil
}

// as reads a value into one key.
func as(key string, read func(text string) (any, error)) func(string, *foreignSays) error {
	return func(text string, f *foreignSays) error {
		value, err := read(text)
		if err == nil {
			f.keys[key] = value
		}
		return err
	}
}

func hidden(name string) func(string, *foreignSays) error {
	return func(text string, f *foreignSays) error {
		f.hide(name, text)
		return nil
	}
}

func text(s string) (any, error) { return s, nil }

func choice(also map[string]string, words ...string) func(string) (any, error) {
	return func(s string) (any, error) {
		s = strings.ToLower(s)
		if meant, ok := also[s]; ok {
			s = meant
		}
		if !slices.Contains(words, s) {
			return nil, fmt.Errorf("%.60q must be one of %s", s, strings.Join(append(words, slices.Sorted(maps.Keys(also))...), ", "))
		}
		return s, nil
	}
}

func agentType(s string) (any, error) {
	if strings.EqualFold(s, "none") {
		return "", nil
	}
	name, ok := framework.Normalise(s)
	if !ok || name == framework.Hermes {
		return nil, fmt.Errorf("%.60q must be one of claude, codex, gemini, aider, pi, opencode, shell, none", s)
	}
	return string(name), nil
}

func truth(s string) (any, error) {
	value, known := elizaFlag(s)
	if !known {
		return nil, fmt.Errorf("%.60q must be 1, true, yes, on or 0, false, no, off", s)
	}
	return value, nil
}

func untruth(s string) (any, error) {
	value, err := truth(s)
	on, _ := value.(bool)
	return !on, err
}

func number(least, most int) func(string) (any, error) {
	return func(s string) (any, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return nil, fmt.Errorf("%.60q must be a whole number from %d to %d", s, least, most)
		}
		return n, nil
	}
}

// mostMillis is a year.
const mostMillis = 366 * 24 * 3600 * 1000

func millis(least int) func(string) (any, error) {
	return func(s string) (any, error) {
		n, err := number(least, mostMillis)(s)
		return fmt.Sprint(n, "ms"), err
	}
}

func model(s string) (any, error) {
	if s != "" && !framework.ValidModel(s) {
		return nil, fmt.Errorf("%.60q is no name of a model: one word that does not begin with a hyphen", s)
	}
	return s, nil
}

func serviceURL(s string) (any, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("it is not an http or https address without credentials")
	}
	return s, nil
}

func policyText(s string) (any, error) { return s, rolePolicy(s) }

func names(s string) (any, error) {
	list := strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
	if i := slices.IndexFunc(list, func(name string) bool { return !variableForm.MatchString(name) }); i >= 0 || len(list) > mostCustomKeys {
		return nil, fmt.Errorf("it is not a list of up to %d names of variables", mostCustomKeys)
	}
	return list, nil
}

func folder(s string) (any, error) {
	list, err := folders(s)
	if err != nil || len(list.([]string)) != 1 {
		return nil, errors.New("it is not the absolute path of one folder")
	}
	return list.([]string)[0], nil
}

// folders splits a list at commas; ~ is the user's home.
func folders(s string) (any, error) {
	home, _ := os.UserHomeDir()
	list := []string{}
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		if rest, found := strings.CutPrefix(part, "~"); found && home != "" && (rest == "" || rest[0] == '/') {
			part = home + rest
		}
		if part == "" {
			continue
		}
		if !filepath.IsAbs(part) {
			return nil, fmt.Errorf("%.200q is not an absolute path", part)
		}
		list = append(list, part)
	}
	return list, nil
}

// members reads the JSON object of a variable, whose values may be secrets: an error says
// none. Members that are not known are somebody else's.
func members(s string, read map[string]func(string) (any, error), keys map[string]string, f *foreignSays) (map[string]json.RawMessage, error) {
	var doc map[string]json.RawMessage
	if jsonx.Unmarshal([]byte(s), &doc) != nil || doc == nil {
		return nil, errors.New("it is not a JSON object")
	}
	for _, name := range slices.Sorted(maps.Keys(read)) {
		raw, ok := doc[name]
		if !ok || string(raw) == "null" {
			continue
		}
		value, err := plain(raw)
		if err == nil {
			err = as(keys[name], read[name])(value, f)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if string(doc["debug"]) == "true" {
		f.keys["log.level"] = "debug"
	}
	return doc, nil
}

func terminals(s string, f *foreignSays) error {
	_, err := members(s,
		map[string]func(string) (any, error){"maxConcurrentSessions": number(1, 200), "maxSessions": number(1, 200), "idleTimeoutMs": millis(0), "defaultRows": number(5, 200), "defaultCols": number(20, 500)},
		map[string]string{"maxConcurrentSessions": "agents.max_sessions", "maxSessions": "agents.max_sessions", "idleTimeoutMs": "agents.idle_timeout", "defaultRows": "agents.rows", "defaultCols": "agents.cols"}, f)
	return err
}

func workspaces(s string, f *foreignSays) error {
	doc, err := members(s,
		map[string]func(string) (any, error){"baseDir": folder, "branchPrefix": text, "workspaceTtlMs": millis(1)},
		map[string]string{"baseDir": "agents.workspace_base", "branchPrefix": "agents.branch_prefix", "workspaceTtlMs": "agents.workspace_ttl"}, f)
	if err != nil || doc["credentials"] == nil {
		return err
	}
	var said struct {
		GitHub struct {
			Token string `json:"token"`
		} `json:"github"`
	}
	if json.Unmarshal(doc["credentials"], &said) != nil {
		return errors.New("credentials.github.token is not a text")
	}
	f.hide("GITHUB_TOKEN", said.GitHub.Token)
	return nil
}
