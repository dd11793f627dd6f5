// Package actions is the registry of canonical actions: the provider-independent
// verbs that several modules may implement and that planners see under one name.
// A row fixes the properties of an action that modules cannot change: how its provider
// is chosen (mode, address, pin), its effect, its audience, and the schemas of its input
// and output. The golden dump beside this file makes every change of a row visible in
// review.
//
// rows.json holds the rows, without the members that follow from the id. Pipelines and
// backends of the host have the effect read, because they run inside a call that was
// judged by its own effect; planners call none of them, and none has a schema. Schemas are
// JSON Schema 2020-12 documents in schemas/, one file per root segment.
package actions

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Mode states how the providers of an action relate.
type Mode string

// The arbitration modes.
const (
	ModeExclusive Mode = "exclusive" // one provider holds the slot
	ModeRanked    Mode = "ranked"    // best eligible rank first, fallback to the next
	ModeParallel  Mode = "parallel"  // all are live at once, the caller selects
	ModeComposed  Mode = "composed"  // all run, in order
)

// Address states what an action acts on.
type Address string

// The kinds of address.
const (
	AddressCurrent Address = "current" // the current conversation or call
	AddressTarget  Address = "target"  // a target that the call names
	AddressNone    Address = "none"
)

// Pin states whether a call may go to another provider if the bound one is not available.
type Pin string

// The strengths of a pin.
const (
	PinStrict Pin = "strict" // never another provider
	PinSoft   Pin = "soft"
)

// Status is the standing of a row.
type Status string

// The states of a row.
const (
	StatusStable     Status = "stable"
	StatusReserved   Status = "reserved" // the id is taken, without a schema yet
	StatusDeprecated Status = "deprecated"
)

// Row is one canonical action. Slices and schemas are shared by all copies of
// the row and must not be changed.
type Row struct {
	ID             capability.Action   `json:"id"`
	Title          string              `json:"title"`
	Description    string              `json:"description"`
	Mode           Mode                `json:"mode"`
	Address        Address             `json:"address"`
	Pin            Pin                 `json:"pin"`
	Effect         capability.Effect   `json:"effect"`
	Domain         string              `json:"domain"` // first segment of the provider keys
	RouteAware     bool                `json:"routeAware"`
	Slot           string              `json:"slot,omitempty"` // exclusive rows only
	Visibility     capability.Audience `json:"visibility"`     // widest audience
	InputSchema    json.RawMessage     `json:"inputSchema,omitempty"`
	OutputSchema   json.RawMessage     `json:"outputSchema,omitempty"`
	SelectorFields []string            `json:"selectorFields"` // read by planners, in this order
	Since          string              `json:"since"`
	Status         Status              `json:"status"`
	ReplacedBy     capability.Action   `json:"replacedBy,omitempty"`
	Aliases        []string            `json:"aliases,omitempty"` // other accepted spellings; never written
}

//go:embed rows.json
var rowsFile []byte

//go:embed schemas/*.json
var schemaFiles embed.FS

// registry builds the table at its first call. Its content is constant.
var registry = sync.OnceValue(build)

type table struct {
	rows  []Row
	index map[string]int // ids and aliases
	roots []string
}

// Rows returns every row, ordered by id. The caller owns the slice.
func Rows() []Row { return slices.Clone(registry().rows) }

// Lookup returns the row of an id or of one of its aliases. For a deprecated id it returns
// the deprecated row; the caller decides whether to follow ReplacedBy.
func Lookup(id capability.Action) (Row, bool) {
	t := registry()
	i, ok := t.index[string(id)]
	if !ok {
		return Row{}, false
	}
	return t.rows[i], true
}

// ReservedRoots returns, sorted, the first segments that a contribution may use only in a
// registered id: every root of the table and the four that are reserved for the host.
func ReservedRoots() []string { return slices.Clone(registry().roots) }

// build assembles the table: it reads, sorts and completes the rows, attaches their schemas,
// and indexes ids, aliases and roots. It panics on a malformed file, which only a broken build
// can contain.
func build() *table {
	t := &table{index: make(map[string]int)}
	if err := jsonx.UnmarshalStrict(rowsFile, &t.rows); err != nil {
		panic(fmt.Sprintf("actions: embedded rows.json: %v", err))
	}
	slices.SortFunc(t.rows, func(a, b Row) int { return strings.Compare(string(a.ID), string(b.ID)) })
	schemas := loadSchemas()
	roots := map[string]bool{"plugin": true, "core": true, "ext": true, "fn": true}
	for i := range t.rows {
		r := &t.rows[i]
		root, _, _ := strings.Cut(string(r.ID), ".")
		roots[root] = true
		complete(r, root)
		r.InputSchema, r.OutputSchema = schemas[r.ID].Input, schemas[r.ID].Output
		t.index[string(r.ID)] = i
		for _, alias := range r.Aliases {
			t.index[alias] = i
		}
	}
	for root := range roots {
		t.roots = append(t.roots, root)
	}
	slices.Sort(t.roots)
	return t
}

// complete sets the members of a row that follow from its id alone.
func complete(r *Row, root string) {
	switch root {
	case "message", "conversation", "account", "interaction":
		r.Domain, r.RouteAware = "messaging", true
	case "directory", "voice":
		r.Domain, r.RouteAware = root, true
	default:
		r.Domain = root
	}
	if r.ID == "runtime.backend" {
		r.Domain = "runtime-backend"
	}
	r.SelectorFields = selectorFields(r.Domain, root)
	r.Visibility = cmp.Or(r.Visibility, capability.AudienceAgent)
	r.Status = cmp.Or(r.Status, StatusStable)
	r.Since = cmp.Or(r.Since, "0.1")
}

// selectorFields returns the members of a selector that identify providers of a domain.
// The whole provider key is always accepted and is not repeated here.
func selectorFields(domain, root string) []string {
	switch {
	case domain == "messaging", domain == "directory", domain == "voice":
		return []string{"channel", "account", "conversation"}
	case root == "memory":
		return []string{"store", "instance"}
	case root == "device":
		return []string{"node"}
	}
	return []string{"endpoint", "node", "extension"}
}

type schemaPair struct {
	Input  json.RawMessage `json:"input"`
	Output json.RawMessage `json:"output"`
}

// loadSchemas reads the embedded schema files. It panics on a malformed file, which only a
// broken build can contain.
func loadSchemas() map[capability.Action]schemaPair {
	all := make(map[capability.Action]schemaPair)
	entries, err := schemaFiles.ReadDir("schemas")
	if err != nil {
		panic(fmt.Sprintf("actions: embedded schemas: %v", err))
	}
	for _, e := range entries {
		data, err := schemaFiles.ReadFile("schemas/" + e.Name())
		if err != nil {
			panic(fmt.Sprintf("actions: embedded %s: %v", e.Name(), err))
		}
		var family map[capability.Action]schemaPair
		if err := json.Unmarshal(data, &family); err != nil {
			panic(fmt.Sprintf("actions: embedded %s: %v", e.Name(), err))
		}
		for id, pair := range family {
			all[id] = schemaPair{Input: compact(pair.Input), Output: compact(pair.Output)}
		}
	}
	return all
}

// compact removes insignificant white space.
func compact(doc json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if err := json.Compact(&b, doc); err != nil {
		panic(fmt.Sprintf("actions: embedded schema: %v", err))
	}
	return b.Bytes()
}
