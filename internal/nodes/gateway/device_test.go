package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// device is a minimal node: it joins, sends heartbeats, reconnects, answers calls of its
// functions, and answers a repeated request with the stored result.
type device struct {
	t        testing.TB
	id       string
	instance string
	conn     messaging.Conn
	beats    time.Duration
	labels   []string
	offers   []string

	stop context.CancelFunc
	all  sync.WaitGroup

	mu       sync.Mutex
	epoch    int64
	last     int64 // epoch, also while it has none
	joins    int
	seq      uint64
	frozen   bool
	draining bool
	full     bool // every call is refused
	over     bool // superseded
	running  map[string]*run
	ran      map[string]int // calls that began, by function
	ended    map[string]int // calls whose context ended, by function
	keys     map[string]json.RawMessage
	thrown   int // answers of keyed calls that are not to be sent
	rejected []string
}

type run struct {
	cancel context.CancelFunc
	credit chan int64
}

const defaultOffers = "f slow never stream endless keyed fails"

func (w *world) device(id, instance string, change ...func(*device)) *device {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.ctx)
	d := &device{
		t: w.t, id: id, instance: instance, beats: w.heartbeat, stop: stop, labels: []string{"gpu", "user:" + id},
		offers:  strings.Fields(defaultOffers),
		running: make(map[string]*run), ran: make(map[string]int), ended: make(map[string]int), keys: make(map[string]json.RawMessage),
	}
	for _, c := range change {
		c(d)
	}
	conn, err := w.dial(ctx, options(id))
	if err != nil {
		w.t.Fatal(err)
	}
	d.conn = conn
	w.t.Cleanup(d.kill)
	d.start(ctx)
	return d
}

// kill ends the process: its connection closes, and it says nothing.
func (d *device) kill() {
	d.stop()
	d.conn.Close()
	d.all.Wait()
}

