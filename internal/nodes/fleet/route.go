package fleet

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

// Strategy chooses among nodes that offer the same function.
type Strategy string

// The strategies.
const (
	ResourceAware Strategy = "resource_aware"
	RoundRobin    Strategy = "round_robin"
	Random        Strategy = "random"
)

// ParseStrategy parses a name or alias. For an unknown name it returns ResourceAware and false.
func ParseStrategy(name string) (s Strategy, ok bool) {
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "round_robin", "rr":
		return RoundRobin, true
	case "random":
		return Random, true
	case "", "adaptive", "load_balanced", "resource_aware", "resource", "smart", "smart_adaptive", "dynamic", "latency_based", "cost_aware",
		"ml_adaptive":
		return ResourceAware, true
	}
	return ResourceAware, false
}

// Request describes the requirements of a call for its node.
type Request struct {
	Function string
	Node     string // "": any node that offers the function
	// Balance selects by Strategy. Without it the least loaded node is selected,
	// without randomness.
	Balance   bool
	Strategy  Strategy // "": ResourceAware
	Preferred []string // tried first, if they can take the call
	Excluded  []string // never tried
	Labels    []string // that the node must have
	Tags      []string // that the function must have
	NeedsGPU  bool
	MinMemory int // MiB
	// Unhealthy reports whether a node's circuit is open; it may be nil.
	Unhealthy func(node string) bool
	// Visible reports whether the caller may see a node; nil: all. Other nodes are
	// treated as missing.
	Visible func(n *Node) bool
}

// Pick returns the nodes to try, the best first: the named one, or at most three. Nodes at
// the limit of their calls are returned only if all suitable nodes are, because they have
// a queue. Errors: not_found, reason node_not_found; unknown_capability, reason
// function_not_found; overloaded, reason node_overloaded, if no suitable node accepts
// calls; unavailable, reason no_available_nodes, if none is suitable.
func (t *Table) Pick(r Request) ([]Node, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Node != "" {
		n, err := t.named(r)
		if err != nil {
			return nil, err
		}
		return []Node{*n}, nil
	}
	able, busy, seen := t.able(t.sample(r), r)
	if len(able) < few { // too few in the sample
		able, busy, seen = t.able(t.offering[r.Function], r)
	}
	full := len(busy) > 0
	busy = slices.DeleteFunc(busy, func(n *Node) bool { return !n.Load.Accepting })
	if len(able) == 0 { // all are busy: the call waits in the queue of the least loaded
		able = busy
	}
	switch {
	case seen == 0:
		return nil, capability.Errorf(capability.CodeUnknownCapability, "nodes.route", "no node offers the function %s",
			r.Function).With("function_not_found", "list them with: junctor nodes list")
	case len(able) == 0 && full:
		err := capability.Errorf(capability.CodeOverloaded, "nodes.route",
			"the function %s exists but all candidate nodes are currently overloaded", r.Function).With("node_overloaded", "try again in a moment")
		return nil, err
	case len(able) == 0:
		return nil, capability.Errorf(capability.CodeUnavailable, "nodes.route", "no live node that offers %s can take this call",
			r.Function).With("no_available_nodes", "")
	}
	ordered := t.order(able, r)
	out := make([]Node, 0, maxTries)
	for _, n := range ordered[:min(len(ordered), maxTries)] {
		out = append(out, *n)
	}
	return out, nil
}

func (t *Table) named(r Request) (*Node, error) {
	n := t.nodes[r.Node]
	switch {
	case n == nil || r.Visible != nil && !r.Visible(n):
		return nil, unknown(r.Node)
	case n.offers[r.Function] == nil:
		return nil, capability.Errorf(capability.CodeUnknownCapability, "nodes.route", "the node %s does not offer the function %s", r.Node,
			r.Function).With("function_not_found", "junctor nodes show "+r.Node)
	case n.Status == Disconnected:
		return nil, capability.Errorf(capability.CodeUnavailable, "nodes.route", "the node %s is not connected",
			r.Node).With("no_available_nodes", "")
	case n.Status == Draining: // a busy node has a queue, and reports itself if that is full
		return nil, capability.Errorf(capability.CodeOverloaded, "nodes.route", "the node %s takes nothing new at the moment",
			r.Node).With("node_overloaded", "try again in a moment")
	}
	return n, nil
}

// fits reports whether a node that offers the function has the required labels, tags,
// memory and GPU, and is not excluded.
func (r *Request) fits(n *Node) bool {
	if slices.Contains(r.Excluded, n.ID) || !n.has(r.Labels) || r.NeedsGPU && !n.GPU || r.MinMemory > 0 && n.MemoryMB < r.MinMemory {
		return false
	}
	for _, tag := range r.Tags {
		if !slices.Contains(n.offers[r.Function].Tags, tag) {
			return false
		}
	}
	return true
}

// busy reports whether a node accepts no further call of a function at the moment. This
// gateway's running calls count at once; the node's own count is up to a heartbeat old.
func (n *Node) busy(function string) bool {
	f := n.offers[function]
	return !n.Load.Accepting || n.MaxConcurrent > 0 && n.active() >= n.MaxConcurrent || f.MaxConcurrent > 0 &&
		n.running[function] >= f.MaxConcurrent
}

func (n *Node) active() int { return max(n.InFlight, n.Load.Active) }

// score returns the load of a node for comparison; smaller is better.
func (n *Node) score() float64 {
	return 0.40*clamp(n.Load.CPU) + 0.35*clamp(n.Load.Memory) + 0.20*clamp(10*float64(n.active())) + 0.05*clamp(n.Load.Latency/10)
}

