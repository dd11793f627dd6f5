package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/internal/nodes/gateway"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/node"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// counts is a stream of so many chunks, each of a size.
func counts(n, size int, sent *atomic.Int64) functions.Handler {
	pad := strings.Repeat("x", size)
	return func(ctx context.Context, c functions.Call) (json.RawMessage, error) {
		for i := range n {
			if err := c.Emit(ctx, json.RawMessage(fmt.Sprintf(`"%06d%s"`, i, pad))); err != nil {
				return nil, err
			}
			sent.Add(1)
		}
		return nil, nil
	}
}

func TestAStreamKeepsToItsWindowAndItsOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gateway.Config{Window: 64 << 10})
		d := r.device("a", nil)
		var sent atomic.Int64
		d.let("count", true, counts(100, 10<<10-8, &sent))
		d.start()
		synctest.Wait()
		release, next := make(chan struct{}), 0
		done := r.call(t.Context(), gateway.Request{Node: "a", Function: "count", Stream: true, Chunk: func(v json.RawMessage) error {
			<-release
			if want := fmt.Sprintf(`"%06d`, next); !strings.HasPrefix(string(v), want) {
				t.Errorf("%.10s, not %s; want string(v) beginning with %v", v, want, want)
			}
			next++
			return nil
		}})
		synctest.Wait()
		if n := sent.Load(); n != 7 { // the seventh passes 64 KiB
			t.Errorf("%d chunks are on their way; want n = 7", n)
		}
		time.Sleep(time.Minute) // a slow reader does not disturb the heartbeat
		if got := r.told(); len(got) != 1 {
			t.Errorf("len(got) = %v, want 1; got = %q", len(got), got)
		}
		close(release)
		if o := <-done; o.err != nil || o.Chunks != 100 || next != 100 {
			t.Errorf("%+v %d; want o.err = nil, o.Chunks = 100, next = 100", o, next)
		}
	})
}

func TestAllStreamsTogetherKeepToFourMiB(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gateway.Config{Window: wire.MaxWindow})
		d := r.device("a", nil)
		var sent atomic.Int64
		const size = 100 << 10
		d.let("count", true, counts(60, size-8, &sent))
		d.start()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		hold := make(chan struct{})
		for range 2 {
			r.call(ctx, gateway.Request{Node: "a", Function: "count", Stream: true, Chunk: func(json.RawMessage) error { <-hold; return nil }})
		}
		synctest.Wait()
		// The gateway divides as much among its streams, so that less may be on its way.
		if n := sent.Load() * size; n > node.MaxOutstanding || n < 2*wire.MinWindow {
			t.Errorf("%d bytes are on their way; want n at most node.MaxOutstanding, n at least 2 * wire.MinWindow", n)
		}
		cancel()
		close(hold)
		synctest.Wait()
		if o := <-r.call(t.Context(), gateway.Request{
			Node: "a", Function: "count", Stream: true,
			Chunk: func(json.RawMessage) error { return nil },
		}); o.err != nil {
			t.Errorf("what cancelled streams had on the way is not free: %v; want o.err = nil", o.err)
		}
	})
}

func TestTheThirtyThirdStreamIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gateway.Config{NodeStreams: 100})
		d := r.device("a", func(c *node.Config) { c.MaxConcurrent = 100 })
		handle, _ := blocked()
		d.let("wait", true, handle)
		d.let("echo", false, echo)
		d.start()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		for range node.MaxStreams {
			r.call(ctx, gateway.Request{Node: "a", Function: "wait", Stream: true})
		}
		synctest.Wait()
		o := <-r.call(t.Context(), gateway.Request{Node: "a", Function: "wait", Stream: true})
		if reason(o.err) != cmp.ReasonOverloaded || !strings.Contains(o.err.Error(), "32 streams") {
			t.Errorf(`reason(o.err) = %q, want cmp.ReasonOverloaded; o.err = %v, want it to contain "32 streams"`, reason(o.err), o.err)
		}
		if o := <-r.call(t.Context(), gateway.Request{Node: "a", Function: "echo"}); o.err != nil {
			t.Errorf("a call is not a stream: %v; want o.err = nil", o.err)
		}
		cancel()
		synctest.Wait()
		if s := d.Status(); s.Streams != 0 || s.Active != 0 {
			t.Errorf("%+v; want s.Streams = 0, s.Active = 0", s)
		}
	})
}

func TestTheEndOfACallReachesItsHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, d := joined(t)
		handle, ended := blocked()
		d.let("wait", false, handle)
		ctx, cancel := context.WithCancel(t.Context())
		call := r.call(ctx, gateway.Request{Node: "a", Function: "wait"})
		synctest.Wait()
		cancel()
		if o := <-call; reason(o.err) != cmp.ReasonCancelled {
			t.Errorf("reason(o.err) = %q, want cmp.ReasonCancelled", reason(o.err))
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%v; want err is context.Canceled", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if o := <-r.call(ctx, gateway.Request{Node: "a", Function: "wait"}); reason(o.err) != cmp.ReasonTimeout {
			t.Errorf("reason(o.err) = %q, want cmp.ReasonTimeout", reason(o.err))
		}
		// The caller's cancel and the device's own clock come at one instant; the
		// clock alone is in TestFramesAsTheyTravel.
		if err := <-ended; err == nil {
			t.Error("the handler goes on; want an error")
		}
	})
}

func TestAFullQueueAndAPanicAreTheFailureOfOneCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gateway.Config{})
		d := r.device("a", func(c *node.Config) { c.MaxConcurrent, c.Queue = 1, 1 })
		release := make(chan struct{})
		d.let("slow", false, func(context.Context, functions.Call) (json.RawMessage, error) { <-release; return nil, nil })
		d.let("break", false, func(context.Context, functions.Call) (json.RawMessage, error) { panic("secret") })
		d.start()
		synctest.Wait()
		var calls []<-chan outcome
		for range 2 {
			calls = append(calls, r.call(t.Context(), gateway.Request{Node: "a", Function: "slow"}))
			synctest.Wait()
		}
		o := <-r.call(t.Context(), gateway.Request{Node: "a", Function: "slow"})
		if reason(o.err) != cmp.ReasonOverloaded {
			t.Errorf("reason(o.err) = %q, want cmp.ReasonOverloaded", reason(o.err))
		}
		close(release)
		for _, c := range calls {
			if o := <-c; o.err != nil || string(o.Value) != "null" {
				t.Errorf(`%+v; want o.err = nil, string(o.Value) = "null"`, o)
			}
		}
		if o := <-r.call(t.Context(), gateway.Request{Node: "a", Function: "break"}); reason(o.err) != cmp.ReasonExecution ||
			strings.Contains(o.err.Error(), "secret") {
			t.Errorf(`reason(o.err) = %q, want cmp.ReasonExecution; o.err = %v, want it not to contain "secret"`, reason(o.err), o.err)
		}
		if o := <-r.call(t.Context(), gateway.Request{Node: "a", Function: "slow"}); o.err != nil {
			t.Errorf("o.err = %v, want nil", o.err)
		}
	})
}

func TestAnIdempotencyKeyRunsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, d := joined(t)
		var ran atomic.Int64
		d.let("once", false, func(context.Context, functions.Call) (json.RawMessage, error) {
			return json.RawMessage(fmt.Sprint(ran.Add(1))), nil
		})
		for range 3 {
			if o := <-r.call(t.Context(), gateway.Request{Node: "a", Function: "once", IdempotencyKey: "k"}); o.err != nil ||
				string(o.Value) != "1" {
				t.Errorf(`%+v; want o.err = nil, string(o.Value) = "1"`, o)
			}
		}
	})
}

