// Package fleet is the table of nodes: the members, their functions, and the routing of
// calls to them. It does no I/O: the caller handles sessions and messages, and every
// change returns the events that describe it.
//
// Membership depends on a session, a grace period and a lease. A node whose session ends
// is suspect at once: no calls are routed to it, and it is removed after the grace period
// unless it comes back. A node without heartbeats is removed when its lease expires, even
// if its session is open. Each join has an epoch, and messages of an older epoch are
// refused, so that a process that was cut off cannot act for its successor.
package fleet

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/protocol/cmp"
)

// Status of a node, as lists show it.
type Status string

// The statuses.
const (
	Connected    Status = "connected"
	Disconnected Status = "disconnected" // suspect: its session has ended, its grace period has not
	Draining     Status = "draining"     // finishes its calls and accepts no new ones
)

// Function is a function of a node. It is immutable once it is in the table.
type Function struct {
	Name          string          `json:"name"`
	Tags          []string        `json:"tags,omitempty"`
	Description   string          `json:"description,omitempty"`
	Version       string          `json:"version,omitempty"`
	Effect        string          `json:"effect,omitempty"`
	Stream        bool            `json:"stream,omitempty"`
	MaxConcurrent int             `json:"max_concurrent,omitempty"` // 0: only the node's limit applies
	Timeout       time.Duration   `json:"timeout,omitempty"`        // 0: the caller's, or the default
	Input         json.RawMessage `json:"input_schema,omitempty"`
	Output        json.RawMessage `json:"output_schema,omitempty"`
	Owner         string          `json:"owner,omitempty"` // node, host, skill:<name>, orphan:<name>
	// Pinned functions can only be called by the node's id.
	Pinned bool `json:"pinned,omitempty"`
}

// Load is the load in the last heartbeat of a node; percentages are 0 to 100.
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

// Member is what a node declares when it joins or updates.
type Member struct {
	ID            string
	Instance      string // random, of its process
	Software      string
	OS, Arch      string
	Location      string
	Labels        []string // including those that the node only claims
	Granted       []string // labels that its credential grants
	Functions     []Function
	Revision      uint64 // of its functions; increases
	MaxConcurrent int    // 0: no limit of its own
	MemoryMB      int    // 0: unknown
	GPU           bool
	Session       string // of the bus; unique
}

// Node is a copy of a row of the table. Its slices and maps belong to the table and must
// not be changed.
type Node struct {
	Member
	Epoch    int64
	Status   Status
	Load     Load
	Joined   time.Time
	LastBeat time.Time
	Gateway  string // the instance that admitted it
	// InFlight is the number of this gateway's running calls to it.
	InFlight int

	offers  map[string]*Function
	rank    float64        // its score while candidates are compared
	running map[string]int // calls under way by function
	until   time.Time      // a suspect's grace, a draining node's limit
	drained time.Time      // the limit of a suspect that was draining; zero: it was not
	reason  string         // for which a suspect is removed then
	gap     time.Duration  // between its last two heartbeats
	idle    int            // consecutive heartbeats without active calls
}

// Offers reports whether the node has a function.
func (n *Node) Offers(function string) bool { return n.offers[function] != nil }

// Function returns the node's function of that name, or nil.
func (n *Node) Function(name string) *Function { return n.offers[name] }

// New reports whether the node joined less than two seconds ago and has sent no heartbeat since.
func (n *Node) New() bool { return n.gap == 0 && time.Since(n.LastBeat) < 2*time.Second }

// LoadFactor returns the CPU share as 0 to 1, the form of the original API.
func (n *Node) LoadFactor() float64 { return clamp(n.Load.CPU) / 100 }

// Names returns the names of the node's functions, sorted.
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
	n.Labels = cmp.Words(m.Labels)
	n.Granted = cmp.Words(m.Granted)
	n.offers = make(map[string]*Function, len(m.Functions))
	n.Functions = slices.Clone(m.Functions)
	for i := range n.Functions {
		n.offers[n.Functions[i].Name] = &n.Functions[i]
	}
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

// Reasons for which a node was removed.
const (
	ReasonLeft    = "left"    // it announced that it leaves
	ReasonLost    = "lost"    // its session ended and it did not come back
	ReasonSilent  = "silent"  // its lease expired without a heartbeat
	ReasonDrained = "drained" // it was drained, by an operator or itself
	ReasonRemoved = "removed" // by an operator
)

// Event describes one change. Session is the session that has ended, if there is one; the
// reader that owns it closes it.
type Event struct {
	Kind     string
	Node     string
	Epoch    int64
	Reason   string // of node.left
	Revision uint64
	Session  string
	// Ours is true in one of several gateways: the one that made the change, or, for
	// node.suspect, the one that admitted the node, while that runs.
	Ours bool
}
