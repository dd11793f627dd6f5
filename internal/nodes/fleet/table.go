package fleet

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// Config configures a Table. Zero values mean the defaults.
type Config struct {
	Lease time.Duration // a node without a heartbeat for so long is removed; 0: 30 s
	Grace time.Duration // from the end of the session to the removal; 0: 5 s
	Drain time.Duration // from the start of a drain to the removal; 0: 30 s
	Now   func() time.Time
	// Gateway is the name of the table's gateway in records.
	Gateway string
}

// Table holds the nodes. It is safe for concurrent use; no method blocks.
type Table struct {
	cfg Config

	mu    sync.Mutex
	nodes map[string]*Node
	// offering are the nodes of each function, in the order they joined.
	offering map[string][]*Node
	sessions map[string]*Node
	turn     map[string]uint64 // round-robin counter by function
	epoch    int64             // the highest assigned so far
}

// New returns an empty table.
func New(cfg Config) *Table {
	for d, def := range map[*time.Duration]time.Duration{
		&cfg.Lease: 30 * time.Second, &cfg.Grace: 5 * time.Second,
		&cfg.Drain: 30 * time.Second,
	} {
		if *d <= 0 {
			*d = def
		}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Table{
		cfg: cfg, nodes: make(map[string]*Node), offering: make(map[string][]*Node), sessions: make(map[string]*Node),
		turn: make(map[string]uint64),
	}
}

// Grace returns how long a node has to come back after its session has ended.
func (t *Table) Grace() time.Duration { return t.cfg.Grace }

// check validates a member: invalid_input, or denied for a reserved label that its
// credential does not grant.
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
		if err := permitLabel(l, m.Granted); err != nil {
			return err
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

// Propose returns the record that admits a node, with an epoch above all others in this
// table. The table changes only when Take receives the record. Errors: invalid_input;
// denied, for a label that is not granted; overloaded beyond MaxNodes.
func (t *Table) Propose(m Member) (Record, error) {
	if err := check(&m); err != nil {
		return Record{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[m.ID]
	if n == nil && len(t.nodes) >= MaxNodes {
		return Record{}, capability.Errorf(capability.CodeOverloaded, "nodes.join", "the fleet has %d nodes; no more are taken", MaxNodes)
	}
	now := t.cfg.Now()
	// The time makes epochs increase across restarts and between gateways.
	t.epoch = max(t.epoch+1, now.UnixMilli())
	r := Record{Member: m, Epoch: t.epoch, Joined: now, Gateway: t.cfg.Gateway, Writer: t.cfg.Gateway}
	if n != nil {
		r.Joined = n.Joined
	}
	r.Labels, r.Granted = cmp.Words(m.Labels), cmp.Words(m.Granted)
	return r, nil
}

// Take applies a record, whichever gateway wrote it, and returns the changes. A newer epoch
// supersedes another session of the same node. An older record changes nothing.
func (t *Table) Take(r Record) []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.take(r)
}

// Remember is Take for a record that was found in the bucket and not received when it was
// written. Its node may be gone, or about to join in another epoch, so a node that is new
// to the table is suspect until its next heartbeat, for at most a lease.
func (t *Table) Remember(r Record) []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.nodes[r.ID] != nil
	events := t.take(r)
	if n := t.nodes[r.ID]; !known && n.Status == Connected {
		n.Status, n.until, n.reason = Disconnected, t.cfg.Now().Add(t.cfg.Lease), ReasonLost
	}
	return events
}

func (t *Table) take(r Record) (events []Event) {
	t.epoch = max(t.epoch, r.Epoch)
	n := t.nodes[r.ID]
	event := func(kind string) {
		events = append(events, Event{Kind: kind, Node: r.ID, Epoch: r.Epoch, Revision: r.Revision, Ours: r.Writer == t.cfg.Gateway})
	}
	fresh := n == nil
	switch {
	case fresh:
		n = &Node{}
		t.nodes[r.ID] = n
		event(NodeJoined)
	case r.Epoch < n.Epoch, r.Epoch == n.Epoch && r.Revision <= n.Revision && !(r.Draining && n.Status == Connected):
		if r.Epoch == n.Epoch && r.Gateway == n.Gateway {
			n.Joined = r.Joined
		}
		return nil
	case r.Epoch == n.Epoch:
		event(NodeUpdated)
	default:
		if n.Status == Connected && n.Session != r.Session {
			events = append(events, Event{Kind: NodeSuperseded, Node: r.ID, Epoch: n.Epoch, Session: n.Session, Ours: r.Writer == t.cfg.Gateway})
		}
		event(NodeResumed)
		if n.Revision != r.Revision {
			event(NodeUpdated)
		}
	}
	t.withdraw(n)
	n.take(r.Member)
	n.Gateway, n.Joined = r.Gateway, r.Joined
	if n.Epoch != r.Epoch { // calls of an earlier epoch have failed already
		n.Epoch, n.Status, n.LastBeat, n.gap, n.InFlight, n.running, n.until = r.Epoch, Connected, t.cfg.Now(), 0, 0, make(map[string]int),
			time.Time{}
		n.Load.Accepting = true
	}
	if r.Draining && n.Status == Connected {
		n.Status, n.until, n.idle = Draining, t.cfg.Now().Add(t.cfg.Drain), 0
	}
	t.offer(n)
	return events
}

// Record returns the record of a node.
func (t *Table) Record(id string) (Record, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[id]
	if n == nil {
		return Record{}, false
	}
	return n.record(t.cfg.Gateway), true
}

func (n *Node) record(writer string) Record {
	return Record{Member: n.Member, Epoch: n.Epoch, Joined: n.Joined, Gateway: n.Gateway, Writer: writer, Draining: n.Status == Draining}
}

// offer adds a node to the indexes by function and session.
func (t *Table) offer(n *Node) {
	for name := range n.offers {
		t.offering[name] = append(t.offering[name], n)
	}
	t.sessions[n.Session] = n
}

func (t *Table) withdraw(n *Node) {
	if t.sessions[n.Session] == n {
		delete(t.sessions, n.Session)
	}
	for name := range n.offers {
		if list := slices.DeleteFunc(t.offering[name], func(o *Node) bool { return o == n }); len(list) > 0 {
			t.offering[name] = list
		} else {
			delete(t.offering, name)
			delete(t.turn, name)
		}
	}
}

// Revise returns the record of a node with new labels and functions. changed is false if the
// revision is not newer than the table's. The table changes only when Take receives the record.
// Errors: those of Propose; conflict, reason superseded, for an older epoch; not_found.
func (t *Table) Revise(id string, epoch int64, revision uint64, labels, granted []string,
	functions []Function,
) (r Record, changed bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.of(id, epoch)
	if err != nil || revision <= n.Revision {
		return Record{}, false, err
	}
	r = n.record(t.cfg.Gateway)
	r.Labels, r.Granted, r.Functions, r.Revision = cmp.Words(labels), cmp.Words(granted), functions, revision
	return r, true, check(&r.Member)
}

// Holds returns an error unless the node is in the table in that epoch: conflict, reason
// superseded; not_found.
func (t *Table) Holds(id string, epoch int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.of(id, epoch)
	return err
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
	return capability.Errorf(capability.CodeNotFound, "nodes", "there is no node %q", id).With("node_not_found",
		"list them with: junctor nodes list")
}

// Verdict is the response to a heartbeat.
type Verdict string

// The verdicts; "" if the heartbeat is in order.
const (
	Superseded Verdict = "superseded" // another session has taken over
	Rejoin     Verdict = "rejoin"     // the node is not in the table in this epoch
	Outdated   Verdict = "update"     // the gateway has an older revision
)

// Judge returns the verdict on a heartbeat without changing anything.
func (t *Table) Judge(id string, epoch int64, revision uint64) Verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.judge(t.nodes[id], epoch, revision)
}

func (t *Table) judge(n *Node, epoch int64, revision uint64) Verdict {
	switch {
	case n == nil || n.Epoch < epoch:
		return Rejoin
	case n.Epoch > epoch:
		return Superseded
	case revision > n.Revision:
		return Outdated
	}
	return ""
}

// Beat records a heartbeat and returns the verdict. A suspect node becomes connected. With
// the verdicts Rejoin and Superseded it records nothing.
func (t *Table) Beat(id string, epoch int64, revision uint64, load Load) (Verdict, []Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[id]
	verdict := t.judge(n, epoch, revision)
	if verdict == Rejoin || verdict == Superseded {
		return verdict, nil
	}
	latency, now := n.Load.Latency, t.cfg.Now()
	n.Load, n.gap, n.LastBeat = load, now.Sub(n.LastBeat), now
	n.Load.known, n.Load.Latency = true, latency
	// Only the node counts the calls of all gateways. Two idle heartbeats are needed,
	// because one may have been sent before the last call arrived.
	if n.idle++; load.Active > 0 {
		n.idle = 0
	}
	var events []Event
	if n.Status == Disconnected {
		n.Status, n.until = Connected, time.Time{}
		if !n.drained.IsZero() {
			n.Status, n.until, n.drained = Draining, n.drained, time.Time{}
		}
		events = []Event{{Kind: NodeResumed, Node: id, Epoch: epoch, Revision: n.Revision, Ours: n.Gateway == t.cfg.Gateway}}
	}
	return verdict, events
}

// Late reports whether the last two heartbeats of a node were more than d apart, or the
// last one is more than d ago.
func (t *Table) Late(id string, d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[id]
	return n != nil && (n.gap > d || t.cfg.Now().Sub(n.LastBeat) > d)
}

// Spare renews the lease of every node, for a gateway that was itself disconnected and
// received no heartbeats.
func (t *Table) Spare() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.cfg.Now()
	for _, n := range t.nodes {
		n.LastBeat, n.gap = now, 0
		if n.Status == Disconnected {
			n.until, n.reason = now.Add(t.cfg.Lease), ReasonLost
		}
	}
}

