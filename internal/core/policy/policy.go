// Package policy decides access: which credential is which principal, which capability a
// principal may call at once, only after an approval, or not at all, and which standing
// grants and one-off approvals apply. Rules are Cedar policies read from files; the default
// set is default.cedar. Tokens, approvals and grants live in a Store and are mirrored in
// memory, so that a call does not require a query. The package does no I/O of its own beyond
// that Store.
package policy

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
)

// Config configures a [Policy]. Documents and Store are required.
type Config struct {
	Documents []Document
	Store     Store
	Log       *audit.Log // may be nil in tests
	Logger    *slog.Logger
	Now       func() time.Time // time.Now when nil
	// Deployment bounds extensions; "" is local_open.
	Deployment Deployment
	// Publish sends an event to the live feed. It must not block. If nil, nothing is published.
	Publish func(event string, data any)
}

// Policy makes the decisions of one server. It is safe for concurrent use.
type Policy struct {
	store  Store
	log    *audit.Log
	logger *slog.Logger
	now    func() time.Time

	deployment Deployment
	publish    func(event string, data any)

	rules  atomic.Pointer[rules]
	tokens atomic.Pointer[mirror]
	grants atomic.Pointer[[]Grant] // active ones
	// mu makes a change in the store and in its mirror one step, so that a token
	// revoked during the change stays revoked. Only management operations wait for it.
	mu    sync.Mutex
	uses  uses
	cache verdictCache

	meters meters

	decisions decisions
	programs  atomic.Pointer[Programs]
	// assistants and people make the creation of an assistant, and the sign-in of a person, one step.
	assistants, people sync.Mutex
}

