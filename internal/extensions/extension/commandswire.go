package extension

import (
	"cmp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
)

// word is text that may be written as a number or boolean, because YAML decodes some
// unquoted words as these.
type word string

// UnmarshalJSON accepts any scalar.
func (w *word) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && strings.IndexByte(`{["n`, data[0]) < 0 {
		*w = word(data)
		return nil
	}
	return jsonx.Unmarshal(data, (*string)(w))
}

func words(list []word) []string {
	var out []string
	for _, w := range list {
		out = append(out, string(w))
	}
	return out
}

// confirmation is never, first or always; true is always, false never.
type confirmation string

// UnmarshalJSON accepts the words and booleans.
func (c *confirmation) UnmarshalJSON(data []byte) error {
	switch string(data) {
	case "true":
		*c = "always"
		return nil
	case "false":
		*c = "never"
		return nil
	}
	return jsonx.Unmarshal(data, (*string)(c))
}

// example is a command line with an optional description.
type example Example

// UnmarshalJSON accepts a string or an object.
func (e *example) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return jsonx.Unmarshal(data, &e.Command)
	}
	return jsonx.Unmarshal(data, (*Example)(e))
}

func examples(list []example) []Example {
	var out []Example
	for _, e := range list {
		out = append(out, Example(e))
	}
	return out
}

type wireCommand struct {
	Name          string       `json:"name"`
	Summary       string       `json:"summary"`
	Description   string       `json:"description"`
	Examples      []example    `json:"examples"`
	Runner        string       `json:"runner"`
	DefaultAction string       `json:"default_action"`
	Aliases       []string     `json:"aliases"`
	Hidden        bool         `json:"hidden"`
	Permissions   []string     `json:"permissions"`
	Confirm       confirmation `json:"confirm"`
	Actions       []wireAction `json:"actions"`
	MapsTo        struct {
		Capability string       `json:"capability"`
		Actions    []wireAction `json:"actions"`
	} `json:"maps_to"`
}

type wireAction struct {
	ID          word         `json:"id"`
	Aliases     []word       `json:"aliases"`
	Runner      string       `json:"runner"`
	Summary     string       `json:"summary"`
	Description string       `json:"description"`
	Argv        []word       `json:"argv"`
	Args        []wireArg    `json:"args"`
	Flags       []wireArg    `json:"flags"`
	TimeoutSec  int          `json:"timeout_sec"`
	Permissions []string     `json:"permissions"`
	Confirm     confirmation `json:"confirm"`
	Sensitive   []string     `json:"sensitive"`
	Cache       struct {
		TTL int `json:"ttl_sec"`
	} `json:"cache"`
	Priority     word            `json:"priority"`
	Stdin        string          `json:"stdin"`
	Output       Output          `json:"output"`
	BaseURL      string          `json:"base_url"`
	Headers      map[string]word `json:"headers"`
	DSNRef       string          `json:"dsn_ref"`
	Command      string          `json:"command"`
	Entrypoint   string          `json:"entrypoint"`
	Script       string          `json:"script"`
	AgentVisible bool            `json:"agentVisible"`
	AgentSnake   bool            `json:"agent_visible"`
}

type wireArg struct {
	Name        word   `json:"name"`
	Short       word   `json:"short"`
	Description string `json:"description"`
	Type        string `json:"type"`
	Required    bool   `json:"required"`
	Default     *word  `json:"default"`
	Choices     []word `json:"choices"`
	Pattern     string `json:"pattern"`
	TakesValue  *bool  `json:"takes_value"`
	AllowDash   bool   `json:"allow_dash"`
}

func (w *wireCommand) plain() Command {
	c := Command{
		Name: CommandName(w.Name), Summary: w.Summary, Description: w.Description, Examples: examples(w.Examples), Runner: w.Runner,
		DefaultAction: w.DefaultAction,
		Capability:    w.MapsTo.Capability, Hidden: w.Hidden, Permissions: w.Permissions, Confirm: string(w.Confirm),
	}
	for _, a := range w.Aliases {
		c.Aliases = append(c.Aliases, CommandName(a))
	}
	list := w.Actions
	if len(list) == 0 {
		list = w.MapsTo.Actions
	}
	for i := range list {
		c.Actions = append(c.Actions, list[i].plain())
	}
	return c
}