// few is the number of candidates up to which all are compared.
const few = 8

// sampled is how many of a large number of nodes are considered for a balanced choice. Two
// of the better half of these are as good as two of the better half of all.
const sampled = 4 * few

// sample returns some of the nodes that offer the function, or nil if all must be
// considered: if there are few, or if the selection is not random.
func (t *Table) sample(r Request) []*Node {
	offering := t.offering[r.Function]
	if len(offering) < 2*sampled || !r.Balance || r.Strategy == RoundRobin || len(r.Preferred) > 0 {
		return nil
	}
	out := make([]*Node, 0, sampled)
	at, step := rand.IntN(len(offering)), len(offering)/sampled
	for range sampled { // spread, because neighbours may have joined together
		out = append(out, offering[at%len(offering)])
		at += step
	}
	return out
}

// able returns the nodes of a list that can take a call, those that could but are busy, and
// the number that the caller may see.
func (t *Table) able(list []*Node, r Request) (able, busy []*Node, seen int) {
	for _, n := range list {
		if r.Visible != nil && !r.Visible(n) {
			continue
		}
		seen++
		switch {
		case n.offers[r.Function].Pinned || !r.fits(n):
		case n.Status != Connected:
		case n.busy(r.Function):
			busy = append(busy, n)
		case r.Unhealthy == nil || !r.Unhealthy(n.ID):
			able = append(able, n)
		}
	}
	return able, busy, seen
}

func (t *Table) order(able []*Node, r Request) []*Node {
	switch {
	case r.Balance && r.Strategy == Random:
		rand.Shuffle(len(able), func(i, j int) { able[i], able[j] = able[j], able[i] })
	case r.Balance && r.Strategy == RoundRobin, !slices.ContainsFunc(able, func(n *Node) bool { return n.Load.known }) && r.Balance:
		slices.SortFunc(able, byID)
		k := int(t.turn[r.Function] % uint64(len(able))) //nolint:gosec // below the length
		t.turn[r.Function]++
		able = append(able[k:len(able):len(able)], able[:k]...)
	default:
		for _, n := range able {
			n.rank = n.score()
		}
		less := func(a, b *Node) int {
			if c := cmp.Compare(a.rank, b.rank); c != 0 {
				return c
			}
			return byID(a, b)
		}
		if r.Balance || len(r.Preferred) > 0 {
			slices.SortFunc(able, less)
		} else {
			for i := range min(maxTries, len(able)) { // only these are used
				best := i
				for k := i + 1; k < len(able); k++ {
					if less(able[k], able[best]) < 0 {
						best = k
					}
				}
				able[i], able[best] = able[best], able[i]
			}
		}
		if r.Balance && len(able) > few {
			// The load is up to a heartbeat old, so always selecting the best node would
			// send a burst to it. The better of two random ones of the better half is used.
			half := len(able) / 2
			i, j := rand.IntN(half), rand.IntN(half)
			first := min(i, j)
			able[0], able[first] = able[first], able[0]
		}
	}
	if len(r.Preferred) > 0 {
		slices.SortStableFunc(able, func(a, b *Node) int {
			return preferred(r.Preferred, a.ID) - preferred(r.Preferred, b.ID)
		})
	}
	return able
}

func byID(a, b *Node) int { return strings.Compare(a.ID, b.ID) }

func preferred(list []string, id string) int {
	if slices.Contains(list, id) {
		return 0
	}
	return 1
}

// Begin counts a call to a node as running. The caller calls end with the latency when the
// call has ended; end reports whether the node is draining and now idle. Begin returns nil
// if the node is no longer in the table in that epoch.
func (t *Table) Begin(id string, epoch int64, function string) (end func(latencyMS float64) (idle bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[id]
	if n == nil || n.Epoch != epoch {
		return nil
	}
	n.InFlight++
	n.running[function]++
	done := false
	return func(latency float64) bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		if done || t.nodes[id] != n || n.Epoch != epoch || n.running[function] == 0 {
			return false
		}
		done = true
		n.InFlight--
		if n.running[function]--; n.running[function] == 0 {
			delete(n.running, function)
		}
		if latency > 0 { // a moving average
			n.Load.Latency = cmp.Or(n.Load.Latency, latency)
			n.Load.Latency += (latency - n.Load.Latency) / 8
		}
		return n.Status == Draining && n.InFlight == 0 && n.idle >= 2
	}
}

// Filter narrows a list; a blank field does not restrict it.
type Filter struct {
	Labels    []string
	Functions []string
	Status    Status
	// Suspect includes nodes whose session has ended.
	Suspect bool
	Visible func(n *Node) bool
}

// List returns the nodes that match a filter, ordered by id.
func (t *Table) List(f Filter) []Node {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Node
	for _, n := range t.nodes {
		if (f.Status == "" || n.Status == f.Status) && (f.Suspect || f.Status == Disconnected || n.Status != Disconnected) &&
			n.has(f.Labels) && n.offersAll(f.Functions) && (f.Visible == nil || f.Visible(n)) {
			out = append(out, *n)
		}
	}
	slices.SortFunc(out, func(a, b Node) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Get returns a node.
func (t *Table) Get(id string) (Node, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.nodes[id]; n != nil {
		return *n, true
	}
	return Node{}, false
}

// Len returns the number of nodes, including suspects.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.nodes)
}
