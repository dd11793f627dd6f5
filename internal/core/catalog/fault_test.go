package catalog_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
)

func registeredAlias(t *testing.T) (alias, id capability.Action) {
	t.Helper()
	for _, row := range actions.Rows() {
		for _, a := range row.Aliases {
			return capability.Action(a), row.ID
		}
	}
	t.Skip("the registry has no aliases")
	return "", ""
}

// faulty is a provider whose key cannot be read: the build falls over it.
type faulty struct{}

func (*faulty) Key() capability.ProviderKey { panic("no key") }
func (*faulty) Invoke(context.Context, capability.Call) (capability.Result, error) {
	return capability.Result{}, nil
}

// TestABuildThatPanicsLeavesTheOldSnapshot: it is contained, said, and the
// catalog goes on as if it had never been asked.
func TestABuildThatPanicsLeavesTheOldSnapshot(t *testing.T) {
	t.Parallel()
	c := empty(t, catalog.Settings{CanonicalMap: []catalog.Mapping{{Ext: "*", Tool: "go", Action: "ops.go"}}})
	before := apply(t, c, module("a", tool("x", "go")))
	b := capability.Batch{Source: "b", Modules: []capability.Module{module("b", tool("x", "go"))}, Providers: []capability.Provider{&faulty{}}}
	_, changed, err := c.Replace(b)
	if capability.CodeOf(err) != capability.CodeUnavailable || capability.AsError(err).Reason != "build_failed" || changed ||
		c.Snapshot() != before {
		t.Fatalf("%v, changed %v; want capability.CodeOf(err) = capability.CodeUnavailable, capability.AsError(err).Reason = "+
			`"build_failed", changed = false, c.Snapshot() = %v`, err, changed, before)
	}
	if strings.Contains(capability.AsError(err).Message, "no key") {
		t.Error("the cause is for operators only")
	}
	b.Providers = nil
	after := apply(t, c, b.Modules...)
	if after.Generation != before.Generation+1 || len(after.Action("ops.go")) != 2 {
		t.Errorf("the catalog remembers the fault; got after.Generation = %v; want after.Generation = before.Generation + 1, "+
			`len(after.Action("ops.go")) = 2`, after.Generation)
	}
}

// odd is a provider that cannot be compared, though it must.
type odd []int

func (odd) Key() capability.ProviderKey { return "ext:b:default" }
func (odd) Invoke(context.Context, capability.Call) (capability.Result, error) {
	return capability.Result{}, nil
}

// TestALatePanicLeavesTheOldSnapshot: the build falls over what it compares, when
// most is built already.
func TestALatePanicLeavesTheOldSnapshot(t *testing.T) {
	t.Parallel()
	c := empty(t, catalog.Settings{})
	with := tool("x", "go")
	with.Provider = "ext:b:default"
	b := capability.Batch{Source: "b", Modules: []capability.Module{module("b", with)}, Providers: []capability.Provider{odd{1}}}
	if _, _, err := c.Replace(b); err != nil {
		t.Fatal(err)
	}
	before := c.Snapshot()
	if _, changed, err := c.Replace(b); err == nil || changed || c.Snapshot() != before {
		t.Errorf("%v, changed %v; want an error, changed = false, c.Snapshot() = %v", err, changed, before)
	}
	b.Providers = nil
	if _, _, err := c.Replace(b); err == nil {
		if got := c.Snapshot(); got.Len() != 1 || got.Generation != before.Generation+1 {
			t.Errorf("%d entries of generation %d; want got.Len() = 1, got.Generation = before.Generation + 1",
				got.Len(), got.Generation)
		}
	}
}

