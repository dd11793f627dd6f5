package publish

import (
	"context"

	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
)

// Publisher passes every change of one catalog to the feed, the subscribers and telemetry.
type Publisher struct {
	Feed      *Feed
	Contexts  *Contexts
	Telemetry *Emitter
}

// New returns a publisher that starts at snapshot s, and reports the state of s to telemetry.
// c must compile the contexts of the same catalog.
func New(s *catalog.Snapshot, c *compile.Compiler, e *Emitter) *Publisher {
	e.Start(s)
	return &Publisher{Feed: NewFeed(s), Contexts: NewContexts(c), Telemetry: e}
}

// Changed publishes a change. Changes must come in the order of their generations.
// It never blocks.
func (p *Publisher) Changed(c catalog.Change) {
	event, ok := p.Feed.Add(c)
	if !ok {
		return
	}
	p.Contexts.Changed(event.Flap())
	p.Telemetry.Changed(c)
}

// Run sends notices until ctx ends.
func (p *Publisher) Run(ctx context.Context) { p.Contexts.Run(ctx) }
