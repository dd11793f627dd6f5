// Package messaging is the port through which gateways and nodes talk: what a
// message bus must offer, its limits and its errors, without any I/O. There are
// two buses behind it, inproc (memory) and natsbus (NATS), and one suite,
// messagingtest, which both must pass.
//
// Delivery is at most once. Messages of one publisher reach one subscription in
// the order in which they were published. Nothing is lost without being told: a
// subscription that falls behind states how many messages it lost, and a session
// that broke says so by its events.
package messaging

import (
	"context"
	"iter"
	"time"

	"github.com/junctor-run/junctor/secret"
)

// Limits that every bus holds.
const (
	// MaxInline is the largest value that travels inside a message; larger ones
	// are assets.
	MaxInline = 512 << 10
	// MaxPayload is the largest Data of a message: an inline value and the
	// envelope around it.
	MaxPayload = MaxInline + 64<<10
	// MaxHeader is the largest sum of a message's header names and values.
	MaxHeader = 8 << 10
	// MaxSubscriptions is how many subscriptions one node's session may have.
	MaxSubscriptions = 64
	// MaxGatewaySubscriptions is how many the gateway's own session may have:
	// servers have one limit for all, and the watches of buckets count.
	MaxGatewaySubscriptions = 48
	// MaxPendingBytes is how much may wait for one node's session to take it;
	// a session that lets more pile up is closed.
	MaxPendingBytes = 4 << 20
	// MaxSubject is the longest subject, in bytes.
	MaxSubject = 512
	// DefaultPending and DefaultPendingBytes bound what waits in a subscription.
	DefaultPending      = 4096
	DefaultPendingBytes = 16 << 20
	// MaxValue is the largest value of a bucket.
	MaxValue = 256 << 10
)

// Message is what travels. What is received is shared between all who receive it
// and must not be changed; what was sent belongs to the sender again.
type Message struct {
	Subject string
	Reply   string // where an answer is wanted; may be empty; see CheckReply
	Header  map[string]string
	Data    []byte
}

// Conn is one session with the bus. All methods are safe for concurrent use.
//
// Errors are capability errors: see the functions of errors.go for the reasons.
// While the session is broken, Publish, Request and Subscribe fail at once and
// nothing is kept for later; the session comes back by itself, with its
// subscriptions, until it is closed.
type Conn interface {
	// Publish hands m over. It does not wait for any caller to receive it: a
	// subject this session may not publish to is told as an event of kind
	// Refused. A message above the limits, or with a subject that cannot be
	// one, fails at once. A message with a Reply without a subscriber comes
	// back on it: see IsNobody.
	Publish(ctx context.Context, m Message) error
	// Request publishes m and returns the first answer. It fails at once when
	// the subject has no subscriber (no_responders) or it may not be
	// published to (subject_denied), when the session breaks before an answer
	// came (bus_disconnected, code failed: it may have been done), and with the
	// error of ctx when that ends. m.Reply is not looked at.
	Request(ctx context.Context, m Message) (Message, error)
	// Subscribe receives what is published to subjects that match a pattern.
	// When it returns, the bus has the subscription; a pattern this session may
	// not subscribe to fails with subject_denied.
	Subscribe(ctx context.Context, o SubscribeOptions) (Subscription, error)
	// Flush returns when the bus has seen everything published before.
	Flush(ctx context.Context) error
	// Events yields how the session is (Connected, Disconnected or Closed), and
	// then what happens to it from the call of Events on. It ends with the error
	// of ctx, or after the event Closed without one.
	Events(ctx context.Context) iter.Seq2[Event, error]
	// Drain takes no more messages, waits until every subscription has been
	// read to its end, or until ctx ends, and closes.
	Drain(ctx context.Context) error
	// Close ends the session and its subscriptions at once. It may be called
	// again.
	Close()
}

// SubscribeOptions say what is received and how much of it may wait.
type SubscribeOptions struct {
	// Pattern is a subject in which * stands for one token and > for the rest.
	Pattern string
	// Queue names a group: each message goes to one of its members. Empty: the
	// subscription receives them all.
	Queue string
	// Pending and PendingBytes bound the messages that wait to be read; 0 means
	// the defaults. What comes on top is dropped and told by Next.
	Pending, PendingBytes int
}

// Subscription hands out messages one by one.
type Subscription interface {
	// Next returns the next message. When messages were dropped since the last
	// call it says so first, once, by the error messages_lost, and goes on with
	// the next call. After Close, or at the end of a Drain, it fails with
	// bus_closed.
	Next(ctx context.Context) (Message, error)
	// Close drops what waits. It may be called again.
	Close()
}

// EventKind is what happened to a session, seen from its own side.
type EventKind string

// The kinds of events.
const (
	Connected    EventKind = "connected"    // for the first time
	Disconnected EventKind = "disconnected" // it will be tried again; Err states why it broke
	Reconnected  EventKind = "reconnected"  // with its subscriptions; what was sent between is lost
	Refused      EventKind = "refused"      // the bus refused something; Err states what
	Lost         EventKind = "lost"         // the reader of events was too slow and missed some
	Closed       EventKind = "closed"       // for good
)

// Event is something that happened to a session.
type Event struct {
	Kind EventKind
	Err  error // may be nil
}

