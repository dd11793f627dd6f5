package scenario_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	sdk "github.com/junctor-run/junctor/host/device"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
	"github.com/junctor-run/junctor/secret"
)

// balanced calls a function of whichever node is best.
func (p *plane) balanced(t testing.TB, function string, balancing any) (node string, result json.RawMessage, err error) {
	t.Helper()
	input, err := json.Marshal(map[string]any{"function": function})
	if err != nil {
		t.Fatal(err)
	}
	var out client.Invoked
	err = p.admin.Invoke(t.Context(), client.Invocation{Target: "device.function.invoke", Input: input, LoadBalancing: balancing}, &out)
	if err != nil {
		return "", nil, err
	}
	var inv struct{ Provider string }
	if err := json.Unmarshal(out.Invocation, &inv); err != nil {
		t.Fatal(err)
	}
	return inv.Provider[strings.LastIndexByte(inv.Provider, ':')+1:], out.Result, nil
}

func TestScenario40NoSuchFunction(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	p.join(t, options{id: "a", before: func(d *device) { d.says("hello", "hi") }})
	_, err := p.call(t, "a", "nothing", nil)
	if e := capability.AsError(err); e == nil || e.Reason != cmp.ReasonFunctionNotFound || e.Code != capability.CodeUnknownCapability ||
		e.Hint == "" {
		t.Errorf("%+v; want e not nil, e.Reason = cmp.ReasonFunctionNotFound, e.Code = capability.CodeUnknownCapability, e.Hint "+
			`other than ""`, err)
	}
	if _, err := p.call(t, "nobody", "hello", nil); err == nil {
		t.Error("a node that is not there was called; want an error")
	}
}

func TestScenario41And42And43QueueDeadlineAndCaller(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	entered, ended := make(chan struct{}, 4), make(chan error, 4)
	wait := func(ctx context.Context, _ functions.Call) (json.RawMessage, error) {
		entered <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ctx.Err()
	}
	d := p.join(t, options{id: "a", max: 1, queue: 1, before: func(d *device) {
		d.does(functions.Function{Name: "wait", Effect: cmp.EffectRead, Handle: wait})
	}})
	ctx, gone := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := ask(ctx, p.admin, "fn.wait", map[string]any{}, "a")
		first <- err
	}()
	<-entered
	second := make(chan error, 1)
	short, stop := context.WithCancel(t.Context())
	go func() {
		_, err := ask(short, p.admin, "fn.wait", map[string]any{}, "a")
		second <- err
	}()
	eventually(t, "one runs and one waits", func() bool { _, queued := d.exec.Load(); return queued == 1 })
	_, err := p.call(t, "a", "wait", nil)
	if e := capability.AsError(err); e == nil || e.Reason != cmp.ReasonOverloaded || e.Code != capability.CodeOverloaded || e.RetryAfter <= 0 {
		t.Errorf("41: %+v; want e not nil, e.Reason = cmp.ReasonOverloaded, e.Code = capability.CodeOverloaded, e.RetryAfter more than 0",
			err)
	}
	stop()
	<-second
	gone() // the caller goes away: its handler is told
	<-first
	select {
	case <-ended:
	case <-time.After(waitTimeout):
		t.Fatal("43: the handler works on for nobody")
	}
	input := json.RawMessage(`{"function":"wait"}`)
	arrived := false
	for tries := 0; tries < 20 && !arrived; tries++ { // on a busy machine its time may be over on the way
		began := time.Now()
		err = p.admin.Invoke(t.Context(), client.Invocation{
			Target: "device.function.invoke", Input: input,
			Select: map[string]string{"node": "a"}, Timeout: "300ms",
		}, nil)
		if e := capability.AsError(err); e == nil || e.Code != capability.CodeTimeout || time.Since(began) > hangTimeout {
			t.Errorf("42: %v after %s; want e not nil, e.Code = capability.CodeTimeout, time.Since(began) at most %s",
				err, time.Since(began), hangTimeout)
		}
		select {
		case <-entered:
			arrived = true
		case <-time.After(time.Second):
		}
	}
	if !arrived {
		t.Fatal("42: no call arrives within its time")
	}
	select {
	case <-ended:
	case <-time.After(waitTimeout):
		t.Fatal("42: the handler works on past its deadline")
	}
}

// counts is a stream of n numbers, each padded to size bytes.
func counts(n, size int, sent *atomic.Int64) functions.Function {
	return functions.Function{
		Name: "count", Effect: cmp.EffectRead, Stream: true,
		Handle: func(ctx context.Context, c functions.Call) (json.RawMessage, error) {
			for i := range n {
				text := fmt.Sprintf("%d %s", i, strings.Repeat("x", size))
				chunk, err := json.Marshal(text)
				if err != nil {
					return nil, err
				}
				if err := c.Emit(ctx, chunk); err != nil {
					return nil, err
				}
				sent.Add(1)
			}
			return nil, nil
		},
	}
}

