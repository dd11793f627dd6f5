package server

import (
	"context"
	"iter"

	"github.com/junctor-run/junctor/internal/fleet"
	"github.com/junctor-run/junctor/internal/gateway"
)

type tmpCaller struct{ g *gateway.Gateway }

func (c tmpCaller) Do(ctx context.Context, to fleet.Request, r gateway.Request) (gateway.Result, error) {
	picked, err := c.g.Fleet().Pick(to)
	if err != nil {
		return gateway.Result{}, err
	}
	r.Node = picked[0].ID
	return c.g.Call(ctx, r)
}

func tmpWatch(ctx context.Context) iter.Seq2[fleet.Event, error] {
	return func(yield func(fleet.Event, error) bool) { <-ctx.Done() }
}