// Gone records that a session has ended. Its node becomes suspect.
func (t *Table) Gone(session string) []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.sessions[session]
	if n == nil || n.Status == Disconnected {
		return nil
	}
	return t.suspect(n, min(t.cfg.Grace, t.cfg.Lease), ReasonLost)
}

// Absent records that the bus has no session of a node, which becomes suspect. grace is how
// long it has to come back; 0 means Config.Grace.
func (t *Table) Absent(id string, epoch int64, grace time.Duration) []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[id]
	if n == nil || n.Epoch != epoch || n.Status == Disconnected {
		return nil
	}
	if grace <= 0 {
		grace = min(t.cfg.Grace, t.cfg.Lease)
	}
	return t.suspect(n, grace, ReasonLost)
}

func (t *Table) suspect(n *Node, grace time.Duration, reason string) []Event {
	if n.Status == Draining {
		n.drained = n.until
	}
	n.Status, n.until, n.reason, n.InFlight, n.running = Disconnected, t.cfg.Now().Add(grace), reason, 0, make(map[string]int)
	return []Event{{Kind: NodeSuspect, Node: n.ID, Epoch: n.Epoch, Session: n.Session, Ours: n.Gateway == t.cfg.Gateway}}
}

// Drop removes a node, unless it is now in the table in another epoch. ours is set by the
// gateway that decided the removal.
func (t *Table) Drop(id string, epoch int64, reason string, ours bool) []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.of(id, epoch)
	if err != nil {
		return nil
	}
	t.withdraw(n)
	delete(t.nodes, n.ID)
	return []Event{{Kind: NodeLeft, Node: n.ID, Epoch: n.Epoch, Reason: reason, Session: n.Session, Ours: ours}}
}

