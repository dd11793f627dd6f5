package operator

import (
	"cmp"
	"strings"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
)

// Match is a line of text parsed as a command.
type Match struct {
	Runtime     string
	Name        string // as registered
	Args        string
	RequireAuth bool // checked by the caller, after matching
	Command     *declaration.Command
}

// Match returns the command of a line and reports whether there is one. /name:ext.id
// selects the extension. A line with arguments does not match a command that accepts
// none. Arguments are cut at 1 MiB.
func (c *Catalog) Match(line string) (Match, bool) {
	rest, found := strings.CutPrefix(strings.TrimSpace(line), "/")
	if !found {
		return Match{}, false
	}
	word, args := rest, ""
	if i := strings.IndexAny(rest, " \t\n"); i >= 0 {
		word, args = rest[:i], rest[i:]
	}
	word, _, _ = strings.Cut(word, "@")
	cmd := c.lookup(strings.ToLower(word))
	if cmd == nil {
		return Match{}, false
	}
	args = clean(args)
	if args != "" && !cmd.AcceptsArgs {
		return Match{}, false
	}
	return Match{
		Runtime: cmd.runtime, Name: cmd.name, Args: args, Command: cmd.Command,
		RequireAuth: cmd.RequireAuth == nil || *cmd.RequireAuth,
	}, true
}

// lookup returns the command with that registered name, or, for name:extension, the only
// command that the extension declares under name; otherwise nil.
func (c *Catalog) lookup(word string) *command {
	if cmd := c.commands[word]; cmd != nil {
		return cmd
	}
	name, ext, found := strings.Cut(word, ":")
	if !found {
		return nil
	}
	var only *command
	for _, cmd := range c.commands {
		if cmd.wanted != name || !strings.EqualFold(cmd.ext.ID, ext) {
			continue
		}
		if only != nil {
			return nil // the extension declares it twice: the longer name is needed
		}
		only = cmd
	}
	return only
}

// clean removes control characters and cuts to maxArgs.
func clean(args string) string {
	if len(args) > 4*maxArgs { // avoids processing text that is cut anyway
		args = args[:4*maxArgs]
	}
	args = strings.TrimSpace(text.StripControl(args))
	if len(args) > maxArgs {
		args = strings.TrimSpace(text.StripControl(args[:maxArgs]))
	}
	return args
}

// Native is a command as one channel provider lists it.
type Native struct {
	Name        string `json:"name"`
	Command     string `json:"command"` // runtime id
	Description string `json:"description,omitempty"`
	AcceptsArgs bool   `json:"acceptsArgs"`
}

// Natives returns the commands under their native names for a provider, ordered by
// command name. A command whose native name another one declares or has as registered
// name keeps its registered name.
func (c *Catalog) Natives(provider string) []Native {
	names := c.Names()
	asked := make(map[string]int)
	native := func(name string) string {
		cmd := c.commands[name]
		return cmp.Or(cmd.NativeNames[provider], cmd.NativeNames["default"], name)
	}
	for _, name := range names {
		asked[native(name)]++
	}
	out := make([]Native, 0, len(names))
	for _, name := range names {
		cmd, shown := c.commands[name], native(name)
		if _, registered := c.commands[shown]; shown != name && (asked[shown] > 1 || registered) {
			shown = name
		}
		out = append(out, Native{Name: shown, Command: cmd.runtime, Description: cmd.Description, AcceptsArgs: cmd.AcceptsArgs})
	}
	return out
}
