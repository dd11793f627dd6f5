package runner

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/command/fault"
)

// Words is the input of an action's entry: the text that the user typed after its name.
type Words struct {
	Args    []string `json:"args,omitempty"`
	NoCache bool     `json:"no_cache,omitempty"` // do not return a cached result
}

const wordsSchema = `{"type":"object","properties":{"args":{"type":"array","items":{"type":"string"},"maxItems":512,"description":"The words behind the action, as typed"},` +
	`"no_cache":{"type":"boolean","description":"Run it even if a kept result would do"}},"additionalProperties":false}`

// line quotes the words as a command line, which the router parses back to the same
// words, so that all callers use one parser.
func line(a *action, typed []string) string {
	var b strings.Builder
	b.WriteString("/" + a.command.Name + " " + a.ID)
	for _, w := range typed {
		b.WriteByte(' ')
		b.WriteString(command.Quote(w))
	}
	return b.String()
}

// wordsOf decodes the input of an entry.
func wordsOf(input json.RawMessage) (w Words, err error) {
	if err := jsonx.Unmarshal(input, &w); err != nil {
		return w, capability.Wrap(capability.CodeInvalidInput, "runner", "the input is not {\"args\": [words]}", err)
	}
	return w, nil
}

// wordsFrom converts the input object of a tool to words: flags by name, then the
// arguments in order. Each value becomes exactly one word. Unknown members are ignored.
func wordsFrom(a *action, input json.RawMessage) ([]string, error) {
	var given map[string]json.RawMessage
	if err := jsonx.Unmarshal(input, &given); err != nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, "runner", "the input is not an object", err)
	}
	var out []string
	for i := range a.Flags {
		f := &a.Flags[i]
		raw, ok := given[f.Name]
		if !ok {
			continue
		}
		text, err := scalar(f.Name, raw)
		if err != nil {
			return nil, err
		}
		switch {
		case f.TakesValue:
			out = append(out, "--"+f.Name+"="+text)
		case text == "true":
			out = append(out, "--"+f.Name)
		}
	}
	// Arguments are positional, so one before the last given argument needs a value or a default.
	last := -1
	for i := range a.Args {
		if _, ok := given[a.Args[i].Name]; ok {
			last = i
		}
	}
	var positional []string
	for i := range last + 1 {
		arg := &a.Args[i]
		raw, ok := given[arg.Name]
		switch {
		case ok:
			text, err := scalar(arg.Name, raw)
			if err != nil {
				return nil, err
			}
			positional = append(positional, text)
		case arg.Default != "":
			positional = append(positional, arg.Default)
		default:
			return nil, fault.InvalidArgs("", "%s is needed where %s is given", arg.Name, a.Args[last].Name)
		}
	}
	if slices.ContainsFunc(positional, func(w string) bool { return strings.HasPrefix(w, "-") }) {
		out = append(out, "--") // so that words with a leading - are not parsed as flags
	}
	return append(out, positional...), nil
}

// scalar returns a string, bool or number as a user would type it; other values are invalid_input.
func scalar(name string, raw json.RawMessage) (string, error) {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return "", capability.Wrap(capability.CodeInvalidInput, "runner", name+" is not a value", err)
	}
	switch v := v.(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return strconv.FormatInt(int64(v), 10), nil
		}
		return string(bytes.TrimSpace(raw)), nil
	}
	return "", fault.InvalidArgs("", "%s is neither a text nor a number nor true or false", name)
}
