// Package eval runs scenario files against the catalog, without network, clock or
// activation (catalog spec, section 24): it is how the behaviour of the catalog is
// checked from outside. It decides nothing itself; it asks the packages that do.
package eval

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/catalog"
	"github.com/junctor-run/junctor/internal/catalog/compile"
	"github.com/junctor-run/junctor/internal/intake/manifest"
	"github.com/junctor-run/junctor/internal/intake/operator"
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

// Ask is one question with the answer that is expected.
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

// Limits of a scenario file.
const (
	maxScenarios  = 10_000
	maxExtensions = 10_000
)

// ParseFixtures reads a fixture file.
func ParseFixtures(data []byte) (Fixtures, error) {
	var f Fixtures
	if err := json.Unmarshal(data, &f); err != nil {
		return Fixtures{}, capability.Errorf(capability.CodeInvalidInput, "catalog.eval", "the fixtures are not what they must be: %s", err)
	}
	return f, nil
}

// Parse reads a scenario file: a JSON array.
func Parse(data []byte) ([]Scenario, error) {
	var list []Scenario
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, capability.Errorf(capability.CodeInvalidInput, "catalog.eval", "the scenario file is not an array of scenarios: %s", err)
	}
	if len(list) > maxScenarios {
		return nil, capability.Errorf(capability.CodeTooLarge, "catalog.eval", "the file has %d scenarios; the limit is %d", len(list), maxScenarios)
	}
	return list, nil
}

// Run evaluates a scenario under three orders of its extensions and reports each
// answer.
func Run(f Fixtures, s Scenario, report func(Outcome)) error {
	var extensions []manifest.Extension
	add := func(doc json.RawMessage) error {
		x, _, err := manifest.Parse(doc)
		if err != nil {
			return fmt.Errorf("scenario %s: %w", s.ID, err)
		}
		extensions = append(extensions, x)
		return nil
	}
	for _, name := range s.Use {
		doc, ok := f.Extensions[name]
		if !ok {
			return capability.Errorf(capability.CodeInvalidInput, "catalog.eval", "scenario %s uses the fixture %q, which does not exist", s.ID, name)
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
	if len(extensions) > maxExtensions {
		return capability.Errorf(capability.CodeTooLarge, "catalog.eval", "scenario %s has %d extensions; the limit is %d", s.ID, len(extensions), maxExtensions)
	}
	reversed := slices.Clone(extensions)
	slices.Reverse(reversed)
	rotated := slices.Clone(extensions)
	if len(rotated) > 1 {
		rotated = append(rotated[1:], rotated[0])
	}
	for _, order := range []struct {
		name string
		list []manifest.Extension
	}{{"given", extensions}, {"reversed", reversed}, {"rotated", rotated}} {
		w, err := build(order.list, s.Config)
		if err != nil {
			return fmt.Errorf("scenario %s: %w", s.ID, err)
		}
		for i, ask := range s.Ask {
			got, err := w.answer(f, s, ask)
			if err != nil {
				return fmt.Errorf("scenario %s, question %d: %w", s.ID, i, err)
			}
			plain := normal(got)
			report(Outcome{ID: s.ID, Index: i, Order: order.name, OK: matches(ask.Expect, plain), Got: plain})
		}
	}
	return nil
}

// world is the catalogs of one scenario.
type world struct {
	extensions []manifest.Extension
	resolved   *manifest.Resolved
	catalog    *catalog.Catalog
	compiler   *compile.Compiler
	operator   *operator.Catalog
}

func build(extensions []manifest.Extension, settings catalog.Settings) (*world, error) {
	w := &world{extensions: extensions, resolved: manifest.Resolve(extensions, settings.Owners)}
	var err error
	if w.catalog, err = catalog.New(settings, 0); err != nil {
		return nil, err
	}
	// In the order of the file, not that of ids: the catalog must not mind.
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

// normal is a value as JSON reads it back.
func normal(v any) any {
	doc, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	var out any
	if err := json.Unmarshal(doc, &out); err != nil {
		return fmt.Sprint(v)
	}
	return out
}

// matches compares by the rules of section 24: objects are subsets, arrays match
// in length and order, a missing key equals null, $contains and $lacks test
// membership.
func matches(want, got any) bool {
	switch want := want.(type) {
	case map[string]any:
		if contains, ok := want["$contains"].([]any); ok || want["$lacks"] != nil {
			list, isList := got.([]any)
			if !isList {
				return false
			}
			has := func(item any) bool { return slices.ContainsFunc(list, func(x any) bool { return matches(item, x) }) }
			lacks, _ := want["$lacks"].([]any)
			return !slices.ContainsFunc(contains, func(item any) bool { return !has(item) }) && !slices.ContainsFunc(lacks, has)
		}
		object, ok := got.(map[string]any)
		if !ok {
			return false
		}
		for key, value := range want {
			if !matches(value, object[key]) {
				return false
			}
		}
		return true
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			return false
		}
		for i := range want {
			if !matches(want[i], list[i]) {
				return false
			}
		}
		return true
	}
	return want == got
}
