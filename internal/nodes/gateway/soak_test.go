//go:build soak

package gateway_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsbus"
	"github.com/junctor-run/junctor/internal/testkit/inproc"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// TestSoakAThousandNodes: a thousand nodes with twenty functions each join at once
// two gateways, beat for a while, and join again when the table is lost. It states what
// that costs.
func TestSoakAThousandNodes(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) ([]messaging.Broker, messaging.Dialer){
		"memory": func(t *testing.T) ([]messaging.Broker, messaging.Dialer) {
			b := inproc.New(anybody)
			t.Cleanup(b.Close)
			return []messaging.Broker{b}, b.Dial
		},
		"cluster": func(t *testing.T) ([]messaging.Broker, messaging.Dialer) { w := cluster(t); return w.brokers, w.dial },
		"embedded": func(t *testing.T) ([]messaging.Broker, messaging.Dialer) {
			b, err := natsbus.Embed(t.Context(), t.TempDir(), natsbus.Config{Authorize: anybody})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(b.Close)
			return []messaging.Broker{b}, webDialer(t, b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			const count = 1000
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			brokers, dial := open(t)
			w := &world{t: t, ctx: ctx, heartbeat: 5 * time.Second, dial: dial, brokers: brokers}
			w.gateway()
			w.gateway()
			conns := make([]messaging.Conn, count)
			began := time.Now()
			var all errgroup.Group
			all.SetLimit(100)
			for i := range count {
				all.Go(func() (err error) {
					conns[i], err = dial(ctx, options(fmt.Sprintf("n%d", i)))
					if err == nil {
						connected(ctx, t, conns[i])
						_, err = conns[i].Subscribe(ctx, messaging.SubscribeOptions{Pattern: "v1.host." + fmt.Sprintf("n%d", i) + ".>", Pending: 16})
					}
					return err
				})
			}
			if err := all.Wait(); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d sessions after %s", count, time.Since(began))
			before := inUse()
			began = time.Now()
			epochs := make([]int64, count)
			for i := range count {
				all.Go(func() error {
					epochs[i] = joinLarge(ctx, t, conns[i], fmt.Sprintf("n%d", i))
					return nil
				})
			}
			_ = all.Wait()
			t.Logf("all have joined after %s", time.Since(began))
			for _, g := range w.gateways {
				w.eventually("both gateways know them all", time.Minute, func() bool { return g.Fleet().Len() == count })
			}
			t.Logf("both gateways know them after %s; %d KiB for each node, two tables and the bucket", time.Since(began),
				(inUse()-before)/count>>10)
			bucket, err := brokers[0].Bucket(ctx, messaging.BucketOptions{Name: "nodes"})
			if err != nil {
				t.Fatal(err)
			}
			if e, err := bucket.Get(ctx, "n7"); err == nil {
				t.Logf("an entry of the bucket has %d bytes", len(e.Value))
			}
			cpu := used()
			began = time.Now()
			beat := func(round int) {
				for i := range count {
					if i%100 == 99 { // a burst of all at once would be dropped, in part
						_ = conns[i].Flush(ctx)
					}
					data, err := wire.Encode(&wire.Beat{Epoch: epochs[i], Seq: uint64(round), Revision: 1, CPU: float64(i % 100), Accepting: true})
					if err == nil {
						err = conns[i].Publish(ctx, messaging.Message{Subject: wire.SubjectBeat(fmt.Sprintf("n%d", i)), Data: data})
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			for round := range 12 { // a minute of heartbeats
				beat(round)
			}
			for _, c := range conns {
				_ = c.Flush(ctx)
			}
			w.eventually("the last heartbeats are heard", time.Minute, func() bool {
				for _, g := range w.gateways {
					for _, n := range g.Fleet().List(fleet.Filter{}) {
						if n.LastBeat.Before(began) {
							return false
						}
					}
				}
				return true
			})
			t.Logf("%d heartbeats, each to two gateways and a judge: %s, %s of processor each, nodes and bus in it", 12*count, time.Since(began),
				(used()-cpu)/(12*count))
			for _, g := range w.gateways {
				if s := g.said("n7", false); s != "joined" && s != "joined resumed" { // the bucket may show it late
					t.Errorf("node n7 = %q, want joined, or joined resumed", s)
				}
			}
			began = time.Now()
			third := w.gateway()
			w.eventually("a gateway that starts knows them all", time.Minute, func() bool { return third.Fleet().Len() == count })
			t.Logf("a gateway that starts knows them all after %s", time.Since(began))
			beat(12) // they are asked for it, and here the request is not answered
			w.eventually("it has heard them all", time.Minute, func() bool {
				return !slices.ContainsFunc(third.Fleet().List(fleet.Filter{Suspect: true}),
					func(n fleet.Node) bool { return n.Status == fleet.Disconnected })
			})
			began = time.Now()
			for range 1000 {
				if _, err := third.Fleet().Pick(fleet.Request{Function: "tools.f3", Balance: true}); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("a choice among %d takes %s", count, time.Since(began)/1000)
			for _, c := range conns {
				c.Close()
			}
		})
	}
}

func joinLarge(ctx context.Context, t testing.TB, c messaging.Conn, id string) int64 {
	j := wire.Join{Proto: 1, NodeID: id, Instance: "i", Labels: []string{"gpu"}, Revision: 1, Accepting: true}
	for i := range 20 {
		j.Functions = append(j.Functions, cmp.Function{
			Name: fmt.Sprint("tools.f", i), Version: "1.0.0", Description: "Does something to a file of " + id + ".", Priority: 5,
			ExecutionMode: "normal", Tags: []string{"files"},
			InputSchema: []byte(fmt.Sprintf(`{"type":"object","properties":{"path":{"type":"string","description":"where it is, %d"},"mode":{"enum":["r","w"]}},"required":["path"]}`, i)),
		})
	}
	data, err := wire.Encode(&j)
	if err != nil {
		t.Error(err)
		return 0
	}
	var m messaging.Message
	for {
		m, err = c.Request(ctx, messaging.Message{Subject: wire.SubjectJoin(id), Data: data})
		if messaging.Is(err, messaging.ReasonNoResponders) && ctx.Err() == nil { // servers that have just met
			<-time.After(20 * time.Millisecond)
			continue
		}
		break
	}
	if err != nil {
		t.Error(err)
		return 0
	}
	reply, err := wire.Decode[wire.JoinReply](m.Data)
	if err != nil || !reply.OK {
		t.Errorf("join reply = %+v, err = %v; want an accepted one", reply, err)
		return 0
	}
	return reply.Epoch
}

func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
