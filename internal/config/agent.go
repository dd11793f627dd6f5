package config

import (
	"fmt"
	"time"
)

// Agent configures the agent that answers chat with the capabilities of the catalog.
type Agent struct {
	Tools string `koanf:"tools" doc:"Tools for chat: all (as the rules decide; by default calls with effects need an approval), reads or off."`
	View  string `koanf:"view" doc:"View of mcp.views to which the agent is restricted. Empty: all modules."`
	// Character is a path.
	Character string `koanf:"character" doc:"File that describes the agent and how it writes: a character file of elizaOS (JSON) or any text, read at the start."`
	// Memory and Evaluators are on or off.
	Memory     string      `koanf:"memory" doc:"Whether five items of memory.search at most are added to a message: on or off."`
	Evaluators string      `koanf:"evaluators" doc:"Whether response-handler fields and evaluators, evaluators and message events of endpoints' modules take part in a turn: on or off. Their providers and tools always do."`
	Budget     AgentBudget `koanf:"budget"`
}

// AgentBudget bounds the answer to one message. Costs are in thousandths of the unit of model prices.
type AgentBudget struct {
	ModelCalls int           `koanf:"model_calls" doc:"Model requests for a message, 2 to 256."`
	ToolCalls  int           `koanf:"tool_calls" doc:"Tool calls for a message, 1 to 64."`
	Tokens     int           `koanf:"tokens" doc:"Tokens of requests and answers for a message; 0: no limit, as for cost and a day."`
	Cost       int           `koanf:"cost" doc:"Cost of a message by the model's prices, in thousandths."`
	Work       time.Duration `koanf:"work" doc:"Work on a message, without waiting for approvals."`
	Day        DayBudget     `koanf:"day"`
}

// DayBudget bounds the answers to one person on one day (UTC).
type DayBudget struct {
	ModelCalls int `koanf:"model_calls" doc:"Model requests of a person on a day (UTC)."`
	ToolCalls  int `koanf:"tool_calls" doc:"Tool calls of a person on a day."`
	Tokens     int `koanf:"tokens" doc:"Tokens of a person on a day."`
	Cost       int `koanf:"cost" doc:"Cost of a person on a day, in thousandths."`
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