func TestScenario44Streams(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	var sent atomic.Int64
	p.join(t, options{id: "a", before: func(d *device) { d.does(counts(20, 10, &sent)) }})
	inv := client.Invocation{
		Target: "device.function.invoke", Input: json.RawMessage(`{"function":"count"}`),
		Select: map[string]string{"node": "a"}, Stream: true,
	}
	next, ends := 0, 0
	for line, err := range p.admin.Lines(t.Context(), http.MethodPost, "/api/v1/invocations", inv) {
		if err != nil {
			t.Fatal(err)
		}
		var item struct {
			Progress *capability.Chunk
			OK       bool
			Result   []string
		}
		if err := json.Unmarshal(line, &item); err != nil {
			t.Fatal(err)
		}
		switch {
		case item.Progress != nil && item.Progress.Stage == "":
			if want := fmt.Sprintf(`"%d `, next); !strings.HasPrefix(string(item.Progress.Data), want) || ends > 0 {
				t.Errorf("chunk %s after %s; want string(item.Progress.Data) beginning with %v, ends at most 0",
					item.Progress.Data, want, want)
			}
			next++
		case item.OK:
			if ends++; len(item.Result) != 20 {
				t.Errorf("%d in the end; want len(item.Result) = 20", len(item.Result))
			}
		}
	}
	if next != 20 || ends != 1 {
		t.Errorf("%d chunks, %d ends; want next = 20, ends = 1", next, ends)
	}
	out, err := p.call(t, "a", "count", nil) // called plainly it is a list
	var list []string
	if err != nil || json.Unmarshal(out, &list) != nil || len(list) != 20 {
		t.Errorf("%s %v; want no error, json.Unmarshal(out, &list) = nil, len(list) = 20", out, err)
	}
	stdout, _, code := p.cli(t, "call", "a", "count", "--stream")
	if lines := strings.Split(strings.TrimSpace(stdout), "\n"); code != 0 || len(lines) != 20 || !strings.HasPrefix(lines[19], `"19 `) {
		t.Errorf(`%d %s; want code = 0, len(lines) = 20, lines[19] beginning with "\"19 "`, code, stdout)
	}
}