func TestLargeValuesAreAssets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gateway.Config{})
		kept := make(map[string][]byte)
		d := r.device("a", func(c *node.Config) {
			c.Put = func(_ context.Context, data []byte, media string) (cmp.Asset, error) {
				a := cmp.Asset{Digest: "sha256:" + fmt.Sprintf("%064x", len(kept)+1), Size: int64(len(data)), MediaType: media}
				kept[a.Digest] = data
				return a, nil
			}
			c.Fetch = func(_ context.Context, a cmp.Asset) ([]byte, error) {
				if data, ok := kept[a.Digest]; ok {
					return data, nil
				}
				return nil, cmp.Errorf(cmp.ReasonParams, "there is no asset %s", a.Digest)
			}
		})
		large := `"` + strings.Repeat("x", 10<<20) + `"`
		d.let("large", false, func(context.Context, functions.Call) (json.RawMessage, error) { return json.RawMessage(large), nil })
		d.let("bytes", true, func(ctx context.Context, c functions.Call) (json.RawMessage, error) {
			return nil, c.Emit(ctx, cmp.BytesValue(make([]byte, wire.MaxChunk)))
		})
		d.let("size", false, func(_ context.Context, c functions.Call) (json.RawMessage, error) {
			return json.RawMessage(fmt.Sprint(len(c.Args.Args[0]))), nil
		})
		d.start()
		synctest.Wait()
		o := <-r.call(t.Context(), gateway.Request{Node: "a", Function: "large"})
		a, ok, err := cmp.ReadAsset(o.Value)
		if o.err != nil || !ok || err != nil || a.Size != int64(len(large)) || a.MediaType != "application/json" ||
			string(kept[a.Digest]) != large {
			t.Errorf("%.200s %v %v; want o.err = nil, ok = true, no error, a.Size = int64(len(large)), a.MediaType = "+
				`"application/json", string(kept[a.Digest]) = %v`, o.Value, o.err, err, large)
		}
		var chunks []string
		o = <-r.call(t.Context(), gateway.Request{
			Node: "a", Function: "bytes", Stream: true,
			Chunk: func(v json.RawMessage) error { chunks = append(chunks, string(v)); return nil },
		})
		if o.err != nil || len(chunks) != 1 || !strings.Contains(chunks[0], `"size":131072`) || !strings.Contains(chunks[0], "octet-stream") {
			t.Errorf("chunks = %q, err = %v; want one asset of 131072 bytes", chunks, o.err)
		}
		// And back: only in place of all arguments, where the gateway puts it.
		const within = `{"args":["0123456789"]}`
		kept["sha256:"+strings.Repeat("8", 64)] = []byte(within)
		for _, c := range []struct{ arguments, want string }{
			{`"args":[` + string(cmp.AssetValue(a)) + `]`, fmt.Sprint(len(cmp.AssetValue(a)))},
			{`"arguments":{"$asset":{"digest":"sha256:` + strings.Repeat("8", 64) + `","size":` + fmt.Sprint(len(within)) +
				`,"media_type":"application/json"}}`, "12"},
			{`"arguments":{"$asset":{"digest":"sha256:` + strings.Repeat("8", 64) + `","size":7}}`, cmp.ReasonDigest},
			{`"arguments":{"$asset":{"digest":"sha256:` + strings.Repeat("9", 64) + `","size":7}}`, cmp.ReasonParams},
		} {
			sub, err := r.bus.Conn().Subscribe(t.Context(), messaging.SubscribeOptions{Pattern: wire.SubjectReplies("me")})
			if err != nil {
				t.Fatalf("subscribing: got %v, want no error", err)
			}
			err = r.bus.Conn().Publish(t.Context(), messaging.Message{
				Subject: wire.SubjectCall("a"), Reply: wire.SubjectReply("a", "me", "c1"),
				Data: fmt.Appendf(nil, `{"epoch":%d,"call_id":"c1","function":"size",%s}`, d.Epoch(), c.arguments),
			})
			if err != nil {
				t.Fatalf("publishing the call: got %v, want no error", err)
			}
			m, err := sub.Next(t.Context())
			sub.Close()
			if err != nil {
				t.Fatalf("reading the answer: got %v, want no error", err)
			}
			f, err := wire.Decode[wire.Frame](m.Data)
			if err != nil {
				t.Fatalf("decoding the answer: got %v, want no error", err)
			}
			got := string(f.Value)
			if f.Error != nil {
				got = f.Error.Code
			}
			if got != c.want {
				t.Errorf("size(%.100s) = %s, want %s", c.arguments, got, c.want)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r, d := joined(t)
		d.let("large", false, func(context.Context, functions.Call) (json.RawMessage, error) {
			return json.RawMessage(`"` + strings.Repeat("x", wire.MaxInline) + `"`), nil
		})
		if o := <-r.call(t.Context(), gateway.Request{Node: "a", Function: "large"}); reason(o.err) != cmp.ReasonTooLarge ||
			!strings.Contains(o.err.Error(), "limit") {
			t.Errorf(`reason(o.err) = %q, want cmp.ReasonTooLarge; o.err = %v, want it to contain "limit"`, reason(o.err), o.err)
		}
	})
}

