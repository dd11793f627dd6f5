package command

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Router finds the command of a message. It is immutable and safe for concurrent
// use: put it behind an atomic pointer and replace it when the table changes.
type Router struct {
	names    map[string]*entry   // registered names
	aliases  map[string]*entry   // aliases that exactly one command declares and no name hides
	declared map[string][]*entry // commands of extensions, by declared name
	reserved func(string) bool
	listing  []Entry
	visible  []string // names of the listing, without the slash
	problems []string
}

type entry struct {
	*Command
	actions map[string]*compiled // by id and alias
	only    *compiled            // the default action, or nil
}

// New builds a router. A faulty command is left out and listed in [Router.Problems]; the others
// still work. The table must not be changed afterwards.
func New(t Table) *Router {
	r := &Router{
		names: make(map[string]*entry), aliases: make(map[string]*entry), declared: make(map[string][]*entry),
		reserved: t.Reserved,
	}
	if r.reserved == nil {
		r.reserved = func(string) bool { return false }
	}
	commands := make([]*Command, len(t.Commands))
	for i := range t.Commands {
		commands[i] = &t.Commands[i]
	}
	// Builtins come first, so that their names cannot be taken. The others have a fixed order,
	// so that the result does not depend on the table's.
	slices.SortStableFunc(commands, func(a, b *Command) int {
		if a.Builtin != b.Builtin {
			return map[bool]int{true: -1, false: 1}[a.Builtin]
		}
		return strings.Compare(a.Name+"\x00"+a.Extension, b.Name+"\x00"+b.Extension)
	})
	twice := make(map[string]bool)
	for i, c := range commands {
		if !c.Builtin && i+1 < len(commands) && commands[i+1].Name == c.Name {
			twice[c.Name] = true // the caller registers each name once; a duplicate disables all commands with the name
		}
	}
	for _, c := range commands {
		if err := r.add(c, twice); err != nil {
			r.problems = append(r.problems, fmt.Sprintf("/%s of %s is left out: %v", c.Name, c.owner(), err))
		}
	}
	r.addAliases()
	r.list()
	return r
}

func (c *Command) owner() string {
	if c.Builtin {
		return "junctor"
	}
	return c.Extension
}

func (c *Command) wanted() string {
	if c.Declared == "" {
		return c.Name
	}
	return strings.ToLower(strings.TrimPrefix(c.Declared, "/"))
}

// add compiles and registers a command, or returns the reason why it is faulty.
func (r *Router) add(c *Command, twice map[string]bool) error {
	switch {
	case !word(c.Name) || c.Name != strings.ToLower(c.Name) || len(c.Name) > maxName:
		return fmt.Errorf("%q is not a name of a command", c.Name)
	case r.names[c.Name] != nil:
		return fmt.Errorf("the name belongs to %s", r.names[c.Name].owner())
	case !c.Builtin && twice[c.Name]:
		return fmt.Errorf("several commands have the name")
	case !c.Builtin && c.Extension == "":
		return fmt.Errorf("it belongs to no extension")
	}
	e := &entry{Command: c}
	if err := e.compile(); err != nil {
		return err
	}
	r.names[c.Name] = e
	if !c.Builtin {
		r.declared[c.wanted()] = append(r.declared[c.wanted()], e)
	}
	return nil
}

// addAliases registers each alias that exactly one command declares and that no name hides. An
// alias of several commands becomes ambiguous.
func (r *Router) addAliases() {
	asked := make(map[string][]*entry)
	for _, name := range slices.Sorted(maps.Keys(r.names)) {
		e := r.names[name]
		for _, alias := range e.Aliases {
			if a := strings.ToLower(strings.TrimPrefix(alias, "/")); word(a) && !slices.Contains(asked[a], e) {
				asked[a] = append(asked[a], e)
			}
		}
	}
	for alias, who := range asked {
		switch {
		case r.names[alias] != nil, len(r.declared[alias]) > 0 && !slices.Contains(r.declared[alias], who[0]):
		case len(who) == 1 && (who[0].Builtin || !r.reserved(alias)):
			r.aliases[alias] = who[0]
		case len(who) > 1:
			r.declared[alias] = append(r.declared[alias], who...)
		}
	}
}

