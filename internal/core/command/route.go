package command

import (
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"

	"github.com/junctor-run/junctor/internal/core/command/fault"
)

// Route parses a message and finds its action. is reports whether the message is a command; if
// not, it is chat (see [Chat]). For a command that cannot run, it returns an error for the
// user, with code and reason:
//
//   - unknown_capability, unknown_command: with near matches in the details
//   - unavailable, extension_disabled: with what enables it
//   - denied, reserved_command: the name is reserved for junctor
//   - invalid_input, ambiguous_alias: with the names to choose from
//   - invalid_input, invalid_args (or invalid_input): with usage as the hint
//   - too_large, args_too_long
//
// It does no I/O and takes no lock.
func (r *Router) Route(text string) (route *Route, is bool, err error) {
	line, is := Parse(text, func(name string) bool { return r.names[name] != nil })
	if !is {
		return nil, false, nil
	}
	e, err := r.find(line)
	if err != nil {
		return nil, true, err
	}
	if len(text) > MaxMessage {
		return nil, true, tooLarge("the message has %d bytes; a command may have %d", len(text), MaxMessage)
	}
	tokens, mode, err := Lex(line.Rest)
	if err != nil {
		return nil, true, err
	}
	a, tokens, err := e.choose(tokens)
	if err != nil {
		return nil, true, err
	}
	route = &Route{Command: e.Command, Action: a.Action, Mode: mode}
	if len(tokens) > 0 {
		route.Raw = line.Rest[tokens[0].Start:tokens[len(tokens)-1].End]
	}
	route.Args = make([]string, len(tokens))
	for i, t := range tokens {
		route.Args[i] = t.Text
	}
	if err := route.read(a); err != nil {
		err.Hint = usage(e.Command, a.Action) + example(e.Command)
		return nil, true, err
	}
	return route, true, nil
}

// find returns the enabled command of a line, by name or alias.
func (r *Router) find(line Line) (*entry, error) {
	if line.Extension != "" {
		return r.findOf(line)
	}
	e := r.names[line.Name]
	if e == nil {
		e = r.aliases[line.Name]
	}
	switch {
	case e != nil && !e.Enabled:
		return nil, disabled(line.Name, e)
	case e != nil:
		return e, nil
	case r.reserved(line.Name):
		return nil, reserved(line.Name)
	case len(r.declared[line.Name]) > 0:
		return nil, ambiguous(line.Name, r.declared[line.Name])
	}
	return nil, r.unknown(line.Name)
}

// findOf returns the enabled command of /name:ext.id, by the declared or the registered name.
func (r *Router) findOf(line Line) (*entry, error) {
	var found []*entry
	candidates := r.declared[line.Name]
	if e := r.names[line.Name]; e != nil && !slices.Contains(candidates, e) {
		candidates = append(slices.Clip(candidates), e)
	}
	for _, e := range candidates {
		if !e.Builtin && strings.EqualFold(e.Extension, line.Extension) {
			found = append(found, e)
		}
	}
	switch {
	case len(found) == 0:
		return nil, r.unknown(line.Name + ":" + line.Extension)
	case len(found) > 1:
		return nil, ambiguous(line.Name, found)
	case !found[0].Enabled:
		return nil, disabled(line.Name, found[0])
	}
	return found[0], nil
}

// choose returns the action and its words: the action that the first word names, otherwise the
// default action with all words. Without a default it returns invalid_args.
func (e *entry) choose(tokens []Token) (*compiled, []Token, error) {
	if len(tokens) > 0 && word(tokens[0].Text) {
		if a := e.actions[tokens[0].Text]; a != nil {
			return a, tokens[1:], nil
		}
	}
	if e.only != nil {
		return e.only, tokens, nil
	}
	ids := make([]string, 0, len(e.Actions))
	for _, a := range e.Actions {
		ids = append(ids, a.ID)
	}
	text := "say what /" + e.Name + " is to do"
	var near []string
	if len(tokens) > 0 {
		text = "/" + e.Name + " has no action of that name"
		near = Nearest(tokens[0].Text, ids)
	}
	err := fault.InvalidArgs(usage(e.Command, nil)+example(e.Command), "%s: its actions are %s", text, strings.Join(ids, ", ")).
		Detail("actions", ids)
	if len(near) > 0 {
		err.Message += "; did you mean " + strings.Join(near, " or ") + "?"
		err = err.Detail("did_you_mean", near)
	}
	return nil, nil, err
}

// read sets Flags, Positional, Values and the sensitive words from Args, and checks them against
// the declaration.
func (r *Route) read(a *compiled) *capability.Error {
	r.secret = make([]bool, len(r.Args))
	r.Flags = make(map[string]any)
	r.Values = make(map[string]string, len(a.args))
	var places []int // indexes of the positional words
	for i := 0; i < len(r.Args); i++ {
		if r.Args[i] == "--" {
			for i++; i < len(r.Args); i++ {
				places = append(places, i)
			}
			break
		}
		used, err := r.flag(a, i)
		if err != nil {
			return err
		}
		if used == 0 {
			places = append(places, i)
		} else {
			i += used - 1
		}
	}
	if most := len(a.args); most > 0 && len(places) > most && !a.takesMore() {
		return fault.InvalidArgs("", "%d more words were given than it takes", len(places)-most)
	}
	for n, i := range places {
		r.Positional = append(r.Positional, r.Args[i])
		if n < len(a.args) {
			r.secret[i] = r.secret[i] || a.args[n].sensitive
		}
	}
	for n := range a.args {
		arg := &a.args[n]
		value, given := arg.Default, arg.Default != ""
		if n < len(r.Positional) {
			value, given = r.Positional[n], true
		}
		if !given {
			if arg.Required {
				return fault.InvalidArgs("", "the argument %s is missing", arg.Name)
			}
			continue
		}
		if wrong := arg.fault(value); wrong != "" {
			return fault.InvalidArgs("", "the argument %s %s", arg.Name, wrong)
		}
		r.Values[arg.Name] = value
	}
	for i := range a.Flags {
		name := a.Flags[i].Name
		if f := a.flags[name]; r.Flags[name] == nil {
			if f.Required && f.Default == "" {
				return fault.InvalidArgs("", "the flag --%s is missing", name)
			}
			if f.Default != "" {
				r.set(f, f.Default)
			}
		}
	}
	return nil
}