// New parses the rules and loads the mirrors. It fails on the first invalid rule.
func New(ctx context.Context, cfg Config) (*Policy, error) {
	p := &Policy{store: cfg.Store, log: cfg.Log, logger: cfg.Logger, now: cfg.Now, deployment: cmp.Or(cfg.Deployment, LocalOpen)}
	p.publish = cfg.Publish
	if p.now == nil {
		p.now = time.Now
	}
	if p.logger == nil {
		p.logger = slog.New(slog.DiscardHandler)
	}
	if err := p.SetRules(cfg.Documents); err != nil {
		return nil, err
	}
	if err := p.Refresh(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// Refresh reads tokens and grants again, after another server has changed them in a shared
// store. If it fails, the previous state remains; the caller should report the error and
// retry.
func (p *Policy) Refresh(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	tokens, err := p.store.Tokens(ctx)
	if err != nil {
		return err
	}
	grants, err := p.store.Grants(ctx)
	if err != nil {
		return err
	}
	p.setTokens(tokens)
	p.setGrants(grants)
	return nil
}

// SetRules replaces all rules, or changes nothing and returns the reason.
func (p *Policy) SetRules(docs []Document) error {
	r, err := parseRules(docs)
	if err != nil {
		return err
	}
	p.rules.Store(r)
	p.cache.clear()
	return nil
}

// RecordRules records that the rules in force have changed: by whom and in which files.
func (p *Policy) RecordRules(ctx context.Context, by capability.Principal, attrs ...audit.Attr) {
	p.record(ctx, audit.PolicyChanged, by, true, audit.Synced, attrs...)
}

// Find returns the principal with this id as its newest valid token makes it. ok is false if
// it has none.
func (p *Policy) Find(id string) (who capability.Principal, ok bool) {
	m := p.tokens.Load()
	t, ok := m.names[id]
	if !ok || !m.good(t, p.now()) {
		return capability.Principal{}, false
	}
	return t.Principal(), true
}

// Rules returns all rules in force, in the order of their files.
func (p *Policy) Rules() []Rule { return slices.Clone(p.rules.Load().list) }

// Verdict is the result of the rules for one principal and one entry.
type Verdict struct {
	Permitted bool
	Consent   Channel  // "" = at once; else permitted after an approval on it
	Policies  []string // ids of the policies that decided
	Fault     string   // evaluation error, for operators; a fault is a denial
	Withheld  []string // permissions that the deployment mode withholds from the extension
	// Waives reports that a plain permit names this tool, so that the approval that the tool
	// itself requests is not needed.
	Waives bool
}

// Authorize returns the verdict on one candidate. It also decides visibility: an entry that is
// not Permitted does not exist for that principal.
//
// The deployment mode takes precedence: rules cannot permit what it withholds.
//
// A principal that acts on behalf of another may do only what both may do, and needs the
// stricter consent of the two.
func (p *Policy) Authorize(principal capability.Principal, e *catalog.Entry) Verdict {
	v := p.alone(principal, e)
	if principal.OnBehalfOf == "" || !v.Permitted {
		return v
	}
	creator, ok := p.creator(principal)
	if !ok {
		return Verdict{Policies: []string{"on_behalf_of:" + principal.OnBehalfOf}}
	}
	return v.and(p.alone(creator, e))
}

// alone returns the verdict by the principal's own rights, without the bound of its creator.
func (p *Policy) alone(principal capability.Principal, e *catalog.Entry) Verdict {
	if withheld := p.withholds(principal, e); len(withheld) > 0 {
		return p.locked(withheld)
	}
	if p.kept(principal, e) {
		return Verdict{Policies: []string{"users:" + e.Module.Extension}}
	}
	return p.granted(principal, e, p.judge(principal, e))
}

// judge evaluates the rules, or returns the cached verdict.
func (p *Policy) judge(principal capability.Principal, e *catalog.Entry) Verdict {
	r := p.rules.Load()
	if v, ok := p.cache.get(r, principal, e); ok {
		return v
	}
	s := subject{principal: principalEntity(principal)}
	s.action, s.resource = entryEntities(e)
	v := r.judge(&s)
	if v.Fault != "" {
		p.logger.Error("policy evaluation failed, so the call is denied", "cap", string(e.ID), "principal", principal.ID, "policies", v.Policies,
			"fault", v.Fault)
	}
	p.cache.put(r, principal, e, v)
	return v
}

// verdictCache caches verdicts, which depend only on the rules, the principal of the token, and
// the immutable entry.
type verdictCache struct {
	m atomic.Pointer[sync.Map]
	n atomic.Int64
}

type verdictKey struct {
	rules     *rules
	entry     *catalog.Entry
	principal string
	role      capability.Role
	labels    string
}

func keyOf(r *rules, p capability.Principal, e *catalog.Entry) verdictKey {
	k := verdictKey{rules: r, entry: e, principal: p.ID, role: p.Role}
	for _, label := range p.Labels { // with their lengths, so that no two lists have one key
		k.labels += strconv.Itoa(len(label)) + ":" + label
	}
	return k
}

func (c *verdictCache) get(r *rules, p capability.Principal, e *catalog.Entry) (Verdict, bool) {
	m := c.m.Load()
	if m == nil {
		return Verdict{}, false
	}
	v, ok := m.Load(keyOf(r, p, e))
	if !ok {
		return Verdict{}, false
	}
	return v.(Verdict), true
}

// put stores a verdict. A full cache is emptied first.
func (c *verdictCache) put(r *rules, p capability.Principal, e *catalog.Entry, v Verdict) {
	m := c.m.Load()
	if m == nil || c.n.Add(1) > maxVerdicts {
		m = new(sync.Map)
		c.m.Store(m)
		c.n.Store(0)
	}
	m.Store(keyOf(r, p, e), v)
}

// clear drops all verdicts: after new rules, and after a new catalog snapshot, so that entries of
// old snapshots can be collected.
func (c *verdictCache) clear() {
	c.m.Store(nil)
	c.n.Store(0)
}

// CatalogChanged drops the cached verdicts about old entries.
func (p *Policy) CatalogChanged() { p.cache.clear() }

// Require checks management operations that are not capabilities: tokens, approvals,
// endpoints, audit. It fails with denied unless the principal has one of the roles; the
// denial is recorded.
func (p *Policy) Require(ctx context.Context, who capability.Principal, op string, roles ...capability.Role) error {
	if slices.Contains(roles, who.Role) {
		return nil
	}
	p.record(ctx, audit.PermissionDenied, who, false, audit.Synced, audit.Attr{Key: "op", Value: op})
	return capability.Errorf(capability.CodeDenied, op, "this needs a token of role %s; yours has role %s", roleList(roles), who.Role).
		With("forbidden", "use the admin token of the home, or ask an operator")
}

func roleList(roles []capability.Role) string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	return strings.Join(names, " or ")
}

// newID returns prefix and 24 hex digits, the first eight of which are the time in seconds.
func newID(prefix string, now time.Time) string {
	return ids.Timed(prefix, uint64(now.Unix()), 4)
}

// NewApprovalID returns the id of a new approval.
func NewApprovalID(now time.Time) string { return newID("apr_", now) }
