// Package eval runs scenario files against a catalog that it builds, without network,
// clock or activation, so that the catalog's behaviour can be tested from outside. It
// contains no rules of its own; it calls the packages that implement them.
package eval

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
	"github.com/junctor-run/junctor/internal/extensions/operator"
)

// Fixtures are extensions and contexts that scenarios name.
type Fixtures struct {
	Extensions map[string]json.RawMessage    `json:"extensions"`
	Contexts   map[string]capability.Context `json:"contexts"`
}

// Scenario is one scenario of a file.
type Scenario struct {
	ID         string                        `json:"id"`
	Title      string                        `json:"title"`
	Use        []string                      `json:"use"`
	Extensions []json.RawMessage             `json:"extensions"`
	Config     catalog.Settings              `json:"config"`
	Contexts   map[string]capability.Context `json:"contexts"`
	Ask        []Ask                         `json:"ask"`
}

// Ask is one question with the expected answer.
type Ask struct {
	Op       string              `json:"op"`
	Ctx      string              `json:"ctx"`
	Name     string              `json:"name"`
	Action   capability.Action   `json:"action"`
	Selector capability.Selector `json:"selector"`
	Caller   string              `json:"caller"`
	Slot     string              `json:"slot"`
	Class    string              `json:"class"`
	ID       string              `json:"id"`
	Sel      string              `json:"sel"`
	Text     string              `json:"text"`
	Provider string              `json:"provider"`
	Method   string              `json:"method"`
	Expect   any                 `json:"expect"`
}

// Outcome is the answer to one question under one order of extensions.
type Outcome struct {
	ID    string `json:"id"`
	Index int    `json:"index"`
	Order string `json:"order"` // given, reversed, rotated
	OK    bool   `json:"ok"`
	Got   any    `json:"got"`
}

func bad(format string, args ...any) *capability.Error {
	return capability.Errorf(capability.CodeInvalidInput, "catalog.eval", format, args...).With("invalid_scenario", "")
}

// ParseFixtures parses a fixture file of at most 16 MiB. Unknown fields are errors.
func ParseFixtures(data []byte) (Fixtures, error) {
	var f Fixtures
	if len(data) > maxBytes {
		return Fixtures{}, capability.Errorf(capability.CodeTooLarge, "catalog.eval", "the fixtures have %d bytes; the limit is %d", len(data),
			maxBytes)
	}
	if err := jsonx.UnmarshalStrict(data, &f); err != nil {
		return Fixtures{}, bad("the fixtures are not what they must be: %s", err)
	}
	return f, nil
}

