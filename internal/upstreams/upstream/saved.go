package upstream

import (
	"context"
	"time"

	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// Saved is one record at rest, with its pins.
type Saved struct {
	Record record.Record
	Added  time.Time
	Pins   []ingest.Pin
	// Damaged reports that the record could not be read; such an upstream is listed and
	// never connected.
	Damaged string
}

// Store keeps what must survive a restart, and what several servers share.
type Store interface {
	// Save adds or replaces an upstream with all its pins, in one step.
	Save(ctx context.Context, s Saved) error
	// SavePins writes some pins of an upstream and forgets others, in one step. It does
	// nothing to an upstream that is not there any more.
	SavePins(ctx context.Context, upstream string, save, forget []ingest.Pin) error
	Upstreams(ctx context.Context) ([]Saved, error)
	// Delete forgets an upstream and its pins; an absent one is not an error.
	Delete(ctx context.Context, name string) error
}
