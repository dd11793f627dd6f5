package config_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/config"
)

func agentsWith(change func(*config.Agents)) config.Agents {
	a := config.Default().Agents
	change(&a)
	return a
}

// foreignCases returns one valid value of each variable of other programs, and its
// effect.
func foreignCases() map[string]struct {
	value string
	want  config.Agents
} {
	type c = struct {
		value string
		want  config.Agents
	}
	cases := map[string]c{
		"PARALLAX_DEFAULT_AGENT_TYPE":       {"Claude Code", agentsWith(func(a *config.Agents) { a.DefaultType = "claude" })},
		"PARALLAX_AGENT_SELECTION_STRATEGY": {"heuristic", agentsWith(func(a *config.Agents) { a.Strategy = "ranked" })},
		"PARALLAX_DEFAULT_APPROVAL_PRESET":  {"standard", agentsWith(func(a *config.Agents) { a.Preset = "standard" })},
		"PARALLAX_LLM_PROVIDER":             {"api_keys", agentsWith(func(a *config.Agents) { a.Credentials = "api_keys" })},
		"PARALLAX_AIDER_PROVIDER":           {"google", agentsWith(func(a *config.Agents) { a.AiderProvider = "google" })},
		"PARALLAX_OPENCODE_BASE_URL": {
			"http://127.0.0.1:1/v1",
			agentsWith(func(a *config.Agents) { a.OpenCodeURL = "http://127.0.0.1:1/v1" }),
		},
		"PARALLAX_OPENCODE_LOCAL":            {"1", agentsWith(func(a *config.Agents) { a.OpenCodeLocal = true })},
		"PARALLAX_OPENCODE_API_KEY":          {"k3y-of-a-service", config.Default().Agents},
		"PARALLAX_CODING_DIRECTORY":          {"/code", agentsWith(func(a *config.Agents) { a.CodingDirectory = "/code" })},
		"CODING_AGENT_ALLOWED_WORKDIRS":      {"/a, /b", agentsWith(func(a *config.Agents) { a.Workdirs = []string{"/a", "/b"} })},
		"CODING_AGENT_SANDBOX":               {"off", agentsWith(func(a *config.Agents) { a.AnyWorkdir = true })},
		"PARALLAX_SCRATCH_RETENTION":         {"keep", agentsWith(func(a *config.Agents) { a.ScratchRetention = "persistent" })},
		"PARALLAX_SCRATCH_DECISION_TTL_MS":   {"1500", agentsWith(func(a *config.Agents) { a.ScratchTTL = 1500 * time.Millisecond })},
		"ELIZA_APP_VERIFICATION_MAX_RETRIES": {"0", agentsWith(func(a *config.Agents) { a.ValidatorRetries = 0 })},
		"ELIZA_ENABLE_CHILD_SKILL_CALLBACK":  {"no", agentsWith(func(a *config.Agents) { a.SkillCallback = false })},
		"TASK_AGENT_ROLE_POLICY":             {`{"default":"USER"}`, agentsWith(func(a *config.Agents) { a.RolePolicy = `{"default":"USER"}` })},
		"TASK_AGENT_CONNECTOR_ROLE_POLICY": {
			`{"discord":"OWNER"}`,
			agentsWith(func(a *config.Agents) { a.ConnectorPolicy = `{"discord":"OWNER"}` }),
		},
		"PARALLAX_DEBUG_CAPTURE": {"1", agentsWith(func(a *config.Agents) { a.Record = true })},
		"PTY_SERVICE_CONFIG": {
			`{"maxConcurrentSessions":5,"idleTimeoutMs":60000,"defaultRows":30,"defaultCols":100,"other":[]}`,
			agentsWith(func(a *config.Agents) {
				a.MaxSessions, a.IdleTimeout, a.Rows, a.Cols = 5, time.Minute, 30, 100
			}),
		},
		"CODING_WORKSPACE_CONFIG": {
			`{"baseDir":"/w","branchPrefix":"bot","workspaceTtlMs":1000,"credentials":{"github":{"token":"ghp_aaaa"}}}`,
			agentsWith(func(a *config.Agents) {
				a.WorkspaceBase, a.BranchPrefix, a.WorkspaceTTL = "/w", "bot", time.Second
			}),
		},
		"CUSTOM_CREDENTIAL_KEYS": {"A_KEY,B_KEY", agentsWith(func(a *config.Agents) { a.CustomKeys = []string{"A_KEY", "B_KEY"} })},
		"GITHUB_OAUTH_CLIENT_ID": {"Iv1.0", agentsWith(func(a *config.Agents) { a.GitHubClientID = "Iv1.0" })},
	}
	for name, set := range map[string]func(*config.Agents, string){
		"CLAUDE_MODEL_POWERFUL":   func(a *config.Agents, m string) { a.Models.Claude.Powerful = m },
		"CLAUDE_MODEL_FAST":       func(a *config.Agents, m string) { a.Models.Claude.Fast = m },
		"CODEX_MODEL_POWERFUL":    func(a *config.Agents, m string) { a.Models.Codex.Powerful = m },
		"CODEX_MODEL_FAST":        func(a *config.Agents, m string) { a.Models.Codex.Fast = m },
		"GEMINI_MODEL_POWERFUL":   func(a *config.Agents, m string) { a.Models.Gemini.Powerful = m },
		"GEMINI_MODEL_FAST":       func(a *config.Agents, m string) { a.Models.Gemini.Fast = m },
		"AIDER_MODEL_POWERFUL":    func(a *config.Agents, m string) { a.Models.Aider.Powerful = m },
		"AIDER_MODEL_FAST":        func(a *config.Agents, m string) { a.Models.Aider.Fast = m },
		"OPENCODE_MODEL_POWERFUL": func(a *config.Agents, m string) { a.Models.OpenCode.Powerful = m },
		"OPENCODE_MODEL_FAST":     func(a *config.Agents, m string) { a.Models.OpenCode.Fast = m },
	} {
		cases["PARALLAX_"+name] = c{"m-1", agentsWith(func(a *config.Agents) { set(a, "m-1") })}
	}
	return cases
}