// TestFramesAsTheyTravel watches a call from beside the gateway.
func TestFramesAsTheyTravel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, d := joined(t)
		d.let("slow", false, func(context.Context, functions.Call) (json.RawMessage, error) {
			time.Sleep(time.Second)
			return json.RawMessage(`1`), nil
		})
		wait, ended := blocked()
		d.let("wait", false, wait)
		var sent atomic.Int64
		d.let("count", true, counts(2, 0, &sent))
		sub, err := r.bus.Conn().Subscribe(t.Context(), messaging.SubscribeOptions{Pattern: wire.SubjectReplies("me")})
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		ask := func(c wire.Call, want ...string) {
			t.Helper()
			data, err := json.Marshal(c)
			if err == nil {
				err = r.bus.Conn().Publish(t.Context(), messaging.Message{
					Subject: wire.SubjectCall("a"), Reply: wire.SubjectReply("a", "me", "c1"),
					Data: data,
				})
			}
			if err != nil {
				t.Fatal(err)
			}
			for i, kind := range want {
				m, err := sub.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				f, err := wire.Decode[wire.Frame](m.Data)
				if err != nil || f.Type != kind || f.Seq != uint64(i) || f.CallID != "c1" || f.Epoch != d.Epoch() {
					t.Fatalf(`%s: %s %v; want no error, f.Type = %v, f.Seq = uint64(i), f.CallID = "c1", f.Epoch = d.Epoch()`,
						kind, m.Data, err, kind)
				}
				if f.Error != nil && (f.Error.NodeID != "a" || f.Error.Type == "") {
					t.Errorf(`%+v; want not (f.Error != nil && (f.Error.NodeID != "a" || f.Error.Type == ""))`, f.Error)
				}
			}
			time.Sleep(5 * time.Second)
		}
		epoch := d.Epoch()
		ask(wire.Call{Epoch: epoch, CallID: "c1", Function: "slow"}, wire.FrameAck, wire.FrameResult)
		ask(wire.Call{Epoch: epoch, CallID: "c1", Function: "echo"}, wire.FrameResult)
		ask(wire.Call{Epoch: epoch, CallID: "c1", Function: "echo", Stream: true}, wire.FrameResult)
		ask(wire.Call{Epoch: epoch, CallID: "c1", Function: "count", Stream: true}, wire.FrameChunk, wire.FrameChunk, wire.FrameDone)
		ask(wire.Call{Epoch: epoch, CallID: "c1", Function: "count"}, wire.FrameResult)
		ask(wire.Call{Epoch: epoch, CallID: "c1", Function: "none"}, wire.FrameError)
		ask(wire.Call{Epoch: epoch, CallID: "c1", Function: "slow", DeadlineMS: 300}, wire.FrameAck, wire.FrameError)
		ask(wire.Call{Epoch: epoch, CallID: "c1", Function: "wait", DeadlineMS: 300}, wire.FrameAck, wire.FrameError)
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v; want err is context.DeadlineExceeded", err)
		}
		ask(wire.Call{Epoch: epoch, CallID: "c1", Function: "", DeadlineMS: 300}, wire.FrameError)
		// Of another epoch: it is not a call of this one, and is not answered.
		ask(wire.Call{Epoch: epoch - 1, CallID: "c1", Function: "echo"})
		ask(wire.Call{Epoch: epoch + 1, CallID: "c1", Function: "echo"})
		ask(wire.Call{Epoch: epoch, CallID: "c1", Function: "echo"}, wire.FrameResult)
		if s := d.Status(); s.Stale != 2 || s.Joins != 1 {
			t.Errorf("%+v; want s.Stale = 2, s.Joins = 1", s)
		}
	})
}

func TestACallUpward(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, d := joined(t)
		if _, err := d.Call(t.Context(), wire.Upward{Action: "fs.list"}); reason(err) != cmp.ReasonDenied {
			t.Errorf("nobody serves: %v; want reason(err) = cmp.ReasonDenied", err)
		}
		sub, err := r.bus.Conn().Subscribe(t.Context(), messaging.SubscribeOptions{Pattern: "v1.node.*.call"})
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		serve := func(reply *wire.UpwardReply) {
			m, err := sub.Next(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			u, err := wire.Decode[wire.Upward](m.Data)
			if err != nil || u.Action != "fs.list" || u.DeadlineMS == 0 || u.CallID == "" {
				t.Errorf(`%s %v; want no error, u.Action = "fs.list", u.DeadlineMS other than 0, u.CallID other than ""`, m.Data, err)
			}
			if reply == nil {
				return
			}
			data, err := wire.Encode(reply)
			if err == nil {
				err = r.bus.Conn().Publish(t.Context(), messaging.Message{Subject: m.Reply, Data: data})
			}
			if err != nil {
				t.Error(err)
			}
		}
		go serve(&wire.UpwardReply{OK: true, Result: json.RawMessage(`[1]`), Invocation: "inv"})
		reply, err := d.Call(t.Context(), wire.Upward{Action: "fs.list", Input: json.RawMessage(`{"path":"/"}`)})
		if err != nil || string(reply.Result) != "[1]" || reply.Invocation != "inv" {
			t.Errorf(`%+v %v; want no error, string(reply.Result) = "[1]", reply.Invocation = "inv"`, reply, err)
		}
		go serve(&wire.UpwardReply{Error: &cmp.WireError{Code: cmp.ReasonDenied, Message: "no"}})
		if _, err := d.Call(t.Context(), wire.Upward{Action: "fs.list"}); reason(err) != cmp.ReasonDenied {
			t.Errorf("%v; want reason(err) = cmp.ReasonDenied", err)
		}
		go serve(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := d.Call(ctx, wire.Upward{Action: "fs.list"}); reason(err) != cmp.ReasonTimeout {
			t.Errorf("%v; want reason(err) = cmp.ReasonTimeout", err)
		}
	})
}
