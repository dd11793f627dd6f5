package operator

import (
	"cmp"
	"strings"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
)

// Match is a line of text that is a command.
type Match struct {
	Runtime     string
	Name        string // as registered
	Args        string
	RequireAuth bool // checked by the caller, after matching
	Command     *declaration.Command
}

const maxArgs = 1 << 20

// Match finds the command of a line. /name:ext.id names the extension. A
// command that takes no arguments does not match a line that has some: it is
// ordinary text then. Arguments are cut at 1 MiB.
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

// lookup finds a registered name, or the one command that the extension named
// behind the colon declares by that name.
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
			return nil // the extension declares it twice: ask for the longer name
		}
		only = cmd
	}
	return only
}

// clean drops control characters, before and after the cut.
func clean(args string) string {
	if len(args) > 4*maxArgs { // most of it can only be dropped
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

// Natives lists the commands under their native names for a provider, ordered by
// command name. Commands that ask for one native name, or for another's
// registered one, keep their registered names there.
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
