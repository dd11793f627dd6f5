// Package channels connects conversations to chat services. A [Hub] runs the accounts that an
// operator added: what paired people write becomes turns of the agent, whose replies leave the way
// that the message came, and approvals arrive as messages with buttons. Each account is also a
// provider of the canonical actions message.* in the catalog.
//
// What a service delivers is stored before it is acknowledged, and handled once and in the
// order of its conversation. What is sent is stored before it leaves. A send whose answer was lost
// is repeated only on services that recognise it by a key; elsewhere its outcome stays
// delivery_unknown until a person decides.
package channels

import (
	"cmp"
	"context"
	"regexp"
	"time"
	"unicode/utf8"

	"golang.org/x/time/rate"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/secret"
)

// Kind describes a chat service.
type Kind struct {
	Name    string // in provider keys
	Label   string
	Blurb   string              // how it is set up, in one sentence
	Actions []capability.Action // of message.*
	// OnceTTL is how long the service recognises a repeated send by its key; 0: it does not.
	OnceTTL time.Duration
	MaxText int // UTF-16 units of one message; longer texts are split
	MaxFile int // bytes of a file that is sent
	// Escapes is set if a text that is to be shown letter by letter may need twice its length.
	Escapes bool
	// Rate bounds all messages of an account; Pause is the shortest time between two messages of one
	// conversation, and GroupPause in a group.
	Rate              rate.Limit
	Pause, GroupPause time.Duration
	NeedsURL          bool // an account does not work without one
	ParsesURL         bool // Open checks the URL, which is not one of HTTP
	// Slash replaces / in front of commands if the service's own program keeps such messages; or "".
	Slash string
	// NoButtons is set if messages have no buttons: approvals are decided with a command then.
	NoButtons bool
	// Direct is set if the conversation with one person has an id of its own, which VerbOpen returns.
	Direct bool
	// Group reports whether a conversation has several people.
	Group func(conversation string) bool
	// ID matches the ids of conversations that an agent may name. One conversation has one id, so that
	// another form of it does not evade the rules about it; nil: every id is possible.
	ID *regexp.Regexp
	// Open returns the channel of an account. It does not connect.
	Open func(Settings) (Channel, error)
}

// command returns a command of a channel as people write it.
func (k *Kind) command(name string) string { return cmp.Or(k.Slash, "/") + name }

// Settings are what a channel is opened with.
type Settings struct {
	Account Account
	// Secret returns the token or key of the account.
	Secret func() (secret.Value, error)
}

// Channel is the connection to one account. Errors of its methods never contain the account's
// secret, nor a URL that does. Their codes have a meaning: unauthenticated if the service refuses
// the token, overloaded with RetryAfter for its rate limit, unavailable if nothing was sent, failed
// with the reason [ReasonDeliveryUnknown] if the answer was lost, and any other if the service
// refused the message.
type Channel interface {
	// Run receives updates after a cursor until ctx ends or the connection fails. receive returns once
	// the updates and the new cursor are stored. connected is called once the service accepted the
	// token, with the name of the account there.
	Run(ctx context.Context, cursor string, connected func(name string), receive Receive) error
	// Do carries out an operation and returns the service's id of the message.
	Do(ctx context.Context, op Op) (id string, err error)
}

// Receive stores updates and the cursor behind them.
type Receive func(ctx context.Context, cursor string, list []Update) error

// ReasonDeliveryUnknown is the reason of a send whose answer was lost.
const ReasonDeliveryUnknown = "delivery_unknown"

// DeliveryUnknown returns the error of a send whose answer was lost.
func DeliveryUnknown(cause error) *capability.Error {
	return capability.Wrap(capability.CodeFailed, "channel.send",
		"the message may have been delivered: the answer of the service was lost", cause).
		With(ReasonDeliveryUnknown, "look in the conversation before you send it again, with another idempotency key")
}

// Ref names an account.
type Ref struct {
	Kind    string `json:"kind"`
	Account string `json:"account"`
}

// String returns the account as kind:account.
func (r Ref) String() string { return r.Kind + ":" + r.Account }

