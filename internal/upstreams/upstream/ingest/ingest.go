// Package ingest checks the definitions that an MCP server sends, tools, prompts,
// resources and resource templates, as untrusted input. A defective definition is
// dropped with its reason and does not affect the others. An accepted one is bounded in
// size, depth and number, has a usable schema, and carries a pin: the digest of
// everything that an agent sees of it. Its bytes stay unchanged, except that metadata
// under the protocol's own prefix and invisible characters are removed and a long
// description is cut.
//
// A [PinSet] compares definitions with the published ones: a new or changed one is
// published, held or quarantined, as the upstream's record decides.
//
// The package is pure: it does no I/O and stores nothing.
package ingest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
)

// Kind is what is declared; it is the member kind of the contribution too.
type Kind string

// The kinds, in the order in which they are listed.
const (
	Tool     Kind = "tool"
	Prompt   Kind = "prompt"
	Resource Kind = "resource"
	Template Kind = "resource-template"
)

// Kinds returns every kind.
func Kinds() []Kind { return []Kind{Tool, Prompt, Resource, Template} }

// Limits of what is taken in.
const (
	MaxTools       = 5000     // of one server; a quarter of it of each other kind
	MaxTotal       = 16 << 20 // bytes of one list
	MaxDefinition  = 64 << 10
	MaxDescription = 8 << 10 // bytes that agents see
	MaxName        = 128     // bytes
	MaxURI         = 2048    // bytes, templates too
	maxDepth       = 64
	maxObjects     = 4096 // in one definition, which bounds its subschemas
	maxDropped     = 100  // reasons that are kept of one list
)

// Definition is one sound declaration. It is immutable.
type Definition struct {
	Kind Kind
	// Name is the declared name of a tool or prompt, the address of a resource, the
	// text of a template: what calls name it by.
	Name string
	// Published is what agents see, as one JSON object. Where nothing had to be taken
	// out it is the bytes that came.
	Published json.RawMessage
	// Pin is "sha256:<hex>" over the canonical form of Published.
	Pin string
	// Title and Description are for people: without characters that are not shown.
	Title, Description string
	// Cut reports that the description was longer than [MaxDescription].
	Cut bool
	// Input is nil where the schema uses a dialect that is not known here: then the
	// server checks its own arguments. Output likewise.
	Input, Output json.RawMessage
	// ReadOnly and Destructive are the server's claims.
	ReadOnly, Destructive bool
	// Advice are things an operator should look at. They keep nothing out.
	Advice []string
	// Headers are the arguments that a modern server wants in headers too.
	Headers []Header
	// Pattern is what addresses of a template look like; nil for other kinds.
	Pattern *regexp.Regexp
}

// Header leads from an argument to the header Mcp-Param-<Name>.
type Header struct {
	Path []string // of properties
	Name string
}

// Dropped is a declaration that was not taken in. Name is for display.
type Dropped struct {
	Kind   Kind   `json:"kind"`
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Listing is one list of a server, judged.
type Listing struct {
	Definitions []*Definition // in the order in which they came
	Dropped     []Dropped     // the first hundred
	More        int           // further ones that were dropped
	Truncated   string        // why the list is not whole; "" when it is

	judged map[[sha256.Size]byte]*Definition
}

// Collector takes in one list, definition by definition. It is not safe for
// concurrent use.
type Collector struct {
	kind   Kind
	before map[[sha256.Size]byte]*Definition
	out    Listing
	count  map[string]int
	bytes  int
}

// NewCollector begins a list. before is the last one of the same kind, or nil: what
// came unchanged is not judged again.
func NewCollector(kind Kind, before *Listing) *Collector {
	c := &Collector{kind: kind, count: make(map[string]int), out: Listing{judged: make(map[[sha256.Size]byte]*Definition)}}
	if before != nil {
		c.before = before.judged
	}
	return c
}

// Add judges one definition. It keeps none of raw's memory.
func (c *Collector) Add(raw json.RawMessage) {
	most := MaxTools
	if c.kind != Tool {
		most /= 4
	}
	if c.bytes += len(raw); c.bytes > MaxTotal || len(c.out.Definitions) >= most {
		c.out.Truncated = "there is more than is taken in: 5,000 tools, 1,250 of the other kinds, 16 MiB of each"
		return
	}
	sum := sha256.Sum256(raw)
	d := c.before[sum]
	if d == nil {
		var err error
		if d, err = Parse(c.kind, raw); err != nil {
			c.drop(nameOf(c.kind, raw), err.Error())
			return
		}
	}
	c.count[d.Name]++
	c.out.judged[sum] = d
	c.out.Definitions = append(c.out.Definitions, d)
}

func (c *Collector) drop(name, reason string) {
	if len(c.out.Dropped) == maxDropped {
		c.out.More++
		return
	}
	c.out.Dropped = append(c.out.Dropped, Dropped{Kind: c.kind, Name: text.CutBytes(Shown(name), 80), Reason: reason})
}

// Done ends the list. Of a name that was given more than once none remains: which of
// them is meant would depend on the order of the list.
func (c *Collector) Done() *Listing {
	kept := c.out.Definitions[:0]
	said := make(map[string]bool)
	for _, d := range c.out.Definitions {
		if c.count[d.Name] == 1 {
			kept = append(kept, d)
		} else if !said[d.Name] {
			said[d.Name] = true
			c.drop(d.Name, "it is listed more than once")
		}
	}
	clear(c.out.Definitions[len(kept):])
	c.out.Definitions = kept
	return &c.out
}

// pin is the digest of the canonical form. Numbers stay as they are written: as
// floats, two integers above 2^53 would fall together.
func pin(doc []byte) (string, error) {
	canonical, err := jsonx.Sorted(doc)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(canonical)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}