func TestScenario47ATenMebibyteResultAndASkillAboveOneMessage(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	ctx, stop := context.WithCancel(t.Context())
	joined := make(chan struct{}, 8)
	text := func(name string, size int) sdk.Function {
		return sdk.Function{Name: name, Effect: cmp.EffectRead, Handle: func(context.Context, sdk.Args) (any,
			error,
		) {
			return strings.Repeat("x", size), nil
		}}
	}
	d, err := sdk.New(ctx, sdk.Config{
		Gateway: p.url, Token: secret.New(p.newToken(t, "node")), Dir: t.TempDir(), ID: "a",
		Functions: []sdk.Function{text("large", 10<<20), text("huge", 80<<20), text("small", 1)}, Actions: []sdk.Function{text("cam", 1)},
		Changed: func(s sdk.Status) {
			if s.State == sdk.Connected {
				joined <- struct{}{}
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done; d.Close() })
	<-joined
	p.known(t, "a")
	big := pack("s", "cam")
	big["description"] = strings.Repeat("y", 700<<10) // more than one message holds
	if _, err := ask(t.Context(), p.admin, "device.skill.install", map[string]any{"skill_payload": big}, "a"); err != nil {
		t.Fatal(err)
	}
	out, err := p.call(t, "a", "large", nil)
	if err != nil || len(out) != 10<<20+2 {
		t.Errorf("%d bytes, %v; want no error, len(out) = 10<<20 + 2", len(out), err)
	}
	if out, err := p.call(t, "a", "huge", nil); capability.CodeOf(err) != capability.CodeTooLarge {
		t.Errorf("%d bytes, %v; want capability.CodeOf(err) = capability.CodeTooLarge", len(out), err)
	}
	if out, err := p.call(t, "a", "small", nil); err != nil || string(out) != `"x"` {
		t.Errorf(`%s %v; want no error, string(out) = "\"x\""`, out, err)
	}
}

func TestScenario48To50WhoTakesTheCall(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	entered, release := make(chan struct{}, 2), make(chan struct{})
	var freed sync.Once
	free := func() { freed.Do(func() { close(release) }) }
	t.Cleanup(free)
	for _, id := range []string{"a", "b"} {
		p.join(t, options{id: id, max: 1, queue: 1, before: func(d *device) {
			d.does(functions.Function{
				Name: "who", Effect: cmp.EffectRead,
				Handle: func(context.Context, functions.Call) (json.RawMessage, error) { return json.Marshal(d.id) },
			})
			d.does(functions.Function{
				Name: "set", Effect: cmp.EffectWrite,
				Handle: func(context.Context, functions.Call) (json.RawMessage, error) { return json.RawMessage(`1`), nil },
			})
			d.does(functions.Function{Name: "hold", Effect: cmp.EffectRead, Handle: func(context.Context, functions.Call) (json.RawMessage, error) {
				entered <- struct{}{}
				<-release
				return json.RawMessage(`1`), nil
			}})
		}})
	}
	var seen []string
	for range 4 {
		node, out, err := p.balanced(t, "who", "round_robin")
		if err != nil || string(out) != `"`+node+`"` {
			t.Fatalf("%s %s %v; want no error, string(out) = `\"` + node + `\"`", node, out, err)
		}
		seen = append(seen, node)
	}
	if seen[0] == seen[1] || seen[0] != seen[2] || seen[1] != seen[3] {
		t.Errorf("49: %v; want seen[0] other than seen[1], seen[0] = seen[2], seen[1] = seen[3]", seen)
	}
	for range 3 {
		if node, _, err := p.balanced(t, "who", map[string]any{"excluded_node_ids": []string{"a"}}); err != nil || node != "b" {
			t.Errorf(`50: %s %v; want no error, node = "b"`, node, err)
		}
	}
	if node, _, err := p.balanced(t, "who", map[string]any{"preferred_node_ids": []string{"b"}}); err != nil || node != "b" {
		t.Errorf(`preferred: %s %v; want no error, node = "b"`, node, err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := p.call(t, "a", "hold", nil)
		done <- err
	}()
	<-entered
	for range 5 {
		if node, _, err := p.balanced(t, "who", true); err != nil || node != "b" {
			t.Errorf(`48: %s %v; want no error, node = "b"`, node, err)
		}
	}
	free()
	if err := <-done; err != nil {
		t.Error(err)
	}
	// No node named, several there: what only reads is balanced by itself, anything
	// else has to be asked for.
	if _, err := ask(t.Context(), p.admin, "fn.who", map[string]any{}, ""); err != nil {
		t.Errorf("a read: %v", err)
	}
	if _, err := ask(t.Context(), p.admin, "fn.set", map[string]any{}, ""); capability.CodeOf(err) != capability.CodeSelectionRequired {
		t.Errorf("a write: %v; want capability.CodeOf(err) = capability.CodeSelectionRequired", err)
	}
	if _, err := ask(t.Context(), p.admin, "fn.set", map[string]any{}, "any"); err != nil {
		t.Errorf("a write to any: %v", err)
	}
}

func TestScenario51NothingRunsTwice(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	var ran atomic.Int64
	p.join(t, options{id: "a", before: func(d *device) {
		d.does(functions.Function{Name: "once", Effect: cmp.EffectWrite, Handle: func(context.Context, functions.Call) (json.RawMessage, error) {
			return json.Marshal(ran.Add(1))
		}})
		d.does(functions.Function{Name: "die", Effect: cmp.EffectWrite, Handle: func(context.Context, functions.Call) (json.RawMessage, error) {
			ran.Add(1)
			panic("now")
		}})
	}})
	inv := client.Invocation{
		Target: "device.function.invoke", Input: json.RawMessage(`{"function":"once"}`),
		Select: map[string]string{"node": "a"}, IdempotencyKey: "k1",
	}
	for range 3 {
		var out client.Invoked
		if err := p.admin.Invoke(t.Context(), inv, &out); err != nil || string(out.Result) != "1" {
			t.Errorf(`%s %v; want no error, string(out.Result) = "1"`, out.Result, err)
		}
	}
	ran.Store(0)
	if _, err := p.call(t, "a", "die", nil); err == nil || ran.Load() != 1 {
		t.Errorf("%v, ran %d times; want an error, ran.Load() = 1", err, ran.Load())
	}
	if out, err := p.call(t, "a", "once", nil); err != nil || string(out) != "2" {
		t.Errorf(`a panic took the node with it: %s %v; want no error, string(out) = "2"`, out, err)
	}
}

func TestScenario52FailingCallsBlockNothingElse(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	p.join(t, options{id: "a", before: func(d *device) {
		d.says("good", "yes")
		d.does(functions.Function{Name: "bad", Effect: cmp.EffectRead, Handle: func(context.Context, functions.Call) (json.RawMessage, error) {
			return nil, cmp.Errorf(cmp.ReasonExecution, "it never works")
		}})
	}})
	for range 6 {
		if _, err := p.call(t, "a", "bad", nil); reason(err) != cmp.ReasonExecution {
			t.Errorf("%v; want reason(err) = cmp.ReasonExecution", err)
		}
	}
	if node, out, err := p.balanced(t, "good", true); err != nil || node != "a" || string(out) != `"yes"` {
		t.Errorf(`%s %v; want no error, node = "a", string(out) = "\"yes\""`, out, err)
	}
}

// put sends a large value as a node with a token does.
func (p *plane) put(t testing.TB, token, node, digest string, body io.Reader) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, p.url+wire.AssetsPath+digest, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Junctor-Node", node)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error() // cut off while it was still sending
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

type zeros struct {
	left int64
	sent atomic.Int64 // the transport may read on while the answer is there
}

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.left)
	z.left -= n
	z.sent.Add(n)
	return int(n), nil
}

func TestAGigabyteIsRefusedBeforeItIsTaken(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	token := p.newToken(t, "node")
	p.join(t, options{id: "a", token: token})
	z := &zeros{left: 1 << 30}
	status, body := p.put(t, token, "a", strings.Repeat("0", 64), z)
	if status != http.StatusRequestEntityTooLarge && status != 0 || status != 0 && !strings.Contains(body, "too_large") ||
		z.sent.Load() > cmp.MaxAsset+(32<<20) {
		t.Errorf("%d %s after %d bytes; want not (status != http.StatusRequestEntityTooLarge && status != 0), not (status != 0 "+
			`&& !strings.Contains(body, "too_large")), z.sent.Load() at most cmp.MaxAsset + (32 << 20)`, status, body, z.sent.Load())
	}
	sum := sha256.Sum256([]byte("other"))
	for what, tt := range map[string]struct {
		token, node, digest string
		status              int
	}{
		"of another digest":  {token, "a", strings.Repeat("0", 64), 400},
		"no digest":          {token, "a", "..", 0},
		"another node":       {token, "b", hex.EncodeToString(sum[:]), 403},
		"an agent":           {p.file(t, "agent.token"), "a", hex.EncodeToString(sum[:]), 403},
		"a stranger":         {"jct_n_x", "a", hex.EncodeToString(sum[:]), 401},
		"the node, and well": {token, "a", hex.EncodeToString(sum[:]), 201},
	} {
		got, body := p.put(t, tt.token, tt.node, tt.digest, strings.NewReader("other"))
		if tt.status != 0 && got != tt.status || tt.status == 0 && got < 300 {
			t.Errorf("%s: %d %s; want not (tt.status != 0 && got != tt.status), not (tt.status == 0 && got < 300)", what, got, body)
		}
	}
	if !slices.ContainsFunc([]string{"laptop", "a"}, func(id string) bool { return p.status(t, id) == "connected" }) {
		t.Error("the node is gone")
	}
}

func TestBroadcastAsksEveryNodeThatOnlyReads(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	for _, id := range []string{"a", "b", "c"} {
		p.join(t, options{id: id, before: func(d *device) {
			d.does(functions.Function{Name: "who", Effect: cmp.EffectRead, Handle: func(context.Context, functions.Call) (json.RawMessage, error) {
				if d.id == "c" {
					return nil, cmp.Errorf(cmp.ReasonExecution, "not today")
				}
				return json.Marshal(d.id)
			}})
			d.does(functions.Function{
				Name: "set", Effect: cmp.EffectWrite,
				Handle: func(context.Context, functions.Call) (json.RawMessage, error) { return json.RawMessage(`1`), nil },
			})
		}})
	}
	_, out, err := p.balanced(t, "who", "broadcast")
	var got map[string]struct {
		OK     bool
		Result string
		Error  *capability.Error
	}
	if err != nil || json.Unmarshal(out, &got) != nil || len(got) != 3 || got["a"].Result != "a" || !got["b"].OK || got["c"].OK ||
		got["c"].Error.Reason != cmp.ReasonExecution {
		t.Errorf(`%s %v; want no error, json.Unmarshal(out, &got) = nil, len(got) = 3, got["a"].Result = "a", got["b"].OK = `+
			`true, got["c"].OK = false, got["c"].Error.Reason = cmp.ReasonExecution`, out, err)
	}
	if _, out, err := p.balanced(t, "set", "broadcast"); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("%s %v; want capability.CodeOf(err) = capability.CodeInvalidInput", out, err)
	}
	if stdout, stderr, code := p.cli(t, "call", "all", "who"); code != 0 || !strings.Contains(stdout, `"not today"`) {
		t.Errorf(`%d %s %s; want code = 0, stdout with "\"not today\""`, code, stdout, stderr)
	}
}
