// Package intake applies the batches of sources to the catalog. It applies or rejects each batch
// as a whole, records each module that was added, removed or changed, and reports the change to
// the watchers of the catalog. It also runs the sources' goroutines. Whether the modules of an
// endpoint are trusted is decided before their batch is published.
package intake

import (
	"cmp"
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
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
)

// Config configures a [Pipeline]. All fields except Logger are required.
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
	// order keeps records and notices in the order of the snapshots. Only sources wait for
	// it.
	order sync.Mutex

	mu    sync.Mutex
	queue []*waiting
}

// New returns a Pipeline.
func New(cfg Config) *Pipeline {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Pipeline{cfg: cfg}
}

// waiting is a batch whose source waits for the result.
type waiting struct {
	batch capability.Batch
	err   error
	over  bool
}

// Publish applies b, or changes nothing and returns the reason. Batches that arrive during another
// change are applied together afterwards, in order of arrival, because a change for many
// sources costs little more than for one.
func (p *Pipeline) Publish(b capability.Batch) error {
	w := &waiting{batch: b}
	p.mu.Lock()
	p.queue = append(p.queue, w)
	p.mu.Unlock()
	p.order.Lock()
	defer p.order.Unlock()
	for !w.over { // otherwise the previous holder of the lock has applied it
		p.apply(p.next())
	}
	return w.err
}

// Configure applies other settings to the catalog, in order with the published batches.
func (p *Pipeline) Configure(settings catalog.Settings) error {
	p.order.Lock()
	defer p.order.Unlock()
	change, changed, err := p.cfg.Catalog.Configure(settings)
	if err != nil || !changed {
		return err
	}
	p.recordConflicts(change)
	if p.cfg.Changed != nil {
		p.cfg.Changed(change)
	}
	return nil
}

// next removes from the queue the batches that can be applied together: at most one of each
// source.
func (p *Pipeline) next() []*waiting {
	p.mu.Lock()
	defer p.mu.Unlock()
	sources := make(map[string]bool, len(p.queue))
	n := 0
	for n < len(p.queue) && n < maxTogether && !sources[p.queue[n].batch.Source] {
		sources[p.queue[n].batch.Source] = true
		n++
	}
	list := slices.Clone(p.queue[:n])
	p.queue = slices.Delete(p.queue, 0, n)
	return list
}

// apply applies batches together and sets their errors. If the catalog rejects them, it applies
// each half separately, so that an invalid batch does not block the others.
func (p *Pipeline) apply(list []*waiting) {
	defer func() { // waiters are always released, even after a panic
		for _, w := range list {
			if !w.over {
				w.err, w.over = capability.Errorf(capability.CodeInternal, "catalog.apply", "the change broke down before it was applied"), true
			}
		}
	}()
	batches := make([]capability.Batch, len(list))
	for i, w := range list {
		batches[i] = w.batch
	}
	change, changed, err := p.cfg.Catalog.ReplaceAll(batches)
	if err != nil && len(list) > 1 {
		p.apply(list[:len(list)/2])
		p.apply(list[len(list)/2:])
		return
	}
	for _, w := range list {
		w.err, w.over = err, true
	}
	if err != nil || !changed {
		return
	}
	for i := range batches {
		p.record(change, batches[i])
	}
	p.recordConflicts(change)
	if p.cfg.Changed != nil {
		p.cfg.Changed(change)
	}
}

// maxTogether is the maximum number of batches applied together.
const maxTogether = 512

// Run runs the sources until ctx ends and all of them have returned, and returns nil. A source that
// stops earlier is logged and restarted after a pause, which doubles up to a minute, and is short
// again after a source that ran for longer. A failed source does not affect the others.
func (p *Pipeline) Run(ctx context.Context, sources ...capability.Source) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range sources {
		group.Go(func() error {
			pause := firstRetryDelay
			for {
				began := time.Now()
				err := run(ctx, s, p.contained)
				if ctx.Err() != nil {
					return nil
				}
				if time.Since(began) > maxRetryDelay { // the source worked for a while
					pause = firstRetryDelay
				}
				p.cfg.Logger.Error("source stopped; starting it again", "err", err, "in", pause)
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
				pause = min(2*pause, maxRetryDelay)
			}
		})
	}
	return group.Wait()
}

const (
	firstRetryDelay = time.Second
	maxRetryDelay   = time.Minute
)

// run runs a source and returns a panic as an error.
func run(ctx context.Context, s capability.Source, publish func(capability.Batch) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return s.Run(ctx, publish)
}

// contained is like Publish, but returns a panic as an error, because sources may call it in their
// own goroutines.
func (p *Pipeline) contained(b capability.Batch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return p.Publish(b)
}

// record writes an audit record for each added, removed or changed module of the batch's source.
func (p *Pipeline) record(change catalog.Change, b capability.Batch) {
	before := change.Old[b.Source].Modules
	old := make(map[string]*capability.Module, len(before))
	for i := range before {
		old[before[i].Extension] = &before[i]
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
}

// recordConflicts writes an audit record for each new or changed conflict, except overlaps.
func (p *Pipeline) recordConflicts(change catalog.Change) {
	for _, c := range change.Conflicts {
		if c.Class == catalog.ClassOverlap {
			continue // overlaps are normal
		}
		p.append(audit.Record{
			Event: audit.CapabilityConflictDetected, Logger: "intake",
			Metadata: audit.Metadata{Attrs: []audit.Attr{
				{Key: "class", Value: c.Class},
				{Key: "key", Value: c.Key},
				{Key: "resolution", Value: c.Resolution},
				{Key: "winner", Value: c.Winner},
			}},
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
