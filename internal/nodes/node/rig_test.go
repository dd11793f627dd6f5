package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/gateway"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/node"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/internal/testkit/inproc"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
	"github.com/junctor-run/junctor/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a gateway; tokens are the ids of nodes.
type rig struct {
	*gateway.Gateway
	t    *testing.T
	dial messaging.Dialer
	bus  *inproc.Broker // nil over NATS
	stop func()

	mu      sync.Mutex
	events  []string
	revoked map[string]bool
}

// admit is who may come in to a bus of tests.
func (r *rig) admit(_ context.Context, c messaging.Credential) (messaging.Identity, error) {
	id := c.Token.Reveal()
	if strings.HasPrefix(id, "unknown") {
		return messaging.Identity{}, capability.Errorf(capability.CodeUnauthenticated, "bus", "who is that")
	}
	subscribe, publish := wire.Permissions(id)
	return messaging.Identity{ID: id, Publish: publish, Subscribe: subscribe}, nil
}

func (r *rig) config(b messaging.Broker, cfg gateway.Config) gateway.Config {
	cfg.Broker = b
	cfg.Granted = func(id string) ([]string, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.revoked[id] {
			return nil, cmp.Errorf(cmp.ReasonDenied, "the token that let %s in has ended", id)
		}
		return []string{"user:ann"}, nil
	}
	cfg.Told = func(e fleet.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, strings.TrimSpace(e.Kind+" "+e.Node+" "+e.Reason))
	}
	return cfg
}

// newRig is a gateway on the bus in memory; it is for bubbles of synctest.
func newRig(t *testing.T, cfg gateway.Config) *rig {
	t.Helper()
	r := &rig{t: t, revoked: make(map[string]bool)}
	r.bus = inproc.New(r.admit)
	r.dial = r.bus.Dial
	t.Cleanup(r.bus.Close)
	r.serve(cfg)
	t.Cleanup(func() { r.stop() })
	return r
}

// serve starts a gateway, or another one in the place of the last.
func (r *rig) serve(cfg gateway.Config) {
	r.t.Helper()
	if r.stop != nil {
		r.stop()
	}
	r.Gateway = gateway.New(r.config(r.bus, cfg))
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	synctest.Wait()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	})
}

func (r *rig) told() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// device is a node under test.
type device struct {
	*node.Node
	t         *testing.T
	functions *functions.Registry
	exec      *functions.Executor
	ctx       context.Context
	stop      context.CancelFunc
	done      chan error

	mu      sync.Mutex
	states  []string
	records []node.Record
}

func (r *rig) device(id string, change func(*node.Config)) *device {
	r.t.Helper()
	d := &device{t: r.t, functions: functions.New(0), done: make(chan error, 1)}
	cfg := node.Config{
		Dial: r.dial, Token: secret.New(id), ID: id, Labels: []string{"gpu"}, Software: wire.Software{Name: "test", Version: "1"},
		Functions: d.functions, Figures: func() (float64, float64, float64) { return 1, 2, 0 },
		Changed: func(s node.Status) {
			d.mu.Lock()
			defer d.mu.Unlock()
			if len(d.states) == 0 || d.states[len(d.states)-1] != s.State {
				d.states = append(d.states, s.State)
			}
		},
		Called: func(_ context.Context, r node.Record) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.records = append(d.records, r)
		},
	}
	if change != nil {
		change(&cfg)
	}
	d.exec = functions.NewExecutor(functions.Config{Node: id, Functions: d.functions, MaxConcurrent: cfg.MaxConcurrent, Queue: cfg.Queue})
	cfg.Executor = d.exec
	var err error
	if d.Node, err = node.New(cfg); err != nil {
		r.t.Fatal(err)
	}
	d.ctx, d.stop = context.WithCancel(r.t.Context())
	return d
}

// start runs a device until the end of the test.
func (d *device) start() *device {
	d.t.Helper()
	go func() { d.done <- d.Run(d.ctx) }()
	d.t.Cleanup(func() {
		d.stop()
		<-d.done
	})
	return d
}

// ended waits for Run.
func (d *device) ended() error {
	err := <-d.done
	d.done <- nil // of the cleanup
	return err
}

func (d *device) let(name string, stream bool, handle functions.Handler) {
	d.t.Helper()
	if err := d.functions.Register(functions.Function{Name: name, Stream: stream, Effect: cmp.EffectWrite, Handle: handle}, true); err != nil {
		d.t.Fatal(err)
	}
}

// joined is a gateway and a device that has joined it.
func joined(t *testing.T) (*rig, *device) {
	t.Helper()
	r := newRig(t, gateway.Config{})
	d := r.device("a", nil)
	d.let("echo", false, echo)
	d.start()
	synctest.Wait()
	return r, d
}

func echo(_ context.Context, c functions.Call) (json.RawMessage, error) {
	return json.RawMessage(fmt.Sprintf(`{"args":%d,"caller":%q}`, len(c.Args.Args)+len(c.Args.Kwargs), c.Caller)), nil
}

type outcome struct {
	gateway.Result
	err error
}

func (r *rig) call(ctx context.Context, q gateway.Request) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		result, err := r.Call(ctx, q)
		done <- outcome{result, err}
	}()
	return done
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return capability.AsError(err).Reason
}

// blocked is a handler that waits for its context, and states why it ended.
func blocked() (functions.Handler, <-chan error) {
	ended := make(chan error, 64)
	return func(ctx context.Context, _ functions.Call) (json.RawMessage, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}, ended
}
