package command

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"

	"github.com/junctor-run/junctor/internal/core/command/fault"
)

// prompt is the type of replies that suggest an action on extensions.
const prompt = "extension_prompt"

// unknown returns the error for an unknown command, with similar names and a suggestion to search
// for extensions.
func (r *Router) unknown(name string) *capability.Error {
	bare, _, _ := strings.Cut(name, ":")
	err := capability.Errorf(capability.CodeUnknownCapability, op,
		"there is no command /%s here; it may come with an extension that is not installed", name).
		With("unknown_command", "type /help for the commands there are").
		Detail("type", prompt).Detail("command", "/"+name).
		Detail("suggestion", map[string]any{"action": "search_extensions", "query": bare})
	near := r.near(bare)
	if len(near) > 0 {
		err.Hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return err.Detail("did_you_mean", near)
}

func (r *Router) near(name string) []string {
	near := Nearest(name, r.visible)
	for i := range near {
		near[i] = "/" + near[i]
	}
	return near
}

func disabled(name string, e *entry) *capability.Error {
	title := cmp.Or(e.ExtensionName, e.Extension)
	return capability.Errorf(capability.CodeUnavailable, op, "/%s belongs to %s, which is disabled", name, title).
		With("extension_disabled", "an operator enables it with: junctor extensions enable "+e.Extension).
		Detail("type", prompt).Detail("command", "/"+name).
		Detail("extension_info", map[string]any{"id": e.Extension, "name": title, "status": "disabled"}).
		Detail("action", map[string]any{"type": "enable_extension", "extension_id": e.Extension, "label": "Enable " + title})
}

func reserved(name string) *capability.Error {
	return capability.Errorf(capability.CodeDenied, op, "/%s is kept for junctor itself and does nothing here", name).
		With("reserved_command", "type /help for the commands there are").Detail("command", "/"+name)
}

// ambiguous names the commands that a short name could have meant, because it does not
// identify one of them.
func ambiguous(name string, who []*entry) *capability.Error {
	var names []string
	for _, e := range who {
		if !e.Hidden {
			names = append(names, "/"+e.Name)
		}
	}
	slices.Sort(names)
	text := "several commands could be meant by /" + name
	if len(who) == 1 { // the caller registered the command under a longer name
		text = "/" + name + " has a longer name here"
	}
	return capability.Errorf(capability.CodeInvalidInput, op, "%s", text).
		With("ambiguous_alias", "type "+strings.Join(names, " or ")+", or /"+name+":<extension id>").
		Detail("command", "/"+name).Detail("choices", names)
}

// Prompt returns the reply to a command that is unknown or disabled: the details of the
// error with its message. It reports false for other errors.
func Prompt(err error) (map[string]any, bool) {
	e := capability.AsError(err)
	if e == nil || e.Details["type"] != prompt {
		return nil, false
	}
	reply := maps.Clone(e.Details)
	reply["message"] = e.Message
	return reply, true
}

// Entry is one command in the list for users.
type Entry struct {
	Name          string    `json:"name"` // with its slash
	Source        string    `json:"source"`
	ExtensionID   string    `json:"extension_id,omitempty"`
	ExtensionName string    `json:"extension_name,omitempty"`
	Summary       string    `json:"summary"`
	Description   string    `json:"description,omitempty"`
	Examples      []Example `json:"examples,omitempty"`
	Enabled       bool      `json:"enabled"`
}

// list builds the listing of all commands that are not hidden.
func (r *Router) list() {
	r.listing = []Entry{}
	for _, name := range slices.Sorted(maps.Keys(r.names)) {
		e := r.names[name]
		if e.Hidden {
			continue
		}
		r.visible = append(r.visible, name)
		source := "extension"
		if e.Builtin {
			source = "builtin"
		}
		r.listing = append(r.listing, Entry{"/" + name, source, e.Extension, e.ExtensionName, e.Summary, e.Description, e.Examples, e.Enabled})
	}
}

// List returns all commands except hidden ones, enabled or not, sorted by name.
func (r *Router) List() []Entry { return slices.Clone(r.listing) }

// Help returns the text of /help: junctor's commands, then those of extensions. Summaries take one
// line each, without control characters.
func (r *Router) Help() string {
	var b strings.Builder
	section := func(source, title string) {
		first := true
		for _, e := range r.listing {
			if e.Source != source {
				continue
			}
			if first {
				if b.Len() > 0 {
					b.WriteByte('\n')
				}
				b.WriteString(title + "\n")
				first = false
			}
			b.WriteString("  " + e.Name + "  " + fault.OneLine(e.Summary))
			if !e.Enabled {
				b.WriteString(" (disabled)")
			}
			b.WriteByte('\n')
		}
	}
	section("builtin", "Commands:")
	section("extension", "Commands of extensions:")
	return b.String()
}

// HelpFor returns the text of /help <name>: actions, arguments and examples, followed by doc, the
// extension's usage document or "". Errors are those of [Router.Command].
func (r *Router) HelpFor(name, doc string) (string, error) {
	line, is := Parse("/"+strings.TrimPrefix(name, "/"), func(n string) bool { return r.names[n] != nil })
	if !is {
		return "", r.unknown(strings.ToValidUTF8(name[:min(len(name), 2*maxTyped)], ""))
	}
	c, err := r.Command(line)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("/" + c.Name + "  " + fault.OneLine(c.Summary) + "\n")
	if c.Description != "" && c.Description != c.Summary {
		b.WriteString("\n" + fault.Clean(c.Description) + "\n")
	}
	for i := range c.Actions {
		a := &c.Actions[i]
		b.WriteString("\n" + usage(c, a) + "\n")
		if a.Description != "" {
			b.WriteString("  " + fault.OneLine(a.Description) + "\n")
		}
		for _, p := range a.Args {
			b.WriteString("  <" + p.Name + ">" + describe(&p) + "\n")
		}
		for _, f := range a.Flags {
			short := ""
			if f.Short != "" {
				short = ", -" + f.Short
			}
			b.WriteString("  --" + f.Name + short + describe(&f.Arg) + "\n")
		}
	}
	if len(c.Examples) > 0 {
		b.WriteString("\nExamples:\n")
		for _, e := range c.Examples {
			b.WriteString("  " + fault.OneLine(e.Command) + "\n")
		}
	}
	if doc != "" {
		b.WriteString("\n" + fault.Clean(doc) + "\n")
	}
	return b.String(), nil
}

// Command returns the command of a line, even if it is disabled. Errors: those of [Router.Route]
// for an unknown, reserved or ambiguous name.
func (r *Router) Command(line Line) (*Command, error) {
	if line.Extension == "" {
		if e := cmp.Or(r.names[line.Name], r.aliases[line.Name]); e != nil {
			return e.Command, nil
		}
	}
	for _, e := range r.declared[line.Name] {
		if line.Extension != "" && strings.EqualFold(e.Extension, line.Extension) {
			return e.Command, nil
		}
	}
	e, err := r.find(line)
	if err != nil {
		return nil, err
	}
	return e.Command, nil
}

// describe returns the description, choices and default of an argument for help, or "".
func describe(a *Arg) string {
	var parts []string
	if a.Description != "" {
		parts = append(parts, fault.OneLine(a.Description))
	}
	if len(a.Choices) > 0 {
		parts = append(parts, "one of "+strings.Join(a.Choices, ", "))
	}
	if a.Default != "" {
		parts = append(parts, "default "+a.Default)
	}
	if len(parts) == 0 {
		return ""
	}
	return "  " + strings.Join(parts, "; ")
}

// usage returns the usage line of an action or, if a is nil, of the command.
func usage(c *Command, a *Action) string {
	var b strings.Builder
	b.WriteString("usage: /" + c.Name)
	if a == nil {
		b.WriteString(" <action> [arguments]")
		return b.String()
	}
	b.WriteString(" " + a.ID)
	for _, p := range a.Args {
		if p.Required {
			b.WriteString(" <" + p.Name + ">")
		} else {
			b.WriteString(" [" + p.Name + "]")
		}
	}
	for _, f := range a.Flags {
		text := "--" + f.Name
		if f.TakesValue {
			text += " <value>"
		}
		if !f.Required {
			text = "[" + text + "]"
		}
		b.WriteString(" " + text)
	}
	return b.String()
}

func example(c *Command) string {
	if len(c.Examples) == 0 {
		return ""
	}
	return "; for example: " + fault.OneLine(c.Examples[0].Command)
}
