// Package node implements a node's side of the node protocol: one session with a
// gateway, from joining to leaving. It announces the node's functions and load, handles
// calls, sends their answers within the window of each stream, and reconnects after a
// failure of the network.
//
// What can be called is package functions' table, and package execution runs it:
// no handler shares a goroutine with the session. Who the node is and how its
// gateway is reached is the caller's to say.
package node

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
	"github.com/junctor-run/junctor/secret"
)

// Bounds of a node.
const (
	MaxStreams     = 32      // at once
	MaxOutstanding = 4 << 20 // bytes of all streams that are on their way
	MaxUpward      = 64      // calls upward at once
	AckDelay       = 250 * time.Millisecond
	JoinTimeout    = 15 * time.Second // for an answer of the gateway
	DrainTimeout   = 30 * time.Second
	// maxRefusals is how often in a row the bus may refuse a node that has never
	// joined before it gives up.
	maxRefusals = 3
)

// States of a node.
const (
	Initializing = "initializing"
	Connecting   = "connecting"
	Registering  = "registering"
	Connected    = "connected"
	Reconnecting = "reconnecting"
	Draining     = "draining"
	ShuttingDown = "shutting_down"
	Disconnected = "disconnected" // it has left
	Failed       = "error"        // it has given up
)

// ReasonSuperseded is the reason of Run's error when another process has joined by
// the same id: it must not come back, or the two would chase each other.
const ReasonSuperseded = "superseded"

// Config of a Node. Dial, Functions and Executor are required, and Token or Key.
type Config struct {
	Dial     messaging.Dialer
	Token    secret.Value
	Key      messaging.Key
	ID       string
	Labels   []string
	Location string
	Software wire.Software

	Functions     *functions.Registry
	Executor      *functions.Executor
	MaxConcurrent int // what the executor holds; 0: its default
	Queue         int // what the executor holds; 0: its default

	// HostStatus is the status of the capability host. If nil, the node has none.
	HostStatus func() cmp.Status
	// Fetch and Put carry values that are too large for a message; nil: there is
	// no way, and such a value is payload_too_large.
	Fetch func(ctx context.Context, a cmp.Asset) ([]byte, error)
	Put   func(ctx context.Context, data []byte, mediaType string) (cmp.Asset, error)

	Heartbeat                   time.Duration // at most; 0: what the gateway says
	ReconnectWait, ReconnectMax time.Duration // 0: those of messaging.DialOptions

	// Figures are the machine's cpu, memory and gpu, 0 to 100; nil: what it tells.
	Figures func() (cpu, mem, gpu float64)
	// Changed receives every change of the status, in order; it must not block.
	Changed func(Status)
	// Called receives the end of each call, from the call's goroutine. It may be nil.
	Called func(ctx context.Context, r Record)
	Logger *slog.Logger
	Now    func() time.Time
}

// Record is what is known of a call that has ended; it holds no values.
type Record struct {
	CallID   string
	Function string
	Effect   string // of the function, as the wire spells it; "" if the function does not exist
	Caller   wire.Caller
	Trace    string // traceparent
	Outcome  string // "" or the fine code of what went wrong
	Began    time.Time
	Took     time.Duration
}

// Status is how a node is.
type Status struct {
	ID             string    `json:"node_id"`
	State          string    `json:"state"`
	Since          time.Time `json:"since"` // of the state
	Error          string    `json:"error,omitempty"`
	Epoch          int64     `json:"epoch"`
	Gateway        string    `json:"gateway,omitempty"` // the instance that let it in
	Labels         []string  `json:"labels"`
	RejectedLabels []string  `json:"rejected_labels,omitempty"`
	Functions      int       `json:"functions"`
	Revision       uint64    `json:"revision"`
	Active         int       `json:"active"`
	Queued         int       `json:"queued"`
	Streams        int       `json:"streams"`
	Accepting      bool      `json:"accepting"`
	Joins          int       `json:"joins"` // how often it was let in
	Beats          uint64    `json:"beats"`
	Stale          int64     `json:"stale"` // calls of other epochs, which were not taken
	CPU            float64   `json:"cpu"`
	Memory         float64   `json:"mem"`
}

// Node is one session. Create it with New; Run is called once.
type Node struct {
	cfg      Config
	instance string
	refresh  *functions.Refresher
	credit   credit
	orders   chan order    // drain, leave
	joined   chan struct{} // closed at the first join
	ended    chan struct{} // closed when Run has returned
	upward   chan struct{} // places

	mu     sync.Mutex
	conn   messaging.Conn
	status Status
	reply  wire.JoinReply // of the last join
	// theirs is what the gateway's clock said when ours was the time here.
	theirs, ours time.Time
	calls        map[string]*call
	told         chan struct{} // held while Changed runs, so that changes are in order
	drains       bool
	busy         sync.WaitGroup // calls
}

