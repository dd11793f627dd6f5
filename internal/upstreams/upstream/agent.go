package upstream

import (
	"context"
	"strconv"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// provider returns the provider for the catalog; that of an A2A agent can resume calls.
func (u *upstream) provider() capability.Provider {
	if u.record.Kind == record.KindA2A {
		return &agentProvider{provider{u}}
	}
	return &provider{u}
}

// agentProvider is the provider of an A2A agent, whose tasks continue without the server.
type agentProvider struct{ provider }

// Resume implements capability.Resumer. It uses the current definition, and like a new
// call is refused if that is held.
func (p *agentProvider) Resume(ctx context.Context, c capability.Call, upstreamCall string) (capability.Result, error) {
	if upstreamCall == "" {
		return capability.Result{}, capability.Errorf(capability.CodeInvalidInput, "execute", "there is nothing to go on with")
	}
	return p.carry(ctx, c, upstreamCall)
}

// track returns the tracking of a call. Its id is the upstream's id of the call, if it
// reports one, else a number.
func (p *provider) track(c *capability.Call, resume string) *tracked {
	t := &tracked{keep: c.Keep, resume: resume, id: resume}
	if t.id == "" {
		t.id = strconv.FormatInt(p.calls.Add(1), 10)
	}
	return t
}

// tracked holds the upstream's id of one call. Only the call's goroutine uses it.
type tracked struct {
	keep   func(string)
	resume string
	id     string
}

func (t *tracked) kept(id string) {
	t.id = id
	if t.keep != nil {
		t.keep(id)
	}
}
