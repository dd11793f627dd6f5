// Package intake is the way into the catalog: a source publishes a batch, the
// batch is applied as a whole or refused as a whole, each module that came, went
// or changed is recorded, and everybody who watches the catalog is told. It
// supervises the sources' goroutines. Trust in the modules of an endpoint is
// decided before its batch gets here.
package intake

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/audit"
	"github.com/junctor-run/junctor/internal/catalog"
)

// Config is what a Pipeline needs; all are required but Logger.
type Config struct {
	Catalog *catalog.Catalog
	Log     *audit.Log
	// Changed is called after each new snapshot, with no lock held.
	Changed func(*catalog.Snapshot)
	Logger  *slog.Logger
}

// Pipeline applies batches. It is safe for concurrent use.
type Pipeline struct{ cfg Config }

// New returns a Pipeline.
func New(cfg Config) *Pipeline {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Pipeline{cfg}
}

// Publish applies b or says why nothing was changed.
func (p *Pipeline) Publish(b capability.Batch) error {
	before := p.cfg.Catalog.Snapshot()
	after, changed, err := p.cfg.Catalog.Apply(b)
	if err != nil || !changed {
		return err
	}
	p.record(before, after, b.Source)
	if p.cfg.Changed != nil {
		p.cfg.Changed(after)
	}
	return nil
}

// Run runs the sources until ctx ends. A source that fails is logged and started
// again after a pause that doubles to a minute; one broken source never stops
// another.
func (p *Pipeline) Run(ctx context.Context, sources ...capability.Source) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range sources {
		group.Go(func() error {
			pause := time.Second
			for ctx.Err() == nil {
				err := s.Run(ctx, p.Publish)
				if ctx.Err() != nil || err == nil || errors.Is(err, context.Canceled) {
					return nil
				}
				p.cfg.Logger.Error("source stopped; starting it again", "err", err, "in", pause)
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
				pause = min(2*pause, time.Minute)
			}
			return nil
		})
	}
	return group.Wait()
}

// record writes what became of each module of the source.
func (p *Pipeline) record(before, after *catalog.Snapshot, source string) {
	old := make(map[string]*capability.Module, len(before.Modules))
	for _, m := range before.Modules {
		old[m.Extension] = m
	}
	for _, m := range after.Modules {
		was, had := old[m.Extension]
		delete(old, m.Extension)
		switch {
		case !had:
			p.write(audit.ModuleLoaded, m, source)
		case was.Digest != m.Digest:
			p.write(audit.ModuleReloaded, m, source)
		}
	}
	for _, m := range old {
		p.write(audit.ModuleUnloaded, m, source)
	}
	for _, c := range after.Conflicts {
		if !hasConflict(before, c.Key) {
			p.append(audit.Record{
				Event: audit.CapabilityConflictDetected, Logger: "intake",
				Metadata: audit.Metadata{Attrs: []audit.Attr{{Key: "class", Value: c.Class}, {Key: "key", Value: c.Key}, {Key: "kept", Value: c.Kept}}},
			})
		}
	}
}

func hasConflict(s *catalog.Snapshot, key string) bool {
	for _, c := range s.Conflicts {
		if c.Key == key {
			return true
		}
	}
	return false
}

func (p *Pipeline) write(ev audit.Event, m *capability.Module, source string) {
	p.append(audit.Record{
		Event: ev, Logger: "intake", Extension: m.Extension, Runner: m.Origin,
		Metadata: audit.Metadata{Attrs: []audit.Attr{
			{Key: "source", Value: source}, {Key: "module", Value: m.ID}, {Key: "version", Value: m.Version}, {Key: "digest", Value: m.Digest},
		}},
	})
}

func (p *Pipeline) append(r audit.Record) {
	if _, err := p.cfg.Log.Append(context.Background(), r, audit.Written); err != nil {
		p.cfg.Logger.Error("audit record not written", "event", string(r.Event), "err", err)
	}
}
