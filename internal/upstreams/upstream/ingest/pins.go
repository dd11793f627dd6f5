package ingest

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// PinState decides whether agents see a definition.
type PinState string

// The states of a pin.
const (
	Published   PinState = "published"
	Held        PinState = "held"        // listed unchanged, refused when called
	Quarantined PinState = "quarantined" // seen for the first time, not listed
)

// Pin is the stored state of one definition of one upstream. A definition is pinned in
// the form in which it was published.
type Pin struct {
	Kind  Kind
	Name  string
	State PinState
	// Pin and Definition are the form that agents see or, if quarantined, would see.
	Pin        string
	Definition json.RawMessage
	// Offered and OfferedDefinition are the new form of a held definition.
	Offered           string
	OfferedDefinition json.RawMessage
	Listed            bool // the upstream lists it now
	Seen              time.Time
}

// PinKey names a definition of an upstream.
type PinKey struct {
	Kind Kind
	Name string
}

// PinRow is a pin with its definitions decoded.
type PinRow struct {
	Pin
	Shown *Definition // nil if the stored form cannot be decoded
	Offer *Definition // nil unless held
}

// PinSet holds the pins of one upstream. The caller serializes access to it.
type PinSet map[PinKey]*PinRow

// Key returns the key of the row in its set.
func (p *PinRow) Key() PinKey { return PinKey{p.Kind, p.Name} }

// Visible reports whether the definition is in the catalog.
func (p *PinRow) Visible() bool { return p.Listed && p.State != Quarantined && p.Shown != nil }

// PinChange describes a changed definition for the audit log.
type PinChange struct {
	Pin  Pin
	Held bool // else: another definition was published by policy
}

// Reconcile updates the pins of a kind from the upstream's list and returns the rows to
// save. A new definition is published if the upstream is trusted and has not published
// maxPublished others, otherwise it is quarantined until an operator approves it. The upstream's
// record decides whether a changed one is held or published, and one that changed back is published. A rename
// is a removal and an addition.
func (s PinSet) Reconcile(kind Kind, list []*Definition, rec *record.Record, now time.Time) (save []*PinRow, changes []PinChange) {
	now = now.UTC()
	listed, published := make(map[string]bool, len(list)), 0
	for _, p := range s {
		if p.State != Quarantined {
			published++
		}
	}
	for _, d := range list {
		listed[d.Name] = true
		p := s[PinKey{kind, d.Name}]
		if p == nil {
			p = &PinRow{Pin: Pin{Kind: kind, Name: d.Name, State: Quarantined, Listed: true, Seen: now}}
			if rec.Trust == record.Trusted && published < maxPublished {
				p.State, published = Published, published+1
			}
			p.show(d)
			s[p.Key()] = p
			save = append(save, p)
			continue
		}
		before, offered := p.State, p.Offered
		was := p.Listed
		p.Listed = true
		switch {
		case p.State == Quarantined:
			was = was && p.Pin.Pin == d.Pin
			p.show(d)
		case p.Pin.Pin == d.Pin:
			p.State = Published
			p.show(d)
		case rec.ChangedPin == record.Hold:
			p.State = Held
			p.Offered, p.OfferedDefinition, p.Offer = d.Pin, d.Published, d
			if offered != d.Pin {
				changes = append(changes, PinChange{p.Pin, true})
			}
		default:
			p.State = Published
			p.show(d)
			was = false
			changes = append(changes, PinChange{p.Pin, false})
		}
		if !was || before != p.State || offered != p.Offered {
			p.Seen = now
			save = append(save, p)
		}
	}
	for key, p := range s {
		if key.Kind == kind && p.Listed && !listed[key.Name] {
			p.Listed = false
			save = append(save, p)
		}
	}
	return save, changes
}

// show sets d as the form that agents see.
func (p *PinRow) show(d *Definition) {
	p.Pin.Pin, p.Definition, p.Shown = d.Pin, d.Published, d
	p.Offered, p.OfferedDefinition, p.Offer = "", nil, nil
}

// Approve publishes the waiting definition and reports whether there was one.
func (p *PinRow) Approve() bool {
	switch p.State {
	case Held:
		if p.Offer == nil {
			return false
		}
		p.show(p.Offer)
	case Quarantined:
	default:
		return false
	}
	p.State = Published
	return true
}

// Forget removes the oldest unlisted pins beyond maxGone and returns them. Those of definitions that were
// published stay, because a definition without a pin counts as new.
func (s PinSet) Forget() (gone []*PinRow) {
	for _, p := range s {
		if !p.Listed && p.State == Quarantined {
			gone = append(gone, p)
		}
	}
	if len(gone) <= maxGone {
		return nil
	}
	slices.SortFunc(gone, func(a, b *PinRow) int { return cmp.Or(a.Seen.Compare(b.Seen), cmp.Compare(a.Name, b.Name)) })
	gone = gone[:len(gone)-maxGone]
	for _, p := range gone {
		delete(s, p.Key())
	}
	return gone
}

// Sorted returns the pins in the order of kind and name.
func (s PinSet) Sorted() []*PinRow {
	list := make([]*PinRow, 0, len(s))
	for _, p := range s {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *PinRow) int {
		return cmp.Or(cmp.Compare(slices.Index(Kinds(), a.Kind), slices.Index(Kinds(), b.Kind)), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// ReadPin decodes a stored pin. A definition that cannot be decoded is not visible until
// the upstream lists it again.
func ReadPin(p Pin) *PinRow {
	out := &PinRow{Pin: p}
	var err error
	if out.Shown, err = Parse(p.Kind, p.Definition); err != nil || out.Shown.Pin != p.Pin {
		out.Shown = nil
	}
	if p.State == Held {
		if out.Offer, err = Parse(p.Kind, p.OfferedDefinition); err != nil {
			out.Offer = nil
		}
	}
	return out
}