func TestForeignVariablesFillKeys(t *testing.T) {
	t.Parallel()
	cases := foreignCases()
	listed := map[string]bool{}
	for _, a := range config.Aliases() {
		listed[a.Name] = true
	}
	for name, c := range cases {
		if !listed[name] {
			t.Errorf("%s is not in the reference", name)
		}
		inEnv, err := load(t, "", []string{name + "=" + c.value}, nil)
		if d := cmp.Diff(c.want, inEnv.Agents); err != nil || d != "" {
			t.Errorf(`%s: %v %s; want no error, d = ""`, name, err, d)
		}
		// The same in an agent's file, as a member of env and of env.vars.
		for _, form := range []string{`{"env":{"NAME":VALUE}}`, `{"env":{"vars":{"NAME":VALUE}}}`} {
			file := filepath.Join(t.TempDir(), "agent.json")
			doc := strings.NewReplacer("NAME", name, "VALUE", quoted(c.value)).Replace(form)
			if err := os.WriteFile(file, []byte(doc), 0o600); err != nil {
				t.Fatal(err)
			}
			inFile, err := load(t, "", []string{"ELIZA_CONFIG_PATH=" + file}, nil)
			if d := cmp.Diff(c.want, inFile.Agents); err != nil || d != "" {
				t.Errorf(`%s in %s: %v %s; want no error, d = ""`, name, doc, err, d)
			}
		}
	}
	c, err := load(t, "", []string{"CODING_WORKSPACE_CONFIG=" + cases["CODING_WORKSPACE_CONFIG"].value, "PARALLAX_OPENCODE_API_KEY=k"}, nil)
	if token, key := c.Foreign.Secret("GITHUB_TOKEN"), c.Foreign.Secret("PARALLAX_OPENCODE_API_KEY"); err != nil ||
		!token.Equal("ghp_aaaa") || !key.Equal("k") {
		t.Errorf(`%v: the credentials are not kept; want no error, token.Equal("ghp_aaaa"), key.Equal("k")`, err)
	}
	if c, err := load(t, "", []string{"PTY_SERVICE_CONFIG={\"maxSessions\":3,\"debug\":true}"}, nil); err != nil ||
		c.Agents.MaxSessions != 3 || c.Log.Level != "debug" {
		t.Errorf(`%v %+v; want no error, c.Agents.MaxSessions = 3, c.Log.Level = "debug"`, err, c.Log)
	}
}