// Parse parses a scenario file of at most 16 MiB, a JSON array. Unknown fields and
// operations are errors, because a misspelt question would otherwise pass.
func Parse(data []byte) ([]Scenario, error) {
	var list []Scenario
	if len(data) > maxBytes {
		return nil, capability.Errorf(capability.CodeTooLarge, "catalog.eval", "the file has %d bytes; the limit is %d", len(data), maxBytes)
	}
	if err := jsonx.UnmarshalStrict(data, &list); err != nil {
		return nil, bad("it is not an array of scenarios: %s", err)
	}
	if len(list) > maxScenarios {
		return nil, capability.Errorf(capability.CodeTooLarge, "catalog.eval", "the file has %d scenarios; the limit is %d", len(list),
			maxScenarios)
	}
	seen := make(map[string]bool, len(list))
	for i := range list {
		s := &list[i]
		if s.ID == "" || seen[s.ID] {
			return nil, bad("scenario %d: the id %q is empty or taken", i, s.ID)
		}
		seen[s.ID] = true
		if err := s.check(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// operations returns the operations that a scenario may ask for.
func operations() []string {
	return strings.Fields("agentCatalog agentNames tool select slot backend boot conflicts rejected failed internal operator compose command " +
		"commands nativeCommands auth channels wire")
}

func (s *Scenario) check() error {
	if n := len(s.Use) + len(s.Extensions); n > maxExtensions {
		return capability.Errorf(capability.CodeTooLarge, "catalog.eval", "scenario %s has %d extensions; the limit is %d", s.ID, n,
			maxExtensions)
	}
	if len(s.Ask) > maxAsks {
		return capability.Errorf(capability.CodeTooLarge, "catalog.eval", "scenario %s asks %d questions; the limit is %d", s.ID, len(s.Ask),
			maxAsks)
	}
	for i, ask := range s.Ask {
		switch {
		case !slices.Contains(operations(), ask.Op):
			return bad("scenario %s, question %d: %q is not an operation", s.ID, i, ask.Op)
		case !slices.Contains([]string{"", string(arbitration.Planner), string(arbitration.Runtime)}, ask.Caller):
			return bad("scenario %s, question %d: the caller %q is neither planner nor runtime", s.ID, i, ask.Caller)
		}
		if err := checkExpect(ask.Expect); err != nil {
			return bad("scenario %s, question %d: %s", s.ID, i, err)
		}
	}
	return nil
}

// checkExpect refuses an unknown comparison ($…) and one whose value is not a list,
// because these would compare nothing.
func checkExpect(v any) error {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			_, list := value.([]any)
			switch {
			case !strings.HasPrefix(key, "$"):
			case key != "$contains" && key != "$lacks":
				return fmt.Errorf("%q is not a comparison", key)
			case !list:
				return fmt.Errorf("%s needs a list", key)
			}
			if err := checkExpect(value); err != nil {
				return err
			}
		}
	case []any:
		for _, item := range v {
			if err := checkExpect(item); err != nil {
				return err
			}
		}
	}
	return nil
}

// Run evaluates a scenario under three orders of its extensions and reports each
// answer. Core contributions take part only if the scenario lists them, and
// nothing is deferred. An error names the scenario and the question.
func Run(f Fixtures, s Scenario, report func(Outcome)) error {
	if err := s.check(); err != nil {
		return err
	}
	var extensions []declaration.Extension
	add := func(doc json.RawMessage) error {
		x, diagnostics, err := declaration.Parse(doc)
		if err != nil {
			return fmt.Errorf("scenario %s: %w", s.ID, err)
		}
		for _, d := range diagnostics {
			if strings.HasSuffix(d, "is not a known field") {
				return bad("scenario %s: extension %s: %s", s.ID, x.ID, d)
			}
		}
		extensions = append(extensions, x)
		return nil
	}
	for _, name := range s.Use {
		doc, ok := f.Extensions[name]
		if !ok {
			return bad("scenario %s uses the fixture %q, which does not exist", s.ID, name)
		}
		if err := add(doc); err != nil {
			return err
		}
	}
	for _, doc := range s.Extensions {
		if err := add(doc); err != nil {
			return err
		}
	}
	reversed := slices.Clone(extensions)
	slices.Reverse(reversed)
	rotated := slices.Clone(extensions)
	if len(rotated) > 1 {
		rotated = append(rotated[1:], rotated[0])
	}
	for _, order := range []struct {
		name string
		list []declaration.Extension
	}{{"given", extensions}, {"reversed", reversed}, {"rotated", rotated}} {
		w, err := build(order.list, s.Config)
		if err != nil {
			return fmt.Errorf("scenario %s: %w", s.ID, err)
		}
		for i, ask := range s.Ask {
			got, err := w.answer(f, s, ask)
			if err != nil {
				return fmt.Errorf("scenario %s, question %d (%s): %w", s.ID, i, ask.Op, err)
			}
			plain := normal(got)
			report(Outcome{ID: s.ID, Index: i, Order: order.name, OK: matches(ask.Expect, plain), Got: plain})
		}
	}
	return nil
}

// world holds the catalogs of one scenario.
type world struct {
	extensions []declaration.Extension
	resolved   *declaration.Resolved
	catalog    *catalog.Catalog
	compiler   *compile.Compiler
	operator   *operator.Catalog
}

func build(extensions []declaration.Extension, settings catalog.Settings) (*world, error) {
	w := &world{extensions: extensions, resolved: declaration.Resolve(extensions, settings.Owners)}
	var err error
	if w.catalog, err = catalog.New(settings, 0); err != nil {
		return nil, err
	}
	// In the order of the scenario, because the result must not depend on it.
	for i := range extensions {
		for _, x := range w.resolved.Extensions {
			if x.ID != extensions[i].ID || x != &extensions[i] && x.Stage != capability.StageFailed {
				continue
			}
			if _, _, err := w.catalog.Replace(capability.Batch{Source: "extension/" + x.ID, Modules: []capability.Module{x.Module()}}); err != nil {
				return nil, err
			}
		}
	}
	w.compiler, w.operator = compile.New(w.catalog), operator.New(w.resolved)
	return w, nil
}
