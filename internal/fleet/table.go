package fleet

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// Config of a Table; zero values are the defaults.
type Config struct {
	Lease time.Duration // 30 s without a word: removed
	Grace time.Duration // 5 s after the session's end: removed
	Drain time.Duration // 30 s after it was asked to go: removed
	Now   func() time.Time
}

// Table is the fleet. It is safe for concurrent use; no method blocks.
type Table struct {
	cfg Config

	mu    sync.Mutex
	nodes map[string]*Node
	// offering are the nodes of each function, in the order they joined.
	offering map[string][]*Node
	turn     map[string]uint64 // of round robin, by function
	epoch    int64             // the highest ever given
}

// New returns an empty table.
func New(cfg Config) *Table {
	for d, def := range map[*time.Duration]time.Duration{&cfg.Lease: 30 * time.Second, &cfg.Grace: 5 * time.Second, &cfg.Drain: 30 * time.Second} {
		if *d <= 0 {
			*d = def
		}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Table{cfg: cfg, nodes: make(map[string]*Node), offering: make(map[string][]*Node), turn: make(map[string]uint64)}
}

func check(m *Member) error {
	bad := func(format string, args ...any) error {
		return capability.Errorf(capability.CodeInvalidInput, "nodes.join", format, args...).With("invalid_params", "")
	}
	switch {
	case len(m.Labels) > MaxLabels:
		return bad("the node has %d labels; %d are the most", len(m.Labels), MaxLabels)
	case len(m.Functions) > MaxFunctions:
		return bad("the node has %d functions; %d are the most", len(m.Functions), MaxFunctions)
	case m.Session == "":
		return bad("the node has no session")
	}
	for _, l := range m.Labels {
		if len(l) > MaxLabel {
			return bad("a label has %d bytes; %d are the most", len(l), MaxLabel)
		}
		if l = strings.TrimSpace(l); reservedLabel(l) && !slices.Contains(m.Granted, l) {
			return capability.Errorf(capability.CodeDenied, "nodes.join", "the label %s is not granted to this node", l).With("denied", "labels of users and tenants come with the node's token")
		}
	}
	seen := make(map[string]bool, len(m.Functions))
	for i := range m.Functions {
		if name := m.Functions[i].Name; name == "" || seen[name] {
			return bad("the function %.100q has no name, or is there twice", name)
		}
		seen[m.Functions[i].Name] = true
	}
	return nil
}

// reservedLabel reports whether a label decides who may call (decision R33).
func reservedLabel(l string) bool {
	return strings.HasPrefix(l, "user:") || strings.HasPrefix(l, "tenant:")
}

// RejectedLabels are the labels of a list that a credential would have to grant and
// does not: a gateway takes them out before Join and tells the node.
func RejectedLabels(labels, granted []string) (rejected []string) {
	for _, l := range tidy(labels) {
		if reservedLabel(l) && !slices.Contains(granted, l) {
			rejected = append(rejected, l)
		}
	}
	return rejected
}

// Join takes a node in, or takes it back, and returns its epoch, which is higher
// than every other. A node that is there already in another session is superseded:
// the newer one serves (N9). Errors: invalid_input; denied, for a label that is not
// granted; overloaded beyond MaxNodes.
func (t *Table) Join(m Member) (epoch int64, events []Event, err error) {
	if err := check(&m); err != nil {
		return 0, nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[m.ID]
	if n == nil && len(t.nodes) >= MaxNodes {
		return 0, nil, capability.Errorf(capability.CodeOverloaded, "nodes.join", "the fleet has %d nodes; no more are taken", MaxNodes)
	}
	now := t.cfg.Now()
	// Time makes epochs grow over the restart of a gateway and beside others.
	t.epoch = max(t.epoch+1, now.UnixMilli())
	switch {
	case n == nil:
		n = &Node{Joined: now, running: make(map[string]int)}
		t.nodes[m.ID] = n
		events = append(events, Event{Kind: NodeJoined, Node: m.ID, Epoch: t.epoch, Revision: m.Revision})
	case n.Status == Connected && n.Session != m.Session:
		events = append(events, Event{Kind: NodeSuperseded, Node: m.ID, Epoch: n.Epoch, Session: n.Session}, Event{Kind: NodeResumed, Node: m.ID, Epoch: t.epoch, Revision: m.Revision})
	default:
		events = append(events, Event{Kind: NodeResumed, Node: m.ID, Epoch: t.epoch, Revision: m.Revision})
	}
	if n.Revision != m.Revision && n.Epoch != 0 {
		events = append(events, Event{Kind: NodeUpdated, Node: m.ID, Epoch: t.epoch, Revision: m.Revision})
	}
	t.withdraw(n)
	n.take(m)
	// Calls of an earlier session have failed already (N11).
	n.Epoch, n.Status, n.LastBeat, n.InFlight, n.running, n.until = t.epoch, Connected, now, 0, make(map[string]int), time.Time{}
	n.Load.Accepting = true
	t.offer(n)
	return t.epoch, events, nil
}

// offer enters a node under its functions.
func (t *Table) offer(n *Node) {
	for name := range n.offers {
		t.offering[name] = append(t.offering[name], n)
	}
}

func (t *Table) withdraw(n *Node) {
	for name := range n.offers {
		if list := slices.DeleteFunc(t.offering[name], func(o *Node) bool { return o == n }); len(list) > 0 {
			t.offering[name] = list
		} else {
			delete(t.offering, name)
			delete(t.turn, name)
		}
	}
}

// Update takes over what a node offers now. Older and equal revisions change
// nothing. Errors: those of Join; conflict, reason superseded, for an older epoch;
// not_found.
func (t *Table) Update(id string, epoch int64, revision uint64, labels, granted []string, functions []Function) ([]Event, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.of(id, epoch)
	if err != nil {
		return nil, err
	}
	if revision <= n.Revision {
		return nil, nil
	}
	m := n.Member
	m.Labels, m.Granted, m.Functions, m.Revision = labels, granted, functions, revision
	if err := check(&m); err != nil {
		return nil, err
	}
	t.withdraw(n)
	n.take(m)
	t.offer(n)
	return []Event{{Kind: NodeUpdated, Node: id, Epoch: epoch, Revision: revision}}, nil
}

func (t *Table) of(id string, epoch int64) (*Node, error) {
	n := t.nodes[id]
	if n == nil {
		return nil, unknown(id)
	}
	if n.Epoch != epoch {
		return nil, capability.Errorf(capability.CodeConflict, "nodes", "another session of %s has taken over", id).With("superseded", "")
	}
	return n, nil
}

func unknown(id string) error {
	return capability.Errorf(capability.CodeNotFound, "nodes", "there is no node %q", id).With("node_not_found", "junctor nodes list")
}

// Verdict is what a node is told after a heartbeat.
type Verdict string

// The verdicts; "" is that all is well.
const (
	Superseded Verdict = "superseded" // another session has taken over
	Rejoin     Verdict = "rejoin"     // the gateway does not know it (N10)
	Outdated   Verdict = "update"     // the gateway has an older revision
)

// Beat takes a heartbeat. A node that was suspect and beats in its own session is
// back.
func (t *Table) Beat(id string, epoch int64, revision uint64, load Load) (Verdict, []Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[id]
	switch {
	case n == nil:
		return Rejoin, nil
	case n.Epoch > epoch:
		return Superseded, nil
	case n.Epoch < epoch:
		return Rejoin, nil
	}
	latency := n.Load.Latency
	n.Load, n.LastBeat = load, t.cfg.Now()
	n.Load.known, n.Load.Latency = true, latency
	var events []Event
	if n.Status == Disconnected {
		n.Status, n.until = Connected, time.Time{}
		events = []Event{{Kind: NodeResumed, Node: id, Epoch: epoch, Revision: n.Revision}}
	}
	if revision > n.Revision {
		return Outdated, events
	}
	return "", events
}

// Gone says that a session has ended. Its node is suspect until the grace is over.
func (t *Table) Gone(session string) []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, n := range t.nodes {
		if n.Session != session || n.Status == Disconnected {
			continue
		}
		n.Status, n.until, n.InFlight, n.running = Disconnected, t.cfg.Now().Add(min(t.cfg.Grace, t.cfg.Lease)), 0, make(map[string]int)
		return []Event{{Kind: NodeSuspect, Node: id, Epoch: n.Epoch, Session: session}}
	}
	return nil
}

// Leave takes a node out that said goodbye. A goodbye of an older epoch is nobody's.
func (t *Table) Leave(id string, epoch int64) ([]Event, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.of(id, epoch)
	if err != nil {
		return nil, err
	}
	return t.remove(n, ReasonLeft), nil
}

// Drain lets a node finish what it has; it is removed when that is done, or when
// its time is over.
func (t *Table) Drain(id string) ([]Event, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[id]
	if n == nil {
		return nil, unknown(id)
	}
	if n.Status == Draining {
		return nil, nil
	}
	if n.InFlight == 0 && n.Load.Active == 0 {
		return t.remove(n, ReasonDrained), nil
	}
	n.Status, n.until = Draining, t.cfg.Now().Add(t.cfg.Drain)
	return []Event{{Kind: NodeUpdated, Node: id, Epoch: n.Epoch, Revision: n.Revision}}, nil
}

// Remove takes a node out for an operator.
func (t *Table) Remove(id string) ([]Event, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[id]
	if n == nil {
		return nil, unknown(id)
	}
	return t.remove(n, ReasonRemoved), nil
}

func (t *Table) remove(n *Node, reason string) []Event {
	t.withdraw(n)
	delete(t.nodes, n.ID)
	return []Event{{Kind: NodeLeft, Node: n.ID, Epoch: n.Epoch, Reason: reason, Session: n.Session}}
}

// Expire removes whose time is over, and says when to ask again; zero while nobody's
// time runs.
func (t *Table) Expire() (events []Event, next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.cfg.Now()
	for _, n := range t.nodes {
		due, reason := n.LastBeat.Add(t.cfg.Lease), ReasonSilent
		switch {
		case n.Status == Disconnected && n.until.Before(due):
			due, reason = n.until, ReasonLost
		case n.Status == Draining && (n.until.Before(due) || n.InFlight == 0 && n.Load.Active == 0):
			due, reason = n.until, ReasonDrained
			if n.InFlight == 0 && n.Load.Active == 0 {
				due = now
			}
		}
		if !now.Before(due) {
			events = append(events, t.remove(n, reason)...)
		} else if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	slices.SortFunc(events, func(a, b Event) int { return strings.Compare(a.Node, b.Node) })
	return events, next
}