func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

func TestBadForeignValuesNameTheirVariable(t *testing.T) {
	t.Parallel()
	bad := map[string][]string{
		"PARALLAX_DEFAULT_AGENT_TYPE": {"emacs", "hermes"}, "PARALLAX_AGENT_SELECTION_STRATEGY": {"random"},
		"PARALLAX_DEFAULT_APPROVAL_PRESET": {"yolo"},
		"PARALLAX_LLM_PROVIDER":            {"x"}, "PARALLAX_AIDER_PROVIDER": {"x"}, "PARALLAX_OPENCODE_BASE_URL": {"ftp://a", "http://u:p@a"},
		"PARALLAX_OPENCODE_LOCAL":   {"perhaps"},
		"PARALLAX_CODING_DIRECTORY": {"code", "/a,/b"}, "CODING_AGENT_ALLOWED_WORKDIRS": {"a"}, "CODING_AGENT_SANDBOX": {"maybe"},
		"PARALLAX_SCRATCH_RETENTION":       {"x"},
		"PARALLAX_SCRATCH_DECISION_TTL_MS": {"1h", "0", "-1", "99999999999999"}, "ELIZA_APP_VERIFICATION_MAX_RETRIES": {"-1", "x"},
		"ELIZA_ENABLE_CHILD_SKILL_CALLBACK": {"x"},
		"TASK_AGENT_ROLE_POLICY":            {"{", "KING"}, "TASK_AGENT_CONNECTOR_ROLE_POLICY": {"[]"}, "PARALLAX_DEBUG_CAPTURE": {"x"},
		"PTY_SERVICE_CONFIG":      {"[]", "{", `{"maxSessions":0}`, `{"defaultCols":"x"}`, `{"idleTimeoutMs":-1}`, `{"defaultRows":{}}`},
		"CODING_WORKSPACE_CONFIG": {"x", `{"baseDir":"rel"}`, `{"workspaceTtlMs":0}`, `{"credentials":{"github":{"token":5}},"s":"s3cret"}`},
		"CUSTOM_CREDENTIAL_KEYS":  {"A-B"}, "PARALLAX_CLAUDE_MODEL_POWERFUL": {"--danger", "a b"}, "PARALLAX_OPENCODE_MODEL_FAST": {"-x"},
	}
	for name, values := range bad {
		for _, value := range values {
			if _, err := load(t, "", []string{name + "=" + value}, nil); err == nil || !strings.Contains(err.Error(), name) ||
				strings.Contains(err.Error(), "s3cret") {
				t.Errorf(`%s=%s: %v; want an error, err.Error() with %v, err.Error() without "s3cret"`, name, value, err, name)
			}
		}
	}
	for _, good := range []string{"PARALLAX_DEFAULT_AGENT_TYPE=none", "PARALLAX_DEFAULT_AGENT_TYPE= ", "CODING_AGENT_SANDBOX=on"} {
		if c, err := load(t, "", []string{good}, nil); err != nil || cmp.Diff(config.Default().Agents, c.Agents) != "" {
			t.Errorf(`%s: %v; want no error, cmp.Diff(config.Default().Agents, c.Agents) = ""`, good, err)
		}
	}
	for key, says := range map[string]string{
		"{default_type: emacs}": "agents.default_type", "{preset: yolo}": "agents.preset", "{strategy: heuristic}": "agents.strategy",
		"{cols: 10}": "agents.cols", "{rows: 500}": "agents.rows",
		"{scratch_ttl: 0s}": "agents.scratch_ttl", "{coding_directory: x}": "agents.coding_directory",
		"{branch_prefix: '-x'}": "agents.branch_prefix", "{custom_credential_keys: [a-b]}": "agents.custom_credential_keys",
		"{role_policy: x}": "agents.role_policy", "{models: {codex: {fast: -x}}}": "agents.models", "{idle_timeout: -1s}": "agents.idle_timeout",
		"{opencode_url: x}": "agents.opencode_url", "{validator_retries: 101}": "agents.validator_retries",
	} {
		if _, err := load(t, "agents: "+key, nil, nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want an error, err.Error() with %v", key, err, says)
		}
	}
}

