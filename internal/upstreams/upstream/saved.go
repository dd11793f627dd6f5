package upstream

import (
	"context"
	"time"

	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// Saved is one stored record with its pins.
type Saved struct {
	Record record.Record
	Added  time.Time
	Pins   []ingest.Pin
	// Damaged is why the record could not be read, or "". Such an upstream is listed but
	// never connected.
	Damaged string
}

// Store stores upstreams across restarts; several servers may share it.
type Store interface {
	// Save adds or replaces an upstream with all its pins, in one step.
	Save(ctx context.Context, s Saved) error
	// SavePins stores some pins of an upstream and deletes others, in one step. It does
	// nothing if the upstream does not exist.
	SavePins(ctx context.Context, upstream string, save, forget []ingest.Pin) error
	Upstreams(ctx context.Context) ([]Saved, error)
	// Delete deletes an upstream and its pins. A missing one is not an error.
	Delete(ctx context.Context, name string) error
}
