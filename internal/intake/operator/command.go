package operator

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/junctor-run/junctor/internal/catalog"
	"github.com/junctor-run/junctor/internal/intake/manifest"
)

type command struct {
	*manifest.Command
	runtime string
	ext     *manifest.Extension
	name    string // registered
}

// reservedCommands cannot be taken by an extension (catalog spec, section 17.3).
func reservedCommands() []string {
	return strings.Fields("help commands status whoami context stop restart reset new compact config debug allowlist activation skill " +
		"subagents model models queue send bash exec think verbose reasoning elevated usage catalog")
}

// ReservedCommand reports whether extensions cannot have the name.
func ReservedCommand(name string) bool { return slices.Contains(reservedCommands(), lower(name)) }

func validCommand(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := 'a' <= c && c <= 'z'
		if !letter && (i == 0 || !('0' <= c && c <= '9' || c == '_' || c == '-')) {
			return false
		}
	}
	return name != ""
}

// register names the commands. Of several that want one name nobody gets it;
// each is registered as <label>-<name>, or with the full extension id where
// labels are equal (decision R18).
func (c *Catalog) register(list []*command) {
	wanted := make(map[string][]*command)
	for _, cmd := range list {
		name := lower(cmd.Name)
		switch {
		case !validCommand(name):
			c.rejected[cmd.runtime] = "invalid_command"
		case ReservedCommand(name):
			c.rejected[cmd.runtime] = "reserved_command"
		default:
			wanted[name] = append(wanted[name], cmd)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		group := wanted[name]
		if len(group) == 1 {
			group[0].name = name
			c.commands[name] = group[0]
			continue
		}
		record := catalog.Conflict{Class: "operator_command", Key: name, Resolution: "labelled", Remediation: "use one of the longer names, or /" + name + ":<extension id>"}
		labels := make(map[string]int)
		for _, cmd := range group {
			labels[prefix(label(cmd.ext))]++
			record.Members = append(record.Members, cmd.runtime)
		}
		slices.Sort(record.Members)
		c.conflicts = append(c.conflicts, record)
		for _, cmd := range group {
			long := prefix(label(cmd.ext))
			if labels[long] > 1 {
				long = prefix(cmd.ext.ID)
			}
			cmd.name = long + "-" + name
			if _, taken := c.commands[cmd.name]; taken || len(wanted[cmd.name]) > 0 {
				cmd.name = prefix(strings.ReplaceAll(cmd.runtime, "/", "-")) + "-" + name
			}
			c.commands[cmd.name] = cmd
		}
	}
}

func label(x *manifest.Extension) string {
	if x.Label != "" {
		return x.Label
	}
	return x.ID[strings.LastIndexByte(x.ID, '.')+1:]
}

func prefix(s string) string { return strings.ToLower(strings.ReplaceAll(s, ".", "-")) }

// Names returns the registered names, sorted.
func (c *Catalog) Names() []string { return slices.Sorted(maps.Keys(c.commands)) }

// Match is a line of text that is a command.
type Match struct {
	Runtime     string
	Name        string
	Args        string
	RequireAuth bool
	Command     *manifest.Command
}

// maxArgs bounds what a channel hands to a command.
const maxArgs = 4096

// Match finds the command of a line (catalog spec, section 17.4). /name:ext.id
// names the extension. A command that takes no arguments does not match a line
// that has some: it is ordinary text then.
func (c *Catalog) Match(line string) (Match, bool) {
	line = strings.TrimSpace(line)
	rest, found := strings.CutPrefix(line, "/")
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

func (c *Catalog) lookup(word string) *command {
	if cmd := c.commands[word]; cmd != nil {
		return cmd
	}
	name, ext, found := strings.Cut(word, ":")
	if !found {
		return nil
	}
	for _, cmd := range c.commands {
		if lower(cmd.Name) == name && strings.EqualFold(cmd.ext.ID, ext) {
			return cmd
		}
	}
	return nil
}

// clean drops control characters, before and after the cut.
func clean(args string) string {
	strip := func(s string) string {
		return strings.Map(func(r rune) rune {
			if unicode.IsControl(r) && r != '\t' && r != '\n' || r == unicode.ReplacementChar {
				return -1
			}
			return r
		}, s)
	}
	args = strings.TrimSpace(strip(args))
	if len(args) > maxArgs {
		args = strings.TrimSpace(strip(args[:maxArgs]))
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
// command name.
func (c *Catalog) Natives(provider string) []Native {
	out := make([]Native, 0, len(c.commands))
	for _, name := range c.Names() {
		cmd := c.commands[name]
		out = append(out, Native{
			Name: cmp.Or(cmd.NativeNames[provider], cmd.NativeNames["default"], name), Command: cmd.runtime,
			Description: cmd.Description, AcceptsArgs: cmd.AcceptsArgs,
		})
	}
	return out
}
