package actions

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/junctor-run/junctor/capability"
)

var update = flag.Bool("update", false, "rewrite testdata/registry.golden.json")

// The golden dump is what a reviewer reads when a row changes. The schemas are
// files of their own and are left out of it.
func TestRegistryMatchesGoldenDump(t *testing.T) {
	t.Parallel()
	rows := Rows()
	for i := range rows {
		rows[i].InputSchema, rows[i].OutputSchema = nil, nil
	}
	got, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	const path = "testdata/registry.golden.json"
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("registry changed; review it and run with -update (-golden +now):\n%s\nwant diff = \"\"", diff)
	}
}

var grammar = regexp.MustCompile(`^[a-z][A-Za-z0-9-]*(\.[a-z][A-Za-z0-9-]*){1,3}$`)

func TestRowsKeepTheRulesOfTheRegistry(t *testing.T) {
	t.Parallel()
	folds := make(map[string]string)
	claim := func(name string) {
		f := fold(name)
		if other, taken := folds[f]; taken {
			t.Errorf("%s and %s have the same fold %s; want taken = false", other, name, f)
		}
		folds[f] = name
	}
	roots := ReservedRoots()
	for _, r := range Rows() {
		id := string(r.ID)
		if !grammar.MatchString(id) || len(id) > 64 {
			t.Errorf("%s: not a canonical action id; want grammar.MatchString(id), len(id) at most 64", id)
		}
		root, _, _ := strings.Cut(id, ".")
		if !slices.Contains(roots, root) {
			t.Errorf("%s: root is not reserved; want roots with %v", id, root)
		}
		claim(id)
		for _, a := range r.Aliases {
			claim(a)
		}
		for _, word := range []struct {
			member, got string
			want        []string
		}{
			{"mode", string(r.Mode), []string{"exclusive", "ranked", "parallel", "composed"}},
			{"address", string(r.Address), []string{"current", "target", "none"}},
			{"pin", string(r.Pin), []string{"strict", "soft"}},
			{"effect", string(r.Effect), []string{"read", "write", "external", "admin"}},
			{"visibility", string(r.Visibility), []string{"agent", "operator", "internal"}},
			{"status", string(r.Status), []string{"stable", "reserved", "deprecated"}},
		} {
			if !slices.Contains(word.want, word.got) {
				t.Errorf("%s: %s = %q, want one of %v", id, word.member, word.got, word.want)
			}
		}
		if (r.Mode == ModeExclusive) != (r.Slot != "") {
			t.Errorf(`%s: mode %s with slot %q; exclusive rows and only they name a slot; want (r.Mode == ModeExclusive) = (r.Slot != "")`,
				id, r.Mode, r.Slot)
		}
		if r.Effect.AtLeast(capability.EffectExternal) && r.Pin != PinStrict {
			t.Errorf("%s: effect %s needs a strict pin; want not (r.Effect.AtLeast(capability.EffectExternal) && r.Pin != PinStrict)",
				id, r.Effect)
		}
		if r.Title == "" || r.Description == "" || r.Domain == "" || r.Since == "" || r.Mode == "" || r.Address == "" || r.Pin == "" {
			t.Errorf(`%s: an empty required field: %+v; want r.Title other than "", r.Description other than "", r.Domain other `+
				`than "", r.Since other than "", r.Mode other than "", r.Address other than "", r.Pin other than ""`, id, r)
		}
		wantSchema := r.Status != StatusReserved && (r.Visibility != capability.AudienceInternal || r.ID == "model.invoke")
		if hasSchema := len(r.InputSchema) > 0 && len(r.OutputSchema) > 0; hasSchema != wantSchema {
			t.Errorf("%s: has schemas %v, want %v", id, hasSchema, wantSchema)
		}
	}
}

func TestSchemasCompileAndInputsAreClosedObjects(t *testing.T) {
	t.Parallel()
	for _, r := range Rows() {
		for part, doc := range map[string]json.RawMessage{"input": r.InputSchema, "output": r.OutputSchema} {
			if len(doc) == 0 {
				continue
			}
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
			if err != nil {
				t.Fatalf("%s %s: %v", r.ID, part, err)
			}
			c := jsonschema.NewCompiler()
			c.DefaultDraft(jsonschema.Draft2020)
			if err := c.AddResource("mem:x", value); err != nil {
				t.Fatalf("%s %s: %v", r.ID, part, err)
			}
			if _, err := c.Compile("mem:x"); err != nil {
				t.Errorf("%s %s: %v", r.ID, part, err)
			}
			object, _ := value.(map[string]any)
			if object["type"] != "object" {
				t.Errorf(`%s %s: is not an object schema; want object["type"] = "object"`, r.ID, part)
			}
			if part == "input" && object["additionalProperties"] != false {
				t.Errorf(`%s: the input admits unknown members; want not (part == "input" && object["additionalProperties"] != false)`,
					r.ID)
			}
		}
	}
}

func TestEverySchemaBelongsToARow(t *testing.T) {
	t.Parallel()
	for id := range loadSchemas() {
		if _, ok := Lookup(id); !ok {
			t.Errorf("schema of unknown action %s; want ok = true", id)
		}
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		id   capability.Action
		want capability.Action
	}{
		{"finds an id", "fs.readText", "fs.readText"},
		{"finds an alias", "search_tools", "catalog.search"},
		{"does not fold case", "fs.readtext", ""},
		{"does not know host-minted ids", "ext.acme.hello", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			row, ok := Lookup(tt.id)
			if row.ID != tt.want || ok != (tt.want != "") {
				t.Errorf("Lookup(%q) = %q, %v; want %q", tt.id, row.ID, ok, tt.want)
			}
		})
	}
}

func TestDomainsFollowTheRoot(t *testing.T) {
	t.Parallel()
	tests := map[capability.Action]struct {
		domain string
		aware  bool
	}{
		"message.send":           {"messaging", true},
		"account.presence.set":   {"messaging", true},
		"interaction.modal.open": {"messaging", true},
		"directory.lookup":       {"directory", true},
		"voice.call.end":         {"voice", true},
		"fs.list":                {"fs", false},
		"task-agent.spawn":       {"task-agent", false},
		"runtime.backend":        {"runtime-backend", false},
	}
	for id, want := range tests {
		row, _ := Lookup(id)
		if row.Domain != want.domain || row.RouteAware != want.aware {
			t.Errorf("%s: domain %q, route-aware %v; want %q, %v", id, row.Domain, row.RouteAware, want.domain, want.aware)
		}
	}
}

// The first actions must never be removed, because clients call them by name.
func TestSeedActionsExistAndAreStable(t *testing.T) {
	t.Parallel()
	for _, id := range strings.Fields(`message.send message.reply message.broadcast message.poll message.react
		message.edit message.delete message.pin message.thread.manage directory.lookup provider.authenticate
		provider.configure memory.search memory.store voice.call.start diff.render`) {
		if row, ok := Lookup(capability.Action(id)); !ok || row.Status != StatusStable {
			t.Errorf("%s: found %v, status %q; want ok = true, row.Status = %v", id, ok, row.Status, StatusStable)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	for b.Loop() {
		if _, ok := Lookup("fs.readText"); !ok {
			b.Fatal("lost fs.readText")
		}
	}
}

// fold returns the form in which two names must differ.
func fold(s string) string {
	return strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(s), "_"), "_")
}
