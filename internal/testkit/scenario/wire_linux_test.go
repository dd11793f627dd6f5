package scenario_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/junctor-run/junctor/protocol/cmp"
)

// ether is a wire between two network namespaces: every frame on it goes through this
// process, which drops some, or all. What is lost is found out and sent again by the
// kernel's TCP on both ends.
type ether struct {
	t         testing.TB
	loss      atomic.Int64 // of a thousand frames
	cut       atomic.Bool
	sent      atomic.Int64
	dropped   atomic.Int64
	near, far string // the namespaces
}

// newEther makes the namespaces and the wire; it needs root and the command ip.
func newEther(t testing.TB) *ether {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces are made by root only")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("the command ip is missing: make deps installs it on Debian")
	}
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	name := fmt.Sprintf("%06x", rand.Uint32()&0xffffff)
	e := &ether{t: t, near: "jn" + name, far: "jf" + name}
	var ends [2]int
	for i, ns := range []string{e.near, e.far} {
		if out, err := exec.Command("ip", "netns", "add", ns).CombinedOutput(); err != nil {
			t.Skipf("no network namespace can be made here: %s", out)
		}
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", ns).Run() })
		inner, outer := "i"+ns, "o"+ns
		ip("link", "add", outer, "type", "veth", "peer", "name", inner)
		ip("link", "set", inner, "netns", ns)
		ip("-n", ns, "addr", "add", fmt.Sprintf("10.213.0.%d/24", i+1), "dev", inner)
		ip("-n", ns, "link", "set", inner, "up")
		ip("link", "set", outer, "up")
		fd, err := tap(outer)
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = fd
	}
	var over atomic.Bool
	var carrying sync.WaitGroup
	carrying.Go(func() { e.carry(ends[0], ends[1], &over) })
	carrying.Go(func() { e.carry(ends[1], ends[0], &over) })
	t.Cleanup(func() {
		over.Store(true)
		carrying.Wait()
		_, _ = unix.Close(ends[0]), unix.Close(ends[1])
	})
	return e
}

// tap opens an end of the wire. Frames come with the header that states what checksums
// and segments the kernel has left to the hardware, and go with it.
func tap(link string) (int, error) {
	dev, err := net.InterfaceByName(link)
	if err != nil {
		return 0, err
	}
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8 // in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1)
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	}
	if err == nil {
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index})
	}
	return fd, err
}

func (e *ether) carry(from, to int, over *atomic.Bool) {
	buf := make([]byte, 1<<17)
	for !over.Load() {
		n, err := unix.Read(from, buf)
		if err != nil || n == 0 {
			continue
		}
		if e.cut.Load() || rand.Int64N(1000) < e.loss.Load() {
			e.dropped.Add(1)
			continue
		}
		e.sent.Add(1)
		_, _ = unix.Write(to, buf[:n]) // what the other end cannot take is lost, too
	}
}

// inside does something in a namespace: sockets stay in the one they were made in.
func inside(ns string, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		f, err := os.Open("/run/netns/" + ns)
		if err == nil {
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
			f.Close()
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// tunnel is an address of this machine whose connections go over the wire to another.
func (e *ether) tunnel(to string) (address string) {
	e.t.Helper()
	var far net.Listener
	err := inside(e.far, func() (err error) {
		far, err = net.Listen("tcp", "10.213.0.2:0")
		return err
	})
	if err != nil {
		e.t.Fatal(err)
	}
	near, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		e.t.Fatal(err)
	}
	e.relay(far, func() (net.Conn, error) { return net.Dial("tcp", to) })
	e.relay(near, func() (c net.Conn, err error) {
		err = inside(e.near, func() (err error) {
			c, err = net.DialTimeout("tcp", far.Addr().String(), 20*time.Second)
			return err
		})
		return c, err
	})
	return near.Addr().String()
}

func (e *ether) relay(l net.Listener, dial func() (net.Conn, error)) {
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer in.Close()
				out, err := dial()
				if err != nil {
					return
				}
				defer out.Close()
				defer context.AfterFunc(ctx, func() { in.Close(); out.Close() })()
				var both sync.WaitGroup
				for to, from := range map[net.Conn]net.Conn{in: out, out: in} {
					both.Go(func() {
						_, _ = io.Copy(to, from)
						_ = to.Close()
					})
				}
				both.Wait()
			})
		}
	})
	e.t.Cleanup(func() { stop(); l.Close(); all.Wait() })
}

