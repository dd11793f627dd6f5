package upstream

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// feature returns the capability that a server with lists of a kind declares.
func feature(kind ingest.Kind) string {
	switch kind {
	case ingest.Tool:
		return "tools"
	case ingest.Prompt:
		return "prompts"
	}
	return "resources"
}

// refresh reads lists again and publishes the changes. If a list cannot be read, the
// present definitions of its kind stay.
func (u *upstream) refresh(ctx context.Context, c *conn, kinds []ingest.Kind) {
	fresh := make(map[ingest.Kind]*ingest.Listing)
	for _, kind := range kinds {
		list, err := u.list(ctx, c, kind)
		u.mu.Lock()
		if err == nil {
			delete(u.listed, kind)
			fresh[kind] = list
		} else if ctx.Err() == nil {
			u.listed[kind] = capability.AsError(err).Message
		}
		u.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			u.reg.cfg.Logger.Warn("a list of an upstream could not be read", "upstream", u.record.Name, "kind", string(kind), "err", err)
		}
	}
	if ctx.Err() == nil && len(fresh) > 0 {
		u.takeIn(ctx, fresh)
	}
}

// reader reads lists while a connection is up: tools synchronously, because agents wait for them,
// and the other kinds in the background, so that a slow list does not delay tools.
type reader struct {
	u     *upstream
	conn  *conn
	busy  atomic.Bool
	group sync.WaitGroup
}

func (r *reader) read(ctx context.Context, kinds []ingest.Kind) {
	var rest []ingest.Kind
	for _, kind := range kinds {
		if kind == ingest.Tool {
			r.u.refresh(ctx, r.conn, []ingest.Kind{kind})
		} else {
			rest = append(rest, kind)
		}
	}
	switch {
	case len(rest) == 0:
	case !r.busy.CompareAndSwap(false, true):
		r.u.mark(rest) // read after the current ones
	default:
		r.group.Go(func() {
			r.u.refresh(ctx, r.conn, rest)
			r.busy.Store(false)
			r.u.poke()
		})
	}
}

// mark marks lists to be read when the watcher wakes next.
func (u *upstream) mark(kinds []ingest.Kind) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, kind := range kinds {
		u.dirty[kind] = true
	}
}

// list reads one list, within listTimeout. It is empty if the server does not have the feature.
func (u *upstream) list(ctx context.Context, c *conn, kind ingest.Kind) (*ingest.Listing, error) {
	u.changing.Lock()
	collector := ingest.NewCollector(kind, u.listings[kind])
	u.changing.Unlock()
	if kind == ingest.Instructions && c.server.Instructions != "" && u.record.Kind != record.KindA2A {
		doc, err := jsonx.Marshal(map[string]string{"name": string(kind), "description": c.server.Instructions})
		if err != nil {
			return nil, err
		}
		collector.Add(doc)
	}
	if kind == ingest.Instructions || !c.client.Has(feature(kind)) {
		return collector.Done(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	page, err := c.client.List(ctx, kind, func(raw json.RawMessage) error {
		collector.Add(raw)
		return nil
	})
	if e := capability.AsError(err); err != nil && kind == ingest.Template && e.Details["code"] == notThere {
		return collector.Done(), nil // many servers have resources and no templates
	}
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	u.ttl[kind] = page.TTL
	u.mu.Unlock()
	list := collector.Done()
	if page.Truncated != "" && list.Truncated == "" {
		list.Truncated = "it was not read to its end: " + page.Truncated
	}
	return list, nil
}

// notThere is the JSON-RPC code for an unknown method, as in the details of errors.
const notThere int64 = -32601

// takeIn reconciles lists with the pins, stores and records the changes, and publishes the module.
func (u *upstream) takeIn(ctx context.Context, fresh map[ingest.Kind]*ingest.Listing) {
	u.changing.Lock()
	defer u.changing.Unlock()
	var save []*ingest.PinRow
	var changes []ingest.PinChange
	for _, kind := range ingest.Kinds() {
		if list := fresh[kind]; list != nil {
			rows, what := u.pins.Reconcile(kind, list.Definitions, &u.record, u.reg.cfg.Now())
			save, changes = append(save, rows...), append(changes, what...)
			u.listings[kind] = list
		}
	}
	u.keep(ctx, save, u.pins.Forget())
	u.mu.Lock()
	u.synced = u.reg.cfg.Now()
	u.mu.Unlock()
	for _, c := range changes {
		if c.Held {
			u.reg.record(ctx, audit.PinHeld, &u.record, capability.Principal{}, audit.OutcomeNone, pinAttrs(&c.Pin, c.Pin.Offered)...)
			continue
		}
		u.reg.cfg.Logger.Warn("a definition of an upstream has changed and is published as its record says", "upstream", u.record.Name, "kind",
			string(c.Pin.Kind), "name", c.Pin.Name)
		u.reg.record(ctx, audit.PinApproved, &u.record, capability.Principal{}, audit.OutcomeNone,
			append(pinAttrs(&c.Pin, c.Pin.Pin), audit.Attr{Key: "policy", Value: u.record.ChangedPin})...)
	}
	u.publish()
}

func pinAttrs(p *ingest.Pin, offered string) []audit.Attr {
	return []audit.Attr{{Key: "kind", Value: string(p.Kind)}, {Key: "name", Value: p.Name}, {Key: "offered_pin", Value: offered}}
}

// keep stores and deletes pins. An error is only logged. The caller holds changing.
func (u *upstream) keep(ctx context.Context, save, forget []*ingest.PinRow) {
	if u.reg.cfg.Store == nil || len(save)+len(forget) == 0 {
		return
	}
	plain := func(rows []*ingest.PinRow) (out []ingest.Pin) {
		for _, p := range rows {
			out = append(out, p.Pin)
		}
		return out
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := u.reg.cfg.Store.SavePins(ctx, u.record.Name, plain(save), plain(forget)); err != nil {
		u.reg.cfg.Logger.Error("pins of an upstream could not be saved", "upstream", u.record.Name, "err", err)
	}
}
