package upstream

import (
	"context"
	"strconv"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// provider is what the catalog calls.
func (u *upstream) provider() capability.Provider {
	if u.record.Kind == record.KindA2A {
		return &agentProvider{provider{u}}
	}
	return &provider{u}
}

// agentProvider carries the calls of an A2A agent, whose work goes on without us.
type agentProvider struct{ provider }

// Resume implements capability.Resumer. The definition is that of now: one that is held
// is refused, as it is for new calls.
func (p *agentProvider) Resume(ctx context.Context, c capability.Call, upstreamCall string) (capability.Result, error) {
	if upstreamCall == "" {
		return capability.Result{}, capability.Errorf(capability.CodeInvalidInput, "execute", "there is nothing to go on with")
	}
	return p.carry(ctx, c, upstreamCall)
}

// track has a request kept or resumed, and states what the call is at the far side: the
// far side's own id where it says one, else the number of the call.
func (p *provider) track(c *capability.Call, resume string) *tracked {
	t := &tracked{keep: c.Keep, resume: resume, id: resume}
	if t.id == "" {
		t.id = strconv.FormatInt(p.calls.Add(1), 10)
	}
	return t
}

// tracked belongs to one call; keep is called by the goroutine of that call.
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
