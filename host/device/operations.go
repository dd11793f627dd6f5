package device

import (
	"context"
	"encoding/json"
	"runtime"
	"strings"

	"github.com/junctor-run/junctor/internal/nodes/node"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// ID is the device's name at its gateway.
func (d *Device) ID() string { return d.who.ID }

// Register makes a function callable and notifies the gateway. It may be called at any
// time. Error: conflict if the name is taken.
func (d *Device) Register(f Function) error { return d.register(f, false) }

// Replace is Register that replaces a function of the same name. Running calls finish in
// the old function.
func (d *Device) Replace(f Function) error { return d.register(f, true) }

func (d *Device) register(f Function, replace bool) error {
	reg, err := f.registered()
	if err != nil {
		return err
	}
	return d.functions.Register(reg, replace)
}

// Unregister removes a function and reports whether it was registered.
func (d *Device) Unregister(name string) (bool, error) {
	if cmp.IsReserved(strings.TrimSpace(name)) {
		return false, cmp.Errorf(cmp.ReasonReserved, "the name %s belongs to the protocol", name)
	}
	return d.functions.Unregister(name)
}

// Refresh returns after the gateway has confirmed the functions that are registered now.
func (d *Device) Refresh(ctx context.Context) error {
	if n := d.session(); n != nil {
		return n.Refresh(ctx)
	}
	return cmp.Errorf(cmp.ReasonConnection, "the device has not joined yet")
}

// Status returns the state of the session with the gateway.
func (d *Device) Status() Status {
	if n := d.session(); n != nil {
		return n.Status()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return Status{ID: d.who.ID, State: node.Connecting, Error: d.wait, Labels: d.cfg.Labels}
}

// HostStatus returns the status of the host of skills. ok is false if the device has none.
func (d *Device) HostStatus() (status cmp.Status, ok bool) {
	if d.host == nil {
		return cmp.Status{OS: runtime.GOOS, Arch: runtime.GOARCH}, false
	}
	return d.host.Status(true, true), true
}

// Call invokes a capability of the gateway with this node as the principal. action is a
// canonical action or a capability's id; input must encode to a JSON object.
func (d *Device) Call(ctx context.Context, action string, input any) (json.RawMessage, error) {
	n := d.session()
	if n == nil {
		return nil, cmp.Errorf(cmp.ReasonConnection, "the device has not joined yet")
	}
	data, err := written(input)
	if err != nil {
		return nil, err
	}
	reply, err := n.Call(ctx, wire.Upward{Action: action, Input: data})
	if err != nil {
		return nil, err
	}
	return reply.Result, nil
}

// Drain refuses new calls, waits at most 30 s for running ones, and leaves the gateway.
// Run returns after that.
func (d *Device) Drain(ctx context.Context) error { return d.order(ctx, (*node.Node).Drain) }

// Leave leaves the gateway at once. Run returns after that.
func (d *Device) Leave(ctx context.Context) error { return d.order(ctx, (*node.Node).Leave) }

func (d *Device) order(ctx context.Context, give func(*node.Node, context.Context) error) error {
	n := d.session()
	if n == nil {
		return cmp.Errorf(cmp.ReasonConnection, "the device has not joined yet")
	}
	return give(n, ctx)
}