// compile prepares the actions of a command and sets its default action.
func (e *entry) compile() error {
	if len(e.Actions) == 0 || len(e.Actions) > maxActions {
		return fmt.Errorf("it has %d actions; 1 to %d are allowed", len(e.Actions), maxActions)
	}
	e.actions = make(map[string]*compiled, len(e.Actions))
	var all []*compiled
	for i := range e.Actions {
		a := &e.Actions[i]
		if !word(a.ID) || len(a.ID) > 64 {
			return fmt.Errorf("%q is not an id of an action", a.ID)
		}
		if e.actions[a.ID] != nil {
			return fmt.Errorf("two actions have the id %s", a.ID)
		}
		c, err := compileAction(a)
		if err != nil {
			return fmt.Errorf("action %s: %w", a.ID, err)
		}
		e.actions[a.ID] = c
		all = append(all, c)
	}
	for _, c := range all {
		for _, alias := range c.Aliases {
			if e.actions[alias] == nil && word(alias) {
				e.actions[alias] = c
			}
		}
	}
	switch {
	case e.DefaultAction != "":
		if e.only = e.actions[e.DefaultAction]; e.only == nil {
			return fmt.Errorf("its default action %q is not declared", e.DefaultAction)
		}
	case e.actions["default"] != nil:
		e.only = e.actions["default"]
	case len(all) == 1:
		e.only = all[0]
	}
	return nil
}

// compileAction checks and prepares the args and flags of an action.
func compileAction(a *Action) (*compiled, error) {
	if len(a.Args) > maxParams || len(a.Flags) > maxParams {
		return nil, fmt.Errorf("it has more than %d arguments or flags", maxParams)
	}
	c := &compiled{Action: a, flags: make(map[string]*checkedFlag), short: make(map[string]*checkedFlag)}
	for i := range a.Args {
		arg, err := check(&a.Args[i], a.Sensitive)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(c.args, func(o checked) bool { return o.Name == arg.Name }) {
			return nil, fmt.Errorf("two arguments are called %s", arg.Name)
		}
		c.args = append(c.args, arg)
	}
	for i := range a.Flags {
		f := &a.Flags[i]
		param, err := check(&f.Arg, a.Sensitive)
		if err != nil {
			return nil, err
		}
		flag := &checkedFlag{param, f}
		if c.flags[f.Name] != nil {
			return nil, fmt.Errorf("two flags are called %s", f.Name)
		}
		c.flags[f.Name] = flag
		if f.Short == "" {
			continue
		}
		if len(f.Short) != 1 || !letter(f.Short[0]) || c.short[f.Short] != nil {
			return nil, fmt.Errorf("flag %s: %q is not a short form, or is taken", f.Name, f.Short)
		}
		c.short[f.Short] = flag
	}
	return c, nil
}

// check validates the declaration of an arg or flag and compiles its pattern.
func check(a *Arg, sensitive []string) (checked, error) {
	c := checked{Arg: a, sensitive: slices.Contains(sensitive, a.Name)}
	if !word(a.Name) {
		return c, fmt.Errorf("%q is not a name of an argument or flag", a.Name)
	}
	if !slices.Contains([]string{"", "string", "integer", "number", "boolean"}, a.Type) {
		return c, fmt.Errorf("%s has the unknown type %q: use string, integer, number or boolean", a.Name, a.Type)
	}
	if a.Pattern != "" {
		if len(a.Pattern) > maxPattern {
			return c, fmt.Errorf("the pattern of %s is longer than %d bytes", a.Name, maxPattern)
		}
		re, err := regexp.Compile(a.Pattern)
		if err != nil {
			return c, fmt.Errorf("the pattern of %s: %w", a.Name, err)
		}
		c.pattern = re
	}
	if a.Default != "" {
		if wrong := c.fault(a.Default); wrong != "" {
			return c, fmt.Errorf("the default of %s %s", a.Name, wrong)
		}
	}
	return c, nil
}

// fault returns the end of a sentence that states why a value does not match its declaration, or
// "" if it matches. It never contains the value, which may be sensitive.
func (c *checked) fault(value string) string {
	ok := true
	switch c.Type {
	case "integer":
		_, err := strconv.ParseInt(value, 10, 64)
		ok = err == nil
	case "number":
		f, err := strconv.ParseFloat(value, 64)
		ok = err == nil && f-f == 0 // neither infinite nor not a number
	case "boolean":
		ok = value == "true" || value == "false"
	}
	switch {
	case !ok && c.Type == "boolean":
		return "must be true or false"
	case !ok:
		return "must be of type " + c.Type
	case len(c.Choices) > 0 && !slices.Contains(c.Choices, value):
		return "must be one of " + strings.Join(c.Choices, ", ")
	case c.pattern != nil && !c.pattern.MatchString(value):
		return "must match the pattern " + c.Pattern
	}
	return ""
}

// Problems returns a sentence for each command of the table that was left out.
func (r *Router) Problems() []string { return slices.Clone(r.problems) }
