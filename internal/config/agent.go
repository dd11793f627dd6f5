package config

import (
	"fmt"
	"time"
)

// Agent configures the agent that answers chat with the capabilities of the catalog.
type Agent struct {
	Tools string `koanf:"tools" doc:"What the agent may use to answer chat, if a model is configured: all (the rules decide, and by default every call with an effect needs an approval), reads (only what has no effect) or off (the model answers without tools)."`
	View  string `koanf:"view" doc:"Name of a view of mcp.views: the agent sees only its modules. Empty: all."`
	// Character is a path.
	Character string `koanf:"character" doc:"File that describes who the agent is and how it writes: a character file of elizaOS (JSON), or any text. It is read at the start."`
	// Memory and Evaluators are on or off.
	Memory     string      `koanf:"memory" doc:"Whether what memory.search finds about a message is added to it, five items at most: on or off."`
	Evaluators string      `koanf:"evaluators" doc:"Whether modules of endpoints take part in a turn where they register response-handler fields, response-handler evaluators, evaluators or message events: on or off. Their providers and tools are used either way."`
	Budget     AgentBudget `koanf:"budget"`
}

// AgentBudget bounds the answer to one message. Costs are in thousandths of the unit of model prices.
type AgentBudget struct {
	ModelCalls int           `koanf:"model_calls" doc:"Most requests to the model for one message."`
	ToolCalls  int           `koanf:"tool_calls" doc:"Most calls of tools for one message, at most 64."`
	Tokens     int           `koanf:"tokens" doc:"Most tokens for one message, of requests and answers together; 0: no limit."`
	Cost       int           `koanf:"cost" doc:"Highest cost of one message by the prices of the model, in thousandths; 0: no limit."`
	Work       time.Duration `koanf:"work" doc:"Longest work on one message; the time of waiting for approvals does not count."`
	Day        DayBudget     `koanf:"day"`
}

// DayBudget bounds the answers to one person on one day (UTC).
type DayBudget struct {
	ModelCalls int `koanf:"model_calls" doc:"Most requests to the model for one person on one day (UTC); 0: no limit."`
	ToolCalls  int `koanf:"tool_calls" doc:"Most calls of tools for one person on one day; 0: no limit."`
	Tokens     int `koanf:"tokens" doc:"Most tokens for one person on one day; 0: no limit."`
	Cost       int `koanf:"cost" doc:"Highest cost for one person on one day, in thousandths; 0: no limit."`
}

// The values of agent.tools.
const (
	AgentToolsOff   = "off"
	AgentToolsReads = "reads"
	AgentToolsAll   = "all"
)

// The values of agent.memory and agent.evaluators.
const (
	On  = "on"
	Off = "off"
)

func defaultAgent() Agent {
	return Agent{
		Tools: AgentToolsAll, Memory: On, Evaluators: On, Budget: AgentBudget{ModelCalls: 24, ToolCalls: 16, Work: 15 * time.Minute},
	}
}

func (a Agent) validate(views []View) error {
	if err := oneOf("agent.tools", a.Tools, AgentToolsOff, AgentToolsReads, AgentToolsAll); err != nil {
		return err
	}
	if err := oneOf("agent.memory", a.Memory, On, Off); err != nil {
		return err
	}
	if err := oneOf("agent.evaluators", a.Evaluators, On, Off); err != nil {
		return err
	}
	if b := a.Budget; b.ModelCalls < 2 || b.ModelCalls > 256 || b.ToolCalls < 1 || b.ToolCalls > 64 || b.Work < time.Second {
		return fmt.Errorf("agent.budget: model_calls is 2 to 256, tool_calls 1 to 64, and work one second or more")
	}
	if b, d := a.Budget, a.Budget.Day; min(b.Tokens, b.Cost, d.ModelCalls, d.ToolCalls, d.Tokens, d.Cost) < 0 {
		return fmt.Errorf("agent.budget: a limit is 0 (none) or more")
	}
	if a.View == "" {
		return nil
	}
	for _, v := range views {
		if v.Name == a.View {
			return nil
		}
	}
	return fmt.Errorf("agent.view: mcp.views has no view %q", a.View)
}
