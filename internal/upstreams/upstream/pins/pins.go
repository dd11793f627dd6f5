// Package pins decides what agents see of an upstream: each definition is pinned as it was
// when it was published, and one that is new, or has changed under its name, is what the
// upstream's record says: published, held, or in quarantine until somebody approves it
// after a look at the difference. It decides by definitions alone, without I/O.
package pins

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// State says whether agents see a definition.
type State string

// The states of a pin.
const (
	Published   State = "published"
	Held        State = "held"        // listed as it was, refused when called
	Quarantined State = "quarantined" // seen for the first time, not listed
)

// Pin is what is known of one definition of one upstream.
type Pin struct {
	Kind  ingest.Kind
	Name  string
	State State
	// Pin and Definition are what agents see, or, in quarantine, would see.
	Pin        string
	Definition json.RawMessage
	// Offered and OfferedDefinition are what a held one has become.
	Offered           string
	OfferedDefinition json.RawMessage
	Listed            bool // the upstream lists it now
	Seen              time.Time
}

// Key names a definition of an upstream.
type Key struct {
	Kind ingest.Kind
	Name string
}

// Row is a pin in memory, with its definitions read.
type Row struct {
	Pin
	Shown *ingest.Definition // nil where the saved form cannot be read any more
	Offer *ingest.Definition // nil unless held
}

// Set is what is known of one upstream. Whoever has it keeps others from it meanwhile.
type Set map[Key]*Row

// Key names the row in its set.
func (p *Row) Key() Key { return Key{p.Kind, p.Name} }

// Visible reports whether it is in the catalog.
func (p *Row) Visible() bool { return p.Listed && p.State != Quarantined && p.Shown != nil }

// Changed is what became of one definition, for the records.
type Changed struct {
	Pin  Pin
	Held bool // else: another definition was published by policy
}

// Reconcile compares a list with the pins of its kind, which it changes, and returns
// the rows that must be saved. A first sight is published where the upstream is
// trusted. Another definition under a known name is what the policy says; one that is
// as it was before is published again. A rename is a removal and an addition.
func (s Set) Reconcile(kind ingest.Kind, list []*ingest.Definition, rec *record.Record, now time.Time) (save []*Row, changes []Changed) {
	now = now.UTC()
	listed := make(map[string]bool, len(list))
	for _, d := range list {
		listed[d.Name] = true
		p := s[Key{kind, d.Name}]
		if p == nil {
			p = &Row{Pin: Pin{Kind: kind, Name: d.Name, State: Quarantined, Listed: true, Seen: now}}
			if rec.Trust == record.Trusted {
				p.State = Published
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
				changes = append(changes, Changed{p.Pin, true})
			}
		default:
			p.State = Published
			p.show(d)
			was = false
			changes = append(changes, Changed{p.Pin, false})
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

// show makes d what agents see.
func (p *Row) show(d *ingest.Definition) {
	p.Pin.Pin, p.Definition, p.Shown = d.Pin, d.Published, d
	p.Offered, p.OfferedDefinition, p.Offer = "", nil, nil
}

// Approve publishes what waits; false when nothing does.
func (p *Row) Approve() bool {
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

// maxGone is how many definitions are remembered that an upstream lists no more. The
// oldest are forgotten, so that one that renames itself all the time costs no more.
const maxGone = 2000

// Forget takes the pins out that are too many, and returns them.
func (s Set) Forget() (gone []*Row) {
	for _, p := range s {
		if !p.Listed {
			gone = append(gone, p)
		}
	}
	if len(gone) <= maxGone {
		return nil
	}
	slices.SortFunc(gone, func(a, b *Row) int { return cmp.Or(a.Seen.Compare(b.Seen), cmp.Compare(a.Name, b.Name)) })
	gone = gone[:len(gone)-maxGone]
	for _, p := range gone {
		delete(s, p.Key())
	}
	return gone
}

// Sorted are the pins in the order of kind and name.
func (s Set) Sorted() []*Row {
	list := make([]*Row, 0, len(s))
	for _, p := range s {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *Row) int {
		return cmp.Or(cmp.Compare(slices.Index(ingest.Kinds(), a.Kind), slices.Index(ingest.Kinds(), b.Kind)), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// Read makes a row of what was saved. One that cannot be read is not shown until it
// has been seen again.
func Read(p Pin) *Row {
	out := &Row{Pin: p}
	var err error
	if out.Shown, err = ingest.Parse(p.Kind, p.Definition); err != nil || out.Shown.Pin != p.Pin {
		out.Shown = nil
	}
	if p.State == Held {
		if out.Offer, err = ingest.Parse(p.Kind, p.OfferedDefinition); err != nil {
			out.Offer = nil
		}
	}
	return out
}
