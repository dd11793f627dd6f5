// Package programs describes the coding CLIs that junctor starts as task agents. Each
// program has one file with one [Program]: its names, how it is found and logged in to,
// its tools, its files, what its start-up dialogs are answered with, and how a session of
// it is planned. Its rule file, which package detect reads, is in the folder rules.
// Adding a program is one such file, one row in [All], one rule file and one recording.
//
// [Build] is a pure function from a [Spawn] to a [Plan]: it reads nothing but its
// argument and changes nothing. Package overlay applies the changes of a plan and undoes
// them. A program receives its settings by its own flags and variables where it has them,
// in the session's folder; the workspace stays as it is, and so does the user's home
// except for what no flag can express.
package programs

import (
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/config"
)

// Name is the canonical name of a program.
type Name string

// The canonical names.
const (
	Claude   Name = "claude"
	Codex    Name = "codex"
	Gemini   Name = "gemini"
	Aider    Name = "aider"
	Pi       Name = "pi"
	OpenCode Name = "opencode"
	Shell    Name = "shell"
	Hermes   Name = "hermes"
)

// ReasonUnknownAgent is the reason of the error for a name that no program has.
const ReasonUnknownAgent = "unknown_agent_type"

// A Program describes one coding CLI. The zero value of a field means that the program
// has no such thing.
type Program struct {
	Name    Name
	Title   string   // as people write it; "" for a program that is never chosen by score
	Aliases []string // accepted names, ignoring case, blanks, "_" and "-"

	Binary  string
	Install string // the command that installs it
	Docs    string // address of its documentation
	Login   string // instructions or command for a login
	Account Account
	// SignIn holds the arguments of the command that logs a user in.
	SignIn []string

	Keys        []Key    // variables that hold an API key or account token
	Credentials []string // further variables that it may log in with
	// OneProvider is set if it works with several model providers and receives the key
	// of the session's provider only.
	OneProvider bool
	BaseURL     string // variable by which its users choose another model API
	// Powerful and Fast are the models for hard and for quick tasks unless the operator
	// sets others; "" leaves the choice to the program.
	Powerful, Fast string

	Strengths     Strengths
	Subscriptions []string // configured subscription providers that are its own

	Tools    []ToolGroup
	Files    []WorkspaceFile // that it reads in a workspace, its memory file first
	Greeting string          // text on its first screen, by which a recording is recognised
	Answers  func(Preset) []Answer
	Protocol Protocol // of structured mode
	// Kinds maps the tool kinds of the Agent Client Protocol to the names in Tools.
	Kinds map[string]string
	// Opens is set if its terminal continues a conversation that it had in structured mode.
	Opens bool
	// FailedHook is the reply to a hook that could not be passed on; "" is {}.
	FailedHook string
	// StrayTurns is set if it runs turns of its own, for example one that finds a title.
	StrayTurns bool

	// ProjectSettings holds the files and folders of a project from which the program runs commands without a
	// question, for example to start MCP servers and hooks.
	ProjectSettings []string

	// Records is the folder below the user's home in which it records conversations, and hooks name
	// the file. "" if it records them in Spawn.KeepDir, or in another form.
	Records string

	DeliverDelay time.Duration // between ready and the first input
	NoServer     bool          // it cannot use an MCP server
	Advice       string        // a line of the memory file that only this program needs

	plan     func(*build) error
	approval func(Preset, *Approval)
}

// Key is a variable with a credential, and the method name of that account.
type Key struct{ Name, Method string }

// Account describes how to detect the account of an installed program, besides its Keys.
type Account struct {
	Ask []string // arguments by which it reports its account
	// Read interprets the answer to Ask. known is false if the answer cannot be read.
	Read func(answer string) (method string, loggedIn, known bool)
	File string // below the user's home; a JSON object that is not empty is an account
	// Needs holds the files below the user's home that Ask reads. The program gets copies of them.
	Needs []string
}

// Answer is an automatic answer to a start-up dialog. It applies to dialogs of its Type whose
// question contains Prompt, and selects a choice by its label. Answers never decide whether a
// tool may be used.
type Answer struct {
	ID     string
	Type   string // of the blocker: trust, onboarding, …
	Prompt string // words of the question in any case; "" fits every question
	Label  string // beginning of the choice's label in any case
	// Keys are pressed if the program waits for keys and offers no choices. Label is then
	// ignored.
	Keys []string
	Once bool // for one dialog of a session
}

// Protocol is the form of a program's structured mode.
type Protocol string

// The protocols.
const (
	StreamJSON Protocol = "stream-json" // Claude Code
	AppServer  Protocol = "app-server"  // Codex
	ACP        Protocol = "acp"         // Agent Client Protocol
	Serve      Protocol = "serve"       // OpenCode's HTTP API
)

// Strengths grades a program's abilities from 0 to 1.
type Strengths struct {
	Implementation, Research, Planning, Ops, Verification, Coordination, RepoWork, FastIteration float64
}

// ToolGroup lists the tools of one category.
type ToolGroup struct {
	Category Category
	Tools    []string
}

// All returns every program, in the order in which lists show them.
func All() []Program {
	return []Program{
		claudeProgram(), codexProgram(), geminiProgram(), qwenProgram(), aiderProgram(), piProgram(), openCodeProgram(),
		shellProgram(),
		{Name: Hermes, Aliases: []string{"hermes"}, Binary: "hermes"},
	}
}

// Of returns the description of a program. For an unknown name only Name and Binary are set.
func Of(name Name) Program {
	for _, p := range All() {
		if p.Name == name {
			return p
		}
	}
	return Program{Name: name, Binary: string(name)}
}

// Choices lists the programs that can be started and more values, for an error message: "a, b
// or c".
func Choices(more ...string) string {
	var names []string
	for _, p := range All() {
		if p.Startable() {
			names = append(names, string(p.Name))
		}
	}
	return anyOf(append(names, more...))
}

// Opened lists the programs whose terminal continues conversations of structured mode: "a, b or c".
func Opened() string {
	var names []string
	for _, p := range All() {
		if p.Opens {
			names = append(names, string(p.Name))
		}
	}
	return anyOf(names)
}

// Scored lists the programs that can be chosen by score, for an error message: "a, b or c".
func Scored() string {
	var names []string
	for _, p := range All() {
		if p.Title != "" {
			names = append(names, string(p.Name))
		}
	}
	return anyOf(names)
}

func anyOf(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// Startable reports whether a session of the program can be started.
func (p *Program) Startable() bool { return p.plan != nil }

// Normalise returns the canonical name for any accepted one. ok is false for an unknown
// name.
func Normalise(text string) (name Name, ok bool) {
	for _, p := range All() {
		if slices.ContainsFunc(p.Aliases, func(alias string) bool { return config.SameName(alias, text) }) {
			return p.Name, true
		}
	}
	return "", false
}

// Configurable returns the programs that the configuration may name.
func Configurable() (list []config.Program) {
	for _, p := range All() {
		if !p.Startable() {
			continue
		}
		named := config.Program{Name: string(p.Name), Aliases: p.Aliases}
		for _, k := range p.Keys {
			named.Accounts = append(named.Accounts, k.Name)
		}
		list = append(list, named)
	}
	return list
}

// apiKeys returns variables that each hold an API key.
func apiKeys(names ...string) []Key {
	keys := make([]Key, len(names))
	for i, n := range names {
		keys[i] = Key{n, "api_key"}
	}
	return keys
}
