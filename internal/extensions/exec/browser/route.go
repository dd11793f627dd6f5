package browser

import (
	"strings"

	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/command/fault"
)

// Flags returns the flags that every browser action accepts. They are declared beside
// the action's own, so that the parser treats the word after a flag as its value.
func Flags() []command.Flag {
	return []command.Flag{
		{Arg: command.Arg{Name: "url", Description: "the page to open first"}, TakesValue: true},
		{Arg: command.Arg{Name: "selector", Description: "the part of the page, as a CSS selector"}, TakesValue: true},
		{
			Arg: command.Arg{Name: "secret", Description: "a field to fill with a setting or stored secret, selector=name"}, TakesValue: true,
			Repeat: true,
		},
		{Arg: command.Arg{Name: "full", Description: "the whole page, not what is seen of it"}},
	}
}

// Secret names the secret that the caller has to fill into a field of a form.
type Secret struct{ Selector, Name string }

// FromRoute returns the request that a route describes: navigate URL; click SELECTOR;
// fill_form SELECTOR=VALUE …; extract text|links|table; screenshot; pdf. The caller sets
// the owner of the browser, Policy and Work, and adds the fields of the secrets. The
// error is invalid_input, reason invalid_args.
func FromRoute(r *command.Route) (Request, []Secret, error) {
	req := Request{Extension: r.Command.Extension, Timeout: r.Action.Timeout, Full: r.Flags["full"] == true}
	req.Action, _ = strings.CutPrefix(r.Action.Runner, "browser.")
	req.URL, _ = r.Flag("url")
	req.Selector, _ = r.Flag("selector")
	words := r.Positional
	one := func(to *string) {
		if len(words) > 0 && *to == "" {
			*to, words = words[0], words[1:]
		}
	}
	var secrets []Secret
	switch req.Action {
	case "navigate":
		one(&req.URL)
	case "click":
		one(&req.Selector)
	case "extract":
		if one(&req.What); req.What == "" {
			req.What = "text"
		}
	case "fill_form":
		for _, pair := range words {
			selector, value, err := field(pair)
			if err != nil {
				return req, nil, err
			}
			req.Fields = append(req.Fields, Field{Selector: selector, Value: value})
		}
		words = nil
		list, _ := r.Flags["secret"].([]string)
		for _, pair := range list {
			selector, name, err := field(pair)
			if err != nil {
				return req, nil, err
			}
			secrets = append(secrets, Secret{selector, name})
		}
	}
	if len(words) > 0 {
		return req, nil, fault.InvalidArgs("", "there are %d words too many", len(words))
	}
	return req, secrets, nil
}

// field splits selector=value at the first = outside brackets, as in [name=user]=me.
func field(pair string) (selector, value string, err error) {
	depth := 0
	for i := range len(pair) {
		switch c := pair[i]; {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == '=' && depth <= 0 && i > 0:
			return pair[:i], pair[i+1:], nil
		}
	}
	return "", "", fault.InvalidArgs("", "a field is written selector=value")
}