func TestSchemaFaultsTellAModelWhatToChange(t *testing.T) {
	t.Parallel()
	c := tool("x", "go")
	c.InputSchema = json.RawMessage(`{"type":"object","required":["path"],"additionalProperties":false,"properties":{
		"path":{"type":"string","minLength":2,"maxLength":4,"pattern":"^[a-z]+$"},"limit":{"type":"integer","minimum":1,"maximum":10},
		"share":{"exclusiveMinimum":0,"exclusiveMaximum":0.5,"multipleOf":0.25},"mode":{"enum":["fast",2,null]},"kind":{"const":"x"},
		"list":{"type":"array","minItems":1,"maxItems":2,"uniqueItems":true,"items":{"type":"object","required":["id"]}},"never":false,"any":{"minProperties":1}}}`)
	s := built(t, catalog.Settings{}, module("a", c), module("b", c))
	schema, err := s.Action("ext.a.x")[0].Schema()
	if err != nil {
		t.Fatal(err)
	}
	if other, err := s.Action("ext.b.x")[0].Schema(); err != nil || other != schema {
		t.Errorf("equal documents are compiled twice %v; want no error, other = %v", err, schema)
	}
	for input, want := range map[string]string{
		`{"path":"abc"}`:            "",
		`{"path":"abc","limit":10}`: "",
		`{}`:                        "input: missing path",
		`[]`:                        "input: is array where object is needed",
		`{"path":"abc","pth":1}`:    "input: unknown field pth",
		`{"path":1}`:                "path: is number where string is needed",
		`{"path":"a"}`:              "path: must have at least 2 characters",
		`{"path":"abcde"}`:          "path: must have at most 4 characters",
		`{"path":"AB"}`:             "path: must match ^[a-z]+$",
		`{"path":"abc","limit":0}`:  "limit: must be at least 1",
		`{"path":"abc","limit":99999999999999999999}`: "limit: must be at most 10",
		`{"path":"abc","share":0}`:                    "share: must be more than 0",
		`{"path":"abc","share":0.5}`:                  "share: must be less than 0.5",
		`{"path":"abc","share":0.3}`:                  "share: must be a multiple of 0.25",
		`{"path":"abc","mode":"slow"}`:                `mode: must be one of "fast", 2, null`,
		`{"path":"abc","kind":"y"}`:                   `kind: must be "x"`,
		`{"path":"abc","list":[]}`:                    "list: must have at least 1 items",
		`{"path":"abc","list":[{"id":1},{"id":1}]}`:   "list: must not repeat an item",
		`{"path":"abc","list":[{"id":1},{}]}`:         "list.1: missing id",
		`{"path":"abc","any":{}}`:                     "any: must have at least 1 members",
		`{"path":"abc","never":1}`:                    "never: is not allowed",
		`{"path":`:                                    "not one JSON value",
	} {
		err := schema.Check([]byte(input))
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", input, err)
			}
			continue
		}
		if capability.CodeOf(err) != capability.CodeInvalidInput || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", input, err, want)
		}
	}
	for _, doc := range []string{`{"type":7}`, `{"$ref":"https://example.org/x"}`} {
		c.InputSchema = json.RawMessage(doc)
		e := built(t, catalog.Settings{}, module("a", c)).Action("ext.a.x")[0]
		for range 2 {
			if _, err := e.Schema(); err == nil || !strings.Contains(err.Error(), "not a valid") || !strings.Contains(err.Error(), string(e.ID)) {
				t.Errorf(`%s: %v; want an error, err.Error() with "not a valid", err.Error() with %v`, doc, err, string(e.ID))
			}
		}
	}
}

// TestHostileSourcesCostLittle: what one source declares must not multiply.
// A quadratic step would take minutes here.
func TestHostileSourcesCostLittle(t *testing.T) {
	t.Parallel()
	const many = 4000
	ids := make([]string, many)
	for i := range ids {
		ids[i] = fmt.Sprintf("bad/c%d", i)
	}
	m := module("bad")
	for i := range many {
		c := adapter("message.send", "slack", "work")
		c.ID = fmt.Sprintf("c%d", i)
		c.Depends = &capability.Depends{Requires: ids[i+1:], Supersedes: ids[:i], Conflicts: []string{"none/x"}}
		m.Contributions = append(m.Contributions, c)
		if i > 100 {
			m.Contributions[i].Depends = &capability.Depends{Requires: ids[max(i-1, 0):i]}
		}
		if i == many-1 {
			m.Contributions[i].Depends.Supersedes = ids[:i]
		}
	}
	s := apply(t, empty(t, catalog.Settings{}), m)
	if list := s.Conflicts(false); len(list) != 1 || list[0].Winner != ids[many-1] {
		t.Errorf("%d conflicts; want len(list) = 1, list[0].Winner = ids[many-1]", len(list))
	}
}
