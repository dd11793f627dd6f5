// Package eliza holds the stages of a turn in which modules of endpoints take part the way elizaOS
// lets them: providers add to the prompt, field evaluators read a first short answer of the model,
// response-handler evaluators change the plan that it makes, and evaluators look at the turn once
// it is over. All functions are pure: package agent calls the modules and the model.
//
// Order is that of elizaOS: a lower priority first, 100 if none is stated, then the name. What a
// module returns may narrow a turn and add hints to it, but never adds rights: its patches cannot
// begin a turn that was to be ignored, and its hints name only tools that the agent may call.
package eliza

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/router"
)

// Item addresses one item of a module.
type Item struct {
	Extension string // of the catalog
	Module    string
	Name      string
	weight    float64
}

// String returns module/name.
func (i Item) String() string { return i.Module + "/" + i.Name }

// Provider adds text to the prompt.
type Provider struct {
	Item
	Contexts []string // in which the module is useful; none: in all
	Private  bool
	Dynamic  bool
}

// Field is a member of the first answer.
type Field struct {
	Item
	Description     string
	Schema          jsonx.Raw
	Parses, Handles bool
}

// Handler is a response-handler evaluator.
type Handler struct{ Item }

// Evaluator looks at a turn that is over.
type Evaluator struct {
	Item
	Prompt              string
	Schema              jsonx.Raw
	Providers           []string // whose text it is shown
	Prepares, Processes bool
}

// Event is an event that a module handles.
type Event struct{ Item }

// The events of a turn.
const (
	EventReceived = "MESSAGE_RECEIVED"
	EventSent     = "MESSAGE_SENT"
)

// Set holds the items of all modules, each list in its order.
type Set struct {
	Providers  []Provider
	Fields     []Field
	Handlers   []Handler
	Evaluators []Evaluator
	Events     []Event
	Contexts   []string // of all modules
}

// NewSet returns the items of manifests, which are given with the ids of their extensions. Of several
// fields of one name, the first in order counts.
func NewSet(manifests map[string]router.Module) *Set {
	s := &Set{}
	for extension, m := range manifests {
		item := func(name string, priority *float64) Item {
			i := Item{Extension: extension, Module: m.ID, Name: name, weight: defaultWeight}
			if p := cmp.Or(priority, m.Priority); p != nil {
				i.weight = *p
			}
			return i
		}
		s.Contexts = append(s.Contexts, unique(m.Contexts)...)
		for _, p := range m.Providers {
			s.Providers = append(s.Providers, Provider{item(p.Name, nil), m.Contexts, p.Private, p.Dynamic})
		}
		for _, f := range m.ResponseHandlerFieldEvaluators {
			if len(f.Schema) <= maxSchema && !reserved(f.Name) {
				s.Fields = append(s.Fields, Field{item(f.Name, f.Priority), f.Description, jsonx.Raw(f.Schema), f.HasParse, f.HasHandle})
			}
		}
		for _, h := range m.ResponseHandlerEvaluators {
			s.Handlers = append(s.Handlers, Handler{item(h.Name, h.Priority)})
		}
		for _, e := range m.Evaluators {
			if len(e.Schema) <= maxSchema {
				s.Evaluators = append(s.Evaluators, Evaluator{
					item(e.Name, e.Priority), e.Prompt, jsonx.Raw(e.Schema), e.Providers, e.HasPrepare, e.HasProcessor,
				})
			}
		}
		for _, e := range m.Events {
			s.Events = append(s.Events, Event{item(e.EventName, nil)})
		}
	}
	slices.SortFunc(s.Providers, func(a, b Provider) int { return cmp.Or(cmp.Compare(a.Name, b.Name), a.compare(b.Item)) })
	slices.SortFunc(s.Fields, func(a, b Field) int { return a.compare(b.Item) })
	slices.SortFunc(s.Handlers, func(a, b Handler) int { return a.compare(b.Item) })
	slices.SortFunc(s.Evaluators, func(a, b Evaluator) int { return a.compare(b.Item) })
	slices.SortFunc(s.Events, func(a, b Event) int { return a.compare(b.Item) })
	seen := make(map[string]bool)
	s.Fields = slices.DeleteFunc(s.Fields, func(f Field) bool {
		again := seen[f.Name]
		seen[f.Name] = true
		return again
	})
	slices.Sort(s.Contexts)
	s.Contexts = slices.Compact(s.Contexts)
	s.Contexts = s.Contexts[:min(len(s.Contexts), maxContexts)]
	return s
}

func (i Item) compare(o Item) int {
	return cmp.Or(cmp.Compare(i.weight, o.weight), cmp.Compare(i.Name, o.Name), cmp.Compare(i.Extension, o.Extension))
}

// Limit returns the first items of a list, in order, for which permitted is true.
func Limit[T any](list []T, permitted func(T) bool) []T {
	var out []T
	for _, one := range list {
		if len(out) < maxItems && permitted(one) {
			out = append(out, one)
		}
	}
	return out
}

// Named reports whether a name occurs in a text as a word of its own, in capitals or not.
func Named(text, name string) bool {
	text, name = strings.ToLower(text), strings.ToLower(strings.TrimSpace(name))
	if name == "" {
		return false
	}
	for at := 0; ; {
		i := strings.Index(text[at:], name)
		if i < 0 {
			return false
		}
		begin, end := at+i, at+i+len(name)
		if !wordAt(text[:begin], true) && !wordAt(text[end:], false) {
			return true
		}
		at = begin + 1
	}
}

// wordAt reports whether the last rune of s, or its first, belongs to a word.
func wordAt(s string, last bool) bool {
	runes := []rune(s[:min(len(s), 4)])
	if last {
		runes = []rune(s[max(0, len(s)-4):])
	}
	if len(runes) == 0 {
		return false
	}
	r := runes[0]
	if last {
		r = runes[len(runes)-1]
	}
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_'
}

// Select returns the providers of a turn: those that are named, and those that are neither private
// nor dynamic and whose module is useful in one of the turn's contexts, which are those of the plan
// and those that the message names.
func Select(list []Provider, message string, contexts, named []string) []Provider {
	return Limit(list, func(p Provider) bool {
		if slices.Contains(named, p.Name) || Named(message, p.Name) {
			return true
		}
		return !p.Private && !p.Dynamic && (len(p.Contexts) == 0 || slices.ContainsFunc(p.Contexts, func(c string) bool {
			return slices.Contains(contexts, c) || Named(message, c)
		}))
	})
}

// decodeObject decodes the first JSON object in a text of a model, which may stand in a code block.
func decodeObject(text string) (map[string]json.RawMessage, bool) {
	begin, end := strings.IndexByte(text, '{'), strings.LastIndexByte(text, '}')
	if begin < 0 || end < begin {
		return nil, false
	}
	var out map[string]json.RawMessage
	if jsonx.Unmarshal([]byte(text[begin:end+1]), &out) != nil || out == nil {
		return nil, false
	}
	return out, true
}
