package operator

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
)

type command struct {
	*declaration.Command
	runtime      string
	ext          *declaration.Extension
	availability string
	wanted       string // declared, in lower case
	name         string // registered
	level        int    // of detail in the name; above 0 if several declare it
}

// reservedCommands returns the names that extensions cannot use.
func reservedCommands() []string {
	return strings.Fields("help commands status whoami context stop restart reset new compact config debug allowlist activation skill " +
		"subagents model models queue send bash exec think verbose reasoning elevated usage catalog")
}

// ReservedCommand reports whether a command name is reserved for the server.
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

// register assigns names to the commands. If several declare one name, none receives it; each is
// registered under a longer one: <label>-<name>, with the full extension id if that is not unique,
// then with the contribution's. The result does not depend on the order of the list.
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
			cmd.wanted = name
			wanted[name] = append(wanted[name], cmd)
		}
	}
	var contested []*command
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		group := wanted[name]
		if len(group) == 1 {
			group[0].name = name
			c.commands[name] = group[0]
			continue
		}
		record := catalog.Conflict{
			Class: "operator_command", Key: name, Resolution: "labelled",
			Remediation: "use one of the longer names, or /" + name + ":<extension id>",
		}
		for _, cmd := range group {
			record.Members = append(record.Members, cmd.runtime)
		}
		slices.Sort(record.Members)
		c.conflicts = append(c.conflicts, record)
		contested = append(contested, group...)
	}
	for escalated := true; escalated; {
		escalated = false
		holders := make(map[string][]*command)
		for _, cmd := range contested {
			cmd.name = cmd.long()
			holders[cmd.name] = append(holders[cmd.name], cmd)
		}
		for name, list := range holders {
			if len(list) == 1 && len(wanted[name]) == 0 && !ReservedCommand(name) {
				continue
			}
			for _, cmd := range list {
				if cmd.level < lastLevel {
					cmd.level++
					escalated = true
				}
			}
		}
	}
	for _, cmd := range contested {
		c.commands[cmd.name] = cmd
	}
}

const lastLevel = 3

// long returns the command's name at its level of detail.
func (cmd *command) long() string {
	contribution := cmd.runtime[strings.IndexByte(cmd.runtime, '/')+1:]
	switch cmd.level {
	case 0:
		return prefix(label(cmd.ext)) + "-" + cmd.wanted
	case 1:
		return prefix(cmd.ext.ID) + "-" + cmd.wanted
	case 2:
		return prefix(cmd.ext.ID+"-"+contribution) + "-" + cmd.wanted
	}
	sum := sha256.Sum256([]byte(cmd.runtime)) // the ids differ in punctuation only
	return prefix(cmd.ext.ID+"-"+contribution) + "-" + cmd.wanted + "-" + hex.EncodeToString(sum[:4])
}

func label(x *declaration.Extension) string {
	if x.Label != "" {
		return x.Label
	}
	return x.ID[strings.LastIndexByte(x.ID, '.')+1:]
}

// prefix converts a label or an id to the first part of a command name.
func prefix(s string) string {
	b := []byte(strings.ToLower(s))
	for i, c := range b {
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-') {
			b[i] = '-'
		}
	}
	if len(b) == 0 || b[0] < 'a' || b[0] > 'z' {
		return "x" + string(b) // a name must begin with a letter
	}
	return string(b)
}

// Names returns the registered names, sorted.
func (c *Catalog) Names() []string { return slices.Sorted(maps.Keys(c.commands)) }
