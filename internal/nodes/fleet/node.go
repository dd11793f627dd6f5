// Package fleet is the table of nodes: who is a member, what each offers, and which
// one takes a call. It is pure state: sessions,
// messages and clocks are the caller's, and every change comes back as the events
// that tell of it.
//
// Membership is a session, a grace and a lease. A node whose session ends is
// suspect at once: nothing is routed to it, and it is removed when the grace is over
// unless it comes back. A node that says nothing is removed when its lease runs out,
// whatever its session looks like. Each join has an epoch, and what comes with an
// older one is turned away: a node that was cut off cannot speak for the one that
// took its place.
package fleet

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// Limits of one node.
const (
	MaxNodes     = 1 << 20
	MaxLabels    = 64
	MaxLabel     = 128
	MaxFunctions = 4096
)

// Status of a node, as lists show it.
type Status string

// The statuses.
const (
	Connected    Status = "connected"
	Disconnected Status = "disconnected" // suspect: its session is gone, its grace is not over
	Draining     Status = "draining"     // finishes what it has, takes nothing new
)

// Function is something that a node offers. A Function is not changed once it is in
// the table.
type Function struct {
	Name          string          `json:"name"`
	Tags          []string        `json:"tags,omitempty"`
	Description   string          `json:"description,omitempty"`
	Version       string          `json:"version,omitempty"`
	Effect        string          `json:"effect,omitempty"`
	Stream        bool            `json:"stream,omitempty"`
	MaxConcurrent int             `json:"max_concurrent,omitempty"` // 0: the node's limit alone
	Timeout       time.Duration   `json:"timeout,omitempty"`        // 0: the caller's, or the default
	Input         json.RawMessage `json:"input_schema,omitempty"`
	Output        json.RawMessage `json:"output_schema,omitempty"`
	Owner         string          `json:"owner,omitempty"` // node, host, skill:<name>, orphan:<name>
	// Pinned functions take no part in routing without a node's id.
	Pinned bool `json:"pinned,omitempty"`
}

// Load is what a node last said of itself; figures are 0 to 100.
type Load struct {
	CPU       float64 `json:"cpu"`
	Memory    float64 `json:"mem"`
	GPU       float64 `json:"gpu"`
	Active    int     `json:"active"`
	Queued    int     `json:"queued"`
	Latency   float64 `json:"latency_ms,omitempty"` // as the gateway measured it
	Accepting bool    `json:"accepting"`
	known     bool
}

// Member is what a node states when it joins, or when it has changed.
type Member struct {
	ID            string
	Instance      string // random, of its process
	Software      string
	OS, Arch      string
	Location      string
	Labels        []string // claimed ones too
	Granted       []string // those of them that its credential gives
	Functions     []Function
	Revision      uint64 // of what it offers; grows
	MaxConcurrent int    // 0: no limit of its own
	MemoryMB      int    // 0: not said
	GPU           bool
	Session       string // of the bus; unique
}

// Node is a row of the table, as it stood when it was asked for. Slices and maps are
// the table's and must not be changed.
type Node struct {
	Member
	Epoch    int64
	Status   Status
	Load     Load
	Joined   time.Time
	LastBeat time.Time
	Gateway  string // the instance that let it in
	// InFlight are calls that this gateway has under way there.
	InFlight int

	offers  map[string]*Function
	rank    float64        // its score while candidates are compared
	running map[string]int // calls under way by function
	until   time.Time      // a suspect's grace, a draining node's limit
	reason  string         // of what happens then to a suspect
	gap     time.Duration  // between its last two heartbeats
	idle    int            // heartbeats in a row, since it drains, that said it has nothing to do
}

// Offers reports whether the node has a function.
func (n *Node) Offers(function string) bool { return n.offers[function] != nil }

// Function returns what the node said of a function, nil if it has none of the name.
func (n *Node) Function(name string) *Function { return n.offers[name] }

// New reports whether the node joined a moment ago and has not said anything since.
func (n *Node) New() bool { return n.gap == 0 && time.Since(n.LastBeat) < 2*time.Second }

// LoadFactor is the CPU share as lists of the original show it: 0 to 1.
func (n *Node) LoadFactor() float64 { return clamp(n.Load.CPU) / 100 }

// Names are the functions of the node, sorted.
func (n *Node) Names() []string { return slices.Sorted(maps.Keys(n.offers)) }

func (n *Node) has(labels []string) bool {
	for _, l := range labels {
		if l = strings.TrimSpace(l); l != "" && !slices.Contains(n.Labels, l) {
			return false
		}
	}
	return true
}

func (n *Node) offersAll(functions []string) bool {
	for _, f := range functions {
		if f = strings.TrimSpace(f); f != "" && n.offers[f] == nil {
			return false
		}
	}
	return true
}

func (n *Node) take(m Member) {
	n.Member = m
	n.Labels = tidy(m.Labels)
	n.Granted = tidy(m.Granted)
	n.offers = make(map[string]*Function, len(m.Functions))
	n.Functions = slices.Clone(m.Functions)
	for i := range n.Functions {
		n.offers[n.Functions[i].Name] = &n.Functions[i]
	}
}

// tidy trims labels, drops empty ones and repetitions, and sorts them.
func tidy(list []string) []string {
	out := make([]string, 0, len(list))
	for _, l := range list {
		if l = strings.TrimSpace(l); l != "" {
			out = append(out, l)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func clamp(v float64) float64 {
	if !(v > 0) { // NaN too
		return 0
	}
	return min(v, 100)
}

// Kinds of events.
const (
	NodeJoined     = "node.joined"
	NodeResumed    = "node.resumed"
	NodeSuspect    = "node.suspect"
	NodeLeft       = "node.left"
	NodeUpdated    = "node.updated"
	NodeSuperseded = "node.superseded"
)

// Reasons for which a node is no longer there.
const (
	ReasonLeft    = "left"    // it said goodbye
	ReasonLost    = "lost"    // its session ended and it did not come back
	ReasonSilent  = "silent"  // it said nothing for too long
	ReasonDrained = "drained" // it was asked to go, or asked to
	ReasonRemoved = "removed" // by an operator
)

// Event tells of one change. Session is the one that is over, where one is: the reader that
// owns it closes it.
type Event struct {
	Kind     string
	Node     string
	Epoch    int64
	Reason   string // of node.left
	Revision uint64
	Session  string
	// Ours is true in one of several gateways: the one that made the change. Of
	// node.suspect it is the one that let the node in, while that lives.
	Ours bool
}