// New returns a node that has not joined.
func New(cfg Config) (*Node, error) {
	if err := cmp.CheckNode(cfg.ID); err != nil {
		return nil, err
	}
	labels, err := cmp.Labels(cfg.Labels)
	if err != nil {
		return nil, err
	}
	cfg.Labels = labels
	if cfg.Token.Empty() == (cfg.Key.Sign == nil) {
		return nil, capability.Errorf(capability.CodeInvalidInput, "node.join", "a node needs a token or a key, and not both")
	}
	if cfg.MaxConcurrent <= 0 {
		cfg.MaxConcurrent = functions.DefaultConcurrent
	}
	if cfg.Queue <= 0 {
		cfg.Queue = functions.DefaultQueue
	}
	if cfg.Figures == nil {
		cfg.Figures = machine().figures
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	n := &Node{
		cfg: cfg, instance: ids.Text(), orders: make(chan order, 8), joined: make(chan struct{}), ended: make(chan struct{}),
		upward: make(chan struct{}, MaxUpward), calls: make(map[string]*call), told: make(chan struct{}, 1),
		status: Status{ID: cfg.ID, State: Initializing, Since: cfg.Now(), Labels: labels},
	}
	n.credit.changed = make(chan struct{})
	return n, nil
}

// Status is how the node is now.
func (n *Node) Status() Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.current()
}

// current must be called with the lock held.
func (n *Node) current() Status {
	s := n.status
	s.Active, s.Queued = n.cfg.Executor.Load()
	s.Revision = n.cfg.Functions.Revision()
	s.Functions = len(n.cfg.Functions.Names())
	for _, c := range n.calls {
		if c.stream {
			s.Streams++
		}
	}
	return s
}

// set changes the status and says so.
func (n *Node) set(change func(s *Status)) {
	n.told <- struct{}{}
	defer func() { <-n.told }()
	n.mu.Lock()
	before := n.status.State
	change(&n.status)
	if n.status.State != before {
		n.status.Since = n.cfg.Now()
	}
	s := n.current()
	n.mu.Unlock()
	if n.cfg.Changed != nil {
		n.cfg.Changed(s)
	}
}

// Epoch is that of the session, 0 while the node is disconnected.
func (n *Node) Epoch() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.status.Epoch
}

// Joined is closed when the node has been let in for the first time.
func (n *Node) Joined() <-chan struct{} { return n.joined }

// Time is what the gateway's clock says, as far as it is known: what a node proves
// itself by must not depend on a clock of its own.
func (n *Node) Time() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.cfg.Now()
	if n.ours.IsZero() {
		return now
	}
	// By what has passed since, which setting this machine's clock does not change.
	return n.theirs.Add(now.Sub(n.ours))
}

// Refresh tells the gateway what can be called now and returns when it has
// acknowledged that; at once, where it knows already. A node that has not joined
// will say it all when it joins, and fails with connection_failed.
func (n *Node) Refresh(ctx context.Context) error {
	n.mu.Lock()
	r := n.refresh
	n.mu.Unlock()
	if r == nil {
		return errNotJoined()
	}
	return r.Flush(ctx)
}

func errNotJoined() error {
	return cmp.Errorf(cmp.ReasonConnection, "the node has no session with its gateway at the moment").With(cmp.ReasonConnection,
		"it is tried again by itself")
}

// order is a request to the session.
type order struct {
	leave  bool // at once
	reason string
}

// Drain takes no new calls, lets those that run finish, at most DrainTimeout, leaves,
// and returns when Run has ended. It fails with the error of ctx before that.
func (n *Node) Drain(ctx context.Context) error { return n.give(ctx, order{reason: "drain"}) }

// Leave says goodbye at once: calls that run are cancelled.
func (n *Node) Leave(ctx context.Context) error {
	return n.give(ctx, order{leave: true, reason: "leave"})
}

func (n *Node) give(ctx context.Context, o order) error {
	select {
	case n.orders <- o:
	case <-n.ended:
		return nil
	case <-ctx.Done():
		return capability.AsError(ctx.Err())
	}
	select {
	case <-n.ended:
		return nil
	case <-ctx.Done():
		return capability.AsError(ctx.Err())
	}
}

func marshal(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return data
}
