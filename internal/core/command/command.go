// Package command parses slash commands: it decides whether a message is a command, splits it
// into words, finds the action and its flags, and checks the arguments against the action's
// declaration. It does no I/O. A [Router] is built from a table of registered commands, is
// immutable, and is replaced as a whole when extensions change.
//
// A [Template] produces a program's arguments from a route. User input is never expanded,
// interpreted by a shell or joined: a template is split into items before values are inserted,
// each value is inserted once, and an item stays one word whatever the value contains. Only
// an item that consists of {args} becomes one word per argument.
package command

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

const op = "command"

// Table holds the commands and the reserved names of a router.
type Table struct {
	Commands []Command
	// Reserved reports whether a name is reserved for junctor, so that the error for it is
	// clearer than "unknown". If nil, no name is reserved.
	Reserved func(name string) bool
}

// Command is one command under its registered name.
type Command struct {
	Name          string // as registered, lower case, without the slash
	Declared      string // as the extension declares it; "" means Name
	Aliases       []string
	Builtin       bool // junctor's own; takes precedence over extensions
	Extension     string
	ExtensionName string
	Enabled       bool // always true for a builtin
	Hidden        bool // works, but is neither listed nor suggested
	Capability    string
	Summary       string
	Description   string
	Examples      []Example
	DefaultAction string
	Actions       []Action
	Permissions   []string // of command, capability and manifest together
	Generation    string   // of the registry, or the tree hash; part of a result's cache key
	// Usage is the path of the extension's usage document, which callers load on demand.
	Usage string
}

// Example is an example command line with its purpose.
type Example struct {
	Command     string `json:"command"`
	Description string `json:"description,omitempty"`
}

// Action is one action of a command.
type Action struct {
	ID          string
	Aliases     []string
	Runner      string // "exec.curl"
	Description string
	Args        []Arg
	Flags       []Flag
	Sensitive   []string // names of args and flags that are never recorded
	Argv        []string // template, see [CompileTemplate]; nil means {action} and {args}
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

// Output declares the format and the handling of an action's output.
type Output struct {
	Format   string // text, json, binary
	MaxBytes int64
	Store    bool
}

// Arg is one positional argument. Its index in the list is its position.
type Arg struct {
	Name        string
	Description string
	Required    bool
	Default     string
	Choices     []string
	Pattern     string // regular expression that matches anywhere in the value, as in JSON Schema
	Type        string // string (default), integer, number, boolean
	AllowDash   bool   // may begin with a hyphen at the beginning of a word
}

// Flag is one declared flag.
type Flag struct {
	Arg
	Short      string // one letter, for -x
	TakesValue bool
	Repeat     bool // all occurrences are used, not only the last
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
	// Args are the words behind the action in order, including flags.
	Args []string
	// Positional are the words that are neither flags nor values of flags.
	Positional []string
	// Flags holds the flags among Args, and defaults, by name: a string, a bool, or a
	// []string for a flag that repeats.
	Flags map[string]any
	// Values holds the declared args by name, including defaults.
	Values map[string]string
	Raw    string // the text behind command and action, as typed
	Mode   Mode

	secret []bool // of Args
}

// Permissions returns the sorted union of the permissions that the action and its command declare.
func (r *Route) Permissions() []string {
	all := slices.Concat(r.Command.Permissions, r.Action.Permissions)
	slices.Sort(all)
	return slices.Compact(all)
}

// Sensitive reports whether any argument must not be recorded.
func (r *Route) Sensitive() bool { return slices.Contains(r.secret, true) }

// SensitiveArg reports whether the i-th of Args must not be recorded.
func (r *Route) SensitiveArg(i int) bool { return i < len(r.secret) && r.secret[i] }

// Mask replaces values that must not be recorded.
const Mask = "•••"

// RecordableArgs returns the args with sensitive ones replaced by [Mask].
func (r *Route) RecordableArgs() []string {
	out := slices.Clone(r.Args)
	for i := range out {
		if r.secret[i] {
			out[i] = Mask
		}
	}
	return out
}

// compiled is an action prepared by New, so that routing a message does not compile patterns.
type compiled struct {
	*Action
	args  []checked
	flags map[string]*checkedFlag
	short map[string]*checkedFlag
}

// takesMore reports whether the template uses words beyond the declared arguments.
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
