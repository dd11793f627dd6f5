package channels

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/bus"
	"github.com/junctor-run/junctor/internal/base/pause"
	"github.com/junctor-run/junctor/internal/chat/engine"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/secret"
)

// pageSize is the number of rows that one query reads.
const pageSize = 500

// Chat answers messages; [engine.Engine] implements it.
type Chat interface {
	Say(ctx context.Context, m engine.Message, to engine.Stream) (engine.Reply, error)
}

// Policy finds principals and decides approvals; [policy.Policy] implements it.
type Policy interface {
	Find(id string) (capability.Principal, bool)
	Tokens(ctx context.Context) ([]policy.Token, error)
	CreateToken(ctx context.Context, by capability.Principal, req policy.TokenRequest) (policy.Token, secret.Value, error)
	RevokeToken(ctx context.Context, by capability.Principal, idOrName string) (policy.Token, error)
	Approval(ctx context.Context, id string) (policy.Approval, error)
	ApprovalInput(ctx context.Context, id string) ([]byte, error)
	Approvals(ctx context.Context, state policy.ApprovalState, after string, limit int) ([]policy.Approval, error)
	Reply(ctx context.Context, by capability.Principal, id string, r policy.Reply) (policy.Approval, *policy.Grant, error)
}

// Verifier has the codes that a person reads at the server's terminal.
type Verifier interface {
	// Ask shows a code for what a principal decides there, unless one is open.
	Ask(principal, what string)
	// Check uses up the code. The error is denied if it is wrong.
	Check(principal, what, code string) error
}

// Config configures a Hub. All fields but Now are required.
type Config struct {
	Kinds   []Kind
	Store   Store
	Chat    Chat
	Policy  Policy
	Verify  Verifier
	Secrets func(name string) (secret.Value, error)
	Tasks   func(ctx context.Context, q tasks.Query) (tasks.Page, error)
	// Artifact reads an artifact that a principal may see, RUN/NAME, of at most limit bytes.
	Artifact func(ctx context.Context, who capability.Principal, ref string, limit int) (File, error)
	// Keep stores a file as an artifact of a principal and returns its reference.
	Keep func(ctx context.Context, who capability.Principal, run string, f File) (ref string, err error)
	// Destructive reports whether a capability declares destructive effects, or does not exist.
	Destructive func(capability.ID) bool
	Log         *audit.Log
	Bus         *bus.Bus
	Publish     func(event string, data any)
	Gateway     string
	Logger      *slog.Logger
	Now         func() time.Time
}

// Hub runs the accounts of one server. It is safe for concurrent use.
type Hub struct {
	cfg    Config
	tries  tries
	change chan struct{} // capacity 1: the catalog differs

	mu       sync.Mutex
	running  context.Context //nolint:containedctx // of Run; nil outside of it
	work     sync.WaitGroup
	accounts map[Ref]*connection
}