func (w *wireAction) plain() Action {
	a := Action{
		ID: string(w.ID), Aliases: words(w.Aliases), Runner: w.Runner, Summary: w.Summary, Description: cmp.Or(w.Description, w.Summary),
		Argv: words(w.Argv),
		Args: arguments(w.Args), Flags: arguments(w.Flags), TimeoutSec: w.TimeoutSec, Permissions: w.Permissions, Confirm: string(w.Confirm),
		Sensitive: w.Sensitive,
		CacheSec:  w.Cache.TTL, Priority: priority(string(w.Priority)), Stdin: w.Stdin, Output: w.Output, BaseURL: w.BaseURL, DSNRef: w.DSNRef,
		Command: w.Command, Entrypoint: strings.TrimPrefix(w.Entrypoint, "./"), Script: strings.TrimPrefix(w.Script, "./"),
		AgentVisible: w.AgentVisible || w.AgentSnake,
	}
	if len(w.Headers) > 0 {
		a.Headers = make(map[string]string, len(w.Headers))
		for k, v := range w.Headers {
			a.Headers[k] = string(v)
		}
	}
	return a
}

// priority converts the numbers 0 to 3 to the queue's words; other texts are unchanged.
func priority(p string) string {
	if i := slices.Index([]string{"0", "1", "2", "3"}, p); i >= 0 {
		return []string{"low", "normal", "high", "critical"}[i]
	}
	return p
}

func arguments(list []wireArg) []Argument {
	var out []Argument
	for i := range list {
		w := &list[i]
		x := Argument{
			Name: strings.TrimLeft(string(w.Name), "-"), Short: strings.TrimLeft(string(w.Short), "-"), Description: w.Description, Type: w.Type,
			Required: w.Required,
			Choices:  words(w.Choices), Pattern: w.Pattern, TakesValue: w.TakesValue, AllowDash: w.AllowDash, Default: (*string)(w.Default),
		}
		switch x.Type {
		case "int":
			x.Type = "integer"
		case "bool":
			x.Type = "boolean"
		case "str":
			x.Type = "string"
		case "float":
			x.Type = "number"
		}
		out = append(out, x)
	}
	return out
}

// wireLegacy is a command of the older shape.
type wireLegacy struct {
	Name        string    `json:"name"`
	Description string    `json:"description"`
	Entrypoint  string    `json:"entrypoint"`
	Args        []wireArg `json:"args"`
	Examples    []example `json:"examples"`
}

// modern converts a legacy command to the current form: the choices of the first argument
// become actions, or else there is one action "default". A handler becomes a script.
func (w *wireLegacy) modern() (Command, error) {
	if w.Description == "" {
		return Command{}, badCommands("%.60s needs a description", CommandName(w.Name))
	}
	summary, _, _ := strings.Cut(strings.TrimSpace(w.Description), "\n")
	c := Command{
		Name: CommandName(w.Name), Summary: text.CutRunes(summary, maxSummary), Description: w.Description,
		Examples: examples(w.Examples), Runner: "builtin",
	}
	entry := strings.TrimPrefix(w.Entrypoint, "./")
	if entry != "" {
		c.Runner = "exec.entrypoint"
	}
	args := arguments(w.Args)
	if len(args) > 0 && len(args[0].Choices) > 0 {
		for _, choice := range args[0].Choices {
			c.Actions = append(c.Actions, Action{ID: choice, Description: w.Description, Args: args[1:], Entrypoint: entry})
		}
		if args[0].Default != nil && slices.Contains(args[0].Choices, *args[0].Default) {
			c.DefaultAction = *args[0].Default
		}
		return c, nil
	}
	c.Actions = []Action{{ID: "default", Description: w.Description, Args: args, Entrypoint: entry}}
	return c, nil
}
