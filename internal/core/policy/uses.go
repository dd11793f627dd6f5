package policy

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/junctor-run/junctor/internal/core/audit"
)

// uses counts the uses of grants without a maximum number of uses. They are only informative, so
// calls do not wait until they are stored.
type uses struct {
	saving sync.Mutex
	n      sync.Map // grant id → *atomic.Int64
}

func (u *uses) count(id string) {
	n, ok := u.n.Load(id)
	if !ok {
		n, _ = u.n.LoadOrStore(id, new(atomic.Int64))
	}
	n.(*atomic.Int64).Add(1)
}

func (u *uses) of(id string) int {
	if n, ok := u.n.Load(id); ok {
		return int(n.(*atomic.Int64).Load())
	}
	return 0
}

// lastUse is when a token was last used, in seconds, and the value that is stored.
type lastUse struct {
	token        string // its id
	seen, stored atomic.Int64
}

// at does nothing for a token that has ended meanwhile.
func (u *lastUse) at(now time.Time) {
	if u == nil {
		return
	}
	if s := now.Unix(); u.seen.Load() < s { // one write in a second, however many requests use it
		u.seen.Store(s)
	}
}

// last returns the zero time if the token was not used since the start.
func (u *lastUse) last() time.Time {
	if u == nil || u.seen.Load() == 0 {
		return time.Time{}
	}
	return time.Unix(u.seen.Load(), 0).UTC()
}

// SaveUses stores the uses of grants counted since the last call, and when tokens were last used. Those
// that could not be stored are retried by the next call.
func (p *Policy) SaveUses(ctx context.Context) (err error) {
	p.uses.saving.Lock()
	defer p.uses.saving.Unlock()
	p.uses.n.Range(func(id, n any) bool {
		got := n.(*atomic.Int64).Swap(0)
		if got == 0 {
			return true
		}
		if failed := p.store.AddUses(ctx, id.(string), int(got)); failed != nil {
			n.(*atomic.Int64).Add(got)
			err = errors.Join(err, failed)
		}
		return true
	})
	for _, u := range p.tokens.Load().used {
		at := u.seen.Load()
		if at == u.stored.Load() {
			continue
		}
		if failed := p.store.UseToken(ctx, u.token, time.Unix(at, 0)); failed != nil {
			return errors.Join(err, failed) // a store that does not answer would cost a timeout for each token
		}
		u.stored.Store(at)
	}
	return err
}

// recordUse records the call that used a grant.
func (p *Policy) recordUse(ctx context.Context, a Asked, grant string) {
	rec := audit.Record{
		Event: audit.GrantUsed, Extension: a.Entry.Module.Extension, Action: string(a.Entry.Action), Session: a.Session, User: a.Principal.ID,
		Success: audit.OutcomeSuccess,
		Metadata: audit.Metadata{
			RunID: a.Run, Principal: audit.Principal{ID: a.Principal.ID, Role: a.Principal.Role, OnBehalfOf: a.Principal.OnBehalfOf},
			CapabilityID: string(a.Entry.ID),
			Attrs:        []audit.Attr{{Key: "grant", Value: grant}},
		},
	}
	if command, action, ok := strings.Cut(typed(a.Entry), "."); ok {
		rec.Command, rec.Action = "/"+command, action
	}
	p.write(ctx, rec, audit.Written)
}
