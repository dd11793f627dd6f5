// Package command parses slash commands: whether a message is a command, its
// words, the action it names, its flags, and whether the arguments match the
// action's declaration. It is pure. A [Router] is built from a table of registered
// commands, is immutable, and is replaced as a whole when extensions change.
//
// A [Template] makes a program's arguments from a route. User input is never
// expanded, interpreted by a shell or joined: a template is split into items before
// any value is known, each value is inserted once, and an item is one word whatever
// the value holds. Only an item that is {args} alone becomes one word per argument.
package command

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

const op = "command"

// Table is what a router is built from.
type Table struct {
	Commands []Command
	// Reserved reports whether a name is kept for junctor, so that its absence is
	// explained better than by "unknown". nil: no name is.
	Reserved func(name string) bool
}

// Command is one command under its registered name.
type Command struct {
	Name          string // as registered, lower case, without the slash
	Declared      string // as the extension declares it; "" means Name
	Aliases       []string
	Builtin       bool // junctor's own: wins over everybody's
	Extension     string
	ExtensionName string
	Enabled       bool // always, for a builtin
	Hidden        bool // works, but is neither listed nor suggested
	Capability    string
	Summary       string
	Description   string
	Examples      []Example
	DefaultAction string
	Actions       []Action
	Permissions   []string // of command, capability and manifest together
	Generation    string   // of the registry, or the tree hash; part of a result's cache key
	// Usage names the extension's usage document, which callers load on demand; it is not
	// read here.
	Usage string
}

// Example is a line to type and what it is good for.
type Example struct {
	Command     string `json:"command"`
	Description string `json:"description,omitempty"`
}

// Action is one thing a command can do.
type Action struct {
	ID          string
	Aliases     []string
	Runner      string // "exec.curl"
	Description string
	Args        []Arg
	Flags       []Flag
	Sensitive   []string // names of args and flags that are never recorded
	Argv        []string // template, see [CompileTemplate]; nil: action, then args
	Template    string   // the one of the manifest's allowed_commands, for exec.shell
	Script      string   // the file of the package that is run, for scripts and entrypoints
	SHA256      string   // of Script, in lower-case hex
	Permissions []string
	Confirm     string // never, first, always
	Timeout     time.Duration
	Priority    string
	Cache       time.Duration
	Stdin       string
	Output      Output
	BaseURL     string
	Headers     map[string]string
	DSNRef      string
	// AgentVisible reports that the action is an agent's tool too.
	AgentVisible bool
}

// Output states what becomes of an action's output.
type Output struct {
	Format   string // text, json, binary
	MaxBytes int64
	Store    bool
}

// Arg is one positional argument, by its place in the list.
type Arg struct {
	Name        string
	Description string
	Required    bool
	Default     string
	Choices     []string
	Pattern     string // found anywhere in the value, as in JSON Schema
	Type        string // string (default), integer, number, boolean
	AllowDash   bool   // may begin with a hyphen where it stands alone in argv
}

// Flag is one declared flag.
type Flag struct {
	Arg
	Short      string // one letter, for -x
	TakesValue bool
	Repeat     bool // every occurrence counts, not the last alone
}

// Builtin describes a command of junctor's own.
func Builtin(name, summary string, actions ...Action) Command {
	return Command{Name: name, Builtin: true, Enabled: true, Summary: summary, Actions: actions}
}

// Route is the action that a message runs, with its arguments. It shares the router's
// memory and must not be changed.
type Route struct {
	Command *Command
	Action  *Action
	// Args are the words as typed, in order, flags included.
	Args []string
	// Positional are the words that are neither flags nor values of flags.
	Positional []string
	// Flags is a view of the flags among Args, and of defaults: a string, a bool,
	// or a []string for a flag that repeats.
	Flags map[string]any
	// Values has the declared args by name, defaults included.
	Values map[string]string
	Raw    string // the text behind command and action, as typed
	Mode   Mode

	secret []bool // of Args
}

// Permissions is the union of what the action and all that hold it declare,
// sorted.
func (r *Route) Permissions() []string {
	all := slices.Concat(r.Command.Permissions, r.Action.Permissions)
	slices.Sort(all)
	return slices.Compact(all)
}

// Sensitive reports whether any argument must not be recorded.
func (r *Route) Sensitive() bool { return slices.Contains(r.secret, true) }

// SensitiveArg reports whether the i-th of Args must not be recorded.
func (r *Route) SensitiveArg(i int) bool { return i < len(r.secret) && r.secret[i] }

// Mask stands for what must not be recorded.
const Mask = "•••"

// RecordableArgs are the args with what is sensitive replaced by dots.
func (r *Route) RecordableArgs() []string {
	out := slices.Clone(r.Args)
	for i := range out {
		if r.secret[i] {
			out[i] = Mask
		}
	}
	return out
}

// compiled is what New makes of an action, so that a message costs no compiling.
type compiled struct {
	*Action
	args  []checked
	flags map[string]*checkedFlag
	short map[string]*checkedFlag
}

// takesMore reports whether words beyond the declared arguments go anywhere.
func (a *compiled) takesMore() bool {
	return a.Argv == nil || slices.ContainsFunc(a.Argv, func(item string) bool {
		return strings.Contains(item, "{args}") || strings.Contains(item, "{raw_args}")
	})
}

type checked struct {
	*Arg
	pattern   *regexp.Regexp
	sensitive bool
}

type checkedFlag struct {
	checked
	flag *Flag
}
