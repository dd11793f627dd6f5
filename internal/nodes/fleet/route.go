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

// ParseStrategy reads a name or one of its aliases; ok is false for a name that
// is not known, which counts as ResourceAware.
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

// Request is a call that looks for its node.
type Request struct {
	Function string
	Node     string // "": any that offers it
	// Balance asks for a choice among several; without it the least loaded is taken
	// all the same, by a rule that has no chance in it.
	Balance   bool
	Strategy  Strategy // "": ResourceAware
	Preferred []string // first, if alive and able
	Excluded  []string // never
	Labels    []string // that the node must have
	Tags      []string // that the function must have
	NeedsGPU  bool
	MinMemory int // MiB
	// Unhealthy reports nodes whose circuit is open; nil: none is.
	Unhealthy func(node string) bool
	// Visible reports nodes that the caller may see; nil: all. One that it may not
	// is as good as none.
	Visible func(n *Node) bool
}

// maxTries is how many nodes a call may be offered to: the first, and two more that
// take it only if it provably did not start.
const maxTries = 3

// Pick returns the nodes to try, the best first: one that was named, or at most
// three. Nodes at the limit of their calls come after all others: they have a queue.
// Errors: not_found, reason node_not_found; unknown_capability, reason
// function_not_found; overloaded, reason node_overloaded, when those that offer the
// function take nothing new; unavailable, reason no_available_nodes, when none of
// them fits.
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
	if len(able) < few { // the sample says too little
		able, busy, seen = t.able(t.offering[r.Function], r)
	}
	full := len(busy) > 0
	busy = slices.DeleteFunc(busy, func(n *Node) bool { return !n.Load.Accepting })
	if len(able) == 0 { // all have their hands full: the call waits with the least loaded
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
	case n.Status == Draining: // one that is busy has a queue, and says itself when that is full
		return nil, capability.Errorf(capability.CodeOverloaded, "nodes.route", "the node %s takes nothing new at the moment",
			r.Node).With("node_overloaded", "try again in a moment")
	}
	return n, nil
}

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

// busy reports whether a node takes no further call of a function. What this gateway
// has under way counts at once; the node's own count is up to a heartbeat old.
func (n *Node) busy(function string) bool {
	f := n.offers[function]
	return !n.Load.Accepting || n.MaxConcurrent > 0 && n.active() >= n.MaxConcurrent || f.MaxConcurrent > 0 &&
		n.running[function] >= f.MaxConcurrent
}

func (n *Node) active() int { return max(n.InFlight, n.Load.Active) }

// score is smaller for a node that has less to do.
func (n *Node) score() float64 {
	return 0.40*clamp(n.Load.CPU) + 0.35*clamp(n.Load.Memory) + 0.20*clamp(10*float64(n.active())) + 0.05*clamp(n.Load.Latency/10)
}

// few is how many candidates are compared one by one.
const few = 8

// sampled is how many of a large number of nodes are looked at for a balanced choice:
// two of the better half of so many are as good as two of the better half of all.
const sampled = 4 * few

// sample is nil where all nodes must be looked at: where there are not many, or where
// the choice has a rule that is not chance.
func (t *Table) sample(r Request) []*Node {
	offering := t.offering[r.Function]
	if len(offering) < 2*sampled || !r.Balance || r.Strategy == RoundRobin || len(r.Preferred) > 0 {
		return nil
	}
	out := make([]*Node, 0, sampled)
	at, step := rand.IntN(len(offering)), len(offering)/sampled
	for range sampled { // from all over: neighbours may have joined together
		out = append(out, offering[at%len(offering)])
		at += step
	}
	return out
}

// able are those of a list that can take a call, those that are only busy, and how
// many the caller may see.
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
			for i := range min(maxTries, len(able)) { // no more are asked for
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
			// Figures are a heartbeat old: always taking the best sends a burst to one
			// node. Of two of the better half, the better.
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

// Begin counts a call that goes to a node; end counts it out, once, and states how
// long it took; idle means that the node drains and has nothing more to do. It is
// nil for a node that is not there any more in that epoch.
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
			if n.Load.Latency == 0 {
				n.Load.Latency = latency
			}
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
	// Suspect shows those whose session is gone, too.
	Suspect bool
	Visible func(n *Node) bool
}

// List returns the nodes that a filter admits, by id.
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

// Len is how many nodes there are, suspects too.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.nodes)
}
