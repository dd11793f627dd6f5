// Package intake is the way into the catalog: a source publishes a batch, the
// batch is applied as a whole or refused as a whole, each module that came, went
// or changed is recorded, and everybody who watches the catalog is told. It
// supervises the sources' goroutines. Trust in the modules of an endpoint is
// decided before its batch gets here.
package intake

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
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
	// Changed is called after each new snapshot, in order. It must not publish.
	Changed func(catalog.Change)
	Logger  *slog.Logger
}

// Pipeline applies batches. It is safe for concurrent use.
type Pipeline struct {
	cfg Config
	// order keeps records and notices in the order of the snapshots. Only sources
	// wait for it, and what they wait for is a line of the log at most.
	order sync.Mutex
}

// New returns a Pipeline.
func New(cfg Config) *Pipeline {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Pipeline{cfg: cfg}
}

// Publish applies b or says why nothing was changed.
func (p *Pipeline) Publish(b capability.Batch) error {
	p.order.Lock()
	defer p.order.Unlock()
	change, changed, err := p.cfg.Catalog.Replace(b)
	if err != nil || !changed {
		return err
	}
	p.record(change, b)
	if p.cfg.Changed != nil {
		p.cfg.Changed(change)
	}
	return nil
}

// Run runs the sources until ctx ends. A source that stops earlier is logged and
// started again after a pause that doubles to a minute; one broken source never
// stops another.
func (p *Pipeline) Run(ctx context.Context, sources ...capability.Source) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range sources {
		group.Go(func() error {
			pause := firstPause
			for {
				began := time.Now()
				err := run(ctx, s, p.Publish)
				if ctx.Err() != nil {
					return nil
				}
				if time.Since(began) > lastPause { // it was well for a while
					pause = firstPause
				}
				p.cfg.Logger.Error("source stopped; starting it again", "err", err, "in", pause)
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
				pause = min(2*pause, lastPause)
			}
		})
	}
	return group.Wait()
}

const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// run contains a panic of a source: it must not take the server with it.
func run(ctx context.Context, s capability.Source, publish func(capability.Batch) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return s.Run(ctx, publish)
}

// record writes what became of each module of the batch's source.
func (p *Pipeline) record(change catalog.Change, b capability.Batch) {
	old := make(map[string]*capability.Module, len(change.Old.Modules))
	for i := range change.Old.Modules {
		old[change.Old.Modules[i].Extension] = &change.Old.Modules[i]
	}
	for i := range b.Modules {
		m := &b.Modules[i]
		was, had := old[m.Extension]
		delete(old, m.Extension)
		switch {
		case !had:
			p.write(audit.ModuleLoaded, m, b.Source)
		case was.Digest != m.Digest:
			p.write(audit.ModuleReloaded, m, b.Source)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(old)) {
		p.write(audit.ModuleUnloaded, old[id], b.Source)
	}
	for _, c := range change.Conflicts {
		if c.Class == catalog.ClassOverlap {
			continue // what a family is for
		}
		p.append(audit.Record{
			Event: audit.CapabilityConflictDetected, Logger: "intake",
			Metadata: audit.Metadata{Attrs: []audit.Attr{{Key: "class", Value: c.Class}, {Key: "key", Value: c.Key}, {Key: "resolution", Value: c.Resolution}, {Key: "winner", Value: c.Winner}}},
		})
	}
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