func TestLayersOfTaskAgents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "agent.json")
	write := func(doc string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"env":{"PARALLAX_DEFAULT_AGENT_TYPE":"codex","PARALLAX_DEFAULT_APPROVAL_PRESET":"standard","PARALLAX_LLM_PROVIDER":"cloud","PARALLAX_SCRATCH_RETENTION":"ephemeral","CUSTOM_CREDENTIAL_KEYS":"MY_KEY","MY_KEY":"mine","ANTHROPIC_API_KEY":"sk-1","OTHER":"x"},` +
		`"agents":{"defaults":{"subscriptionProvider":"openai-codex"}}}`)
	c, err := load(t, "agents: {preset: readonly, credentials: subscription}",
		[]string{
			"ELIZA_CONFIG_PATH=" + file, "PARALLAX_DEFAULT_APPROVAL_PRESET=permissive", "PARALLAX_LLM_PROVIDER=api_keys",
			"JUNCTOR_AGENTS_CREDENTIALS=cloud",
		}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := c.Agents
	if a.DefaultType != "codex" || a.Preset != "permissive" || a.Credentials != "cloud" || a.ScratchRetention != "ephemeral" ||
		a.Subscription != "openai-codex" {
		t.Errorf(`%+v; want a.DefaultType = "codex", a.Preset = "permissive", a.Credentials = "cloud", a.ScratchRetention = `+
			`"ephemeral", a.Subscription = "openai-codex"`, a)
	}
	got := map[string]string{}
	for name, v := range c.Foreign.Secrets {
		got[name] = v.Reveal()
	}
	if d := cmp.Diff(map[string]string{"MY_KEY": "mine", "ANTHROPIC_API_KEY": "sk-1"}, got); d != "" {
		t.Errorf("secrets (-want +got):\n%s", d)
	}
	if v := c.Foreign.Secret("MY_KEY"); !v.Equal("mine") {
		t.Error("MY_KEY is not found by its name")
	}
	slices.Sort(c.Foreign.Said)
	if d := cmp.Diff([]string{"agents.credentials", "agents.preset"}, c.Foreign.Said); d != "" {
		t.Errorf("foreign settings (-want +got):\n%s", d)
	}

	// What the file says later counts, where nothing of ours says otherwise.
	write(`{"env":{"PARALLAX_DEFAULT_AGENT_TYPE":"claude","PARALLAX_DEFAULT_APPROVAL_PRESET":"autonomous","PTY_SERVICE_CONFIG":"{\"debug\":true}"}}`)
	now, err := c.Reread()
	if err != nil {
		t.Fatal(err)
	}
	if now.Agents.DefaultType != "claude" || now.Agents.Preset != "permissive" || now.Agents.Credentials != "cloud" ||
		now.Agents.ScratchRetention != "" || now.Agents.Subscription != "" || now.Log.Level != "info" || len(now.Foreign.Secrets) != 0 {
		t.Errorf(`%+v; want now.Agents.DefaultType = "claude", now.Agents.Preset = "permissive", now.Agents.Credentials = `+
			`"cloud", now.Agents.ScratchRetention = "", now.Agents.Subscription = "", now.Log.Level = "info", `+
			"len(now.Foreign.Secrets) = 0", now.Agents)
	}
	// What cannot be used states where, and nothing has changed.
	write(`{"env":{"PARALLAX_DEFAULT_AGENT_TYPE":"emacs"}}`)
	if same, err := c.Reread(); err == nil || !strings.Contains(err.Error(), "agent.json: env.PARALLAX_DEFAULT_AGENT_TYPE") ||
		same.Agents.DefaultType != "codex" {
		t.Errorf(`%v %+v; want an error, err.Error() with "agent.json: env.PARALLAX_DEFAULT_AGENT_TYPE", same.Agents.DefaultType = "codex"`,
			err, same.Agents)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if gone, err := c.Reread(); err != nil || gone.Agents.DefaultType != "" || gone.Agents.Preset != "permissive" {
		t.Errorf(`%v %+v; want no error, gone.Agents.DefaultType = "", gone.Agents.Preset = "permissive"`, err, gone.Agents)
	}
}

func TestWhereTheAgentsFileIs(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	for _, path := range []string{".acme/acme.json", "state/eliza.json", "state/acme.json", ".eliza/eliza.json"} {
		full := filepath.Join(home, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(`{"env":{"PARALLAX_CLAUDE_MODEL_FAST":"`+path+`"}}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for env, want := range map[string]string{
		"": "", "ELIZA_NAMESPACE=acme": ".acme/acme.json", "ELIZA_STATE_DIR=" + home + "/state": "state/eliza.json",
		"ELIZA_NAMESPACE=acme;ELIZA_STATE_DIR=" + home + "/state": "state/acme.json", "ELIZA_NAMESPACE=eliza": ".eliza/eliza.json",
	} {
		c, err := load(t, "", append(strings.Split(env, ";"), "HOME="+home), nil)
		if err != nil || c.Agents.Models.Claude.Fast != want {
			t.Errorf("%s: %q, %v; want no error, c.Agents.Models.Claude.Fast = %v", env, c.Agents.Models.Claude.Fast, err, want)
		}
	}
	if _, err := load(t, "", []string{"ELIZA_NAMESPACE=../x", "HOME=" + home}, nil); err == nil {
		t.Error("a namespace that is a path; want an error")
	}
	if _, err := load(t, "", []string{"ELIZA_NAMESPACE=x"}, nil); err == nil {
		t.Error("a user without a home; want an error")
	}
}

