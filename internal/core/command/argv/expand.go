package argv

import (
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/command/fault"
)

// Expand fills the template. An item with a value that was not given is left out
// (in a template of exec.shell that is invalid_input instead). A value that
// begins with a hyphen where a word begins is invalid_input, unless a literal --
// stands before it or the argument allows it: it could be taken for an option.
// Words beyond [MaxWord] or [MaxTotal] are too_large, reason args_too_long.
func (t *Template) Expand(in Input) (Words, error) {
	var w Words
	for _, it := range t.items {
		if len(it.parts) == 1 && it.parts[0].kind == args {
			for i, word := range in.Route.Args {
				w.add(word, in.Route.SensitiveArg(i))
			}
			continue
		}
		word, secret, given, err := it.fill(in)
		if err != nil {
			return Words{}, err
		}
		if given {
			w.add(word, secret)
		}
	}
	total := 0
	for _, word := range w.List {
		if total += len(word) + 1; len(word) > MaxWord || total > MaxTotal {
			return Words{}, capability.Errorf(capability.CodeTooLarge, op, "the arguments are too long: %d bytes each and %d together are the most", MaxWord, MaxTotal).
				With("args_too_long", "")
		}
		if strings.IndexByte(word, 0) >= 0 { // of a setting: the lexer lets none pass
			return Words{}, invalid("an argument holds a NUL")
		}
	}
	return w, nil
}

func (w *Words) add(word string, secret bool) {
	w.List = append(w.List, word)
	w.secret = append(w.secret, secret)
}

// value is what a placeholder stands for.
type value struct {
	text   string
	given  bool
	secret bool
	user   bool // typed: may try to be an option
	dash   bool // may begin with a hyphen all the same
	name   string
}

// fill makes one word of an item, in one pass: what a value holds is never looked
// at again.
func (it item) fill(in Input) (word string, secret, given bool, err error) {
	var b strings.Builder
	for _, p := range it.parts {
		v := p.value(in)
		if !v.given {
			if p.kind == named {
				return "", false, false, fault.InvalidArgs("", "the argument %s is missing", p.text)
			}
			return "", false, false, nil
		}
		if b.Len() == 0 && v.user && it.guarded && !v.dash && strings.HasPrefix(v.text, "-") {
			return "", false, false, fault.InvalidArgs("", "%s must not begin with a hyphen: the tool would take it for an option", v.name)
		}
		b.WriteString(v.text)
		secret = secret || v.secret
	}
	return b.String(), secret, true, nil
}

func (p part) value(in Input) value {
	r := in.Route
	switch p.kind {
	case literal:
		return value{text: p.text, given: true}
	case action:
		return value{text: r.Action.ID, given: true}
	case workDir:
		return value{text: in.WorkDir, given: in.WorkDir != ""}
	case config:
		if in.Config == nil {
			return value{}
		}
		text, ok := in.Config(p.text)
		return value{text: text, given: ok}
	case args:
		return value{text: strings.Join(r.Args, " "), given: len(r.Args) > 0, secret: r.Sensitive(), user: true, name: "the arguments"}
	case raw:
		return value{text: r.Raw, given: r.Raw != "", secret: r.Sensitive(), user: true, name: "the text"}
	case flag:
		return flagValue(r, p.text)
	case arg:
		return positional(r, p.index)
	}
	for i := range r.Action.Args {
		if r.Action.Args[i].Name == p.text {
			return positional(r, i)
		}
	}
	return flagValue(r, p.text)
}

func positional(r *command.Route, n int) value {
	v := value{user: true, name: "the argument"}
	if n < len(r.Action.Args) {
		a := &r.Action.Args[n]
		v.text, v.given = r.Values[a.Name]
		v.secret, v.dash, v.name = r.Action.IsSensitive(a.Name), a.AllowDash, "the argument "+a.Name
		return v
	}
	if n < len(r.Positional) {
		v.text, v.given = r.Positional[n], true
		v.secret = r.Sensitive() // which of the words it was is not known here
	}
	return v
}

func flagValue(r *command.Route, name string) value {
	v := value{user: true, name: "the value of --" + name}
	v.text, v.given = r.Flag(name)
	v.secret = r.Action.IsSensitive(name)
	if i := slices.IndexFunc(r.Action.Flags, func(f command.Flag) bool { return f.Name == name }); i >= 0 {
		v.dash = r.Action.Flags[i].AllowDash
	}
	return v
}
