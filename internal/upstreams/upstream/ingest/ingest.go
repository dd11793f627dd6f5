// Package ingest checks the definitions that an MCP server sends, tools, prompts, resources and
// resource templates, as untrusted input. A defective definition is dropped with its reason and
// does not affect the others. An accepted one is bounded in size, depth and number, has a usable
// schema, and carries a pin: the digest of everything that an agent sees of it. Its bytes stay
// unchanged, except that metadata under the protocol's own prefix and invisible characters are
// removed and a long description is cut.
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

// Kind is the kind of a definition, and the member kind of its contribution.
type Kind string

// The kinds, in the order in which they are listed.
const (
	Tool     Kind = "tool"
	Prompt   Kind = "prompt"
	Resource Kind = "resource"
	Template Kind = "resource-template"
	// Instructions is the text that a server gives about all of its tools: one definition of that name.
	Instructions Kind = "instructions"
)

// Kinds returns every kind.
func Kinds() []Kind { return []Kind{Tool, Prompt, Resource, Template, Instructions} }

// Definition is one accepted definition. It is immutable.
type Definition struct {
	Kind Kind
	// Name is the name of a tool or prompt, the address of a resource, or the text of
	// a template. Calls use it.
	Name string
	// Published is the JSON object that agents see: the received bytes, unless
	// something had to be removed.
	Published json.RawMessage
	// Pin is "sha256:<hex>" over the canonical form of Published.
	Pin string
	// Title and Description are for people, without invisible characters.
	Title, Description string
	// Cut reports that the description was longer than [MaxDescription].
	Cut bool
	// Input and Output are nil if the schema has an unknown dialect. Then only the
	// upstream validates arguments.
	Input, Output json.RawMessage
	// ReadOnly and Destructive are the server's claims. Writes is true if it claims that the tool is
	// not read-only or is destructive; if neither ReadOnly nor Writes, the server claims nothing.
	ReadOnly, Destructive, Writes bool
	// Advice lists points that an operator should check. It has no other effect.
	Advice []string
	// Headers are the arguments that a modern server requires as headers too.
	Headers []Header
	// Pattern matches the addresses of a template; nil for other kinds.
	Pattern *regexp.Regexp
}

// Header maps an argument to the header Mcp-Param-<Name>.
type Header struct {
	Path []string // of properties
	Name string
}

// Dropped is a rejected definition. Name is for display.
type Dropped struct {
	Kind   Kind   `json:"kind"`
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Listing is one checked list of a server.
type Listing struct {
	Definitions []*Definition // in the received order
	Dropped     []Dropped     // the first hundred
	More        int           // number of further dropped ones
	Truncated   string        // why the list is incomplete; "" if it is complete

	judged map[[sha256.Size]byte]*Definition
}

// Collector builds a Listing, definition by definition. It is not safe for concurrent use.
type Collector struct {
	kind   Kind
	before map[[sha256.Size]byte]*Definition
	out    Listing
	count  map[string]int
	bytes  int
}

// NewCollector begins a list. before is the previous list of the same kind, or nil;
// unchanged definitions are reused from it without another check.
func NewCollector(kind Kind, before *Listing) *Collector {
	c := &Collector{kind: kind, count: make(map[string]int), out: Listing{judged: make(map[[sha256.Size]byte]*Definition)}}
	if before != nil {
		c.before = before.judged
	}
	return c
}

// Add checks one definition and adds it to the accepted or dropped ones. It does not retain raw.
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

// Done returns the list. Definitions with a repeated name are all dropped, because
// otherwise the order of the list would decide which one is called.
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

// pin returns the digest of the canonical form. Numbers keep their text, because as floats
// two integers above 2^53 could be equal.
func pin(doc []byte) (string, error) {
	canonical, err := jsonx.Sorted(doc)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(canonical)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}
