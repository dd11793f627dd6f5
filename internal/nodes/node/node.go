// Package node implements a node's side of the node protocol: one session with a gateway, from
// joining to leaving. It announces the node's functions and load, handles calls, sends their
// answers within the window of each stream, and reconnects after a failure of the network.
//
// Package functions holds the table of functions and runs them, in goroutines other than
// the session's. The caller supplies the node's identity and the connection to its gateway.
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

// States of a node.
const (
	Initializing = "initializing"
	Connecting   = "connecting"
	Registering  = "registering"
	Connected    = "connected"
	Reconnecting = "reconnecting"
	Draining     = "draining"
	ShuttingDown = "shutting_down"
	Disconnected = "disconnected" // the node has left
	Failed       = "error"        // the node has stopped with an error
)

// ReasonSuperseded is the reason of Run's error when another process has joined with the
// same id. The node must not join again, or the two would supersede each other forever.
const ReasonSuperseded = "superseded"

// Config configures a Node. Dial, Functions and Executor are required, and Token or Key.
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
	MaxConcurrent int // of the executor; 0: its default
	Queue         int // of the executor; 0: its default

	// HostStatus is the status of the capability host. If nil, the node has none.
	HostStatus func() cmp.Status
	// Fetch and Put transfer values that are too large for a message. If nil, such a
	// value is payload_too_large.
	Fetch func(ctx context.Context, a cmp.Asset) ([]byte, error)
	Put   func(ctx context.Context, data []byte, mediaType string) (cmp.Asset, error)

	Heartbeat                   time.Duration // maximum; 0: the gateway's interval
	ReconnectWait, ReconnectMax time.Duration // 0: those of messaging.DialOptions

	// Figures returns the machine's CPU, memory and GPU use, 0 to 100; nil: those of the system.
	Figures func() (cpu, mem, gpu float64)
	// Changed receives every change of the status, in order; it must not block.
	Changed func(Status)
	// Called is called at the end of each call, in the call's goroutine. It may be nil.
	Called func(ctx context.Context, r Record)
	Logger *slog.Logger
	Now    func() time.Time
}

// Record describes a call that has ended. It contains no values.
type Record struct {
	CallID   string
	Function string
	Effect   string // of the function, as the wire spells it; "" if the function does not exist
	Caller   wire.Caller
	Trace    string // traceparent
	Outcome  string // "" or the reason of the error
	Began    time.Time
	Took     time.Duration
}

// Status is the state of a node.
type Status struct {
	ID             string    `json:"node_id"`
	State          string    `json:"state"`
	Since          time.Time `json:"since"` // of the state
	Error          string    `json:"error,omitempty"`
	Epoch          int64     `json:"epoch"`
	Gateway        string    `json:"gateway,omitempty"` // the instance that admitted it
	Labels         []string  `json:"labels"`
	RejectedLabels []string  `json:"rejected_labels,omitempty"`
	Functions      int       `json:"functions"`
	Revision       uint64    `json:"revision"`
	Active         int       `json:"active"`
	Queued         int       `json:"queued"`
	Streams        int       `json:"streams"`
	Accepting      bool      `json:"accepting"`
	Joins          int       `json:"joins"` // number of successful joins
	Beats          uint64    `json:"beats"`
	Stale          int64     `json:"stale"` // calls of other epochs, which were ignored
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
	upward   chan struct{} // slots of calls to the gateway

	mu     sync.Mutex
	conn   messaging.Conn
	status Status
	reply  wire.JoinReply // of the last join
	// theirs is the gateway's time at the local time ours.
	theirs, ours time.Time
	calls        map[string]*call
	told         chan struct{} // held while Changed runs, which keeps the order
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

// Status returns the current state of the node.
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

// set applies change with mu held, renews Since if the state changed, and calls Config.Changed
// with a copy after mu is released. Calls run one at a time, so that Changed sees every change in
// order; neither function may call set.
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

// Epoch returns the epoch of the session, 0 while the node has not joined.
func (n *Node) Epoch() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.status.Epoch
}

// Joined returns a channel that is closed at the first join.
func (n *Node) Joined() <-chan struct{} { return n.joined }

// Time returns the gateway's time as far as it is known, else the local time. Proofs of the
// node's key use it, so that they do not depend on the local clock.
func (n *Node) Time() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.cfg.Now()
	if n.ours.IsZero() {
		return now
	}
	// Monotonic, so that setting this machine's clock has no effect.
	return n.theirs.Add(now.Sub(n.ours))
}

// Refresh sends the current functions to the gateway and waits for the acknowledgement. It
// returns at once if the gateway has them. If the node has not joined, the error is
// connection_failed; the next join sends them.
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
	leave  bool // at once, without draining
	reason string
}

// Drain stops accepting calls, waits up to DrainTimeout for running ones, leaves, and
// returns when Run has ended, or with the error of ctx.
func (n *Node) Drain(ctx context.Context) error { return n.give(ctx, order{reason: "drain"}) }

// Leave leaves at once; running calls are cancelled.
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