func (d *device) start(ctx context.Context) {
	events := d.conn.Events(ctx)
	ready := make(chan struct{})
	d.all.Go(func() {
		first := true
		for e, err := range events {
			if err != nil {
				return
			}
			if e.Kind != messaging.Connected && e.Kind != messaging.Reconnected {
				continue
			}
			if first {
				d.listen(ctx)
				first = false
			}
			d.join(ctx)
			select {
			case <-ready:
			default:
				close(ready)
			}
		}
	})
	d.all.Go(func() {
		select {
		case <-ready:
		case <-ctx.Done():
			return
		}
		tick := time.NewTicker(d.beats)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				d.beat(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
}

// listen receives calls and control messages.
func (d *device) listen(ctx context.Context) {
	for pattern, take := range map[string]func(context.Context, messaging.Message){
		wire.SubjectCall(d.id):    d.called,
		wire.SubjectControl(d.id): d.told,
	} {
		sub, err := d.conn.Subscribe(ctx, messaging.SubscribeOptions{Pattern: pattern})
		if err != nil {
			if ctx.Err() == nil {
				d.t.Errorf("%s: err = %v, want nil", d.id, err)
			}
			return
		}
		d.all.Go(func() {
			for {
				m, err := sub.Next(ctx)
				if err != nil {
					return
				}
				take(ctx, m)
			}
		})
	}
}

// join asks until it is let in, or is told that another has its place.
func (d *device) join(ctx context.Context) {
	d.mu.Lock()
	j := wire.Join{
		Proto: 1, NodeID: d.id, Instance: d.instance, Epoch: d.last, Labels: d.labels, Revision: 1, Accepting: true,
		Software: wire.Software{Name: "device", Version: "1"},
	}
	for _, f := range d.offers {
		j.Functions = append(j.Functions, cmp.Function{Name: f, Version: "1.0.0", Priority: 5, ExecutionMode: "normal", Tags: []string{}})
	}
	over := d.over
	d.epoch = 0 // what is said of the old one is over
	d.mu.Unlock()
	data, err := wire.Encode(&j)
	if err != nil {
		d.t.Error(err)
		return
	}
	for ctx.Err() == nil && !over {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		m, err := d.conn.Request(attempt, messaging.Message{Subject: wire.SubjectJoin(d.id), Data: data})
		cancel()
		if err == nil {
			reply, err := wire.Decode[wire.JoinReply](m.Data)
			if err == nil && reply.OK {
				d.mu.Lock()
				d.epoch, d.last, d.joins, d.rejected = reply.Epoch, reply.Epoch, d.joins+1, reply.RejectedLabels
				d.mu.Unlock()
				return
			}
			if err == nil && reply.Error.Details["reason"] == "superseded" {
				d.set(func() { d.over = true })
				return
			}
			d.t.Logf("%s was not let in: %+v %v", d.id, reply.Error, err)
		}
		if messaging.Is(err, messaging.ReasonDisconnected) {
			return // it is tried again when the session is back
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (d *device) beat(ctx context.Context) {
	d.mu.Lock()
	d.seq++
	b := wire.Beat{Epoch: d.epoch, Seq: d.seq, Revision: 1, CPU: 10, Active: len(d.running), Accepting: true}
	frozen := d.frozen || d.over || d.epoch == 0
	goes := d.draining && len(d.running) == 0 && !frozen
	d.over = d.over || goes
	epoch := d.epoch
	d.mu.Unlock()
	if goes {
		if data, err := wire.Encode(&wire.Leave{Epoch: epoch, Reason: "drained"}); err == nil {
			_, _ = d.conn.Request(ctx, messaging.Message{Subject: wire.SubjectLeave(d.id), Data: data})
		}
		return
	}
	if data, err := wire.Encode(&b); err == nil && !frozen {
		_ = d.conn.Publish(ctx, messaging.Message{Subject: wire.SubjectBeat(d.id), Data: data})
	}
}

func (d *device) freeze(frozen bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.frozen = frozen
}

func (d *device) told(ctx context.Context, m messaging.Message) {
	c, err := wire.Decode[wire.Control](m.Data)
	if err != nil {
		d.t.Error(err)
		return
	}
	d.mu.Lock()
	r, now := d.running[c.CallID], c.Epoch == d.epoch && !d.frozen
	d.mu.Unlock()
	switch {
	case !now:
	case c.Type == wire.ControlRejoin:
		d.all.Go(func() { d.join(ctx) })
	case c.Type == wire.ControlBeat:
		d.beat(ctx)
	case c.Type == wire.ControlSuperseded:
		d.mu.Lock()
		d.over = true
		d.mu.Unlock()
	case c.Type == wire.ControlDrain:
		d.mu.Lock()
		d.draining = true
		d.mu.Unlock()
	case c.Type == wire.ControlCancel && r != nil:
		r.cancel()
	case c.Type == wire.ControlCredit && r != nil:
		select {
		case r.credit <- c.Bytes:
		default:
			d.t.Error("credit is lost")
		}
	}
}

func (d *device) called(ctx context.Context, m messaging.Message) {
	c, err := wire.Decode[wire.Call](m.Data)
	if err != nil {
		d.t.Error(err)
		return
	}
	var seq uint64
	answer := func(f wire.Frame) {
		f.CallID, f.Epoch, f.Seq = c.CallID, c.Epoch, seq
		seq++
		if data, err := wire.Encode(&f); err != nil {
			d.t.Error(err)
		} else {
			_ = d.conn.Publish(ctx, messaging.Message{Subject: m.Reply, Data: data})
		}
	}
	own, cancel := context.WithTimeout(ctx, time.Duration(c.DeadlineMS)*time.Millisecond)
	r := &run{cancel: cancel, credit: make(chan int64, 10000)}
	d.mu.Lock()
	refuse := d.full || d.draining
	if d.frozen {
		d.mu.Unlock()
		cancel()
		return
	}
	if !refuse {
		d.running[c.CallID] = r
		d.ran[c.Function]++
	}
	d.mu.Unlock()
	if refuse {
		cancel()
		answer(wire.Frame{Type: wire.FrameError, Error: cmp.FromError(cmp.Errorf(cmp.ReasonOverloaded, "the queue is full"), d.id, c.Function,
			false)})
		return
	}
	d.all.Go(func() {
		defer func() {
			cancel()
			d.mu.Lock()
			defer d.mu.Unlock()
			delete(d.running, c.CallID)
		}()
		d.run(own, c, r, answer, func() { seq++ })
		if own.Err() != nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.ended[c.Function]++
		}
	})
}

func (d *device) run(ctx context.Context, c *wire.Call, r *run, answer func(wire.Frame), drop func()) {
	result := func(v string) { answer(wire.Frame{Type: wire.FrameResult, Value: json.RawMessage(v)}) }
	switch c.Function {
	case "f":
		result(fmt.Sprintf("%q", d.id+"/"+d.instance))
	case "fails":
		answer(wire.Frame{Type: wire.FrameError, Error: cmp.FromError(cmp.Errorf(cmp.ReasonExecution, "it is broken"), d.id, c.Function, false)})
	case "slow": // as long as its argument says
		var ms int
		_ = json.Unmarshal(c.Args[0], &ms)
		answer(wire.Frame{Type: wire.FrameAck})
		select {
		case <-time.After(time.Duration(ms) * time.Millisecond):
			result(`"done"`)
		case <-ctx.Done():
		}
	case "never":
		answer(wire.Frame{Type: wire.FrameAck})
		<-ctx.Done()
	case "keyed":
		d.mu.Lock()
		v, again := d.keys[c.IdempotencyKey]
		if !again {
			v = json.RawMessage(fmt.Sprint(len(d.keys) + 1))
			d.keys[c.IdempotencyKey] = v
		}
		lose := d.thrown > 0
		d.thrown--
		d.mu.Unlock()
		if lose { // the bus drops the first frame
			drop()
		}
		result(string(v))
	case "stream", "endless":
		d.stream(ctx, c, r, answer)
	}
}

// stream sends its argument's number of chunks of 32 KiB, as its window admits.
func (d *device) stream(ctx context.Context, c *wire.Call, r *run, answer func(wire.Frame)) {
	count, open := 5, int64(c.Window)
	if len(c.Args) > 0 {
		_ = json.Unmarshal(c.Args[0], &count)
	}
	if c.Window == 0 {
		open = wire.DefaultWindow
	}
	var sent int64
	for i := 0; i < count || c.Function == "endless"; i++ {
		v := json.RawMessage(fmt.Sprintf(`"%08d%s"`, i, strings.Repeat("x", 32<<10)))
		for open < int64(len(v)) {
			select {
			case n := <-r.credit:
				open += n
			case <-ctx.Done():
				return
			}
		}
		open -= int64(len(v))
		sent += int64(len(v))
		answer(wire.Frame{Type: wire.FrameChunk, Value: v})
		if ctx.Err() != nil {
			return
		}
	}
	answer(wire.Frame{Type: wire.FrameDone, Chunks: count, Bytes: sent})
}

func (d *device) count(of map[string]int, function string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return of[function]
}

func (d *device) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}