// Due is a node that must be removed.
type Due struct {
	Node   string
	Epoch  int64
	Reason string
}

// Expire returns the nodes that must be removed, by id, which the caller passes to Drop; the
// events of nodes that became suspect because their lease expired; and the time of the next
// deadline, zero without any.
func (t *Table) Expire() (due []Due, events []Event, next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.cfg.Now()
	for _, n := range t.nodes {
		end, reason := n.LastBeat.Add(t.cfg.Lease), ReasonSilent
		switch {
		case n.Status == Disconnected:
			end, reason = n.until, n.reason
		case n.Status == Draining && n.InFlight == 0 && n.idle >= 2:
			end, reason = now, ReasonDrained
		case n.Status == Draining && n.until.Before(end):
			end, reason = n.until, ReasonDrained
		}
		if now.Before(end) {
			if next.IsZero() || end.Before(next) {
				next = end
			}
			continue
		}
		if reason == ReasonSilent && n.Status != Disconnected {
			events = append(events, t.suspect(n, 0, ReasonSilent)...)
		}
		due = append(due, Due{n.ID, n.Epoch, reason})
	}
	slices.SortFunc(due, func(a, b Due) int { return strings.Compare(a.Node, b.Node) })
	slices.SortFunc(events, func(a, b Event) int { return strings.Compare(a.Node, b.Node) })
	return due, events, next
}
