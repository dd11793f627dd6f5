// Package publish distributes changes of the catalog: the feed of changes, notices to
// subscribers whose context changed, and telemetry. It never slows the catalog down: rings
// are bounded, slow subscribers receive only the latest notice, and a full queue in front of
// a slow sink drops events and counts them.
package publish

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
)

// Op is the kind of change of an entry.
type Op string

// The operations.
const (
	Added   Op = "added"
	Removed Op = "removed"
	Changed Op = "changed"
)

// EntryChange is the change of one entry of the internal catalog in one generation.
type EntryChange struct {
	Op              Op                `json:"op"`
	CapabilityID    capability.ID     `json:"capabilityId"`
	CanonicalAction capability.Action `json:"canonicalAction"`
	Fields          []string          `json:"fields"` // of a changed entry: the published fields that differ
}

// Event is one generation of the feed. With Reset, the changes since the reader's generation
// are not available; the event only holds the current generation and etag, and the reader
// must read the catalog again.
type Event struct {
	Generation uint64        `json:"generation"`
	Etag       string        `json:"etag"`
	Reset      bool          `json:"reset,omitempty"`
	Changes    []EntryChange `json:"changes,omitzero"` // nil with Reset
}

// Feed is the last 1,024 generations. It is safe for concurrent use.
type Feed struct {
	mu     sync.Mutex
	events []Event // of consecutive generations
	held   int     // changes in them
	last   Event   // without changes
	more   chan struct{}
}

// NewFeed returns a feed that begins at a snapshot.
func NewFeed(s *catalog.Snapshot) *Feed {
	return &Feed{last: Event{Generation: s.Generation, Etag: s.Etag}, more: make(chan struct{})}
}

// Add appends a change to the feed and returns its event. ok is false for a change that is
// ignored: one that changed nothing, or whose generation is not later than the last. After a
// gap in the generations, readers of an earlier generation receive a reset.
func (f *Feed) Add(c catalog.Change) (event Event, ok bool) {
	if c.Before == c.After {
		return Event{}, false
	}
	event = Event{Generation: c.After.Generation, Etag: c.After.Etag}
	if len(c.Touched) > maxTouched || c.Before.Settings() != c.After.Settings() {
		event.Reset = true
	} else {
		event.Changes = changes(c)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if event.Generation <= f.last.Generation {
		return Event{}, false
	}
	if c.Before.Generation != f.last.Generation {
		f.events, f.held = nil, 0
	}
	f.last = Event{Generation: event.Generation, Etag: event.Etag}
	f.events = append(f.events, event)
	f.held += len(event.Changes)
	drop := 0
	for len(f.events)-drop > maxGenerations || f.held > maxChanges {
		f.held -= len(f.events[drop].Changes)
		drop++
	}
	f.events = slices.Delete(f.events, 0, drop)
	close(f.more)
	f.more = make(chan struct{})
	return event, true
}

// Since returns the events after a generation, an empty list if it is the last, or one reset
// if the feed does not reach back to it.
func (f *Feed) Since(generation uint64) []Event {
	events, _ := f.since(generation)
	return events
}

// since is like Since, and also returns a channel that is closed at the next event.
func (f *Feed) since(generation uint64) ([]Event, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if generation == f.last.Generation {
		return []Event{}, f.more
	}
	reset := f.last
	reset.Reset = true
	i, found := slices.BinarySearchFunc(f.events, generation+1, func(e Event, g uint64) int { return cmp.Compare(e.Generation, g) })
	if !found || slices.ContainsFunc(f.events[i:], func(e Event) bool { return e.Reset }) {
		return []Event{reset}, f.more
	}
	return slices.Clone(f.events[i:]), f.more
}

// Wait is like Since, but waits until there is at least one event. If ctx ends first, it
// returns ctx's error.
func (f *Feed) Wait(ctx context.Context, generation uint64) ([]Event, error) {
	for {
		events, more := f.since(generation)
		if len(events) > 0 {
			return events, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// changes compares the entries of the touched actions.
func changes(c catalog.Change) []EntryChange {
	out := []EntryChange{}
	for _, action := range c.Touched {
		before, after := c.Before.Action(action), c.After.Action(action)
		known := make(map[capability.ID]*catalog.Entry, len(before))
		for _, e := range before {
			known[e.ID] = e
		}
		for _, e := range after {
			was := known[e.ID]
			if was == nil {
				out = append(out, EntryChange{Added, e.ID, e.Action, []string{}})
				continue
			}
			delete(known, e.ID)
			if fields := differences(was, e, len(before) > 1, len(after) > 1); len(fields) > 0 {
				out = append(out, EntryChange{Changed, e.ID, e.Action, fields})
			}
		}
		for _, e := range before {
			if known[e.ID] != nil {
				out = append(out, EntryChange{Removed, e.ID, e.Action, []string{}})
			}
		}
	}
	return out
}

// differences returns the names of the published fields that differ, in a fixed order. Times
// are not compared.
func differences(was, is *catalog.Entry, shared, sharing bool) (out []string) {
	if was == is && shared == sharing {
		return nil
	}
	a, b := compile.InternalJSON(was, shared), compile.InternalJSON(is, sharing)
	for _, f := range []struct {
		name string
		same bool
	}{
		{"kind", a.Kind == b.Kind},
		{"displayName", a.DisplayName == b.DisplayName},
		{"description", a.Description == b.Description},
		{"providerKey", a.ProviderKey == b.ProviderKey},
		{"scope", reflect.DeepEqual(a.Scope, b.Scope)},
		{"availability", a.Availability.State == b.Availability.State && a.Availability.Reason == b.Availability.Reason},
		{"requiresSelection", a.RequiresSelection == b.RequiresSelection},
		{"inputSchema", string(a.InputSchema) == string(b.InputSchema)},
		{"outputSchema", string(a.OutputSchema) == string(b.OutputSchema)},
		{"policy", reflect.DeepEqual(a.Policy, b.Policy)},
		{"telemetryTags", reflect.DeepEqual(a.TelemetryTags, b.TelemetryTags)},
	} {
		if !f.same {
			out = append(out, f.name)
		}
	}
	return out
}

// Flap reports whether the event only changes availability.
func (e Event) Flap() bool {
	return !e.Reset && len(e.Changes) > 0 && !slices.ContainsFunc(e.Changes, func(c EntryChange) bool {
		return c.Op != Changed || len(c.Fields) != 1 || c.Fields[0] != "availability"
	})
}
