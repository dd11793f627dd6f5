package programs

import "slices"

// Qwen is the canonical name of Qwen Code.
const Qwen Name = "qwen"

func qwenProgram() Program {
	return Program{
		Name: Qwen, Title: "Qwen Code", Aliases: []string{"qwen", "qwen-code"},
		Binary: "qwen", Install: "npm install -g @qwen-code/qwen-code", Docs: "https://qwenlm.github.io/qwen-code-docs",
		Login:     "start qwen once and use /auth, or set OPENAI_API_KEY",
		Keys:      apiKeys("OPENAI_API_KEY"),
		BaseURL:   "OPENAI_BASE_URL",
		Strengths: Strengths{.75, .7, .7, .7, .7, .65, .75, .75},
		Tools: []ToolGroup{
			{FileRead, []string{"read_file", "list_directory", "glob", "grep_search", "zoom_image", "lsp"}},
			{FileWrite, []string{"write_file", "edit", "notebook_edit"}},
			{ShellUse, []string{"run_shell_command", "monitor"}},
			{Web, []string{"web_fetch", "web_search"}},
			{Agent, []string{"agent", "skill"}},
			{Planning, []string{"todo_write", "save_memory"}},
			{UserInteraction, []string{"ask_user_question", "exit_plan_mode"}},
		},
		Files:           []WorkspaceFile{memoryFile("QWEN.md"), configFile(".qwen/settings.json", "json")},
		ProjectSettings: []string{".qwen/settings.json", ".qwen/.env", ".qwen/agents", ".qwen/extensions", ".env"},
		Greeting:        "Qwen Code", DeliverDelay: defaultDeliverDelay,
		Protocol: ACP,
		Records:  ".qwen",
		Kinds: map[string]string{
			"read": "read_file", "edit": "write_file", "delete": "write_file", "move": "write_file",
			"search": "glob", "execute": "run_shell_command", "fetch": "web_fetch",
		},
		plan: (*build).qwen,
		approval: func(p Preset, a *Approval) {
			a.CLIFlags = append(a.CLIFlags, qwenFlags(p)...)
			a.addFile(".qwen/settings.json", readable(object{"permissions": qwenPermissions(p)}), "json")
		},
	}
}

// qwen plans Qwen Code. A variable names the settings of the system, which take precedence
// over those of the user and the project, so that neither file is changed. The memory file
// is in a folder of the session that belongs to the workspace.
func (b *build) qwen() error {
	if err := b.refuseForeignSettings(); err != nil {
		return err
	}
	context := b.folder("qwen-context")
	b.private(b.memory(), "qwen-context", "QWEN.md")
	settings := object{
		"general":     object{"enableAutoUpdate": false},
		"ui":          object{"enableFollowupSuggestions": false}, // each is a request to the model, and looks like typed text
		"memory":      object{"enableManagedAutoMemory": false, "enableManagedAutoDream": false},
		"context":     object{"includeDirectories": []string{context}, "loadFromIncludeDirectories": true},
		"hooks":       b.qwenHooks(),
		"mcpServers":  object{"junctor": object{"httpUrl": b.Server + "/mcp", "headers": object{"Authorization": "Bearer $ELIZA_HOOK_TOKEN"}}},
		"permissions": qwenPermissions(b.Preset),
	}
	if b.credential("OPENAI_API_KEY") != "" {
		settings["security"] = object{"auth": object{"selectedType": "openai"}} // without it a menu opens
	}
	b.env["QWEN_CODE_SYSTEM_SETTINGS_PATH"] = b.private(text(settings), "qwen-settings.json")
	// Users can configure it to ask whether it may trust a folder.
	b.env["QWEN_CODE_TRUSTED_FOLDERS_PATH"] = b.private(text(object{b.Workdir: "TRUST_FOLDER", context: "TRUST_FOLDER"}), "qwen-trusted.json")
	if b.Model != "" {
		b.env["OPENAI_MODEL"] = b.Model
	}
	if b.BaseURL != "" {
		b.env["OPENAI_BASE_URL"] = b.BaseURL
	}
	b.plan.ResumeToken = b.UUID
	id := "--session-id=" + b.UUID
	if b.Resume != "" {
		b.plan.ResumeToken, id = b.Resume, "--resume="+b.Resume
	}
	flags := qwenFlags(b.Preset)
	b.argv(append(flags, id), func(t string) []string { return []string{"--prompt-interactive=" + t} })
	b.structured([]string{"--acp"}, flags)
	return nil
}

func qwenFlags(p Preset) []string {
	return []string{"--approval-mode=" + map[Preset]string{
		Readonly: "plan", Standard: "default", Permissive: "auto-edit",
		Autonomous: "yolo",
	}[p]}
}

// qwenPermissions returns the rules that a preset has in a settings file. None is about the
// tool that asks the user: if a rule allowed it, it would end without an answer.
func qwenPermissions(p Preset) object {
	rules := make(object)
	for member, v := range map[string]Verdict{"allow": Auto, "ask": Ask, "deny": Blocked} {
		tools := slices.DeleteFunc(toolsWith(Qwen, p, v), func(t string) bool { return CategoryOf(Qwen, t) == UserInteraction })
		if p.Judge(Agent) == v {
			tools = append(tools, "mcp__junctor")
		}
		if len(tools) > 0 {
			rules[member] = tools
		}
	}
	return rules
}

// qwenHooks returns hooks that run our own binary, which posts the event and prints the reply.
func (b *build) qwenHooks() object {
	hooks := make(object)
	for _, event := range []string{
		"PreToolUse", "PermissionRequest", "Stop", "Notification",
		"UserPromptSubmit", "PostToolUse", "StopFailure", "SubagentStop", "SessionEnd", "PreCompact",
	} {
		if b.Structured && event == "PermissionRequest" { // its answer would win over that of the protocol
			continue
		}
		matcher := "*"
		if event == "PermissionRequest" { // a reply that allows its question would end it without an answer
			matcher = "^(?!(ask_user_question|exit_plan_mode)$)"
		}
		hooks[event] = []any{object{"matcher": matcher, "hooks": []any{object{
			"type": "command", "name": "junctor", "command": b.hookCommand(),
			"timeout": hookTimeout(event),
		}}}}
	}
	return hooks
}
