// Package messaging defines the message bus between gateways and nodes: its interfaces,
// limits and errors, without any I/O. Two buses implement it, inproc (memory) and natsbus
// (NATS); both must pass the test suite messagingtest.
//
// Delivery is at most once. Messages of one publisher reach one subscription in the order
// in which they were published. Every loss is reported: a subscription that falls behind
// returns the number of lost messages, and a broken session emits an event.
package messaging

import (
	"context"
	"iter"
	"time"

	"github.com/junctor-run/junctor/secret"
)

// Message is one message on the bus. A received message may be shared between receivers
// and must not be changed. After sending, the sender may reuse its message.
type Message struct {
	Subject string
	Reply   string // subject for the answer; may be empty; see CheckReply
	Header  map[string]string
	Data    []byte
}

// Conn is one session with the bus. All methods are safe for concurrent use.
//
// Errors are capability errors: see the functions of errors.go for the reasons. While the session
// is broken, Publish, Request and Subscribe fail at once and keep nothing for later. Until it is
// closed, the session reconnects by itself and restores its subscriptions.
type Conn interface {
	// Publish sends m without waiting for a receiver. If this session may not publish to the
	// subject, an event of kind Refused reports it. A message above the limits or with an
	// invalid subject fails at once. For a message with a Reply whose subject has no
	// subscriber, the bus answers on Reply: see IsNobody.
	Publish(ctx context.Context, m Message) error
	// Request publishes m and returns the first answer. It fails at once if the subject has
	// no subscriber (no_responders) or the session may not publish to it (subject_denied),
	// if the session breaks before an answer (bus_disconnected, code failed: the receiver
	// may have acted), and with the error of ctx if that ends. It ignores m.Reply.
	Request(ctx context.Context, m Message) (Message, error)
	// Subscribe returns a subscription to the subjects that match a pattern, once the bus has
	// confirmed it. A pattern that this session may not subscribe to fails with subject_denied.
	Subscribe(ctx context.Context, o SubscribeOptions) (Subscription, error)
	// Flush returns once the bus has processed everything published before.
	Flush(ctx context.Context) error
	// Events yields the current state of the session (Connected, Disconnected or Closed) and
	// then its events since the call. It ends with the error of ctx, or without an error
	// after the event Closed.
	Events(ctx context.Context) iter.Seq2[Event, error]
	// Drain receives no more messages, waits until all subscriptions have been read to their
	// end or ctx ends, and closes the session.
	Drain(ctx context.Context) error
	// Close ends the session and its subscriptions at once. It may be called several times.
	Close()
}

// SubscribeOptions select the messages of a subscription and limit how many may wait.
type SubscribeOptions struct {
	// Pattern is a subject in which * matches one token and > the rest.
	Pattern string
	// Queue names a group, in which each message goes to one member. If empty, the
	// subscription receives all messages.
	Queue string
	// Pending and PendingBytes limit the messages that wait to be read; 0 means the defaults.
	// Messages above the limits are dropped, and Next reports their number.
	Pending, PendingBytes int
}

// Subscription returns messages one by one.
type Subscription interface {
	// Next returns the next message. If messages were dropped since the last call, it first
	// returns the error messages_lost once; the next call continues. After Close, or at the
	// end of a Drain, it fails with bus_closed.
	Next(ctx context.Context) (Message, error)
	// Close drops waiting messages. It may be called several times.
	Close()
}

// EventKind is the kind of a session's event, seen by the session itself.
type EventKind string

// The kinds of events.
const (
	Connected    EventKind = "connected"    // for the first time
	Disconnected EventKind = "disconnected" // the session will reconnect; Err is the cause
	Reconnected  EventKind = "reconnected"  // with its subscriptions; messages sent meanwhile are lost
	Refused      EventKind = "refused"      // the bus refused an operation, named by Err
	Lost         EventKind = "lost"         // the reader of events was too slow and missed some
	Closed       EventKind = "closed"       // for good
)

// Event is one event of a session.
type Event struct {
	Kind EventKind
	Err  error // may be nil
}

// Credential is the proof of identity that a session presented. Either Token is set, or
// Key, whose possession the session has then proven.
type Credential struct {
	Token   secret.Value
	Key     string // public key in NKey form, U…
	Name    string // name that the session gives itself; not proven
	Address string // network address, as far as the bus can determine it
}

// Identity is the id of a session's owner and the subjects that it may use.
type Identity struct {
	ID string // of one node or principal; 1 to 128 bytes
	// Publish and Subscribe are the patterns this session may use; all other subjects are refused.
	Publish, Subscribe []string
}

// Authorizer decides whether a session is admitted. An error with the code unauthenticated, denied,
// conflict or invalid_input refuses it; with any other, or after two seconds, the session has to try
// again. The text is only logged.
type Authorizer func(ctx context.Context, c Credential) (Identity, error)