// Key returns the key of the account's provider.
func (r Ref) Key() capability.ProviderKey {
	return capability.NewProviderKey("messaging", r.Kind, r.Account)
}

// Account is the stored record of an account.
type Account struct {
	Ref
	Gateway string `json:"gateway"`         // the server that runs it
	Secret  string `json:"secret"`          // name of the secret with its token
	URL     string `json:"url"`             // of a service that is not the public one, or of a receiver
	Greet   bool   `json:"greet"`           // unknown senders get one line
	Verify  string `json:"verify"`          // off: buttons decide what otherwise needs a code, too
	Tasks   bool   `json:"tasks,omitempty"` // operators get messages about the tasks of all
	// Guests are the groups in which people who are not paired may talk to the agent.
	Guests []string  `json:"guests,omitempty"`
	Added  time.Time `json:"added"`
	Cursor string    `json:"-"`
}

var accountName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// Person is a paired user of a service.
type Person struct {
	Ref
	User         string          `json:"user"`         // id at the service
	Name         string          `json:"name"`         // that the service shows
	Conversation string          `json:"conversation"` // between the person and the account alone
	Principal    string          `json:"principal"`
	Role         capability.Role `json:"role"`
	Owned        bool            `json:"owned"` // the principal's token was made for the pairing and ends with it
	Paired       time.Time       `json:"paired"`
}

// UpdateKind is the kind of an update.
type UpdateKind string

// The kinds of updates.
const (
	Wrote   UpdateKind = "message"
	Pressed UpdateKind = "press"
)

// Update is one message or press of a button, as a service delivered it.
type Update struct {
	ID               string // unique for the account
	Kind             UpdateKind
	Conversation     string
	ConversationKind string // dm or group
	Thread           string `json:",omitzero"`
	Message          string `json:",omitzero"` // id of the message, or of the one whose button was pressed
	User             string
	UserName         string `json:",omitzero"`
	Text             string `json:",omitzero"`
	ToMe             bool   `json:",omitzero"` // it mentions or answers the account
	Forwarded        bool   `json:",omitzero"` // another person wrote the text
	Unproved         bool   `json:",omitzero"` // anyone may have written User; only a pairing code counts
	Press            string `json:",omitzero"` // id of the press, for its acknowledgement
	Data             string `json:",omitzero"` // of the button
	Files            []File `json:",omitzero"`
}

// File describes an attachment.
type File struct {
	// ID is how the service finds the attachment, if it needs more than the message and the index. It is
	// part of the reference of the message then, behind [FileMark].
	ID   string `json:",omitzero"`
	Name string
	Size int64
	Data []byte `json:",omitzero"` // of one that is sent
}

// FileMark separates the id of an attachment from that of its message.
const FileMark = "~"

// Verb is what an operation does.
type Verb string

// The verbs.
const (
	VerbSend   Verb = "send"
	VerbEdit   Verb = "edit"
	VerbDelete Verb = "delete"
	VerbReact  Verb = "react"
	VerbPin    Verb = "pin"
	VerbUnpin  Verb = "unpin"
	VerbAck    Verb = "ack"  // acknowledges a press
	VerbOpen   Verb = "open" // returns the id of the conversation with the user that Conversation names
)

// Button is a button below a message.
type Button struct{ Label, Data string }

// Op is one operation on a service.
type Op struct {
	Verb         Verb
	Key          string // unique for the account
	Conversation string
	Thread       string    `json:",omitzero"`
	Message      string    `json:",omitzero"` // that is changed, or answered by a send
	Text         string    `json:",omitzero"`
	Buttons      []Button  `json:",omitzero"`
	File         *File     `json:",omitzero"`
	Emoji        string    `json:",omitzero"`
	Remove       bool      `json:",omitzero"` // the reaction
	Markdown     bool      `json:",omitzero"` // otherwise the text is shown letter by letter
	Silent       bool      `json:",omitzero"`
	Press        string    `json:",omitzero"`
	At           time.Time `json:",omitzero"` // when a send was stored
	More         bool      `json:",omitzero"` // the text goes on in the next message
}

// lane returns the key of the operations that leave in order.
func (o *Op) lane() string { return o.Conversation }