// Credential is what a session showed of itself. Either Token is set, or Key,
// and then the session has proven that it holds that key.
type Credential struct {
	Token   secret.Value
	Key     string // public key in NKey form, U…
	Name    string // what the session calls itself; not proven
	Address string // where it comes from, as far as the bus can tell
}

// Identity is who a session is, and everything it may do.
type Identity struct {
	ID string // of one node or principal; 1 to 128 bytes
	// Publish and Subscribe are the patterns this session may use. What they do
	// not cover is refused.
	Publish, Subscribe []string
}

// Authorizer decides who comes in. An error refuses; its text reaches the log
// only. It must answer within two seconds.
type Authorizer func(ctx context.Context, c Credential) (Identity, error)

// Session is one connection of one identity, seen from the bus.
type Session struct {
	ID       string // of this connection, never given out twice
	Identity string
	Name     string
	Address  string
}

// SessionKind is what happened to a session, seen from the bus.
type SessionKind string

// The kinds of session events.
const (
	SessionOpened SessionKind = "opened"
	SessionClosed SessionKind = "closed"
	SessionsLost  SessionKind = "lost" // events were missed; only leases tell who is left
)

// SessionEvent is a session that came or went.
type SessionEvent struct {
	Kind    SessionKind
	Session Session
	Reason  string // of SessionClosed, for people
}

// Broker is the side of the bus that gateways have: it admits sessions, sees
// them come and go, and keeps what gateways share.
type Broker interface {
	// Conn is the gateway's own session, which may do everything. It lives as
	// long as the broker.
	Conn() Conn
	// Sessions yields the sessions that come and go from the call of Sessions
	// on, within 50 ms. It ends with the error of ctx, or bus_closed. The
	// gateways' own sessions are not among them.
	Sessions(ctx context.Context) iter.Seq2[SessionEvent, error]
	// Disconnect breaks a session, now. The client sees Disconnected and may
	// come back if it is let in: who must stay out is for the Authorizer to
	// refuse. A session that is gone already is not_found.
	Disconnect(ctx context.Context, session string) error
	// Bucket opens a bucket, and creates it if needed.
	Bucket(ctx context.Context, o BucketOptions) (Bucket, error)
	// Close ends everything. It may be called again.
	Close()
}

// BucketOptions describe a bucket.
type BucketOptions struct {
	Name string // [A-Za-z0-9_-]{1,64}
	// TTL removes entries that were not written for so long, at least a second;
	// watchers are told. 0 keeps them.
	TTL time.Duration
}

// Bucket is a small table that gateways share. It holds nothing that its owners
// could not write again: it may be empty at any start. Keys are tokens of
// [A-Za-z0-9_=-] joined by dots (see [Escape]), values at most MaxValue bytes.
// Revisions grow with every change in the bucket.
type Bucket interface {
	// Get fails with not_found.
	Get(ctx context.Context, key string) (Entry, error)
	// Put writes, whatever is there.
	Put(ctx context.Context, key string, value []byte) (revision uint64, err error)
	// Create fails with conflict when the key is there.
	Create(ctx context.Context, key string, value []byte) (revision uint64, err error)
	// Update fails with conflict when the entry's revision is another one.
	Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	// Delete removes. With a revision above 0 it fails with conflict when the
	// entry's is another one. Deleting a missing key is not an error.
	Delete(ctx context.Context, key string, revision uint64) error
	// Watch yields a whole snapshot, then every change. It does so again when
	// its session was broken, or when it has reason to think that it missed
	// something: a Reset, the entries, Synced. What was not named between Reset
	// and Synced is gone. A watcher that reads slowly may see only the last of
	// several changes of a key. It ends with the error of ctx, or bus_closed.
	Watch(ctx context.Context) iter.Seq2[Change, error]
}

// Entry is one value of a bucket.
type Entry struct {
	Key      string
	Value    []byte
	Revision uint64
}

// ChangeKind is what a watcher is told.
type ChangeKind string

// The kinds of changes.
const (
	Reset   ChangeKind = "reset"   // a snapshot begins
	Put     ChangeKind = "put"     // an entry of the snapshot, or a new value
	Deleted ChangeKind = "deleted" // or out of date
	Synced  ChangeKind = "synced"  // the snapshot is complete
)

// Change is one step of a watch. Only Put has a value.
type Change struct {
	Kind  ChangeKind
	Entry Entry
}

// Dialer reaches a bus from a node. It returns at once, also when the bus is not
// there yet or does not let the session in: it is tried without end, and Events
// tells how it goes.
type Dialer func(ctx context.Context, o DialOptions) (Conn, error)

// Key proves who a session is by signing what the bus asks it to.
type Key struct {
	Public string // NKey form, U…
	Sign   func(challenge []byte) ([]byte, error)
}

// DialOptions are what a node says of itself.
type DialOptions struct {
	Name string // for people, such as the node's id
	// Token or Key: one of the two.
	Token secret.Value
	Key   Key
	// Inbox is where answers to this session's requests arrive, such as
	// "_INBOX.<node>"; its Identity must be allowed to subscribe to Inbox.>.
	Inbox string
	// ReconnectWait is the pause before the first try to come back, growing by
	// half to ReconnectMax; each pause is between half and one and a half of
	// that. 0: 3 s and 300 s.
	ReconnectWait, ReconnectMax time.Duration
	// PingInterval is how often the link is tried; two lost pings break it. 0: 5 s.
	PingInterval time.Duration
}
