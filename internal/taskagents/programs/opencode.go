package programs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

func openCodeProgram() Program {
	return Program{
		Name: OpenCode, Title: "OpenCode", Aliases: []string{"opencode", "opencode-agent"},
		Binary: "opencode", Install: "npm install -g opencode-ai", Docs: "https://opencode.ai/docs", Login: "opencode auth login",
		Account:     Account{File: ".local/share/opencode/auth.json"},
		Keys:        apiKeys("ANTHROPIC_API_KEY", "OPENAI_API_KEY"),
		Credentials: []string{openCodeKey, "GEMINI_API_KEY", "OPENROUTER_API_KEY"},
		BaseURL:     "PARALLAX_OPENCODE_BASE_URL",
		Strengths:   Strengths{.85, .75, .75, .7, .8, .7, .85, .85},
		Tools: []ToolGroup{
			{FileRead, []string{"read", "grep", "glob", "list", "lsp"}},
			{FileWrite, []string{"edit"}},
			{ShellUse, []string{"bash"}},
			{Web, []string{"webfetch", "websearch", "codesearch"}},
			{Agent, []string{"task", "skill"}},
			{Planning, []string{"todoread", "todowrite"}},
			{UserInteraction, []string{"question"}},
		},
		Files:           []WorkspaceFile{memoryFile("AGENTS.md"), configFile("opencode.json", "json")},
		ProjectSettings: []string{".opencode", "opencode.json", "opencode.jsonc"},
		Greeting:        "OpenCode", DeliverDelay: defaultDeliverDelay,
		Protocol: ACP,
		Kinds: map[string]string{
			"read": "read", "edit": "edit", "delete": "edit", "move": "edit", "search": "grep", "execute": "bash",
			"fetch": "webfetch",
		},
		plan: (*build).openCode,
		approval: func(p Preset, a *Approval) {
			a.EnvVars["OPENCODE_PERMISSION"] = strings.TrimSpace(text(openCodePermissions(p)))
		},
	}
}

// openCodeKey holds the key of the provider that junctor configures.
const openCodeKey = "PARALLAX_OPENCODE_API_KEY"

// openCode plans a session of OpenCode, which works on one task and exits. All its settings are
// in one variable.
func (b *build) openCode() error {
	if b.Model == "" {
		return capability.Errorf(capability.CodeInvalidInput, "task.spawn", "OpenCode has no model to work with").
			With("OPENCODE_NO_PROVIDER", "name a model of the user's own configuration, as provider/model, or give the address and the model of a server")
	}
	config := object{
		"autoupdate": false, "share": "disabled", "model": b.Model,
		"instructions": []string{b.private(b.memory(), "memory.md")},
		"permission":   openCodePermissions(b.Preset),
		"mcp": object{"junctor": object{
			"type": "remote", "url": b.Server + "/mcp", "enabled": true, "oauth": false,
			"headers": object{"Authorization": "Bearer {env:ELIZA_HOOK_TOKEN}"},
		}},
	}
	if b.BaseURL != "" {
		_, model, named := strings.Cut(b.Model, "/")
		if !named {
			model = b.Model
		}
		config["model"] = "junctor/" + model
		config["provider"] = object{"junctor": object{
			"npm": "@ai-sdk/openai-compatible", "name": "junctor", "models": object{model: object{}},
			"options": object{"baseURL": b.BaseURL, "apiKey": "{env:" + openCodeKey + "}"},
		}}
	}
	if b.Structured && b.serves() {
		config["plugin"] = []string{"file://" + b.private(quietPlugin, "quiet.js")}
		config["experimental"] = object{"continue_loop_on_deny": true}
		// It asks about each command, so that the preset refuses those that write outside, as it permits
		// the redirections of a command that it allows.
		permissions := openCodePermissions(b.Preset)
		for _, t := range toolsWith(OpenCode, b.Preset, Auto) {
			if CategoryOf(OpenCode, t) == ShellUse {
				permissions[t] = "ask"
			}
		}
		config["permission"] = permissions
		b.env[serverPassword] = b.Password
		// With a plugin it waits for the installation of its package for plugins, offline for 70 s.
		b.env["npm_config_fetch_retries"], b.env["npm_config_fetch_timeout"] = "0", "10000"
	}
	b.env["OPENCODE_CONFIG_CONTENT"] = strings.TrimSuffix(text(config), "\n")
	b.env["OPENCODE_DISABLE_AUTOUPDATE"] = "1"
	if b.withoutForeignSettings() {
		b.env["OPENCODE_DISABLE_PROJECT_CONFIG"] = "1"
	}
	b.withoutEditor()
	if b.Preset.Judge(ShellUse) == Ask {
		b.note("OpenCode refuses what it would have to ask about, except in structured mode")
	}
	flags := []string{"run"}
	if b.Resume != "" {
		b.plan.ResumeToken = b.Resume
		flags = append(flags, "--session", b.Resume)
	}
	b.argv(flags, func(t string) []string { return []string{"--", t} })
	if !b.plan.TaskInArgv { // without a task, start its interactive screen
		b.plan.Argv = slices.Delete(b.plan.Argv, 1, 2)
	}
	if b.Structured && b.serves() {
		b.plan.Protocol = Serve
		b.structured([]string{"serve"}, []string{"--hostname", "127.0.0.1", "--port", "0"})
	} else {
		if b.Structured {
			b.note("OpenCode cannot ask questions of its own here: it is older than 1.18, or did not name its version")
		}
		b.structured([]string{"acp"}, nil)
	}
	return nil
}

