package framework

import "github.com/junctor-run/junctor/internal/config/agentprogram"

// Program is what is known of a task agent's program before it is looked for
// (task-agents, section 5.3).
type Program struct {
	Binary  string
	Install string // the command that installs it
	Docs    string
	Login   string             // what somebody does to log in, in words or as a command
	Keys    []agentprogram.Key // variables that are an account
}

// ProgramOf returns what is known of a program. A shell's binary is that of nobody's
// preference.
func ProgramOf(name Name) Program {
	p, _ := agentprogram.Find(string(name))
	switch name {
	case Claude:
		return Program{"claude", "npm install -g @anthropic-ai/claude-code", "https://code.claude.com/docs", "claude auth login", p.Keys}
	case Codex:
		return Program{"codex", "npm install -g @openai/codex", "https://developers.openai.com/codex", "codex login", p.Keys}
	case Gemini:
		return Program{"gemini", "npm install -g @google/gemini-cli", "https://geminicli.com/docs", "start gemini once, or set GEMINI_API_KEY", p.Keys}
	case Aider:
		return Program{"aider", "pip install aider-chat", "https://aider.chat/docs", "set the API key of a provider, such as ANTHROPIC_API_KEY", p.Keys}
	case Pi:
		return Program{"pi", "npm install -g @earendil-works/pi-coding-agent", "", "start pi and use /login", p.Keys}
	case OpenCode:
		return Program{"opencode", "npm install -g opencode-ai", "https://opencode.ai/docs", "opencode auth login", p.Keys}
	case Shell:
		return Program{Binary: "/bin/bash"}
	}
	return Program{Binary: string(name)}
}
