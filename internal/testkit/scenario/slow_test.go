package scenario_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// resident is how much memory a process has, in bytes; 0 if unknown.
func (p *process) resident() int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), "VmRSS:")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		return 0
	}
	return kib << 10
}

// TestASlowReaderSlowsItsOwnStreamAlone: the device would send without end.
func TestASlowReaderSlowsItsOwnStreamAlone(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	var sent atomic.Int64
	ended := make(chan struct{})
	const chunk = 32 << 10
	p.join(t, options{id: "a", before: func(d *device) {
		d.says("hello", "hi")
		d.does(functions.Function{
			Name: "endless", Effect: cmp.EffectRead, Stream: true,
			Handle: func(ctx context.Context, c functions.Call) (json.RawMessage, error) {
				defer close(ended)
				value, err := json.Marshal(strings.Repeat("x", chunk))
				for err == nil {
					if err = c.Emit(ctx, value); err == nil {
						sent.Add(1)
					}
				}
				return nil, err
			},
		})
	}})
	before := p.resident()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	inv := client.Invocation{
		Target: "device.function.invoke", Input: json.RawMessage(`{"function":"endless"}`),
		Select: map[string]string{"node": "a"}, Stream: true,
	}
	read := 0
	began := time.Now()
	for _, err := range p.admin.Lines(ctx, http.MethodPost, "/api/v1/invocations", inv) {
		if err != nil {
			break
		}
		if read++; time.Since(began) > 4*time.Second {
			break
		}
		<-time.After(100 * time.Millisecond)
		if out, err := p.call(t, "a", "hello", nil); err != nil || string(out) != `"hi"` {
			t.Errorf(`another call: %s %v; want no error, string(out) = "\"hi\""`, out, err)
		}
	}
	ahead := (sent.Load() - int64(read)) * chunk
	t.Logf("%d chunks were read and %d sent: %d KiB ahead; the gateway has %d MiB, %d before", read, sent.Load(), ahead>>10, p.resident()>>20,
		before>>20)
	if read < 10 || ahead > 32<<20 {
		t.Errorf("%d chunks were read, and the device is %d bytes ahead of its reader; want read at least 10, ahead at most 32 << 20",
			read, ahead)
	}
	if grown := p.resident() - before; grown > 100<<20 {
		t.Errorf("the gateway keeps %d bytes for one slow reader; want grown at most 100 << 20", grown)
	}
	leave()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the device sends on, and nobody reads")
	}
}

// TestAClockThatJumpsChangesNothing: who is there is told by the gateway's clock, and
// by what passes on it.
func TestAClockThatJumpsChangesNothing(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "", "JUNCTOR_GATEWAY_HEARTBEAT=200ms", "JUNCTOR_GATEWAY_HEARTBEAT_TIMEOUT=1s", "JUNCTOR_GATEWAY_GRACE=500ms")
	var jump atomic.Int64
	d := p.join(t, options{
		id: "a", now: func() time.Time { return time.Now().Add(time.Duration(jump.Load())) },
		before: func(d *device) { d.says("hello", "hi") },
	})
	for _, by := range []time.Duration{2 * time.Hour, -3 * time.Hour, 24 * time.Hour, 0} {
		jump.Store(int64(by))
		beats := d.Status().Beats
		eventually(t, "it beats for longer than its lease", func() bool { return d.Status().Beats > beats+6 })
		if out, err := p.call(t, "a", "hello", nil); err != nil || string(out) != `"hi"` || d.Status().Joins != 1 ||
			p.status(t, "a") != "connected" {
			t.Errorf(`after a jump by %s: %s %v %+v; want no error, string(out) = "\"hi\"", d.Status().Joins = 1, p.status(t, `+
				`"a") = "connected"`, by, out, err, d.Status())
		}
	}
}