// New returns a Hub with the stored accounts. It connects none before Run.
func New(ctx context.Context, cfg Config) (*Hub, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	h := &Hub{cfg: cfg, change: make(chan struct{}, 1), accounts: make(map[Ref]*connection)}
	list, err := cfg.Store.Accounts(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range list {
		if a.Gateway != cfg.Gateway {
			continue // another server of the same store runs it
		}
		c, err := h.open(a)
		if err != nil {
			cfg.Logger.Error("a channel cannot be opened", "channel", a.String(), "err", err)
			continue
		}
		if c.left, err = h.unsent(ctx, a.Ref); err != nil {
			return nil, err
		}
		h.accounts[a.Ref] = c
	}
	return h, nil
}

// Kinds returns the services of which accounts can be added.
func (h *Hub) Kinds() []Kind { return h.cfg.Kinds }

// kind returns a kind by its name. The error is invalid_input.
func (h *Hub) kind(name string) (Kind, error) {
	var names []string
	for _, k := range h.cfg.Kinds {
		if k.Name == name {
			return k, nil
		}
		names = append(names, k.Name)
	}
	return Kind{}, capability.Errorf(capability.CodeInvalidInput, "channels", "%.40q is not a kind of channel; use one of %v", name, names)
}

func (h *Hub) open(a Account) (*connection, error) {
	k, err := h.kind(a.Kind)
	if err != nil {
		return nil, err
	}
	channel, err := k.Open(Settings{Account: a, Secret: func() (secret.Value, error) { return h.cfg.Secrets(a.Secret) }})
	if err != nil {
		return nil, err
	}
	return &connection{
		hub: h, account: a, kind: k, channel: channel,
		inbound: newLanes(maxHandling), urgent: newLanes(maxHandling), outbound: newLanes(maxSending),
		limit: rate.NewLimiter(k.Rate, max(1, int(k.Rate))), guests: rate.NewLimiter(guestRate, guestBurst),
		room: make(chan struct{}, maxWaiting), ready: make(chan struct{}),
		state: capability.Availability{State: capability.StateStarting, Reason: "it connects", Since: h.cfg.Now()},
		next:  make(map[string]time.Time),
	}, nil
}

// Run connects the accounts and sends approvals to operators until ctx ends.
func (h *Hub) Run(ctx context.Context) {
	h.mu.Lock()
	h.running = ctx
	for _, c := range h.accounts {
		h.start(c)
	}
	h.mu.Unlock()
	h.work.Go(func() { h.follow(ctx) })
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for done := false; !done; {
		if err := h.cfg.Store.Sweep(ctx, h.cfg.Now().Add(-keepTTL)); err != nil && ctx.Err() == nil {
			h.cfg.Logger.Warn("old messages of channels cannot be removed", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			done = true
		}
	}
	h.mu.Lock()
	h.running = nil
	h.mu.Unlock()
	h.work.Wait()
}

// start runs a connection. The caller holds h.mu, and h.running is set.
func (h *Hub) start(c *connection) {
	ctx, cancel := context.WithCancel(h.running)
	c.cancel, c.ended = cancel, make(chan struct{})
	c.mu.Lock()
	c.life = ctx
	left := c.left
	c.left = nil
	c.mu.Unlock()
	for _, s := range left {
		c.enqueue(s)
	}
	h.work.Go(func() {
		defer close(c.ended)
		defer cancel()
		c.run(ctx)
	})
}

func (h *Hub) connection(r Ref) *connection {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.accounts[r]
}

// Status is an account as operators see it.
type Status struct {
	Account
	Name   string                  `json:"name"` // that the service gives it
	State  capability.Availability `json:"state,omitzero"`
	People []Person                `json:"people"`
}

// List returns all accounts, also those that other servers run, which have no state here.
func (h *Hub) List(ctx context.Context) ([]Status, error) {
	accounts, err := h.cfg.Store.Accounts(ctx)
	if err != nil {
		return nil, err
	}
	people, err := h.cfg.Store.People(ctx, Ref{})
	if err != nil {
		return nil, err
	}
	out := make([]Status, len(accounts))
	for i, a := range accounts {
		out[i] = Status{Account: a, People: []Person{}}
		if c := h.connection(a.Ref); c != nil {
			out[i].Name, out[i].State = c.shown()
		}
		for _, p := range people {
			if p.Ref == a.Ref {
				out[i].People = append(out[i].People, p)
			}
		}
	}
	return out, nil
}

// Get returns one account. The error is not_found.
func (h *Hub) Get(ctx context.Context, r Ref) (Status, error) {
	list, err := h.List(ctx)
	i := slices.IndexFunc(list, func(s Status) bool { return s.Ref == r })
	if err == nil && i < 0 {
		err = NotFound(r)
	}
	if err != nil {
		return Status{}, err
	}
	return list[i], nil
}

// NotFound returns the error for an account that does not exist.
func NotFound(r Ref) error {
	return capability.Errorf(capability.CodeNotFound, "channels", "no channel account is named %.80s", r).
		With("no_channel", "junctor channels list shows those that exist")
}

// Add adds an account and connects it. The caller has checked that by may.
func (h *Hub) Add(ctx context.Context, by capability.Principal, a Account) (Status, error) {
	const op = "channels.add"
	a.Account = cmp.Or(a.Account, "default")
	a.Gateway, a.Added, a.Cursor = h.cfg.Gateway, h.cfg.Now().UTC(), ""
	k, err := h.kind(a.Kind)
	switch {
	case err != nil:
		return Status{}, err
	case !accountName.MatchString(a.Account):
		return Status{}, capability.Errorf(capability.CodeInvalidInput, op,
			"%.40q is not a name of an account: 1 to 32 lower-case letters, digits and dashes", a.Account)
	case a.Verify != "" && a.Verify != "off":
		return Status{}, capability.Errorf(capability.CodeInvalidInput, op, "%.40q is not a way of verifying; use off, or leave it out", a.Verify)
	case len(a.Guests) > maxGuestGroups || slices.ContainsFunc(a.Guests, func(id string) bool { return id == "" || len(id) > maxID }):
		return Status{}, capability.Errorf(capability.CodeInvalidInput, op, "guests are the ids of at most %d groups", maxGuestGroups)
	case a.URL == "" && k.NeedsURL:
		return Status{}, capability.Errorf(capability.CodeInvalidInput, op, "a channel of the kind %s needs a URL", k.Name)
	case a.URL != "" && !k.ParsesURL:
		if err := checkURL(a.URL); err != nil {
			return Status{}, err
		}
	}
	if _, err := h.cfg.Secrets(a.Secret); err != nil {
		return Status{}, capability.Wrap(capability.CodeInvalidInput, op, "the token of the account is not stored", err).
			With("secret_missing", "store it first: junctor secrets set NAME, then pass the name with --token-secret")
	}
	c, err := h.open(a)
	if err != nil {
		return Status{}, err
	}
	h.mu.Lock()
	full := len(h.accounts) >= maxAccounts
	h.mu.Unlock()
	if full {
		return Status{}, capability.Errorf(capability.CodeOverloaded, op, "a server has at most %d channel accounts", maxAccounts)
	}
	if err := h.cfg.Store.CreateAccount(ctx, a); err != nil {
		return Status{}, err
	}
	if len(a.Guests) > 0 {
		if err := h.admitGuests(ctx, by, a.Ref); err != nil {
			_ = h.cfg.Store.DeleteAccount(context.WithoutCancel(ctx), a.Ref) // it was not added
			return Status{}, err
		}
	}
	h.record(ctx, audit.ChannelAdded, a.Ref, by.ID, nil)
	h.mu.Lock()
	h.accounts[a.Ref] = c
	if h.running != nil {
		h.start(c)
	}
	h.mu.Unlock()
	h.changed()
	return h.Get(ctx, a.Ref)
}

// Remove disconnects and removes an account, and ends the tokens that were made for its people.
func (h *Hub) Remove(ctx context.Context, by capability.Principal, r Ref) error {
	one, err := h.Get(ctx, r)
	if err != nil {
		return err
	}
	h.mu.Lock()
	c := h.accounts[r]
	delete(h.accounts, r)
	h.mu.Unlock()
	if c != nil && c.cancel != nil {
		c.cancel()
		<-c.ended
	}
	h.changed()
	if err := h.cfg.Store.DeleteAccount(ctx, r); err != nil {
		return err
	}
	if len(one.Guests) > 0 {
		if _, err := h.cfg.Policy.RevokeToken(ctx, by, guestName(r)); err != nil && capability.CodeOf(err) != capability.CodeNotFound {
			return err
		}
	}
	for _, p := range one.People {
		if err := h.endToken(ctx, by, p); err != nil {
			return err
		}
	}
	h.record(ctx, audit.ChannelRemoved, r, by.ID, nil)
	return nil
}

// record writes an audit record about an account. user is a principal, or a user of the service.
func (h *Hub) record(ctx context.Context, event audit.Event, r Ref, user string, failure error, attrs ...audit.Attr) {
	rec := audit.Record{
		Logger: "channels", Event: event, User: user, Success: audit.OutcomeOf(failure == nil),
		Metadata: audit.Metadata{Surface: "channel", Attrs: append([]audit.Attr{{Key: "channel", Value: r.String()}}, attrs...)},
	}
	if e := capability.AsError(failure); e != nil {
		rec.Error, rec.Metadata.Code, rec.Metadata.Reason = e.Message, e.Code, e.Reason
	}
	if _, err := h.cfg.Log.Append(context.WithoutCancel(ctx), rec, audit.Written); err != nil {
		h.cfg.Logger.Error("audit record not written", "event", string(event), "err", err)
	}
}

func (h *Hub) changed() {
	select {
	case h.change <- struct{}{}:
	default:
	}
}

// connection is one account that this server runs.
type connection struct {
	hub               *Hub
	account           Account
	kind              Kind
	channel           Channel
	inbound, outbound *lanes
	urgent            *lanes // inbound decisions and control words
	limit             *rate.Limiter
	guests            *rate.Limiter
	room              chan struct{} // a slot for each update that is not handled
	cancel            context.CancelFunc
	ended             chan struct{}

	mu     sync.Mutex
	name   string
	life   context.Context //nolint:containedctx // of run; nil before it
	left   []Send          // that wait for it
	state  capability.Availability
	ready  chan struct{} // closed while it is connected
	unsent int
	paused time.Time            // the service takes nothing before
	next   map[string]time.Time // and nothing more in a conversation before
	noted  refusals
}

func (c *connection) shown() (name string, state capability.Availability) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.name, c.state
}

// run keeps the account connected until ctx ends, and waits for all that it does.
func (c *connection) run(ctx context.Context) {
	defer c.outbound.work.Wait()
	defer c.inbound.work.Wait()
	defer c.urgent.work.Wait()
	if err := c.recover(ctx); err != nil && ctx.Err() == nil {
		c.hub.cfg.Logger.Error("messages of a channel are left for the next start", "channel", c.account.String(), "err", err)
	}
	delay := firstDelay
	for ctx.Err() == nil {
		connected := false
		err := c.channel.Run(ctx, c.account.Cursor, func(name string) { connected = true; c.up(ctx, name) },
			func(ctx context.Context, cursor string, list []Update) error {
				if err := c.receive(ctx, cursor, list); err != nil {
					return err
				}
				c.account.Cursor = cmp.Or(cursor, c.account.Cursor)
				return nil
			})
		if ctx.Err() != nil {
			return
		}
		e := capability.AsError(err)
		if e == nil {
			e = capability.Errorf(capability.CodeUnavailable, "channel", "the service ended the connection")
		}
		if delay = min(2*delay, backoffDelay); connected {
			delay = firstDelay
		}
		c.down(ctx, e)
		next := max(delay/2+rand.N(delay/2), e.RetryAfter) //nolint:gosec // spreads attempts
		switch e.Code {
		case capability.CodeUnauthenticated:
			next = refusedDelay
		case capability.CodeConflict:
			next = backoffDelay
		}
		_ = pause.For(ctx, next)
	}
}

func (c *connection) up(ctx context.Context, name string) {
	c.mu.Lock()
	was := c.state
	c.name, c.state = name, capability.Availability{State: capability.StateReady, Since: c.hub.cfg.Now()}
	if was.State != capability.StateReady {
		close(c.ready)
	}
	c.mu.Unlock()
	if was.State == capability.StateReady {
		return
	}
	c.hub.record(ctx, audit.ChannelUp, c.account.Ref, name, nil)
	c.hub.changed()
}

// down marks the account as not connected. The same failure is reported once.
func (c *connection) down(ctx context.Context, e *capability.Error) {
	now := capability.Availability{State: capability.StateUnavailable, Reason: e.Message, Since: c.hub.cfg.Now()}
	if e.Code == capability.CodeUnauthenticated {
		now.State = capability.StateUnauthorized
	}
	c.mu.Lock()
	was := c.state
	c.state = now
	if was.State == capability.StateReady {
		c.ready = make(chan struct{})
	}
	c.mu.Unlock()
	if was.State == now.State && was.Reason == now.Reason {
		return
	}
	c.hub.record(ctx, audit.ChannelDown, c.account.Ref, "", e)
	c.hub.cfg.Logger.Warn("a channel is not connected", "channel", c.account.String(), "cause", e.Message)
	c.hub.cfg.Publish("channel.down", map[string]any{"channel": c.account.String(), "cause": e.Message})
	c.hub.changed()
}

// connected waits until the account is connected or ctx ends.
func (c *connection) connected(ctx context.Context) {
	c.mu.Lock()
	ready := c.ready
	c.mu.Unlock()
	select {
	case <-ready:
	case <-ctx.Done():
	}
}

// unsent returns the sends of an account that an earlier process left.
func (h *Hub) unsent(ctx context.Context, r Ref) (list []Send, err error) {
	for after := int64(0); ; {
		page, err := h.cfg.Store.Unsent(ctx, r, after, pageSize)
		if list = append(list, page...); err != nil || len(page) < pageSize {
			return list, err
		}
		after = page[len(page)-1].ID
	}
}

// recover handles what an earlier process left.
func (c *connection) recover(ctx context.Context) error {
	for after := int64(0); ; {
		list, err := c.hub.cfg.Store.Unhandled(ctx, c.account.Ref, after, pageSize)
		if err != nil {
			return err
		}
		for _, r := range list {
			after = r.Seq
			if err := c.admit(ctx, r); err != nil {
				return err
			}
		}
		if len(list) < pageSize {
			return nil
		}
	}
}
