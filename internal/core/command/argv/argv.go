// Package argv makes the words a program is started with from a route and the
// template its extension declares. There is no shell and no second reading: a
// template is cut into items before any value is known, every value is put in
// once, and an item is one word whatever the value holds. Only {args} alone in
// an item becomes as many words as were typed.
package argv

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/command/words"
)

const op = "argv"

// Limits.
const (
	MaxWord  = 128<<10 - 1 // bytes of one word, which is what Linux takes
	MaxTotal = 1 << 20     // bytes of all words with their terminators
	maxItems = 256         // of a template
)

// Words are a program's arguments, the program's name first.
type Words struct {
	List   []string
	secret []bool
}

// Recordable returns the words with what is sensitive replaced by dots.
func (w Words) Recordable() []string {
	out := slices.Clone(w.List)
	for i := range out {
		if w.secret[i] {
			out[i] = command.Mask
		}
	}
	return out
}

// Input is what a template is filled with.
type Input struct {
	Route   *command.Route
	WorkDir string
	// Config looks up a setting of the extension that is no secret: words of a
	// program can be seen by others on its machine. nil: there are none.
	Config func(key string) (string, bool)
}

// Template is a compiled template, immutable and safe for concurrent use.
type Template struct{ items []item }

type kind int

const (
	literal kind = iota
	action
	arg
	named // a placeholder of an exec.shell template: arg or flag by its name
	args
	raw
	flag
	workDir
	config
)

type part struct {
	kind  kind
	text  string // of a literal; else the key
	index int
}

type item struct {
	parts []part
	// guarded: nothing before it tells the program that options have ended.
	guarded bool
}

// Compile reads the template of an action for a tool. nil items mean {action},
// then {args}. What looks like a placeholder and is none is invalid_input.
func Compile(tool string, items []string) (*Template, error) {
	if !ToolName(tool) {
		return nil, invalid("%q is no name of a tool", tool)
	}
	if items == nil {
		items = []string{"{action}", "{args}"}
	}
	if len(items) > maxItems {
		return nil, invalid("the template has %d items; %d are the most", len(items), maxItems)
	}
	t := &Template{items: []item{{parts: []part{{kind: literal, text: tool}}}}}
	for _, text := range items {
		parts, err := parse(text, placeholder)
		if err != nil {
			return nil, err
		}
		t.add(parts)
	}
	return t, nil
}

// add appends an item; a bare -- before it ends the options.
func (t *Template) add(parts []part) {
	ended := slices.ContainsFunc(t.items, func(i item) bool {
		return len(i.parts) == 1 && i.parts[0].kind == literal && i.parts[0].text == "--"
	})
	t.items = append(t.items, item{parts, !ended})
}

// CompileShell reads a template of a manifest's allowed_commands: words as a
// person would type them, with {name} for an argument or flag that the action
// declares. There is no shell, so what only a shell understands is refused; the
// first word is the tool. It returns the tool's name.
func CompileShell(text string, a *command.Action) (*Template, string, error) {
	for _, bad := range []string{";", "&&", "|", "$", ">", "<", "`", "\n", "\r"} {
		if strings.Contains(text, bad) {
			return nil, "", invalid("the template holds %q, which only a shell understands", bad)
		}
	}
	tokens, err := words.LexStrict(text)
	if err != nil {
		return nil, "", err
	}
	if len(tokens) == 0 || len(tokens) > maxItems || !ToolName(tokens[0].Text) {
		return nil, "", invalid("the template must begin with the name of a tool and have at most %d words", maxItems)
	}
	t := &Template{items: []item{{parts: []part{{kind: literal, text: tokens[0].Text}}}}}
	for _, tok := range tokens[1:] {
		parts, err := parse(tok.Text, func(name, key string, keyed bool) (part, bool, error) {
			if keyed || !shellName.MatchString(name) {
				return part{}, false, nil // braces that mean themselves
			}
			if !declares(a, name) {
				return part{}, false, invalid("the action declares no argument or flag for {%s}", name)
			}
			return part{kind: named, text: name}, true, nil
		})
		if err != nil {
			return nil, "", err
		}
		t.add(parts)
	}
	return t, tokens[0].Text, nil
}

var (
	shellName = regexp.MustCompile(`^[A-Za-z0-9_]+$`)
	// looksLike matches what is meant as a placeholder; other braces, of JSON for
	// instance, mean themselves.
	looksLike = regexp.MustCompile(`\{([A-Za-z0-9_]+)(?:(:)([A-Za-z0-9._-]*))?\}`)
)

func declares(a *command.Action, name string) bool {
	return slices.ContainsFunc(a.Args, func(p command.Arg) bool { return p.Name == name }) ||
		slices.ContainsFunc(a.Flags, func(f command.Flag) bool { return f.Name == name })
}

// parse cuts an item into literals and placeholders. resolve reports false for
// braces that mean themselves.
func parse(text string, resolve func(name, key string, keyed bool) (part, bool, error)) ([]part, error) {
	if strings.IndexByte(text, 0) >= 0 {
		return nil, invalid("an item of the template holds a NUL")
	}
	var parts []part
	rest := 0
	for _, m := range looksLike.FindAllStringSubmatchIndex(text, -1) {
		key := ""
		if m[6] >= 0 {
			key = text[m[6]:m[7]]
		}
		p, is, err := resolve(text[m[2]:m[3]], key, m[4] >= 0)
		if err != nil {
			return nil, err
		}
		if !is {
			continue
		}
		if m[0] > rest {
			parts = append(parts, part{kind: literal, text: text[rest:m[0]]})
		}
		parts = append(parts, p)
		rest = m[1]
	}
	if rest < len(text) || len(parts) == 0 {
		parts = append(parts, part{kind: literal, text: text[rest:]})
	}
	return parts, nil
}

func placeholder(name, key string, keyed bool) (part, bool, error) {
	plain := map[string]kind{"action": action, "args": args, "raw_args": raw, "work_dir": workDir}
	if k, ok := plain[name]; ok && !keyed {
		return part{kind: k}, true, nil
	}
	if keyed && key != "" {
		switch name {
		case "arg":
			if n, err := strconv.Atoi(key); err == nil && n >= 0 && n < words.MaxTokens {
				return part{kind: arg, index: n}, true, nil
			}
		case "flag":
			return part{kind: flag, text: key}, true, nil
		case "config":
			return part{kind: config, text: key}, true, nil
		}
	}
	if keyed {
		name += ":" + key
	}
	return part{}, false, invalid("{%s} is no placeholder: use {action}, {args}, {arg:0}, {flag:name}, {raw_args}, {work_dir} or {config:key}", name)
}

func invalid(format string, a ...any) *capability.Error {
	return capability.Errorf(capability.CodeInvalidInput, op, format, a...).With("invalid_args", "")
}
