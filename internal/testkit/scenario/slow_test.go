package scenario_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/protocol/cmp"
)

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
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	inv := client.Invocation{
		Target: "device.function.invoke", Input: json.RawMessage(`{"function":"endless"}`),
		Select: map[string]string{"node": "a"}, Stream: true,
	}
	read := 0
	for _, err := range p.admin.Lines(ctx, http.MethodPost, "/api/v1/invocations", inv) {
		if err != nil {
			break
		}
		if read++; read == 40 {
			break
		}
		<-time.After(100 * time.Millisecond)
		if out, err := p.call(t, "a", "hello", nil); err != nil || string(out) != `"hi"` {
			t.Errorf(`another call: %s %v; want no error, string(out) = "\"hi\""`, out, err)
		}
	}
	ahead := (sent.Load() - int64(read)) * chunk
	t.Logf("%d chunks were read and %d sent: %d KiB ahead", read, sent.Load(), ahead>>10)
	if read < 40 || ahead > 32<<20 {
		t.Errorf("%d chunks were read, and the device is %d bytes ahead of its reader; want read at least 40, ahead at most 32 << 20",
			read, ahead)
	}
	leave()
	select {
	case <-ended:
	case <-time.After(waitTimeout):
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
