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

// Register makes a function callable; a name that is taken is a conflict. It may be
// called at any time, and the gateway is told.
func (d *Device) Register(f Function) error { return d.register(f, false) }

// Replace is Register that takes the place of a function of that name. Calls that run
// end in the old one.
func (d *Device) Replace(f Function) error { return d.register(f, true) }

func (d *Device) register(f Function, replace bool) error {
	reg, err := f.registered()
	if err != nil {
		return err
	}
	return d.functions.Register(reg, replace)
}

// Unregister takes a function away and reports whether it was there.
func (d *Device) Unregister(name string) (bool, error) {
	if cmp.IsReserved(strings.TrimSpace(name)) {
		return false, cmp.Errorf(cmp.ReasonReserved, "the name %s belongs to the protocol", name)
	}
	return d.functions.Unregister(name)
}

// Refresh returns when the gateway knows what is registered now.
func (d *Device) Refresh(ctx context.Context) error {
	if n := d.session(); n != nil {
		return n.Refresh(ctx)
	}
	return cmp.Errorf(cmp.ReasonConnection, "the device has not joined yet")
}

// Status is how the session with the gateway is.
func (d *Device) Status() Status {
	if n := d.session(); n != nil {
		return n.Status()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return Status{ID: d.who.ID, State: node.Connecting, Error: d.wait, Labels: d.cfg.Labels}
}

// HostStatus is what the host of skills says of itself; ok is false where there is
// none.
func (d *Device) HostStatus() (status cmp.Status, ok bool) {
	if d.host == nil {
		return cmp.Status{OS: runtime.GOOS, Arch: runtime.GOARCH}, false
	}
	return d.host.Status(true, true), true
}

// Call asks the gateway for one of its capabilities, as the node that this device is:
// action is a canonical action or a capability's id, input an object.
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

// Drain takes no new calls, lets those that run finish, at most 30 s, and leaves; Run
// returns then.
func (d *Device) Drain(ctx context.Context) error { return d.order(ctx, (*node.Node).Drain) }

// Leave says goodbye at once; Run returns then.
func (d *Device) Leave(ctx context.Context) error { return d.order(ctx, (*node.Node).Leave) }

func (d *Device) order(ctx context.Context, give func(*node.Node, context.Context) error) error {
	n := d.session()
	if n == nil {
		return cmp.Errorf(cmp.ReasonConnection, "the device has not joined yet")
	}
	return give(n, ctx)
}
