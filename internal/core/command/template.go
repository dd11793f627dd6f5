package command

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

const opTemplate = "argv"

// Argv is a program's arguments, the program's name first.
type Argv struct {
	List   []string
	secret []bool
}

// Recordable returns the words with sensitive ones replaced by [Mask].
func (w Argv) Recordable() []string {
	out := slices.Clone(w.List)
	for i := range out {
		if w.secret[i] {
			out[i] = Mask
		}
	}
	return out
}

// TemplateInput holds the values for the placeholders of a template.
type TemplateInput struct {
	Route   *Route
	WorkDir string
	// Config returns a setting of the extension that is not secret, because other users of
	// the machine can see the arguments of a program. If nil, the extension lacks settings.
	Config func(key string) (string, bool)
}

// Template is a compiled template, immutable and safe for concurrent use.
type Template struct{ items []templateItem }

type partKind int

const (
	partLiteral partKind = iota
	partAction
	partArg
	partNamed // a placeholder of an exec.shell template: arg or flag by its name
	partArgs
	partRaw
	partFlag
	partWorkDir
	partConfig
)

type templatePart struct {
	kind  partKind
	text  string // of a literal; else the key
	index int
}

type templateItem struct {
	parts []templatePart
	// guarded is true if no literal -- precedes the item, so that the program may parse it
	// as an option.
	guarded bool
}

// CompileTemplate parses the template of an action for a tool. nil items mean {action},
// then {args}. A malformed placeholder is invalid_input.
func CompileTemplate(tool string, items []string) (*Template, error) {
	if !IsToolName(tool) {
		return nil, invalidTemplate("%q is not the name of a tool", tool)
	}
	if items == nil {
		items = []string{"{action}", "{args}"}
	}
	if len(items) > maxTemplateItems {
		return nil, invalidTemplate("the template has %d items; %d are the most", len(items), maxTemplateItems)
	}
	t := &Template{items: []templateItem{{parts: []templatePart{{kind: partLiteral, text: tool}}}}}
	for _, text := range items {
		parts, err := parseItem(text, builtinPlaceholder)
		if err != nil {
			return nil, err
		}
		t.add(parts)
	}
	return t, nil
}

// add appends an item, which is guarded unless a literal -- precedes it.
func (t *Template) add(parts []templatePart) {
	ended := slices.ContainsFunc(t.items, func(i templateItem) bool {
		return len(i.parts) == 1 && i.parts[0].kind == partLiteral && i.parts[0].text == "--"
	})
	t.items = append(t.items, templateItem{parts, !ended})
}

// CompileShellTemplate parses a template of a manifest's allowed_commands: words as typed in a
// shell, with {name} for an argument or flag that the action declares. Shell syntax is
// rejected, because the command does not run in a shell. The first word is the tool, whose
// name is returned.
func CompileShellTemplate(text string, a *Action) (*Template, string, error) {
	for _, bad := range []string{";", "&&", "|", "$", ">", "<", "`", "\n", "\r"} {
		if strings.Contains(text, bad) {
			return nil, "", invalidTemplate("the template holds %q, which only a shell understands", bad)
		}
	}
	tokens, err := LexStrict(text)
	if err != nil {
		return nil, "", err
	}
	if len(tokens) == 0 || len(tokens) > maxTemplateItems || !IsToolName(tokens[0].Text) {
		return nil, "", invalidTemplate("the template must begin with the name of a tool and have at most %d words", maxTemplateItems)
	}
	t := &Template{items: []templateItem{{parts: []templatePart{{kind: partLiteral, text: tokens[0].Text}}}}}
	for _, tok := range tokens[1:] {
		parts, err := parseItem(tok.Text, func(name, key string, keyed bool) (templatePart, bool, error) {
			if keyed || !shellName.MatchString(name) {
				return templatePart{}, false, nil // braces that mean themselves
			}
			if !declaresName(a, name) {
				return templatePart{}, false, invalidTemplate("the action declares no argument or flag for {%s}", name)
			}
			return templatePart{kind: partNamed, text: name}, true, nil
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
	// placeholderForm matches a placeholder. Other braces, for example of JSON, are literal.
	placeholderForm = regexp.MustCompile(`\{([A-Za-z0-9_]+)(?:(:)([A-Za-z0-9._-]*))?\}`)
)

func declaresName(a *Action, name string) bool {
	return slices.ContainsFunc(a.Args, func(p Arg) bool { return p.Name == name }) ||
		slices.ContainsFunc(a.Flags, func(f Flag) bool { return f.Name == name })
}

// parseItem splits an item into literals and placeholders. resolve returns false for literal
// braces.
func parseItem(text string, resolve func(name, key string, keyed bool) (templatePart, bool, error)) ([]templatePart, error) {
	if strings.IndexByte(text, 0) >= 0 {
		return nil, invalidTemplate("an item of the template holds a NUL")
	}
	var parts []templatePart
	rest := 0
	for _, m := range placeholderForm.FindAllStringSubmatchIndex(text, -1) {
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
			parts = append(parts, templatePart{kind: partLiteral, text: text[rest:m[0]]})
		}
		parts = append(parts, p)
		rest = m[1]
	}
	if rest < len(text) || len(parts) == 0 {
		parts = append(parts, templatePart{kind: partLiteral, text: text[rest:]})
	}
	return parts, nil
}

// builtinPlaceholder resolves the placeholders of a template for a tool. Any other name is
// invalid_input.
func builtinPlaceholder(name, key string, keyed bool) (templatePart, bool, error) {
	plain := map[string]partKind{"action": partAction, "args": partArgs, "raw_args": partRaw, "work_dir": partWorkDir}
	if k, ok := plain[name]; ok && !keyed {
		return templatePart{kind: k}, true, nil
	}
	if keyed && key != "" {
		switch name {
		case "arg":
			if n, err := strconv.Atoi(key); err == nil && n >= 0 && n < MaxTokens {
				return templatePart{kind: partArg, index: n}, true, nil
			}
		case "flag":
			return templatePart{kind: partFlag, text: key}, true, nil
		case "config":
			return templatePart{kind: partConfig, text: key}, true, nil
		}
	}
	if keyed {
		name += ":" + key
	}
	return templatePart{}, false, invalidTemplate("{%s} is not a placeholder; use {action}, {args}, {arg:0}, {flag:name}, {raw_args}, {work_dir} or {config:key}", name)
}

func invalidTemplate(format string, a ...any) *capability.Error {
	return capability.Errorf(capability.CodeInvalidInput, opTemplate, format, a...).With("invalid_args", "")
}