// serverPassword is the variable with the password of OpenCode's server.
const serverPassword = "OPENCODE_SERVER_PASSWORD"

// quietPlugin removes the password from what OpenCode passes to the commands of the agent, which could
// answer its own questions with it, and the settings below.
const quietPlugin = `export const Junctor = async () => {
  for (const name of ["` + serverPassword + `", "npm_config_fetch_retries", "npm_config_fetch_timeout"]) delete process.env[name]
  return { "shell.env": async (_, output) => { output.env.` + serverPassword + ` = "" } }
}
`

// askOfSettings returns rules that ask before project settings are written. The last one that matches is used.
func askOfSettings() object {
	rules := object{"*": "allow"} // sorted before the others
	for _, name := range allProjectSettings() {
		for _, pattern := range []string{name, name + "/*", "*/" + name, "*/" + name + "/*"} {
			rules[pattern] = "ask"
		}
	}
	return rules
}

// serves reports whether the version offers all decisions over HTTP; 1.18 is the first one that was
// tried. Without a password its server would be open to every user of the machine.
func (b *build) serves() bool {
	var major, minor int
	_, err := fmt.Sscanf(b.Version, "%d.%d", &major, &minor)
	return err == nil && b.Password != "" && (major > 1 || major == 1 && minor >= 18)
}

// ServerPassword returns the password of a program's server from its environment.
func ServerPassword(env []string) string {
	for _, e := range env {
		if p, ok := strings.CutPrefix(e, serverPassword+"="); ok {
			return p
		}
	}
	return ""
}

// openCodePermissions returns the permission of each tool for a preset.
func openCodePermissions(p Preset) object {
	words := map[Verdict]string{Auto: "allow", Ask: "ask", Blocked: "deny"}
	rules := object{"*": words[p.Judge(Agent)], "external_directory": "deny"}
	for _, r := range Of(OpenCode).Tools {
		for _, t := range r.Tools {
			rules[t] = words[p.Judge(r.Category)]
			if r.Category == UserInteraction { // the tool itself asks the user
				rules[t] = "allow"
			}
			if r.Category == FileWrite && rules[t] == "allow" && p != Autonomous {
				rules[t] = askOfSettings()
			}
		}
	}
	return rules
}