// Session is one connection of one identity, seen by the bus.
type Session struct {
	ID       string // of this connection, never reused
	Identity string
	Name     string
	Address  string
}

// SessionKind is the kind of a session's event, seen by the bus.
type SessionKind string

// The kinds of session events.
const (
	SessionOpened SessionKind = "opened"
	SessionClosed SessionKind = "closed"
	SessionsLost  SessionKind = "lost" // events were missed; only leases show which sessions remain
)

// SessionEvent reports that a session was opened or closed.
type SessionEvent struct {
	Kind    SessionKind
	Session Session
	Reason  string // of SessionClosed, for people
}

// Broker is the gateway's side of the bus: it admits sessions, reports when they open and
// close, and stores the data that gateways share.
type Broker interface {
	// Conn returns the gateway's own session, which may use all subjects and lives as long as
	// the broker.
	Conn() Conn
	// Sessions yields sessions that open or close after the call, within 50 ms. It ends with
	// the error of ctx, or bus_closed. It omits the gateways' own sessions.
	Sessions(ctx context.Context) iter.Seq2[SessionEvent, error]
	// Disconnect breaks a session at once. The client gets the event Disconnected and may
	// reconnect unless the Authorizer refuses it. A session that has ended is not_found,
	// a moment after its end at the latest.
	Disconnect(ctx context.Context, session string) error
	// Bucket opens a bucket, and creates it if needed.
	Bucket(ctx context.Context, o BucketOptions) (Bucket, error)
	// Close ends the broker and its sessions. It may be called several times.
	Close()
}

// BucketOptions describe a bucket.
type BucketOptions struct {
	Name string // [A-Za-z0-9_-]{1,64}
	// TTL removes entries that were not written for this time, at least a second, and
	// notifies watchers. 0 keeps them.
	TTL time.Duration
}

// Bucket is a small table that gateways share. It may be empty at any start, so its owners must be
// able to write all entries again. Keys are tokens of [A-Za-z0-9_=-] joined by dots (see [Escape]),
// values at most MaxValue bytes. Revisions grow with every change in the bucket.
type Bucket interface {
	// Get fails with not_found.
	Get(ctx context.Context, key string) (Entry, error)
	// Put writes an entry unconditionally.
	Put(ctx context.Context, key string, value []byte) (revision uint64, err error)
	// Create fails with conflict if the key exists.
	Create(ctx context.Context, key string, value []byte) (revision uint64, err error)
	// Update fails with conflict if the entry has a different revision.
	Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	// Delete removes an entry. With a revision above 0 it fails with conflict if the entry
	// has a different one. Deleting a missing key is not an error.
	Delete(ctx context.Context, key string, revision uint64) error
	// Watch yields a complete snapshot (Reset, the entries, Synced) and then every change. It
	// yields another snapshot after its session was broken, or if it may have missed changes. Keys
	// that do not occur between Reset and Synced no longer exist. A slow watcher may see only the
	// last of several changes of a key. Watch ends with the error of ctx, or bus_closed.
	Watch(ctx context.Context) iter.Seq2[Change, error]
}

// Entry is one value of a bucket.
type Entry struct {
	Key      string
	Value    []byte
	Revision uint64
}

// ChangeKind is the kind of a Change.
type ChangeKind string

// The kinds of changes.
const (
	Reset   ChangeKind = "reset"   // a snapshot begins
	Put     ChangeKind = "put"     // an entry of the snapshot, or a new value
	Deleted ChangeKind = "deleted" // or expired
	Synced  ChangeKind = "synced"  // the snapshot is complete
)

// Change is one step of a watch. Only Put has a value.
type Change struct {
	Kind  ChangeKind
	Entry Entry
}

// Dialer connects a node to a bus. It returns at once, even if the bus is unreachable or
// refuses the session; the session then tries without end, and Events reports the state.
type Dialer func(ctx context.Context, o DialOptions) (Conn, error)

// Key proves a session's identity by signing a challenge of the bus.
type Key struct {
	Public string // NKey form, U…
	Sign   func(challenge []byte) ([]byte, error)
}

// DialOptions are a node's credential and connection settings.
type DialOptions struct {
	Name string // for people, such as the node's id
	// Token or Key: one of the two.
	Token secret.Value
	Key   Key
	// Inbox is the subject prefix for answers to this session's requests, such as
	// "_INBOX.<node>"; its Identity must permit subscribing to Inbox.>.
	Inbox string
	// ReconnectWait is the pause before the first try to reconnect. Pauses grow by half up to
	// ReconnectMax; each is randomised to between half and one and a half of that. 0: 3 s and
	// 300 s.
	ReconnectWait, ReconnectMax time.Duration
	// PingInterval is the time between pings; two lost pings break the session. 0: 5 s.
	PingInterval time.Duration
}