// The states of a send.
const (
	SendPending = "pending" // it leaves by itself
	SendBegun   = "begun"   // it is being sent
	SendDone    = "sent"
	SendUnknown = "unknown"
	SendFailed  = "failed"
)

// Send is a stored operation.
type Send struct {
	Ref
	ID        int64
	Op        Op
	About     string // the approval that it shows, or ""
	State     string
	ServiceID string // the service's id of the message
	Error     *capability.Error
	Created   time.Time
}

// Received is a stored update.
type Received struct {
	Ref
	Seq    int64
	Update Update
	Again  bool // a process that ended may have handled it
	Begun  bool // such a process began the command in it
}

// Code is an open pairing.
type Code struct {
	Ref
	Hash      string
	Role      capability.Role
	Principal string // an existing principal or the name of a new one, or ""
	PairedBy  string // the id of the operator who made it; "" for an admin
	Expires   time.Time
}

// Store stores accounts, people, updates and sends. Methods that find nothing return an error with
// the code not_found.
type Store interface {
	// CreateAccount fails with conflict if the account exists.
	CreateAccount(ctx context.Context, a Account) error
	// DeleteAccount removes an account with all that belongs to it.
	DeleteAccount(ctx context.Context, r Ref) error
	Accounts(ctx context.Context) ([]Account, error)

	SavePerson(ctx context.Context, p Person) error
	DeletePerson(ctx context.Context, r Ref, user string) error
	Person(ctx context.Context, r Ref, user string) (Person, error)
	// People returns the people of an account, or of all for the zero Ref.
	People(ctx context.Context, r Ref) ([]Person, error)

	CreateCode(ctx context.Context, c Code, now time.Time) error
	// UseCode removes and returns the code with a hash. A wrong one is counted: after [MaxTries]
	// in sequence all fail until [LockTTL] has passed. The error is denied.
	UseCode(ctx context.Context, r Ref, hash string, now time.Time) (Code, error)

	// Receive stores the updates that are new, and the cursor, and returns the new ones in order.
	Receive(ctx context.Context, r Ref, cursor string, list []Update, now time.Time) ([]Received, error)
	// Unhandled returns the oldest updates of an account after a number that were not handled.
	Unhandled(ctx context.Context, r Ref, after int64, limit int) ([]Received, error)
	// Begun marks an update whose command begins. Handled marks one that is done; its text is not
	// stored any longer.
	Begun(ctx context.Context, seq int64) error
	Handled(ctx context.Context, seq int64) error

	// CreateSend stores a send. If its key is in use, created is false and the stored one returned.
	CreateSend(ctx context.Context, s Send) (_ Send, created bool, err error)
	// SaveSend stores state, id and error of a send. The text of one that has ended is not stored any
	// longer, unless it is about an approval.
	SaveSend(ctx context.Context, s Send, now time.Time) error
	DropSend(ctx context.Context, id int64) error
	// Unsent returns the sends of an account that have not ended, the oldest first.
	Unsent(ctx context.Context, r Ref, after int64, limit int) ([]Send, error)
	// Shown returns the sends about an approval.
	Shown(ctx context.Context, approval string) ([]Send, error)
	// ShownAs returns the send about an approval that became a message.
	ShownAs(ctx context.Context, r Ref, conversation, message string) (Send, error)
	// Settled removes the texts of the sends about an approval.
	Settled(ctx context.Context, approval string) error
	// Sweep removes what ended before a time.
	Sweep(ctx context.Context, before time.Time) error
}

// Split cuts a text into pieces of at most limit UTF-16 units, at line ends where it can.
func Split(text string, limit int) (pieces []string) {
	for text != "" {
		units, end, line := 0, 0, 0
		for i, r := range text {
			n := 1
			if r > 0xFFFF {
				n = 2
			}
			if units+n > limit {
				break
			}
			units += n
			end = i + max(1, utf8.RuneLen(r))
			if r == '\n' {
				line = end
			}
		}
		if end < len(text) && line > end/2 {
			end = line
		}
		pieces, text = append(pieces, text[:end]), text[end:]
	}
	return pieces
}
