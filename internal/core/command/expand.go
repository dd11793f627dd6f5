package command

import (
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/command/fault"
)

// Expand returns the arguments made from the template. An item with a missing value is left out;
// in a template of exec.shell it is invalid_input. A typed value that begins with a hyphen at
// the beginning of a word is invalid_input, because it could be taken for an option, unless a
// literal -- precedes it or the argument allows it. Arguments beyond [MaxArgvWord] or
// [MaxArgv] are too_large, reason args_too_long.
func (t *Template) Expand(in TemplateInput) (Argv, error) {
	var w Argv
	for _, it := range t.items {
		if len(it.parts) == 1 && it.parts[0].kind == partArgs {
			for i, word := range in.Route.Args {
				w.add(word, in.Route.SensitiveArg(i))
			}
			continue
		}
		word, secret, given, err := it.fill(in)
		if err != nil {
			return Argv{}, err
		}
		if given {
			w.add(word, secret)
		}
	}
	total := 0
	for _, word := range w.List {
		if total += len(word) + 1; len(word) > MaxArgvWord || total > MaxArgv {
			return Argv{}, capability.Errorf(capability.CodeTooLarge, opTemplate,
				"the arguments are too long: %d bytes each and %d together are the most", MaxArgvWord, MaxArgv).
				With("args_too_long", "")
		}
		if strings.IndexByte(word, 0) >= 0 { // from a setting; the lexer rejects it in messages
			return Argv{}, invalidTemplate("an argument holds a NUL")
		}
	}
	return w, nil
}

func (w *Argv) add(word string, secret bool) {
	w.List = append(w.List, word)
	w.secret = append(w.secret, secret)
}

// templateValue is the value of a placeholder.
type templateValue struct {
	text   string
	given  bool
	secret bool
	user   bool // typed by a user; could be an option
	dash   bool // may begin with a hyphen
	name   string
}

// fill returns the word of an item. It inserts each value once; placeholders in values are not
// expanded. given is false if a value is missing.
func (it templateItem) fill(in TemplateInput) (word string, secret, given bool, err error) {
	var b strings.Builder
	for _, p := range it.parts {
		v := p.value(in)
		if !v.given {
			if p.kind == partNamed {
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

// value returns the value of a literal or a placeholder.
func (p templatePart) value(in TemplateInput) templateValue {
	r := in.Route
	switch p.kind {
	case partLiteral:
		return templateValue{text: p.text, given: true}
	case partAction:
		return templateValue{text: r.Action.ID, given: true}
	case partWorkDir:
		return templateValue{text: in.WorkDir, given: in.WorkDir != ""}
	case partConfig:
		if in.Config == nil {
			return templateValue{}
		}
		text, ok := in.Config(p.text)
		return templateValue{text: text, given: ok}
	case partArgs:
		return templateValue{text: strings.Join(r.Args, " "), given: len(r.Args) > 0, secret: r.Sensitive(), user: true, name: "the arguments"}
	case partRaw:
		return templateValue{text: r.Raw, given: r.Raw != "", secret: r.Sensitive(), user: true, name: "the text"}
	case partFlag:
		return flagValue(r, p.text)
	case partArg:
		return positionalValue(r, p.index)
	}
	for i := range r.Action.Args {
		if r.Action.Args[i].Name == p.text {
			return positionalValue(r, i)
		}
	}
	return flagValue(r, p.text)
}

// positionalValue returns the n-th positional argument, or its default if it is declared.
func positionalValue(r *Route, n int) templateValue {
	v := templateValue{user: true, name: "the argument"}
	if n < len(r.Action.Args) {
		a := &r.Action.Args[n]
		v.text, v.given = r.Values[a.Name]
		v.secret, v.dash, v.name = r.Action.IsSensitive(a.Name), a.AllowDash, "the argument "+a.Name
		return v
	}
	if n < len(r.Positional) {
		v.text, v.given = r.Positional[n], true
		v.secret = r.Sensitive() // it is unknown which of the words this is
	}
	return v
}

func flagValue(r *Route, name string) templateValue {
	v := templateValue{user: true, name: "the value of --" + name}
	v.text, v.given = r.Flag(name)
	v.secret = r.Action.IsSensitive(name)
	if i := slices.IndexFunc(r.Action.Flags, func(f Flag) bool { return f.Name == name }); i >= 0 {
		v.dash = r.Action.Flags[i].AllowDash
	}
	return v
}