func TestCallsOverAWireThatLosesPackets(t *testing.T) {
	t.Parallel()
	e := newEther(t)
	p := serve(t, t.TempDir(), "", "JUNCTOR_GATEWAY_HEARTBEAT=500ms", "JUNCTOR_GATEWAY_HEARTBEAT_TIMEOUT=5s", "JUNCTOR_GATEWAY_GRACE=1s")
	over := *p
	over.url = "http://" + e.tunnel(strings.TrimPrefix(p.url, "http://"))
	l := &ledger{done: make(map[string]int)}
	var streamed atomic.Int64
	d := over.join(t, options{id: "a", before: func(d *device) {
		d.does(l.function())
		d.does(counts(200, 2<<10, &streamed))
	}})
	for _, loss := range []int64{0, 20, 100} {
		e.loss.Store(loss)
		const workers, each = 8, 25
		var times figures
		var failed atomic.Int64
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				for i := range each {
					what := fmt.Sprintf("%d-%d-%d", loss, w, i)
					began := time.Now()
					out, err := p.call(t, "a", "note", map[string]any{"what": what})
					times.add(time.Since(began))
					if err != nil {
						failed.Add(1)
						continue
					}
					l.mu.Lock()
					if string(out) != `"`+what+`"` || l.done[what] != 1 {
						t.Errorf("%s was answered with %s and done %d times; want string(out) = `\"` + what + `\"`, l.done[what] = 1",
							what, out, l.done[what])
					}
					l.mu.Unlock()
				}
			})
		}
		all.Wait()
		out, err := p.call(t, "a", "count", nil)
		var list []string
		if err == nil {
			err = json.Unmarshal(out, &list)
		}
		if err != nil && loss == 0 || err == nil && (len(list) != 200 || !strings.HasPrefix(list[199], "199 ")) {
			t.Errorf("a stream at a loss of %d of a thousand: %d %v; want not (err != nil && loss == 0), not (err == nil && "+
				`(len(list) != 200 || !strings.HasPrefix(list[199], "199 ")))`, loss, len(list), err)
		}
		slices.Sort(times.times)
		t.Logf("%d of 1000 frames lost: %d calls, %d failed, p50 %s, p99 %s; the node joined %d times; the stream: %v", loss, workers*each,
			failed.Load(),
			times.times[workers*each/2].Round(time.Millisecond), times.times[workers*each*99/100].Round(time.Millisecond), d.Status().Joins, err)
		if f := failed.Load(); loss == 0 && f > 0 || f > workers*each/10 {
			t.Errorf("%d calls failed; want not (loss == 0 && f > 0), f at most workers * each / 10", f)
		}
	}
	if e.dropped.Load() == 0 || e.sent.Load() == 0 {
		t.Errorf("%d frames went over the wire, and %d were lost; want e.dropped.Load() other than 0, e.sent.Load() other than 0",
			e.sent.Load(), e.dropped.Load())
	}
}

func TestAPartitionAndItsEnd(t *testing.T) {
	t.Parallel()
	e := newEther(t)
	p := serve(t, t.TempDir(), "", "JUNCTOR_GATEWAY_HEARTBEAT=300ms", "JUNCTOR_GATEWAY_HEARTBEAT_TIMEOUT=1500ms",
		"JUNCTOR_GATEWAY_GRACE=300ms")
	over := *p
	over.url = "http://" + e.tunnel(strings.TrimPrefix(p.url, "http://"))
	l := &ledger{done: make(map[string]int)}
	over.join(t, options{id: "a", before: func(d *device) { d.does(l.function()) }})
	for round := range 3 {
		eventually(t, "it answers", func() bool {
			out, err := p.call(t, "a", "note", map[string]any{"what": fmt.Sprint("up-", round, time.Now().UnixNano())})
			return err == nil && strings.Contains(string(out), "up-")
		})
		during := make(chan error, 1)
		e.cut.Store(true)
		began := time.Now()
		go func() {
			_, err := p.call(t, "a", "note", map[string]any{"what": fmt.Sprint("cut-", round)})
			during <- err
		}()
		gone := eventually(t, "it is unlisted", func() bool { return p.status(t, "a") == "" })
		if err := <-during; err == nil || reason(err) != cmp.ReasonNodeLost {
			t.Errorf("a call into the partition: %v; want an error, reason(err) = cmp.ReasonNodeLost", err)
		}
		t.Logf("cut: unlisted after %s, the call under way ended after %s", gone.Round(time.Millisecond),
			time.Since(began).Round(time.Millisecond))
		if round == 1 { // long enough for the node to notice too, and to try in vain
			<-time.After(15 * time.Second)
		}
		e.cut.Store(false)
		back := eventually(t, "it is back", func() bool { return p.status(t, "a") == "connected" })
		t.Logf("back %s after the wire was whole", back.Round(time.Millisecond))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for what, n := range l.done {
		if n != 1 {
			t.Errorf("%s was done %d times; want n = 1", what, n)
		}
	}
}
