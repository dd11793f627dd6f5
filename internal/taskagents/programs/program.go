package programs

// Program is what is known of a task agent's program before it is looked for
// (task-agents, section 5.3).
type Program struct {
	Binary  string
	Install string // the command that installs it
	Docs    string
	Login   string // what somebody does to log in, in words or as a command
	Keys    []Key  // variables that are an account
}

// Key is a variable, and the name of what it stands for.
type Key struct{ Name, Method string }

// ProgramOf returns what is known of a program. A shell's binary is that of nobody's
// preference.
func ProgramOf(name Name) Program {
	apiKey := func(names ...string) (keys []Key) {
		for _, n := range names {
			keys = append(keys, Key{n, "api_key"})
		}
		return keys
	}
	switch name {
	case Claude:
		return Program{"claude", "npm install -g @anthropic-ai/claude-code", "https://code.claude.com/docs", "claude auth login", append(apiKey("ANTHROPIC_API_KEY"), Key{"CLAUDE_CODE_OAUTH_TOKEN", "subscription"})}
	case Codex:
		return Program{"codex", "npm install -g @openai/codex", "https://developers.openai.com/codex", "codex login", apiKey("OPENAI_API_KEY")}
	case Gemini:
		return Program{"gemini", "npm install -g @google/gemini-cli", "https://geminicli.com/docs", "start gemini once, or set GEMINI_API_KEY", apiKey("GEMINI_API_KEY", "GOOGLE_API_KEY")}
	case Aider:
		return Program{"aider", "pip install aider-chat", "https://aider.chat/docs", "set the API key of a provider, such as ANTHROPIC_API_KEY", apiKey("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "DEEPSEEK_API_KEY", "OPENROUTER_API_KEY")}
	case Pi:
		return Program{"pi", "npm install -g @earendil-works/pi-coding-agent", "", "start pi and use /login", apiKey("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")}
	case OpenCode:
		return Program{"opencode", "npm install -g opencode-ai", "https://opencode.ai/docs", "opencode auth login", apiKey("ANTHROPIC_API_KEY", "OPENAI_API_KEY")}
	case Shell:
		return Program{Binary: "/bin/bash"}
	}
	return Program{Binary: string(name)}
}
