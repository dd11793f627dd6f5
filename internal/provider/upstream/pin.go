package upstream

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/junctor-run/junctor/internal/provider/upstream/ingest"
	"github.com/junctor-run/junctor/internal/provider/upstream/record"
)

// PinState says whether agents see a definition.
type PinState string

// The states of a pin.
const (
	Published   PinState = "published"
	Held        PinState = "held"        // listed as it was, refused when called
	Quarantined PinState = "quarantined" // seen for the first time, not listed
)

// Pin is what is known of one definition of one upstream.
type Pin struct {
	Kind  ingest.Kind
	Name  string
	State PinState
	// Pin and Definition are what agents see, or, in quarantine, would see.
	Pin        string
	Definition json.RawMessage
	// Offered and OfferedDefinition are what a held one has become.
	Offered           string
	OfferedDefinition json.RawMessage
	Listed            bool // the upstream lists it now
	Seen              time.Time
}

type pinKey struct {
	kind ingest.Kind
	name string
}

// row is a pin in memory, with its definitions read.
type row struct {
	Pin
	shown   *ingest.Definition
	offered *ingest.Definition // nil unless held
	dropped bool               // the saved form cannot be read any more
}

func (p *row) key() pinKey { return pinKey{p.Kind, p.Name} }

// visible reports whether it is in the catalog.
func (p *row) visible() bool { return p.Listed && p.State != Quarantined && p.shown != nil }

// change is what became of one definition, for the records.
type change struct {
	pin  Pin
	held bool // else: another definition was published by policy
}

// reconcile compares a list with the pins of its kind, which it changes, and returns
// the rows that must be saved. A first sight is published where the upstream is
// trusted. Another definition under a known name is what the policy says; one that is
// as it was before is published again. A rename is a removal and an addition.
func reconcile(pins map[pinKey]*row, kind ingest.Kind, list []*ingest.Definition, rec *record.Record, now time.Time) (save []*row, changes []change) {
	now = now.UTC()
	listed := make(map[string]bool, len(list))
	for _, d := range list {
		listed[d.Name] = true
		p := pins[pinKey{kind, d.Name}]
		if p == nil {
			p = &row{Pin: Pin{Kind: kind, Name: d.Name, State: Quarantined, Listed: true, Seen: now}}
			if rec.Trust == record.Trusted {
				p.State = Published
			}
			p.show(d)
			pins[p.key()] = p
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
			p.Offered, p.OfferedDefinition, p.offered = d.Pin, d.Published, d
			if offered != d.Pin {
				changes = append(changes, change{p.Pin, true})
			}
		default:
			p.State = Published
			p.show(d)
			was = false
			changes = append(changes, change{p.Pin, false})
		}
		if !was || before != p.State || offered != p.Offered {
			p.Seen = now
			save = append(save, p)
		}
	}
	for key, p := range pins {
		if key.kind == kind && p.Listed && !listed[key.name] {
			p.Listed = false
			save = append(save, p)
		}
	}
	return save, changes
}

// show makes d what agents see.
func (p *row) show(d *ingest.Definition) {
	p.Pin.Pin, p.Definition, p.shown = d.Pin, d.Published, d
	p.Offered, p.OfferedDefinition, p.offered = "", nil, nil
}

// approve publishes what waits; false when nothing does.
func (p *row) approve() bool {
	switch p.State {
	case Held:
		if p.offered == nil {
			return false
		}
		p.show(p.offered)
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

// forgotten takes the pins out that are too many, and returns them.
func forgotten(pins map[pinKey]*row) (gone []*row) {
	for _, p := range pins {
		if !p.Listed {
			gone = append(gone, p)
		}
	}
	if len(gone) <= maxGone {
		return nil
	}
	slices.SortFunc(gone, func(a, b *row) int { return cmp.Or(a.Seen.Compare(b.Seen), cmp.Compare(a.Name, b.Name)) })
	gone = gone[:len(gone)-maxGone]
	for _, p := range gone {
		delete(pins, p.key())
	}
	return gone
}

// sorted are the pins in the order of kind and name.
func sorted(pins map[pinKey]*row) []*row {
	list := make([]*row, 0, len(pins))
	for _, p := range pins {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *row) int {
		return cmp.Or(cmp.Compare(slices.Index(ingest.Kinds(), a.Kind), slices.Index(ingest.Kinds(), b.Kind)), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// read makes a row of what was saved. One that cannot be read is not shown until it
// has been seen again.
func read(p Pin) *row {
	out := &row{Pin: p}
	var err error
	if out.shown, err = ingest.Parse(p.Kind, p.Definition); err != nil || out.shown.Pin != p.Pin {
		out.shown, out.dropped = nil, true
	}
	if p.State == Held {
		if out.offered, err = ingest.Parse(p.Kind, p.OfferedDefinition); err != nil {
			out.offered = nil
		}
	}
	return out
}