func TestTheReferenceSaysWhatCanBeSetAtRunTime(t *testing.T) {
	t.Parallel()
	got := map[string]bool{}
	for _, k := range config.Keys() {
		if k.Runtime {
			got[k.Path] = true
		}
	}
	if len(got) != 14 || !got["agents.default_type"] || !got["agents.strategy"] || !got["agents.preset"] || !got["agents.credentials"] ||
		!got["agents.models.codex.fast"] {
		t.Errorf("keys = %q, want 14 with the agents.* keys above", slices.Sorted(maps.Keys(got)))
	}
}

// FuzzForeignFile: whatever stands in another program's file is read within its bounds, or
// refused with its place, and never shown.
func FuzzForeignFile(f *testing.F) {
	for name, c := range foreignCases() {
		f.Add(`{"env":{"` + name + `":` + quoted(c.value) + `}}`)
	}
	f.Add(`{"env":{"vars":{"PTY_SERVICE_CONFIG":"{\"maxSessions\":1e3}"}},"agents":{"defaults":{"subscriptionProvider":5}}}`)
	f.Add(`{"env":[],"agents":null}`)
	f.Fuzz(func(t *testing.T, doc string) {
		file := filepath.Join(t.TempDir(), "agent.json")
		if err := os.WriteFile(file, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := load(t, "", []string{"ELIZA_CONFIG_PATH=" + file, "ELIZA_CAPABILITY_ROUTER_ENABLED=0"}, nil)
		if err != nil {
			return
		}
		again, err := c.Reread()
		if d := cmp.Diff(c.Agents, again.Agents); err != nil || d != "" {
			t.Errorf(`read again it says something else: %v %s; want no error, d = ""`, err, d)
		}
	})
}
